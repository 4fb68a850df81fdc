"""An error of one rank is an Error on every rank; no rank hangs, and the communicator stays usable."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import numpy as np
import penstock as ps
import pytest
from mpi4py import MPI

WORLD = MPI.COMM_WORLD


def read_only(x: np.ndarray) -> np.ndarray:
    x.flags.writeable = False
    return x


def fails(comm: ps.Comm, call: Callable[[], object], at: int, everywhere: bool = True) -> str:
    """`call` raises for the mistake of rank `at` there, and as its consequence on the others; returns the message.

    With everywhere=False other ranks may have completed their part before they could hear of it: the root of a bcast
    depends on nobody.
    """
    error = None
    try:
        call()
    except ps.Error as raised:
        error = raised
    if comm.rank == at:
        assert error is not None and error.code == "invalid_argument", str(error)
    elif everywhere or error is not None:
        assert error is not None and error.code in ("peer_failed", "mismatch"), str(error)
    works(comm)
    return str(error)


def works(comm: ps.Comm) -> None:
    total = np.zeros(5)
    comm.Allreduce(np.ones(5), total)
    assert (total == comm.size).all()


WRONG: dict[str, tuple[Callable[[ps.Comm], object], str]] = {
    "size": (lambda comm: comm.Allreduce(np.zeros(8), np.zeros(9)), "72"),
    "dtype": (lambda comm: comm.Allreduce(np.zeros(8), np.zeros(8, "f4")), "float32"),
    "list of three numbers": (lambda comm: comm.Allreduce([1, 2, 3], np.zeros(3)), "datatype 3; expected"),
    "list of two numbers": (lambda comm: comm.Allreduce([1, 2], np.zeros(2)), "a buffer is a int; expected"),
    "not contiguous": (lambda comm: comm.Allreduce(np.zeros(8), np.zeros(16)[::2]), "contiguous"),
    "read-only": (lambda comm: comm.Allreduce(np.zeros(8), read_only(np.zeros(8))), "read-only"),
    "no buffer": (lambda comm: comm.Allreduce(np.zeros(8), [1.0] * 8), "items"),
    "no object": (lambda comm: comm.Allreduce(3, np.zeros(8)), "int"),
    "overlap": (lambda comm: (lambda x: comm.Allreduce(x[:8], x[4:12]))(np.zeros(12)), "overlap"),
    "operation": (lambda comm: comm.Allreduce(np.zeros(8), np.zeros(8), MPI.BAND), "band"),
    "count": (lambda comm: comm.Allreduce([np.zeros(8), 12, MPI.DOUBLE], np.zeros(8)), "96"),
    "negative": (lambda comm: comm.Allreduce([np.zeros(8), -1], np.zeros(8)), "-1"),
}


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("at", [0, -1])
def test_wrong_on_one_rank(comm: ps.Comm, what: str, at: int) -> None:
    at %= comm.size
    wrong, says = WRONG[what]
    said = fails(comm, lambda: wrong(comm) if comm.rank == at else comm.Allreduce(np.zeros(8), np.zeros(8)), at)
    if comm.rank == at:
        assert says in said


@pytest.mark.parametrize("name", ["Bcast", "Reduce", "Gather", "Scatter", "Allgather"])
def test_wrong_root_or_block(comm: ps.Comm, name: str) -> None:
    at = comm.size - 1

    def call() -> None:
        wrong = comm.rank == at
        x, all_x = np.zeros(6), np.zeros((comm.size, 6))
        if name == "Bcast":
            comm.Bcast(x, comm.size if wrong else 0)
        elif name == "Reduce":
            comm.Reduce(x, np.zeros(6), root=-1 if wrong else 0)
        elif name == "Gather":
            comm.Gather(x, all_x, root=99 if wrong else 0)
        elif name == "Scatter":
            comm.Scatter(all_x, x, root=-7 if wrong else 0)
        else:
            comm.Allgather(x, np.zeros(6 * comm.size + 1) if wrong else all_x)

    fails(comm, call, at, everywhere=name == "Allgather")


def test_wrong_in_every_form(comm: ps.Comm) -> None:
    at = comm.size // 2
    y = np.zeros(9 if comm.rank == at else 8)
    fails(comm, lambda: comm.Iallreduce(np.zeros(8), y).Wait(), at)

    def persistent() -> None:
        request = comm.Allreduce_init(np.zeros(8), y)
        request.Start()
        request.Wait()

    fails(comm, persistent, at)


def test_error_among_others(comm: ps.Comm) -> None:
    """Operations before and after the failed one are not affected."""
    first, last = np.zeros(5000), np.zeros(5000)
    before = comm.Iallreduce(np.ones(5000), first)
    error = None
    try:
        request = comm.Iallreduce(np.zeros(4), np.zeros(5 if comm.rank == 0 else 4))
    except ps.Error as raised:
        request, error = None, raised
    after = comm.Iallreduce(np.full(5000, 2.0), last)
    after.Wait()
    before.Wait()
    if request is not None:
        with pytest.raises(ps.Error):
            request.Wait()
        assert request.Wait()  # raises only once
    else:
        assert error is not None and error.code == "invalid_argument"
    assert (first == comm.size).all()
    assert (last == 2 * comm.size).all()


@pytest.mark.skipif(WORLD.size == 1, reason="one rank agrees with itself")
@pytest.mark.parametrize("what", ["count", "root", "operation", "dtype", "kind", "native"])
def test_ranks_disagree(comm: ps.Comm, what: str) -> None:
    """Ranks disagree in a way that no rank can see alone. At least one rank raises an Error, and none hangs."""
    other = comm.rank == comm.size - 1
    x, y = np.zeros(64), np.zeros(64)
    failed = False
    try:
        if what == "count":
            comm.Allreduce(x[:32] if other else x, y[:32] if other else y)
        elif what == "root":
            comm.Reduce(x, y, root=comm.size - 1 if other else 0)
        elif what == "operation":
            comm.Allreduce(x, y, MPI.MAX if other else MPI.SUM)
        elif what == "dtype":
            comm.Allreduce(x.view("i8") if other else x, y.view("i8") if other else y)
        elif what == "kind":
            comm.Reduce(x, y) if other else comm.Allreduce(x, y)
        else:
            comm.Allreduce(x.view(np.longdouble) if other else x, y.view(np.longdouble) if other else y)
    except ps.Error as error:
        failed = True
        assert error.code in ("mismatch", "peer_failed"), str(error)
    assert WORLD.allreduce(failed, MPI.LOR)
    works(comm)


def test_two_roots(comm: ps.Comm) -> None:
    """Each rank may have sent before it hears of the other root. Then it raises nothing, and nothing mixes."""
    x = np.full(64, comm.rank)
    with contextlib.suppress(ps.Error):
        comm.Bcast(x, comm.size - 1 if comm.rank == comm.size - 1 else 0)
    works(comm)


def test_wrong_communicator() -> None:
    with pytest.raises(ps.Error, match="COMM_NULL"):
        ps.Comm(MPI.COMM_NULL)
    with pytest.raises(ps.Error, match="int"):
        ps.Comm(3)


def test_wrong_option_on_one_rank(comm: ps.Comm) -> None:
    with pytest.raises(ps.Error) as caught:
        ps.Comm(WORLD, progress_cores="many" if comm.rank == 0 else 0)
    if comm.rank == 0:
        assert "'many'" in str(caught.value)
    else:
        assert caught.value.code == "peer_failed"
        assert caught.value.rank == 0
    works(comm)


@pytest.mark.parametrize("count", [1, 1 << 20], ids=["short", "long"])
def test_ranks_that_have_left_hold_up_nobody(comm: ps.Comm, count: int) -> None:
    """Messages for a rank that has freed its communicator are sent, or are an error."""
    twin = comm.Dup()
    twin.Barrier()
    if comm.rank == 0:
        with contextlib.suppress(ps.Error):
            for _ in range(1100 if count == 1 else 2):
                twin.Bcast(np.zeros(count), 0)
    twin.Free()
    works(comm)
