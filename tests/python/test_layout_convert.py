"""Layouts from and to ScaLAPACK's and MPI's descriptions, and DLPack."""

from __future__ import annotations

import numpy as np
import penstock as ps
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

MPI = pytest.importorskip("mpi4py.MPI")

blocks = st.tuples(st.integers(1, 5), st.integers(1, 5))
grids = st.tuples(st.integers(1, 3), st.integers(1, 3))
lengths = st.tuples(st.integers(1, 14), st.integers(1, 14))


@settings(max_examples=100, deadline=None)
@given(lengths, blocks, grids, st.sampled_from(["row", "column"]), st.data())
def test_scalapack_there_and_back(shape, block, grid, order, data):
    first = data.draw(st.tuples(*(st.integers(0, n - 1) for n in grid)))
    layout = ps.Layout.from_scalapack([1, 7, *shape, *block, *first, 99], grid, order)
    assert layout.storage == "column"
    for rank in range(layout.ranks):
        at = divmod(rank, grid[1]) if order == "row" else divmod(rank, grid[0])[::-1]
        expected = [
            [i for i in range(n) if (i // size + source) % processes == here]
            for n, size, source, processes, here in zip(shape, block, first, grid, at)
        ]
        array = np.arange(np.prod(shape)).reshape(shape)
        local = ps.DistArray.from_global(layout, array, rank).local
        np.testing.assert_array_equal(local, array[np.ix_(*expected)])
        descriptor = layout.to_scalapack(rank, grid, order, context=7)
        assert descriptor.dtype == np.int32
        assert descriptor[8] == max(1, len(expected[0]))
        again = ps.Layout.from_scalapack(descriptor, grid, order)
        np.testing.assert_array_equal(ps.DistArray.from_global(again, array, rank).local, local)


@settings(max_examples=100, deadline=None)
@given(st.data(), st.lists(st.integers(1, 9), min_size=1, max_size=3))
def test_darray_selects_what_mpi_selects(data, shape):
    """Against the bytes that MPI packs with the datatype."""
    distribs, dargs, psizes = [], [], []
    for length in shape:
        kind = data.draw(st.sampled_from([MPI.DISTRIBUTE_NONE, MPI.DISTRIBUTE_BLOCK, MPI.DISTRIBUTE_CYCLIC]))
        processes = 1 if kind == MPI.DISTRIBUTE_NONE else data.draw(st.integers(1, 3))
        least = -(-length // processes) if kind == MPI.DISTRIBUTE_BLOCK else 1
        default = kind == MPI.DISTRIBUTE_NONE or data.draw(st.booleans())
        distribs.append(kind)
        dargs.append(MPI.DISTRIBUTE_DFLT_DARG if default else data.draw(st.integers(least, 9)))
        psizes.append(processes)
    order = data.draw(st.sampled_from([MPI.ORDER_C, MPI.ORDER_FORTRAN]))
    layout = ps.Layout.from_darray(shape, distribs, dargs, psizes, order)
    array = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    memory = array.ravel(order="C" if order == MPI.ORDER_C else "F")
    for rank in range(layout.ranks):
        kind = MPI.INT32_T.Create_darray(layout.ranks, rank, shape, distribs, dargs, psizes, order).Commit()
        packed = np.empty(layout.local_size(rank), np.int32)
        assert kind.Get_size() == packed.nbytes
        if packed.size:
            MPI.COMM_SELF.Sendrecv([memory, 1, kind], 0, recvbuf=[packed, MPI.INT32_T], source=0)
        kind.Free()
        local = ps.DistArray.from_global(layout, array, rank).local
        np.testing.assert_array_equal(local.ravel(order="A"), packed)
    again = ps.Layout.from_darray(*layout.to_darray(psizes)[1:])
    assert again._same_places(layout)


def test_subarrays_there_and_back():
    sizes = (6, 7)
    boxes = [((4, 3), (0, 0)), ((2, 4), (0, 3)), ((4, 4), (2, 3)), ((2, 3), (4, 0))]
    layout = ps.Layout.from_subarrays(sizes, [box[0] for box in boxes], [box[1] for box in boxes], MPI.ORDER_FORTRAN)
    assert layout.storage == "column"
    array = np.arange(42).reshape(sizes)
    for rank, (subsizes, starts) in enumerate(boxes):
        subarray = layout.to_subarray(rank)
        assert subarray == (list(sizes), list(subsizes), list(starts), MPI.ORDER_FORTRAN)
        where = tuple(slice(start, start + n) for start, n in zip(starts, subsizes))
        np.testing.assert_array_equal(ps.DistArray.from_global(layout, array, rank).local, array[where])
    assert ps.Layout.even((6, 4), 3).to_subarray(1)[1:3] == ([2, 4], [2, 0])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ps.Layout.from_scalapack([1, 0, 5], (1, 1)), "has 3 entries; expected 9"),
        (lambda: ps.Layout.from_scalapack([2, 0, 5, 5, 1, 1, 0, 0, 5], (1, 1)), "entry 1, is 2; expected 1"),
        (lambda: ps.Layout.from_scalapack([1, 0, 5, 5, 1, 1, 3, 0, 5], (2, 2)), "first_process[0] is 3"),
        (lambda: ps.Layout.even((6, 6), 3).to_scalapack(0, (3, 1)), "in row order; ScaLAPACK's have 2 in column order"),
        (
            lambda: ps.Layout.grid([0, 1, 6], [0, 6], [0, 1], storage="column").to_scalapack(0, (2, 1)),
            "is not block-cyclic on this process grid",
        ),
        (
            lambda: ps.Layout.from_darray((4,), (MPI.DISTRIBUTE_NONE,), (0,), (2,)),
            "is not distributed, but psizes has 2",
        ),
        (
            lambda: ps.Layout.from_darray((9,), (MPI.DISTRIBUTE_BLOCK,), (2,), (2,)),
            "2 blocks of 2 are too few for the 9",
        ),
        (lambda: ps.Layout.from_darray((9,), (MPI.DISTRIBUTE_BLOCK,), (2, 2), (2,)), "expected one per dimension"),
        (lambda: ps.Layout.from_subarrays((4,), [(2,)], [(0,)]), "the boxes hold 2 elements of the array's 4"),
        (lambda: ps.Layout.block_cyclic((8,), (2,), (2,)).to_subarray(0), "what rank 0 owns is not one box"),
        (lambda: ps.Layout.even((6, 6), 3).copy(1), "index is 1; expected 0 to 0"),
    ],
)
def test_wrong_descriptions_are_named(make, message):
    with pytest.raises(ps.Error) as caught:
        make()
    assert message in str(caught.value)


