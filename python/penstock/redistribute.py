"""A = alpha * op(B) + beta * A between any two layouts (COSTA), and the relabeling that leaves the least to send."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from penstock import _penstock
from penstock.error import Error
from penstock.layout import DistArray, Layout, _integers
from penstock.request import Request

if TYPE_CHECKING:
    from penstock.comm import Comm

    #: What a rank has of an array: memory, a list of several, or either with its layout.
    Part = ArrayLike | DistArray[Any] | Sequence[ArrayLike]


@dataclass(frozen=True)
class Relabeling:
    """Which rank takes which part of a target, and what that saves."""

    permutation: list[int]  #: permutation[r] is the rank that takes the part of the target's rank r
    bytes_before: int  #: bytes that change their rank with the target as given
    bytes_after: int  #: and with the target relabeled
    cost_before: float = 0.0  #: the same in the unit of the cost function
    cost_after: float = 0.0
    skipped: str = ""  #: why no relabeling was looked for; empty where it was, and the permutation is the best

    @property
    def reduction_pct(self) -> float:
        return 100.0 * (self.bytes_before - self.bytes_after) / self.bytes_before if self.bytes_before else 0.0


class TransferCost:
    """What it costs that one rank has something for another, in any unit; by default the bytes that change their rank.

    An immutable value, for ``relabel`` and :meth:`Comm.plan_redistribute`.
    """

    def __init__(self, native: _penstock.TransferCost | None = None) -> None:
        self._native = _penstock.TransferCost() if native is None else native

    @classmethod
    def pairs(cls, latency: ArrayLike, per_byte: ArrayLike) -> TransferCost:
        """``latency[i, j] + per_byte[i, j] * bytes`` from rank i to j; the diagonals are of what stays on a rank."""
        return cls(_penstock.TransferCost.pairs(_square("latency", latency), _square("per_byte", per_byte)))

    @classmethod
    def nodes(cls, node_of_rank: Sequence[int], latency: ArrayLike, per_byte: ArrayLike) -> TransferCost:
        """The same by nodes: the diagonals are between ranks of one node, and what stays on a rank is free."""
        native = _penstock.TransferCost.nodes(
            [int(node) for node in node_of_rank], _square("latency", latency), _square("per_byte", per_byte)
        )
        return cls(native)

    @classmethod
    def function(cls, cost: Callable[[NDArray[Any], NDArray[Any], NDArray[Any]], ArrayLike]) -> TransferCost:
        """Any function of (source rank, target rank, bytes), called with arrays that broadcast against each other."""

        def of_part(sources: list[int], nbytes: list[int], ranks: int) -> NDArray[Any]:
            given = (
                np.array(sources, np.int64)[:, None],
                np.arange(ranks)[None, :],
                np.array(nbytes, np.uint64)[:, None],
            )
            costs = np.broadcast_to(np.asarray(cost(*given), np.float64), (len(sources), ranks))
            return np.ascontiguousarray(costs.sum(axis=0))

        return cls(_penstock.TransferCost.parts(of_part))

    def with_transformation(self, per_byte: ArrayLike) -> TransferCost:
        """This and ``per_byte[r]`` for each byte that rank r gets, also from itself, and transforms."""
        return TransferCost(self._native.with_transformation(np.asarray(per_byte, np.float64).ravel().tolist()))


def _square(name: str, given: ArrayLike) -> list[float]:
    matrix = np.asarray(given, np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise Error(f"the {name} of a transfer cost has the shape {matrix.shape}, expected (n, n)")
    return matrix.ravel().tolist()


def _policy(relabel: bool | str) -> str:
    if isinstance(relabel, (bool, np.bool_)):
        return "worthwhile" if relabel else "never"
    return str(relabel)  # what is none of them is refused on all ranks


def _native_cost(cost: TransferCost | None) -> _penstock.TransferCost | None:
    if cost is not None and not isinstance(cost, TransferCost):
        raise Error(f"the cost is a {type(cost).__name__}, expected a TransferCost or None")
    return None if cost is None else cost._native


def _check_layouts(source: object, target: object) -> None:
    for what, layout in (("source", source), ("target", target)):
        if not isinstance(layout, Layout):
            raise Error(f"redistribute: the {what} is a {type(layout).__name__}, expected a penstock.Layout")


def relabel(
    source: Layout,
    target: Layout,
    dtype: DTypeLike = np.float64,
    op: str = "N",
    ranks: int = 1,
    *,
    cost: TransferCost | None = None,
    policy: str = "always",
) -> Relabeling:
    """The relabeling of the target's ranks of the least cost, exactly: of the fewest bytes to communicate.

    At least ``ranks`` ranks are permuted. With the policy "worthwhile" it is not looked for where that would take
    longer than it can save, by an estimate; see :attr:`Relabeling.skipped`. Local; needs no MPI.
    """
    _check_layouts(source, target)
    name = _dtype_name(dtype)
    itemsize = 2 if name == "bfloat16" else np.dtype(name).itemsize
    native = _native_cost(cost)
    return Relabeling(*_penstock.relabel(source._native, target._native, itemsize, op, ranks, policy, native))


def volumes(source: Layout, target: Layout, op: str = "N") -> NDArray[Any]:
    """How much each rank of the source has for each rank of the target: rows of (source, target, elements)."""
    _check_layouts(source, target)
    return _penstock.transfer_volumes(source._native, target._native, op)


def assign_max_weight(weights: ArrayLike) -> NDArray[Any]:
    """The column of each row of a square matrix of integers such that the sum of the chosen weights is greatest."""
    matrix = np.ascontiguousarray(weights, np.int64)
    if matrix.ndim != 2:
        raise Error(f"assign_max_weight: the weights have the shape {matrix.shape}, expected (n, n)")
    return np.array(_penstock.assign_max_weight(matrix), np.int32)


class Redistribution:
    """A redistribution that is planned once and run any number of times; made by :meth:`Comm.plan_redistribute`."""

    def __init__(self, native: _penstock.Redistribution, comm: Comm, dtypes: tuple[str, str], op: str) -> None:
        self._native = native
        self._comm = comm
        self._rank = comm._open().rank
        self.source_dtype: str = dtypes[0]
        self.dtype: str = dtypes[1]
        self.op = op
        self.source: Layout = Layout(native.source)
        #: The target after relabeling: what the output is laid out by.
        self.target: Layout = Layout(native.target)
        self._planned = _Planned(self.source), _Planned(self.target)
        self.relabeling: Relabeling = Relabeling(*native.relabeling)
        #: permutation[r] is the rank that takes the part of the given target's rank r.
        self.permutation: list[int] = self.relabeling.permutation
        #: Bytes that change their rank with the target as given, and with the target relabeled; of all ranks together.
        self.bytes_before: int = self.relabeling.bytes_before
        self.bytes_after: int = self.relabeling.bytes_after

    @property
    def workspace_bytes(self) -> int:
        """Bytes of the workspace that :meth:`run` and :meth:`start` take on this rank, wherever its arrays lie. Local.

        For what other nodes get and have, and for long runs for ranks of its node, if its memory has gaps there.
        """
        return self._native.workspace_bytes

    def run(
        self,
        source: Part,
        target: Part,
        alpha: complex = 1,
        beta: complex = 0,
        workspace: Any = None,
    ) -> None:
        """target = alpha * op(source) + beta * target, each this rank's part. Collective and blocking.

        The parts are what :class:`DistArray` takes: an array with any strides, or a list of such. A rank whose
        parts lie elsewhere relative to each other than in the last few runs plans its own side anew. ``workspace`` is memory for
        what is on its way: any writable contiguous buffer of at least :attr:`workspace_bytes`, apart from the
        others; by default memory of the communicator. With ``beta`` 0 the target is not read. Wrong arguments raise
        :class:`penstock.Error` on every rank, and nothing has been written.
        """
        self._native.run(self._rank, *self._memory(source, target), alpha, beta, workspace)

    def start(
        self,
        source: Part,
        target: Part,
        alpha: complex = 1,
        beta: complex = 0,
        workspace: Any = None,
    ) -> Request:
        """As :meth:`run`, but returns at once; the memory belongs to the request until it is complete."""
        return Request(self._native.start(self._rank, *self._memory(source, target), alpha, beta, workspace))

    def describe(self, form: str = "text") -> str:
        """This rank's plan, for people ("text") or programs ("json")."""
        return self._native.json() if form == "json" else self._native.text()

    def plot(self, path: str | os.PathLike[str], index: Sequence[int] = ()) -> None:
        """Draws who owns what before and after, into an image file, which rank 0 writes. Collective.

        Of more than two dimensions the first two are drawn, at position ``index`` along the others, by default 0.
        ``path`` and ``index`` of rank 0 count. When the call returns the file is there; if rank 0 cannot write it, all
        ranks get its :class:`penstock.Error`. Needs matplotlib, on rank 0: ``pip install 'penstock[plot]'``.
        """
        _plot(self._comm, lambda: _draw(path, self.source, self.target, self.relabeling, self.op, index))

    def _memory(self, source: Part, target: Part) -> tuple[object, object]:
        return (
            _local(self._native, self._rank, "source", source, self._planned[0]),
            _local(self._native, self._rank, "target", target, self._planned[1]),
        )

    def __repr__(self) -> str:
        return f"<Redistribution {self.op} of {self.dtype}, {self.bytes_after} bytes between ranks>"


