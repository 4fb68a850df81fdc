"""Redistribution, A = alpha * op(B) + beta * A between any two layouts (COSTA), and relabeling for the least traffic."""

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

    #: A rank's part of an array: one array, a list of arrays, or a DistArray.
    Part = ArrayLike | DistArray[Any] | Sequence[ArrayLike]


@dataclass(frozen=True)
class Relabeling:
    """A permutation of the target's ranks, and the traffic before and after it (COSTA, Section 4)."""

    permutation: list[int]  #: Rank ``permutation[r]`` takes the part of the target's rank r.
    bytes_before: int  #: Bytes that change rank, with the target as given.
    bytes_after: int  #: Bytes that change rank, with the target relabeled.
    cost_before: float = 0.0  #: As bytes_before, in the unit of the cost function.
    cost_after: float = 0.0  #: As bytes_after, in the unit of the cost function.
    skipped: str = ""  #: Why no relabeling was computed. Empty if it was; the permutation is then optimal.

    @property
    def reduction_pct(self) -> float:
        return 100.0 * (self.bytes_before - self.bytes_after) / self.bytes_before if self.bytes_before else 0.0


class TransferCost:
    """The cost of sending a package from one rank to another (w in COSTA, Section 3). Default: bytes that change rank.

    Immutable. The unit is the caller's. Used by :func:`relabel` and :meth:`Comm.plan_redistribute`.
    """

    def __init__(self, native: _penstock.TransferCost | None = None) -> None:
        self._native = _penstock.TransferCost() if native is None else native

    @classmethod
    def pairs(cls, latency: ArrayLike, per_byte: ArrayLike) -> TransferCost:
        """``latency[i, j] + per_byte[i, j] * bytes`` from rank i to rank j. The diagonal is for data that stays on a rank."""
        return cls(_penstock.TransferCost.pairs(_square("latency", latency), _square("per_byte", per_byte)))

    @classmethod
    def nodes(cls, node_of_rank: Sequence[int], latency: ArrayLike, per_byte: ArrayLike) -> TransferCost:
        """As :meth:`pairs`, by node. The diagonal is for ranks of one node. Data that stays on a rank is free."""
        native = _penstock.TransferCost.nodes(
            [int(node) for node in node_of_rank], _square("latency", latency), _square("per_byte", per_byte)
        )
        return cls(native)

    @classmethod
    def function(cls, cost: Callable[[NDArray[Any], NDArray[Any], NDArray[Any]], ArrayLike]) -> TransferCost:
        """Any function of (source rank, target rank, bytes). It is called with arrays that broadcast."""

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
        """This cost plus ``per_byte[r]`` for each byte that rank r receives and transforms, data from itself included."""
        return TransferCost(self._native.with_transformation(np.asarray(per_byte, np.float64).ravel().tolist()))


