"""What the tuner found, as one HTML file: predictions beside measurements, and what the search cost and gained."""

from __future__ import annotations

import html
import io
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.bench.runner import pyplot
from penstock.tuning.outcome import Outcome, median_gain

_STYLE = "body{font:15px sans-serif;max-width:70em;margin:2em auto}pre{background:#f4f4f4;padding:1em;overflow:auto}"


def write(outcome: Outcome, path: str) -> None:
    """Write the report. Needs matplotlib; raises penstock.Error("unsupported") without it."""
    parts = [
        _chart(lambda axes, operation=operation: _predicted_and_measured(axes, outcome, operation), title)
        for operation, title in (("bcast", "Bcast: predicted and measured (figure 4)"),
                                 ("allreduce", "Allreduce: predicted and measured (figure 7)"))
        if operation in outcome.operations
    ]  # fmt: skip
    parts.append(_chart(lambda axes: _cost_of_search(axes, outcome), "Time of the search (figure 8)"))
    parts += [
        _chart(
            lambda axes, operation=operation: _gain(axes, outcome, operation),
            f"{operation}: chosen, best, median (figure 9)",
        )
        for operation in outcome.operations
    ]
    key = ", ".join(f"{name} {value}" for name, value in outcome.key.items())
    Path(path).write_text(
        f"<!doctype html><meta charset=utf-8><title>Penstock tuning</title><style>{_STYLE}</style>"
        f"<h1>Tuning</h1><p>{html.escape(key)}</p><p>Median speed-up over MPI's own collectives: {median_gain(outcome):.2f}</p>"
        + "".join(parts)
        + f"<pre>{html.escape(outcome.summary())}</pre>\n",
        encoding="utf-8",
    )


def _chart(draw: Callable[[Any], None], title: str) -> str:
    plt = pyplot()
    figure, axes = plt.subplots(figsize=(9, 4))
    draw(axes)
    axes.set_title(title)
    axes.grid(alpha=0.3)
    figure.tight_layout()
    text = io.StringIO()
    figure.savefig(text, format="svg")
    plt.close(figure)
    return text.getvalue()[text.getvalue().index("<svg") :]


def _measured(outcome: Outcome, operation: str, size: int) -> dict[str, float]:
    """All that was measured from end to end, by candidate."""
    times = dict(outcome.exhaustive.get(operation, {}).get(size, {}))
    for each in outcome.operations[operation].get(size, {"candidates": []})["candidates"]:
        times[f"{each['algorithm']}:{each['segment_bytes']}"] = each["seconds"]
    return times


def _predicted_and_measured(axes: Any, outcome: Outcome, operation: str) -> None:
    """At the largest size: bars side by side for every candidate with both."""
    sizes = [size for size in outcome.operations[operation] if _measured(outcome, operation, size)]
    if not sizes:
        return
    size = max(sizes)
    measured = _measured(outcome, operation, size)
    predicted = outcome.predicted[operation][size]
    names = sorted(set(measured) & set(predicted), key=measured.__getitem__)
    places = range(len(names))
    axes.bar([p - 0.2 for p in places], [predicted[name] for name in names], 0.4, label="predicted")
    axes.bar([p + 0.2 for p in places], [measured[name] for name in names], 0.4, label="measured")
    axes.set_xticks(list(places), names, rotation=60, ha="right", fontsize=7)
    axes.set(ylabel=f"seconds, {size} bytes")
    axes.legend()


def _cost_of_search(axes: Any, outcome: Outcome) -> None:
    parts = {name: seconds for name, seconds in outcome.seconds.items() if seconds > 0}
    axes.barh(list(parts), list(parts.values()))
    axes.set(xlabel="seconds")


def _gain(axes: Any, outcome: Outcome, operation: str) -> None:
    points = sorted((size, point) for size, point in outcome.operations[operation].items() if point["candidates"])
    sizes = [size for size, _ in points]
    axes.plot(sizes, [point["candidates"][0]["seconds"] for _, point in points], "o-", label="chosen")
    axes.plot(sizes, [point["native_s"] for _, point in points], "s--", label="MPI's own")
    everything = [(size, list(times.values())) for size, times in sorted(outcome.exhaustive.get(operation, {}).items())]
    for label, take in (("best of all", min), ("median of all", statistics.median), ("mean of all", statistics.mean)):
        if everything:
            axes.plot([size for size, _ in everything], [take(times) for _, times in everything], ":", label=label)
    axes.set(xscale="log", yscale="log", xlabel="bytes", ylabel="seconds")
    axes.legend()
