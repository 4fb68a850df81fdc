"""The part of `penstock bench store` in which all ranks read one version at once: versioning paper, section 6.2."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.bench.runner import Measured
from penstock.bench.store_snapshots import memory
from penstock.store import Store

ROW_BYTES = 64 << 10
VERSIONS = 8  #: That wrote the rows in turns, so that neighbours do not join.
WARM_UP_ROUNDS, ROUNDS = 1, 7


def penstock(world: Any, url: str, rank_bytes: int, clock: Callable[[Any, Callable[[], None]], float]) -> Measured:
    """Each rank reads another part of one version, and opens the store anew each time, so that it knows nothing of it."""
    rows = max(VERSIONS, rank_bytes // ROW_BYTES // VERSIONS * VERSIONS)
    part_bytes = rows * ROW_BYTES
    size = world.size * part_bytes
    if world.rank == 0:
        blob = Store(url, durable=False).create("readers", size=size)
        parts = np.stack([_part(rank, part_bytes) for rank in range(world.size)]).reshape(-1, VERSIONS, ROW_BYTES)
        for version in range(VERSIONS):
            blob.write([((row * VERSIONS + version) * ROW_BYTES, part[version]) for row, part in enumerate(parts)])
    world.Barrier()
    found, begin = memory(part_bytes), world.rank * part_bytes

    def read() -> None:
        Store(url, create=False).open("readers").read([(begin, found)])

    seconds = [clock(world, read) for _ in range(WARM_UP_ROUNDS + ROUNDS)][WARM_UP_ROUNDS:]
    whole = np.array_equal(found, _part(world.rank, part_bytes))
    # If one rank finds an error, the others must not go on and wait for it.
    if wrong := [rank for rank, right in enumerate(world.allgather(whole)) if not right]:
        raise AssertionError(f"ranks {wrong} read something else than what was written")
    if world.rank == 0:
        Store(url, create=False).remove("readers")
    setting = {
        "experiment": "readers",
        "regions": world.size * rows,
        "bytes": size,
        "sync": "no",
        "access": "open and read",
        "waiting": "asleep",
    }
    return [(setting, [statistics.median(seconds)])]


def _part(rank: int, size: int) -> np.ndarray:
    return np.random.default_rng(rank).integers(0, 256, size, np.uint8)
