"""Plans from Python and from the command line."""

from __future__ import annotations

import json
from typing import Any

import penstock as ps
import pytest
from click.testing import CliRunner
from penstock import plan
from penstock.cli import main


def test_every_algorithm_can_be_planned_and_is_correct():
    rows = plan.algorithms()
    assert {row.collective for row in rows} >= {
        "bcast",
        "reduce",
        "allreduce",
        "gather",
        "scatter",
        "allgather",
        "barrier",
    }
    for row in rows:
        count = 0 if row.collective == "barrier" else 100
        try:
            plans = plan.collective(row.collective, 8, count, "float32", algorithm=row.name)
        except ps.Error as error:
            assert "does not fit" in str(error)
            plans = plan.collective(row.collective, 8, count, "float32", algorithm=row.name, nodes=2)
        assert plans.algorithm == row.name
        assert plans.findings == []


def test_a_plan_is_data():
    plans = plan.collective("bcast", 2, 10, "int64", algorithm="binomial")
    (send,) = plans[0]["steps"]
    (recv,) = plans[1]["steps"]
    assert (send["kind"], send["peer"], send["from"]["size_bytes"]) == ("send", 1, 80)
    assert (recv["kind"], recv["peer"], recv["to"]["size_bytes"]) == ("recv", 0, 80)
    assert "send output[0, 80) to 1" in plans.text(0)
    assert "r0s0 -> r1s0" in plans.dot()
    with pytest.raises(IndexError):
        plans[2]


def test_the_choice_depends_on_the_team():
    assert plan.collective("allreduce", 4, 8).algorithm == "shared"
    assert plan.collective("allreduce", 4, 8, nodes=2).algorithm == "leader_doubling"
    assert plan.collective("allreduce", 4, 8, nodes=[7, 7, 3, 3]).nodes == [0, 0, 1, 1]
    assert plan.collective("allreduce", 4, 8, nodes=2).reason


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        ({"kind": "alltoallx", "ranks": 2}, "unknown collective 'alltoallx'"),
        ({"kind": "bcast", "ranks": 0}, "ranks is 0"),
        ({"kind": "bcast", "ranks": 2, "root": 2}, "root is 2"),
        ({"kind": "bcast", "ranks": 2, "nodes": 3}, "nodes is 3"),
        ({"kind": "bcast", "ranks": 2, "nodes": [0]}, "1 ranks; expected 2"),
        ({"kind": "bcast", "ranks": 2, "count": -1}, "count is -1"),
        ({"kind": "reduce", "ranks": 2, "dtype": "float32", "op": "bor"}, "bor is not defined"),
        ({"kind": "reduce", "ranks": 2, "dtype": "datetime64[s]"}, "unknown dtype"),
        ({"kind": "allgather", "ranks": 3, "algorithm": "recursive_doubling"}, "expected one of bruck, ring"),
    ],
)
def test_wrong_arguments(request_, text):
    with pytest.raises(ps.Error, match=text) as caught:
        plan.collective(**request_)
    assert caught.value.code == "invalid_argument"


def run(*words: str) -> str:
    result = CliRunner().invoke(main, ["plan", *words])
    assert result.exit_code == 0, result.output
    return result.output


def test_the_command_prints_text_json_and_dot():
    words = ("show", "allreduce", "--ranks", "3", "--count", "9", "--algorithm", "ring")
    assert "allreduce/ring, rank 2 of 3" in run(*words)
    assert "rank 0 of 3" not in run(*words, "--rank", "1")
    facts = json.loads(run(*words, "--json"))
    assert facts["algorithm"] == "ring"
    assert facts["findings"] == []
    assert [one["rank"] for one in facts["plans"]] == [0, 1, 2]
    assert run(*words, "--dot").startswith("digraph")


def test_the_command_lists_algorithms():
    assert "allgather/bruck" in run("list", "allgather")
    assert len(json.loads(run("list", "--json"))["algorithms"]) == len(plan.algorithms())


