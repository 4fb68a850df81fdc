"""The options of a collective (split, radix, algorithm, segment_bytes) never change its result."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import penstock as ps
import pytest
from forms import FORMS, call
from mpi4py import MPI

WORLD = MPI.COMM_WORLD
OPERATIONS = ("Bcast", "Reduce", "Allreduce", "Gather", "Scatter")
SPLITS = (*range(6), "auto")
COUNTS = (1, 1000, 70001)


@pytest.fixture(scope="module", params=["off", "forced"])
def comm(request: pytest.FixtureRequest) -> Iterator[ps.Comm]:
    """Without a communication core everything runs inside the calls; with one, the upper tree levels do not."""
    with ps.Comm(WORLD, progress_cores=0 if request.param == "off" else 1) as made:
        yield made


def contributions(rng: np.random.Generator, count: int) -> np.ndarray:
    """One row per rank of integers that are exact in any order of additions."""
    return rng.integers(-50, 50, size=(WORLD.size, count)).astype(np.float32)


def check(comm: ps.Comm, form: str, name: str, every: np.ndarray, root: int, in_place: bool, how: dict) -> None:
    """`in_place` if a second run with the same buffers gives the same result; so not for persistent reductions."""
    mine, at_root = every[comm.rank].copy(), comm.rank == root
    result: np.ndarray | None = None
    expected: Any = None
    if name == "Bcast":
        result, expected = (mine if at_root else np.full_like(mine, 99)), every[root]
        arguments: tuple = (result, root)
    elif name in ("Reduce", "Allreduce"):
        everywhere = name == "Allreduce"
        result = (mine if in_place else np.full_like(mine, 99)) if everywhere or at_root else None
        send = MPI.IN_PLACE if in_place and result is not None else mine
        arguments = (send, result, MPI.SUM) if everywhere else (send, result, MPI.SUM, root)
        expected = every.sum(axis=0)
    elif name == "Gather":
        if at_root:
            result, expected = np.full_like(every, 99), every
            result[root] = mine
        arguments = (MPI.IN_PLACE if in_place and at_root else mine, result, root)
    else:
        expected = every[comm.rank]
        result = None if in_place and at_root else np.full_like(mine, 99)
        arguments = (every.copy() if at_root else None, MPI.IN_PLACE if result is None else result, root)
    call(comm, form, name, *arguments, **how)
    if result is not None:
        np.testing.assert_array_equal(result, expected, err_msg=f"{form} {name}, root {root}, {how}")


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("name", OPERATIONS)
def test_every_split(comm: ps.Comm, rng: np.random.Generator, name: str, split: int | str) -> None:
    for count in COUNTS:
        every = contributions(rng, count)
        for form, in_place in itertools.product(FORMS, (False, True)):
            if not in_place or form != "persistent" or "educe" not in name:
                check(comm, form, name, every, int(rng.integers(WORLD.size)), in_place, {"split": split})


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_root(comm: ps.Comm, rng: np.random.Generator, name: str) -> None:
    every = contributions(rng, 20011)
    for root in range(WORLD.size):
        check(comm, "nonblocking", name, every, root, False, {"split": 1})


@pytest.mark.parametrize("how", [{"radix": 3}, {"radix": 4, "split": 1}, {"radix": 1000, "split": 10**12}])
@pytest.mark.parametrize("name", OPERATIONS)
def test_radix_and_what_is_beyond_the_tree(
    comm: ps.Comm, rng: np.random.Generator, name: str, how: dict[str, int]
) -> None:
    for form in FORMS:
        check(comm, form, name, contributions(rng, 3001), WORLD.size - 1, False, how)


@pytest.mark.parametrize("algorithm", ["tree", "divided", "binomial"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_algorithm_and_segments(comm: ps.Comm, rng: np.random.Generator, name: str, algorithm: str) -> None:
    how = {"algorithm": algorithm, "segment_bytes": 4096}
    try:
        plan = comm.explain(name.lower(), 80044, dtype="float32", **how)
    except ps.Error as error:  # ranks on different nodes, or no single copy on the node
        assert algorithm != "binomial", str(error)
        pytest.skip(str(error))
    assert plan["algorithm"] == f"{name.lower()}/{algorithm}"
    for form in FORMS:
        check(comm, form, name, contributions(rng, 20011), WORLD.size - 1, False, how)


def test_unknown_algorithm(comm: ps.Comm) -> None:
    with pytest.raises(ps.Error, match=r"no algorithm 'fastest'.*binomial"):
        comm.explain("bcast", 8, algorithm="fastest")


def test_different_splits_in_flight(comm: ps.Comm, rng: np.random.Generator) -> None:
    """Operations that differ only in these options do not mix."""
    every = contributions(rng, 20000)
    totals = [np.zeros(20000, np.float32) for _ in SPLITS]
    requests = [comm.Iallreduce(every[comm.rank], total, split=split) for total, split in zip(totals, SPLITS)]
    for request in reversed(requests):
        request.Wait()
    for total in totals:
        np.testing.assert_array_equal(total, every.sum(axis=0))


WRONG = [
    ({"split": -1}, r"split is -1; expected \"auto\" or a whole number from 0"),
    ({"split": "all"}, "split is 'all'"),
    ({"split": 1.0}, "split is 1.0"),
    ({"split": True}, "split is True"),
    ({"split": None}, "split is None"),
    ({"radix": 1}, "radix is 1; expected a whole number from 2"),
    ({"segment_bytes": -8}, "segment_bytes is -8"),
    ({"algorithm": 3}, "algorithm=3"),
    ({"spilt": 1}, "unexpected spilt=1"),
]


@pytest.mark.parametrize(("how", "says"), WRONG)
@pytest.mark.parametrize("form", FORMS)
def test_wrong_on_one_rank_is_an_error_on_all(comm: ps.Comm, form: str, how: dict, says: str) -> None:
    wrong = comm.rank == WORLD.size - 1
    x, y = np.ones(100), np.zeros(100)
    with pytest.raises(ps.Error, match=says if wrong else None) as caught:
        call(comm, form, "Allreduce", x, y, **(how if wrong else {}))
    assert caught.value.code == ("invalid_argument" if wrong else "peer_failed")
    comm.Allreduce(x, y)
    assert (y == WORLD.size).all()


@pytest.mark.skipif(WORLD.size == 1, reason="one rank agrees with itself")
@pytest.mark.parametrize("keyword", ["split", "radix"])
def test_ranks_disagree(comm: ps.Comm, keyword: str) -> None:
    other = comm.rank == 0
    failed = False
    try:
        comm.Allreduce(np.ones(5000), np.zeros(5000), **{keyword: 3 if other else 2})
    except ps.Error as error:
        failed = True
        assert error.code in ("mismatch", "peer_failed"), str(error)
    assert WORLD.allreduce(failed, MPI.LOR)
    total = np.zeros(3)
    comm.Allreduce(np.ones(3), total)
    assert (total == WORLD.size).all()


def test_wrong_split_of_explain(comm: ps.Comm) -> None:
    with pytest.raises(ps.Error, match="split is -3"):
        comm.explain("bcast", 8, split=-3)


def test_whole_numbers_of_numpy(comm: ps.Comm, rng: np.random.Generator) -> None:
    check(comm, "blocking", "Bcast", contributions(rng, 100), 0, False, {"split": np.int64(2)})
