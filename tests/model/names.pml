/* A Spin model of the names of the versioned store ("Names" in docs/design/store-snapshots.md, "Removal" in
 * docs/design/store-repair.md).
 *
 * Creators, removers, writers and collectors take their steps in every possible order. A dead or sleeping process takes
 * no further step, as in publication.pml. A listing reads one number at a time, from the highest down, while others
 * create and remove entries. So it may miss both a removed entry and its replacement, as the listing of a directory may.
 * tests/python/test_publication_model.py runs the model, and runs it again with each planted mistake (-D and its name).
 */
#ifndef CREATORS
#define CREATORS 1   /* that begin now */
#define REMOVERS 1   /* each removes the blob, or writes to it */
#define COLLECTORS 1
#define SLEEPERS 1   /* creators that slept */
#define START 1      /* the number of the newest entry */
#endif
#define ATTEMPTS 2
#define FIRST 0
#define STANDS 1
#define BLOBS (2 + (CREATORS + SLEEPERS) * ATTEMPTS)
#define NUMBERS (START + (CREATORS + SLEEPERS) * ATTEMPTS + 2)
#define NONE 255

/* gc/alive of a blob. */
#define VALID 1 /* the creation has taken effect */
#define VOID 2  /* the creation was given up */

/* The stored objects. Entry 0 is the one in the catalog. A creator makes one blob in each attempt. */
byte entry[NUMBERS]; /* NONE, or a blob */
byte alive[BLOBS];   /* gc/alive in the blob's folder: 0: no such object */
bool gone[BLOBS];    /* gc/gone */
byte freed;          /* the largest freed/<n>; its listing is that of marks, so it is read at once */

/* The true state. */
bool took[BLOBS];    /* the creation of the blob took effect */
bool removed[BLOBS]; /* and its removal */
bool ended[BLOBS];   /* its creator has got its answer */
byte removing[BLOBS]; /* removers that have put the mark, and have not got their answer */
bool is_free;
byte creations;
byte removals;
byte creators_begun; /* creators are alike, so they begin in the order of their numbers */
byte removers_begun;

inline scan(highest) {
  i = NUMBERS - 1;
  do
  :: atomic { i > 0 && entry[i] == NONE -> i-- }
  :: atomic { i == 0 || entry[i] != NONE -> highest = i; i = 0; break }
  od
}

/* Clears variables that are no longer needed, for fewer states. */
inline forget() { newest = 0; again = 0; third = 0; i = 0; state = 0 }

/* Lists until two consecutive listings have the same newest entry. */
inline scan_unchanged() {
  scan(again);
  do
  :: scan(third);
     atomic {
       if
       :: again == third -> third = 0; break
       :: else -> again = third
       fi
     }
  od
}

#define PENDING 0
#define THERE 1
#define REMOVED 2

/* What the marks say of a blob. The folder goes through {alive}, {alive, gone}, {gone}, {}. */
inline look_at_marks(b) {
  if
  :: gone[b] -> state = REMOVED
  :: else -> state = (alive[b] == VALID -> THERE : (alive[b] == VOID -> REMOVED : PENDING))
  fi
}

/* state: of the blob of the newest entry; blob: that one, or NONE if there is no entry; newest: its number. */
inline standing() {
  do
  :: scan(newest);
     blob = entry[newest];
     if
     :: blob == NONE && newest == 0 -> state = REMOVED; break
     :: blob == NONE && newest > 0 -> skip
     :: else ->
        look_at_marks(blob);
        scan_unchanged();
        atomic {
          if
          :: again == newest && entry[newest] == blob -> again = 0; break
          :: else -> again = 0; newest = 0; blob = 0; state = 0
          fi
        }
     fi
  od
}

/* Gives the creation of a blob up, unless it has taken effect. */
inline give_up(b) {
  atomic {
    if
    :: alive[b] == 0 -> alive[b] = VOID
    :: else
    fi
  }
}

/* Each answer must be right at some moment of the call. */
inline begin_call() {
  atomic {
    creations_then = creations;
    removals_then = removals;
    free_then = is_free;
    for (i : 0 .. BLOBS - 1) { removed_then[i] = removed[i] }
    i = 0
  }
}
inline end_call() {
  for (i : 0 .. BLOBS - 1) { removed_then[i] = false }
  i = 0; blob = 0; creations_then = 0; removals_then = 0; free_then = false
}
inline is_taken() { assert(!free_then || creations > creations_then) }
inline is_not_there() { assert(free_then || removals > removals_then) }
inline is_there() { assert(took[blob] && !removed_then[blob]) }

