"""The drawing of :meth:`penstock.model.SplitAdvice.plot`."""

from __future__ import annotations

import os
from typing import Any

from penstock import model
from penstock.drawing import pyplot, save

_MOST_SPLITS = 5  # S = 0 to 4, as in the paper's figures
_COLORS = ("#440154", "#31688e", "#21918c", "#5ec962", "#d8b400")
_RED = "#d1495b"


def draw(advice: model.SplitAdvice, path: str | os.PathLike[str]) -> None:
    """Left: the collective alone. Right: overlapped with the computation. Over the number of ranks."""
    plt = pyplot()
    from matplotlib.ticker import MaxNLocator

    unit, scale = _unit(advice)
    points = [point for point in advice.points if point.n >= max(1, advice.cores // 4)]
    ranks = [point.n for point in points]
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 5.4))

    def line(axis: Any, times: list[float], **style: Any) -> None:
        axis.plot(ranks[: len(times)], [scale * time for time in times], lw=1.5, **style)

    shared = [point for point in points if point.progress_cores > 0]  # S needs communication cores
    for split in range(min(_MOST_SPLITS, max(len(point.t) for point in points))):
        style = {"color": _COLORS[split], "marker": ".", "ms": 5, "label": f"S = {split}"}
        line(left, [point.t_communication[min(split, len(point.t) - 1)] for point in shared], **style)
        line(right, [point.t[min(split, len(point.t) - 1)] for point in shared], **style)
    in_sequence = [point.compute + point.t_blocking for point in points]
    for axis, blocking in ((left, [point.t_blocking for point in points]), (right, in_sequence)):
        line(axis, blocking, color="black", ls="--", label="blocking; right: after the computation")
        line(axis, [point.compute for point in points], color="#777777", ls=":", label="computation C(N) alone")
    line(right, [point.t_divided for point in points], color=_RED, ls="-.", label="divided in segments")

    # Cut off what is far above the best: with few communication cores, S = 0 takes very long.
    left.set_ylim(0, scale * 4.2 * max(point.t_blocking for point in points) or 1)
    low = scale * min(point.compute for point in points)
    right.set_ylim(0.85 * low, 1.1 * scale * in_sequence[len(in_sequence) // 2])
    best, divided = advice.best, advice.best_divided
    for point, time, marker, what in (
        (best, best.best_t, "o", f"S = {best.best_s}"),
        (divided, divided.t_divided, "D", "divided"),
    ):
        label = f"best: N = {point.n}, {what}: {scale * time:.3g}"
        right.plot(point.n, scale * time, marker, ms=8, mfc="none", mec=_RED, mew=1.8, zorder=5, label=label)
    left.set_title("The collective alone", fontsize=11)
    right.set_title("The collective beside the computation", fontsize=11)
    for axis in (left, right):
        axis.set(xlabel=f"ranks N (the other {advice.cores} − N cores communicate)", ylabel=f"time, {unit}")
        axis.set_xlim(ranks[0], ranks[-1] + 0.02 * (ranks[-1] - ranks[0]))
        axis.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 4, 8, 10]))
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    size = f", {advice.nbytes:,} bytes" if advice.nbytes is not None else ""
    figure.suptitle(
        f"Split-tree model: {advice.op}{size}, {advice.cores} cores, "
        f"computation {advice.ratio:g} x the blocking collective"
    )
    figure.legend(*right.get_legend_handles_labels(), loc="lower center", ncols=5, fontsize=9, frameon=False)
    figure.tight_layout(rect=(0, 0.09, 1, 1))
    try:
        save(figure, path)
    finally:
        plt.close(figure)


def _unit(advice: model.SplitAdvice) -> tuple[str, float]:
    if advice.unit == "s":
        return ("ms", 1e3) if advice.best.best_t >= 1e-3 else ("µs", 1e6)
    return f"transfers of one {'block' if advice.op in ('gather', 'scatter') else 'buffer'}", 1.0
