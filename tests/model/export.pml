/* A Spin model of exports to plain files ("Exports" in docs/design/store-snapshots.md).
 *
 * Two exporters, on two hosts or in two containers, write two versions of a blob to one path. A collector may remove the
 * data of the older version meanwhile. A dead process takes no further step. The power may fail at one moment. Then the
 * contents and names that were not synced survive by chance.
 * tests/python/test_publication_model.py runs the model, and runs it again with each planted mistake (-D and its name).
 */
#define EXPORTERS 2 /* exporter i writes version i */
#define PIECES 2
#define NONE 0
#define FILES (EXPORTERS + 1)
#define AT(file, piece) content[(file) * PIECES + (piece)]

byte content[FILES * PIECES]; /* of each file and piece: the version that it is of; 0: a hole */
bool synced[FILES * PIECES];
byte path;                    /* the file that has the name; NONE: there is none */
byte path_synced;             /* what a power cut may bring back */
bool removed;                 /* the data of version 1 */
bool acknowledged;
bool dead;

inline check() {
  assert(path == NONE || (AT(path, 0) != 0 && AT(path, 0) == AT(path, 1)));
  assert(!acknowledged || path != NONE)
}

proctype Exporter(byte version) provided (!dead) {
  byte file, piece;
  /* Whoever creates a temporary name that exists truncates the file. */
#ifdef ONE_TEMPORARY_NAME
  file = 1;
  atomic { AT(1, 0) = 0; AT(1, 1) = 0 };
#else
  file = version;
#endif
  for (piece : 0 .. PIECES - 1) {
    if
    :: version == 1 && removed ->
#ifndef IGNORE_FAILED_READS
       goto end
#endif
    :: else -> atomic { AT(file, piece) = version; synced[file * PIECES + piece] = false }
    fi
  };
#ifdef RENAME_BEFORE_SYNC
  path = file;
#endif
  for (piece : 0 .. PIECES - 1) { synced[file * PIECES + piece] = true };
#ifndef RENAME_BEFORE_SYNC
  path = file;
#endif
#ifndef NO_SYNC_OF_THE_DIRECTORY
  path_synced = path;
#endif
  acknowledged = true;
end:
  skip
}

proctype Collector() provided (!dead) { removed = true }

proctype Monitor() {
  byte i;
  atomic { check() };
  atomic {
    dead = true;
    for (i : 0 .. FILES * PIECES - 1) {
      if
      :: !synced[i] -> content[i] = 0
      :: skip
      fi
    };
    if
    :: path = path_synced
    :: skip
    fi;
    check()
  }
}

init {
  atomic { run Exporter(1); run Exporter(2); run Collector(); run Monitor() }
}
