"""Buffer specifications with blocks, and derived datatypes with unusual bounds, compared with mpi4py's interpretation."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import penstock as ps
import pytest
from mpi4py import MPI
from test_errors import fails

WORLD = MPI.COMM_WORLD
SIZE, RANK = WORLD.size, WORLD.rank


def same(comm: ps.Comm, name: str, send: Any, receive: Any) -> None:
    """`name` fills `receive(array)` as mpi4py's own does."""
    got, expected = np.full(6 * SIZE + 8, -1.0), np.full(6 * SIZE + 8, -1.0)
    getattr(WORLD, name)(send, receive(expected))
    getattr(comm, name)(send, receive(got))
    np.testing.assert_array_equal(got, expected)


def test_scalar_displacement_is_a_stride(comm: ps.Comm) -> None:
    mine = np.arange(6.0 * SIZE) + 100 * RANK
    same(comm, "Allgatherv", mine[:2], lambda x: [x, (2, 4), MPI.DOUBLE])
    same(comm, "Allgatherv", mine[:2], lambda x: [x, 2, 3, MPI.DOUBLE])
    same(comm, "Alltoallv", [mine, (2, 5)], lambda x: [x, (2, 4)])
    same(comm, "Alltoallv", [mine, np.int32(2), np.array(3), MPI.DOUBLE], lambda x: [x, np.array(2), np.int8(4), "d"])


def test_lists_are_any_sequence(comm: ps.Comm) -> None:
    mine = np.arange(6.0 * SIZE) + 100 * RANK
    counts, places = np.full(SIZE, 2), np.arange(SIZE) * 3
    same(comm, "Allgatherv", mine[:2], lambda x: [x, (counts, places)])
    same(comm, "Allgatherv", mine[:2], lambda x: [x, counts, places[::-1].copy(), MPI.DOUBLE])
    same(comm, "Alltoallv", [mine, counts], lambda x: [x, tuple(counts), tuple(places), MPI.DOUBLE])


