"""HTML pages for a browser: one style, text, tables and charts, in one self-contained file.

The colors follow the reader's light or dark mode; the layout suits a phone. Charts have text descriptions. Curves differ by
dashes and markers, or by width, as well as by color. Parameters that are "texts" are escaped here; all others are HTML.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import count

# Colors have names, --grey to --slate; a page decides what each means.
STYLE = """
:root { color-scheme: light dark; --fg:#1b1f24; --bg:#f7f6f3; --card:#fff; --line:#dedbd4; --dim:#5d646e; --good:#20763a; --bad:#b3261e;
  --grey:#8b8f97; --blue:#1f6fd1; --pale:#b9c3d0; --green:#3f9c58; --orange:#d9730d; --purple:#9a5fb0; --brown:#8a5a44; --slate:#5a6b7b }
@media (prefers-color-scheme: dark) { :root { --fg:#e7e6e3; --bg:#15171b; --card:#1d2025; --line:#353a42; --dim:#a2a9b3; --good:#5fc27a;
  --bad:#ff7b72; --grey:#8d939d; --blue:#5b9df0; --pale:#4b5768; --green:#58b774; --orange:#f0924a; --purple:#bd88d0; --brown:#c08d74;
  --slate:#8ea1b3 } }
* { box-sizing:border-box }
body { margin:0 auto; padding:2rem 1.2rem 4rem; max-width:1080px; background:var(--bg); color:var(--fg);
  font:15px/1.5 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; overflow-wrap:break-word }
h1 { font-size:1.7rem; line-height:1.2; margin:0 0 .3rem; letter-spacing:-.01em } h2 { font-size:1.15rem; margin:2.6rem 0 .3rem }
h3 { font-size:1.02rem; line-height:1.35; margin:0 0 .7rem } p { margin:.5rem 0 } .dim, .note { color:var(--dim) } .note { font-size:.86rem }
.lead { font-size:1.05rem; max-width:75ch } .section-note { color:var(--dim); margin:0 0 .9rem; max-width:80ch }
.cards { display:grid; grid-template-columns:repeat(auto-fit,minmax(min(100%,440px),1fr)); gap:.9rem }
.wide { grid-column:1/-1 } .card { background:var(--card); border:1px solid var(--line); border-radius:10px; padding:1rem 1.15rem; min-width:0 }
.card .note { margin:.55rem 0 0 } .card .note b { color:var(--fg); font-weight:600 }
table { width:100%; border-collapse:collapse; font-variant-numeric:tabular-nums } th { text-align:left; font-weight:500 }
th, td { padding:.36rem .9rem .36rem 0; vertical-align:top } th:last-child, td:last-child { padding-right:0 }
thead th { color:var(--dim); font-size:.85rem; padding-top:0; vertical-align:bottom } tbody td, tbody th { border-top:1px solid var(--line) }
th.number, td.number { text-align:right } td.number { white-space:nowrap } td { min-width:4.5rem }
.scroll { overflow-x:auto } .scroll:focus-visible { outline:2px solid var(--blue) } .scroll > svg { width:100%; height:auto; display:block }
svg text { fill:var(--dim); font:12px system-ui, sans-serif } .grid { stroke:var(--line) }
.bars { display:grid; grid-template-columns:minmax(0,max-content) minmax(30%,1fr) max-content; gap:.25rem .7rem; align-items:center; font-variant-numeric:tabular-nums }
.bars.several { row-gap:.7rem } .bars div > * { display:block; height:1.4rem; line-height:1.4rem } .bars .range { color:var(--dim); font-size:.84rem }
.track { position:relative; min-width:0 } .track i { position:absolute; inset:.29rem auto .29rem 0; border-radius:2px; min-width:2px }
.track u { position:absolute; top:50%; width:5px; height:5px; margin:-2.5px 0 0 -2.5px; border-radius:50%; background:var(--fg); box-shadow:0 0 0 1px var(--card) }
.legend { display:flex; flex-wrap:wrap; gap:.25rem 1.1rem; color:var(--dim); font-size:.86rem; margin:.2rem 0 .6rem }
.legend i { display:inline-block; width:.8rem; height:.8rem; border-radius:2px; margin-right:.35rem; vertical-align:-.08rem }
.legend svg { width:2rem; height:.8rem; margin-right:.35rem; vertical-align:-.08rem }
.good { color:var(--good) } .bad { color:var(--bad) } .unseen { position:absolute; width:1px; height:1px; overflow:hidden; clip-path:inset(50%) }
@media (max-width:520px) { body { padding:1.3rem .8rem 3rem } .card { padding:.85rem .9rem }
  .bars .range { display:none } .bars { column-gap:.5rem } h1 { font-size:1.4rem } }
@media print { body { max-width:none } .card { break-inside:avoid } .scroll { overflow:visible } }
"""

_UNITS = "ns|µs|ms|s|B|KiB|MiB|MB|MB/s|Mbit/s|%"


def page(title: str, content: Iterable[str], *, style: str = "") -> str:
    """A whole page. `title`, a text, is the window title. `style` holds the page's own CSS."""
    body = re.sub(rf"(\d) ({_UNITS})(?![\w/])", "\\1\u00a0\\2", "\n".join(content))  # keep numbers and units together
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}{style}</style></head><body>\n{body}\n</body></html>\n"
    )


def header(title: str, machine: str, lead: str) -> str:
    """The header: texts `title` and `machine` (where it was measured), and `lead`, a summary."""
    return f'<header><h1>{escape(title)}</h1><p class="dim">{escape(machine)}</p><p class="lead">{lead}</p></header>'


def section(title: str, *content: str, note: str = "") -> str:
    """A section. `title` is a text."""
    below = f'<p class="section-note">{note}</p>' if note else ""
    return f"<section><h2>{escape(title)}</h2>{below}{''.join(content)}</section>"


def cards(items: Iterable[str]) -> str:
    """Cards, two per row if there is room."""
    return f'<div class="cards">{"".join(items)}</div>'


def card(title: str, *content: str, notes: Sequence[tuple[str, str]] = (), wide: bool = False) -> str:
    """A card with notes below, each a pair of a name (a text) and its content."""
    below = "".join(f'<p class="note"><b>{escape(name)}.</b> {note}</p>' for name, note in notes)
    heading = f"<h3>{title}</h3>" if title else ""
    return f'<article class="card{" wide" if wide else ""}">{heading}{"".join(content)}{below}</article>'


def table(title: str, heads: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int] = ()) -> str:
    """A table. `title` and `heads` are texts. The first column holds row headings. Columns `numbers` are right-aligned."""
    kinds = [' class="number"' if column in numbers else "" for column in range(len(heads))]
    top = "".join(f'<th scope="col"{kind}>{escape(head)}</th>' for head, kind in zip(heads, kinds))
    body = "".join(
        f'<tr><th scope="row"{kinds[0]}>{row[0]}</th>'
        + "".join(f"<td{kind}>{cell}</td>" for cell, kind in zip(row[1:], kinds[1:]))
        + "</tr>"
        for row in rows
    )
    return _scrolling(title, f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>")


def _scrolling(title: str, inside: str) -> str:
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(title)}">{inside}</div>'


