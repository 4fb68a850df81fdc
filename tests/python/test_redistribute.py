"""Volumes and relabeling, without MPI. tests/mpi tests the operation on several ranks."""

from __future__ import annotations

import json
import time

import numpy as np
import penstock as ps
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from penstock.cli import main
from penstock.redistribute import assign_max_weight, volumes
from python.layout_strategies import layouts

scipy_optimize = pytest.importorskip("scipy.optimize")


def owners_of_elements(layout: ps.Layout) -> np.ndarray:
    ranks = np.zeros(layout.shape, np.int64)
    for rank in range(layout.ranks):
        size = layout.local_shape(rank)
        order = "C" if layout.storage == "row" else "F"
        ps.DistArray(layout, np.full(size, rank, np.int64, order=order), rank).to_global(ranks)
    return ranks


@settings(max_examples=150, deadline=None)
@given(st.data(), st.lists(st.integers(0, 10), min_size=1, max_size=3).map(tuple))
def test_volumes_and_relabeling_equal_the_optimum(data, shape):
    op = data.draw(st.sampled_from(["N", "T", "C"] if len(shape) == 2 else ["N"]))
    source = data.draw(layouts(shape))
    target = data.draw(layouts(shape if op == "N" else shape[::-1]))
    n = max(source.ranks, target.ranks)
    to = owners_of_elements(target)
    expected = np.zeros((n, n), np.int64)
    np.add.at(expected, (owners_of_elements(source), to if op == "N" else to.T), 1)

    rows = volumes(source, target, op)
    found = np.zeros((n, n), np.int64)
    found[rows[:, 0], rows[:, 1]] = rows[:, 2]
    np.testing.assert_array_equal(found, expected)

    relabeling = ps.relabel(source, target, np.float32, op)
    best_rows, best_columns = scipy_optimize.linear_sum_assignment(expected.T, maximize=True)
    assert relabeling.bytes_before == 4 * (expected.sum() - np.trace(expected))
    assert relabeling.bytes_after == 4 * (expected.sum() - expected.T[best_rows, best_columns].sum())
    assert sorted(relabeling.permutation) == list(range(n))
    relabeled = target.relabeled(relabeling.permutation)
    assert ps.relabel(source, relabeled, np.float32, op).bytes_before == relabeling.bytes_after


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 40), st.sampled_from([1, 2, 50, 10**6, 2**45]), st.integers(0, 2**32 - 1))
def test_assignments_equal_scipys(n, greatest, seed):
    weights = np.random.default_rng(seed).integers(-greatest // 2, greatest, (n, n), endpoint=True)
    columns = assign_max_weight(weights)
    assert sorted(columns) == list(range(n))
    expected = weights[scipy_optimize.linear_sum_assignment(weights, maximize=True)].sum()
    assert weights[np.arange(n), columns].sum() == expected


@pytest.mark.parametrize(
    "kind",
    ["uniform", "ties", "equal", "products", "minus products", "near a permutation", "remainders", "block-cyclic"],
)
def test_assignments_of_many_processes(kind):
    n = 400
    random = np.random.default_rng(5)
    i = np.arange(n)
    made = {
        "uniform": lambda: random.integers(0, 2**40, (n, n)),
        "ties": lambda: random.integers(0, 10, (n, n)),
        "equal": lambda: np.full((n, n), 2**30),
        "products": lambda: np.outer(i, i),
        "minus products": lambda: -np.outer(random.permutation(n), random.integers(0, 10**6, n)),
        "near a permutation": lambda: 10**6 * np.eye(n, dtype=np.int64)[random.permutation(n)] + np.outer(i, i) % 1000,
        "remainders": lambda: np.outer(i, i) % n,
    }
    if kind == "block-cyclic":
        source = ps.Layout.block_cyclic((4000, 4000), (13, 13), (20, 20))
        target = ps.Layout.block_cyclic((4000, 4000), (100, 70), (20, 20), "column")
        weights = np.zeros((n, n), np.int64)
        rows = volumes(source, target)
        weights[rows[:, 0], rows[:, 1]] = rows[:, 2]
    else:
        weights = np.ascontiguousarray(made[kind](), np.int64)
    begin = time.thread_time()
    columns = assign_max_weight(weights)
    ours = time.thread_time() - begin
    assert sorted(columns) == list(range(n))
    begin = time.thread_time()
    expected = weights[scipy_optimize.linear_sum_assignment(weights, maximize=True)].sum()
    # An exhaustive search of augmenting paths would take thousands of times as long.
    assert ours < 100 * (time.thread_time() - begin)
    assert weights[np.arange(n), columns].sum() == expected


@pytest.mark.parametrize("ranks", [*range(1, 131), 256, 1000, 1024])
def test_a_cyclic_shift_costs_nothing(ranks):
    source = ps.Layout.block_cyclic((23 * ranks + 5, 3), (7, 2), (ranks, 1))
    target = source.relabeled(np.roll(np.arange(ranks), 1))
    relabeling = ps.relabel(source, target)
    assert relabeling.bytes_after == 0
    assert relabeling.reduction_pct == (100.0 if ranks > 1 else 0.0)
    assert target.relabeled(relabeling.permutation) == source


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_relabeling_by_any_cost_equals_the_optimum(data):
    source = data.draw(layouts((11, 9)))
    target = data.draw(layouts((11, 9)))
    n = 5
    random = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    latency, per_byte = random.integers(0, 50, (2, n, n)).astype(float)
    nodes = np.array([0, 1, 0, 1, 1])
    far = nodes[:, None] != nodes[None, :]
    by_node = np.where(np.eye(n, dtype=bool), 0, np.where(far, 9.0, 1.0))
    transform = random.integers(0, 5, n)
    packages = np.zeros((n, n))
    for i, j, elems in volumes(source, target):
        packages[i, j] = 8 * elems
    used = (packages > 0).astype(float)
    cases = [
        (ps.TransferCost.pairs(latency, per_byte), used.T @ latency + packages.T @ per_byte),
        (ps.TransferCost.nodes(nodes, np.zeros((2, 2)), [[1, 9], [9, 1]]), packages.T @ by_node),
        (ps.TransferCost.function(lambda i, j, size: (i != j) * np.sqrt(size)), np.sqrt(packages).T @ (1 - np.eye(n))),
        (
            ps.TransferCost().with_transformation(transform),
            packages.T @ (1 - np.eye(n)) + packages.sum(0)[:, None] * transform,
        ),
    ]
    for cost, table in cases:
        found = ps.relabel(source, target, ranks=n, cost=cost)
        assert found.cost_before == pytest.approx(np.trace(table))
        assert found.cost_after == pytest.approx(table[scipy_optimize.linear_sum_assignment(table)].sum())
        assert found.cost_after == pytest.approx(table[np.arange(n), found.permutation].sum())


def test_a_relabeling_that_cannot_pay_is_skipped_and_says_so():
    source = ps.Layout.block_cyclic((4096, 4096), (1, 1), (16, 16))
    target = ps.Layout.block_cyclic((4096, 4096), (1, 1), (16, 16), "column")
    found = ps.relabel(source, target, policy="always")
    assert found.bytes_after == 0 and not found.skipped
    assert ps.relabel(source, target, policy="worthwhile") == found
    assert ps.relabel(source, target, policy="never").skipped


def test_volumes_of_an_endless_axis_do_not_take_for_ever():
    source = ps.Layout.block_cyclic((2**50, 1000), (1, 3), (32, 32))
    target = ps.Layout.block_cyclic((2**50, 1000), (128, 4), (32, 32), "column")
    assert volumes(source, target)[:, 2].sum() == 2**50 * 1000


def failing_cost(cost):
    return ps.relabel(ps.Layout.whole((2,)), ps.Layout.whole((2,)), cost=ps.TransferCost.function(cost))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ps.relabel(ps.Layout.whole((2, 3)), ps.Layout.whole((3, 2))), r"\(2, 3\) becomes \(2, 3\) under op N"),
        (lambda: ps.relabel(ps.Layout.whole((2, 3)), ps.Layout.whole((2, 3)), op="T"), r"\(2, 3\) becomes \(3, 2\)"),
        (lambda: ps.relabel(ps.Layout.whole((2,)), ps.Layout.whole((2,)), op="C"), "two dimensions"),
        (lambda: ps.relabel(ps.Layout.whole((2,)), ps.Layout.whole((2,)), op="X"), "'N', 'T' or 'C'"),
        (lambda: ps.relabel(ps.Layout.whole((2,)), "rows"), "the target is a str"),
        (lambda: assign_max_weight(np.zeros((2, 3))), r"6 weights given|\(2, 3\)"),
        (lambda: assign_max_weight(np.zeros(3)), r"\(n, n\)"),
        (lambda: ps.relabel(ps.Layout.whole((2,)), ps.Layout.whole((2,)), dtype="float31"), "float31"),
        (lambda: ps.relabel(ps.Layout.whole((2,)), ps.Layout.whole((2,)), policy="maybe"), "'maybe'.*'worthwhile'"),
        (lambda: ps.relabel(ps.Layout.whole((2,)), ps.Layout.whole((2,)), cost=3), "expected a TransferCost"),
        (lambda: ps.relabel_jointly([(ps.Layout.whole((2,)),) * 2]), "a tuple given .* expected RelabelTransfer"),
        (
            lambda: ps.relabel_jointly([ps.RelabelTransfer(*(ps.Layout.whole((2,)),) * 2, side="left")]),
            "side is 'left'; expected 'source' or 'target'",
        ),
        (lambda: ps.TransferCost.pairs([[1.0]], [[1.0, 2.0]]), r"\(1, 2\); expected \(n, n\)"),
        (lambda: failing_cost(lambda i, j, size: 1 / 0), "division by zero"),
        (lambda: failing_cost(lambda i, j, size: np.nan), "expected a finite number"),
    ],
)
def test_wrong_arguments_name_the_offence(make, message):
    with pytest.raises(ps.Error, match=message) as caught:
        make()
    assert caught.value.code == "invalid_argument"


