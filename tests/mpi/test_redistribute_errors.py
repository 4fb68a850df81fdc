"""Invalid redistributions: an error on all ranks, and no output changes."""

from __future__ import annotations

import numpy as np
import penstock as ps
import pytest
from mpi4py import MPI

WORLD = MPI.COMM_WORLD


def fails(comm: ps.Comm, at: int, call, code: str = "invalid_argument") -> ps.Error:
    """Raises on every rank: `code` on the rank with the error, its consequence on the others."""
    with pytest.raises(ps.Error) as caught:
        call()
    assert caught.value.code in ((code,) if comm.rank == at else ("peer_failed", "mismatch")), str(caught.value)
    return caught.value


WRONG_RUNS = {
    "too few elements": lambda b, a: ((b[:-1], a), {}),
    "too many elements": lambda b, a: ((b, np.zeros(a.size + 1)), {}),
    "another dtype": lambda b, a: ((b.astype(np.float32), a), {}),
    "a list": lambda b, a: ((list(b), a), {}),
    "another shape": lambda b, a: ((np.zeros((b.size, 2))[:, :1], a), {}),
    "elements in one place": lambda b, a: ((b, np.lib.stride_tricks.as_strided(a, a.shape, (0,))), {}),
    "two arrays": lambda b, a: (([b[:9], b[9:]], a), {}),
    "no workspace": lambda b, a: ((b, a), {"workspace": 5}),
    "a read-only workspace": lambda b, a: ((b, a), {"workspace": bytes(1 << 20)}),
    "a workspace in the target": lambda b, a: ((b, a[4:]), {"workspace": a}),
    "read-only": lambda b, a: ((b, np.frombuffer(bytes(8 * a.size))), {}),
    "an imaginary factor": lambda b, a: ((b, a), {"alpha": 1j}),
    "no source": lambda b, a: ((None, a), {}),
    "no target": lambda b, a: ((b, None), {}),
    "no alpha": lambda b, a: ((b, a), {"alpha": None}),
    "no factor": lambda b, a: ((b, a), {"beta": "two"}),
    "overlapping memory": lambda b, a: ((a, a) if a.size == b.size and a.size else (b[1:], a), {}),
    "another layout": lambda b, a: ((ps.DistArray(ps.Layout.block_cyclic((b.size,), (5,), (1,)), b), a), {}),
}


@pytest.mark.parametrize("what", WRONG_RUNS)
@pytest.mark.parametrize("at", [0, -1])
def test_wrong_run_on_one_rank_moves_nothing(comm: ps.Comm, what: str, at: int) -> None:
    at %= comm.size
    source = ps.Layout.even((24 * comm.size,), comm.size)
    target = ps.Layout.block_cyclic((24 * comm.size,), (2,), (comm.size,))
    plan = comm.plan_redistribute(source, target, np.float64)
    b = np.arange(24.0) + comm.rank
    a = np.full(24, -1.0)
    arguments, factors = WRONG_RUNS[what](b, a) if comm.rank == at else ((b, a), {})
    error = fails(comm, at, lambda: plan.run(*arguments, **factors))
    assert str(error)
    assert (a == -1).all(), "nothing has been written"
    plan.run(b, a)
    everything = np.concatenate([np.arange(24.0) + r for r in range(comm.size)])
    np.testing.assert_array_equal(a, ps.DistArray.from_global(target, everything, comm.rank).local)


def test_wrong_calls_without_a_plan(comm: ps.Comm) -> None:
    source = ps.Layout.even((11, 3), comm.size)
    target = ps.Layout.block_cyclic((3, 11), (1, 2), (1, comm.size))
    b = np.arange(33.0).reshape(11, 3)
    a = ps.DistArray.zeros(target, "float64", comm.rank)
    for wrong in ("rows", ps.DistArray.zeros(source, "float64", comm.rank + 1)):
        given = wrong if comm.rank == comm.size - 1 else ps.DistArray.from_global(source, b, comm.rank)
        error = fails(comm, comm.size - 1, lambda given=given: comm.redistribute(given, a, "T"))
        assert "expected a penstock.DistArray" in str(error) or "the part of rank" in str(error)
    if comm.size > 1:
        other = ps.DistArray.zeros(target, "float32", comm.rank) if comm.rank == 0 else a
        with pytest.raises(ps.Error) as caught:
            comm.redistribute(ps.DistArray.from_global(source, b, comm.rank), other, "T")
        assert caught.value.code in ("mismatch", "peer_failed")
    assert not a.local.any(), "nothing has been written"
    comm.redistribute(ps.DistArray.from_global(source, b, comm.rank), a, "T")
    np.testing.assert_array_equal(a.local, ps.DistArray.from_global(target, b.T, comm.rank).local)


def test_shapes_are_named(comm: ps.Comm) -> None:
    layout = ps.Layout.block_cyclic((4 * comm.size, 6), (4, 6), (comm.size, 1))
    plan = comm.plan_redistribute(layout, layout, np.float64)
    for wrong in (np.zeros((6, 4)), np.zeros((6, 4), order="F")):
        error = fails(
            comm, 0, lambda wrong=wrong: plan.run(wrong if comm.rank == 0 else np.zeros((4, 6)), np.zeros((4, 6)))
        )
        assert "(6, 4)" in str(error)
        assert "(4, 6)" in str(error)