def test_even_division_with_a_remainder(comm: ps.Comm) -> None:
    """The first ranks have one more item, as in mpi4py."""
    total = 3 * SIZE + SIZE // 2
    mine = np.arange(float(3 + (RANK < SIZE // 2)))
    got, expected = np.zeros(total), np.zeros(total)
    WORLD.Allgatherv(mine, expected)
    comm.Allgatherv(mine, got)
    np.testing.assert_array_equal(got, expected)


WRONG = {
    "a fraction": lambda x: [x, (np.array(3.7), None)],
    "a fraction in a list": lambda x: [x, [1.5] * SIZE],
    "a fraction as displacement": lambda x: [x, (1, np.array(0.5))],
    "one count too many": lambda x: [x, np.ones(SIZE + 1, int)],
    "a negative count": lambda x: [x, [-1] * SIZE],
    "a datatype that is none": lambda x: [x, 1, float],
    "a code that is none": lambda x: [x, 1, "x"],
}


@pytest.mark.parametrize("what", WRONG)
def test_what_names_no_blocks(comm: ps.Comm, what: str) -> None:
    at = SIZE - 1
    spec = WRONG[what] if at == RANK else lambda x: [x, 1]
    fails(comm, lambda: comm.Allgatherv(np.ones(1), spec(np.zeros(4 * SIZE))), at)


def test_empty_blocks_lie_anywhere(comm: ps.Comm) -> None:
    """The padding of the last item lies outside of the array; and items far apart."""
    padded = MPI.DOUBLE.Create_resized(0, 24).Commit()
    try:
        mine = np.arange(3.0) + RANK
        counts = [1] * SIZE
        last = SIZE - 1
        send = [mine[:1], 1, MPI.DOUBLE]
        if SIZE > 1:
            counts[last] = 0
            send = send if last != RANK else [mine, 0, MPI.DOUBLE]
        got, expected = np.zeros(3 * SIZE - 2), np.zeros(3 * SIZE - 2)  # no padding behind the last item
        WORLD.Allgatherv(send, [expected, counts, list(range(SIZE)), padded])
        comm.Allgatherv(send, [got, counts, list(range(SIZE)), padded])
        np.testing.assert_array_equal(got, expected)
        far = [10**6 if count == 0 else i for i, count in enumerate(counts)]
        comm.Allgatherv(send, [got, counts, far, MPI.DOUBLE])
    finally:
        padded.Free()


def test_items_before_their_address(comm: ps.Comm) -> None:
    """A negative true lower bound: the address of the first item is inside the array, and so are its bytes."""
    before = MPI.INT.Create_indexed([1, 1], [-1, 0]).Create_resized(0, 8).Commit()
    try:
        mine = np.arange(4, dtype="i4") + 10 * RANK
        buffer = mine.copy()
        expected = mine.copy()
        WORLD.Bcast([expected, 1, 1, before], 0)
        comm.Bcast([buffer, 1, 1, before], 0)
        np.testing.assert_array_equal(buffer, expected)
        got, expected = np.zeros(2 * SIZE + 2, "i4"), np.zeros(2 * SIZE + 2, "i4")
        places = list(range(1, SIZE + 1))
        WORLD.Allgatherv([mine, 2, MPI.INT], [expected, [1] * SIZE, places, before])
        comm.Allgatherv([mine, 2, MPI.INT], [got, [1] * SIZE, places, before])
        np.testing.assert_array_equal(got, expected)
    finally:
        before.Free()


@pytest.mark.parametrize("extent", [0, -4])
def test_extents_that_do_not_grow(comm: ps.Comm, extent: int) -> None:
    item = MPI.INT.Create_resized(0, extent).Commit()
    try:
        mine = np.arange(6, dtype="i4") + 10 * RANK
        plain = np.full(1, -1, "i4")
        comm.Bcast([mine, 1, item] if RANK == 0 else plain, 0)
        assert plain[0] == (0 if RANK else -1)
        gathered = np.zeros(SIZE, "i4")
        comm.Allgather([mine, 1, item], gathered)
        np.testing.assert_array_equal(gathered, 10 * np.arange(SIZE))
        three = np.zeros(3 * SIZE, "i4")
        if extent == 0:  # the same item three times
            comm.Allgather([mine, 3, item], three)
            np.testing.assert_array_equal(three, np.repeat(10 * np.arange(SIZE), 3))
        else:
            down = MPI.Datatype.Create_struct([3], [8], [item]).Commit()  # bytes 8, 4 and 0
            comm.Allgather([mine, 1, down], three)
            np.testing.assert_array_equal(three, np.add.outer(10 * np.arange(SIZE), [2, 1, 0]).ravel())
            down.Free()
    finally:
        item.Free()


def test_absolute_addresses(comm: ps.Comm) -> None:
    mine, got = np.arange(5.0) + RANK, np.zeros(5)
    here = MPI.Datatype.Create_struct([2, 3], [MPI.Get_address(mine), MPI.Get_address(mine[2:])], [MPI.DOUBLE] * 2)
    there = MPI.DOUBLE.Create_hindexed([5], [MPI.Get_address(got)]).Commit()
    here.Commit()
    try:
        gathered = np.zeros((SIZE, 5))
        comm.Allgather([MPI.BOTTOM, 1, here], gathered)
        np.testing.assert_array_equal(gathered, np.arange(5.0) + np.arange(SIZE)[:, None])
        comm.Scatter(gathered if RANK == 0 else None, [MPI.BOTTOM, 1, there], 0)
        np.testing.assert_array_equal(got, mine)
        got[:] = 0
        comm.Scatterv([gathered, 5] if RANK == 0 else None, [MPI.BOTTOM, 1, there], 0)
        np.testing.assert_array_equal(got, mine)
    finally:
        here.Free()
        there.Free()
    plain = MPI.DOUBLE.Create_vector(2, 1, 2).Commit()
    at = SIZE - 1
    fails(comm, lambda: comm.Allgather([MPI.BOTTOM, 1, plain] if at == RANK else np.zeros(2), np.zeros(2 * SIZE)), at)
    plain.Free()


@pytest.mark.parametrize("lists", [([0] * SIZE, None), (None, [0] * SIZE), (None, None)])
def test_absolute_addresses_need_counts_and_displacements(comm: ps.Comm, lists: tuple[list[int] | None, ...]) -> None:
    """As in mpi4py, also where no byte moves."""
    types = [MPI.BYTE] * SIZE
    wrong = [MPI.BOTTOM, *lists, types]
    fails(comm, lambda: comm.Alltoallw(wrong if RANK == SIZE - 1 else [None, types], [None, types]), SIZE - 1, False)


class OnlyDLPack:
    """An array that exports nothing else."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()


def test_dlpack_alone(comm: ps.Comm) -> None:
    mine, got = np.arange(2.0) + RANK, np.zeros(2 * SIZE)
    expected = np.add.outer(np.arange(float(SIZE)), [0, 1]).ravel()
    comm.Allgatherv(OnlyDLPack(mine), OnlyDLPack(got))
    np.testing.assert_array_equal(got, expected)
    got[:] = 0
    comm.Alltoallv([OnlyDLPack(np.tile(mine, SIZE)), 2], [OnlyDLPack(got), (2, 2)])
    np.testing.assert_array_equal(got, expected)
    got[:] = 0
    every_second = MPI.DOUBLE.Create_vector(2, 1, 2).Create_resized(0, 16).Commit()
    wide = np.zeros(2 * SIZE + 1)
    comm.Allgatherv([OnlyDLPack(mine[:1]), 1, MPI.DOUBLE], [OnlyDLPack(got), [1] * SIZE, MPI.DOUBLE])
    np.testing.assert_array_equal(got[:SIZE], np.arange(SIZE))
    comm.Bcast([OnlyDLPack(wide[:3]), 1, every_second] if RANK else [OnlyDLPack(np.arange(3.0)), 1, every_second], 0)
    assert RANK == 0 or wide[:3].tolist() == [0, 0, 2]
    every_second.Free()
    total = np.zeros(2)
    comm.Allreduce(OnlyDLPack(mine), OnlyDLPack(total), np.maximum)
    np.testing.assert_array_equal(total, np.arange(2.0) + SIZE - 1)
    comm.Reduce_scatter(OnlyDLPack(np.ones(2 * SIZE)), OnlyDLPack(total))
    assert total.tolist() == [SIZE, SIZE]


class _Tensor(ctypes.Structure):
    """DLPack's DLManagedTensor, whose first member is the tensor."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


class WithLanes:
    """Elements of several numbers each, like vector types; NumPy exports none."""

    def __init__(self, array: np.ndarray, lanes: int) -> None:
        self._array = array
        self._shape = (ctypes.c_int64 * 1)(array.size // lanes)
        self._tensor = _Tensor(
            array.ctypes.data, 1, 0, 1, 2, 8 * array.itemsize, lanes, self._shape, None, 0, None, None
        )
        self._make = ctypes.pythonapi.PyCapsule_New
        self._make.restype = ctypes.py_object
        self._make.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)

    def __dlpack__(self, stream: Any = None) -> Any:
        return self._make(ctypes.addressof(self._tensor), b"dltensor", None)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


@pytest.mark.parametrize("lanes", [2, 4])
def test_lanes_travel_together(comm: ps.Comm, lanes: int) -> None:
    data = np.arange(8.0) if RANK == 0 else np.zeros(8)
    comm.Bcast(WithLanes(data, lanes), 0)
    np.testing.assert_array_equal(data, np.arange(8.0))
    gathered = np.zeros(8 * SIZE)
    comm.Allgatherv(WithLanes(data, lanes), [WithLanes(gathered, lanes), 8 // lanes])
    np.testing.assert_array_equal(gathered, np.tile(np.arange(8.0), SIZE))


def test_two_lanes_are_complex(comm: ps.Comm) -> None:
    factor, product = np.array([0.0, 1.0]), np.zeros(2)  # i
    comm.Allreduce(WithLanes(factor, 2), WithLanes(product, 2), MPI.PROD)
    power = 1j**SIZE
    np.testing.assert_allclose(product, [power.real, power.imag], atol=1e-12)
