"""Atomic updates and snapshots of a stored blob, without MPI: ./dev exec python examples/python/versions.py"""

import sys

import penstock as ps

store = ps.Store(sys.argv[1] if len(sys.argv) > 1 else "memory:example")
blob = store.create("field", size=1 << 20)
first = blob.write([(0, b"left"), (4096, b"right")])  # one version: readers see both or none
second = blob.write([(4096, b"RIGHT")])

buffer = bytearray(5)
for version in (first, second):
    blob.read([(4096, buffer)], version=version)
    print(f"version {version} holds {bytes(buffer)!r} at 4096")
