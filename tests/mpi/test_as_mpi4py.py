"""Features of mpi4py's objects besides moving data: exchanged counts, mixed requests, pickling, subclasses."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import penstock as ps
import pytest
from forms import FORMS, call
from mpi4py import MPI
from test_errors import fails, works

WORLD = MPI.COMM_WORLD
SIZE, RANK = WORLD.size, WORLD.rank


# -- reductions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_counts_that_the_ranks_tell_each_other(comm: ps.Comm, form: str) -> None:
    counts = [2 * rank + 1 for rank in range(SIZE)]
    mine = np.arange(float(sum(counts))) + RANK
    got, expected = np.zeros(counts[RANK]), np.zeros(counts[RANK])
    WORLD.Reduce_scatter(mine, expected)
    call(comm, form, "Reduce_scatter", mine, got)
    np.testing.assert_array_equal(got, expected)
    call(comm, form, "Reduce_scatter", [mine, MPI.DOUBLE], [got, counts[RANK], MPI.DOUBLE], None, np.maximum)


def test_counts_told_wrongly(comm: ps.Comm) -> None:
    """A rank that cannot determine its count, or whose count does not fit the data."""
    at = SIZE - 1
    for wrong in ([np.zeros(4), "x"], [np.zeros(4), 1.5]):
        fails(
            comm, lambda wrong=wrong: comm.Reduce_scatter(np.zeros(4 * SIZE), wrong if at == RANK else np.zeros(4)), at
        )
    with pytest.raises(ps.Error):
        comm.Reduce_scatter(np.zeros(4 * SIZE), np.zeros(5 if at == RANK else 4))
    works(comm)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["Scan", "Exscan"])
@pytest.mark.parametrize("kind", ["whole array", "part", "operation of the user", "pairs"])
def test_in_place_on_some_ranks(comm: ps.Comm, form: str, name: str, kind: str) -> None:
    if kind == "pairs":
        mine = np.zeros(5, [("value", "f8"), ("place", "i4"), ("hole", "i4")])
        mine["value"], mine["place"] = [RANK, -RANK, 1, 2, 3], RANK
        spec, op = (lambda x: [x.view("u1"), x.size, MPI.DOUBLE_INT]), MPI.MAXLOC
    else:
        mine = np.arange(5.0) * (RANK + 1)
        spec = (lambda x: [x, 3, 1, MPI.DOUBLE]) if kind == "part" else lambda x: x
        op = np.hypot if kind == "operation of the user" else MPI.SUM
    expected, got = mine.copy(), mine.copy()
    native = op
    if kind == "operation of the user":
        native = MPI.Op.Create(
            lambda a, b, _: np.copyto(np.frombuffer(b), np.hypot(np.frombuffer(a), np.frombuffer(b))), commute=True
        )
    getattr(WORLD, name)(spec(mine), spec(expected), native)
    if RANK % 2 == 0:
        call(comm, form, name, spec(mine), spec(got), op)
    elif form != "persistent":
        call(comm, form, name, MPI.IN_PLACE, spec(got), op)
    else:
        request = getattr(comm, name + "_init")(MPI.IN_PLACE, spec(got), op)
        for _ in range(3):  # each start reads the result of the last one
            got[...] = mine
            request.Start()
            request.Wait()
    if kind == "operation of the user":
        native.Free()
    if name == "Exscan" and RANK == 0:
        return
    if kind == "pairs":
        np.testing.assert_array_equal(got["value"], expected["value"])
        np.testing.assert_array_equal(got["place"], expected["place"])
    else:
        np.testing.assert_allclose(got, expected)


# -- native reductions --------------------------------------------------------------------------------------------------


def shifted() -> Any:
    """Items that begin before their address: Penstock leaves them to MPI."""
    return MPI.DOUBLE.Create_resized(-8, 16).Commit()


def add(a: memoryview, b: memoryview, _: MPI.Datatype) -> None:
    np.frombuffer(b)[0] += np.frombuffer(a)[0]


WRONG_FOR_MPI = {
    "count": lambda y, t: [y, "x"],
    "a fraction": lambda y, t: [y, 0.5, t],
    "another count": lambda y, t: [y, 2, t],
    "another datatype": lambda y, t: [y, 1, MPI.DOUBLE],
    "read-only": lambda y, t: [bytes(32), 1, t],
}


@pytest.mark.parametrize("what", [*WRONG_FOR_MPI, "root"])
def test_what_only_mpi4py_rejects(comm: ps.Comm, what: str) -> None:
    """The error must be found before other ranks wait in MPI for this one."""
    item, op, at = shifted(), MPI.Op.Create(add, commute=True), SIZE - 1
    try:
        for kind in ("Reduce", "Allreduce"):
            if kind == "Allreduce" and what == "root":
                continue
            x, y = np.ones(4), np.zeros(4)
            wrong = at == RANK
            receive = WRONG_FOR_MPI[what](y, item) if wrong and what != "root" else [y, 1, item]
            more = (-1 if what == "root" and wrong else at,) if kind == "Reduce" else ()
            fails(
                comm,
                lambda kind=kind, receive=receive, more=more, x=x: getattr(comm, kind)(
                    [x, 1, item], receive, op, *more
                ),
                at,
            )
    finally:
        item.Free()
        op.Free()


def test_freed_before_the_end(comm: ps.Comm) -> None:
    """A started operation completes, whoever runs it."""
    item, op = shifted(), MPI.Op.Create(add, commute=True)
    with ps.Comm(WORLD) as made:
        native, planned = np.zeros(4), np.zeros(4)
        requests = [
            made.Iallreduce([np.ones(4), 1, item], [native, 1, item], op),
            made.Iallreduce(np.ones(4), planned),
        ]
    for request in requests:
        request.Wait()
    assert native[0] == SIZE
    assert (planned == SIZE).all()
    item.Free()
    op.Free()


def test_freed_while_it_is_the_only_one() -> None:
    item, op = shifted(), MPI.Op.Create(add, commute=True)
    made, total = ps.Comm(WORLD), np.zeros(4)
    request = made.Iallreduce([np.ones(4), 1, item], [total, 1, item], op)
    made.free()
    request.Wait()
    assert total[0] == SIZE
    with pytest.raises(ps.Error, match="freed"):
        made.Iallreduce([np.ones(4), 1, item], [total, 1, item], op)
    item.Free()
    op.Free()


@pytest.mark.parametrize("other", ["Penstock's", "MPI's", "of another communicator"])
def test_what_mpi_reduces_waits_for_no_wait(comm: ps.Comm, other: str) -> None:
    """As in MPI: other ranks do not depend on when this rank waits for its request."""
    if other == "MPI's" and MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        pytest.skip("below MPI_THREAD_MULTIPLE, only calls of Penstock start what MPI reduces")
    item, op, twin = shifted(), MPI.Op.Create(add, commute=True), comm.Dup()
    between = {"Penstock's": comm, "MPI's": WORLD, "of another communicator": twin}[other]
    first, second, x, y = np.zeros(4), np.zeros(4), np.ones(3), np.zeros(3)
    requests = [comm.Iallreduce([np.ones(4), 1, item], [total, 1, item], op) for total in (first, second)]
    if RANK == 0:
        between.Allreduce(x, y)
        for request in reversed(requests):
            request.Wait()
    else:
        ps.Request.Waitall(requests)
        between.Allreduce(x, y)
    assert first[0] == second[0] == y[0] == SIZE
    twin.Free()
    item.Free()
    op.Free()


# -- requests -----------------------------------------------------------------------------------------------------------


def mixed(comm: ps.Comm) -> tuple[list[Any], np.ndarray, np.ndarray]:
    """A null request of MPI, a receive, one of Penstock, a send, and persistent requests."""
    received, total = np.zeros(3), np.zeros(3)
    requests = [
        MPI.REQUEST_NULL,
        WORLD.Irecv(received, (RANK - 1) % SIZE, 7),
        comm.Iallreduce(np.ones(3), total),
        WORLD.Isend(np.full(3, float(RANK)), (RANK + 1) % SIZE, 7),
        comm.Barrier_init(),
    ]
    return requests, received, total


def test_wait_for_any(comm: ps.Comm) -> None:
    requests, received, total = mixed(comm)
    done = {ps.Request.Waitany(requests, MPI.Status()) for _ in range(3)}
    assert done == {1, 2, 3}
    assert (received == (RANK - 1) % SIZE).all()
    assert (total == SIZE).all()
    assert ps.Request.Waitany(requests) == MPI.UNDEFINED
    assert ps.Request.Testany(requests) == (MPI.UNDEFINED, True)
    requests[4].Start()
    assert ps.Request.Waitany(requests) == 4


def test_wait_for_some(comm: ps.Comm) -> None:
    requests, _received, total = mixed(comm)
    done: list[int] = []
    statuses: list[MPI.Status] = []
    while (indices := ps.Request.Waitsome(requests, statuses)) is not None:
        assert indices
        if 1 in indices:
            assert statuses[indices.index(1)].Get_tag() == 7
        done += indices
    assert sorted(done) == [1, 2, 3]
    assert (total == SIZE).all()
    assert ps.Request.Testsome(requests) is None


def test_test_any_and_some(comm: ps.Comm) -> None:
    requests, _, _ = mixed(comm)
    done = []
    while len(done) < 2:
        index, flag = ps.Request.Testany(requests)
        if flag:
            done.append(index)
    while (indices := ps.Request.Testsome(requests)) is not None:
        done += indices
    assert sorted(done) == [1, 2, 3]
    assert ps.Request.Testall(requests)


def test_received_objects(comm: ps.Comm) -> None:
    def some() -> list[Any]:
        return [
            WORLD.irecv(source=(RANK - 1) % SIZE, tag=8),
            comm.Ibarrier(),
            WORLD.isend({"from": RANK}, (RANK + 1) % SIZE, 8),
        ]

    sent = {"from": (RANK - 1) % SIZE}
    assert ps.Request.waitall(some()) == [sent, None, None]
    requests = some()
    answers = dict(ps.Request.waitany(requests) for _ in requests)
    assert answers == {0: sent, 1: None, 2: None}
    assert ps.Request.waitany(requests) == (MPI.UNDEFINED, None)
    requests, answers = some(), {}
    while (one := ps.Request.waitsome(requests))[0] is not None:
        answers.update(zip(*one))
    assert answers == {0: sent, 1: None, 2: None}
    assert ps.Request.testall(requests) == (True, [None] * 3)


def test_lists_of_other_things(comm: ps.Comm) -> None:
    """MPI's own methods accept MPI handles only, and name what they were given instead."""
    request = comm.Ibarrier()
    for method in (MPI.Request.Waitall, MPI.Request.Waitany, MPI.Request.Testsome):
        with pytest.raises(TypeError, match=r"penstock\.Request to mpi4py"):
            method([request])
    assert request.Wait()
    with pytest.raises(ps.Error, match="int"):
        ps.Request.Waitall([3])