class RedistributionBatch:
    """Several redistributions in one round, planned once; made by :meth:`Comm.plan_redistribute` from lists."""

    def __init__(self, native: _penstock.RedistributionBatch, comm: Comm, dtypes: tuple[str, str], op: str) -> None:
        self._native = native
        self._comm = comm
        self._rank = comm._open().rank
        self.source_dtype: str = dtypes[0]
        self.dtype: str = dtypes[1]
        self.op = op
        self.sources: list[Layout] = [Layout(layout) for layout in native.sources]
        #: The targets after relabeling, each on its own: what the outputs are laid out by.
        self.targets: list[Layout] = [Layout(layout) for layout in native.targets]
        self._planned = [_Planned(layout) for layout in self.sources], [_Planned(layout) for layout in self.targets]
        #: Of each pair.
        self.relabelings: list[Relabeling] = [Relabeling(*each) for each in native.relabelings]

    def run(
        self,
        sources: Sequence[Part],
        targets: Sequence[Part],
        alpha: complex = 1,
        beta: complex = 0,
        workspace: Any = None,
    ) -> None:
        """targets[i] = alpha * op(sources[i]) + beta * targets[i], each this rank's part. Collective and blocking.

        Parts and ``workspace`` as for :meth:`Redistribution.run`. Wrong arguments raise :class:`penstock.Error` on every
        rank, and nothing has been written.
        """
        self._native.run(self._rank, *self._memory(sources, targets), alpha, beta, workspace)

    def start(
        self,
        sources: Sequence[Part],
        targets: Sequence[Part],
        alpha: complex = 1,
        beta: complex = 0,
        workspace: Any = None,
    ) -> Request:
        """As :meth:`run`, but returns at once; the memory belongs to the request until it is complete."""
        return Request(self._native.start(self._rank, *self._memory(sources, targets), alpha, beta, workspace))

    def _memory(self, sources: Sequence[Any], targets: Sequence[Any]) -> tuple[list[object], list[object]]:
        wrong = ""
        try:
            sources, targets = list(sources), list(targets)
        except TypeError as error:
            wrong = f"redistribute: expected lists of sources and targets: {error}"
        else:
            if len(sources) != len(self) or len(targets) != len(self):
                wrong = (
                    f"redistribute: {len(sources)} sources and {len(targets)} targets given for a batch of {len(self)}"
                )
        if wrong:
            self._native.fail(wrong)
            raise Error(wrong)
        native, rank = self._native, self._rank
        from_layouts, to_layouts = self._planned
        return (
            [_local(native, rank, "source", given, planned) for given, planned in zip(sources, from_layouts)],
            [_local(native, rank, "target", given, planned) for given, planned in zip(targets, to_layouts)],
        )

    @property
    def workspace_bytes(self) -> int:
        """As :attr:`Redistribution.workspace_bytes`, of the whole batch."""
        return self._native.workspace_bytes

    def describe(self, form: str = "text") -> str:
        """This rank's plan, for people ("text") or programs ("json")."""
        return self._native.json() if form == "json" else self._native.text()

    def plot(self, path: str | os.PathLike[str], pair: int = 0, index: Sequence[int] = ()) -> None:
        """As :meth:`Redistribution.plot`, of one of the pairs. Collective; rank 0 writes."""

        def draw_pair() -> None:
            if not 0 <= pair < len(self):
                raise Error(f"plot: pair is {pair}, expected 0 to {len(self) - 1}")
            _draw(path, self.sources[pair], self.targets[pair], self.relabelings[pair], self.op, index)

        _plot(self._comm, draw_pair)

    def __len__(self) -> int:
        return len(self.sources)

    def __repr__(self) -> str:
        moved = sum(each.bytes_after for each in self.relabelings)
        return f"<RedistributionBatch of {len(self)}, {self.op} of {self.dtype}, {moved} bytes between ranks>"


