"""Analytic models, without MPI and without running anything: what to expect of a machine, and how to divide it."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from penstock import _penstock
from penstock.error import Error

__all__ = ["EdgeCost", "SplitAdvice", "SplitPoint", "StepCosts", "split"]

# The algorithms of shared tasks cut a buffer into such segments; one of unknown length into 16.
_SEGMENT_BYTES = 128 << 10


class EdgeCost(NamedTuple):
    """What it takes to move a message along one edge of a tree, in seconds, and in a reduction to combine it."""

    latency: float
    per_byte: float


class StepCosts(NamedTuple):
    """Measured on a core of the application, and on one of communication."""

    application: EdgeCost
    progress: EdgeCost

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> StepCosts:
        """From a JSON file: ``{"application_s": {"latency": …, "per_byte": …}, "progress_s": {…}}``."""
        try:
            facts = json.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise Error(f"cannot read the costs in {path}", "io", cause=str(error)) from error
        except ValueError as error:
            raise Error(f"the costs in {path} are not JSON", "corrupt", cause=str(error)) from error
        return cls(*(_edge_cost(path, facts, key) for key in ("application_s", "progress_s")))


def _edge_cost(path: str | os.PathLike[str], facts: object, key: str) -> EdgeCost:
    edge = facts.get(key) if isinstance(facts, Mapping) else None
    numbers: list[float] = []
    for name in EdgeCost._fields:
        number = edge.get(name) if isinstance(edge, Mapping) else None
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            raise Error(f'the costs in {path} have no number "{name}" of "{key}"; expected seconds', "corrupt")
        numbers.append(number)
    return EdgeCost(*numbers)


@dataclass(frozen=True)
class SplitPoint:
    """What the model says about one number of ranks; lists are by S, the levels on the cores of the application."""

    n: int  #: ranks, each on a core of its own
    progress_cores: int  #: the others, which communicate for all ranks
    best_s: int  #: the smallest S with the shortest ``t``; the height of the tree where no core is left to communicate
    t: list[float]  #: computation and collective, overlapped (equation 5)
    t_communication: list[float]  #: the collective alone (equation 4)
    t_blocking: float  #: the blocking collective alone (equation 1)
    t_divided: float  #: computation and collective, the collective cut into segments instead of levels
    compute: float  #: the computation alone

    @property
    def best_t(self) -> float:
        return self.t[self.best_s]


@dataclass(frozen=True)
class SplitAdvice:
    """The model for every way to divide the cores of a node; made by :func:`split`."""

    cores: int
    op: str
    ratio: float  #: of the computation to the blocking collective, on all cores
    radix: int
    nbytes: int | None  #: per rank; of the block of one rank for gather and scatter
    waiting_helps: bool  #: whether cores that have computed take what is left of any level
    unit: str  #: of all times: "s", or "buffer", the transfer of one buffer (of one block for gather and scatter)
    points: list[SplitPoint]  #: for 1 rank to as many as there are cores
    best: SplitPoint  #: with the shortest time, by levels

    @property
    def best_divided(self) -> SplitPoint:
        """The point with the shortest time if the collective is cut into segments."""
        return min(self.points, key=lambda point: point.t_divided)

    def ranges(self) -> list[tuple[SplitPoint, SplitPoint]]:
        """The first and the last point of each range of ranks with the same best S."""
        found: list[tuple[SplitPoint, SplitPoint]] = []
        for point in self.points:
            same = found and found[-1][1].best_s == point.best_s and point.progress_cores > 0
            if same:
                found[-1] = (found[-1][0], point)
            else:
                found.append((point, point))
        return found

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Figures 2 and 3 (or 4, where the buffer grows) of the paper, as an image; needs matplotlib."""
        from penstock.model_plot import draw

        draw(self, path)


def split(
    cores: int,
    op: str = "reduce",
    *,
    nbytes: int | None = None,
    ratio: float = 1.0,
    radix: int = 2,
    costs: StepCosts | str | os.PathLike[str] | None = None,
    waiting_helps: bool = False,
) -> SplitAdvice:
    """How a tree collective beside a computation depends on the number of ranks and on the split S of its tree.

    ``cores`` are those of one node, of ranks and of communication together. ``op`` is "bcast", "reduce", "gather",
    "scatter" or "allreduce". The computation would take ``ratio`` times as long as the blocking collective if both
    had all cores. ``costs``, or a file of them, are measured times of a step, and need ``nbytes``; without them 1 is
    the transfer of one buffer. The last S levels of the tree run on the cores of the application. With ``waiting_helps`` these
    take what is left of the others too once they have computed, in segments, as Penstock's do; without it they do
    not, which is the paper's model. Local, pure.
    """
    if isinstance(costs, (str, os.PathLike)):
        costs = StepCosts.load(costs)
    if nbytes is not None and nbytes < 0:
        raise Error(f"nbytes is {nbytes}, expected at least 0")
    if costs is not None and nbytes is None:
        raise Error("costs are times per byte; say how many in nbytes")
    if not all(isinstance(number, int) and abs(number) < 1 << 31 for number in (cores, radix)):
        raise Error(f"cores is {cores!r} and radix {radix!r}, expected whole numbers below 2**31")
    if isinstance(ratio, bool) or not isinstance(ratio, (int, float)) or math.isnan(ratio):
        raise Error(f"ratio is {ratio!r}, expected a number above 0")
    unit = EdgeCost(0, 1)
    application, progress = costs or (unit, unit)
    measured = costs is not None
    buffer_bytes = nbytes if measured and nbytes is not None else 1
    segment_bytes = 0.0
    if measured:
        segment_bytes = _SEGMENT_BYTES
    elif waiting_helps:
        segment_bytes = _SEGMENT_BYTES / nbytes if nbytes else 1 / 16
    model = _penstock.model.SplitModel(
        op, buffer_bytes, radix, segment_bytes, bool(waiting_helps), application, progress
    )
    points, best = model.advise(cores, model.computation_on_all_cores(cores, ratio))
    found = [SplitPoint(**{name: getattr(point, name) for name in SplitPoint.__dataclass_fields__}) for point in points]
    return SplitAdvice(
        cores, op, ratio, radix, nbytes, bool(waiting_helps), "s" if measured else "buffer", found, found[best]
    )