# -- communicators and files --------------------------------------------------------------------------------------------


def test_pickled_communicators(comm: ps.Comm) -> None:
    """As in mpi4py: MPI's own communicators can be pickled, others cannot."""
    for duplicate in (pickle.loads(pickle.dumps(comm)), copy.copy(comm), copy.deepcopy(comm)):
        assert type(duplicate) is ps.Comm
        assert duplicate == comm
        works(duplicate)
    alone = ps.Comm(MPI.COMM_SELF)
    assert pickle.loads(pickle.dumps(alone)) == MPI.COMM_SELF
    alone.free()
    null = pickle.loads(pickle.dumps(ps.Comm()))
    assert type(null) is ps.Comm
    assert null == MPI.COMM_NULL
    with ps.Comm(WORLD.Dup()) as other, pytest.raises(ValueError, match="serialize"):
        pickle.dumps(other)
    MPI.Intracomm(other).Free()


class Named(ps.File):
    """A file with its own name."""

    def __new__(cls, file: ps.File | None = None, name: str = "") -> Named:
        self = super().__new__(cls, file)
        self.name = name
        return self


@pytest.fixture
def folder(comm: ps.Comm, tmp_path: Path) -> str:
    return comm.bcast(str(tmp_path), 0)


def test_subclasses_of_file(comm: ps.Comm, folder: str) -> None:
    url = f"file://{folder}/named"
    with Named.Open(comm, url, MPI.MODE_RDWR | MPI.MODE_CREATE) as first:
        assert type(first) is Named
        again = Named(first, "again")
        assert again.name == "again"
        assert isinstance(again, ps.File)
        assert again == first
        again.Write_at_all(0, b"same")
        assert first.Get_size() == 4
        again.Seek(2)
        assert first.Get_position() == 2
    assert not first
    assert not again
    assert again == MPI.FILE_NULL
    assert ps.File() == ps.File(MPI.FILE_NULL) == MPI.FILE_NULL
    with pytest.raises(ps.Error, match=r"File\.Open"):
        ps.File("a name")
    with pytest.raises(ps.Error, match="closed"):
        first.Get_size()
    first.free()


def test_what_else_a_file_is_asked(comm: ps.Comm, folder: str) -> None:
    with ps.File.Open(comm, f"file://{folder}/asked", MPI.MODE_RDWR | MPI.MODE_CREATE) as file:
        assert file
        assert file != MPI.FILE_NULL
        assert (file.group_size, file.group_rank) == (SIZE, RANK)
        handler = file.Get_errhandler()
        assert handler == MPI.ERRORS_RETURN
        handler.Free()
        file.Set_errhandler(MPI.ERRORS_ARE_FATAL)
        assert file.Get_errhandler() == MPI.ERRORS_ARE_FATAL
        with pytest.raises(ps.Error):  # does not end the program
            file.Seek(-1)
        with pytest.raises(ValueError, match="serialize"):
            pickle.dumps(file)
        requests = [file.Iwrite_at(RANK * 8, b"penstock"), comm.Ibarrier()]
        ps.Request.Waitall(requests)
    assert pickle.loads(pickle.dumps(file)) == MPI.FILE_NULL
