"""Collectives with one block per rank, and prefix sums, against the MPI library's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import penstock as ps
import pytest
from mpi4py import MPI

WORLD = MPI.COMM_WORLD
DTYPES = ("i1", "u2", "i4", "i8", "f4", "f8", "c16")
FORMS = ("blocking", "nonblocking", "persistent")
MOST = (0, 1, 7, 300, 20000)  # maximum elements of a block


def call(comm: Any, form: str, name: str, *arguments: Any) -> None:
    """Bcast, or Ibcast and Wait, or Bcast_init, Start and Wait."""
    if form == "blocking":
        getattr(comm, name)(*arguments)
    elif form == "nonblocking":
        getattr(comm, "I" + name.lower())(*arguments).Wait()
    else:
        request = getattr(comm, name + "_init")(*arguments)
        request.Start()
        request.Wait()


def numbers(seed: list[int], count: int, dtype: str) -> np.ndarray:
    """Small integers: exact in every type, in any order of combination."""
    return np.random.default_rng(seed).integers(0, 3, count).astype(dtype)


def table(rng: np.random.Generator, most: int, symmetric: bool = False) -> np.ndarray:
    """Counts from each rank to each other, equal on all ranks; a quarter of them 0."""
    size = WORLD.size
    counts = rng.integers(0, most + 1, (size, size)) * (rng.random((size, size)) < 0.75)
    return np.triu(counts) + np.triu(counts, 1).T if symmetric else counts


def places(rng: np.random.Generator, counts: list[int]) -> list[int]:
    """Displacements out of order, with gaps."""
    begins, at = [0] * len(counts), 0
    for rank in rng.permutation(len(counts)):
        at += int(rng.integers(0, 4))
        begins[rank] = at
        at += counts[rank]
    return begins


def extent(counts: list[int], begins: list[int]) -> int:
    return max((begin + count for begin, count in zip(begins, counts) if count), default=0) + 3


def cases(rng: np.random.Generator) -> list[tuple[int, str]]:
    return [(most, DTYPES[rng.integers(len(DTYPES))]) for most in MOST] + [(50, dtype) for dtype in DTYPES]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("in_place", [False, True])
def test_gatherv(comm: ps.Comm, rng: np.random.Generator, form: str, in_place: bool) -> None:
    for most, dtype in cases(rng):
        root = int(rng.integers(WORLD.size))
        counts = table(rng, most)[0].tolist()
        begins = places(rng, counts)
        mine = numbers([comm.rank, most], counts[comm.rank], dtype)
        if comm.rank != root:
            WORLD.Gatherv(mine, None, root)
            call(comm, form, "Gatherv", mine, None, root)
            continue
        expected = np.full(extent(counts, begins), 9, dtype)
        result = expected.copy()
        WORLD.Gatherv(mine, [expected, (counts, begins)], root)
        if in_place:
            result[begins[root] : begins[root] + counts[root]] = mine
        call(comm, form, "Gatherv", MPI.IN_PLACE if in_place else mine, [result, (counts, begins)], root)
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("in_place", [False, True])
def test_scatterv(comm: ps.Comm, rng: np.random.Generator, form: str, in_place: bool) -> None:
    for most, dtype in cases(rng):
        root = int(rng.integers(WORLD.size))
        counts = table(rng, most)[0].tolist()
        begins = places(rng, counts)
        dealt = numbers([root, most], extent(counts, begins), dtype)
        result = np.full(counts[comm.rank], 9, dtype)
        if comm.rank != root:
            call(comm, form, "Scatterv", None, result, root)
        elif in_place:
            call(comm, form, "Scatterv", [dealt, counts, begins, None], MPI.IN_PLACE, root)
            continue
        else:
            call(comm, form, "Scatterv", [dealt, counts, begins, MPI._typedict[np.dtype(dtype).char]], result, root)
        np.testing.assert_array_equal(result, dealt[begins[comm.rank] :][: counts[comm.rank]])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("in_place", [False, True])
def test_allgatherv(comm: ps.Comm, rng: np.random.Generator, form: str, in_place: bool) -> None:
    for most, dtype in cases(rng):
        counts = table(rng, most)[0].tolist()
        begins = places(np.random.default_rng([comm.rank, most]), counts)  # different on each rank
        mine = numbers([comm.rank, most], counts[comm.rank], dtype)
        expected = np.full(extent(counts, begins), 9, dtype)
        result = expected.copy()
        WORLD.Allgatherv(mine, [expected, (counts, begins)])
        if in_place:
            result[begins[comm.rank] : begins[comm.rank] + counts[comm.rank]] = mine
        call(comm, form, "Allgatherv", MPI.IN_PLACE if in_place else mine, [result, (counts, begins)])
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("in_place", [False, True])
def test_alltoall(comm: ps.Comm, rng: np.random.Generator, form: str, in_place: bool) -> None:
    for count, dtype in cases(rng):
        mine = numbers([comm.rank, count], count * comm.size, dtype).reshape(comm.size, count)
        expected = np.zeros_like(mine)
        WORLD.Alltoall(mine, expected)
        result = mine.copy() if in_place else np.full_like(mine, 9)
        call(comm, form, "Alltoall", MPI.IN_PLACE if in_place else mine, result)
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("in_place", [False, True])
def test_alltoallv(comm: ps.Comm, rng: np.random.Generator, form: str, in_place: bool) -> None:
    for most, dtype in cases(rng):
        counts = table(rng, most, symmetric=in_place)
        sent, received = counts[comm.rank].tolist(), counts[:, comm.rank].tolist()
        own = np.random.default_rng([comm.rank, most])
        send_begins, begins = places(own, sent), places(own, received)
        mine = numbers([comm.rank, most], extent(sent, send_begins), dtype)
        expected = np.full(extent(received, begins), 9, dtype)
        result = expected.copy()
        if in_place:
            expected[:] = result[:] = numbers([comm.rank, most], expected.size, dtype)
            packed = np.concatenate([expected[b : b + c] for b, c in zip(begins, received)])
            WORLD.Alltoallv([packed, received], [expected, (received, begins)])
            call(comm, form, "Alltoallv", MPI.IN_PLACE, [result, (received, begins)])
        else:
            WORLD.Alltoallv([mine, (sent, send_begins)], [expected, (received, begins)])
            call(comm, form, "Alltoallv", [mine, (sent, send_begins)], [result, (received, begins)])
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("in_place", [False, True])
def test_alltoallw(comm: ps.Comm, rng: np.random.Generator, form: str, in_place: bool) -> None:
    for most, dtype in cases(rng):
        counts = table(rng, most, symmetric=in_place)
        sent, received = counts[comm.rank].tolist(), counts[:, comm.rank].tolist()
        own = np.random.default_rng([comm.rank, most])
        item = np.dtype(dtype).itemsize
        send_begins, begins = places(own, [2 * n for n in sent]), places(own, received)
        mine = numbers([comm.rank, most], extent([2 * n for n in sent], send_begins), dtype)
        expected = np.full(extent(received, begins), 9, dtype)
        result = expected.copy()
        bytewise = [MPI.BYTE] * comm.size
        into = ([n * item for n in received], [n * item for n in begins])
        if in_place:
            expected[:] = result[:] = numbers([comm.rank, most], expected.size, dtype)
            packed = np.concatenate([expected[b : b + c] for b, c in zip(begins, received)])
            WORLD.Alltoallv([packed, received], [expected, (received, begins)])
            call(comm, form, "Alltoallw", MPI.IN_PLACE, [result, into, bytewise])
        else:  # every second element, by a type for each rank
            one = MPI.Datatype.fromcode(np.dtype(dtype).char)
            types = [one.Create_vector(n, 1, 2).Commit() for n in sent]
            where = ([1] * comm.size, [n * item for n in send_begins])
            packed = np.concatenate([mine[b : b + 2 * n : 2] for b, n in zip(send_begins, sent)])
            WORLD.Alltoallv([packed, sent], [expected, (received, begins)])
            call(comm, form, "Alltoallw", [mine, *where, types], [result, into, bytewise])
            for each in types:
                each.Free()
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("in_place", [False, True])
def test_reduce_scatter_block(comm: ps.Comm, rng: np.random.Generator, form: str, in_place: bool) -> None:
    for count, dtype in cases(rng):
        mine = numbers([comm.rank, count], count * comm.size, dtype)
        expected = np.zeros(count, dtype)
        WORLD.Reduce_scatter_block(mine, expected)
        result = mine.copy() if in_place else np.full(count, 9, dtype)
        call(comm, form, "Reduce_scatter_block", MPI.IN_PLACE if in_place else mine, result)
        np.testing.assert_array_equal(result[:count], expected)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("in_place", [False, True])
def test_reduce_scatter(comm: ps.Comm, rng: np.random.Generator, form: str, in_place: bool) -> None:
    for most, dtype in cases(rng):
        counts = table(rng, most)[0].tolist()
        mine = numbers([comm.rank, most], sum(counts), dtype)
        total = np.zeros(sum(counts), dtype)
        WORLD.Allreduce(mine, total, MPI.MAX if dtype[0] != "c" else MPI.SUM)
        begin = sum(counts[: comm.rank])
        result = mine.copy() if in_place else np.full(counts[comm.rank], 9, dtype)
        op = MPI.MAX if dtype[0] != "c" else MPI.SUM
        call(comm, form, "Reduce_scatter", MPI.IN_PLACE if in_place else mine, result, counts, op)
        np.testing.assert_array_equal(result[: counts[comm.rank]], total[begin : begin + counts[comm.rank]])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("name", ["Scan", "Exscan"])
def test_prefix(comm: ps.Comm, rng: np.random.Generator, form: str, in_place: bool, name: str) -> None:
    for count, dtype in [*cases(rng), (150001, "f4")]:
        mine = numbers([comm.rank, count], count, dtype)
        expected = mine.copy() if in_place else np.full(count, 9, dtype)
        result = expected.copy()
        getattr(WORLD, name)(mine, expected)
        call(comm, form, name, MPI.IN_PLACE if in_place else mine, result)
        if comm.rank > 0 or name == "Scan":
            np.testing.assert_array_equal(result, expected)
        else:
            np.testing.assert_array_equal(result, mine if in_place else 9)


def test_defaults(comm: ps.Comm) -> None:
    """Defaults of mpi4py: even blocks, one count for all ranks, equal parts."""
    mine = np.arange(2.0 * comm.size) + 100 * comm.rank
    gathered = np.zeros(2 * comm.size)
    comm.Allgatherv(mine[:2], gathered)
    np.testing.assert_array_equal(gathered, np.repeat(100.0 * np.arange(comm.size), 2) + np.tile([0, 1], comm.size))
    comm.Alltoallv([mine, 2], [gathered, 2])
    np.testing.assert_array_equal(
        gathered, np.repeat(100.0 * np.arange(comm.size), 2) + np.tile([0, 1], comm.size) + 2 * comm.rank
    )
    part = np.zeros(2)
    comm.Reduce_scatter(mine, part)
    np.testing.assert_array_equal(
        part, comm.size * (mine[:2] - 100 * comm.rank + 2 * comm.rank) + 50 * comm.size * (comm.size - 1)
    )


def test_derived_blocks(comm: ps.Comm) -> None:
    """The columns of a matrix, one for each rank."""
    size = comm.size
    column = MPI.DOUBLE.Create_vector(3, 1, size).Create_resized(0, 8).Commit()
    try:
        matrix = np.arange(3.0 * size).reshape(3, size) + 1000 * comm.rank
        got = np.zeros((3, size))
        comm.Alltoallv([matrix, [1] * size, list(range(size)), column], [got, [1] * size, list(range(size)), column])
        expected = np.arange(3.0 * size).reshape(3, size)[:, [comm.rank]] + 1000 * np.arange(size)
        np.testing.assert_array_equal(got, expected)
        got[:] = 0
        comm.Alltoall([matrix, 1, column], [got, 1, column])
        np.testing.assert_array_equal(got, expected)
        got[:] = 0
        comm.Allgatherv(matrix[:, 0].copy(), [got, ([1] * size, list(range(size))[::-1]), column])
        np.testing.assert_array_equal(got, (np.arange(3.0)[:, None] * size + 1000 * np.arange(size))[:, ::-1])
    finally:
        column.Free()


ALGORITHMS = [
    (row.collective, row.name)
    for row in ps.plan.algorithms()
    if row.collective in ("alltoall", "reduce_scatter_block", "scan", "exscan", "allgatherv", "reduce_scatter")
]


@pytest.mark.parametrize(("name", "algorithm"), ALGORITHMS)
def test_every_algorithm(comm: ps.Comm, name: str, algorithm: str) -> None:
    """On real ranks, short and long. Algorithms that do not fit this communicator raise on all ranks."""
    for count in (3, 5000):
        parts = [count + rank for rank in range(comm.size)]
        blocks = np.repeat(np.arange(comm.size), count) + 1.0 * comm.rank
        try:
            if name == "alltoall":
                got = np.zeros(count * comm.size)
                comm.Alltoall(blocks, got, algorithm=algorithm)
                expected = np.repeat(np.arange(comm.size), count) + comm.rank
            elif name == "reduce_scatter_block":
                got = np.zeros(count)
                comm.Reduce_scatter_block(blocks, got, algorithm=algorithm)
                expected = comm.size * comm.rank + comm.size * (comm.size - 1) / 2
            elif name in ("scan", "exscan"):
                got = np.zeros(count)
                getattr(comm, name.capitalize())(blocks[:count], got, algorithm=algorithm)
                last = comm.rank + (name == "scan")
                expected = last * (last - 1) / 2
            elif name == "allgatherv":
                got = np.zeros(sum(parts))
                comm.Allgatherv(np.full(parts[comm.rank], 1.0 * comm.rank), [got, parts], algorithm=algorithm)
                expected = np.repeat(np.arange(comm.size), parts)
            else:
                got = np.zeros(parts[comm.rank])
                mine = np.repeat(np.arange(comm.size), parts) + 1.0 * comm.rank
                comm.Reduce_scatter(mine, got, parts, algorithm=algorithm)
                expected = comm.size * comm.rank + comm.size * (comm.size - 1) / 2
        except ps.Error as error:
            assert "does not fit" in str(error), str(error)
            return
        np.testing.assert_array_equal(got, expected)


@pytest.mark.skipif(WORLD.size == 1, reason="one rank agrees with itself")
@pytest.mark.parametrize("name", ["Alltoallv", "Gatherv", "Scatterv", "Allgatherv", "Reduce_scatter"])
@pytest.mark.parametrize("wrong", [0, 3, 50])
def test_counts_that_do_not_fit(comm: ps.Comm, name: str, wrong: int) -> None:
    """The last rank has another count for rank 0 than rank 0 has. No rank hangs, and at least one of them raises."""
    size, other = comm.size, comm.rank == comm.size - 1
    failed = False
    mine, got = np.zeros(60 * size), np.zeros(60 * size)
    right = [7] * size
    mistaken = [wrong, *right[1:]] if other else right
    try:
        if name == "Alltoallv":
            comm.Alltoallv([mine, mistaken], [got, right])
        elif name == "Gatherv":
            comm.Gatherv(mine[: wrong if other else 7], [got, right] if comm.rank == 0 else None, 0)
        elif name == "Scatterv":
            comm.Scatterv([mine, right] if comm.rank == 0 else None, got[: wrong if other else 7], 0)
        elif name == "Allgatherv":
            comm.Allgatherv(mine[:7], [got, mistaken])
        else:
            comm.Reduce_scatter(mine[: sum(mistaken)], got[: mistaken[comm.rank]], mistaken)
    except ps.Error as error:
        failed = True
        assert error.code in ("mismatch", "peer_failed", "invalid_argument"), str(error)
    total = np.zeros(5)
    comm.Allreduce(np.ones(5), total)  # a rank that expected nothing responds only when it calls Penstock again
    assert (total == comm.size).all()
    # A root whose message no rank expects may have sent it and returned; then it raises nothing.
    assert WORLD.allreduce(failed, MPI.LOR) or (name, wrong) == ("Scatterv", 0)


WRONG = {
    "length": (lambda comm, x, y: comm.Alltoallv([x, [1] * (comm.size + 1)], y), "counts"),
    "negative": (lambda comm, x, y: comm.Alltoallv([x, [-1] * comm.size], y), "non-negative"),
    "reach": (lambda comm, x, y: comm.Alltoallv([x, [9] * comm.size], [y, [9] * comm.size]), "send buffer"),
    "pair": (lambda comm, x, y: comm.Alltoallv([x, (1, 2, 3)], y), "displacements"),
    "uneven": (lambda comm, x, y: comm.Alltoallv(np.zeros(comm.size + 1, "i1"), y), "itself"),
    "own block": (lambda comm, x, y: comm.Alltoallv([x, [3] * comm.size], y), "itself"),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_on_one_rank(comm: ps.Comm, what: str) -> None:
    at, error = comm.size - 1, None
    mistaken, says = WRONG[what]
    x, y = np.zeros(4 * comm.size), np.zeros(4 * comm.size)
    try:
        mistaken(comm, x, y) if comm.rank == at else comm.Alltoallv(x, y)
    except ps.Error as raised:
        error = raised
    assert error is not None
    if comm.rank == at:
        assert error.code == "invalid_argument" and says in str(error), str(error)
    else:
        assert error.code == "peer_failed", str(error)


@pytest.mark.skipif(WORLD.size == 1, reason="one block cannot overlap")
def test_overlapping_blocks(comm: ps.Comm) -> None:
    with pytest.raises(ps.Error) as caught:
        comm.Allgatherv(np.zeros(4), [np.zeros(100), ([4] * comm.size, [2 * rank for rank in range(comm.size)])])
    assert "overlap" in str(caught.value)
