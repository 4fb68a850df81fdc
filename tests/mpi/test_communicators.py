"""Duplicates, splits, lifetime and reports of communicators."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import penstock as ps
import pytest
from mpi4py import MPI

WORLD = MPI.COMM_WORLD
PATIENCE_S = 600  # only a leak takes this long


def total_of(comm: ps.Comm, value: float) -> float:
    total = np.zeros(1)
    comm.Allreduce(np.full(1, float(value)), total)
    return float(total[0])


def test_is_an_intracomm(comm: ps.Comm) -> None:
    """Everything but Penstock's collectives is MPI's."""
    assert isinstance(comm, MPI.Intracomm)
    assert (comm.rank, comm.size) == (WORLD.rank, WORLD.size)
    assert comm.allreduce(1) == comm.size
    assert comm.bcast({"a": comm.rank}, root=comm.size - 1) == {"a": comm.size - 1}
    sent, received = np.arange(comm.size, dtype="i4"), np.zeros(comm.size, "i4")
    comm.Alltoall(sent, received)
    assert (received == comm.rank).all()


def test_duplicate(comm: ps.Comm) -> None:
    """Operations of a duplicate and of its parent do not wait for each other."""
    twin = comm.Dup()
    assert type(twin) is ps.Comm
    a, b = np.zeros(2000), np.zeros(2000)
    if comm.rank % 2:
        first, second = twin.Iallreduce(np.ones(2000), a), comm.Iallreduce(np.full(2000, 2.0), b)
    else:
        second, first = comm.Iallreduce(np.full(2000, 2.0), b), twin.Iallreduce(np.ones(2000), a)
    first.Wait()
    second.Wait()
    assert (a == comm.size).all()
    assert (b == 2 * comm.size).all()
    twin.Free()
    assert twin == MPI.COMM_NULL
    assert total_of(comm, 1) == comm.size


def test_split(comm: ps.Comm) -> None:
    """Halves with reversed rank order; both work at the same time."""
    half = comm.Split(comm.rank % 2, key=-comm.rank)
    members = [r for r in range(comm.size) if r % 2 == comm.rank % 2][::-1]
    assert half.size == len(members)
    assert members[half.rank] == comm.rank
    assert total_of(half, comm.rank) == sum(members)
    data = np.full(30000, comm.rank)
    half.Bcast(data, half.size - 1)
    assert (data == members[-1]).all()
    half.Free()


def test_split_leaves_some_out(comm: ps.Comm) -> None:
    part = comm.Split(0 if comm.rank == 0 else MPI.UNDEFINED)
    if comm.rank == 0:
        assert total_of(part, 7) == 7
        part.Free()
    else:
        assert part == MPI.COMM_NULL


def test_group(comm: ps.Comm) -> None:
    group = comm.Get_group().Incl(range(0, comm.size, 2))
    part = comm.Create_group(group) if comm.rank % 2 == 0 else None
    if part is not None:
        assert total_of(part, 1) == group.size
        part.Free()


def test_parent_may_go(comm: ps.Comm) -> None:
    parent = WORLD.Dup()
    made = ps.Comm(parent)
    duplicate = made.Dup()
    made.free()
    parent.Free()
    assert total_of(duplicate, 2) == 2 * comm.size
    duplicate.Free()


def test_freed(comm: ps.Comm) -> None:
    with ps.Comm(WORLD) as made:
        assert total_of(made, 1) == comm.size
    with pytest.raises(ps.Error, match="freed"):
        made.Barrier()
    made.free()  # a second call is allowed
    assert WORLD.allreduce(1) == comm.size


#: Open MPI takes up to a fifth of a second to make one if ranks share cores.
QUICK = "MPICH" in MPI.Get_library_version()


def held() -> tuple[int, int]:
    """Descriptors of this process, and the KiB of memory that it uses."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    kib = sum(int(status[name].split()[0]) for name in ("RssAnon", "RssShmem"))
    return len(list(Path("/proc/self/fd").iterdir())), kib


def number_of_next() -> int:
    """Of the next communicator of MPI. Open MPI gives the lowest that is free; MPICH has 2,048, so all must come back."""
    if QUICK:
        return 0
    made = WORLD.Dup()
    number = made.py2f()
    made.Free()
    return number