def _plot(comm: Comm, draw: Callable[[], None]) -> None:
    """Rank 0 draws, and all ranks learn what became of it."""
    if not comm:
        raise Error("plot: the communicator that the redistribution was planned on has been freed; plot before Free()")
    failure = None
    if comm.Get_rank() == 0:
        try:
            draw()
        except Error as error:
            failure = error
        except Exception as error:  # the other ranks must not wait for this one
            failure = Error("plot: cannot draw", "internal", cause=f"{type(error).__name__}: {error}")
    failure = comm.bcast(failure)
    if failure is not None:
        raise failure


def _draw(
    path: str | os.PathLike[str],
    source: Layout,
    target: Layout,
    relabeling: Relabeling,
    op: str,
    index: Sequence[int],
) -> None:
    from penstock.layout_plot import draw

    title = f"op {op}: {relabeling.bytes_after:,} bytes change their rank"
    if relabeling.bytes_after != relabeling.bytes_before:
        title += f", {relabeling.bytes_before:,} without relabeling"
    draw({"before": source, "after": target}, path, title, tuple(index))


class _Planned:
    """A layout of a plan, and the last one that was seen to equal it: to compare them takes longer than to start."""

    __slots__ = ("equal", "layout")

    def __init__(self, layout: Layout) -> None:
        self.layout = self.equal = layout


