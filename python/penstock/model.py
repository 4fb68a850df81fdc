"""Analytic models of the split-tree: expected times, and the best division of a node's cores. Local; needs no MPI."""

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

# Shared-task algorithms cut a buffer into segments of this length; a buffer of unknown length into 16.
_SEGMENT_BYTES = 128 << 10


class EdgeCost(NamedTuple):
    """Seconds to move a message along one edge of a tree and, in a reduction, to combine it."""

    latency: float
    per_byte: float


class StepCosts(NamedTuple):
    """Measured edge costs on an application core and on a communication core."""

    application: EdgeCost
    progress: EdgeCost

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> StepCosts:
        """Read a JSON file: ``{"application_s": {"latency": …, "per_byte": …}, "progress_s": {…}}``."""
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
    """The model for one number of ranks. Lists are indexed by S, the number of tree levels on application cores."""

    n: int  #: Ranks, each on an application core.
    progress_cores: int  #: The other cores: they communicate for all ranks.
    best_s: int  #: The smallest S with the shortest ``t``. Without communication cores: the height of the tree.
    t: list[float]  #: Computation overlapped with the collective (equation 5).
    t_communication: list[float]  #: The collective alone (equation 4).
    t_blocking: float  #: The blocking collective alone (equation 1).
    t_divided: float  #: Computation overlapped with the collective, which is cut into segments instead of levels.
    compute: float  #: The computation alone.

    @property
    def best_t(self) -> float:
        return self.t[self.best_s]


@dataclass(frozen=True)
class SplitAdvice:
    """The model for all divisions of a node's cores. Made by :func:`split`."""

    cores: int
    op: str
    ratio: float  #: Time of the computation / time of the blocking collective, both on all cores.
    radix: int
    nbytes: int | None  #: Per rank; for gather and scatter, of one rank's block.
    waiting_helps: bool  #: Whether application cores take over remaining levels after computing.
    unit: str  #: Of all times: "s"; or "buffer", the transfer time of one buffer (of one block for gather and scatter).
    points: list[SplitPoint]  #: For 1 rank up to one rank per core.
    best: SplitPoint  #: The point with the shortest time, split by levels.

    @property
    def best_divided(self) -> SplitPoint:
        """The point with the shortest time if the collective is cut into segments instead of levels."""
        return min(self.points, key=lambda point: point.t_divided)

    def ranges(self) -> list[tuple[SplitPoint, SplitPoint]]:
        """(first point, last point) of each range of ranks with the same best S."""
        found: list[tuple[SplitPoint, SplitPoint]] = []
        for point in self.points:
            same = found and found[-1][1].best_s == point.best_s and point.progress_cores > 0
            if same:
                found[-1] = (found[-1][0], point)
            else:
                found.append((point, point))
        return found

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Draw Figures 2 and 3 (or 4, if the buffer grows) of the paper into an image. Needs matplotlib."""
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
    """Model a tree collective that overlaps a computation, for each number of ranks and each split S of the tree.

    Local. The last S tree levels run on application cores, the others on communication cores.

    Parameters
    ----------
    cores : int
        Cores of one node, for application and communication together.
    op : str
        "bcast", "reduce", "gather", "scatter" or "allreduce".
    ratio : float
        Time of the computation / time of the blocking collective, if both had all cores.
    costs : StepCosts or path, optional
        Measured times of a step; they need ``nbytes``. Without them, times are in transfers of one buffer.
    waiting_helps : bool
        Whether application cores take over remaining levels after computing, in segments, as in Penstock. False is the
        paper's model.
    """
    if isinstance(costs, (str, os.PathLike)):
        costs = StepCosts.load(costs)
    if nbytes is not None and nbytes < 0:
        raise Error(f"nbytes is {nbytes}; expected at least 0")
    if costs is not None and nbytes is None:
        raise Error("costs are times per byte; say how many in nbytes")
    if not all(isinstance(number, int) and abs(number) < 1 << 31 for number in (cores, radix)):
        raise Error(f"cores is {cores!r} and radix {radix!r}; expected whole numbers below 2**31")
    if isinstance(ratio, bool) or not isinstance(ratio, (int, float)) or math.isnan(ratio):
        raise Error(f"ratio is {ratio!r}; expected a number above 0")
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
