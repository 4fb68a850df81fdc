/* A Spin model of repair ("Damage" in docs/design/store-repair.md), with indexes and deltas.
 *
 * A blob has versions 1 to 3. The record of version 2 cannot be read, or is missing after a loss of power. An index and
 * a delta of version 3 that were made before may still have what it wrote. One or two repairs, a writer and a collector
 * take their steps in every possible order. The writer may have known version 2 before; after its record it
 * puts an index or a delta of version 4. A dead process takes no further step.
 * tests/python/test_publication_model.py runs the model, and runs it again with each planted mistake (-D and its name).
 */
#ifndef REPAIRS
#define REPAIRS 1
#endif
#ifndef WRITERS
#define WRITERS 1
#endif
#ifndef COLLECTORS
#define COLLECTORS 1
#endif
#define PASSES (3 * REPAIRS) /* of a repair that change something */
#define NUMBERS 5

#define ABSENT 0
#define GOOD 1
#define BAD 2
#define LOST 3 /* stands for a lost record, and can be read */
#define MINE 4 /* the record of the writer */

/* What a map says: without or with the write of version 2. */
#define NONE 0
#define WITHOUT 1
#define WITH 2

byte record[NUMBERS];
byte index[NUMBERS];  /* index/<v> */
byte delta[NUMBERS];  /* delta/<v>, which begins before version 2 */
bool base[NUMBERS];   /* gc/base-<v> */
byte keep;            /* the newest keep mark */
byte repairs;         /* the newest gc/repair-<n>: odd while a repair changes something */
byte plan_damaged, plan_stale, plan_gone, plan_made, plan_decides; /* the plan in the newest odd one */
bool stored;          /* the data of version 2 */
byte acknowledged;    /* the version that the writer was told */
byte busy;            /* the writer has put a map, and has not looked yet */
bool repaired;        /* a repair has ended, and its last look found nothing to do */

#define floor_of(v) (v >= 4 && base[4] -> 4 : (v >= 3 && base[3] -> 3 : keep))

inline find_latest(low) {
  low = 0;
  do
  :: atomic { low + 1 < NUMBERS && record[low + 1] != ABSENT -> low++ }
  :: atomic {
       low + 1 == NUMBERS || record[low + 1] == ABSENT ->
       if
       :: keep > low -> low = keep
       :: else -> break
       fi
     }
  od
}

/* Reads version v: says = WITHOUT or WITH; NONE if it cannot be read. It begins on any index that it may know, not
 * only on the newest one. */
inline read_version(v) {
  do
  :: atomic { then = repairs; below = floor_of(v) };
     says = NONE;
     from = 0;
     if
     :: atomic { v >= 4 && index[4] != NONE -> says = index[4]; from = 4 }
     :: atomic { v >= 3 && index[3] != NONE && below <= 3 -> says = index[3]; from = 3 }
     :: atomic { below <= 2 && index[2] != NONE -> says = index[2]; from = 2 }
     :: atomic { below < 2 && v >= 3 && delta[3] != NONE -> says = delta[3]; from = below }
     :: atomic { below < 2 && v >= 4 && delta[4] != NONE -> says = delta[4]; from = below }
     :: atomic {
          below < 2 ->
          from = below;
          if
          :: record[2] == LOST -> says = WITHOUT
          :: else
          fi
        }
     :: atomic { below >= 2 && index[below] == NONE } /* it is gone, or the marks have changed */
     fi;
     if
     :: atomic { repairs == then && floor_of(v) <= from || says == NONE } -> break
     :: atomic { !(repairs == then && floor_of(v) <= from || says == NONE) }
     fi
  od
}