def test_the_command_explains_mistakes():
    result = CliRunner().invoke(main, ["plan", "show", "allreduce", "--algorithm", "magic"])
    assert result.exit_code != 0
    assert "no algorithm 'magic'" in result.output


def test_the_split_places_the_last_levels():
    plans = plan.collective("reduce", 8, 100, "float32", split=2, progress_cores=1)
    assert (plans.algorithm, plans.findings) == ("tree", [])
    lanes = {task["level"]: task["lane"] for task in plans[0]["tasks"]}
    assert lanes == {1: "progress", 2: "application", 3: "application"}
    assert plans.dot().count("shape=ellipse") == len(plans[0]["tasks"]) == 7
    shown = CliRunner().invoke(main, ["plan", "show", "bcast", "--ranks", "4", "--split", "9", "--rank", "0"])
    assert shown.exit_code == 0 and shown.output.count("application]") == 3
    for wrong in ({"split": -2}, {"radix": 1}, {"progress_cores": -1}):
        with pytest.raises(ps.Error, match=next(iter(wrong))):
            plan.collective("reduce", 8, 100, "float32", **wrong)


def test_reproducible_reductions_sort_what_they_combine() -> None:
    plans = plan.collective("allreduce", 6, 100_000, "float32", reproducible=True, nodes=2)
    assert plans.algorithm == "sorted"
    assert plans.findings == []
    assert "reduce_sorted" in plans.text(0)
    assert plan.collective("allreduce", 6, 100_000, "int32", reproducible=True, nodes=2).algorithm != "sorted"


def test_algorithms_are_ranked_by_simulated_time() -> None:
    short = plan.rank("allreduce", 64, 2, "float32", nodes=64, network="rdma-100g")
    long = plan.rank("allreduce", 64, 4_000_000, "float32", nodes=64, network="rdma-100g")
    for ranking in (short, long):
        assert [row.seconds for row in ranking] == sorted(row.seconds for row in ranking)
        assert ranking[0].seconds > 0
    assert {row.name for row in short} >= {"ring", "recursive_doubling", "rabenseifner"}
    place = {row.name: at for at, row in enumerate(short)}
    assert place["recursive_doubling"] < place["ring"]
    place = {row.name: at for at, row in enumerate(long)}
    assert place["ring"] < place["recursive_doubling"]
    assert {row.name for row in plan.rank("reduce", 4, 9, "float32", reproducible=True, network="tcp-1g")} == {
        "sorted",
        "sorted_short",
        "divided",
    }
    with pytest.raises(ps.Error, match="tcp-10g"):
        plan.rank("bcast", 4, network="pigeon")
    with pytest.raises(ps.Error, match="root"):
        plan.rank("bcast", 4, root=9, network="tcp-1g")


def test_a_known_network_decides_between_nodes() -> None:
    request: dict[str, Any] = {"ranks": 64, "count": 250_000, "dtype": "float32", "nodes": 8}
    seconds = {row.name: row.seconds for row in plan.rank("reduce", **request, network="rdma-100g")}
    unknown = plan.collective("reduce", **request)
    known = plan.collective("reduce", **request, network="rdma-100g")
    assert seconds[known.algorithm] == min(seconds.values()) < 0.5 * seconds[unknown.algorithm]
    assert known.findings == []
    assert "least cost" in known.reason and "least cost" not in unknown.reason
    with pytest.raises(ps.Error, match="tcp-10g"):
        plan.collective("reduce", 4, network="pigeon")


