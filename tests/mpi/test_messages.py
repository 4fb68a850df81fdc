"""mpi4py's notations for a buffer, and reductions without a plan."""

from __future__ import annotations

import array

import numpy as np
import penstock as ps
import pytest
from mpi4py import MPI
from penstock.datatype import flatten

WORLD = MPI.COMM_WORLD


def test_specifications(comm: ps.Comm) -> None:
    """The same message in each of mpi4py's notations."""
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
    """The count of a gather is that of one rank."""
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


def test_flattened_datatypes(rng: np.random.Generator) -> None:
    """The flattened form packs as MPI does, for nested, unordered and distributed types with holes."""
    made = [
        MPI.DOUBLE.Create_vector(3, 2, 5),
        MPI.SHORT_INT.Create_contiguous(3),
        MPI.Datatype.Create_struct([2, 1, 3], [0, 40, 60], [MPI.DOUBLE_INT, MPI.CHAR, MPI.INT16_T]),
        MPI.INT.Create_indexed([2, 0, 1, 4], [9, 3, 0, 12]),
        MPI.FLOAT.Create_subarray([6, 5, 4], [2, 3, 2], [1, 1, 2], MPI.ORDER_F),
        MPI.INT.Create_darray(4, 2, [8, 6], [MPI.DISTRIBUTE_CYCLIC] * 2, [2, 1], [2, 2], MPI.ORDER_C),
    ]
    made.append(made[0].Create_hvector(2, 1, 200))
    for item in made:
        datatype = item.Create_resized(0, 1024).Commit()
        memory = rng.integers(0, 256, 3 * 1024).astype("u1")
        expected, got = bytearray(3 * datatype.Get_size()), bytearray(3 * datatype.Get_size())
        datatype.Pack(memory, expected, 0, MPI.COMM_SELF)
        flatten(datatype).pack(memory, 0, 3, got)
        assert got == expected
        back, other = np.zeros_like(memory), np.zeros_like(memory)
        datatype.Unpack(expected, 0, other, MPI.COMM_SELF)
        flatten(datatype).unpack(got, back, 0, 3)
        np.testing.assert_array_equal(back, other)
        with pytest.raises(ps.Error, match="reach"):
            flatten(datatype).pack(memory[: 2 * 1024], 0, 3, got)
        datatype.Free()