proctype Writer() {
  byte newest, i, at, then, below, from, says, seen;
  bool damaged, knew;
  /* It may have written since before the damage: then it has checked the log, and holds a map with version 2. */
  if
  :: knew = true
  :: skip
  fi;
  find_latest(newest);
#ifndef NO_CHECK_OF_THE_LOG
  if
  :: !knew ->
     /* Something beyond the newest version? Its own listing came before find_latest, so list again if it does not
      * match. */
     for (i : 1 .. NUMBERS - 1) { atomic { damaged = damaged || (i > newest && record[i] != ABSENT) } };
     i = (index[3] != NONE && newest >= 3 -> 3 : keep);
     do
     :: atomic { i < newest -> i++; damaged = damaged || (record[i] == BAD || record[i] == ABSENT) }
     :: else -> i = 0; break
     od
  :: else
  fi;
#endif
  if
  :: damaged || (knew && newest < 3) -> goto end /* a writer that knew version 3 looks behind it */
  :: else
  fi;
  at = newest + 1;
  do
  :: at == NUMBERS -> goto end
  :: atomic { at < NUMBERS && record[at] == ABSENT -> record[at] = MINE; assert(at > 3); break }
  :: at < NUMBERS && record[at] != ABSENT -> at++
  od;
  acknowledged = at;
  /* An index or a delta is due. It looks at the marks, and drops a map from before a repair. */
  atomic { seen = repairs; i = 0 };
#ifdef KEEPS_ITS_MAP
  if
  :: knew -> says = WITH
#else
  if
  :: knew && seen == 0 -> says = WITH
#endif
  :: else -> read_version(4)
  fi;
  if
  :: atomic { says != NONE && index[4] == NONE -> index[4] = says; busy = 1 };
     do
#ifdef NO_LOOK_AFTER_MAP
     :: busy = 0; break
#else
     :: atomic { repairs == seen -> busy = 0; break }
     :: repairs != seen ->
        seen = repairs;
        /* It makes its map anew, without the index that it has put. */
        atomic {
          if
          :: index[3] != NONE -> says = index[3]
          :: index[3] == NONE && record[2] == LOST -> says = WITHOUT
          :: else
          fi;
          index[4] = says
        }
#endif
     od
  :: atomic { says != NONE && floor_of(4) < 2 && delta[4] == NONE && record[2] != LOST && knew -> delta[4] = says; busy = 1 };
#ifndef NO_LOOK_AFTER_MAP
     if
     :: atomic { repairs == seen -> busy = 0 }
     :: atomic { repairs != seen -> delta[4] = NONE; busy = 0 }
     fi
#else
     busy = 0
#endif
  :: skip
  fi;
end:
  skip
}

proctype Repair() {
  byte then, number, decides, made, damaged, gone, stale, i, pass, says;
  bool lost;
  do
  :: /* The plan: `damaged` records and `stale` deltas and indexes that are `gone`, a bit each; `made`: an index that is made of
      * a delta; `decides`: the index that gets a mark. */
     atomic { then = keep; number = repairs };
     atomic {
       damaged = 0;
       for (i : 1 .. 3) {
         if
         :: i > then && (record[i] == BAD || record[i] == ABSENT) -> damaged = damaged | (1 << i)
         :: else
         fi
       };
       lost = (2 > then && ((damaged & 4) || record[2] == LOST));
       made = 0;
       if
       :: (damaged & 4) && stored && index[3] == NONE && delta[3] == WITH -> made = 3
       :: (damaged & 4) && stored && index[3] == NONE && delta[3] != WITH && index[4] == NONE && delta[4] == WITH -> made = 4
       :: else
       fi;
       decides = 0;
       gone = 0;
       says = (then >= 2 -> index[then] : WITHOUT);
       for (i : 3 .. 4) {
         if
         :: i <= then || (index[i] == NONE && made != i)
         :: i > then && index[i] != NONE && base[i] -> says = index[i]
         :: i > then && index[i] == says && !base[i]
         /* It was made before the loss. What is in an index after a loss that was repaired before goes. */
#ifdef ANY_INDEX_DECIDES
         :: i > then && (index[i] == WITH || made == i) && says == WITHOUT && !base[i] && stored && decides == 0 && lost ->
#else
         :: i > then && (index[i] == WITH || made == i) && says == WITHOUT && !base[i] && stored && decides == 0 && (damaged & 4) ->
#endif
            decides = i;
            says = WITH
         :: else -> gone = gone | (1 << i)
         fi
       };
       stale = 0;
       for (i : 3 .. 4) {
         if
         :: lost && delta[i] == WITH -> stale = stale | (1 << i)
         :: else
         fi
       };
       i = 0;
       says = 0
     };
     if
     :: keep != then
     :: keep == then && !(damaged || stale || gone || decides || number % 2 == 1) -> break
     :: keep == then && (damaged || stale || gone || decides || number % 2 == 1) ->
        /* It comes to an end. */
        pass++;
        assert(pass <= PASSES);
        /* The mark has the plan. Another repair's plan is carried out as it is. */
        atomic {
          if
          :: repairs == number && number % 2 == 0 ->
             repairs = number + 1;
             plan_damaged = damaged;
             plan_stale = stale;
             plan_gone = gone;
             plan_made = made;
             plan_decides = decides
#ifndef OWN_PLAN
          :: repairs == number && number % 2 == 1 ->
             damaged = plan_damaged;
             stale = plan_stale;
             gone = plan_gone;
             made = plan_made;
             decides = plan_decides
          :: repairs != number -> goto next
#else
          :: else
#endif
          fi
        };
        /* Its steps, in this order. */
        atomic {
          if
          :: made > 0 && index[made] == NONE -> index[made] = WITH
          :: else
          fi
        };
#ifndef NO_BASE_MARK
        if
        :: decides > 0 -> base[decides] = true
        :: else
        fi;
#endif
#ifndef KEEP_DELTAS
        do
        :: atomic { stale & 8 -> delta[3] = NONE; stale = stale & 16 }
        :: atomic { !(stale & 8) && (stale & 16) -> delta[4] = NONE; stale = 0 }
        :: stale == 0 -> break
        od;
#endif
        for (i : 1 .. 3) {
          atomic {
            if
#ifdef REMOVE_THE_RECORD
            :: (damaged & (1 << i)) && i > keep -> record[i] = ABSENT
#else
            :: (damaged & (1 << i)) && i > keep -> record[i] = LOST
#endif
            :: else
            fi
          }
        };
        atomic {
          for (i : 3 .. 4) {
            if
            :: (gone & (1 << i)) && !base[i] -> index[i] = NONE
            :: else
            fi
          };
          i = 0
        };
#ifdef NO_LAST_MARK
        repairs = number;
#else
        repairs = repairs / 2 * 2 + 2;
#endif
#ifdef NO_SECOND_LOOK
        break
#endif
next:
        atomic { damaged = 0; stale = 0; gone = 0; made = 0; decides = 0; lost = false }
     fi
  od;
  atomic { pass = 0; then = 0; number = 0; repaired = true }
}