def _square(name: str, given: ArrayLike) -> list[float]:
    matrix = np.asarray(given, np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise Error(f"the {name} of a transfer cost has the shape {matrix.shape}; expected (n, n)")
    return matrix.ravel().tolist()


def _policy(relabel: bool | str) -> str:
    if isinstance(relabel, (bool, np.bool_)):
        return "worthwhile" if relabel else "never"
    return str(relabel)  # an unknown policy is rejected on all ranks


def _native_cost(cost: TransferCost | None) -> _penstock.TransferCost | None:
    if cost is not None and not isinstance(cost, TransferCost):
        raise Error(f"the cost is a {type(cost).__name__}; expected a TransferCost or None")
    return None if cost is None else cost._native


def _check_layouts(source: object, target: object) -> None:
    for what, layout in (("source", source), ("target", target)):
        if not isinstance(layout, Layout):
            raise Error(f"redistribute: the {what} is a {type(layout).__name__}; expected a penstock.Layout")


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
    """The relabeling of the target's ranks with the least cost (COSTA, Algorithm 1). Exact. Local; needs no MPI.

    Parameters
    ----------
    source, target : Layout
    dtype : dtype or str
        Element type that travels.
    op : str
        "N", "T" or "C", as for :func:`plan_redistribute`.
    ranks : int
        Permute at least this many ranks.
    cost : TransferCost
        Default: the bytes that change rank.
    policy : str
        "always"; "worthwhile", which skips the search if it is estimated to take longer than the relabeling saves; or
        "never". See :attr:`Relabeling.skipped`.
    """
    return relabel_jointly([RelabelTransfer(source, target, dtype, op)], ranks, cost=cost, policy=policy)


@dataclass(frozen=True)
class RelabelTransfer:
    """One of several redistributions whose layouts are relabeled together, see :func:`relabel_jointly`."""

    source: Layout
    target: Layout
    dtype: DTypeLike = "float64"  #: Element type that travels.
    op: str = "N"  #: "N", "T" or "C", as for :func:`plan_redistribute`.
    side: str = "target"  #: The layout whose ranks are permuted: "source" or "target".


def relabel_jointly(
    transfers: Sequence[RelabelTransfer],
    ranks: int = 1,
    *,
    cost: TransferCost | None = None,
    policy: str = "always",
) -> Relabeling:
    """One permutation for several layouts, with the least sum of costs (COSTA, Section 7.3). Exact. Local; needs no MPI.

    For arrays that meet in a computation, such as the factors and the product of a matrix product: their parts stay on the
    same ranks. Apply it with :meth:`Layout.relabeled` to each relabeled layout. Bytes and costs are sums over all
    transfers; data that several transfers move between the same two ranks is one package.

    Parameters
    ----------
    transfers : sequence of RelabelTransfer
    ranks, policy
        As for :func:`relabel`.
    cost : TransferCost
        Default: the bytes that change rank, the only cost for transfers with a relabeled source.

    Examples
    --------
    >>> rows = ps.Layout.block_cyclic((8, 8), (2, 8), (4, 1))
    >>> shifted = rows.relabeled([1, 2, 3, 0])
    >>> there, back = ps.RelabelTransfer(rows, shifted), ps.RelabelTransfer(shifted, rows, side="source")
    >>> ps.relabel_jointly([there, back]).bytes_after
    0
    """
    facts = []
    for each in transfers:
        if not isinstance(each, RelabelTransfer):
            raise Error(f"relabel: a {type(each).__name__} given among the transfers; expected RelabelTransfer")
        _check_layouts(each.source, each.target)
        name = _dtype_name(each.dtype)
        itemsize = 2 if name == "bfloat16" else np.dtype(name).itemsize
        facts.append((each.source._native, each.target._native, itemsize, str(each.op), str(each.side)))
    return Relabeling(*_penstock.relabel(facts, ranks, policy, _native_cost(cost)))


def volumes(source: Layout, target: Layout, op: str = "N") -> NDArray[Any]:
    """Elements that each rank of the source sends to each rank of the target: rows (source, target, elements). Local."""
    _check_layouts(source, target)
    return _penstock.transfer_volumes(source._native, target._native, op)


def assign_max_weight(weights: ArrayLike) -> NDArray[Any]:
    """Linear assignment: one column per row of a square integer matrix, with the largest sum of weights. Exact. Local."""
    matrix = np.ascontiguousarray(weights, np.int64)
    if matrix.ndim != 2:
        raise Error(f"assign_max_weight: the weights have the shape {matrix.shape}; expected (n, n)")
    return np.array(_penstock.assign_max_weight(matrix), np.int32)


class Redistribution:
    """A planned redistribution, to be run any number of times. Made by :meth:`Comm.plan_redistribute`."""

    def __init__(self, native: _penstock.Redistribution, comm: Comm, dtypes: tuple[str, str], op: str) -> None:
        self._native = native
        self._comm = comm
        self._rank = comm._open().rank
        self.source_dtype: str = dtypes[0]
        self.dtype: str = dtypes[1]
        self.op = op
        self.source: Layout = Layout(native.source)
        #: Layout of the output: the target after relabeling.
        self.target: Layout = Layout(native.target)
        self._planned = _Planned(self.source), _Planned(self.target)
        self.relabeling: Relabeling = Relabeling(*native.relabeling)
        #: Rank ``permutation[r]`` takes the part of the given target's rank r.
        self.permutation: list[int] = self.relabeling.permutation
        #: Bytes that change rank, summed over all ranks: with the target as given, and with the target relabeled.
        self.bytes_before: int = self.relabeling.bytes_before
        self.bytes_after: int = self.relabeling.bytes_after

    @property
    def workspace_bytes(self) -> int:
        """Bytes of the workspace that :meth:`run` and :meth:`start` need on this rank, for any strides. Local.

        The workspace holds messages to and from other nodes, and packed data for remote reads by ranks of this node.
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
        """Compute target = alpha * op(source) + beta * target. Collective and blocking.

        Invalid arguments raise :class:`penstock.Error` on every rank; no target is written then.

        Parameters
        ----------
        source, target : Part
            This rank's parts, as :class:`DistArray` takes them. If their relative placement differs from the last few
            runs, this rank plans its side again.
        alpha, beta : complex
            Equal on all ranks. If ``beta`` is 0, the target is not read.
        workspace : buffer
            Writable contiguous memory of at least :attr:`workspace_bytes`, apart from the arrays. Default: memory of the
            communicator.
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
        """Start :meth:`run` and return. The arrays and the workspace belong to the request until it is complete."""
        return Request(self._native.start(self._rank, *self._memory(source, target), alpha, beta, workspace))

    def describe(self, form: str = "text") -> str:
        """This rank's plan as "text" or "json"."""
        return self._native.json() if form == "json" else self._native.text()

    def plot(self, path: str | os.PathLike[str], index: Sequence[int] = ()) -> None:
        """Draw the owners before and after into an image file, which rank 0 writes. Collective.

        The call returns when the file exists. If rank 0 cannot write it, all ranks raise its :class:`penstock.Error`.
        Rank 0 needs matplotlib: ``pip install 'penstock[plot]'``.

        Parameters
        ----------
        path : path-like
            Only rank 0's value is used.
        index : sequence of int
            Position along the third and later dimensions. Default: 0. Only rank 0's value is used.
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
    """Several redistributions, planned and run together. Made by :meth:`Comm.plan_redistribute` from lists of layouts."""

    def __init__(self, native: _penstock.RedistributionBatch, comm: Comm, dtypes: tuple[str, str], op: str) -> None:
        self._native = native
        self._comm = comm
        self._rank = comm._open().rank
        self.source_dtype: str = dtypes[0]
        self.dtype: str = dtypes[1]
        self.op = op
        self.sources: list[Layout] = [Layout(layout) for layout in native.sources]
        #: Layouts of the outputs: the targets after relabeling, each by its own or all by a joint one.
        self.targets: list[Layout] = [Layout(layout) for layout in native.targets]
        self._planned = [_Planned(layout) for layout in self.sources], [_Planned(layout) for layout in self.targets]
        #: One per pair.
        self.relabelings: list[Relabeling] = [Relabeling(*each) for each in native.relabelings]

    def run(
        self,
        sources: Sequence[Part],
        targets: Sequence[Part],
        alpha: complex = 1,
        beta: complex = 0,
        workspace: Any = None,
    ) -> None:
        """Compute targets[i] = alpha * op(sources[i]) + beta * targets[i] for all i. Collective and blocking.

        Parameters and errors are those of :meth:`Redistribution.run`, with one part per pair.
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
        """Start :meth:`run` and return. The arrays and the workspace belong to the request until it is complete."""
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
        """As :attr:`Redistribution.workspace_bytes`, for the whole batch."""
        return self._native.workspace_bytes

    def describe(self, form: str = "text") -> str:
        """This rank's plan as "text" or "json"."""
        return self._native.json() if form == "json" else self._native.text()

    def plot(self, path: str | os.PathLike[str], pair: int = 0, index: Sequence[int] = ()) -> None:
        """As :meth:`Redistribution.plot`, for one pair. Collective; rank 0 writes."""

        def draw_pair() -> None:
            if not 0 <= pair < len(self):
                raise Error(f"plot: pair is {pair}; expected 0 to {len(self) - 1}")
            _draw(path, self.sources[pair], self.targets[pair], self.relabelings[pair], self.op, index)

        _plot(self._comm, draw_pair)

    def __len__(self) -> int:
        return len(self.sources)

    def __repr__(self) -> str:
        moved = sum(each.bytes_after for each in self.relabelings)
        return f"<RedistributionBatch of {len(self)}, {self.op} of {self.dtype}, {moved} bytes between ranks>"


def _plot(comm: Comm, draw: Callable[[], None]) -> None:
    """Rank 0 draws. All ranks raise its error, if any."""
    if not comm:
        raise Error("plot: the communicator that the redistribution was planned on has been freed; plot before Free()")
    failure = None
    if comm.Get_rank() == 0:
        try:
            draw()
        except Error as error:
            failure = error
        except Exception as error:  # the other ranks wait in bcast
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
    """A layout of a plan, and the last layout found equal to it: comparing layouts takes longer than starting a plan."""

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
    """Start target = alpha * op(source) + beta * target. Collective over ``comm``.

    The communicator caches the plans of recent calls, up to the option plan_cache_bytes. A call with the layouts, types and
    op of a cached plan starts at once, whatever its memory. Another call plans first, and blocks until all ranks have
    planned. If layouts, types or op differ between ranks, all raise :class:`penstock.Error` ("mismatch") and write nothing.
    Element types may differ as for :func:`plan_redistribute`.
    """
    return Request(start(comm._open(), source, target, op, alpha, beta, workspace))


def start(
    core: _penstock.Comm,
    source: DistArray,
    target: DistArray,
    op: str,
    alpha: complex,
    beta: complex,
    workspace: Any,
) -> _penstock.Request:
    """:func:`redistribute` on any communicator of the extension."""
    failure = _failure_of(core.rank, source, target)
    if failure:
        return _penstock.start_redistribution(
            core, None, None, ("", ""), str(op), None, None, alpha, beta, workspace, failure
        )
    names = _name_of(source.dtype), _name_of(target.dtype)
    layouts = source.layout._native, target.layout._native
    return _penstock.start_redistribution(
        core, *layouts, names, str(op), source.local, target.local, alpha, beta, workspace, ""
    )


def start_parts(
    core: _penstock.Comm,
    layouts: tuple[Layout, Layout],
    dtype: np.dtype[Any],
    source: Sequence[NDArray[Any]],
    target: Sequence[NDArray[Any]],
) -> _penstock.Request:
    """:func:`start` for elements that are only moved, in this rank's arrays of :attr:`Layout.part_shapes`. For short arrays
    that is faster: the extension alone checks them."""
    name, (before, after) = _name_of(dtype), layouts
    return _penstock.start_redistribution(
        core, before._native, after._native, (name, name), "N", source, target, 1, 0, None, ""
    )


def _failure_of(rank: int, source: object, target: object) -> str:
    """What is wrong with the arrays of a call, or ""."""
    for what, given in (("source", source), ("target", target)):
        if not isinstance(given, DistArray):
            return f"redistribute: the {what} is a {type(given).__name__}; expected a penstock.DistArray"
        if given.rank != rank:
            return f"redistribute: the {what} is the part of rank {given.rank}, this is rank {rank}"
        if isinstance(given.local, list):
            try:
                given.dtype  # noqa: B018  raises if the list is empty
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
    relabel_jointly: bool = False,
    cost: TransferCost | None = None,
    source_dtype: DTypeLike = None,
) -> RedistributionBatch:
    """Plan targets[i] = alpha * op(sources[i]) + beta * targets[i] for all i. Collective over ``comm``.

    Data of all pairs travels in the same messages, so many small arrays pay one latency. Parameters are those of
    :func:`plan_redistribute`, equal for all pairs. With ``relabel_jointly`` one permutation serves all targets, so that
    parts that belong together stay on one rank; it needs ``relabel``.
    """
    failure, names = "", ("", "")
    try:
        sources, targets = list(sources), list(targets)
    except TypeError as error:
        sources, targets, failure = [], [], f"redistribute: expected lists of sources and targets: {error}"
    if len(sources) != len(targets):
        failure = f"redistribute: {len(sources)} sources and {len(targets)} targets given for one batch"
    elif wrong := [type(layout).__name__ for layout in [*sources, *targets] if not isinstance(layout, Layout)]:
        failure = f"redistribute: a {wrong[0]} given in a batch; expected a penstock.Layout"
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
    how = (_policy(relabel), bool(relabel_jointly), native_cost)
    made = _penstock.plan_batch(core, natives[0], natives[1], names, str(op), *how, failure)
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
    """Plan target = alpha * op(source) + beta * target. Collective over ``comm``.

    All arguments are equal on all ranks, except ``cost``, ``source_leading`` and ``target_leading``.

    Parameters
    ----------
    source, target : Layout
        They may use fewer ranks than the communicator has.
    dtype : dtype or str
        Element type of the target, and of the source unless ``source_dtype`` is given: ``np.float64``, "bfloat16", …
    source_dtype : dtype or str
        Element type of the source. Elements are converted to ``dtype``; then ``alpha``, ``op`` and ``beta`` apply. The
        smaller of the two types travels. No conversion from complex to real, or from floating point to integer.
    op : str
        "N" (as it is), "T" (transpose) or "C" (conjugate transpose). "T" and "C" need two dimensions.
    relabel : bool or str
        Whether to permute the target's ranks so that the fewest bytes change rank. The result's ``target`` is then the
        layout of the output. False or "never"; True or "worthwhile", which skips the search if it takes longer than the
        relabeling saves, and says so in ``relabeling.skipped``; or "always".
    cost : TransferCost
        The cost to minimize. Default: the bytes that change rank. Only rank 0's value is used.
    source_begin, target_begin, shape : sequence of int
        Move a subarray only: ``shape`` (of the source, before ``op``) from ``source_begin`` to ``target_begin``. The rest
        of the target keeps its values. Default: the whole array.
    source_leading, target_leading : int
        Leading dimension (LLD) of this rank's local array, in elements: its shape is then (leading, columns) in column
        order, or (rows, leading) in row order. 0: dense. Ranks may differ.
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


@functools.cache  # NumPy builds the name on each access, which takes longer than finding the plan
def _name_of(dtype: np.dtype[Any]) -> str:
    return dtype.name


def _dtype_name(dtype: DTypeLike) -> str:
    if isinstance(dtype, str) and dtype == "bfloat16":
        return dtype
    try:
        return np.dtype(dtype).name
    except TypeError as error:
        raise Error(f"{dtype!r} is not an element type: {error}") from None
