/* A Spin model of the publication protocol of the versioned store (docs/design/store.md), of compaction
 * (docs/design/store-snapshots.md) and of deltas (docs/design/store-index.md).
 *
 * Writers, conditional writers, collectors, a reader, a compaction and a process that makes a delta take their steps in every possible order. A dead or sleeping process takes no
 * further step. Spin examines every prefix of every order, so crashes need no steps of their own. Each write covers the
 * whole blob, so only its own version needs its data: the collector may remove as much as possible, which exposes
 * mistakes. tests/python/test_publication_model.py runs the model, and runs it again with each planted mistake (-D and
 * its name), which Spin must find.
 */
#ifndef COLLECTORS
#define COLLECTORS 1
#endif
#ifndef WRITERS
#define WRITERS 2
#define ROUNDS 1
#define READERS 0
#endif
#ifndef COMPACTIONS
#define COMPACTIONS 0
#endif
#ifndef DELTAS
#define DELTAS 0
#endif
#ifndef CONDITIONALS
#define CONDITIONALS 0
#endif
#ifndef ATTEMPTS
#define ATTEMPTS 2
#endif
/* Collectors that die behind their fence. */
#ifndef SLEEPERS
#define SLEEPERS 0
#endif
#define COMPACTED ((WRITERS + CONDITIONALS) * ATTEMPTS + 1) /* the first attempt of a compaction */
#define COPIES (COLLECTORS * ROUNDS + 1)   /* attempts of a compaction */
#define IDS (COMPACTED + COMPACTIONS * COPIES)
#define NUMBERS ((WRITERS + CONDITIONALS) * ATTEMPTS + COLLECTORS * ROUNDS + SLEEPERS + 2)
#define FENCE 100

/* The stored objects. */
byte record[NUMBERS];   /* 0: no such object; an attempt; or FENCE + b */
bool data[IDS];         /* of each attempt */
byte base_of[IDS];      /* part of the name of the data, and of the record */
byte fence_mark;        /* the highest gc/fence-b */
byte keep_mark;         /* the highest gc/keep-v */
byte index_made[NUMBERS]; /* index/<keep_mark>: the attempt that made each version up to it; 0: none, or void */

/* The true state: set when a record is linked as the next version, and never changed. */
byte truth[NUMBERS];
byte truth_fence[NUMBERS]; /* the highest b of all fences up to a version */
byte top;
byte acknowledged[IDS]; /* the version that the caller was told */
byte fences;            /* records in the log that are fences */

/* Of a compaction. */
byte compact_map;     /* compact/<compacted>: the attempt that copied the data; 0: no such object */
byte compacted;       /* the version that is compacted */
bool compact_done;    /* the caller was told so */
bool tagged;          /* a tag keeps this version, and its map names what was copied */
bool confirmed;       /* confirmed/<compacted> */

/* delta/<delta_end>: what versions behind delta_base changed. */
byte delta_base;
byte delta_end;   /* 0: no such object */
bool delta_wrong; /* it stands for a record that is not that of its version */

#define valid(v) (truth[v] > 0 && truth[v] < FENCE && base_of[truth[v]] >= truth_fence[v - 1])

/* link(2) to a free number is the linearization point. A number that gc has freed is not the next version. */
inline link_record(v, content) {
  record[v] = content;
  if
  :: v >= keep_mark ->
     assert(v == top + 1);
     top = v;
     truth[v] = content;
     truth_fence[v] = truth_fence[v - 1];
     if
     :: content > FENCE && content - FENCE > truth_fence[v] -> truth_fence[v] = content - FENCE
     :: else
     fi;
     if
     :: content > FENCE -> fences++
     :: else
     fi
  :: else
  fi
}

/* Follows the existing numbers one by one, then reads the marks once. */
inline find_latest(low) {
  do
  :: record[low + 1] != 0 -> low++
  :: else ->
     if
     :: keep_mark > low -> low = keep_mark
     :: else -> break
     fi
  od
}

/* Links at the first free number from v on. */
inline append(v, content) {
  do
  :: atomic { record[v] == 0 -> link_record(v, content) }; break
  :: record[v] != 0 -> v++
  od
}

/* The promises. */
inline check() {
  atomic {
    for (i : 1 .. top) {
      if
      :: i >= keep_mark && valid(i) -> assert(data[truth[i]])
      :: else
      fi
    }
    for (i : 1 .. IDS - 1) {
      if
      :: acknowledged[i] > 0 -> assert(truth[acknowledged[i]] == i && valid(acknowledged[i]))
      :: else
      fi
    }
    assert(!compact_done || (compacted < keep_mark && !tagged) || (compact_map > 0 && data[compact_map]));
    assert(!tagged || data[truth[compacted]] || (compact_map > 0 && data[compact_map]));
    i = 0
  }
}

