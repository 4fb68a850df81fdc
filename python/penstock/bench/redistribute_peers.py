"""Peers that redistribute a block-cyclic matrix: ScaLAPACK, COSTA, and Penstock under ScaLAPACK's names."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from penstock.bench.installation import Installation, cores

#: Library names of Open MPI, MPICH and Debian's MPICH, as binaries that are linked to them record.
_MPI_LIBRARIES = ("libmpi.so.40", "libmpi.so.12", "libmpich.so.12")


def scalapack_path(mpi: str) -> Path | None:
    name = ctypes.util.find_library(f"scalapack-{mpi}")
    known = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=False).stdout if name else ""
    paths = [line.split(" => ")[1] for line in known.splitlines() if line.strip().startswith(f"{name} ")]
    return Path(paths[0]) if paths else None


def costa_path() -> Path | None:
    """COSTA's library of routines with ScaLAPACK's arguments."""
    return _found("PENSTOCK_BENCH_COSTA", "libcosta_prefixed_scalapack.so", [])


def costa_batch_path() -> Path | None:
    """The library built from costa_batch.cpp."""
    return _found("PENSTOCK_BENCH_COSTA_BATCH", "libcosta_batch.so", [])


def own_path(mpi: str) -> Path | None:
    """Penstock's library of ScaLAPACK's routines: given, installed, or in this package's build folder."""
    from penstock import _penstock

    built = Path(_penstock.__file__).resolve().parents[2] / "src"
    return _found("PENSTOCK_BENCH_SCALAPACK", f"libpenstock_scalapack_{mpi}.so", [built])


def _found(variable: str, name: str, folders: Sequence[Path]) -> Path | None:
    given = os.environ.get(variable)
    searched = [*map(Path, filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(":"))), *folders]
    places = [Path(given)] if given else [folder / name for folder in searched]
    return next((path for path in places if path.is_file()), None)


def is_linked_to(library: Path | None, mpi: Installation) -> bool:
    """Whether a library uses this MPI. One for another MPI would load that too, and hang: the process would have two."""
    if library is None:
        return False
    content, folder = library.read_bytes(), Path(mpi.prefix, "lib")
    theirs = [name for name in _MPI_LIBRARIES if name.encode() in content]
    return any([*folder.glob(name), *folder.glob(f"*/{name}")] for name in theirs)


def _loaded(what: str, path: Path | None, mode: int) -> ctypes.CDLL:
    from penstock.bench.worker import Cannot

    try:
        return ctypes.CDLL(str(path), mode=mode)
    except OSError as error:
        raise Cannot(f"{what} does not load beside this MPI: {error}") from error


def share_cores(ranks: int) -> None:
    """Call it before COSTA is loaded. Its threads then share the cores, and idle ones yield."""
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, len(cores()) // ranks)))
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")


class ScalapackNames:
    """pdgemr2d and pdtran of one library, called with Fortran's conventions, on a ScaLAPACK process grid."""

    def __init__(self, world: Any, grid: tuple[int, int], blocks: tuple[int, int], whose: str) -> None:
        from mpi4py import MPI

        mpi = "openmpi" if MPI.Get_library_version().startswith("Open MPI") else "mpich"
        blacs = _loaded("ScaLAPACK", scalapack_path(mpi), ctypes.RTLD_GLOBAL)
        routines, prefix = blacs, ""
        if whose == "costa":
            share_cores(world.size)
            routines, prefix = _loaded("COSTA", costa_path(), ctypes.RTLD_LOCAL), "costa_"
        elif whose == "penstock":
            routines = _loaded("libpenstock_scalapack", own_path(mpi), ctypes.RTLD_LOCAL)
        self._gemr2d, self._tran = (getattr(routines, f"{prefix}{name}_") for name in ("pdgemr2d", "pdtran"))
        self._blocks = blocks
        self._context = ctypes.c_int()
        zero = ctypes.c_int(0)
        blacs.blacs_get_(ctypes.byref(zero), ctypes.byref(zero), ctypes.byref(self._context))
        rows, columns = (ctypes.c_int(n) for n in grid)
        blacs.blacs_gridinit_(
            ctypes.byref(self._context), ctypes.c_char_p(b"Row"), ctypes.byref(rows), ctypes.byref(columns)
        )

    def _descriptor(self, order: int, block: int, local: np.ndarray) -> Any:
        leading = max(1, local.shape[0])
        return (ctypes.c_int * 9)(1, self._context.value, order, order, block, block, 0, 0, leading)

    def redistribution(self, op: str, order: int, source: np.ndarray, target: np.ndarray) -> Callable[[], object]:
        n, one = ctypes.c_int(order), ctypes.c_int(1)
        from_desc = self._descriptor(order, self._blocks[0], source)
        to_desc = self._descriptor(order, self._blocks[1], target)
        pointer = ctypes.c_void_p
        a, b = pointer(source.ctypes.data), pointer(target.ctypes.data)
        ref = ctypes.byref
        if op == "N":
            routine = self._gemr2d
            given: tuple[object, ...] = (
                ref(n),
                ref(n),
                a,
                ref(one),
                ref(one),
                from_desc,
                b,
                ref(one),
                ref(one),
                to_desc,
                ref(self._context),
            )
        else:
            routine = self._tran
            unit, nothing = ctypes.c_double(1), ctypes.c_double(0)
            matrix_a = (ref(n), ref(n), ref(unit), a, ref(one), ref(one), from_desc)
            given = (*matrix_a, ref(nothing), b, ref(one), ref(one), to_desc)
        return lambda: routine(*given)


def costa_batch(
    world: Any,
    grid: tuple[int, int],
    blocks: tuple[int, int],
    op: str,
    order: int,
    sources: Sequence[np.ndarray],
    targets: Sequence[np.ndarray],
) -> Callable[[], object]:
    """All matrices in one batch of COSTA."""
    share_cores(world.size)
    _loaded("COSTA", costa_path(), ctypes.RTLD_GLOBAL)
    batch = _loaded("costa_batch", costa_batch_path(), ctypes.RTLD_LOCAL).penstock_bench_costa_batch

    def pointers(arrays: Sequence[np.ndarray]) -> Any:
        return (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))

    what = (len(sources), ctypes.c_char(op.encode()), order, (ctypes.c_int * 2)(*grid))
    source = (pointers(sources), blocks[0], max(1, sources[0].shape[0]))
    target = (pointers(targets), blocks[1], max(1, targets[0].shape[0]), ctypes.c_int(world.py2f()))
    return lambda: batch(*what, *source, *target)
