"""A = alpha * op(B) + beta * A between any two layouts (COSTA), and the relabeling that leaves the least to send."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from penstock import _penstock
from penstock.error import Error
from penstock.layout import DistArray, Layout

if TYPE_CHECKING:
    from penstock.comm import Comm, Request


@dataclass(frozen=True)
class Relabeling:
    """Which rank takes which part of a target, and what that saves."""

    permutation: list[int]  #: permutation[r] is the rank that takes the part of the target's rank r
    bytes_before: int  #: bytes that change their rank with the target as given
    bytes_after: int  #: and with the target relabeled

    @property
    def reduction_pct(self) -> float:
        return 100.0 * (self.bytes_before - self.bytes_after) / self.bytes_before if self.bytes_before else 0.0


def relabel(source: Layout, target: Layout, dtype: DTypeLike = np.float64, op: str = "N", ranks: int = 1) -> Relabeling:
    """The relabeling of the target's ranks that leaves the fewest bytes to communicate, exactly. Local; needs no MPI."""
    name = _dtype_name(dtype)
    itemsize = 2 if name == "bfloat16" else np.dtype(name).itemsize
    return Relabeling(*_penstock.relabel(source._native, target._native, itemsize, op, ranks))


def volumes(source: Layout, target: Layout, op: str = "N") -> np.ndarray:
    """How much each rank of the source has for each rank of the target: rows of (source, target, elements)."""
    return np.array(_penstock.transfer_volumes(source._native, target._native, op), np.int64).reshape(-1, 3)


def assign_max_weight(weights: ArrayLike) -> np.ndarray:
    """The column of each row of a square matrix of integers such that the sum of the chosen weights is greatest."""
    matrix = np.ascontiguousarray(weights, np.int64)
    if matrix.ndim != 2:
        raise Error(f"assign_max_weight: the weights have the shape {matrix.shape}, expected (n, n)")
    return np.array(_penstock.assign_max_weight(matrix), np.int32)


class Redistribution:
    """A redistribution that is planned once and run any number of times; made by :meth:`Comm.plan_redistribute`."""

    def __init__(self, native: _penstock.Redistribution, rank: int, dtype: str, op: str) -> None:
        self._native = native
        self._rank = rank
        self.dtype = dtype
        self.op = op
        self.source = Layout(native.source)
        #: The target after relabeling: what the output is laid out by.
        self.target = Layout(native.target)
        #: permutation[r] is the rank that takes the part of the given target's rank r.
        self.permutation: list[int] = native.permutation
        #: Bytes that change their rank with the target as given, and with the target relabeled; of all ranks together.
        self.bytes_before: int = native.bytes_before
        self.bytes_after: int = native.bytes_after

    def run(
        self, source: ArrayLike | DistArray, target: ArrayLike | DistArray, alpha: complex = 1, beta: complex = 0
    ) -> None:
        """target = alpha * op(source) + beta * target, each this rank's part. Collective and blocking.

        With ``beta`` 0 the target is not read. Wrong arguments raise :class:`penstock.Error` on every rank, and nothing
        has been written.
        """
        self._native.run(self._rank, *self._memory(source, target), alpha, beta)

    def start(
        self, source: ArrayLike | DistArray, target: ArrayLike | DistArray, alpha: complex = 1, beta: complex = 0
    ) -> Request:
        """As :meth:`run`, but returns at once; the memory belongs to the request until it is complete."""
        from penstock.comm import Request  # needs MPI, which the rest of this module does not

        return Request(self._native.start(self._rank, *self._memory(source, target), alpha, beta))

    def describe(self, form: str = "text") -> str:
        """This rank's plan, for people ("text") or programs ("json")."""
        return self._native.json() if form == "json" else self._native.text()

    def _memory(self, source: ArrayLike | DistArray, target: ArrayLike | DistArray) -> tuple[object, object]:
        return self._local("source", source, self.source), self._local("target", target, self.target)

    def _local(self, name: str, given: ArrayLike | DistArray, layout: Layout) -> object:
        if not isinstance(given, DistArray):
            return given
        wrong = None
        if given.layout is not layout and given.layout != layout:
            wrong = f"redistribute: the {name} has another layout than planned ({given.layout!r}, not {layout!r})"
        elif given.rank != self._rank:
            wrong = f"redistribute: the {name} is the part of rank {given.rank}, this is rank {self._rank}"
        if wrong:
            self._native.fail(wrong)
            raise Error(wrong)
        return given.local

    def __repr__(self) -> str:
        return f"<Redistribution {self.op} of {self.dtype}, {self.bytes_after} bytes between ranks>"


def plan_redistribute(
    comm: Comm, source: Layout, target: Layout, dtype: DTypeLike, op: str = "N", relabel: bool = False
) -> Redistribution:
    """Plans target = alpha * op(source) + beta * target. Collective over ``comm``.

    Parameters
    ----------
    source, target : Layout
        For at most as many ranks as the communicator has; the same on all ranks.
    dtype : dtype or str
        Of both, for example ``np.float64`` or "bfloat16".
    op : str
        "N" (as it is), "T" (transposed) or "C" (transposed and conjugated). The last two are for two dimensions.
    relabel : bool
        Whether the ranks of the target may be permuted so that the fewest bytes are communicated; the ``target`` of
        the result is then the layout to use.
    """
    core = comm._core
    failure = ""
    name = ""
    for what, layout in (("source", source), ("target", target)):
        if not isinstance(layout, Layout):
            failure = failure or f"redistribute: the {what} is a {type(layout).__name__}, expected a penstock.Layout"
    try:
        name = _dtype_name(dtype)
    except Error as error:
        failure = failure or str(error)
    made = _penstock.plan_redistribute(
        core,
        getattr(source, "_native", None),
        getattr(target, "_native", None),
        name,
        str(op),
        bool(relabel),
        failure,
    )
    return Redistribution(made, core.rank, name, str(op))


def _dtype_name(dtype: DTypeLike) -> str:
    if isinstance(dtype, str) and dtype == "bfloat16":
        return dtype
    try:
        return np.dtype(dtype).name
    except TypeError as error:
        raise Error(f"{dtype!r} is no element type: {error}") from None