/* Copies the data of a version, and puts a map to the copy. */
proctype Compaction() {
  byte id, newest, fence, attempt, i;
  find_latest(newest);
  atomic {
    newest > 0 -> compacted = newest;
    if
    :: valid(compacted) && compacted >= keep_mark -> tagged = true
    :: skip
    fi;
    newest = 0
  };
  do
  :: attempt++;
     /* It begins again only if a collector has appended another fence: one that died before that stops nobody. */
     assert(attempt <= fences + 1);
     id = COMPACTED + attempt - 1;
     find_latest(newest);
     base_of[id] = newest;
     data[id] = true;
     compact_map = id;
#ifndef NO_LOOK_AFTER_COMPACTION
     fence = fence_mark;
     if
     :: fence > base_of[id] ->
        find_latest(newest);
#ifdef MARK_DECIDES
        skip
#else
        if
        :: truth_fence[newest] <= base_of[id] -> break
        :: else
        fi
#endif
     :: else -> break
     fi;
     compact_map = 0;
     data[id] = false
#else
     break
#endif
  od;
  confirmed = true;
  compact_done = true;
  check()
}

proctype Writer(byte me) {
  byte id, version, newest, attempt, i, fence, keep;
  do
  :: attempt == ATTEMPTS -> break
  :: else ->
     id = me * ATTEMPTS + attempt + 1;
     attempt++;
     find_latest(newest);
     base_of[id] = newest;
     data[id] = true;
     find_latest(newest);
     version = newest + 1;
     append(version, id);
#ifndef NO_LOOK_AT_FENCES
     fence = fence_mark;
#endif
#ifndef NO_LOOK_AT_KEEP
     keep = keep_mark;
#endif
     if
     :: version < keep && index_made[version] == id -> goto done
     :: version < keep && index_made[version] != id -> record[version] = 0
     :: version >= keep && base_of[id] < fence && truth_fence[version - 1] > base_of[id] -> skip
     :: version >= keep && !(base_of[id] < fence && truth_fence[version - 1] > base_of[id]) -> goto done
     fi
  od;
  goto end;
done:
  atomic {
    acknowledged[id] = version;
    /* The caller is told once, and no other attempt of this write is valid. */
    for (i : 1 .. top) {
      if
      :: valid(i) && truth[i] != id -> assert((truth[i] - 1) / ATTEMPTS != me)
      :: else
      fi
    }
    i = 0
  }
  check();
end:
  skip
}

/* Writes on top of a version, or not at all. Refused: it ends. */
proctype Conditional(byte me) {
  byte id, parent, version, newest, attempt, i, fence, keep, other;
  if
  :: find_latest(parent)
  :: SLEEPERS > 0
  fi;
  do
  :: attempt == ATTEMPTS -> goto end
  :: else ->
     id = me * ATTEMPTS + attempt + 1;
     attempt++;
     newest = parent;
     find_latest(newest);
     base_of[id] = newest;
     data[id] = true;
     version = parent;
     do
     :: find_latest(newest);
        /* What came after the parent may only be fences and void records. */
        do
        :: version == newest -> break
        :: version < newest ->
           other = record[version + 1];
           if
           :: other > FENCE
           :: other == 0 -> goto end
#ifdef MARK_MAKES_VOID
           :: other > 0 && other < FENCE && base_of[other] < fence_mark
           :: other > 0 && other < FENCE && base_of[other] >= fence_mark -> goto end
#else
           :: other > 0 && other < FENCE && truth_fence[version] > base_of[other]
           :: other > 0 && other < FENCE && truth_fence[version] <= base_of[other] -> goto end
#endif
           fi;
           version++
        od;
#ifndef NO_LOOK_AFTER_CONDITION
        /* Whoever slept may have put its record under a number that was freed. */
        if
        :: version > parent && keep_mark > parent + 1 -> goto end
        :: else
        fi;
#endif
#ifdef FIRST_FREE_NUMBER
        version++;
        append(version, id);
        break
#else
        if
        :: atomic { record[version + 1] == 0 -> version++; link_record(version, id) }; break
        :: record[version + 1] != 0
        fi
#endif
     od;
#ifndef NO_LOOK_AT_FENCES
     fence = fence_mark;
#endif
#ifndef NO_LOOK_AT_KEEP
     keep = keep_mark;
#endif
     if
     :: version < keep && index_made[version] == id -> break
     :: version < keep && index_made[version] != id -> record[version] = 0
     :: version >= keep && base_of[id] < fence && truth_fence[version - 1] > base_of[id] -> skip
     :: version >= keep && !(base_of[id] < fence && truth_fence[version - 1] > base_of[id]) -> break
     fi
  od;
  atomic {
    acknowledged[id] = version;
    /* Nothing came between. */
    for (i : parent + 1 .. version - 1) {
      assert(!valid(i))
    }
    i = 0
  }
  check();
end:
  skip
}

