"""The tuner's HTML report: choices and reasons, noise, predictions beside measurements, and the cost of the search."""

from __future__ import annotations

import collections
import math
import statistics
from html import escape
from pathlib import Path
from typing import Any

from penstock import output_file, page
from penstock.tuning import decide
from penstock.tuning.outcome import Outcome, bytes_text, label, name_of_candidate, ratio_text, share_text, time_text

MOST_PREDICTED = 16  #: Candidates shown with a prediction: the best by measurement.

_TITLE = "Penstock: what the tuner found"
_STYLE = """
.facts { display:grid; grid-template-columns:repeat(auto-fit,minmax(150px,1fr)); gap:.9rem; margin-top:1.4rem } .facts b { font-size:1.3rem } .facts .note { margin:0; line-height:1.4 }
td:last-child { min-width:10rem }
details > summary { cursor:pointer; color:var(--dim) } pre { overflow-x:auto; font-size:.82rem; line-height:1.4 }
"""


def write(outcome: Outcome, path: Path) -> None:
    """Write the page, a self-contained file. Raises OSError."""
    output_file.write(path, _page(outcome))


def _page(outcome: Outcome) -> str:
    content = [page.header(_TITLE, _machine(outcome), _lead(outcome)), _facts(outcome)]
    if outcome.noise:
        content.append(page.section("The noise, measured first", _noise(outcome)))
    for operation in outcome.operations:
        if rows := [point for each, point in outcome.points() if each == operation]:
            shown = page.cards([_curves(outcome, operation, rows), _choices(operation, rows)])
            content.append(page.section(_title_of(outcome, operation), shown))
    for operation in outcome.operations:
        if found := _predicted(outcome, operation):
            size, chart = found
            title = f"{operation} of {bytes_text(size)}: as the model predicts, and as measured"
            content.append(page.section(title, chart))
    if outcome.seconds:
        content.append(page.section("What the search took", _cost(outcome)))
    summary = f"<details><summary>The same as text</summary><pre>{escape(outcome.summary())}</pre></details>"
    content.append(page.section("All of it", page.card("", summary)))
    return page.page(_TITLE, content, style=_STYLE)


def _machine(outcome: Outcome) -> str:
    names = {"mpi": "", "ranks_per_node": "ranks per node ", "nodes": "nodes ", "placement": "placement ",
             "progress_cores": "communication cores ", "single_copy": "single copy ", "thread_level": "threads "}  # fmt: skip
    return " · ".join(f"{names.get(name, name + ' ')}{value}" for name, value in outcome.key.items())


def _lead(outcome: Outcome) -> str:
    counts = collections.Counter(point["why"] for _, point in outcome.points())
    total = sum(counts.values())
    left = sum(count for why, count in counts.items() if why not in (decide.FASTEST, decide.WITHIN))
    kept = [f"it is the fastest at {counts[decide.FASTEST]}"] if counts[decide.FASTEST] else []
    if counts[decide.WITHIN]:
        kept.append(f"what seems faster is within the noise at {counts[decide.WITHIN]}")
    return (
        f"At <b>{left} of {total}</b> points something is faster than Penstock's default by more than the noise of this "
        f"machine, and is chosen. At {total - left} the default is kept" + (f": {', '.join(kept)}." if kept else ".")
    )


def _facts(outcome: Outcome) -> str:
    """The key figures, each with its meaning."""
    tiles = (
        f'<div class="card"><b>{escape(value)}</b><p class="note">{escape(what)}</p></div>'
        for value, what in _numbers(outcome)
    )
    return f'<div class="facts">{"".join(tiles)}</div>'


def _numbers(outcome: Outcome) -> list[tuple[str, str]]:
    points = [point for _, point in outcome.points()]
    gains = [point["default_ratio"][0] for point in points if point["default_ratio"]]
    native = [point["native_s"] / point["candidates"][0]["seconds"] for point in points if point["native_s"]]
    bands = [point["noise"] for point in points]
    found = []
    if gains:
        found.append(
            (
                f"{statistics.median(gains):.2f} ×",
                "median of the default's time over that of the choice, where another is chosen",
            )
        )
    if native:
        found.append(
            (
                f"{statistics.median(native):.2f} ×",
                "median of the time of MPI's own collective over that of the choice, all points",
            )
        )
    if bands:
        found.append(
            (f"{share_text(min(bands))} to {share_text(max(bands))}", "noise that a difference had to exceed, by point")
        )
    found.append((f"{sum(point['measured'] for point in points)}", "points measured from end to end"))
    found.append(
        (f"{sum(not point['measured'] for point in points)}", "points between two measured ones, by interpolation")
    )
    if outcome.left_out:
        found.append((f"{outcome.left_out}", "points without measurement, since the time was up"))
    return found