def _local(native: Any, rank: int, name: str, given: Part, planned: _Planned) -> object:
    if not isinstance(given, DistArray):
        return given
    layout = given.layout
    if layout is planned.equal and given.rank == rank:
        return given.local
    wrong = None
    if layout is not planned.equal and layout != planned.layout:
        wrong = f"redistribute: the {name} has another layout than planned ({layout!r}, not {planned.layout!r})"
    elif given.rank != rank:
        wrong = f"redistribute: the {name} is the part of rank {given.rank}, this is rank {rank}"
    if wrong:
        native.fail(wrong)
        raise Error(wrong)
    planned.equal = layout
    return given.local


def redistribute(
    comm: Comm,
    source: DistArray,
    target: DistArray,
    op: str = "N",
    alpha: complex = 1,
    beta: complex = 0,
    workspace: Any = None,
) -> Request:
    """Starts target = alpha * op(source) + beta * target. Collective over ``comm``.

    Element types may differ as for :func:`plan_redistribute`. The communicator keeps the plans of the latest calls, as
    far as the option plan_cache_bytes holds them, so an equal one (layouts, types and op; the memory may be another)
    starts at once; a new one is planned first, together with the other ranks. Ranks that call with different layouts, types or op get
    :class:`penstock.Error` ("mismatch"), and nothing has been written.
    """
    core = comm._open()
    failure = _failure_of(core.rank, source, target)
    if failure:
        pending = _penstock.start_redistribution(
            core, None, None, ("", ""), str(op), None, None, alpha, beta, workspace, failure
        )
        return Request(pending)
    names = _name_of(source.dtype), _name_of(target.dtype)
    layouts = source.layout._native, target.layout._native
    return Request(
        _penstock.start_redistribution(
            core, *layouts, names, str(op), source.local, target.local, alpha, beta, workspace, ""
        )
    )


def _failure_of(rank: int, source: object, target: object) -> str:
    """What is wrong with the arrays of a call; empty if nothing is."""
    for what, given in (("source", source), ("target", target)):
        if not isinstance(given, DistArray):
            return f"redistribute: the {what} is a {type(given).__name__}, expected a penstock.DistArray"
        if given.rank != rank:
            return f"redistribute: the {what} is the part of rank {given.rank}, this is rank {rank}"
        if isinstance(given.local, list):
            try:
                given.dtype  # noqa: B018  raises where the list is empty
            except Error as error:
                return str(error)
    return ""