def test_dlpack_shares_the_memory_both_ways():
    layout = ps.Layout.block_cyclic((6, 4), (2, 2), (1, 1), storage="column")
    part = ps.DistArray.zeros(layout, np.float32)
    seen = np.from_dlpack(part)
    part.local[2, 3] = 5
    assert seen[2, 3] == 5
    again = ps.DistArray.from_dlpack(layout, seen if seen.flags.writeable else part.local)
    again.local[1, 1] = 7
    assert part.local[1, 1] == 7
    with pytest.raises(ps.Error, match="a list given; expected host memory by DLPack"):
        ps.DistArray.from_dlpack(layout, [1.0])


def test_plots_show_the_owners(tmp_path):
    from penstock import layout_plot

    layout = ps.Layout.boxes(
        (4, 6, 3), [(0, (0, 0, 0), (4, 2, 3)), (1, (0, 2, 0), (4, 4, 1)), (2, (0, 2, 1), (4, 4, 2))]
    )
    rows, columns, owners = layout_plot.owners_on_grid(layout, (0,))
    assert (rows.tolist(), columns.tolist(), owners.tolist()) == ([0, 4], [0, 2, 6], [[0, 1]])
    assert layout_plot.owners_on_grid(layout, (1,))[2].tolist() == [[0, 2]]
    _, _, many = layout_plot.owners_on_grid(ps.Layout.block_cyclic((4096,), (1,), (2,)))
    assert many.shape == (1, 256)
    pytest.importorskip("matplotlib")
    for index, layouts in enumerate([(layout, layout), (ps.Layout.even((9,), 3), ps.Layout.whole((9,)))]):
        layout_plot.draw(dict(zip(("before", "after"), layouts)), tmp_path / f"{index}.png")
        assert (tmp_path / f"{index}.png").read_bytes().startswith(b"\x89PNG")
    layout_plot.draw({"nothing": ps.Layout.whole((0, 4))}, tmp_path / "empty.png")
    with pytest.raises(ps.Error, match="index 3 along axis 2, which has the length 3"):
        layout_plot.owners_on_grid(layout, (3,))
