"""A separate process that follows the shared field while a job writes it, and checks whether its reads are consistent.

usage: reader.py penstock STORE_URL BLOB STOP_FILE RESULT_FILE
       reader.py plain PATH - STOP_FILE RESULT_FILE

It is not part of the MPI job, and reads until STOP_FILE exists. With Penstock it takes no lock: it reads the latest version, and
at the end all versions that it missed. The plain way, it locks the whole file as MPI-IO's atomic mode does, and reads the file
again whenever it has changed.
"""

from __future__ import annotations

import fcntl
import json
import sys
import time
from pathlib import Path

import field
import numpy as np

PAUSE_S = 0.02


def follow_versions(store_url: str, blob_name: str, stop: Path) -> dict:
    import penstock as ps

    buffer = np.empty(field.FILE_BYTES, np.uint8)
    steps: dict[int, int | None] = {}
    blob = None
    read_live = 0

    def verify(version: int) -> None:
        blob.read([(0, buffer)], version=version)
        steps[version] = field.step_of(buffer.view(np.float32))

    while True:
        stopping = stop.exists()
        if blob is None:
            try:
                blob = ps.Store(store_url).open(blob_name)
            except ps.Error as error:
                if error.code != "not_found":
                    raise
        if blob is not None:
            latest = blob.latest
            if latest and latest not in steps:
                verify(latest)
                read_live += 1
            if stopping:
                for version in range(1, latest + 1):
                    if version not in steps:
                        verify(version)
        if stopping:
            break
        time.sleep(PAUSE_S)
    mixed = sorted(version for version, step in steps.items() if step is None)
    return {
        "reads": len(steps),
        "read_live": read_live,
        "mixed": len(mixed),
        "steps": [steps[v] for v in sorted(steps)],
    }


def follow_file(path: Path, stop: Path) -> dict:
    reads, mixed, lock_waits_s, seen = 0, 0, [], -1
    while not stop.exists():
        time.sleep(PAUSE_S)
        if not path.exists() or path.stat().st_mtime_ns == seen or path.stat().st_size != field.FILE_BYTES:
            continue
        with open(path, "rb") as file:
            begin = time.monotonic()
            fcntl.lockf(file, fcntl.LOCK_SH)
            lock_waits_s.append(time.monotonic() - begin)
            seen = path.stat().st_mtime_ns
            content = np.fromfile(file, np.float32)
        if (content == 0).any():  # no element of a field is 0, so the file is not complete yet
            continue
        reads += 1
        mixed += field.step_of(content) is None
    return {"reads": reads, "mixed": mixed, "lock_waits_s": lock_waits_s}


def main(way: str, place: str, blob_name: str, stop_file: str, result_file: str) -> None:
    stop = Path(stop_file)
    result = follow_versions(place, blob_name, stop) if way == "penstock" else follow_file(Path(place), stop)
    Path(result_file).write_text(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
