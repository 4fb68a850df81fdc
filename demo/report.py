"""The demo's page: one self-contained HTML file with the results of one run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from measure import Measure
from penstock.page import (
    Axis,
    Bar,
    Curve,
    bars,
    card,
    cards,
    header,
    legend,
    line_chart,
    page,
    section,
    svg,
    table,
    tick_step,
)

STYLE = """
.stack { display:flex; height:1.5rem; border-radius:4px; overflow:hidden; margin:.15rem 0 .6rem } .stack i { display:block; min-width:0 }
ul.checks { list-style:none; padding:0; margin:0; display:grid; grid-template-columns:repeat(auto-fit,minmax(min(100%,400px),1fr)); gap:.4rem 2rem }
ul.checks li { padding-left:1.5rem; text-indent:-1.5rem } ul.checks li > b:first-child { display:inline-block; min-width:1.5rem; text-indent:0 }
ul.checks small { display:block; text-indent:0; color:var(--dim); line-height:1.35 }
.text li { margin:.3rem 0; max-width:85ch } .text ul { padding-left:1.2rem; margin:.4rem 0 }
"""


def number(value: float) -> str:
    """At most three significant digits: 0.042, 4.9, 214, 12 340. The space does not break."""
    if value == 0:
        return "0"
    if value >= 1000:
        return f"{round(value, -1):,.0f}".replace(",", "\u202f")
    if value >= 100:
        return f"{value:.0f}"
    digits = 1 if value >= 1 else 2 if value >= 0.1 else 3
    return f"{value:.{digits}f}"


def stacked_bar(label: str, pieces: Sequence[tuple[str, str, float]], longest: float, unit: str) -> str:
    """Pieces (name, colour, value) on a scale that ends at `longest`."""
    total = sum(value for _, _, value in pieces)
    inside = "".join(
        f'<i style="width:{100 * value / longest:.3f}%;background:var(--{colour})" title="{escape(name)}: {number(value)} {unit}"></i>'
        for name, colour, value in pieces
    )
    says = ", ".join(f"{name} {number(value)} {unit}" for name, _, value in pieces)
    return (
        f"<div><b>{escape(label)}</b> <span class=dim>{number(total)} {escape(unit)}</span></div>"
        f'<div class="stack" role="img" aria-label="{escape(label)}: {escape(says)}">{inside}</div>'
    )


def checklist(items: Iterable[tuple[bool, str, str]]) -> str:
    rows = "".join(
        f"<li>{'<b class=good>✓</b>' if ok else '<b class=bad>✗ failed</b> '}{escape(what)}<small>{escape(detail)}</small></li>"
        for ok, what, detail in items
    )
    return f'<ul class="checks">{rows}</ul>'


VERDICTS = {"shorter": "shorter", "longer": "longer", "unclear": "no clear difference"}
_PHASES = [  # of a segment: (measure, colour, name, what the measure is per)
    ("compute", "pale", "compute", "steps"),
    ("next_batch", "green", "next batch", "steps"),
    ("sum_gradients", "orange", "sums of gradients", "steps"),
    ("redistribute", "blue", "redistribute", "dumps"),
    ("write_tiles", "purple", "write tiles", "dumps"),
    ("checkpoint", "brown", "checkpoint", "checkpoints"),
    ("settle", "slate", "wait until it is in the slow tier", "checkpoints"),
]
# Colour of a span: on the application lane by phase, on other lanes by lane.
_SPANS = {
    "compute": "pale",
    "next batch": "green",
    "sum gradients": "orange",
    "redistribute": "blue",
    "write tiles": "purple",
    "checkpoint": "brown",
    "settle": "slate",
}
_LANES = {
    "application": ("application", ""),
    "operation": ("collectives", "orange"),
    "progress": ("moving bytes", "orange"),
    "loader": ("reading, decoding", "green"),
    "store": ("shared file", "purple"),
    "checkpoint": ("checkpoint", "brown"),
}


def write(path: Path, found: dict, measures: dict[str, Measure], timeline: dict) -> None:
    """`found` is the output of --json."""
    view = _View(found, measures)
    steps = found["settings"]["segment_steps"]
    body = [
        header(
            "What a training run waits for, and what it keeps when it is killed",
            view.machine(),
            "One job trains the same network on the same samples in two ways: plain and with Penstock. The ways alternate "
            f"every {steps} steps, {found['machine']['pairs']} times. A bar is the median; a dot is one measurement. "
            "The plain way uses NumPy, mpi4py, MPI-IO and Pillow, with care.",
        ),
        section("What holds on any machine", cards([view.checkpoint(), view.snapshots(), view.kill()])),
        section(
            "What else a step waits for",
            cards([view.gradients(), view.redistribution(), view.tiles(), view.batches()]),
            note="Background transfers need cores and links too. So these results depend more on the machine than those above. "
            "Longer waits are shown as well as shorter ones.",
        ),
        section(f"Where the time of {steps} steps goes", cards([view.whole(), card("", view.stacks(), wide=True)])),
        section(
            "The last segment of each way, on one scale",
            card("", _timeline(timeline)),
            note="Above: the plain way. Below: Penstock. Shown are the application thread of each rank and Penstock's background threads.",
        ),
        section("What was verified", card("", checklist((c["ok"], c["what"], c["detail"]) for c in found["checks"]))),
        section("The loss, with and without the kill", card("", view.losses())),
        section("How it was measured, and what it does not show", card("", view.method())),
    ]
    path.write_text(page("Penstock: what a training run waits for", body, style=STYLE), encoding="utf-8")


class _View:
    """The texts and charts of the page."""

    def __init__(self, found: dict, measures: dict[str, Measure]) -> None:
        self.found, self.measures = found, measures
        self.tier, self.link, self.settings = found["tier"], found["link"], found["settings"]

    def machine(self) -> str:
        m = self.found["machine"]
        tier = f"a slow tier of {self.tier['rate_mb_s']} MB/s (emulated)" if self.tier["emulated"] else "no slow tier"
        link = (
            f"{m['nodes']} nodes with links of {self.link['rate_mbit_s']} Mbit/s (emulated)"
            if self.link["emulated"]
            else "one node"
        )
        return (
            f"{m['ranks_compared']} ranks on {m['cores']} {m['architecture']} cores under {m['mpi']}, {link}, {tier}; {m['date']}, "
            f"load at the start {m['load_at_start']:.1f}"
        )

    def checkpoint(self) -> str:
        m, size = self.measures["checkpoint"], _mb(self.found["bytes"]["checkpoint"])
        drained = self.found["drained_ms"]
        arrived = f" It was drained after {number(drained['median'])} ms (median)." if drained else ""
        return card(
            self._title("A checkpoint blocks the training for", m),
            self._bars(m),
            notes=[
                (
                    "How",
                    f"{size} per checkpoint: weights, momentum and a field{self._to_tier()}. Plain: rank 0 gathers the field, writes it under "
                    "another name, calls fsync and renames; all ranks wait. Penstock: save() returns after each rank has copied its part; "
                    f"threads write it to a burst buffer, and drain it to the slow tier.{arrived}",
                ),
                (
                    "Limit",
                    "The tier does not become faster. If checkpoints are saved faster than it can take them, they queue up, and the training "
                    "waits for the oldest. A thread around the plain write would hide it too; the copy, the gathering, and the ranks' "
                    "agreement that a checkpoint is complete would remain.",
                ),
            ],
        )

    def kill(self) -> str:
        kill = self.found["kill"]
        plain, penstock = kill["plain"], kill["penstock"]
        of_steps = {int(s): b for s, b in plain["left_in_file"]["bytes_of_step"].items()}
        mixed = " and ".join(f"step {s} ({_mb(b)})" for s, b in sorted(of_steps.items())) or "nothing"
        left_plain = f"<b class=bad>a mixture</b>: {mixed}" if len(of_steps) > 1 else f"whole: {mixed}"
        left = penstock["left_in_file"]["step"]
        left_penstock = f"whole: step {left}" if left is not None else "<b class=bad>a mixture</b>"
        ok = {c["key"]: c["ok"] for c in self.found["checks"]}

        def yes(value: bool, good: str, bad: str) -> str:
            return good if value else f"<b class=bad>{bad}</b>"

        rows = [
            ("the shared file after the kill", left_plain, left_penstock),
            (
                "samples repeated or lost",
                yes(plain["samples_as_without_kill"], "none", "some"),
                yes(ok["samples"], "none", "some"),
            ),
            ("field after the restart", *(yes(k["field_restored"], "exact", "wrong") for k in (plain, penstock))),
            ("steps done twice", str(plain["steps_done_twice"]), str(penstock["steps_done_twice"])),
            ("reading the checkpoint", f"{number(plain['restore_ms'])} ms", f"{number(penstock['restore_ms'])} ms"),
            ("a checkpoint at 1 % of the time", *self._intervals()),
        ]
        return card(
            f"Killed with SIGKILL on {kill['ranks']} ranks while it wrote, it goes on with {kill['restart_ranks']}: no sample repeated or lost"
            if ok["samples"] and ok["restarted"]
            else "<b class=bad>The restart after the kill failed</b>",
            table("After the kill", ("", "plain", "Penstock"), rows),
            notes=[
                (
                    "How",
                    f"Every rank gets SIGKILL when a third of the dump of step {self.settings['kill_step']} is written: the plain way at once, with Penstock during the next two steps. The plain way restarts well too, since it was written "
                    "with care: it renames complete checkpoints, reshards the field, and computes its position in the samples from the "
                    "step. It loses the shared file, which is written in place: after a kill it may mix two steps, and no reader can "
                    "tell. A version of Penstock's file appears completely or not at all.",
                ),
                (
                    "Limit",
                    "Both ways lose the steps since the last checkpoint. The last row is the interval at which checkpoints take 1 % of the "
                    "time (with Penstock, at least the time to drain one). It limits the cost of a kill. The plain position in the samples "
                    "is right only if batch size and files do not change.",
                ),
            ],
            wide=True,
        )

    def _intervals(self) -> tuple[str, str]:
        m, drained = self.measures["checkpoint"], self.found["drained_ms"]
        fast = max(100 * m.median("penstock"), drained["median"] if drained else 0)
        return f"every {number(100 * m.median('plain') / 1e3)} s", f"every {number(fast / 1e3)} s"

    def snapshots(self) -> str:
        plain, penstock = self.found["snapshots"]["plain"], self.found["snapshots"]["penstock"]
        waits = plain["lock_waits_s"]
        longest = f"up to {number(1e3 * max(waits))} ms" if waits else "–"
        return card(
            f"A reader beside the writers saw {penstock['reads']} versions, {_none(penstock['mixed'])} of mixed steps; "
            f"the plain reader {plain['mixed']} of {plain['reads']}",
            table(
                "What the readers saw",
                ("", "plain", "Penstock"),
                [
                    ("reads of the whole file", str(plain["reads"]), str(penstock["reads"])),
                    ("that mixed two time steps", str(plain["mixed"]), str(penstock["mixed"])),
                    ("waited for a lock", longest, "takes none"),
                ],
            ),
            notes=[
                (
                    "How",
                    "A process outside of the job follows the file while all ranks write overlapping tiles of it. Every element tells its step. "
                    "Plain: it reads the file of MPI-IO's atomic mode whenever it has changed, under the lock of that mode. "
                    "Penstock: it reads the latest version, and after the run all versions that it missed.",
                ),
                (
                    "Limit",
                    "The number of plain reads that mix steps depends on timing: the lock orders single writes, and a step is one write per rank. "
                    "Penstock's format excludes mixed reads. Versions take space until they are removed.",
                ),
            ],
        )

    def whole(self) -> str:
        m, written = self.measures["segment"], self.found["bytes"]["tier_written_per_segment"]
        counted = (
            f" The tier counted {_mb(written['plain'])} written per segment the plain way, {_mb(written['penstock'])} with Penstock."
            if self.tier["emulated"]
            else ""
        )
        return card(
            self._title("All of it, until the last byte is in the slow tier:", m),
            self._bars(m),
            notes=[
                (
                    "How",
                    "A segment of steps with two dumps and one checkpoint. It ends when all three are in the slow tier, so deferred work "
                    f"is included.{counted}",
                ),
                (
                    "Limit",
                    "The emulated rates decide how much can be hidden: less with a faster tier, more with a slower one."
                    if self.tier["emulated"]
                    else "Without an emulated tier, this machine's disk decides how much can be hidden.",
                ),
            ],
            wide=True,
        )

    def gradients(self) -> str:
        m, size = self.measures["sum_gradients"], _mb(self.found["bytes"]["gradients"])
        over = (
            f"over a link of {self.link['rate_mbit_s']} Mbit/s"
            if self.link["emulated"]
            else f"in shared memory, without an emulated link: {escape(self.link['left_out'])}"
        )
        return card(
            self._title("For the sums of the gradients, a step waits", m),
            self._bars(m),
            notes=[
                (
                    "How",
                    f"{size} per step {over}. Both ways start an Iallreduce per layer as soon as the layer's gradient is computed, and wait for all after the "
                    "backward pass. The plain one is MPI's, which makes progress mostly inside MPI calls; Penstock's threads always do. Starting counts as waiting.",
                ),
                (
                    "Limit",
                    "Both waits include the wait for the slower rank. Sums are hidden only while there is something to compute, and "
                    "transfers take time of the cores that compute. An MPI with its own progress thread narrows the difference.",
                ),
            ],
        )

    def redistribution(self) -> str:
        m, b = self.measures["redistribute"], self.found["bytes"]
        return card(
            self._title("For the field in another layout, a dump waits", m),
            self._bars(m),
            notes=[
                (
                    "How",
                    f"Of {_mb(b['field'])}, {_mb(b['redistributed'])} change rank (plain "
                    f"{_mb(b['redistributed_plain'])}): from a block-cyclic layout to transposed strips, whose borders are then exchanged. Plain: pack, "
                    "Alltoallv, unpack, Allgather. Penstock: one copy; the rest runs during the next two steps.",
                ),
                (
                    "Relabeling",
                    "Any rank may own any strip, so Penstock chooses the owners that move the fewest bytes. For these layouts: "
                    + "; ".join(
                        f"{r['ranks']} ranks {_mb(r['bytes_after'])} instead of {_mb(r['bytes_before'])}"
                        for r in self.found["relabeling"]
                    )
                    + " (computed, not run).",
                ),
                ("Limit", "The copy remains, and the strips are two steps late."),
            ],
        )

    def tiles(self) -> str:
        m = self.measures["write_tiles"]
        return card(
            self._title("For its overlapping tiles to be written, a dump waits", m),
            self._bars(m),
            notes=[
                (
                    "How",
                    f"Plain: a collective write in MPI-IO's atomic mode{self._to_tier()}. Penstock: an Iwrite_at_all; the version appears when the parts of all ranks are "
                    "durable.",
                ),
                ("Limit", "Penstock syncs its file; the plain way does not."),
            ],
        )

    def batches(self) -> str:
        m = self.measures["next_batch"]
        return card(
            self._title("For its next batch, a step waits", m),
            self._bars(m),
            notes=[
                (
                    "How",
                    "Both ways read the same JPEG files in the same order from the local disk, with equally many threads and prefetched batches.",
                ),
                (
                    "Limit",
                    "If there are enough cores to decode, neither way waits, and this is no reason to change. Penstock adds the exact "
                    "position in the samples after a restart, for any number of ranks and any batch size.",
                ),
            ],
        )

    def stacks(self) -> str:
        times = {
            "steps": self.settings["segment_steps"],
            "dumps": self.settings["segment_dumps"],
            "checkpoints": 1,
        }
        pieces = {
            way: [(name, colour, self.measures[key].median(way) * times[per]) for key, colour, name, per in _PHASES]
            for way in ("plain", "penstock")
        }
        longest = max(sum(p[2] for p in row) for row in pieces.values())
        rows = [
            (
                escape(name),
                *(number(pieces[way][n][2]) for way in ("plain", "penstock")),
                VERDICTS[self.measures[key].verdict],
            )
            for n, (key, _, name, _) in enumerate(_PHASES)
        ]
        return (
            "<p>The application thread, medians over the segments, mean of the ranks:</p>"
            + legend((name, colour) for _, colour, name, _ in _PHASES)
            + stacked_bar("plain", pieces["plain"], longest, "ms")
            + stacked_bar("Penstock", pieces["penstock"], longest, "ms")
            + table("Where the time goes", ("milliseconds", "plain", "Penstock", "with Penstock"), rows, numbers=(1, 2))
            + "<p class=note>Shorter and longer mean that the measurements of the two ways do not overlap. "
            + (
                "Computing takes longer with Penstock: its threads share the ranks' cores, which is the price of the shorter waits."
                if self.measures["compute"].verdict == "longer"
                else "Penstock's threads share the ranks' cores; any effect on computing is within the spread."
            )
            + "</p>"
        )

    def losses(self) -> str:
        loss = self.found["loss"]
        chart = line_chart(
            "Loss per step",
            [
                Curve("Penstock, not killed", "blue", loss["penstock"], width=7),
                Curve("plain, not killed", "grey", loss["plain"], width=4),
                Curve("Penstock, killed and restarted", "orange", loss["killed, then restarted"], width=1.5),
            ],
            Axis("step", lambda step: f"{step:g}"),
            Axis("loss", lambda value: f"{value:.2f}"),
            markers=False,
        )
        return (
            chart
            + "<p class=note>Both ways see the same samples in the same order, so their losses are close. They differ by up to "
            f"{self.found['loss_difference_plain']:.2f}: Pillow and Penstock scale images with different filters, so pixels differ in their last "
            "bits, and training amplifies that. The killed run differs from the undisturbed one by rounding only, since sums over another "
            "number of ranks round differently.</p>"
        )

    def method(self) -> str:
        calibration = self.found["calibration"]
        tier = (
            f"<b>The slow tier is emulated</b>: {self.tier['rate_mb_s']} MB/s, for all processes together, first come, first served. A preloaded library (demo/slow_tier.c) limits the rate "
            "of all reads and writes below one folder, for both ways. It does not slow down opening or "
            f"renaming files. One process that writes the bytes of a checkpoint reached {number(self.tier['measured_mb_s'])} MB/s with it, "
            f"{number(self.tier['disk_mb_s'])} MB/s without."
            if self.tier["emulated"]
            else f"<b>The slow tier is left out</b>, files go to the disk at its own rate ({number(self.tier['disk_mb_s'])} MB/s): {escape(self.tier['left_out'])}."
        )
        link = (
            f"<b>The link is emulated</b>: two network namespaces, {self.link['rate_mbit_s']} Mbit/s in each direction by the kernel's token bucket."
            if self.link["emulated"]
            else f"<b>There is no emulated link</b>: {escape(self.link['left_out'])}. All ranks share memory, so nothing here shows networks."
        )
        items = [
            tier,
            link,
            f"<b>Emulated rates depend on this machine</b>: a step computes for {number(1e3 * calibration['compute_s'])} ms, measured at the start on "
            f"{calibration['ranks']} ranks. The tier takes about {self.settings['checkpoint_in_steps']:g} steps for a checkpoint, the link about {self.settings['gradients_in_steps']:g} of a step for the "
            "gradients, rounded to 1, 2 or 5.",
            "<b>In turn</b>: both ways run in the same processes, one segment each; each goes first equally often. The first segment of each is "
            "warm-up. While one way runs, the other way's threads sleep, once they have prefetched their batches.",
            "<b>Not shown</b>: real networks and parallel file systems, many nodes, a large network, accelerators. Two emulated nodes share the cores and the "
            "page cache of one machine. <code>./dev bench</code> compares the parts separately with other libraries.",
        ]
        return '<div class="text"><ul>' + "".join(f"<li>{item}</li>" for item in items) + "</ul></div>"

    def _title(self, what: str, m: Measure) -> str:
        plain, fast = number(m.median("plain")), number(m.median("penstock"))
        end = {
            "shorter": f"<b>{fast} ms</b>, plain {plain} ms",
            "longer": f"{fast} ms, plain <b>{plain} ms</b>: longer with Penstock",
            "unclear": f"{fast} ms, plain {plain} ms: no clear difference",
        }
        return f"{escape(what)} {end[m.verdict]}"

    def _bars(self, m: Measure) -> str:
        rows = [("plain", [Bar("grey", m.plain)]), ("Penstock", [Bar("blue", m.penstock)])]
        return bars(m.name, rows, lambda ms: f"{number(ms)} ms")

    def _to_tier(self) -> str:
        return f", to a tier of {self.tier['rate_mb_s']} MB/s" if self.tier["emulated"] else ""


def _mb(nbytes: float) -> str:
    return f"{nbytes / 1e6:.1f} MB"


def _none(count: int) -> str:
    return "none" if count == 0 else str(count)


def _timeline(timeline: dict) -> str:
    width, label, row_height, axis = 1000, 170, 17, 24
    longest = max(way["length_ms"] for way in timeline.values())
    order = list(_LANES)
    parts: list[str] = []
    y = 4.0

    def x(ms: float) -> float:
        return label + (width - label - 40) * ms / longest

    says = []
    for way, name in (("plain", "plain"), ("penstock", "Penstock")):
        found = timeline[way]
        rows = [
            row for row in found["rows"] if row["lane"] in _LANES and (way != "plain" or row["lane"] == "application")
        ]
        rows.sort(key=lambda row: (row["rank"], order.index(row["lane"])))
        says.append(f"{name}: {number(found['length_ms'])} milliseconds")
        parts.append(
            f'<text x="{label}" y="{y + 12:.0f}" style="font-weight:600;fill:var(--fg)">{name}, {number(found["length_ms"])} ms</text>'
        )
        y += row_height
        for row in rows:
            lane, lane_colour = _LANES[row["lane"]]
            parts.append(f'<text x="{label - 8}" y="{y + 12:.0f}" text-anchor="end">rank {row["rank"]}: {lane}</text>')
            parts.append(
                f'<rect x="{label}" y="{y + 1:.0f}" width="{x(longest) - label:.1f}" height="{row_height - 3}" fill="var(--line)" opacity=".35"/>'
            )
            for span, begin, end in row["spans"]:
                colour = _SPANS.get(span) if row["lane"] == "application" else lane_colour
                if colour is None:
                    continue
                left, right = x(max(begin, 0)), x(min(end, longest))
                parts.append(
                    f'<rect x="{left:.1f}" y="{y + 1:.0f}" width="{max(right - left, 0.6):.1f}" height="{row_height - 3}" fill="var(--{colour})">'
                    f"<title>{escape(span)}: {number(end - begin)} ms</title></rect>"
                )
            y += row_height
        parts.append(
            f'<line x1="{x(found["length_ms"]):.1f}" x2="{x(found["length_ms"]):.1f}" y1="{y - row_height * len(rows):.0f}" y2="{y:.0f}" stroke="var(--fg)" '
            'stroke-dasharray="3 2"/>'
        )
        y += 10
    step = tick_step(longest / 8)
    for k in range(int(longest / step) + 1):
        parts.append(
            f'<text x="{x(k * step):.1f}" y="{y + axis - 9:.0f}" text-anchor="middle">{number(k * step)} ms</text>'
        )
    names = [(name, colour) for _, colour, name, _ in _PHASES]
    description = "; ".join(says) + ". A dashed line marks the end of each."
    return legend(names) + svg(
        width, y + axis, "What every thread did in the last segment of each way", description, "".join(parts)
    )
