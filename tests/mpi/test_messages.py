"""mpi4py's ways to name a buffer, and what has no plan."""

from __future__ import annotations

import array

import numpy as np
import penstock as ps
import pytest
from mpi4py import MPI

WORLD = MPI.COMM_WORLD


def test_specifications(comm: ps.Comm) -> None:
    """The same message by each of mpi4py's notations."""
    for spec in (
        lambda x: x[2:6],
        lambda x: [x[2:6], MPI.DOUBLE],
        lambda x: [x[2:6], "d"],
        lambda x: [x[2:], 4],
        lambda x: [x[2:], 4, MPI.DOUBLE],
        lambda x: [x, (4, 2), MPI.DOUBLE],
        lambda x: (x, 4, 2, MPI.DOUBLE),
        lambda x: [x.view("u1")[16:], 4, MPI.DOUBLE],
        lambda x: [memoryview(x)[2:6], None, MPI.DOUBLE],
    ):
        x, y = np.arange(10.0) + comm.rank, np.zeros(10)
        comm.Allreduce(spec(x), spec(y))
        expected = np.zeros(10)
        expected[2:6] = comm.size * np.arange(2.0, 6.0) + comm.size * (comm.size - 1) / 2
        np.testing.assert_array_equal(y, expected)


def test_blocks(comm: ps.Comm) -> None:
    """A count in a gather is that of one rank."""
    gathered = np.zeros(3 * comm.size + 5, "i4")
    comm.Allgather([np.full(9, comm.rank, "i4"), 3], [gathered, 3, MPI.INT])
    np.testing.assert_array_equal(gathered[: 3 * comm.size], np.repeat(np.arange(comm.size), 3))
    np.testing.assert_array_equal(gathered[3 * comm.size :], 0)


def test_other_buffers(comm: ps.Comm) -> None:
    numbers = array.array("i", [comm.rank] * 5)
    comm.Allreduce(MPI.IN_PLACE, numbers)
    assert list(numbers) == [comm.size * (comm.size - 1) // 2] * 5
    text = bytearray(b"penstock") if comm.rank == 0 else bytearray(8)
    comm.Bcast(text if comm.rank else b"penstock")
    assert text == b"penstock"
    flags = np.array([comm.rank == 0, True, False])
    comm.Bcast(flags)
    assert flags.tolist() == [True, True, False]
    columns = np.asfortranarray(np.arange(6.0).reshape(2, 3) * comm.rank)
    comm.Allreduce(MPI.IN_PLACE, columns)
    np.testing.assert_array_equal(columns, np.arange(6.0).reshape(2, 3) * comm.size * (comm.size - 1) / 2)


@pytest.mark.parametrize("root", [0, -1])
def test_derived_datatypes(comm: ps.Comm, root: int) -> None:
    """A column of a matrix, which only some ranks describe by a derived type."""
    root %= comm.size
    column = MPI.DOUBLE.Create_vector(4, 1, 5).Create_resized(0, 8).Commit()
    try:
        matrix = np.arange(20.0).reshape(4, 5) + 100 * comm.rank
        expected = np.arange(20.0).reshape(4, 5)[:, 1] + 100 * root
        if comm.rank == root:
            comm.Bcast([matrix, 1, 1, column], root)
        else:
            plain = np.zeros(4)
            comm.Bcast(plain, root)
            np.testing.assert_array_equal(plain, expected)

        gathered = np.zeros((4, comm.size))
        into = MPI.DOUBLE.Create_vector(4, 1, comm.size).Create_resized(0, 8).Commit()
        if comm.rank == root:
            comm.Gather(matrix[:, 2].copy(), [gathered, 1, into], root)
            np.testing.assert_array_equal(
                gathered, np.arange(2.0, 20, 5)[:, None] + 100 * np.arange(comm.size)[None, :]
            )
        else:
            comm.Igather([matrix, 1, 2, column], None, root).Wait()

        back = np.zeros((4, 5))
        if comm.rank == root:
            comm.Scatter([gathered, 1, into], MPI.IN_PLACE, root)
        else:
            request = comm.Iscatter(None, [back, 1, 3, column], root)
            request.Wait()
            np.testing.assert_array_equal(back[:, 3], np.arange(2.0, 20, 5) + 100 * comm.rank)
            assert np.count_nonzero(back) == 4
        into.Free()
    finally:
        column.Free()


def test_native_reductions(comm: ps.Comm) -> None:
    """Operations and types without a plan run natively, and the report says so."""
    before = comm.report().count("native: ")
    double = MPI.Op.Create(lambda a, b, _: np.frombuffer(b, "f8").__iadd__(2 * np.frombuffer(a, "f8")), commute=False)
    x, y = np.ones(10), np.zeros(10)
    expected = np.zeros(10)
    WORLD.Allreduce(x, expected, double)
    comm.Allreduce(x, y, double)
    np.testing.assert_array_equal(y, expected)
    y[:] = 0
    comm.Iallreduce(x, y, double).Wait()
    np.testing.assert_array_equal(y, expected)
    persistent = comm.Reduce_init(x, y if comm.rank == 0 else None, double)
    for _ in range(3):
        persistent.Start()
        persistent.Wait()
    double.Free()

    long = np.full(3, comm.rank, np.longdouble)
    comm.Allreduce(MPI.IN_PLACE, long)
    assert (long == comm.size * (comm.size - 1) // 2).all()

    pair = np.zeros(1, [("value", "f8"), ("place", "i4")])
    pair["value"], pair["place"] = -comm.rank, comm.rank
    least = np.zeros_like(pair)
    comm.Allreduce([pair, 1, MPI.DOUBLE_INT], [least, 1, MPI.DOUBLE_INT], MPI.MINLOC)
    assert least["place"][0] == comm.size - 1
    assert comm.report().count("native: ") > before
