"""The drawings of :meth:`penstock.relabel_model.RelabelSweep.plot`."""

from __future__ import annotations

import os
from typing import Any

from penstock.drawing import pyplot, save
from penstock.relabel_model import RelabelPoint, RelabelSweep

_BEFORE, _AFTER, _RED = "#777777", "#31688e", "#d1495b"
_BATCH = 3


def draw(sweep: RelabelSweep, path: str | os.PathLike[str]) -> None:
    """Draw the figure of one case."""
    plt = pyplot()
    width = 6.4 if sweep.case == "figure-3" else 11
    panels = 1 if sweep.case == "figure-3" else 2
    figure, axes = plt.subplots(1, panels, figsize=(width, 4.4), squeeze=False)
    {"figure-2": _volumes_and_messages, "figure-3": _reduction, "figure-6": _bars}[sweep.case](axes[0], sweep)
    for axis in axes[0]:
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    figure.suptitle(sweep.title, fontsize=11 if panels == 2 else 9)
    figure.tight_layout()
    try:
        save(figure, path)
    finally:
        plt.close(figure)


def _share_pct(nbytes: int, point: RelabelPoint) -> float:
    return 100 * nbytes / point.bytes_total


def _volumes_and_messages(axes: Any, sweep: RelabelSweep) -> None:
    left, right = axes
    for op, style in (("N", "-"), ("T", ":x")):  # on a square grid they coincide
        points = [point for point in sweep.points if point.setting["op"] == op]
        orders = [point.setting["order"] for point in points]
        what = "reshuffled" if op == "N" else "transposed"
        for color, name, of in ((_BEFORE, "as given", "bytes_before"), (_AFTER, "relabeled", "bytes_after")):
            shares = [_share_pct(getattr(point, of), point) for point in points]
            left.plot(orders, shares, style, color=color, label=f"{what}, {name}")
        messages = [point.messages for point in points]
        right.plot(orders, messages, style, color=_BEFORE, label=f"{what}, one by one")
        batched = [count / _BATCH for count in messages]
        right.plot(orders, batched, style, color=_AFTER, label=f"{what}, batched by {_BATCH}")
    left.set(xscale="log", xlabel="order of the matrix", ylabel="between ranks, % of the matrix", ylim=(0, 103))
    right.set(xscale="log", yscale="log", xlabel="order of the matrix", ylabel="messages of all ranks, per matrix")
    for axis in axes:
        axis.legend(fontsize=8, frameon=False)


def _reduction(axes: Any, sweep: RelabelSweep) -> None:
    (axis,) = axes
    *others, last = sweep.points
    axis.plot(
        [point.setting["block"] for point in others],
        [point.reduction_pct for point in others],
        ".-",
        color=_AFTER,
        lw=1,
    )
    label = f"equal blocks: {last.bytes_after:,} bytes are left"
    axis.plot(last.setting["block"], last.reduction_pct, "o", color=_RED, ms=7, label=label)
    axis.set(xscale="log", xlabel="block of the source", ylabel="less between ranks by relabeling, %", ylim=(-2, 104))
    axis.legend(fontsize=9, frameon=False, loc="upper left")


def _bars(axes: Any, sweep: RelabelSweep) -> None:
    left, right = axes
    places = range(len(sweep.points))
    names = [f"{point.setting['nodes']}\n{point.setting['order']}" for point in sweep.points]
    for shift, color, label, of in (
        (-0.2, _BEFORE, "as given", "bytes_before"),
        (0.2, _AFTER, "relabeled", "bytes_after"),
    ):
        heights = [getattr(point, of) / 1e9 for point in sweep.points]
        left.bar([place + shift for place in places], heights, 0.38, color=color, label=label)
    reductions = [point.reduction_pct for point in sweep.points]
    for place, bar in zip(places, right.bar(places, reductions, 0.5, color=_AFTER)):
        right.annotate(f"{reductions[place]:.1f}%", (place, bar.get_height()), ha="center", va="bottom", fontsize=9)
    left.set(ylabel="GB between ranks, of A, B and C together")
    right.set(ylabel="less by relabeling, %", ylim=(0, 1.15 * max(*reductions, 1)))
    for axis in axes:
        axis.set_xlabel("nodes, and how the block-cyclic grid is numbered")
        axis.set_xticks(list(places), names)
    left.margins(y=0.2)
    left.legend(fontsize=9, frameon=False, loc="upper right", ncols=2)
