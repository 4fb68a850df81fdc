/* A Spin model of tags, clones and power cuts of the versioned store (docs/design/store-snapshots.md).
 *
 * A blob has versions 1 and 2. A tagger tags version 1, a cloner clones it, and a writer writes version 3. Collectors
 * keep the versions from 2 on, and free what belongs to no clone. They take their steps in every possible order. A dead
 * process takes no further step. The power may fail at one moment. Then all processes are dead, each unsynced object
 * survives by chance, and an unsynced removal may be undone. A monitor checks the promises at some moment.
 * tests/python/test_publication_model.py runs the model, and runs it again with each planted mistake (-D and its name).
 */
#ifndef COLLECTORS
#define TAGGERS 1 /* or 0, as for the next two */
#define CLONERS 1
#define WRITERS 1
#define COLLECTORS 1
#endif

#define DATA1 0        /* data/… of version 1 */
#define RECORD1 1      /* versions/1 */
#define INDEX1 2       /* index/1 */
#define TAG1 3         /* tags/… of version 1 */
#define INDEX2 4       /* index/2 */
#define KEEP2 5        /* gc/keep-2 */
#define CLONE_DATA 6   /* the clone's name of data/… */
#define CLONE_LOG 7    /* its index, record and mark */
#define CLONE_ENTRY 8  /* its entry */
#define CLONE_GONE 9   /* its gc/gone */
#define CLONE_UNFINISHED 10 /* its gc/unfinished */
#define DATA3 11
#define RECORD3 12
#define OBJECTS 13

#define ABSENT 0
#define UNSYNCED 1
#define SYNCED 2
#define REMOVED 3 /* not synced: the object may be back after a power cut */

byte object[OBJECTS];
bool tagged, cloned, written; /* acknowledged operations */
bool dead;                    /* the power has failed */

#define there(o) (object[o] == UNSYNCED || object[o] == SYNCED)

inline put_unsynced(o) {
  atomic {
    if
    :: !there(o) -> object[o] = UNSYNCED
    :: else
    fi
  }
}
inline sync(o) {
  atomic {
    if
    :: object[o] == UNSYNCED -> object[o] = SYNCED
    :: object[o] == REMOVED -> object[o] = ABSENT
    :: else
    fi
  }
}
inline put(o) { put_unsynced(o); sync(o) }
inline remove(o) {
  atomic {
    if
    :: there(o) -> object[o] = REMOVED
    :: else
    fi
  }
}

proctype Tagger() provided (!dead) {
  if
  :: there(KEEP2) -> goto end
  :: else
  fi;
  put(INDEX1);
#ifdef NO_SYNC_OF_TAGS
  put_unsynced(TAG1);
#else
  put(TAG1);
#endif
#ifndef NO_LOOK_AFTER_TAG
  if
  :: there(KEEP2) -> remove(TAG1); goto end
  :: else
  fi;
#endif
  tagged = true;
end:
  skip
}

proctype Cloner() provided (!dead) {
#ifdef ENTRY_FIRST
  put(CLONE_ENTRY);
#endif
  atomic {
    if
    :: !there(DATA1) -> goto end
    :: else
    fi;
    put_unsynced(CLONE_DATA)
  }
  sync(CLONE_DATA);
  put(CLONE_LOG);
#ifndef ENTRY_FIRST
  put(CLONE_ENTRY);
#endif
#ifndef NO_LOOK_AFTER_CLONE
  if
  :: there(CLONE_UNFINISHED) -> put(CLONE_GONE); goto end
  :: else
  fi;
#ifndef NO_LOOK_AT_GONE
  if
  :: there(CLONE_GONE) -> goto end
  :: else
  fi;
#endif
#endif
  cloned = true;
end:
  skip
}

proctype Writer() provided (!dead) {
#ifdef NO_SYNC_OF_DATA
  put_unsynced(DATA3);
#else
  put(DATA3);
#endif
#ifdef NO_SYNC_OF_RECORDS
  put_unsynced(RECORD3);
#else
  put(RECORD3);
#endif
  written = true
}

proctype Collector() provided (!dead) {
  bool needed, used, found;
  put(INDEX2);
#ifdef TAGS_BEFORE_MARK
  needed = there(TAG1) && there(INDEX1);
#endif
#ifdef NO_SYNC_OF_MARKS
  put_unsynced(KEEP2);
#else
  put(KEEP2);
#endif
#ifndef TAGS_BEFORE_MARK
  needed = there(TAG1);
  needed = needed && there(INDEX1);
#endif
  if
  :: !there(TAG1) -> remove(INDEX1)
  :: else
  fi;
  remove(RECORD1);
  if
  :: !needed -> remove(DATA1)
  :: else
  fi;
  needed = false;
  found = there(CLONE_DATA) || there(CLONE_LOG);
#ifdef ENTRIES_BEFORE_MARK
  used = there(CLONE_ENTRY);
#endif
  if
  :: found -> put(CLONE_UNFINISHED)
  :: else
  fi;
#ifndef ENTRIES_BEFORE_MARK
  used = there(CLONE_ENTRY);
#endif
  if
  :: found && !used ->
#ifndef GONE_AFTER_REMOVAL
     put(CLONE_GONE);
#endif
     remove(CLONE_LOG);
     remove(CLONE_DATA);
     remove(CLONE_UNFINISHED);
#ifdef GONE_AFTER_REMOVAL
     put(CLONE_GONE)
#endif
  :: else
  fi
}

/* The promises. A reader of version 1 without a tag reads the marks. */
inline check() {
  assert(there(KEEP2) || (there(DATA1) && there(RECORD1)));
  assert(!there(KEEP2) || there(INDEX2));
  assert(!tagged || (there(TAG1) && there(INDEX1) && there(DATA1)));
  assert(!cloned || (there(CLONE_ENTRY) && !there(CLONE_GONE)));
  assert(!there(CLONE_ENTRY) || there(CLONE_GONE) || (there(CLONE_DATA) && there(CLONE_LOG)));
  assert(!written || there(RECORD3));
  assert(!there(RECORD3) || there(DATA3))
}

proctype Monitor() {
  byte i;
  atomic { check() };
  atomic {
    dead = true;
    for (i : 0 .. OBJECTS - 1) {
      if
      :: object[i] == UNSYNCED || object[i] == REMOVED -> object[i] = ABSENT
      :: object[i] == UNSYNCED || object[i] == REMOVED -> object[i] = SYNCED
      :: object[i] == ABSENT || object[i] == SYNCED -> skip
      fi
    }
    check()
  }
}

init {
  byte i;
  atomic {
    object[DATA1] = SYNCED;
    object[RECORD1] = SYNCED;
#if TAGGERS
    run Tagger();
#endif
#if CLONERS
    run Cloner();
#endif
#if WRITERS
    run Writer();
#endif
    for (i : 1 .. COLLECTORS) { run Collector() }
    run Monitor();
    i = 0
  }
}
