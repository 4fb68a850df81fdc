"""The split-tree model from Python and from the command line."""

from __future__ import annotations

import json

import penstock as ps
import pytest
from click.testing import CliRunner
from penstock import model
from penstock.cli import main

COSTS = {"application_s": {"latency": 1e-6, "per_byte": 1e-10}, "progress_s": {"latency": 4e-6, "per_byte": 4e-10}}


def invoke(*words: str):
    return CliRunner().invoke(main, ["model", "split", *words])


@pytest.fixture
def costs_file(tmp_path):
    path = tmp_path / "costs.json"
    path.write_text(json.dumps(COSTS), encoding="utf-8")
    return path


# Paper 000, sections 4 and 6.
@pytest.mark.parametrize("op", ["reduce", "bcast"])
def test_the_switching_points_are_those_of_the_paper(op):
    advice = ps.model.split(cores=64, op=op)
    ranges = [(first.n, last.n, first.best_s) for first, last in advice.ranges()]
    assert ranges == [(1, 51, 0), (52, 57, 1), (58, 61, 2), (62, 63, 3), (64, 64, 6)]
    assert (advice.best.n, advice.best.best_s) == (51, 0)
    assert advice.best.best_t == pytest.approx(7.529, abs=5e-4)


@pytest.mark.parametrize("op", ["bcast", "reduce", "gather", "scatter", "allreduce"])
@pytest.mark.parametrize("cores", [2, 3, 17])
def test_every_point_is_consistent(op, cores):
    advice = model.split(cores, op, ratio=2.5, radix=3)
    assert [point.n for point in advice.points] == list(range(1, cores + 1))
    for point in advice.points:
        assert point.n + point.progress_cores == cores
        assert len(point.t) == len(point.t_communication)
        assert point.best_t == min(point.t)
        assert point.compute == pytest.approx(2.5 * advice.points[-1].t_blocking * cores / point.n)
        assert all(
            point.compute <= t <= point.compute + alone + 1e-9 for t, alone in zip(point.t, point.t_communication)
        )
        assert point.t_divided >= point.compute
    assert advice.best.best_t == min(point.best_t for point in advice.points)
    assert advice.best_divided.t_divided == min(point.t_divided for point in advice.points)


def test_measured_costs_give_seconds(costs_file):
    advice = model.split(16, "reduce", nbytes=2 << 20, costs=costs_file)
    application, progress = (1e-6 + 1e-10 * (2 << 20)), (4e-6 + 4e-10 * (2 << 20))
    assert advice.unit == "s"
    assert advice.points[-1].t_blocking == pytest.approx(4 * application)
    assert advice.points[14].t_communication[1] == pytest.approx(application + 7 * progress)
    assert model.split(16, nbytes=2 << 20, costs=model.StepCosts.load(costs_file)) == advice


def test_cores_that_have_computed_can_help():
    alone = model.split(16, "reduce", ratio=0.3)
    helped = model.split(16, "reduce", ratio=0.3, waiting_helps=True)
    assert (alone.waiting_helps, helped.waiting_helps) == (False, True)
    assert helped.best.best_t < alone.best.best_t
    assert all(ours.best_t <= theirs.best_t for ours, theirs in zip(helped.points, alone.points))
    assert json.loads(invoke("--cores", "16", "--waiting-helps", "--json").output)["waiting_helps"] is True


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        ({"cores": 1}, "1 cores; expected at least 2"),
        ({"cores": 0}, "expected at least"),
        ({"cores": 1 << 40}, "whole numbers below"),
        ({"cores": 8.5}, "whole numbers below"),
        ({"cores": 8, "op": "sort"}, "unknown collective 'sort'"),
        ({"cores": 8, "op": "allgather"}, "expected one that follows a tree: bcast, reduce"),
        ({"cores": 8, "radix": 1}, "radix is 1; expected at least 2"),
        ({"cores": 8, "ratio": 0}, "ratio is 0"),
        ({"cores": 8, "ratio": -1.5}, "ratio is -1.5"),
        ({"cores": 8, "ratio": float("nan")}, "ratio is nan"),
        ({"cores": 8, "ratio": "much"}, "ratio is 'much'"),
        ({"cores": 8, "nbytes": -1}, "nbytes is -1"),
        ({"cores": 8, "costs": ((1, 1), (1, 1))}, "say how many in nbytes"),
        ({"cores": 8, "nbytes": 8, "costs": ((-1, 1), (1, 1))}, "latency is -1"),
    ],
)
def test_wrong_arguments(request_, text):
    with pytest.raises(ps.Error, match=text) as caught:
        model.split(**request_)
    assert caught.value.code == "invalid_argument"


@pytest.mark.parametrize(
    ("content", "text", "code"),
    [
        (None, "cannot read the costs", "io"),
        ("{", "not JSON", "corrupt"),
        ("[]", 'no number "latency" of "application_s"', "corrupt"),
        ('{"application_s": {"latency": 1, "per_byte": "x"}}', 'no number "per_byte" of "application_s"', "corrupt"),
        ('{"application_s": {"latency": 1, "per_byte": 1}}', 'no number "latency" of "progress_s"', "corrupt"),
    ],
)
def test_wrong_costs(tmp_path, content, text, code):
    path = tmp_path / "costs.json"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    with pytest.raises(ps.Error, match=text) as caught:
        model.split(8, nbytes=8, costs=path)
    assert caught.value.code == code


def test_the_command_prints_json_and_a_table(costs_file):
    facts = json.loads(invoke("--cores", "64", "--op", "reduce", "--json").output)
    assert facts["best"] == {"n": 51, "s": 0, "t": pytest.approx(7.529, abs=5e-4)}
    assert [point["n"] for point in facts["points"]] == list(range(1, 65))
    assert facts["points"][56]["best_s"] == 1
    assert facts["points"][56]["t"][1] == pytest.approx(64 * 6 / 57 + 1)
    assert facts["points"][56]["t_blocking"] == 6
    table = invoke("--cores", "64").output
    assert "52 … 57        1   8.385 … 7.737" in table
    assert "best      7.529 with 51 ranks and S = 0" in table
    assert "times in ms" in invoke("--cores", "8", "--bytes", "4096", "--costs", str(costs_file)).output


def test_the_command_explains_mistakes():
    for words, text in (
        (("--cores", "1"), "expected at least 2"),
        (("--cores", "8", "--ratio", "-1"), "ratio is -1"),
        (("--cores", "8", "--op", "alltoall"), "'bcast', 'reduce'"),
        (("--cores", "8", "--plot", "/nonexistent/plot.png"), "/nonexistent/plot.png"),
    ):
        result = invoke(*words)
        assert result.exit_code != 0
        assert text in result.output


def test_the_command_draws(tmp_path):
    pytest.importorskip("matplotlib")
    for op, cores in (("reduce", 64), ("gather", 12), ("allreduce", 2)):
        path = tmp_path / f"{op}.png"
        result = invoke("--cores", str(cores), "--op", op, "--plot", str(path))
        assert result.exit_code == 0, result.output
        assert path.read_bytes().startswith(b"\x89PNG")


def test_a_plot_without_matplotlib_says_what_is_missing(monkeypatch, tmp_path):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    result = invoke("--cores", "8", "--plot", str(tmp_path / "plot.png"))
    assert result.exit_code != 0
    assert result.exit_code == 1
    (line,) = result.output.splitlines()
    assert "pip install 'penstock[plot]'" in line