def is_set(variable: str) -> bool:
    return os.environ.get(variable) == "1"


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="reads /proc")
def test_made_often(comm: ps.Comm) -> None:
    """Neither descriptors, memory nor MPI's context ids run out, and no rank keeps what is over."""
    most_kib, most_kib_each, first = 1_024, 1 if QUICK else 2, 40
    takes_all, over_nodes = is_set("PENSTOCK_TEST_ALL"), is_set("PENSTOCK_TEST_NODES")
    times = 200 if not QUICK else 10_000 if takes_all else 2_200 if comm.size <= 2 and not over_nodes else 200
    for i in range(times):
        if i == first:
            (descriptors, kib), number = held(), WORLD.allreduce(number_of_next(), MPI.MAX)
        with ps.Comm(WORLD) as made:
            assert total_of(made, 1) == comm.size
    descriptors_now, kib_now = held()
    assert descriptors_now <= descriptors
    assert kib_now - kib < most_kib + most_kib_each * (times - first)
    # One that is freed goes when all ranks have learned that all have freed it. They look twice, when they make another.
    still_going = 4
    deadline = time.monotonic() + PATIENCE_S
    while WORLD.allreduce(number_of_next(), MPI.MAX) > number + still_going:
        assert time.monotonic() < deadline, "MPI's communicators do not come back"
        with ps.Comm(WORLD) as made:
            assert total_of(made, 1) == comm.size
        WORLD.Barrier()  # moves on what they have told each other


def test_progress_thread(comm: ps.Comm) -> None:
    with ps.Comm(WORLD, progress_cores=1) as made:
        total = np.zeros(100000)
        requests = [made.Iallreduce(np.ones(100000), total), made.Ibarrier()]
        for request in requests:
            request.Wait()
        assert (total == comm.size).all()
        assert "progress" in made.report()


def test_explain(comm: ps.Comm) -> None:
    for operation in ("bcast", "reduce", "allreduce", "gather", "scatter", "allgather", "barrier"):
        for nbytes in (0, 8, 1 << 20):
            said = comm.explain(operation, nbytes)
            assert said["operation"] == operation
            assert said["algorithm"]
            assert said["reason"]
            assert said["ranks"] == comm.size
            assert WORLD.bcast(said["algorithm"], 0) == said["algorithm"]
    assert comm.explain("allreduce", 4000, dtype="float32", op="max")["count"] == 1000
    assert comm.explain("alltoallw", 8)["algorithm"].startswith("alltoallw/")
    with pytest.raises(ps.Error, match="whole number"):
        comm.explain("allreduce", 7, dtype="float64")


def test_report(comm: ps.Comm) -> None:
    report = comm.report()
    assert "ABI" in report
    assert "progress threads: " in report


@pytest.fixture
def fatal() -> Iterator[None]:
    """MPI's default error handler, which mpi4py replaces: an error ends the program."""
    before = WORLD.Get_errhandler()
    WORLD.Set_errhandler(MPI.ERRORS_ARE_FATAL)
    yield
    WORLD.Set_errhandler(before)
    before.Free()


@pytest.mark.skipif("MPICH" not in MPI.Get_library_version(), reason="has more communicators than memory")
def test_none_left(fatal: None) -> None:
    """MPI has a limited number of communicators. If too few are left, every rank raises an Error and continues."""
    own = WORLD.Dup()
    made: list[MPI.Intracomm] = []  # of one rank each, so making one waits for no rank
    with contextlib.suppress(MPI.Exception):
        while True:
            made.append(MPI.COMM_SELF.Dup())
    assert len(made) > 100
    works = False
    while not works:  # with more free communicators at each attempt
        try:
            ps.Comm(WORLD).free()
            works = True
        except ps.Error as error:
            assert error.code == "mpi", str(error)
        told = np.array([works, not works])
        own.Allreduce(MPI.IN_PLACE, told, MPI.LOR)
        assert told.sum() == 1, "some ranks have made one, others have not"
        if not works:
            made.pop().Free()
        assert len(made) > 50
    for comm in made:
        comm.Free()
    own.Free()
    with ps.Comm(WORLD) as comm:
        total = np.zeros(1)
        comm.Allreduce(np.ones(1), total)
        assert total[0] == WORLD.size
    assert WORLD.Get_errhandler() == MPI.ERRORS_ARE_FATAL