WRONG_PLANS = {
    "shape": (lambda s, t: (s, ps.Layout.whole((7, 9)), "f8"), "invalid_argument"),
    "ranks": (lambda s, t: (s, ps.Layout.even((6, 8), 64), "f8"), "invalid_argument"),
    "dtype": (lambda s, t: (s, t, "float31"), "invalid_argument"),
    "op": (lambda s, t: (s, t, "f8", "X"), "invalid_argument"),
    "no layout": (lambda s, t: (s, "rows", "f8"), "invalid_argument"),
    "no choice": (lambda s, t: (s, t, "f8", "N", np.zeros(3)), "invalid_argument"),
    "other source": (lambda s, t: (ps.Layout.whole((6, 8)), t, "f8"), "mismatch"),
    "other target": (lambda s, t: (s, ps.Layout.whole((6, 8)), "f8"), "mismatch"),
    "other dtype": (lambda s, t: (s, t, "f4"), "mismatch"),
    "other op": (lambda s, t: (s, ps.Layout.whole((8, 6)), "f8", "T"), "mismatch"),
    "other relabel": (lambda s, t: (s, t, "f8", "N", True), "mismatch"),
}


@pytest.mark.parametrize("what", WRONG_PLANS)
def test_wrong_plan_on_one_rank(comm: ps.Comm, what: str) -> None:
    if comm.size == 1 and WRONG_PLANS[what][1] == "mismatch":
        pytest.skip("one rank cannot disagree")
    at = comm.size - 1
    source = ps.Layout.block_cyclic((6, 8), (1, 1), (comm.size, 1))
    target = ps.Layout.block_cyclic((6, 8), (2, 2), (1, comm.size))
    change, code = WRONG_PLANS[what]
    arguments = change(source, target) if comm.rank == at else (source, target, "f8")
    with pytest.raises(ps.Error) as caught:
        comm.plan_redistribute(*arguments)
    if code == "mismatch":
        assert caught.value.code == "mismatch"
        assert caught.value.rank == at
    else:
        assert caught.value.code == (code if comm.rank == at else "peer_failed")
    WORLD.Barrier()
    assert comm.plan_redistribute(source, target, "f8").bytes_before >= 0


def test_wrong_batches_are_errors_everywhere(comm: ps.Comm) -> None:
    layout = ps.Layout.even((8,), comm.size)
    for arguments, message in (
        (([layout, layout], [layout], np.float64), "2 sources and 1 targets"),
        (([], [], np.float64), "without pairs"),
        (([layout], [3], np.float64), "a int given"),
        (([layout], 3, np.float64), "lists of sources and targets"),
        (([layout], [layout], "float31"), "float31"),
        (([layout], [ps.Layout.whole((9,))], np.float64), "becomes"),
    ):
        with pytest.raises(ps.Error, match=message):
            comm.plan_redistribute(*arguments)
    batch = comm.plan_redistribute([layout, layout], [layout, layout], np.float64)
    parts = [ps.DistArray.zeros(layout, np.float64, comm.rank) for _ in range(4)]
    parts[0].local[...] = 1
    at = comm.size - 1
    small = ps.DistArray.zeros(layout, np.float32, comm.rank)
    for wrong in (
        (parts[:1], parts[2:]),
        (None, parts[2:]),
        ([parts[0], small], parts[2:]),
        (parts[:2], parts[1:3]),
        (parts[:2], [parts[2]] * 2),
    ):
        fails(comm, at, lambda wrong=wrong: batch.run(*(wrong if comm.rank == at else (parts[:2], parts[2:]))))
        assert not parts[2].local.any(), "nothing has been written"
    batch.run(parts[:2], parts[2:])
    assert parts[2].local.all()
    assert not parts[3].local.any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shape": (9, 1)}, "does not lie in dimension 0"),
        ({"source_begin": (1, 1)}, "given without shape"),
        ({"shape": (2,)}, "dimensions"),
        ({"source_leading": "x"}, "whole numbers|failed"),
        ({"source_leading": 1}, "leading dimension is 1|wrong arguments|failed"),
        ({"target_begin": "x", "shape": (1, 1)}, "whole numbers|failed"),
    ],
)
def test_wrong_subarrays_are_errors(comm: ps.Comm, options: dict, message: str) -> None:
    layout = ps.Layout.block_cyclic((8, 8), (8, 2), (1, comm.size), storage="column")
    with pytest.raises(ps.Error, match=message):
        comm.plan_redistribute(layout, layout, np.float64, **options)


def test_ranks_must_agree_on_the_part(comm: ps.Comm) -> None:
    if comm.size == 1:
        pytest.skip("needs two ranks")
    layout = ps.Layout.whole((8, 8), ranks=comm.size)
    with pytest.raises(ps.Error, match="subarray to be moved of rank") as caught:
        comm.plan_redistribute(layout, layout, np.float64, shape=(2, 1 + min(comm.rank, 1)))
    assert caught.value.code == "mismatch"


def test_a_freed_communicator_says_so() -> None:
    comm = ps.Comm(WORLD)
    layout = ps.Layout.even((WORLD.size,), WORLD.size)
    part = ps.DistArray.zeros(layout, np.float64, WORLD.rank)
    comm.free()
    for call in (
        lambda: comm.redistribute(part, part),
        lambda: comm.plan_redistribute(layout, layout, np.float64),
        lambda: comm.plan_redistribute([layout], [layout], np.float64),
    ):
        with pytest.raises(ps.Error, match="freed"):
            call()
