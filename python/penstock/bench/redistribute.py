"""Benchmark: redistribution of a block-cyclic matrix, against ScaLAPACK, COSTA and a plain copy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from penstock.bench import redistribute_peers as peers
from penstock.bench.installation import Installation
from penstock.bench.runner import Measured, Program

SUMMARY = (
    "A square matrix of float64 from 32x32 to 128x128 blocks (COSTA's Figure 2): Penstock, also under ScaLAPACK's names "
    "(penstock-names), ScaLAPACK, COSTA, and a copy: each rank's part of the source to warm memory by memcpy, which uses "
    "non-temporal stores if parts are long, all ranks at once. And three matrices, by three runs of a kept plan and batched "
    "(time per matrix). All that one MPI runs is measured in turns in the same jobs. COSTA is its library of prefixed "
    "routines, libcosta_prefixed_scalapack, or what PENSTOCK_BENCH_COSTA names, under the MPI it is linked to; its batches "
    "need bench/costa_batch.cpp of this package, built to what PENSTOCK_BENCH_COSTA_BATCH names."
)

OPTIONS = {
    "orders": ([64, 128, 512, 1024, 4096, 8192], [128, 1024], "orders of the matrix"),
    "ops": (["N", "T"], ["N"], "N: as it is, T: transposed"),
    "budget_s": (1.0, 0.2, "seconds for one setting of one peer in one job"),
}
RANKS = [2, 4]
BLOCKS = (32, 128)
BATCH = 3


def missing(mpi: Installation) -> dict[str, str]:
    """Peer → why it is unavailable."""

    def absent(what: str, library: Path | None, how: str) -> str:
        if library is None:
            return f"{what} was not found; {how}"
        if not peers.is_linked_to(library, mpi):
            return f"{library} is not linked to the MPI in {mpi.prefix}"
        return ""

    scalapack = absent(
        f"ScaLAPACK for {mpi.name}", peers.scalapack_path(mpi.name), f"install libscalapack-{mpi.name}-dev (Debian)"
    )
    reasons = {"scalapack": scalapack}
    if peers.own_path(mpi.name) is None:
        file = f"libpenstock_scalapack_{mpi.name}.so"
        reasons["penstock-names"] = f"{file} was not found; name it in PENSTOCK_BENCH_SCALAPACK"
    costa = absent("libcosta_prefixed_scalapack.so", peers.costa_path(), "name it in PENSTOCK_BENCH_COSTA")
    reasons["costa"] = reasons["costa-three"] = costa
    reasons["costa-batch"] = costa or absent(
        "libcosta_batch.so",
        peers.costa_batch_path(),
        "build bench/costa_batch.cpp of this package, and name it in PENSTOCK_BENCH_COSTA_BATCH",
    )
    # All of them make their process grids with ScaLAPACK's BLACS.
    needing = ("penstock-names", "costa", "costa-three", "costa-batch")
    found = {**reasons, **(dict.fromkeys(needing, f"it needs ScaLAPACK: {scalapack}") if scalapack else {})}
    return {peer: reason for peer, reason in found.items() if reason}


def programs(mpi: Installation) -> list[Program]:
    absent = missing(mpi)
    others, own_names, other_batches = (
        [name for name in names if name not in absent]
        for names in (("scalapack", "costa"), ("penstock-names",), ("costa-three", "costa-batch"))
    )
    return [
        Program("copy", job="one"),
        *(Program(name, ("copy",), job="one") for name in others),
        *(Program(name, ("copy", *others), job="one") for name in ("penstock", *own_names)),
        Program("penstock-three", job="three"),
        *(Program(name, job="three") for name in other_batches),
        Program("penstock-batch", ("penstock-three", *other_batches), job="three"),
    ]


def grid_of(ranks: int) -> tuple[int, int]:
    rows = max(n for n in range(1, ranks + 1) if ranks % n == 0 and n * n <= ranks)
    return rows, ranks // rows


def measure(program: str, parameters: dict[str, Any]) -> Measured:
    """Measure all peers of one job."""
    from mpi4py import MPI

    import penstock as ps
    from penstock.bench.worker import Cannot, times_of

    names = program.split(",")
    comm = ps.Comm(MPI.COMM_WORLD)
    count = BATCH if any(name.endswith(("-three", "-batch")) for name in names) else 1
    cannot: dict[str, str] = {}
    rows: Measured = []
    for op in parameters["ops"]:
        for order in parameters["orders"]:
            problem = _Problem(comm, MPI.COMM_WORLD, op, order, count)
            actions = {}
            for name in names:
                try:
                    actions[name] = problem.action(name)
                except Cannot as reason:
                    cannot[name] = str(reason)
                    continue
                if name != "copy":
                    problem.check(name, actions[name])
            seconds = times_of(MPI.COMM_WORLD, actions, parameters["budget_s"] * len(actions))
            for name, each in seconds.items():
                rows.append(({"program": name, "op": op, "order": order, "bytes": order * order * 8}, [each / count]))
    return [*rows, *(({"program": name, "cannot": reason}, []) for name, reason in cannot.items())]


class _Problem:
    """`count` matrices, each in its own memory: otherwise the later ones would be in the caches."""

    def __init__(self, comm: Any, world: Any, op: str, order: int, count: int) -> None:
        import penstock as ps

        self.comm, self.world, self.op, self.order, self.grid = comm, world, op, order, grid_of(world.size)
        layouts = [
            ps.Layout.block_cyclic((order, order), (block,) * 2, self.grid, storage="column") for block in BLOCKS
        ]
        self.sources, self.targets = (
            [ps.DistArray.zeros(layout, np.float64, world.rank) for _ in range(count)] for layout in layouts
        )
        for number, source in enumerate(self.sources):
            for view, (i, j) in source.layout.local_views(world.rank, source.local):
                view[...] = self._value(number, i[:, None], j[None, :])

    @staticmethod
    def _value(number: int, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        return number + i * 10_000.0 + j

    def check(self, name: str, action: Callable[[], object]) -> None:
        for target in self.targets:
            target.local[...] = -1
        action()
        for number, target in enumerate(self.targets):
            for view, (i, j) in target.layout.local_views(self.world.rank, target.local):
                row, column = i[:, None], j[None, :]
                if not np.array_equal(view, self._value(number, *((column, row) if self.op == "T" else (row, column)))):
                    raise AssertionError(f"{name}: wrong result for op {self.op}, order {self.order}")

    def action(self, name: str) -> Callable[[], object]:
        import penstock as ps

        source, target = self.sources[0], self.targets[0]
        if name == "copy":
            copy = ps.DistArray.zeros(source.layout, np.float64, self.world.rank).local
            return lambda: np.copyto(copy, source.local)
        if name in ("scalapack", "costa", "costa-three", "penstock-names"):
            routines = peers.ScalapackNames(self.world, self.grid, BLOCKS, name.split("-")[0])
            return _in_turn([routines.redistribution(self.op, self.order, *pair) for pair in self._local_pairs()])
        if name == "costa-batch":
            sources, targets = ([each.local for each in given] for given in (self.sources, self.targets))
            return peers.costa_batch(self.world, self.grid, BLOCKS, self.op, self.order, sources, targets)
        if name == "penstock-batch":
            layouts = ([each.layout for each in given] for given in (self.sources, self.targets))
            batch = self.comm.plan_redistribute(*layouts, np.float64, op=self.op)
            return lambda: batch.run(self.sources, self.targets)
        plan = self.comm.plan_redistribute(source.layout, target.layout, np.float64, op=self.op)
        return _in_turn([partial(plan.run, a, b) for a, b in zip(self.sources, self.targets)])

    def _local_pairs(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        return ((source.local, target.local) for source, target in zip(self.sources, self.targets))


def _in_turn(actions: list[Callable[[], object]]) -> Callable[[], object]:
    if len(actions) == 1:
        return actions[0]

    def run() -> None:
        for action in actions:
            action()

    return run
