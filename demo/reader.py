"""A process of its own that follows the snapshots of the shared field and verifies that each is consistent.

usage: reader.py STORE_URL BLOB STOP_FILE RESULT_FILE

It is not part of the MPI job and takes no lock: it reads whatever version is the latest, again and again, until
STOP_FILE exists, and then every version that it missed.
"""

import json
import sys
import time
from pathlib import Path

import field
import numpy as np
import penstock as ps


def main(store_url: str, blob_name: str, stop_file: str, result_file: str) -> None:
    buffer = np.empty(field.FILE_BYTES, np.uint8)
    steps: dict[int, int | None] = {}
    blob = None
    followed_live = 0

    def verify(version: int) -> None:
        blob.read([(0, buffer)], version=version)
        steps[version] = field.step_of(buffer.view(np.float32))

    while True:
        stopping = Path(stop_file).exists()
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
                followed_live += 1
            if stopping:
                for version in range(1, latest + 1):
                    if version not in steps:
                        verify(version)
        if stopping:
            break
        time.sleep(0.02)
    result = {
        "versions": len(steps),
        "followed_live": followed_live,
        "inconsistent": sorted(v for v, s in steps.items() if s is None),
        "steps": [steps[v] for v in sorted(steps)],
    }
    Path(result_file).write_text(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