# --- Charts -------------------------------------------------------------------------------------------------------

_ids = count()


def svg(width: int, height: float, title: str, description: str, content: str) -> str:
    """An SVG image with two texts. It shrinks with the screen while its own text is readable, then scrolls."""
    number = next(_ids)
    return _scrolling(
        title,
        f'<svg viewBox="0 0 {width} {height:.0f}" style="min-width:{0.8 * width:.0f}px" role="img" aria-labelledby="t{number} d{number}">'
        f'<title id="t{number}">{escape(title)}</title><desc id="d{number}">{escape(description)}</desc>{content}</svg>',
    )


def legend(entries: Iterable[tuple[str, str]]) -> str:
    """A legend of (name, color) pairs."""
    return _legend((f'<i style="background:var(--{colour})"></i>', name) for name, colour in entries)


def _legend(entries: Iterable[tuple[str, str]]) -> str:
    return f'<div class="legend">{"".join(f"<span>{sample}{escape(name)}</span>" for sample, name in entries)}</div>'


@dataclass(frozen=True)
class Bar:
    """A bar up to the median of the values, with a dot per value if there are several. `name` labels it within its row."""

    colour: str
    values: Sequence[float]
    name: str = ""


def bars(title: str, rows: Sequence[tuple[str, Sequence[Bar]]], shown: Callable[[float], str]) -> str:
    """Rows of (label, bars), with values as texts, and a legend if the bars have names."""
    longest = max((value for _, row in rows for bar in row for value in bar.values), default=0.0) or 1.0
    parts = []
    for label, row in rows:
        tracks, texts = "", ""
        for bar in row:
            middle = statistics.median(bar.values)
            several = len(bar.values) > 1
            dots = "".join(f'<u style="left:{100 * v / longest:.2f}%"></u>' for v in bar.values if several)
            ends = f' <span class="range">{escape(shown(min(bar.values)))} to {escape(shown(max(bar.values)))}</span>'
            name = f'<span class="unseen">{escape(bar.name)} </span>' if bar.name else ""
            tracks += f'<span class="track"><i style="width:{100 * middle / longest:.2f}%;background:var(--{bar.colour})"></i>{dots}</span>'
            texts += f"<span>{name}<b>{escape(shown(middle))}</b>{ends if several else ''}</span>"
        parts.append(f'<span>{escape(label)}</span><div aria-hidden="true">{tracks}</div><div>{texts}</div>')
    names = {bar.name: bar.colour for _, row in rows for bar in row if bar.name}
    kind = "bars several" if any(len(row) > 1 for _, row in rows) else "bars"
    chart = f'<div class="{kind}" role="group" aria-label="{escape(title)}">{"".join(parts)}</div>'
    return (legend(names.items()) if names else "") + chart