def model_relabel(*arguments: str):
    return CliRunner().invoke(main, ["model", "relabel", *arguments])


def test_the_command_gives_figure_three():
    shape = ("--shape", "100000,100000", "--to", "10000,10000@10x10:col", "--json")
    last = json.loads(model_relabel(*shape, "--from", "10000,10000@10x10:row").output)
    assert last["bytes_before"] == 72 * 10**9
    assert last["bytes_after"] == 0
    assert last["reduction_pct"] == 100
    assert last["permutation"] == [10 * (r % 10) + r // 10 for r in range(100)]
    first = json.loads(model_relabel(*shape, "--from", "1,1@10x10:row").output)
    assert first["bytes_before"] == first["bytes_after"] == 792 * 10**8
    assert first["permutation"] == list(range(100))
    assert "100.0% less" in model_relabel(*shape[:-1], "--from", "10000,10000@10x10:row").output


def points_of(case: str) -> list[dict]:
    result = model_relabel("--case", case, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.output)["points"]


def test_the_cases_of_the_paper():
    third = points_of("figure-3")
    assert [third[0]["block"], third[-1]["block"]] == [1, 10_000]
    assert [third[0]["reduction_pct"], third[-1]["bytes_after"], third[-1]["messages"]] == [0, 0, 90]
    assert all(0 <= point["reduction_pct"] < 100 for point in third[:-1])
    middle = next(point for point in third if point["block"] == 5000)
    single = json.loads(
        model_relabel(
            "--shape", "100000,100000", "--from", "5000,5000@10x10:row", "--to", "10000,10000@10x10:col", "--json"
        ).output
    )
    assert [middle["bytes_before"], middle["bytes_after"]] == [single["bytes_before"], single["bytes_after"]]

    second = points_of("figure-2")
    assert {(point["op"], point["order"]) for point in second} >= {("N", 100), ("T", 100), ("N", 200_000)}
    assert all(point["bytes_after"] <= point["bytes_before"] < 8 * point["order"] ** 2 for point in second)
    # 100 rows are 4 blocks of 32, and one block of 128: one rank gets the part of 16.
    assert [(p["messages"], p["bytes_total"]) for p in second if p["order"] == 100] == [(15, 80_000)] * 2

    sixth = points_of("figure-6")
    assert [point["nodes"] for point in sixth] == [128, 128, 256, 256, 512, 512, 1024, 1024]
    for point in sixth:
        assert point["bytes_total"] == 8 * (2 * 3_473_408 * 17_408 + 17_408**2)
        assert 0 < point["bytes_after"] <= point["bytes_before"] < point["bytes_total"]
    assert all(point["reduction_pct"] > 1 for point in sixth if point["nodes"] >= 512)


@pytest.mark.parametrize("case", ["figure-2", "figure-3", "figure-6"])
def test_the_cases_are_drawn(case, tmp_path):
    pytest.importorskip("matplotlib")
    result = model_relabel("--case", case, "--plot", str(tmp_path / "case.png"))
    assert result.exit_code == 0, result.output
    assert (tmp_path / "case.png").read_bytes()[:4] == b"\x89PNG"
    assert "relabeled" in result.output
    assert model_relabel("--case", case, "--plot", str(tmp_path / "no" / "case.png")).exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--from", "1,1@1x1", "--to", "1,1@1x1"), "--shape is missing"),
        (("--case", "figure-3", "--shape", "1,1"), "has its own layouts"),
        (("--shape", "1,1", "--from", "1,1@1x1", "--to", "1,1@1x1", "--plot", "x.png"), "--plot draws a --case"),
        (("--shape", "10;10", "--from", "1,1@1x1", "--to", "1,1@1x1"), "--shape is '10;10'"),
        (("--shape", "10,10", "--from", "1,1", "--to", "1,1@1x1"), "--from is '1,1'"),
        (("--shape", "10,10", "--from", "1,1@1x1", "--to", "1@1x1"), "the block has 1"),
    ],
)
def test_the_command_says_what_is_wrong(arguments, message):
    result = model_relabel(*arguments)
    assert result.exit_code == 2
    assert message in result.output
