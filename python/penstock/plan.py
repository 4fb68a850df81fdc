"""What a collective would do, as data: the plans of all ranks for any team, without MPI and without running them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike

from penstock import _penstock
from penstock.error import Error

__all__ = ["Algorithm", "Plans", "Ranked", "algorithms", "collective", "networks", "rank"]


@dataclass(frozen=True)
class Algorithm:
    """A row of the algorithms table."""

    collective: str
    name: str
    cost: str  #: Rounds and bytes per rank, for n ranks and m bytes.


def algorithms(collective: str | None = None) -> list[Algorithm]:
    """All algorithms, or those of one collective."""
    rows = [Algorithm(*row) for row in _penstock.plan.algorithms()]
    return [row for row in rows if collective in (None, row.collective)]


class Plans:
    """The plans of all ranks for one operation. ``plans[rank]`` is a plan as a dict. Made by :func:`collective`."""

    def __init__(
        self, native: _penstock.plan.Plans, nodes: list[int], algorithm: str, reason: str, itemsize: int
    ) -> None:
        self._native = native
        self._itemsize = itemsize
        self.nodes = nodes  #: Node of each rank.
        self.algorithm = algorithm
        self.reason = reason  #: Why this algorithm was chosen.

    def __len__(self) -> int:
        return len(self._native)

    def __getitem__(self, rank: int) -> dict[str, Any]:
        """The plan of a rank: the sizes of its buffers and its ``steps``. A step has its ``kind``, memory, peer and
        ``dependencies`` (indices of earlier steps)."""
        if not 0 <= rank < len(self):
            raise IndexError(rank)
        plan: dict[str, Any] = json.loads(self._native.to_json(rank))
        return plan

    def text(self, rank: int) -> str:
        """The plan of a rank, one line per step."""
        if not 0 <= rank < len(self):
            raise Error(f"rank is {rank}; expected 0 to {len(self) - 1}")
        return self._native.to_text(rank)

    def dot(self) -> str:
        """A Graphviz graph of all ranks."""
        return self._native.to_dot()

    @cached_property
    def findings(self) -> list[str]:
        """Errors in the plans, found by checking all ranks against each other. Empty if the plans are correct."""
        return self._native.verify(self.nodes, self._itemsize)


def collective(
    kind: str,
    ranks: int,
    count: int = 0,
    dtype: DTypeLike = np.uint8,
    *,
    op: str = "sum",
    root: int = 0,
    in_place: bool = False,
    algorithm: str = "",
    segment_bytes: int = 0,
    split: int | Literal["auto"] = "auto",
    radix: int = 2,
    reproducible: bool = False,
    nodes: int | Sequence[int] = 1,
    progress_cores: int = 0,
    network: str = "",
    grid: Sequence[int] | None = None,
    periodic: bool = True,
) -> Plans:
    """The plans of all ranks for a collective such as ``"allreduce"``. Local; needs no MPI.

    Raises :class:`penstock.Error` for arguments that a communicator would reject.

    Parameters
    ----------
    count : int
        Elements per rank; for gather, scatter and allgather, of one rank's block.
    nodes : int or sequence of int
        The node of each rank; or a number of nodes, over which the ranks are spread in contiguous blocks.
    algorithm : str
        Default: what a communicator of this team would choose, with ``progress_cores`` communication cores per node.
    split, radix, reproducible
        As in :class:`penstock.CollectiveOptions`.
    network : str
        A name from :func:`networks`: chooses as a communicator does with ``PENSTOCK_NETWORK``. Default: it is unknown.
    grid : sequence of int
        Of neighbourhood collectives: the dimensions of the Cartesian grid, as of ``MPI_Cart_create``. Default: a ring.
    periodic : bool
        Whether its dimensions are periodic.
    """
    if ranks < 1:
        raise Error(f"ranks is {ranks}; expected at least 1")
    name: str = _dtype_name(dtype)
    if count < 0 or segment_bytes < 0:
        raise Error(f"count is {count} and segment_bytes is {segment_bytes}; expected 0 or more")
    if progress_cores < 0:
        raise Error(f"progress_cores is {progress_cores}; expected 0 or more")
    levels = -1 if split == "auto" else split
    what = _penstock.plan.Collective(
        kind,
        count,
        name,
        op,
        root,
        in_place,
        algorithm,
        segment_bytes,
        levels,
        radix,
        reproducible,
        _grid(kind, ranks, grid),
        periodic,
    )
    node_of_rank = _place(ranks, nodes)
    chosen, reason = _penstock.plan.choose(what, node_of_rank, progress_cores, network)
    plans = _penstock.plan.plan_all(what, node_of_rank, progress_cores, network)
    return Plans(plans, node_of_rank, chosen, reason, what.itemsize)


@dataclass(frozen=True)
class Ranked:
    """What an algorithm would take, by simulation or by its cost."""

    name: str
    seconds: float
    terms: dict[str, float]
    """What the seconds along the critical path are spent on: ``latency``, ``overhead``, ``link``, ``copy``,
    ``combine`` and ``synchronization``."""


def networks() -> dict[str, str]:
    """The classes of networks that :func:`rank` knows, with a description of each."""
    return dict(_penstock.plan.networks())


def rank(
    kind: str,
    ranks: int,
    count: int = 0,
    dtype: DTypeLike = np.uint8,
    *,
    network: str,
    by: Literal["simulation", "cost"] = "simulation",
    op: str = "sum",
    root: int = 0,
    in_place: bool = False,
    segment_bytes: int = 0,
    radix: int = 2,
    reproducible: bool = False,
    nodes: int | Sequence[int] = 1,
    grid: Sequence[int] | None = None,
    periodic: bool = True,
) -> list[Ranked]:
    """Every algorithm that can run a collective, the fastest first, by simulating the plans of all ranks on a class of
    networks, or by their costs. Local; needs no MPI. Nothing is measured: the parameters are typical ones, inside the
    nodes as well.

    Raises :class:`penstock.Error` for an unknown network and for arguments that a communicator would reject.

    Parameters
    ----------
    network : str
        A name from :func:`networks`, such as ``"tcp-10g"``.
    by : {"simulation", "cost"}
        ``"cost"``: what a communicator compares with ``PENSTOCK_NETWORK``. It agrees with the simulation within a tenth,
        is faster on many nodes, and leaves out algorithms that have no cost on this team.
    count, nodes, radix, reproducible, grid, periodic
        As in :func:`collective`.
    """
    if ranks < 1:
        raise Error(f"ranks is {ranks}; expected at least 1")
    if count < 0 or segment_bytes < 0:
        raise Error(f"count is {count} and segment_bytes is {segment_bytes}; expected 0 or more")
    if by not in ("simulation", "cost"):
        raise Error(f"by is {by!r}; expected 'simulation' or 'cost'")
    what = _penstock.plan.Collective(
        kind,
        count,
        _dtype_name(dtype),
        op,
        root,
        in_place,
        "",
        segment_bytes,
        -1,
        radix,
        reproducible,
        _grid(kind, ranks, grid),
        periodic,
    )
    return [Ranked(*row) for row in _penstock.plan.rank(what, _place(ranks, nodes), network, by == "cost")]


def _grid(kind: str, ranks: int, grid: Sequence[int] | None) -> list[int]:
    if not kind.startswith("neighbor_"):
        if grid is not None:
            raise Error(f"{kind}: grid is {grid!r}; only neighbourhood collectives have one")
        return []
    return [ranks] if grid is None else list(grid)


def _dtype_name(dtype: DTypeLike) -> str:
    if isinstance(dtype, str) and dtype == "bfloat16":
        return dtype
    try:
        return np.dtype(dtype).name
    except TypeError as error:
        raise Error(
            f"dtype is {dtype!r}; expected a type of NumPy such as float32, or bfloat16", cause=str(error)
        ) from None


def _place(ranks: int, nodes: int | Sequence[int]) -> list[int]:
    if isinstance(nodes, int):
        if not 1 <= nodes <= ranks:
            raise Error(f"nodes is {nodes}; expected 1 to {ranks}, the number of ranks")
        return [rank * nodes // ranks for rank in range(ranks)]
    given = list(nodes)
    if len(given) != ranks:
        raise Error(f"nodes names the nodes of {len(given)} ranks; expected {ranks}")
    order = {node: index for index, node in enumerate(dict.fromkeys(given))}  # in order of first appearance
    return [order[node] for node in given]
