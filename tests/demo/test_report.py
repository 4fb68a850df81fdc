"""The page states the measurements, also those not in Penstock's favour, and is self-contained."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import measure
import pytest
import report
from measure import Measure

VOID = {"meta", "rect", "line", "polyline", "br"}


class Outline(HTMLParser):
    """Fails for mismatched tags; collects what a test checks."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, dict]] = []

    def handle_starttag(self, tag, attrs):
        self.attributes.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.attributes.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open and self.open.pop() == tag, f"</{tag}> closes {self.open[-1:]}"


def measures(plain: float, penstock: float) -> dict[str, Measure]:
    keys = [row[0] for row in (*measure.PER_STEP, *measure.PER_DUMP, *measure.PER_SEGMENT)]
    return {
        key: Measure(key, key, [plain, 1.1 * plain, 1.2 * plain], [penstock, 1.1 * penstock, 1.2 * penstock])
        for key in (*keys, "segment")
    }


def found(tmp_path, values: dict[str, Measure], emulated: bool = True) -> dict:
    left = {way: {"restarted_from_step": 5, "killed_in_step": 8, "steps_done_twice": 3} for way in measure.WAYS}
    for way in left.values():
        way.update(restore_ms=12.0, field_restored=True, samples_as_without_kill=True)
    left["penstock"]["left_in_file"] = {"version": 2, "step": 8}
    left["plain"]["left_in_file"] = {"bytes_of_step": {2: 100, 8: 200}}
    curve = [[step, 2.0 - step / 20] for step in range(20)]
    keys = ("restarted", "samples")
    return {
        "machine": {
            "cores": 2, "load_at_start": 0.1, "architecture": "x86_64", "mpi": "<mpi>", "ranks_compared": 2, "nodes": 2,
            "pairs": 3, "date": "2000-01-01 00:00",
        },
        "settings": {
            "segment_steps": 12, "segment_dumps": 2, "kill_step": 8, "checkpoint_in_steps": 3.0, "gradients_in_steps": 0.4, "io_threads": 2,
            "prefetch": 3,
        },
        "calibration": {"compute_s": 0.05, "ranks": 2, "batch": 32},
        "tier": {
            "emulated": emulated, "left_out": "" if emulated else "no <compiler>", "rate_mb_s": 50, "measured_mb_s": 49.0,
            "disk_mb_s": 800.0,
        },
        "link": {"emulated": emulated, "left_out": "" if emulated else "needs root", "rate_mbit_s": 100},
        "snapshots": {
            "plain": {"reads": 9, "mixed": 2, "lock_waits_s": [0.001]},
            "penstock": {"reads": 7, "read_live": 5, "mixed": 0},
        },
        "measures": {key: m.as_json() for key, m in values.items()},
        "drained_ms": {"median": 300.0},
        "bytes": {
            "checkpoint": 7e6, "gradients": 1e6, "field": 4e6, "redistributed": 2e6, "redistributed_plain": 2e6,
            "tier_written_per_segment": {"plain": 1e7, "penstock": 1e7},
        },
        "relabeling": [{"ranks": 4, "bytes_before": 3_000_000, "bytes_after": 2_000_000}],
        "loss": {"penstock": curve, "plain": curve, "killed, then restarted": curve},
        "loss_difference_plain": 0.1,
        "checks": [{"key": key, "what": f"what {key}", "ok": True, "detail": "detail"} for key in keys],
        "kill": {"ranks": 4, "restart_ranks": 3, **left},
    }  # fmt: skip


TIMELINE = {
    way: {
        "length_ms": 100.0,
        "rows": [
            {"rank": 0, "lane": "application", "spans": [("compute", 0.0, 60.0), ("settle", 60.0, 100.0)]},
            {"rank": 0, "lane": "checkpoint", "spans": [("drain", 10.0, 50.0)]},
        ],
    }
    for way in measure.WAYS
}


def written(tmp_path, plain: float, penstock: float, **changes) -> str:
    values = measures(plain, penstock)
    content = found(tmp_path, values, changes.pop("emulated", True))
    content.update(changes)
    report.write(tmp_path / "page.html", content, values, TIMELINE)
    return (tmp_path / "page.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("emulated", [True, False])
def test_page_is_well_formed_and_stands_alone(tmp_path, emulated):
    page = written(tmp_path, 200, 5, emulated=emulated)
    outline = Outline()
    outline.feed(page)
    assert outline.open == []
    for tag, attributes in outline.attributes:
        assert tag not in ("script", "link", "img", "iframe")
        assert not {"src", "href"} & set(attributes), (tag, attributes)
    assert "http" not in page and "url(" not in page and "@import" not in page
    assert "&lt;mpi&gt;" in page and "<mpi>" not in page
    assert ("no &lt;compiler&gt;" in page and "needs root" in page) == (not emulated)


def test_charts_can_be_read_without_seeing_them(tmp_path):
    page = written(tmp_path, 200, 5)
    charts = [each for each in re.findall(r"<svg.*?</svg>", page, re.DOTALL) if 'aria-hidden="true"' not in each]
    assert len(charts) == 2
    for chart in charts:
        names = re.search(r'role="img" aria-labelledby="(\S+) (\S+)"', chart)
        assert names is not None
        assert f'<title id="{names[1]}">' in chart and f'<desc id="{names[2]}">' in chart
    tables = re.findall(r'role="region" aria-label="([^"]+)"><table>', page)
    assert len(tables) == page.count("<table>") == len(set(tables))
    assert "prefers-color-scheme: dark" in page and 'name="viewport"' in page


def test_tells_what_is_not_in_our_favour(tmp_path):
    assert "longer with Penstock" not in written(tmp_path, 200, 5)
    page = written(tmp_path, 5, 200)
    assert page.count("longer with Penstock</h3>") == 6
    assert "Computing takes longer with Penstock" in page
    page = written(tmp_path, 100, 101)
    assert page.count("no clear difference</h3>") == 6


def test_tells_failed_checks(tmp_path):
    failed = [{"key": key, "what": f"what {key}", "ok": False, "detail": "detail"} for key in ("restarted", "samples")]
    page = written(tmp_path, 200, 5, checks=failed)
    assert page.count("✗ failed") == 2
    assert "The restart after the kill failed" in page


def test_verdict_needs_every_measurement():
    assert Measure("", "", [3.0, 4.0], [1.0, 2.0]).verdict == "shorter"
    assert Measure("", "", [3.0, 4.0], [1.0, 3.5]).verdict == "unclear"
    assert Measure("", "", [1.0, 2.0], [3.0, 4.0]).verdict == "longer"


def test_rates_are_rounded_to_1_2_5():
    assert [measure.round_rate(rate, 1) for rate in (0.1, 3.4, 8, 23, 140, 3400)] == [1, 5, 10, 20, 100, 5000]


def test_numbers_have_no_digits_that_mean_nothing():
    assert [report.number(v) for v in (0, 0.0423, 0.42, 4.94, 38.26, 214.4, 12_345)] == [
        "0", "0.042", "0.42", "4.9", "38.3", "214", "12\u202f340",
    ]  # fmt: skip


def test_a_segment_is_the_sum_of_what_is_in_it(tmp_path):
    page = written(tmp_path, 100, 10)
    # 12 steps of three measures, 2 dumps of two, and two once. The median of each is 1.1 times its input.
    expected = {"plain": 110 * (12 * 3 + 2 * 2 + 2), "Penstock": 11 * (12 * 3 + 2 * 2 + 2)}
    for way, total in expected.items():
        assert f"<b>{way}</b> <span class=dim>{report.number(total)}\u00a0ms</span>" in page