#define LOCALS \
  byte i, newest, again, third, blob, state, creations_then, removals_then; \
  bool free_then, removed_then[BLOBS]

/* `me` is the blob of the first attempt. */
inline create_body() {
  do
  :: if
     :: asleep -> asleep = false
     :: else ->
        first = false;
        number_freed = freed;
        standing();
        if
        :: state == THERE -> atomic { is_taken(); goto end }
        :: state == PENDING ->
           give_up(blob);
           if
           :: alive[blob] == VALID -> atomic { forget(); next = 0; goto again_from_start }
           :: else
           fi
        :: else
        fi;
        atomic {
          first = (blob == NONE);
          next = (newest > number_freed -> newest : number_freed);
          if
          :: first && number_freed == 0 -> next = 0
          :: else -> next++
          fi;
          forget(); first = false; blob = 0
        }
     fi;
     atomic {
       if
       :: entry[next] != NONE -> next = 0; goto again_from_start
       :: else -> entry[next] = me
#ifdef VISIBLE_AT_ENTRY
          ;
          alive[me] = VALID;
          if
          :: is_free -> took[me] = true; is_free = false; creations++
          :: else
          fi
#endif
       fi
     };
     if
     :: atomic { ended[me] = true; goto end } /* dies */
     :: skip
     fi;
#ifndef NO_LOOK_AT_FREED
     if
     :: freed != number_freed -> goto failed
     :: else
     fi;
#endif
#ifndef NO_LOOK_AFTER_ENTRY
     scan_unchanged();
     if
     :: again != next -> goto failed
     :: else
     fi;
#endif
     /* The creation takes effect here. */
#ifndef VISIBLE_AT_ENTRY
     atomic {
       forget();
       if
       :: alive[me] == 0 ->
          alive[me] = VALID;
          if
          :: entry[next] == me ->
             assert(is_free);
             took[me] = true;
             is_free = false;
             creations++
          :: else
          fi
       :: else -> goto failed
       fi
     };
#endif
     /* Without an entry it was given up before, unless it was removed since and has a successor. */
     if
     :: entry[next] != me && !gone[me] -> goto failed
     :: else
     fi;
     atomic { assert(took[me]); ended[me] = true; goto end };
failed:
     give_up(me);
     atomic {
       forget();
       next = 0; number_freed = 0;
       assert(!took[me]);
       ended[me] = true;
       attempt++;
       if
       :: attempt == ATTEMPTS -> goto end
       :: else -> me++
       fi
     };
again_from_start:
     skip
  od;
end:
  atomic { forget(); end_call(); next = 0; number_freed = 0; me = 0; attempt = 0 }
}

/* A sleeper began after the first blob was removed, decided to create number 1, and has slept since. */
proctype Creator(byte me; bool asleep) {
  LOCALS;
  byte next, number_freed, attempt;
  bool first;
  if
  :: asleep -> atomic { next = 1; free_then = true }
  :: else ->
     atomic { creators_begun == (me - 2) / ATTEMPTS -> creators_begun++ }
     begin_call()
  fi;
  create_body()
}

inline remove_body() {
  begin_call();
  standing();
  atomic {
    if
    :: state == THERE -> is_there()
    :: else -> is_not_there(); blob = NONE
    fi;
    forget()
  };
  if
  :: blob == NONE -> skip
  :: blob != NONE ->
     atomic {
       if
       :: gone[blob] -> is_not_there(); blob = NONE
       :: else ->
          gone[blob] = true;
          removing[blob]++;
          if
          :: !removed[blob] ->
             assert(!is_free && took[blob]);
             removed[blob] = true;
             is_free = true;
             removals++
          :: else -> newest = 1
          fi
       fi
     };
     /* If alive is missing, the removal came earlier, and its mark was freed. */
     if
     :: blob == NONE -> skip
     :: else ->
        atomic {
          removing[blob]--;
          if
          :: alive[blob] == 0 ->
             assert(newest == 1);
             is_not_there()
          :: else -> assert(newest == 0)
          fi
        }
     fi
  :: blob != NONE ->
     /* Puts a record, and looks at the marks until two listings are equal. */
     before = removed[blob];
     i = 0;
     do
     :: look = (gone[blob] -> 2 : 0);
        look = look + (alive[blob] == VALID -> 1 : 0);
        if
        :: i == 1 && look == last -> break
        :: else -> i = 1; last = look
        fi;
#ifdef LIST_MARKS_ONCE
        break
#endif
     :: look = (alive[blob] == VALID -> 1 : 0);
        look = look + (gone[blob] -> 2 : 0);
        if
        :: i == 1 && look == last -> break
        :: else -> i = 1; last = look
        fi;
#ifdef LIST_MARKS_ONCE
        break
#endif
     od;
#ifdef NO_LOOK_AT_ALIVE
     assert((look & 2) || !before)
#else
     assert(look != 1 || !before)
#endif
  fi;
  atomic { look = 0; last = 0; before = false; forget(); end_call() }
}