@dataclass(frozen=True)
class Curve:
    """At least one point (x, y); optionally the lower and upper end of y at each point."""

    label: str
    colour: str
    points: Sequence[tuple[float, float]]
    intervals: Sequence[tuple[float, float] | None] = ()
    width: float = 1.7


@dataclass(frozen=True)
class Axis:
    """An axis. `shown` formats a value as text."""

    label: str
    shown: Callable[[float], str]
    logarithmic: bool = False


def tick_step(least: float) -> float:
    """The next larger of …, 1, 2, 5, 10, 20, …"""
    power = 10.0 ** math.floor(math.log10(max(least, 1e-9)))
    return next(k for k in (1, 2, 5, 10) if k * power >= least * 0.999) * power


def _multiples(low: float, high: float) -> list[float]:
    """About six round numbers whose range contains both."""
    step = tick_step((high - low) / 6)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [k * step for k in range(first, max(last, first + 1) + 1)]


def _decades(low: float, high: float) -> list[float]:
    """At most nine powers of ten whose range contains two positive numbers."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    step = max(1, -(-(last - first) // 8))
    return [10.0**power for power in range(first, max(last, first + 1) + step, step)]


def _scale(axis: Axis, low: float, high: float, from_px: float, to_px: float) -> Callable[[float], float]:
    def along(value: float) -> float:
        return math.log(value) if axis.logarithmic else value

    length = along(high) - along(low)
    return lambda value: from_px + (to_px - from_px) * ((along(value) - along(low)) / length if length else 0.5)


_DASHES = ("", "7 4", "2 3", "9 3 2 3", "1 4", "5 2")


def _marker(number: int, colour: str, x: float, y: float) -> str:
    if number % 3 == 0:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.4" fill="var(--{colour})"/>'
    if number % 3 == 1:
        return f'<rect x="{x - 3:.1f}" y="{y - 3:.1f}" width="6" height="6" fill="var(--card)" stroke="var(--{colour})" stroke-width="1.6"/>'
    return f'<path d="M{x:.1f} {y - 4:.1f}l4 7h-8z" fill="var(--{colour})"/>'


def _stroke(number: int, curve: Curve, *, dashed: bool) -> str:
    dashes = f' stroke-dasharray="{_DASHES[number % len(_DASHES)]}"' if dashed and number % len(_DASHES) else ""
    return f'fill="none" stroke="var(--{curve.colour})" stroke-width="{curve.width}"{dashes}'


def line_chart(title: str, curves: Sequence[Curve], x_axis: Axis, y_axis: Axis, *, markers: bool = True) -> str:
    """Curves with a legend. The first curve is drawn first.

    Without markers, for curves with many points, there are no dashes either: give the curves decreasing widths, so that
    overlapping curves stay visible.
    """
    width, height, left, right, top, bottom = 900, 300, 78, 12, 10, 48
    xs = sorted({x for curve in curves for x, _ in curve.points})
    ys = [y for curve in curves for _, y in curve.points]
    ys += [end for curve in curves for interval in curve.intervals if interval for end in interval]
    y_ticks = _decades(min(ys), max(ys)) if y_axis.logarithmic else _multiples(min(0.0, *ys), max(ys))
    x_ticks = xs[:: -(-len(xs) // 9)] if x_axis.logarithmic else _multiples(xs[0], xs[-1])
    x_at = _scale(x_axis, xs[0], xs[-1], left + 10, width - right - 10)
    y_at = _scale(y_axis, y_ticks[0], y_ticks[-1], height - bottom, top)
    parts = [
        f'<line class="grid" x1="{left}" x2="{width - right}" y1="{y_at(y):.1f}" y2="{y_at(y):.1f}"/>'
        f'<text x="{left - 8}" y="{y_at(y) + 4:.1f}" text-anchor="end">{escape(y_axis.shown(y))}</text>'
        for y in y_ticks
    ]
    parts += [
        f'<line class="grid" x1="{x_at(x):.1f}" x2="{x_at(x):.1f}" y1="{height - bottom}" y2="{height - bottom + 5}"/>'
        f'<text x="{x_at(x):.1f}" y="{height - bottom + 19}" text-anchor="middle">{escape(x_axis.shown(x))}</text>'
        for x in x_ticks
        if xs[0] <= x <= xs[-1]
    ]
    middle = (height - bottom + top) / 2
    parts.append(
        f'<text x="{(left + width) / 2}" y="{height - 6}" text-anchor="middle">{escape(x_axis.label)}</text>'
        f'<text x="14" y="{middle}" text-anchor="middle" transform="rotate(-90 14 {middle})">{escape(y_axis.label)}</text>'
    )
    samples, says = [], []
    for number, curve in enumerate(curves):
        stroke = _stroke(number, curve, dashed=markers)
        path = " ".join(f"{x_at(x):.1f},{y_at(y):.1f}" for x, y in curve.points)
        parts.append(f'<polyline points="{path}" {stroke}><title>{escape(curve.label)}</title></polyline>')
        if markers:
            parts += _points(number, curve, x_axis, y_axis, x_at, y_at)
        sample = f'<line x1="0" x2="32" y1="6" y2="6" {stroke}/>' + (
            _marker(number, curve.colour, 16, 6) if markers else ""
        )
        samples.append((f'<svg viewBox="0 0 32 12" aria-hidden="true">{sample}</svg>', curve.label))
        begin, end = (f"{y_axis.shown(y)} at {x_axis.shown(x)}" for x, y in (curve.points[0], curve.points[-1]))
        says.append(f"{curve.label}: from {begin} to {end}.")
    description = f"{y_axis.label} by {x_axis.label}. {' '.join(says)}"
    return _legend(samples) + svg(width, height, title, description, "".join(parts))


def _points(
    number: int,
    curve: Curve,
    x_axis: Axis,
    y_axis: Axis,
    x_at: Callable[[float], float],
    y_at: Callable[[float], float],
) -> list[str]:
    """A marker for each point of the curve, its interval, and a tooltip with its values."""
    parts = []
    for (x, y), interval in zip(curve.points, [*curve.intervals, *[None] * len(curve.points)]):
        says = f"{curve.label}, {x_axis.shown(x)}: {y_axis.shown(y)}"
        bar = ""
        if interval:
            says += f" ({y_axis.shown(interval[0])} to {y_axis.shown(interval[1])})"
            low, high = (y_at(end) for end in interval)
            bar = (
                f'<path d="M{x_at(x):.1f} {low:.1f}V{high:.1f}M{x_at(x) - 4:.1f} {low:.1f}h8M{x_at(x) - 4:.1f} {high:.1f}h8" '
                f'stroke="var(--{curve.colour})" fill="none"/>'
            )
        parts.append(f"<g><title>{escape(says)}</title>{bar}{_marker(number, curve.colour, x_at(x), y_at(y))}</g>")
    return parts