def test_neighbourhoods_have_a_grid() -> None:
    assert plan.collective("neighbor_alltoall", 4, 3, "int32").algorithm == "shared"
    ring = plan.collective("neighbor_alltoall", 4, 3, "int32", algorithm="direct")
    assert (ring.algorithm, ring.findings) == ("direct", [])
    assert [step["peer"] for step in ring[1]["steps"] if step["kind"] == "send"] == [0, 2]
    line = plan.collective("neighbor_allgather", 4, 3, "int32", algorithm="direct", grid=[2, 2], periodic=False)
    assert [step["peer"] for step in line[3]["steps"] if step["kind"] == "recv"] == [1, 2]
    with pytest.raises(ps.Error, match="the graph has 4 ranks"):
        plan.collective("neighbor_allgather", 5, 3, grid=[2, 2])
    with pytest.raises(ps.Error, match="only neighbourhood collectives"):
        plan.collective("allgather", 4, 3, grid=[2, 2])
    nodes = [0] * 4 + [1] * 4 + [2] * 4 + [3] * 4
    assert plan.collective("neighbor_alltoall", 16, 8, nodes=nodes, grid=[4, 4]).algorithm == "direct"
    text = run("show", "neighbor_alltoall", "--ranks", "6", "--nodes", "2", "--grid", "3x2", "--open", "--rank", "0")
    assert text.startswith("neighbor_alltoall/")
    assert "0 findings" in text
    assert [row.name for row in plan.rank("neighbor_allgather", 8, 10, nodes=2, network="tcp-1g")]


def test_the_command_ranks_algorithms() -> None:
    request = ["show", "bcast", "--ranks", "6", "--nodes", "3", "--simulate", "tcp-10g"]
    lines = run(*request).splitlines()
    assert lines[0].startswith("bcast on tcp-10g, simulated; chosen: ")
    facts = json.loads(run(*request, "--json"))
    assert [line.split()[0] for line in lines[1:]] == [row["name"] for row in facts["ranking"]]
    assert facts["ranking"][0]["seconds"] > 0


def test_the_command_says_what_the_time_is_spent_on() -> None:
    request = ["show", "reduce", "--ranks", "64", "--nodes", "8", "--count", "250000", "--simulate", "rdma-100g"]
    ranking = json.loads(run(*request, "--json"))["ranking"]
    lines = run(*request, "--why").splitlines()[1:]
    assert len(lines) == len(ranking) > 3
    for row, line in zip(ranking, lines, strict=True):
        assert sum(row["terms"].values()) == pytest.approx(row["seconds"])
        longest = max(row["terms"], key=row["terms"].get)
        assert line.split(" us = ")[1].startswith(f"{longest} {row['terms'][longest] * 1e6:.1f}")
    at_the_root = next(row for row in ranking if row["name"] == "sorted_short")  # it alone combines all contributions
    assert at_the_root["terms"]["combine"] > 0.9 * at_the_root["seconds"]
    refused = CliRunner().invoke(main, ["plan", "show", "reduce", "--why"])
    assert refused.exit_code != 0 and "--simulate" in refused.output + str(refused.exception)


def test_the_command_ranks_by_cost() -> None:
    team: dict[str, Any] = {"ranks": 24, "count": 100_000, "nodes": 6}
    simulated = {row.name: row for row in plan.rank("allreduce", **team, network="omni-path")}
    by_cost = plan.rank("allreduce", **team, network="omni-path", by="cost")
    assert len(by_cost) > 8 and {row.name for row in by_cost} <= set(simulated)
    for row in by_cost:
        assert row.seconds == pytest.approx(simulated[row.name].seconds, rel=0.1)
        assert sum(row.terms.values()) == pytest.approx(row.seconds)
    with pytest.raises(ps.Error, match="by is 'guess'"):
        plan.rank("allreduce", **team, network="omni-path", by="guess")  # type: ignore[arg-type]

    request = ["show", "allreduce", "--ranks", "24", "--nodes", "6", "--count", "100000", "--dtype", "uint8"]
    first, *lines, last = run(*request, "--network", "omni-path", "--why").splitlines()
    assert first.startswith("allreduce on omni-path, by cost; chosen: ") and "least cost" in first
    assert [line.split()[0] for line in lines] == [row.name for row in by_cost]
    assert all(" us = " in line for line in lines)
    assert last.startswith("without a cost") and "staged" in last
    assert "least cost" in run(*request, "--network", "omni-path", "--rank", "0")
    both = CliRunner().invoke(main, ["plan", *request, "--network", "tcp-1g", "--simulate", "tcp-1g"])
    assert both.exit_code != 0 and "one of them" in both.output + str(both.exception)