def plan_batch(
    comm: Comm,
    sources: Sequence[Layout],
    targets: Sequence[Layout],
    dtype: DTypeLike,
    op: str = "N",
    relabel: bool | str = False,
    *,
    cost: TransferCost | None = None,
    source_dtype: DTypeLike = None,
) -> RedistributionBatch:
    """Plans targets[i] = alpha * op(sources[i]) + beta * targets[i] for all i, in one round of messages.

    Collective over ``comm``. What ranks have for each other in all of the pairs travels together, so that many small
    arrays wait once. Parameters as of :func:`plan_redistribute`, the same for all pairs.
    """
    failure, names = "", ("", "")
    try:
        sources, targets = list(sources), list(targets)
    except TypeError as error:
        sources, targets, failure = [], [], f"redistribute: expected lists of sources and targets: {error}"
    if len(sources) != len(targets):
        failure = f"redistribute: {len(sources)} sources and {len(targets)} targets given for one batch"
    elif wrong := [type(layout).__name__ for layout in [*sources, *targets] if not isinstance(layout, Layout)]:
        failure = f"redistribute: a {wrong[0]} given in a batch, expected a penstock.Layout"
    try:
        names = _dtype_names(source_dtype, dtype)
    except Error as error:
        failure = failure or str(error)
    native_cost = None
    try:
        native_cost = _native_cost(cost)
    except Error as error:
        failure = failure or str(error)
    natives = [[] if failure else [layout._native for layout in given] for given in (sources, targets)]
    core = comm._open()
    made = _penstock.plan_batch(core, natives[0], natives[1], names, str(op), _policy(relabel), native_cost, failure)
    return RedistributionBatch(made, comm, names, str(op))


def plan_redistribute(
    comm: Comm,
    source: Layout,
    target: Layout,
    dtype: DTypeLike,
    op: str = "N",
    relabel: bool | str = False,
    *,
    cost: TransferCost | None = None,
    source_dtype: DTypeLike = None,
    source_begin: Sequence[int] = (),
    target_begin: Sequence[int] = (),
    shape: Sequence[int] = (),
    source_leading: int = 0,
    target_leading: int = 0,
) -> Redistribution:
    """Plans target = alpha * op(source) + beta * target. Collective over ``comm``.

    Parameters
    ----------
    source, target : Layout
        For at most as many ranks as the communicator has; the same on all ranks.
    dtype : dtype or str
        Of both, for example ``np.float64`` or "bfloat16".
    source_dtype : dtype or str
        Of the source, where it is another. Its elements are converted to ``dtype`` first, then ``alpha``, ``op`` and
        ``beta`` are applied; what travels are the smaller of the two. Not from complex to real or from floating point
        to integers.
    op : str
        "N" (as it is), "T" (transposed) or "C" (transposed and conjugated). The last two are for two dimensions.
    relabel : bool or str
        Whether the ranks of the target may be permuted so that the fewest bytes are communicated; the ``target`` of
        the result is then the layout to use. "never" is False; "worthwhile", which is True, does nothing where finding
        the best permutation would take longer than it can save, and says so in ``relabeling.skipped``; or "always".
    cost : TransferCost
        What is to be least instead of those bytes. Only rank 0's counts.
    source_begin, target_begin, shape : sequence of int
        Only a part: ``shape`` (of the source) from ``source_begin`` on goes to where ``target_begin`` is; by default
        all. What lies outside of it in the target stays as it is. The same on all ranks.
    source_leading, target_leading : int
        The leading dimension of this rank's local array (LLD), where it is longer than the part: the array then has
        the shape (leading, columns) in column order, or (rows, leading) in row order. 0: dense.
    """
    core = comm._open()
    failure = ""
    names = ("", "")
    part: list[list[int]] = [[], [], []]
    leading = [0, 0]
    native_cost = None
    try:
        _check_layouts(source, target)
        names = _dtype_names(source_dtype, dtype)
        part = [_integers(values) for values in (source_begin, target_begin, shape)]
        leading = _integers([source_leading, target_leading])
        native_cost = _native_cost(cost)
    except Error as error:
        failure = str(error)
    made = _penstock.plan_redistribute(
        core,
        getattr(source, "_native", None),
        getattr(target, "_native", None),
        names,
        str(op),
        _policy(relabel),
        native_cost,
        part,
        leading,
        failure,
    )
    return Redistribution(made, comm, names, str(op))


def _dtype_names(source: DTypeLike, target: DTypeLike) -> tuple[str, str]:
    return _dtype_name(target if source is None else source), _dtype_name(target)


@functools.cache  # NumPy puts the name together each time, which takes longer than to find the plan
def _name_of(dtype: np.dtype[Any]) -> str:
    return dtype.name


def _dtype_name(dtype: DTypeLike) -> str:
    if isinstance(dtype, str) and dtype == "bfloat16":
        return dtype
    try:
        return np.dtype(dtype).name
    except TypeError as error:
        raise Error(f"{dtype!r} is no element type: {error}") from None