proctype Collector() {
  byte i, then, below, from, says, to;
  bool needed;
  if
  :: to = 2
  :: to = 3
  fi;
  /* It reads the records. */
  if
  :: atomic { record[2] == BAD || record[2] == ABSENT } -> goto end
  :: else
  fi;
  read_version(to);
  if
  :: says == NONE -> goto end
  :: else
  fi;
  atomic {
    if
    :: index[to] == NONE -> index[to] = says
    :: else -> says = index[to]
    fi
  };
#ifdef MARK_AFTER_REMOVAL
  for (i : 1 .. to - 1) { record[i] = ABSENT };
  keep = to;
#else
  keep = to;
#endif
  /* The data that later versions show. */
  needed = (says == WITH);
  for (i : 3 .. NUMBERS - 1) { atomic { needed = needed || (i > to && base[i] && index[i] == WITH) } };
  if
  :: !needed -> stored = false
  :: else
  fi;
  for (i : 1 .. to - 1) { atomic { record[i] = ABSENT; index[i] = NONE; delta[i] = NONE; base[i] = false } };
end:
  skip
}

/* What can be read stays. No number behind a mark becomes free. Repair leaves no damage, and readers agree. */
proctype Monitor() {
  byte i, v, below;
  bool with, without;
  atomic {
    assert(acknowledged == 0 || record[acknowledged] == MINE);
    assert(keep >= 1 || record[1] == GOOD);
    assert(record[3] == GOOD || keep > 3);
    for (i : 1 .. 3) {
      assert(!repaired || i <= keep || record[i] == GOOD || record[i] == LOST)
    };
    if
    :: repaired && busy == 0 ->
       for (v : 3 .. 4) {
         if
         :: record[v] != ABSENT ->
            below = floor_of(v);
            with = false;
            without = false;
            for (i : 2 .. v) {
              if
              :: i >= below && index[i] == WITH -> with = true
              :: i >= below && index[i] == WITHOUT -> without = true
              :: else
              fi;
              if
              :: below < 2 && delta[i] == WITH -> with = true
              :: else
              fi
            };
            without = without || (below < 2 && record[2] == LOST);
            assert(!(with && without));
            assert(!with || stored)
         :: else
         fi
       }
    :: else
    fi
  }
}

init {
  byte i;
  atomic {
    record[1] = GOOD;
    record[3] = GOOD;
    stored = true;
    if
    :: record[2] = BAD
    :: record[2] = ABSENT
    fi;
    if
    :: index[3] = WITH
    :: skip
    fi;
    if
    :: delta[3] = WITH
    :: skip
    fi;
#if WRITERS
    run Writer();
#endif
    for (i : 1 .. REPAIRS) { run Repair() }
#if COLLECTORS
    run Collector();
#endif
    run Monitor();
    i = 0
  }
}