def _noise(outcome: Outcome) -> str:
    rows = [
        (
            f"{operation}, {bytes_text(size)}",
            [
                page.Bar("grey", [math.expm1(noise["scatter"])], "single times: one standard deviation, at most"),
                page.Bar("blue", [math.expm1(noise["apart"])], "all times together"),
            ],
        )
        for operation, sizes in outcome.noise.items()
        for size, noise in sorted(sizes.items())
    ]
    title = "How far two measurements of the default in the same rounds are apart"
    text = (
        "Before everything else, the default is measured twice in every round; so it is in every round of a duel. Another "
        "candidate is chosen only if its lead exceeds the difference of these two, and if the confidence interval of the "
        "lead excludes chance."
    )
    return page.card(title, page.bars(title, rows, share_text), notes=[("How", text)])


def _title_of(outcome: Outcome, operation: str) -> str:
    text = f"{operation}: the choice, the default and MPI's own"
    return f"{text}; the best and the median of all" if outcome.exhaustive.get(operation) else text


def _curves(outcome: Outcome, operation: str, points: list[dict[str, Any]]) -> str:
    chosen = [point["candidates"][0] for point in points]
    curves = [
        page.Curve(
            "choice",
            "blue",
            [(point["bytes"], best["seconds"]) for point, best in zip(points, chosen)],
            [(best["low_s"], best["high_s"]) if "low_s" in best else None for best in chosen],
            width=4,
        ),
        page.Curve("default", "orange", [(each["bytes"], seconds) for each in points if (seconds := _default_s(each))]),
        page.Curve("MPI's own", "grey", [(each["bytes"], each["native_s"]) for each in points if each["native_s"]]),
    ]
    everything = [(size, list(times.values())) for size, times in sorted(outcome.exhaustive.get(operation, {}).items())]
    for name, colour, take in (("best of all", "green", min), ("median of all", "purple", statistics.median)):
        of_all = [(size, take(times)) for size, times in everything]
        curves.append(page.Curve(f"{name}, exhaustive search", colour, of_all))
    chart = page.line_chart(
        f"{operation}: time by size",
        [curve for curve in curves if curve.points],
        page.Axis("contribution of one rank", lambda size: bytes_text(int(size)), logarithmic=True),
        page.Axis("time of the slowest rank, median", time_text, logarithmic=True),
    )
    text = "95% interval of the median of the choice. Points without one are interpolated."
    return page.card("", chart, notes=[("Vertical bars", text)], wide=True)


def _default_s(point: dict[str, Any]) -> float:
    return next((each["seconds"] for each in point["candidates"] if name_of_candidate(each) == point["default"]), 0.0)


def breakable(name: str) -> str:
    """Allow line breaks after underscores, for narrow columns."""
    return escape(name).replace("_", "_<wbr>")


def _choices(operation: str, points: list[dict[str, Any]]) -> str:
    rows: list[list[str]] = []
    for point in points:
        best = point["candidates"][0]
        interval = f"{time_text(best['low_s'])} to {time_text(best['high_s'])}" if "low_s" in best else "interpolated"
        rows.append(
            [
                bytes_text(point["bytes"]),
                breakable(label(name_of_candidate(best))),
                time_text(best["seconds"]),
                interval,
                breakable(label(point["runner_up"])) if point["runner_up"] else "-",
                ratio_text(point["runner_up_ratio"]),
                share_text(point["noise"]),
                escape(point["why"]),
            ]
        )
    heads = ["size", "choice", "median", "95% interval", "runner-up", "its time over the choice's", "noise", "why"]
    return page.card("", page.table(f"{operation}: the choices", heads, rows, numbers=(0, 2, 3, 5, 6)), wide=True)


def _predicted(outcome: Outcome, operation: str) -> tuple[int, str] | None:
    """Bars of prediction and measurement of each candidate, at the largest size that has both."""
    for size in sorted(outcome.predicted.get(operation, {}), reverse=True):
        predicted = outcome.predicted[operation][size]
        point = outcome.operations[operation].get(size, {"candidates": [], "measured": False})
        measured = dict(outcome.exhaustive.get(operation, {}).get(size, {}))
        if point["measured"]:
            measured |= {name_of_candidate(each): each["seconds"] for each in point["candidates"]}
        names = sorted(set(predicted) & set(measured), key=measured.__getitem__)[:MOST_PREDICTED]
        if names:
            chart = page.bars(
                f"{operation} of {bytes_text(size)}: predicted and measured",
                [
                    (
                        label(name),
                        [
                            page.Bar("grey", [predicted[name]], "predicted from the costs of tasks"),
                            page.Bar("blue", [measured[name]], "measured from end to end"),
                        ],
                    )
                    for name in names
                ],
                time_text,
            )
            most = f", the fastest {len(names)} of them" if len(names) == MOST_PREDICTED else ", the fastest first"
            return size, page.card("Time of the slowest rank", chart, notes=[("Shown", f"What was measured{most}.")])
    return None


def _cost(outcome: Outcome) -> str:
    rows = [(part, [page.Bar("blue", [seconds])]) for part, seconds in outcome.seconds.items() if seconds > 0]
    return page.card("", page.bars("Seconds of each part of the search", rows, lambda seconds: f"{seconds:.1f} s"))
