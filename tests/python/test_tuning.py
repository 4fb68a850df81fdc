"""The tuner's arithmetic and its table. tests/mpi/test_tuning.py runs it."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest
from penstock import tuning
from penstock.error import Error
from penstock.tuning import decide, report, search
from penstock.tuning.predict import at_length, predict, steps_of


def test_tasks_are_those_of_the_paper() -> None:
    assert steps_of("bcast", 3) == ["ib", "sbib", "sbib", "sb"]
    assert steps_of("allreduce", 4) == ["sr", "irsr", "ibirsr", "sbibirsr", "sbibir", "sbib", "sb"]
    assert steps_of("reduce", 1) == ["sr", "ir"]


def test_equation_3() -> None:
    costs = {"ib": [1.0, 3.0], "sbib": [4.0, 2.0], "sb": [0.5, 0.25]}
    for u in (1, 2, 9):
        assert predict("bcast", u, costs) == max(1 + (u - 1) * 4 + 0.5, 3 + (u - 1) * 2 + 0.25)


def test_equation_4() -> None:
    tasks = steps_of("allreduce", 4)
    costs = {task: [float(2**i)] for i, task in enumerate(tasks)}
    u = 10
    expected = 1 + 2 + 4 + (u - 3) * 8 + 16 + 32 + 64
    assert predict("allreduce", u, costs) == expected


def test_a_task_that_was_not_measured_costs_its_stages() -> None:
    costs = {"sr": [1.0], "ir": [2.0], "ib": [4.0], "sb": [8.0], "irsr": [2.5], "sbib": [9.0]}
    assert predict("allreduce", 2, costs) == 1 + 2.5 + (4 + 2) + 9 + 8


def test_sizes() -> None:
    sizes = tuning.sizes_between(8, 1000)
    assert sizes == [8, 16, 32, 64, 128, 256, 512, 1000]
    assert tuning.sizes_between(8, 8) == [8]
    with pytest.raises(Error, match="from 9 to 8"):
        tuning.sizes_between(9, 8)


def outcome(placement: str, seconds: float) -> tuning.Outcome:
    chain = {"algorithm": "chain", "segment_bytes": 64, "seconds": seconds}
    point = {
        "native_s": 2e-6, "measured": True, "why": decide.MEASURED, "default": "binomial:0", "noise": 0.04,
        "runner_up": "binomial:0", "runner_up_ratio": (1.5, 1.25, 1.75), "default_ratio": (1.5, 1.25, math.inf),
        "candidates": [
            {**chain, "low_s": 0.75 * seconds, "high_s": 1.25 * seconds, "rounds": 24},
            {"algorithm": "binomial", "segment_bytes": 0, "seconds": 1.5 * seconds},
        ],
    }  # fmt: skip
    return tuning.Outcome({"placement": placement}, {}, {"bcast": {8: point}}, {})


def test_a_table_keeps_the_parts_for_other_runs(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    for placement, seconds in (("a", 1e-6), ("b", 2e-6), ("a", 3e-6)):
        tuning.write_table(path, outcome(placement, seconds))
    tables = {part["placement"]: part for part in json.loads(path.read_text())["tables"]}
    assert sorted(tables) == ["a", "b"]
    assert tables["a"]["operations"][0]["points"][0]["candidates"][0]["nanoseconds"] == 3000
    point = tables["a"]["operations"][0]["points"][0]
    assert (point["why"], point["default"], point["noise"]) == (decide.MEASURED, "binomial:0", 0.04)
    assert point["default_ratio"] == [1.5, 1.25, None]  # JSON has no infinity
    best = point["candidates"][0]
    assert (best["low_nanoseconds"], best["high_nanoseconds"], best["rounds"]) == (2250, 3750, 24)
    path.write_text("torn")
    tuning.write_table(path, outcome("c", 1e-6))
    assert len(json.loads(path.read_text())["tables"]) == 1


def test_tasks_of_other_segments_follow_from_two() -> None:
    costs = {100: {"ib": [3.0, 5.0], "sb": [4.0, 4.0]}, 300: {"ib": [7.0, 5.0], "sb": [1.0, 4.0]}}
    assert at_length(costs, 400) == {"ib": [9.0, 5.0], "sb": [4.0, 4.0]}
    assert at_length(costs, 0) == {"ib": [1.0, 5.0], "sb": [4.0, 4.0]}


def test_how_often_the_choice_was_the_best() -> None:
    found = outcome("a", 1e-6)
    assert found.within() == (0, 0)
    found.referee = {"bcast": {8: {"chosen": 1.02e-6, "best": 1.0e-6, "best again": 1.0e-6}}}
    assert found.within() == (1, 1)
    found.referee["bcast"][8] = {"chosen": 1.1e-6, "best": 1.0e-6, "best again": 0.9e-6}
    assert found.within() == (0, 1)
    assert found.referee_noise() == pytest.approx(1 / 9)
    assert found.within(noise=found.referee_noise()) == (1, 1)
    found.halves = {"bcast": {8: 1.2}}
    assert found.within(known=0.03) == (0, 0)
    found.exhaustive = {"bcast": {8: {"chain:64": 1.02e-6, "ring:0": 1.0e-6}}}
    assert found.strict() == (1, 1)
    assert found.strict(0.01) == (0, 1)
    assert search.disagreement({"a": 1.0, "b": 1.5}, {"a": 2.0, "b": 1.0}) == 2.0


def report_of(found: tuning.Outcome, folder: Path) -> str:
    report.write(found, folder / "report.html")
    return (folder / "report.html").read_text(encoding="utf-8").replace("\u00a0", " ")


def texts_of_bars(page: str, title: str) -> list[str]:
    """The text description of a bar chart: its labels, and each value with its name."""
    found = re.search(rf'<div class="bars[^"]*" role="group" aria-label="{re.escape(title)}">(.*?)</div></div>', page)
    assert found is not None, title
    seen = re.sub(r'<div aria-hidden="true">.*?</div>', "", found[1])
    lines = re.split(r"</b></span>|</span><div>", seen)
    return [text for line in lines if (text := re.sub(r"<[^>]*>", "", line).strip())]


def test_the_report_shows_what_was_found(tmp_path: Path) -> None:
    found = outcome("0*2 <1*2>", 1e-6)
    found.predicted = {"bcast": {8: {"chain:64": 1.1e-6}}}
    found.exhaustive = {"bcast": {8: {"chain:64": 1.02e-6, "binomial:0": 1.0e-6}}}
    found.referee = {"bcast": {8: {"chosen": 1.02e-6, "best": 1.0e-6, "best again": 1.0e-6}}}
    found.noise = {"bcast": {8: {"scatter": math.log(1.25), "apart": math.log(1.02), "rounds": 64, "seconds": 1e-6}}}
    found.seconds = {"predicting": 1.5, "racing": 0.5, "exhaustive search": 40.0}
    text = report_of(found, tmp_path)
    assert "placement 0*2 &lt;1*2&gt;" in text
    assert "At <b>1 of 1</b> points something is faster than Penstock's default" in text
    assert "within 3% of the exhaustive best at 1 of 1 points" in text
    assert "took 5.0% of the time" in text
    # Every chart has a title and a text description.
    assert texts_of_bars(text, "How far two measurements of the default in the same rounds are apart") == [
        "bcast, 8 B", "single times: one standard deviation, at most 25%", "all times together 2.0%",
    ]  # fmt: skip
    shown = dict(re.findall(r"<title id=\S+>(.*?)</title><desc id=\S+>(.*?)</desc>", text))
    curves = shown["bcast: time by size"]
    for curve in (
        "choice: from 1 µs",
        "default: from 1.5 µs",
        "MPI&#x27;s own: from 2 µs",
        "best of all, exhaustive search: from 1 µs",
    ):
        assert curve in curves, curves
    assert texts_of_bars(text, "bcast of 8 B: predicted and measured") == [
        "chain, 64 B", "predicted from the costs of tasks 1.1 µs", "measured from end to end 1 µs",
    ]  # fmt: skip
    assert texts_of_bars(text, "Seconds of each part of the search") == [
        "predicting", "1.5 s", "racing", "0.5 s", "exhaustive search", "40.0 s",
    ]  # fmt: skip
    row = re.search(r'<tr><th scope="row" class="number">8 B</th>(.*?)</tr>', text)
    assert row is not None
    cells = re.findall(r"<td[^>]*>(.*?)</td>", row[1])
    assert cells == [
        "chain, 64 B", "1 µs", "750 ns to 1.25 µs", "binomial", "1.50 (1.25 to 1.75)", "4.0%", decide.MEASURED,
    ]  # fmt: skip


def test_the_report_draws_what_its_titles_say(tmp_path: Path) -> None:
    """Without predictions or an exhaustive search, no title mentions them."""
    found = outcome("a", 1e-6)
    text = report_of(found, tmp_path)
    headings = re.findall(r"<h2>(.*?)</h2>", text)
    assert "bcast: the choice, the default and MPI&#x27;s own" in headings
    assert not any("predict" in heading or "of all" in heading for heading in headings)
    assert "exhaustive" not in text
    # The choice is below the default, and the default below MPI's own: the y axis of an SVG points down.
    lines = [
        [float(pair.split(",")[1]) for pair in each.split()] for each in re.findall(r'polyline points="(.*?)"', text)
    ]
    choice, default, native = lines
    assert native[0] < default[0] < choice[0]


def test_a_page_needs_nothing_from_elsewhere(tmp_path: Path) -> None:
    text = report_of(outcome("a", 1e-6), tmp_path)
    assert "prefers-color-scheme: dark" in text
    assert 'name="viewport"' in text
    assert not re.search(r"(src|href)=|https?://|@import|url\(", text)
