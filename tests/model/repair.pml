/* A Spin model of repair ("Damage" in docs/design/store-repair.md).
 *
 * A blob has versions 1 to 3. The record of version 2 cannot be read, or is missing after a loss of power. Two repairs,
 * a writer and a collector take their steps in every possible order. The collector removes versions below 3 if there is
 * an index of version 3. A dead process takes no further step.
 * tests/python/test_publication_model.py runs the model, and runs it again with each planted mistake (-D and its name).
 */
#define REPAIRS 2
#define NUMBERS 5

#define ABSENT 0
#define GOOD 1
#define BAD 2
#define LOST 3 /* stands for a lost record, and can be read */
#define MINE 4 /* the record of the writer */

byte record[NUMBERS];
bool index3;         /* index/3, which was made before the damage */
byte keep;           /* the newest keep mark */
byte acknowledged;   /* the version that the writer was told */
bool repaired;       /* a repair has ended */

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

proctype Writer() {
  byte newest, i, at;
  bool damaged;
  find_latest(newest);
#ifndef NO_CHECK_OF_THE_LOG
  /* Something beyond the newest version? Its own listing came before find_latest, so list again if it does not match. */
  for (i : 1 .. NUMBERS - 1) { atomic { damaged = damaged || (i > newest && record[i] != ABSENT) } };
  i = (index3 && newest >= 3 -> 3 : keep);
  do
  :: atomic { i < newest -> i++; damaged = damaged || (record[i] == BAD || record[i] == ABSENT) }
  :: else -> i = 0; break
  od;
#endif
  if
  :: damaged -> goto end
  :: else
  fi;
  at = newest + 1;
  do
  :: at == NUMBERS -> goto end
  :: atomic { at < NUMBERS && record[at] == ABSENT -> record[at] = MINE; assert(at > 3); break }
  :: at < NUMBERS && record[at] != ABSENT -> at++
  od;
  acknowledged = at;
end:
  skip
}

inline plan_and_replace() {
  do
  :: atomic {
       then = keep;
       last = 0;
       for (i : 1 .. NUMBERS - 1) { last = (record[i] != ABSENT -> i : last) }
     };
     for (i : 1 .. NUMBERS - 1) {
       atomic { damaged[i] = (i > then && i <= last && (record[i] == BAD || record[i] == ABSENT)) }
     };
     if
     :: keep != then -> skip
     :: else -> break
     fi
  od;
  for (i : 1 .. NUMBERS - 1) {
    if
    :: atomic { damaged[i] && i > keep -> damaged[i] = false };
#ifdef REMOVE_THE_RECORD
       record[i] = ABSENT
#else
       record[i] = LOST
#endif
    :: atomic { !damaged[i] || i <= keep -> damaged[i] = false }
    fi
  };
  atomic { repaired = true; i = 0; then = 0; last = 0 }
}

proctype Repair() {
  byte then, last, i;
  bool damaged[NUMBERS];
  plan_and_replace()
}

proctype Collector() {
  byte i;
  if
  :: !index3 -> goto end
  :: else
  fi;
#ifdef MARK_AFTER_REMOVAL
  for (i : 1 .. 2) { record[i] = ABSENT };
  keep = 3;
#else
  keep = 3;
  for (i : 1 .. 2) { record[i] = ABSENT };
#endif
end:
  skip
}

/* What can be read stays. No number behind a mark becomes free, and repair leaves no damage. */
proctype Monitor() {
  byte i;
  atomic {
    assert(acknowledged == 0 || record[acknowledged] == MINE);
    assert(keep >= 1 || record[1] == GOOD);
    assert(record[3] == GOOD);
    for (i : 1 .. 3) {
      assert(!repaired || i <= keep || record[i] == GOOD || record[i] == LOST)
    }
  }
}

init {
  byte i;
  atomic {
    record[1] = GOOD;
    record[3] = GOOD;
    if
    :: record[2] = BAD
    :: record[2] = ABSENT
    fi;
    if
    :: index3 = true
    :: skip
    fi;
    run Writer();
    for (i : 1 .. REPAIRS) { run Repair() }
    run Collector();
    run Monitor();
    i = 0
  }
}