proctype Collector() {
  byte round, newest, version, b, keep, i, j;
  bool named, replaces;
  do
  :: round == ROUNDS -> break
  :: else ->
     round++;
     find_latest(newest);
     /* Any data may be older than the lease. */
     if
     :: skip -> b = 0
     :: newest >= 0 -> b = 1
     :: newest >= 1 -> b = newest
     :: newest >= 1 -> b = newest + 1
     fi;
     if
     :: b > 0 ->
#ifdef LIST_BEFORE_FENCE
        version = top;
#endif
        atomic {
          if
          :: fence_mark < b -> fence_mark = b
          :: else
          fi
        };
        /* It may die here, and a compaction must not wait for it. */
        if
        :: COMPACTIONS > 0 -> goto end
        :: skip
        fi;
#ifdef LIST_BEFORE_FENCE
        j = newest + 1;
        append(j, FENCE + b);
        j = 0;
#else
        version = newest + 1;
        append(version, FENCE + b);
#endif
        for (j : 1 .. IDS - 1) {
          atomic {
            named = (compact_map == j);
            for (i : 1 .. version) {
              named = named || (truth[i] == j && valid(i))
            }
            if
            :: data[j] && base_of[j] < b && !named -> data[j] = false
            :: else
            fi;
            i = 0
          }
        }
        j = 0
     :: else
     fi;
     check();
     /* Removes old versions. */
     find_latest(newest);
     if
     :: skip -> keep = newest
     :: newest > keep_mark -> keep = newest - 1
     fi;
     if
     :: keep > keep_mark ->
        atomic {
          for (i : 1 .. keep) {
            if
            :: valid(i) -> index_made[i] = truth[i]
            :: else -> index_made[i] = 0
            fi
          }
          i = 0
        }
#ifndef MARK_AFTER_REMOVAL
        atomic {
          if
          :: keep_mark < keep -> keep_mark = keep
          :: else
          fi
        };
#endif
#ifdef NO_CONFIRMATION
        replaces = true;
#else
        replaces = confirmed;
#endif
        for (j : 1 .. keep - 1) {
          atomic {
            record[j] = 0;
            if
            :: tagged && compacted == j && !(replaces && compact_map > 0)
            :: else ->
               if
               :: truth[j] > 0 && truth[j] < FENCE -> data[truth[j]] = false
               :: else
               fi
            fi;
            if
            :: compacted == j && compact_map > 0 && !tagged -> data[compact_map] = false; compact_map = 0
            :: else
            fi
          }
        }
        j = 0;
#ifdef MARK_AFTER_REMOVAL
        atomic {
          if
          :: keep_mark < keep -> keep_mark = keep
          :: else
          fi
        };
#endif
     :: else
     fi;
     check()
  od;
end:
  skip
}

/* It has put its mark when there was no version. The number of its fence may be free again when it wakes: then it takes
 * the fence back. It removes nothing. */
proctype Sleeper() {
  byte version;
  version = 1;
  append(version, FENCE + 1);
  if
  :: version < keep_mark -> record[version] = 0
  :: else
  fi
}

/* Makes a delta of the records behind the newest mark, and reads the marks before it is put. */
proctype Delta() {
  byte from, at;
  bool wrong;
  from = keep_mark;
  at = from;
  do
  :: record[at + 1] != 0 ->
     atomic { at++; wrong = wrong || (record[at] != 0 && record[at] != truth[at]) }
  :: at > from -> break
  :: record[at + 1] == 0 -> break
  od;
#ifndef NO_LOOK_BEFORE_DELTA
  if
  :: keep_mark > from -> at = from
  :: else
  fi;
#endif
  if
  :: at > from ->
     atomic { delta_base = from; delta_end = at; delta_wrong = wrong; assert(!delta_wrong) }
  :: else
  fi
}

/* Replays from the index of the newest mark, by the delta if it lies there, and reads the marks afterwards. */
proctype Reader() {
  byte from, at;
  bool wrong;
  from = keep_mark;
  at = from;
  do
  :: atomic { delta_end > at && delta_base <= at -> at = delta_end; wrong = wrong || delta_wrong }
  :: record[at + 1] != 0 ->
     atomic { at++; wrong = wrong || (record[at] != 0 && record[at] != truth[at]) }
  :: !(delta_end > at && delta_base <= at) && record[at + 1] == 0 -> break
  od;
#ifdef NO_LOOK_AFTER_REPLAY
  assert(!wrong)
#else
  assert(!wrong || keep_mark > from)
#endif
}

init {
  byte i;
  atomic {
#if SLEEPERS > 0
    /* The writer is done. A conditional writer may have seen nothing of it. */
    data[1] = true;
    link_record(1, 1);
    acknowledged[1] = 1;
#elif WRITERS > 0
    for (i : 1 .. WRITERS) {
      run Writer(i - 1)
    }
#endif
#if CONDITIONALS > 0
    for (i : 1 .. CONDITIONALS) {
      run Conditional(WRITERS + i - 1)
    }
#endif
#if SLEEPERS > 0
    fence_mark = 1;
    run Sleeper();
#endif
#if READERS > 0
    run Reader();
#endif
#if COMPACTIONS > 0
    run Compaction();
#endif
#if DELTAS > 0
    run Delta();
#endif
    for (i : 1 .. COLLECTORS) {
      run Collector()
    }
    i = 0
  }
}