proctype Remover(byte me) {
  LOCALS;
  byte look, last;
  bool before;
  atomic { removers_begun == me - 1 -> removers_begun++ }
  remove_body()
}

/* Creators and removers need less time than a lease. */
#define IS_OLD(b) ended[b]

/* Removes superseded entries, or frees the name. */
inline collect_body() {
  standing();
  if
  :: state == THERE ->
     top = newest;
     atomic { forget(); blob = 0 };
     for (n : 1 .. NUMBERS - 1) {
       if
       :: n < top && entry[n] != NONE -> entry[n] = NONE
       :: skip /* not listed */
       fi
     };
#ifdef REMOVE_THE_NEWEST
     entry[top] = NONE
#endif
  :: state == PENDING && !IS_OLD(blob) -> skip
  :: state != THERE && blob != NONE && (state == REMOVED || IS_OLD(blob)) ->
     if
     :: state == PENDING -> give_up(blob)
     :: else
     fi;
     top = (newest > freed -> newest : freed);
     top = (top > 1 -> top : 1);
     atomic { forget(); blob = 0 };
     atomic { freed = (top > freed -> top : freed) };
     /* Lists the entries, and gives each up that is not removed. */
     for (n : 0 .. NUMBERS - 1) {
       blob = entry[n];
       listed[n] = blob;
       if
       :: blob != NONE ->
#ifndef NO_GIVING_UP
          look_at_marks(blob);
          if
          :: state == THERE || n > top || !IS_OLD(blob) -> goto done
          :: else
          fi;
          if
          :: state == PENDING ->
             give_up(blob);
             if
             :: alive[blob] == VALID && !gone[blob] -> goto done
             :: else
             fi
          :: else
          fi;
#endif
#ifndef NO_LEASE_OF_REMOVALS
          if
          :: removing[blob] > 0 -> goto done
          :: else
          fi;
#endif
          skip
       :: else
       fi
     };
     atomic { forget(); blob = 0 };
     for (n : 0 .. NUMBERS - 1) {
       if
       :: listed[n] != NONE -> gone[listed[n]] = true
       :: else
       fi
     };
     for (n : 0 .. NUMBERS - 1) {
       if
       :: listed[n] != NONE -> entry[n] = NONE
       :: else
       fi
     };
     for (n : 0 .. NUMBERS - 1) {
       if
       :: listed[n] != NONE ->
#ifdef GONE_BEFORE_ALIVE
          gone[listed[n]] = false;
          alive[listed[n]] = 0
#else
          alive[listed[n]] = 0;
          gone[listed[n]] = false
#endif
       :: else
       fi
     }
  :: else
  fi;
done:
  atomic {
    forget(); blob = 0; n = 0; top = 0;
    for (i : 0 .. NUMBERS - 1) { listed[i] = 0 };
    i = 0
  }
}

proctype Collector() {
  byte i, newest, again, third, blob, state, n, top, listed[NUMBERS];
  collect_body()
}


init {
  byte i;
  atomic {
    for (i : 0 .. NUMBERS - 1) { entry[i] = NONE }
    /* The first blob was removed, then number START was created. */
    entry[0] = FIRST;
    alive[FIRST] = VALID;
    gone[FIRST] = true;
    took[FIRST] = true;
    removed[FIRST] = true;
    ended[FIRST] = true;
    removals = 1;
    creations = 1;
    is_free = true;
#if START > 0
    entry[START] = STANDS;
    alive[STANDS] = VALID;
    took[STANDS] = true;
    ended[STANDS] = true;
    is_free = false;
    creations++;
    if
    :: skip
    :: gone[STANDS] = true; removed[STANDS] = true; is_free = true; removals++
    fi;
#endif
#if CREATORS
    for (i : 1 .. CREATORS) { run Creator(2 + (i - 1) * ATTEMPTS, false) }
#endif
#if REMOVERS
    for (i : 1 .. REMOVERS) { run Remover(i) }
#endif
#if COLLECTORS
    for (i : 1 .. COLLECTORS) { run Collector() }
#endif
#if SLEEPERS
    for (i : 1 .. SLEEPERS) { run Creator(2 + (CREATORS + i - 1) * ATTEMPTS, true) }
#endif
    i = 0
  }
}
