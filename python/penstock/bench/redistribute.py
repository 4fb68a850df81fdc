"""Redistribution of a block-cyclic matrix, against ScaLAPACK where it is installed and against a plain memory copy."""

from __future__ import annotations

import ctypes
import ctypes.util
from typing import Any

import numpy as np

from penstock.bench.installation import Installation
from penstock.bench.runner import Program

SUMMARY = (
    "A square matrix of float64 from 32x32 to 128x128 blocks: Penstock, one by one and batched by 3 (time per matrix), "
    "ScaLAPACK, and copying the local part once."
)

OPTIONS = {
    "orders": ([128, 512, 1024, 4096, 8192], [128, 1024], "orders of the matrix"),
    "ops": (["N", "T"], ["N"], "N: as it is, T: transposed"),
    "budget_s": (1.0, 0.2, "seconds for one setting in one job"),
}
RANKS = [2, 4]
BLOCKS = (32, 128)
BATCH = 3


def programs(mpi: Installation) -> list[Program]:
    batch = Program("penstock-batch", baselines=("penstock",))
    if _scalapack_name(mpi.name) is None:
        return [Program("copy"), Program("penstock", baselines=("copy",)), batch]
    return [
        Program("copy"),
        Program("scalapack", baselines=("copy",)),
        Program("penstock", baselines=("copy", "scalapack")),
        batch,
    ]


def grid_of(ranks: int) -> tuple[int, int]:
    rows = max(n for n in range(1, ranks + 1) if ranks % n == 0 and n * n <= ranks)
    return rows, ranks // rows


def measure(program: str, parameters: dict[str, Any]) -> list[tuple[dict[str, Any], list[float]]]:
    from mpi4py import MPI

    import penstock as ps
    from penstock.bench.worker import time_of

    world = MPI.COMM_WORLD
    grid = grid_of(world.size)
    rows = []
    for op in parameters["ops"]:
        for order in parameters["orders"]:
            source = ps.Layout.block_cyclic((order, order), (BLOCKS[0],) * 2, grid, storage="column")
            target = ps.Layout.block_cyclic((order, order), (BLOCKS[1],) * 2, grid, storage="column")
            given = ps.DistArray.empty(source, np.float64, world.rank)
            for view, (i, j) in source.local_views(world.rank, given.local):
                view[...] = i[:, None] * 10_000.0 + j[None, :]
            result = ps.DistArray.zeros(target, np.float64, world.rank)
            if program == "penstock":
                plan = ps.Comm(world).plan_redistribute(source, target, np.float64, op=op)
                action = lambda plan=plan, result=result, given=given: plan.run(given, result)  # noqa: E731
            elif program == "penstock-batch":
                batch = ps.Comm(world).plan_redistribute([source] * BATCH, [target] * BATCH, np.float64, op=op)
                sources = [given, *(ps.DistArray(source, _copy_of(given), world.rank) for _ in range(BATCH - 1))]
                results = [*(ps.DistArray.zeros(target, np.float64, world.rank) for _ in range(BATCH - 1)), result]
                action = lambda batch=batch, results=results, sources=sources: batch.run(sources, results)  # noqa: E731
            elif program == "scalapack":
                action = _Scalapack(world, grid).redistribution(op, order, given.local, result.local)
            else:
                copy = np.ones_like(given.local)
                action = lambda copy=copy, given=given: np.copyto(copy, given.local)  # noqa: E731
            seconds = time_of(world, action, parameters["budget_s"])
            if program == "penstock-batch":
                seconds = [each / BATCH for each in seconds]
            if program != "copy":
                for view, (i, j) in target.local_views(world.rank, result.local):
                    first, second = (j[None, :], i[:, None]) if op == "T" else (i[:, None], j[None, :])
                    if not np.array_equal(view, first * 10_000.0 + second):
                        raise AssertionError(f"{program}: wrong result for op {op}, order {order}")
            rows.append(({"op": op, "order": order, "bytes": order * order * 8}, seconds))
    return rows


def _copy_of(given: Any) -> np.ndarray:
    return np.array(given.local, order="K", copy=True)


def _scalapack_name(mpi: str) -> str | None:
    return ctypes.util.find_library(f"scalapack-{mpi}")


class _Scalapack:
    """pdgemr2d and pdtran, called as Fortran is."""

    def __init__(self, world: Any, grid: tuple[int, int]) -> None:
        from mpi4py import MPI

        from penstock.bench.worker import Cannot

        mpi = "openmpi" if MPI.Get_library_version().startswith("Open MPI") else "mpich"
        try:
            self._library = ctypes.CDLL(_scalapack_name(mpi) or "", mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            raise Cannot(f"ScaLAPACK does not load beside this MPI: {error}") from error
        self._context = ctypes.c_int()
        zero = ctypes.c_int(0)
        self._library.blacs_get_(ctypes.byref(zero), ctypes.byref(zero), ctypes.byref(self._context))
        rows, columns = (ctypes.c_int(n) for n in grid)
        self._library.blacs_gridinit_(
            ctypes.byref(self._context), ctypes.c_char_p(b"Row"), ctypes.byref(rows), ctypes.byref(columns)
        )
        self._rows = grid[0]

    def _descriptor(self, order: int, block: int, local: np.ndarray) -> Any:
        leading = max(1, local.shape[0])
        return (ctypes.c_int * 9)(1, self._context.value, order, order, block, block, 0, 0, leading)

    def redistribution(self, op: str, order: int, source: np.ndarray, target: np.ndarray) -> Any:
        n, one = ctypes.c_int(order), ctypes.c_int(1)
        from_desc, to_desc = self._descriptor(order, BLOCKS[0], source), self._descriptor(order, BLOCKS[1], target)
        pointer = ctypes.c_void_p
        a, b = pointer(source.ctypes.data), pointer(target.ctypes.data)
        ref = ctypes.byref
        if op == "N":
            return lambda: self._library.pdgemr2d_(
                ref(n), ref(n), a, ref(one), ref(one), from_desc, b, ref(one), ref(one), to_desc, ref(self._context)
            )
        # pdtran wants both in the same blocks: redistribute first, then transpose.
        between = np.empty_like(target)
        c = pointer(between.ctypes.data)
        unit, nothing = ctypes.c_double(1), ctypes.c_double(0)

        def transpose(between: np.ndarray = between) -> None:
            self._library.pdgemr2d_(
                ref(n), ref(n), a, ref(one), ref(one), from_desc, c, ref(one), ref(one), to_desc, ref(self._context)
            )
            self._library.pdtran_(
                ref(n), ref(n), ref(unit), c, ref(one), ref(one), to_desc, ref(nothing), b, ref(one), ref(one), to_desc
            )

        return transpose
