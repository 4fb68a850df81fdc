"""What relabeling saves in the cases of the COSTA paper, as analytic volumes. Nothing is run."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.error import Error
from penstock.layout import Layout
from penstock.redistribute import RelabelTransfer, relabel, relabel_jointly, volumes

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BYTES = 8  # all cases of the paper use float64


@dataclass(frozen=True)
class RelabelPoint:
    """One redistribution, or several with one common relabeling."""

    setting: dict[str, Any]  #: The varied parameters.
    ranks: int
    bytes_total: int  #: Size of the arrays.
    bytes_before: int  #: Bytes that change rank, with the target as given.
    bytes_after: int  #: Bytes that change rank, with the target relabeled.
    messages: int  #: Pairs of different ranks with data to move, with the target as given.

    @property
    def reduction_pct(self) -> float:
        return 100.0 * (self.bytes_before - self.bytes_after) / self.bytes_before if self.bytes_before else 0.0


@dataclass(frozen=True)
class RelabelSweep:
    """The points of one case. Made by :func:`sweep`."""

    case: str
    title: str
    points: list[RelabelPoint]

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Draw the paper's figure into an image. Needs matplotlib."""
        from penstock.relabel_plot import draw

        draw(self, path)


def sweep(case: str) -> RelabelSweep:
    """Compute the paper's case "figure-2", "figure-3" or "figure-6". Local; takes up to a few seconds."""
    if case not in CASES:
        raise Error(f"there is no case {case!r} of relabeling; expected one of {', '.join(CASES)}")
    title, points = CASES[case]
    return RelabelSweep(case, title, list(points()))


def _points_between(low: float, high: float, count: int) -> list[int]:
    return sorted({round(value) for value in np.geomspace(low, high, count)})


def _point(setting: dict[str, Any], source: Layout, target: Layout, op: str = "N") -> RelabelPoint:
    found = relabel(source, target, np.float64, op)
    rows = volumes(source, target, op)
    messages = int((rows[:, 0] != rows[:, 1]).sum())
    return RelabelPoint(
        setting, len(found.permutation), _BYTES * source.size, found.bytes_before, found.bytes_after, messages
    )


def _figure_2() -> Iterable[RelabelPoint]:
    for op in ("N", "T"):
        for order in _points_between(100, 200_000, 34):
            source = Layout.block_cyclic((order, order), (32, 32), (16, 16))
            target = Layout.block_cyclic((order, order), (128, 128), (16, 16))
            yield _point({"op": op, "order": order}, source, target, op)


def _figure_3() -> Iterable[RelabelPoint]:
    order = 100_000
    target = Layout.block_cyclic((order, order), (10_000, 10_000), (10, 10), "column")
    for block in sorted({*_points_between(1, 10_000, 120), 1_000, 2_000, 2_500, 5_000}):
        source = Layout.block_cyclic((order, order), (block, block), (10, 10))
        yield _point({"block": block}, source, target)


# The matrix product of the RPA simulation: C = A^T B with tall A and B.
_TALL, _WIDE = 3_473_408, 17_408


def _figure_6() -> Iterable[RelabelPoint]:
    for ranks in (128, 256, 512, 1024):
        for order in ("row", "column"):
            yield _rpa(ranks, order)


def _rpa(ranks: int, order: str) -> RelabelPoint:
    """A (transposed) and B to COSMA's layout, C back; with one common relabeling of COSMA's ranks.

    The block-cyclic grid has one block of A and of B per process, so C, in the same blocks, lies on the upper processes
    only. The paper does not say how the grid is numbered; this computes both orders. COSMA halves the longest side of the
    product until there is one part per rank. Ranks that need the same part share it evenly.
    """
    columns = 2 ** (int(math.log2(ranks)) // 2)
    grid = (ranks // columns, columns)
    block = (-(-_TALL // grid[0]), -(-_WIDE // grid[1]))
    given = Layout.block_cyclic((_TALL, _WIDE), block, grid, order)
    result = Layout.block_cyclic((_WIDE, _WIDE), block, grid, order)

    parts = {"m": 1, "n": 1, "k": 1}
    sides = {"m": _WIDE, "n": _WIDE, "k": _TALL}
    while math.prod(parts.values()) < ranks:
        longest = max(sides, key=lambda side: sides[side] / parts[side])
        parts[longest] *= 2
    m, n, k = (parts[side] for side in "mnk")
    rank_of = np.arange(ranks).reshape(k, m, n)
    # By (rows, columns) of the matrix. Ranks that need the same part own consecutive rows of it.
    a = _dealt((_WIDE, _TALL), rank_of.transpose(1, 0, 2).reshape(m, k * n))
    b = _dealt((_TALL, _WIDE), rank_of.reshape(k * m, n))
    c = _dealt((_WIDE, _WIDE), rank_of.transpose(1, 0, 2).reshape(m * k, n))

    transfers = [
        RelabelTransfer(given, a, op="T"),
        RelabelTransfer(given, b),
        RelabelTransfer(c, result, side="source"),
    ]
    found = relabel_jointly(transfers)
    total = messages = 0
    for each in transfers:
        rows = volumes(each.source, each.target, each.op)
        total += each.source.size
        messages += int((rows[:, 0] != rows[:, 1]).sum())
    setting = {"nodes": ranks, "grid": f"{grid[0]}x{grid[1]}", "order": order, "m x n x k": f"{m}x{n}x{k}"}
    return RelabelPoint(setting, ranks, _BYTES * total, found.bytes_before, found.bytes_after, messages)


def _dealt(shape: tuple[int, int], owners: NDArray[Any]) -> Layout:
    splits = [np.linspace(0, length, parts + 1).round().astype(int) for length, parts in zip(shape, owners.shape)]
    return Layout.grid(*splits, owners, ranks=int(owners.max()) + 1)


_Case = tuple[str, Callable[[], Iterable[RelabelPoint]]]
CASES: dict[str, _Case] = {
    "figure-2": ("32x32 to 128x128 blocks on 16x16 ranks", _figure_2),
    "figure-3": ("100,000 x 100,000 on 10x10 ranks, row-major to column-major, to blocks of 10,000", _figure_3),
    "figure-6": (
        "RPA, 128 water molecules (Figures 5 and 6): A and B of 3,473,408 x 17,408 and C between ScaLAPACK and COSMA",
        _figure_6,
    ),
}


def facts(found: RelabelSweep) -> dict[str, object]:
    """As JSON data."""
    names: Sequence[str] = ("ranks", "bytes_total", "bytes_before", "bytes_after", "reduction_pct", "messages")
    points = [{**point.setting, **{name: getattr(point, name) for name in names}} for point in found.points]
    return {"case": found.case, "title": found.title, "points": points}
