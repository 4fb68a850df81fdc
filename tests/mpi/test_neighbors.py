"""Neighbourhood collectives on graph, distributed graph and Cartesian communicators, against the MPI library's own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import penstock as ps
import pytest
from forms import FORMS, call
from mpi4py import MPI

WORLD = MPI.COMM_WORLD
CASES = 12 if os.environ.get("PENSTOCK_TEST_ALL") == "1" else 4


def node_count() -> int:
    node = WORLD.Split_type(MPI.COMM_TYPE_SHARED)
    count = WORLD.allreduce(int(node.rank == 0))
    node.Free()
    return count


def random_graph(rng: np.random.Generator) -> Any:
    """Edges that lead back, several between two ranks, ranks without sources or destinations."""
    size = WORLD.size
    edges = [(int(a), int(b)) for a, b in rng.integers(0, size, (int(rng.integers(0, 4 * size)), 2))]
    edges += edges[: len(edges) // 4]
    rng.shuffle(edges)
    mine = WORLD.rank
    sources = [a for a, b in edges if b == mine]
    return WORLD.Create_dist_graph_adjacent(sources, [b for a, b in edges if a == mine])


def symmetric_graph(rng: np.random.Generator) -> Any:
    size = WORLD.size
    near = np.triu(rng.random((size, size)) < 0.5, 1)
    lists = [np.flatnonzero(row).tolist() for row in near | near.T]
    ends_of_lists = np.cumsum([0, *(len(each) for each in lists)]).tolist()
    return WORLD.Create_graph(ends_of_lists, [i for each in lists for i in each])


def grid(rng: np.random.Generator) -> Any:
    dims = MPI.Compute_dims(WORLD.size, int(rng.integers(1, 4)))
    return WORLD.Create_cart(dims, (rng.random(len(dims)) < 0.5).tolist())


TOPOLOGIES = {"random": random_graph, "symmetric": symmetric_graph, "grid": grid}


@contextmanager
def topologies(kind: str, rng: np.random.Generator) -> Iterator[tuple[Any, ps.Comm, np.random.Generator]]:
    """MPI's communicator, Penstock's, and a generator that is the same on all ranks."""
    native = TOPOLOGIES[kind](rng)
    with ps.Comm(native) as comm:
        yield native, comm, rng
    native.Free()


def ends(native: Any) -> tuple[list[int], list[int]]:
    sources, destinations = native.inoutedges
    return list(sources), list(destinations)


def count_of(seed: int, source: int, destination: int) -> int:
    """A quarter of them is 0; MPI.PROC_NULL counts as a rank. All edges between two ranks have the same."""
    return max(0, int(np.random.default_rng([seed, source + 9, destination + 9]).integers(-3, 10)))


def places(rng: np.random.Generator, counts: list[int]) -> list[int]:
    begins, at = [0] * len(counts), 0
    for index in rng.permutation(len(counts)):
        at += int(rng.integers(0, 4))
        begins[index] = at
        at += counts[index]
    return begins


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", TOPOLOGIES)
@pytest.mark.parametrize("algorithm", ["chosen", "direct", "combined"])
def test_fixed_counts(rng: np.random.Generator, kind: str, form: str, algorithm: str) -> None:
    if algorithm == "combined" and node_count() == 1:
        pytest.skip("combined needs several nodes")
    how = {} if algorithm == "chosen" else {"algorithm": algorithm}
    for _ in range(CASES):
        with topologies(kind, rng) as (native, comm, shared):
            sources, destinations = ends(native)
            count = int(shared.choice([0, 1, 7, 300, 20000]))
            assert comm.degrees == (len(sources), len(destinations))
            mine = np.arange(len(destinations) * count, dtype="i4") + 1000 * comm.rank
            expected = np.full(len(sources) * count, -1, "i4")
            result = expected.copy()
            native.Neighbor_alltoall([mine, count, MPI.INT32_T], [expected, count, MPI.INT32_T])
            call(comm, form, "Neighbor_alltoall", mine, result, **how)
            np.testing.assert_array_equal(result, expected)
            mine = np.arange(count, dtype="f8") - comm.rank
            expected = np.full((len(sources), count), 9.0)
            result = expected.copy()
            native.Neighbor_allgather([mine, count, MPI.DOUBLE], [expected, count, MPI.DOUBLE])
            call(comm, form, "Neighbor_allgather", mine, result, **how)
            np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", TOPOLOGIES)
def test_any_counts(rng: np.random.Generator, kind: str, form: str) -> None:
    for case in range(CASES):
        with topologies(kind, rng) as (native, comm, _):
            sources, destinations = ends(native)
            own = np.random.default_rng([comm.rank, case])
            sent = [count_of(case, comm.rank, to) for to in destinations]
            received = [count_of(case, source, comm.rank) for source in sources]
            send_begins, begins = places(own, sent), places(own, received)
            mine = own.integers(0, 99, sum(sent) + 4 * len(sent) + 1).astype("i2")
            expected = np.full(sum(received) + 4 * len(received) + 1, -1, "i2")
            result = expected.copy()
            native.Neighbor_alltoallv([mine, (sent, send_begins)], [expected, (received, begins)])
            call(comm, form, "Neighbor_alltoallv", [mine, (sent, send_begins)], [result, (received, begins)])
            np.testing.assert_array_equal(result, expected)

            # Bytes here, shorts there; displacements in bytes.
            expected[:] = result[:] = -1
            as_bytes = ([2 * n for n in sent], [2 * at for at in send_begins], [MPI.BYTE] * len(sent))
            as_shorts = (received, [2 * at for at in begins], [MPI.INT16_T] * len(received))
            native.Neighbor_alltoallw([mine, *as_bytes], [expected, *as_shorts])
            call(comm, form, "Neighbor_alltoallw", [mine, *as_bytes], [result, *as_shorts])
            np.testing.assert_array_equal(result, expected)

            length = [count_of(case, 77, source) for source in range(comm.size)]
            received = [0 if source == MPI.PROC_NULL else length[source] for source in sources]
            begins = places(own, received)
            expected = np.full(sum(received) + 4 * len(received) + 1, 9.0)
            result = expected.copy()
            block = own.random(length[comm.rank])
            native.Neighbor_allgatherv(block, [expected, (received, begins)])
            call(comm, form, "Neighbor_allgatherv", block, [result, (received, begins)])
            np.testing.assert_array_equal(result, expected)


def test_both_neighbours_are_one_rank(comm: ps.Comm) -> None:
    """In a periodic dimension of one or two ranks, what is sent up arrives from below."""
    line = WORLD.Create_cart([WORLD.size], [True])
    with ps.Comm(line) as ring:
        mine = np.array([10 * comm.rank, 10 * comm.rank + 1])
        result = np.full(2, -1)
        ring.Neighbor_alltoall(mine, result)
        below, above = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
        np.testing.assert_array_equal(result, [10 * below + 1, 10 * above])
    line.Free()


def test_ranks_with_neighbours_on_one_side(comm: ps.Comm) -> None:
    """The first rank of a chain receives nothing, the last one sends nothing: its send buffer does not count."""
    last = comm.size - 1
    sources = [comm.rank - 1] if comm.rank > 0 else []
    destinations = [comm.rank + 1] if comm.rank < last else []
    line = WORLD.Create_dist_graph_adjacent(sources, destinations)
    with ps.Comm(line) as chain:
        for given in (np.array([comm.rank, 7]), None if comm.rank == last else np.array([comm.rank, 7])):
            for name in ("Neighbor_allgather", "Neighbor_alltoall"):
                for form in FORMS:
                    result = np.full(2 * len(sources), -1)
                    call(chain, form, name, given[:0] if given is not None and not destinations else given, result)
                    np.testing.assert_array_equal(result, [comm.rank - 1, 7] if sources else [])
    line.Free()


def test_derived_datatypes(comm: ps.Comm) -> None:
    """Columns of a matrix go to the left and to the right into those of its halo; the outermost ones stay."""
    line = WORLD.Create_cart([WORLD.size], [False])
    column = MPI.DOUBLE.Create_vector(4, 1, 6).Commit()
    matrix = np.full((4, 6), -1.0)
    matrix[:, 1:5] = comm.rank + np.arange(4) / 10
    item = matrix.itemsize
    with ps.Comm(line) as along:
        types = [column, column]
        along.Neighbor_alltoallw(
            [matrix, ([1, 1], [item, 4 * item]), types], [matrix.copy(), ([1, 1], [0, 5 * item]), types]
        )
        halo = matrix.copy()
        along.Neighbor_alltoallw([matrix, ([1, 1], [item, 4 * item]), types], [halo, ([1, 1], [0, 5 * item]), types])
    left = -1.0 if comm.rank == 0 else comm.rank - 1 + 0.3
    right = -1.0 if comm.rank == comm.size - 1 else comm.rank + 1.0
    np.testing.assert_array_equal(halo[:, 0], left)
    np.testing.assert_array_equal(halo[:, 5], right)
    np.testing.assert_array_equal(halo[:, 1:5], matrix[:, 1:5])
    column.Free()
    line.Free()


def test_duplicates_keep_the_neighbours(comm: ps.Comm) -> None:
    line = WORLD.Create_cart([WORLD.size], [True])
    with ps.Comm(line) as ring, ring.Dup() as again:
        result = np.full(2, -1)
        again.Neighbor_allgather(np.array([comm.rank]), result)
        np.testing.assert_array_equal(result, [(comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size])
    line.Free()


def test_errors_reach_all_neighbours(comm: ps.Comm) -> None:
    with pytest.raises(ps.Error, match="no neighbours"):
        comm.Neighbor_allgather(np.zeros(1), np.zeros(1))
    line = WORLD.Create_cart([WORLD.size], [True])
    with ps.Comm(line) as ring:
        with pytest.raises(ps.Error, match="IN_PLACE"):
            ring.Neighbor_alltoall(MPI.IN_PLACE, np.zeros(2))
        for empty in (ring.Neighbor_alltoall, ring.Neighbor_allgather):
            with pytest.raises(ps.Error, match="IN_PLACE"):
                empty(MPI.IN_PLACE, np.zeros(0))
        with pytest.raises(ps.Error, match="divided evenly among 2 neighbours"):
            ring.Neighbor_alltoall(np.zeros(3, "u1"), np.zeros(3, "u1"))
        with pytest.raises(ps.Error, match="buffer has 24 bytes; expected 16"):
            ring.Ineighbor_allgather(np.zeros(1), np.zeros(3)).Wait()
        if comm.size in (2, 3):  # all ranks are neighbours of rank 0; others may be done before they could be told
            counts = [1, 1, 1] if comm.rank == 0 else [1, 1]
            with pytest.raises(ps.Error) as raised:
                ring.Neighbor_alltoallv([np.zeros(3), counts], [np.zeros(2), [1, 1]])
            assert raised.value.code == ("invalid_argument" if comm.rank == 0 else "peer_failed")
            sent = [2, 2] if comm.rank == 0 else [1, 1]
            try:
                ring.Neighbor_alltoallv([np.zeros(4), sent], [np.zeros(2), [1, 1]])
                assert comm.rank == 0  # its part may be complete before the others find the mismatch
            except ps.Error as error:
                assert error.code in ("mismatch", "peer_failed")
            with pytest.raises(ps.Error) as raised:
                ring.Neighbor_allgather(np.zeros(1 + comm.rank), np.zeros(2 * (1 + comm.rank)))
            assert raised.value.code in ("mismatch", "peer_failed")
        ring.Barrier()
    line.Free()
