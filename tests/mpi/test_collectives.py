"""Every collective in every form against the MPI library's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import penstock as ps
import pytest
from mpi4py import MPI

COUNTS = (0, 1, 3, 64, 1000, 5003, 40000, 150001)
DTYPES = ("i1", "u2", "i4", "i8", "f4", "f8", "c8", "c16")
FORMS = ("blocking", "nonblocking", "persistent")
WORLD = MPI.COMM_WORLD


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


def values(rng: np.random.Generator, rank: int, count: int, dtype: str) -> np.ndarray:
    """Small integers: exact in every type, also as products and sums in any order."""
    every_rank = rng.integers(0, 3, size=(WORLD.size, count)).astype(dtype)
    return every_rank[rank].copy()


def each_case(rng: np.random.Generator) -> list[tuple[int, str, int]]:
    """(count, dtype, root) in combinations that cover all counts, all dtypes and all roots."""
    cases = [(count, DTYPES[rng.integers(len(DTYPES))], int(rng.integers(WORLD.size))) for count in COUNTS]
    cases += [(int(rng.integers(1, 3000)), dtype, int(rng.integers(WORLD.size))) for dtype in DTYPES]
    cases += [(17, "f8", root) for root in range(WORLD.size)]
    return cases


@pytest.mark.parametrize("form", FORMS)
def test_bcast(comm: ps.Comm, rng: np.random.Generator, form: str) -> None:
    for count, dtype, root in each_case(rng):
        mine = values(rng, comm.rank, count, dtype)
        expected = mine.copy()
        WORLD.Bcast(expected, root)
        call(comm, form, "Bcast", mine, root)
        np.testing.assert_array_equal(mine, expected)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("in_place", [False, True])
def test_reduce(comm: ps.Comm, rng: np.random.Generator, form: str, in_place: bool) -> None:
    for count, dtype, root in each_case(rng):
        mine = values(rng, comm.rank, count, dtype)
        expected = np.zeros_like(mine)
        WORLD.Reduce(mine, expected, MPI.SUM, root)
        if comm.rank != root:
            call(comm, form, "Reduce", mine, None, MPI.SUM, root)
            continue
        result = mine.copy() if in_place else np.full_like(mine, 99)
        call(comm, form, "Reduce", MPI.IN_PLACE if in_place else mine, result, MPI.SUM, root)
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("in_place", [False, True])
def test_allreduce(comm: ps.Comm, rng: np.random.Generator, form: str, in_place: bool) -> None:
    for count, dtype, _ in each_case(rng):
        mine = values(rng, comm.rank, count, dtype)
        expected = np.zeros_like(mine)
        WORLD.Allreduce(mine, expected)
        result = mine.copy() if in_place else np.full_like(mine, 99)
        call(comm, form, "Allreduce", MPI.IN_PLACE if in_place else mine, result)
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("in_place", [False, True])
def test_gather(comm: ps.Comm, rng: np.random.Generator, form: str, in_place: bool) -> None:
    for count, dtype, root in each_case(rng):
        mine = values(rng, comm.rank, count, dtype)
        if comm.rank != root:
            WORLD.Gather(mine, None, root)
            call(comm, form, "Gather", mine, None, root)
            continue
        expected = np.zeros((comm.size, count), dtype)
        WORLD.Gather(mine, expected, root)
        result = np.full_like(expected, 99)
        if in_place:
            result[root] = mine
        call(comm, form, "Gather", MPI.IN_PLACE if in_place else mine, result, root)
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("in_place", [False, True])
def test_scatter(comm: ps.Comm, rng: np.random.Generator, form: str, in_place: bool) -> None:
    for count, dtype, root in each_case(rng):
        dealt = values(rng, root, count * comm.size, dtype).reshape(comm.size, count)
        result = np.full(count, 99, dtype)
        if comm.rank != root:
            call(comm, form, "Scatter", None, result, root)
        elif in_place:
            call(comm, form, "Scatter", dealt, MPI.IN_PLACE, root)
            continue
        else:
            call(comm, form, "Scatter", dealt, result, root)
        np.testing.assert_array_equal(result, dealt[comm.rank])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("in_place", [False, True])
def test_allgather(comm: ps.Comm, rng: np.random.Generator, form: str, in_place: bool) -> None:
    for count, dtype, _ in each_case(rng):
        mine = values(rng, comm.rank, count, dtype)
        expected = np.zeros((comm.size, count), dtype)
        WORLD.Allgather(mine, expected)
        result = np.full_like(expected, 99)
        if in_place:
            result[comm.rank] = mine
        call(comm, form, "Allgather", MPI.IN_PLACE if in_place else mine, result)
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("form", FORMS)
def test_barrier(comm: ps.Comm, form: str) -> None:
    """No rank leaves a barrier before the last has entered it."""
    arrived = np.zeros(1, "i8")
    window = MPI.Win.Allocate(8 if comm.rank == 0 else 0, 8, comm=WORLD)
    try:
        for round_number in range(1, 6):
            window.Lock(0)
            window.Accumulate(np.ones(1, "i8"), 0)
            window.Unlock(0)
            call(comm, form, "Barrier")
            window.Lock(0, MPI.LOCK_SHARED)
            window.Get(arrived, 0)
            window.Unlock(0)
            assert arrived[0] >= round_number * comm.size
            WORLD.Barrier()
    finally:
        window.Free()


OPS = {
    "SUM": ("i2", "u8", "f4", "f8", "c16"),
    "PROD": ("u1", "i4", "f8", "c8"),
    "MIN": ("i1", "u4", "f4"),
    "MAX": ("i8", "u2", "f8"),
    "BAND": ("u1", "i4"),
    "BOR": ("u2", "i8"),
    "BXOR": ("i1", "u8"),
    "LAND": ("i4",),
    "LOR": ("u8",),
    "LXOR": ("i2",),
}


@pytest.mark.parametrize("name", OPS)
def test_every_operation(comm: ps.Comm, rng: np.random.Generator, name: str) -> None:
    op = getattr(MPI, name)
    for dtype in OPS[name]:
        for count in (1, 500, 20000):
            mine = values(rng, comm.rank, count, dtype)
            expected, result = np.zeros_like(mine), np.zeros_like(mine)
            WORLD.Allreduce(mine, expected, op)
            comm.Allreduce(mine, result, op)
            np.testing.assert_array_equal(result, expected)


def test_half_precision(comm: ps.Comm) -> None:
    """Not every MPI has a type for float16; the plans compute with it."""
    mine = np.full(1000, comm.rank + 1, np.float16)
    total = np.zeros_like(mine)
    comm.Allreduce(mine, total)
    np.testing.assert_array_equal(total, comm.size * (comm.size + 1) // 2)


def test_results_do_not_depend_on_the_rank(comm: ps.Comm, rng: np.random.Generator) -> None:
    """Rounding must be equal on all ranks of an allreduce."""
    for count in (10, 3000, 200000):
        mine = np.random.default_rng([comm.rank, count]).standard_normal(count)
        total = np.zeros_like(mine)
        comm.Allreduce(mine, total)
        of_root = total.copy()
        WORLD.Bcast(of_root, 0)
        assert total.tobytes() == of_root.tobytes()


def test_large(comm: ps.Comm) -> None:
    """Larger than every eager limit and staging buffer."""
    count = 3 << 20
    mine = np.arange(count, dtype="f4") % 1000 + comm.rank
    total = np.zeros_like(mine)
    comm.Allreduce(mine, total)
    np.testing.assert_array_equal(
        total, comm.size * (np.arange(count, dtype="f4") % 1000) + comm.size * (comm.size - 1) / 2
    )
    data = mine.copy() if comm.rank == comm.size - 1 else np.zeros_like(mine)
    comm.Bcast(data, comm.size - 1)
    np.testing.assert_array_equal(data, np.arange(count, dtype="f4") % 1000 + comm.size - 1)


def test_many_in_a_row(comm: ps.Comm) -> None:
    """Ranks run ahead of each other; operations must not mix."""
    x = np.zeros(4)
    for i in range(200):
        x[:] = comm.rank + i
        comm.Allreduce(MPI.IN_PLACE, x)
        assert x[0] == comm.size * i + comm.size * (comm.size - 1) // 2
        comm.Bcast(x, i % comm.size)
