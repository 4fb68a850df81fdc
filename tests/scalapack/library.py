"""ScaLAPACK's and Penstock's routines side by side, and distributed matrices as NumPy arrays."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
MPI_NAME = "openmpi"  # Debian's MPICH is called otherwise than the one of build/mpi, so a process would have both
LIBRARIES = Path(os.environ.get("PENSTOCK_BUILD", ROOT / "build/release")) / "src"
OURS = LIBRARIES / f"libpenstock_scalapack_{MPI_NAME}.so"
OURS_ILP64 = LIBRARIES / f"libpenstock_scalapack_ilp64_{MPI_NAME}.so"
LETTERS = {"i": np.int32, "s": np.float32, "d": np.float64, "c": np.complex64, "z": np.complex128}
TRAN = {"pstran_": "s", "pdtran_": "d", "pctranu_": "c", "pztranu_": "z", "pctranc_": "c", "pztranc_": "z"}


def scalapack_name() -> str | None:
    return ctypes.util.find_library(f"scalapack-{MPI_NAME}")


@dataclass(frozen=True)
class Grid:
    """A process grid as this process sees it. `context` is -1 if this process is not in the grid."""

    context: int
    rows: int
    columns: int
    row: int
    column: int


@dataclass(frozen=True)
class Matrix:
    """A distributed matrix. Its descriptor has type 2 if the first block has another size than the rest."""

    grid: Grid
    shape: tuple[int, int]
    block: tuple[int, int]
    source: tuple[int, int] = (0, 0)
    padding: int = 0  #: of each local column, in elements
    first_block: tuple[int, int] | None = None

    def owners(self, axis: int) -> np.ndarray:
        """Return, for each row (column) of the matrix, the row (column) of the grid that owns it."""
        first = (self.first_block or self.block)[axis]
        index = np.arange(self.shape[axis])
        blocks = np.where(index < first, 0, 1 + (index - first) // self.block[axis])
        return (blocks + self.source[axis]) % (self.grid.rows, self.grid.columns)[axis]

    def mine(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows and the columns of the matrix that this process owns."""
        if self.grid.context < 0:
            return np.empty(0, int), np.empty(0, int)
        return tuple(
            np.flatnonzero((self.owners(axis) == at) | (self.source[axis] < 0))
            for axis, at in enumerate((self.grid.row, self.grid.column))
        )

    def leading(self) -> int:
        return max(1, len(self.mine()[0]) + self.padding)

    def local(self, whole: np.ndarray, outside: int = -77) -> np.ndarray:
        """Return this process's memory: its part of `whole`, and `outside` in the padding."""
        rows, columns = self.mine()
        memory = np.full((self.leading(), len(columns)), outside, whole.dtype, order="F")
        memory[: len(rows)] = whole[np.ix_(rows, columns)]
        return memory

    def descriptor(self, **changes: int) -> ctypes.Array:
        blocks = [*self.first_block, *self.block] if self.first_block else [*self.block]
        kind = 2 if self.first_block else 1
        names = ["dtype", "ctxt", "m", "n", *(["imb", "inb"] if self.first_block else []), "mb", "nb"]
        names += ["rsrc", "csrc", "lld"]
        values = dict(zip(names, [kind, self.grid.context, *self.shape, *blocks, *self.source, self.leading()]))
        values.update(changes)
        return (ctypes.c_int * len(names))(*values.values())


def _arguments(a, at_a, desc_a, b, at_b, desc_b) -> tuple:
    """Of both matrices. Fortran counts rows and columns from 1."""
    return (a, at_a[0] + 1, at_a[1] + 1, desc_a, b, at_b[0] + 1, at_b[1] + 1, desc_b)


class Library:
    """The routines of a shared library, with arguments as Fortran takes them."""

    def __init__(self, path: str | Path, mode: int, integer: type = ctypes.c_int) -> None:
        self._library = ctypes.CDLL(str(path), mode=mode)
        self._integer = integer

    def gemr2d(self, letter, shape, a, at_a, desc_a, b, at_b, desc_b, context) -> None:
        matrices = _arguments(a, at_a, desc_a, b, at_b, desc_b)
        self._call(f"p{letter}gemr2d_", *shape, *matrices, context)

    def trmr2d(self, letter, uplo, diag, shape, a, at_a, desc_a, b, at_b, desc_b, context) -> None:
        letters = [ctypes.c_char(each.encode()) for each in (uplo, diag)]
        matrices = _arguments(a, at_a, desc_a, b, at_b, desc_b)
        self._call(f"p{letter}trmr2d_", *letters, *shape, *matrices, context)

    def tran(self, name, shape, alpha, a, at_a, desc_a, beta, c, at_c, desc_c) -> None:
        factors = [np.array(factor, LETTERS[TRAN[name]]) for factor in (alpha, beta)]
        self._call(
            name,
            *shape,
            factors[0],
            a,
            at_a[0] + 1,
            at_a[1] + 1,
            desc_a,
            factors[1],
            c,
            at_c[0] + 1,
            at_c[1] + 1,
            desc_c,
        )

    def grid(self, processes: Sequence[int], rows: int, columns: int) -> Grid:
        """Make a grid of these ranks of MPI_COMM_WORLD, in column-major order. Collective over all of them."""
        context = ctypes.c_int()
        self._call("blacs_get_", 0, 0, context)
        usermap = (ctypes.c_int * len(processes))(*processes)
        self._call("blacs_gridmap_", context, usermap, rows, rows, columns)
        return self._info(context, rows, columns)

    def line(self, ranks: int, order: bytes = b"Row") -> Grid:
        context = ctypes.c_int()
        self._call("blacs_get_", 0, 0, context)
        self._call("blacs_gridinit_", context, ctypes.create_string_buffer(order), 1, ranks)
        return self._info(context, 1, ranks)

    def exit(self, grid: Grid) -> None:
        if grid.context >= 0:
            self._call("blacs_gridexit_", grid.context)

    def _info(self, context: ctypes.c_int, rows: int, columns: int) -> Grid:
        me = ctypes.c_int(-1), ctypes.c_int(-1)
        if context.value >= 0:
            self._call("blacs_gridinfo_", context, ctypes.c_int(), ctypes.c_int(), *me)
        return Grid(context.value, rows, columns, me[0].value, me[1].value)

    def _call(self, name: str, *arguments: object) -> None:
        def reference(value: object) -> object:
            if isinstance(value, np.ndarray):
                return ctypes.c_void_p(value.ctypes.data)
            if isinstance(value, (int, np.integer)):
                value = self._integer(int(value))
            elif isinstance(value, ctypes.Array) and value._type_ is ctypes.c_int:  # a descriptor
                value = (self._integer * len(value))(*value)
            return ctypes.byref(value)

        getattr(self._library, name)(*(reference(argument) for argument in arguments))