def affine(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Composition of x -> p*x + q modulo 2^64, which does not commute."""
    a, b = a.reshape(-1, 2), b.reshape(-1, 2)
    return np.stack([a[:, 0] * b[:, 0], a[:, 1] * b[:, 0] + b[:, 1]], axis=1).reshape(-1)


def into_second(a: memoryview, b: memoryview, _: MPI.Datatype) -> None:
    np.frombuffer(b, "u8")[:] = affine(np.frombuffer(a, "u8"), np.frombuffer(b, "u8"))


FORMS = {
    "Allreduce": lambda comm, x, y, op, root: comm.Allreduce(x, y, op),
    "Iallreduce": lambda comm, x, y, op, root: comm.Iallreduce(x, y, op).Wait(),
    "Reduce": lambda comm, x, y, op, root: comm.Reduce(x, y, op, root),
    "Scan": lambda comm, x, y, op, root: comm.Scan(x, y, op),
    "Exscan": lambda comm, x, y, op, root: comm.Exscan(x, y, op),
    "Reduce_scatter_block": lambda comm, x, y, op, root: comm.Reduce_scatter_block(x, y, op),
    "Reduce_scatter": lambda comm, x, y, op, root: comm.Reduce_scatter(x, y, None, op),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("count", [1, 40, 3000])
def test_operations_of_the_user(comm: ps.Comm, form: str, count: int) -> None:
    """By MPI.Op.Create, and as a callable: combined in rank order, as MPI does."""
    pair = MPI.UINT64_T.Create_contiguous(2).Commit()
    op = MPI.Op.Create(into_second, commute=False)
    try:
        blocks = comm.size if form.startswith("Reduce_scatter") else 1
        mine = np.random.default_rng([comm.rank, count]).integers(1, 1 << 62, 2 * count * blocks, "u8")
        expected, got = np.zeros(2 * count, "u8"), np.zeros(2 * count, "u8")
        root = comm.size - 1
        if form == "Reduce_scatter":
            WORLD.Reduce_scatter([mine, count * blocks, pair], [expected, count, pair], [count] * comm.size, op)
        else:
            FORMS[form](WORLD, [mine, count, pair], [expected, count, pair], op, root)
        many = count * blocks if form == "Reduce_scatter" else count
        FORMS[form](comm, [mine, many, pair], [got, count, pair], op, root)
        np.testing.assert_array_equal(got, expected)
        # A callable gets whole buffers of uint64 elements, so pairs must not be split.
        if count == 1 and blocks == 1:
            got[:] = 0
            FORMS[form](
                comm,
                mine.view("V16"),
                got.view("V16"),
                lambda a, b: affine(a.view("u8"), b.view("u8")).view("V16"),
                root,
            )
            np.testing.assert_array_equal(got, expected)
    finally:
        op.Free()
        pair.Free()


def test_persistent_operation_of_the_user(comm: ps.Comm) -> None:
    x, y = np.ones(10), np.zeros(10)
    request = comm.Allreduce_init(x, y, np.logaddexp)
    for turn in range(3):
        x[:] = turn + comm.rank
        request.Start()
        request.Wait()
        expected = np.logaddexp.reduce(turn + np.arange(comm.size))
        np.testing.assert_allclose(y, expected)


def test_raising_operation(comm: ps.Comm) -> None:
    """A failure of the operation on one rank raises on all participating ranks, with its text; none hangs."""

    def broken(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        raise ValueError("cannot combine these")

    if comm.size == 1:
        pytest.skip("a single rank combines nothing")
    with pytest.raises(ps.Error, match="cannot combine these"):
        comm.Allreduce(np.ones(4), np.zeros(4), broken)
    total = np.zeros(4)
    comm.Allreduce(np.ones(4), total)
    assert (total == comm.size).all()
    with pytest.raises(ps.Error, match="op is 3"):
        comm.Allreduce(np.ones(4), np.zeros(4), 3)


PAIRS = {
    "FLOAT_INT": [("value", "f4"), ("place", "i4")],
    "DOUBLE_INT": [("value", "f8"), ("place", "i4"), ("hole", "i4")],
    "LONG_INT": [("value", "i8"), ("place", "i4"), ("hole", "i4")],
    "SHORT_INT": [("value", "i2"), ("hole", "i2"), ("place", "i4")],
    "TWOINT": [("value", "i4"), ("place", "i4")],
    "LONG_DOUBLE_INT": [("value", "g"), ("place", "i4"), ("hole", "i4", 3)],
}


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("op", [MPI.MINLOC, MPI.MAXLOC])
def test_pairs(comm: ps.Comm, rng: np.random.Generator, name: str, op: MPI.Op) -> None:
    datatype = getattr(MPI, name)
    for count in (1, 700, 20000):
        every = rng.integers(-3, 3, (comm.size, count))
        mine = np.zeros(count, PAIRS[name])
        mine["value"], mine["place"] = every[comm.rank], comm.rank
        best = np.zeros_like(mine)
        comm.Allreduce([mine.view("u1"), count, datatype], [best.view("u1"), count, datatype], op)
        place = (every.argmin if op == MPI.MINLOC else every.argmax)(axis=0)
        np.testing.assert_array_equal(best["place"], place)
        np.testing.assert_array_equal(best["value"], every[place, np.arange(count)])


def test_other_elements(comm: ps.Comm) -> None:
    """Booleans, long doubles and complex long doubles have plans."""
    some = np.array([comm.rank == 0, True, False])
    result = np.zeros(3, "?")
    for op, expected in ((MPI.LAND, [comm.size == 1, True, False]), (MPI.LOR, [True, True, False])):
        comm.Allreduce(some, result, op)
        assert result.tolist() == expected
    long = np.full(3, comm.rank, np.longdouble) + np.longdouble(1) / 3
    total = np.zeros_like(long)
    comm.Allreduce(long, total)
    np.testing.assert_allclose(total, comm.size * (comm.size - 1) / 2 + comm.size / np.longdouble(3), rtol=1e-18)
    comm.Allreduce(MPI.IN_PLACE, long.astype(np.clongdouble), MPI.PROD)
    with pytest.raises(ps.Error, match="bool8"):
        comm.Allreduce(some, result, MPI.SUM)


def natives(comm: ps.Comm) -> list[str]:
    """The reductions that MPI ran natively, in this test and earlier ones."""
    return [line for line in comm.report().splitlines() if line.startswith("native: ")]


def test_holes_stay(comm: ps.Comm) -> None:
    """A reduction of a derived datatype writes the bytes that the datatype describes, and no others."""
    before = natives(comm)
    every_other = MPI.INT64_T.Create_vector(4, 1, 2).Create_resized(0, 64).Commit()
    op = MPI.Op.Create(lambda a, b, _: np.frombuffer(b, "i8")[::2].__iadd__(np.frombuffer(a, "i8")[::2]), commute=True)
    try:
        mine, total = np.arange(24) + comm.rank, np.full(24, -1)
        comm.Allreduce([mine, 3, every_other], [total, 3, every_other], op)
        np.testing.assert_array_equal(total[::2], comm.size * np.arange(24)[::2] + comm.size * (comm.size - 1) // 2)
        assert (total[1::2] == -1).all()
        comm.Allreduce(MPI.IN_PLACE, [mine, 3, every_other], op)
        np.testing.assert_array_equal(mine[::2], total[::2])
        np.testing.assert_array_equal(mine[1::2], np.arange(24)[1::2] + comm.rank)
    finally:
        op.Free()
        every_other.Free()
    assert natives(comm) == before
