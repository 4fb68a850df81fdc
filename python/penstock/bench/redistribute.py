"""Redistribution of a block-cyclic matrix, against ScaLAPACK and COSTA where they are installed and against a plain copy."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from penstock.bench.installation import Installation
from penstock.bench.runner import Program

SUMMARY = (
    "A square matrix of float64 from 32x32 to 128x128 blocks (COSTA's Figure 2): Penstock, ScaLAPACK, COSTA and copying the "
    "local part once; and three matrices, by three runs of a kept plan and batched (time per matrix). COSTA is its library of "
    "prefixed routines, libcosta_prefixed_scalapack, or what PENSTOCK_BENCH_COSTA names, under the MPI it is linked to."
)

OPTIONS = {
    "orders": ([128, 512, 1024, 4096, 8192], [128, 1024], "orders of the matrix"),
    "ops": (["N", "T"], ["N"], "N: as it is, T: transposed"),
    "budget_s": (1.0, 0.2, "seconds for one setting in one job"),
}
RANKS = [2, 4]
BLOCKS = (32, 128)
BATCH = 3
#: How the libraries of Open MPI, MPICH and Debian's MPICH are named in what is linked to them.
_MPI_LIBRARIES = ("libmpi.so.40", "libmpi.so.12", "libmpich.so.12")


def programs(mpi: Installation) -> list[Program]:
    three = [Program("penstock-three"), Program("penstock-batch", baselines=("penstock-three",))]
    if not _is_linked_to(_scalapack_path(mpi.name), mpi):
        return [Program("copy"), Program("penstock", baselines=("copy",)), *three]
    peers = ("scalapack", "costa") if _is_linked_to(_costa_path(), mpi) else ("scalapack",)
    return [
        Program("copy"),
        *(Program(name, baselines=("copy",)) for name in peers),
        Program("penstock", baselines=("copy", *peers)),
        *three,
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
            elif program in ("penstock-batch", "penstock-three"):
                # Three sets of arrays on both sides: else the single runs would find theirs in the caches.
                sources = [given, *(_copy_of(given) for _ in range(BATCH - 1))]
                results = [*(ps.DistArray.zeros(target, np.float64, world.rank) for _ in range(BATCH - 1)), result]
                action = _three(ps.Comm(world), program == "penstock-batch", op, sources, results)
            elif program in ("scalapack", "costa"):
                action = _Scalapack(world, grid, program).redistribution(op, order, given.local, result.local)
            else:
                copy = np.ones_like(given.local)
                action = lambda copy=copy, given=given: np.copyto(copy, given.local)  # noqa: E731
            seconds = time_of(world, action, parameters["budget_s"])
            if program in ("penstock-batch", "penstock-three"):
                seconds = [each / BATCH for each in seconds]
            if program != "copy":
                for view, (i, j) in target.local_views(world.rank, result.local):
                    first, second = (j[None, :], i[:, None]) if op == "T" else (i[:, None], j[None, :])
                    if not np.array_equal(view, first * 10_000.0 + second):
                        raise AssertionError(f"{program}: wrong result for op {op}, order {order}")
            rows.append(({"op": op, "order": order, "bytes": order * order * 8}, seconds))
    return rows


def _copy_of(given: Any) -> Any:
    copy = type(given).empty(given.layout, given.dtype, given.rank)
    np.copyto(copy.local, given.local)
    return copy


def _three(comm: Any, batched: bool, op: str, sources: list[Any], results: list[Any]) -> Callable[[], None]:
    if batched:
        batch = comm.plan_redistribute([a.layout for a in sources], [b.layout for b in results], np.float64, op=op)
        return lambda: batch.run(sources, results)
    plan = comm.plan_redistribute(sources[0].layout, results[0].layout, np.float64, op=op)

    def run() -> None:
        for a, b in zip(sources, results):
            plan.run(a, b)

    return run


def _scalapack_path(mpi: str) -> Path | None:
    name = ctypes.util.find_library(f"scalapack-{mpi}")
    known = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=False).stdout if name else ""
    paths = [line.split(" => ")[1] for line in known.splitlines() if line.strip().startswith(f"{name} ")]
    return Path(paths[0]) if paths else None


def _costa_path() -> Path | None:
    """COSTA's library of routines with ScaLAPACK's arguments."""
    given = os.environ.get("PENSTOCK_BENCH_COSTA")
    folders = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    places = [given] if given else [f"{folder}/libcosta_prefixed_scalapack.so" for folder in folders if folder]
    return next((path for path in map(Path, places) if path.is_file()), None)


def _is_linked_to(library: Path | None, mpi: Installation) -> bool:
    """Of another MPI it would load, and then wait for ever: a process had two."""
    if library is None:
        return False
    content, folder = library.read_bytes(), Path(mpi.prefix, "lib")
    theirs = [name for name in _MPI_LIBRARIES if name.encode() in content]
    return any([*folder.glob(name), *folder.glob(f"*/{name}")] for name in theirs)


class _Scalapack:
    """pdgemr2d and pdtran, called as Fortran is; COSTA's with its prefix, on ScaLAPACK's process grids."""

    def __init__(self, world: Any, grid: tuple[int, int], whose: str) -> None:
        from mpi4py import MPI

        from penstock.bench.worker import Cannot

        mpi = "openmpi" if MPI.Get_library_version().startswith("Open MPI") else "mpich"
        try:
            self._library = ctypes.CDLL(str(_scalapack_path(mpi)), mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            raise Cannot(f"ScaLAPACK does not load beside this MPI: {error}") from error
        routines, prefix = self._library, ""
        if whose == "costa":
            try:
                routines, prefix = ctypes.CDLL(str(_costa_path()), mode=ctypes.RTLD_LOCAL), "costa_"
            except OSError as error:
                raise Cannot(f"COSTA does not load: {error}") from error
        self._gemr2d, self._tran = (getattr(routines, f"{prefix}{name}_") for name in ("pdgemr2d", "pdtran"))
        self._context = ctypes.c_int()
        zero = ctypes.c_int(0)
        self._library.blacs_get_(ctypes.byref(zero), ctypes.byref(zero), ctypes.byref(self._context))
        rows, columns = (ctypes.c_int(n) for n in grid)
        self._library.blacs_gridinit_(
            ctypes.byref(self._context), ctypes.c_char_p(b"Row"), ctypes.byref(rows), ctypes.byref(columns)
        )

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
            return lambda: self._gemr2d(
                ref(n), ref(n), a, ref(one), ref(one), from_desc, b, ref(one), ref(one), to_desc, ref(self._context)
            )
        unit, nothing = ctypes.c_double(1), ctypes.c_double(0)
        return lambda: self._tran(
            ref(n), ref(n), ref(unit), a, ref(one), ref(one), from_desc, ref(nothing), b, ref(one), ref(one), to_desc
        )
