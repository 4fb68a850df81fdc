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

__all__ = ["Algorithm", "Plans", "algorithms", "collective"]


@dataclass(frozen=True)
class Algorithm:
    """A row of the table of algorithms."""

    collective: str
    name: str
    cost: str  #: rounds and bytes per rank, for n ranks and m bytes


def algorithms(collective: str | None = None) -> list[Algorithm]:
    """Every algorithm there is, or those of one collective."""
    rows = [Algorithm(*row) for row in _penstock.plan.algorithms()]
    return [row for row in rows if collective in (None, row.collective)]


class Plans:
    """The plans of all ranks for one operation. ``plans[rank]`` is one of them as a dict; made by :func:`collective`."""

    def __init__(
        self, native: _penstock.plan.Plans, nodes: list[int], algorithm: str, reason: str, itemsize: int
    ) -> None:
        self._native = native
        self._itemsize = itemsize
        self.nodes = nodes  #: the node of each rank
        self.algorithm = algorithm
        self.reason = reason  #: why this algorithm

    def __len__(self) -> int:
        return len(self._native)

    def __getitem__(self, rank: int) -> dict[str, Any]:
        """The plan of a rank: sizes of its buffers and its ``steps``, each with its ``kind``, memory, peer and
        ``dependencies`` (indices of earlier steps)."""
        if not 0 <= rank < len(self):
            raise IndexError(rank)
        plan: dict[str, Any] = json.loads(self._native.to_json(rank))
        return plan

    def text(self, rank: int) -> str:
        """The plan of a rank, one line per step."""
        if not 0 <= rank < len(self):
            raise Error(f"rank is {rank}, expected 0 to {len(self) - 1}")
        return self._native.to_text(rank)

    def dot(self) -> str:
        """A Graphviz graph of all ranks."""
        return self._native.to_dot()

    @cached_property
    def findings(self) -> list[str]:
        """What is wrong with the plans, by checking all ranks against each other; empty if they are correct."""
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
) -> Plans:
    """The plans of all ranks for a collective such as ``"allreduce"``. Local; needs no MPI.

    ``count`` is in elements per rank (of one rank's block for gather, scatter and allgather). ``nodes`` is the node of
    each rank, or a number of nodes over which the ranks are spread in contiguous blocks. Without ``algorithm`` it is
    the one that a communicator of this team would choose, with ``progress_cores`` communication cores on each node;
    ``split``, ``radix`` and ``reproducible`` are those of :class:`penstock.How`. Raises :class:`penstock.Error` for arguments that no
    communicator would take.
    """
    if ranks < 1:
        raise Error(f"ranks is {ranks}, expected at least 1")
    name: str = _dtype_name(dtype)
    if count < 0 or segment_bytes < 0:
        raise Error(f"count is {count} and segment_bytes {segment_bytes}, expected no negative number")
    if progress_cores < 0:
        raise Error(f"progress_cores is {progress_cores}, expected no negative number")
    levels = -1 if split == "auto" else split
    what = _penstock.plan.Collective(
        kind, count, name, op, root, in_place, algorithm, segment_bytes, levels, radix, reproducible
    )
    node_of_rank = _place(ranks, nodes)
    chosen, reason = _penstock.plan.choose(what, node_of_rank, progress_cores)
    plans = _penstock.plan.plan_all(what, node_of_rank, progress_cores)
    return Plans(plans, node_of_rank, chosen, reason, what.itemsize)


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
            raise Error(f"nodes is {nodes}, expected 1 to {ranks}, the number of ranks")
        return [rank * nodes // ranks for rank in range(ranks)]
    given = list(nodes)
    if len(given) != ranks:
        raise Error(f"nodes names the nodes of {len(given)} ranks, expected {ranks}")
    order = {node: index for index, node in enumerate(dict.fromkeys(given))}  # numbered by first appearance
    return [order[node] for node in given]
