/* A Spin model of the names of the versioned store ("Names" in docs/design/store-snapshots.md).
 *
 * Creators, removers and collectors take their steps in every possible order. A dead or sleeping process takes no
 * further step, as in publication.pml. A listing reads one number at a time, from the highest down, while others create
 * and remove entries. So it may miss both a removed entry and its replacement, as the listing of a directory may.
 * tests/python/test_publication_model.py runs the model, and runs it again with each planted mistake (-D and its name).
 */
#ifndef CREATORS
#define CREATORS 1 /* that begin now */
#define REMOVERS 2
#define ROUNDS 1
#define START 1 /* the number of the newest entry */
#endif
#define FIRST 0
#define STANDS 1
#define SLEEPER 2
#define BLOBS (CREATORS + 3)
#define NUMBERS (START + CREATORS + 1)
#define NONE 255

/* The stored objects. Entry 0 is the one in the catalog, which is never removed. A creator makes at most one blob. */
byte entry[NUMBERS]; /* NONE, or a blob */
bool gone[BLOBS];    /* gc/gone in the blob's folder */

/* The true state: set when the entry with the next number is created, or a mark in the folder of the newest entry. */
byte top;            /* the highest number that ever existed */
bool took[BLOBS];    /* the creation of the blob took effect */
bool found[BLOBS];   /* a process was told that the name stands for the blob */
bool failed[BLOBS];  /* the creator was told that the name does not stand for it */
byte creations;
byte removals;
bool is_free;
byte creators_begun; /* creators are alike, so they begin in the order of their numbers */
byte removers_begun;

inline scan(highest) {
  i = NUMBERS - 1;
  do
  :: i > 0 && entry[i] == NONE -> i--
  :: i == 0 || entry[i] != NONE -> highest = i; break
  od
}

/* Clears variables that are no longer needed, for fewer states. */
inline forget() { newest = 0; again = 0; third = 0; i = 0; marked = false }

/* Lists until two consecutive listings have the same newest entry. */
inline scan_unchanged() {
  scan(again);
#ifndef LIST_ONCE
  do
  :: scan(third);
     if
     :: again == third -> break
     :: else -> again = third
     fi
  od
#endif
}

/* The blob that the name stands for, or NONE and the number to create. */
inline standing() {
  do
  :: scan(newest);
     blob = entry[newest];
     if
     :: blob == NONE -> skip
     :: blob != NONE && !gone[blob] && newest == 0 -> next = 0; break
     :: blob != NONE && (gone[blob] || newest > 0) ->
        marked = gone[blob];
#ifndef NO_LOOK_AFTER_READ
        scan_unchanged();
#else
        again = newest;
#endif
        atomic {
          if
          :: again != newest -> forget()
          :: again == newest && marked -> blob = NONE; next = newest + 1; break
          :: again == newest && !marked -> next = 0; break
          fi
        }
     fi
  od;
  forget()
}

/* Each answer must be right at some moment of the call. */
inline begin_call() {
  atomic {
    creations_then = creations;
    removals_then = removals;
    free_then = is_free;
    for (i : 0 .. BLOBS - 1) { gone_then[i] = gone[i] }
    i = 0
  }
}
inline end_call() {
  for (i : 0 .. BLOBS - 1) { gone_then[i] = false }
  i = 0; blob = 0; next = 0; creations_then = 0; removals_then = 0; free_then = false
}
inline is_taken() { assert(!free_then || creations > creations_then) }
inline is_not_there() { assert(free_then || removals > removals_then) }
inline is_there() {
  assert(took[blob] && !gone_then[blob] && !failed[blob]);
  found[blob] = true
}

#define LOCALS \
  byte i, newest, again, third, blob, next, creations_then, removals_then; \
  bool marked, free_then, gone_then[BLOBS]

/* The sleeper began after the first blob was removed, decided to create number 1, and has slept since. */
proctype Creator(byte me) {
  LOCALS;
  if
  :: me == SLEEPER -> atomic { next = 1; free_then = true }
  :: else ->
     atomic { creators_begun == me - SLEEPER - 1 -> creators_begun++ }
     begin_call();
     standing()
  fi;
  if
  :: blob != NONE && me != SLEEPER -> atomic { is_taken(); goto end }
  :: else
  fi;
  atomic {
    if
    :: entry[next] != NONE -> is_taken(); goto end
    :: else ->
       entry[next] = me;
       if
       :: next > top ->
          assert(next == top + 1 && is_free);
          top = next;
          took[me] = true;
          is_free = false;
          creations++
       :: else
       fi
    fi
  };
#ifndef NO_LOOK_AFTER_CREATION
  scan_unchanged();
  if
#ifndef NO_LOOK_AT_OWN_MARK
  :: again != next && !gone[me] ->
#else
  :: again != next ->
#endif
     entry[next] = NONE;
     atomic { is_taken(); failed[me] = true; assert(!took[me] && !found[me]); goto end }
  :: else
  fi;
#endif
  assert(took[me]);
end:
  atomic { forget(); end_call() }
}

proctype Remover(byte me) {
  LOCALS;
  atomic { removers_begun == me - 1 -> removers_begun++ }
  begin_call();
  standing();
  atomic {
    if
    :: blob == NONE -> is_not_there()
    :: else ->
       is_there();
       if
       :: gone[blob] -> is_not_there()
       :: else ->
          gone[blob] = true;
          assert(!is_free);
          is_free = true;
          removals++
       fi
    fi;
    end_call()
  }
}

/* It removes the entries that it has listed, at any later time, except the newest of them. */
proctype Collector() {
  byte i, newest, round;
  for (round : 1 .. ROUNDS) {
    scan(newest);
#ifdef REMOVE_THE_NEWEST
    newest++;
#endif
    for (i : 1 .. NUMBERS - 1) {
      if
      :: i < newest -> entry[i] = NONE
      :: skip /* not listed */
      fi
    }
  }
}

init {
  byte i;
  atomic {
    for (i : 1 .. NUMBERS - 1) { entry[i] = NONE }
    /* The first blob was removed, then number 1 was created. If START is 2, that one was removed and its entry
     * collected. */
    gone[FIRST] = true;
    took[FIRST] = true;
    entry[START] = STANDS;
    took[STANDS] = true;
    top = START;
    creations = START;
    removals = START;
    if
    :: skip
    :: gone[STANDS] = true; is_free = true; removals++
    fi;
    for (i : 1 .. CREATORS) { run Creator(SLEEPER + i) }
    for (i : 1 .. REMOVERS) { run Remover(i) }
    run Collector();
    run Creator(SLEEPER);
    i = 0
  }
}
