"""The tuner's arithmetic and its table; tests/mpi/test_tuning.py runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from penstock import tuning
from penstock.error import Error
from penstock.tuning import search
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
    point = {"native_s": 2e-6, "candidates": [{"algorithm": "chain", "segment_bytes": 64, "seconds": seconds}]}
    return tuning.Outcome({"placement": placement}, {}, {"bcast": {8: point}}, {})


def test_a_table_keeps_the_parts_for_other_runs(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    for placement, seconds in (("a", 1e-6), ("b", 2e-6), ("a", 3e-6)):
        tuning.write_table(path, outcome(placement, seconds))
    tables = {part["placement"]: part for part in json.loads(path.read_text())["tables"]}
    assert sorted(tables) == ["a", "b"]
    assert tables["a"]["operations"][0]["points"][0]["candidates"][0]["nanoseconds"] == 3000
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
    assert found.noise() == pytest.approx(1 / 9)
    assert found.within(noise=found.noise()) == (1, 1)
    found.halves = {"bcast": {8: 1.2}}
    assert found.within(known=0.03) == (0, 0)
    found.exhaustive = {"bcast": {8: {"chain:64": 1.02e-6, "ring:0": 1.0e-6}}}
    assert found.strict() == (1, 1)
    assert found.strict(0.01) == (0, 1)
    assert search.disagreement({"a": 1.0, "b": 1.5}, {"a": 2.0, "b": 1.0}) == 2.0


def test_the_report_shows_what_was_found(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from penstock.tuning.report import write

    found = outcome("0*2 <1*2>", 1e-6)
    found.predicted = {"bcast": {8: {"chain:64": 1.1e-6}}}
    found.exhaustive = {"bcast": {8: {"chain:64": 1.02e-6, "binomial:0": 1.0e-6}}}
    found.referee = {"bcast": {8: {"chosen": 1.02e-6, "best": 1.0e-6, "best again": 1.0e-6}}}
    found.seconds = {"predicting": 1.5, "validating": 0.5, "exhaustive search": 40.0}
    write(found, str(tmp_path / "report.html"))
    text = (tmp_path / "report.html").read_text()
    assert text.count("<svg") == 3
    assert "figure 4" in text
    assert "0*2 &lt;1*2&gt;" in text
    assert "within 3% of the exhaustive best at 1 of 1 points" in text
    assert "took 5.0% of the time" in text
