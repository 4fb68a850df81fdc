"""Layouts and distributed arrays against NumPy."""

from __future__ import annotations

import pickle

import numpy as np
import penstock as ps
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from python.layout_strategies import layouts

shapes = st.lists(st.integers(0, 12), min_size=1, max_size=3).map(tuple)


@settings(max_examples=150, deadline=None)
@given(st.data(), shapes)
def test_parts_make_up_the_global_array(data, shape):
    layout = data.draw(layouts(shape))
    array = np.arange(np.prod(shape), dtype=np.int64).reshape(shape)
    parts = [ps.DistArray.from_global(layout, array, rank) for rank in range(layout.ranks)]
    assert sum(part.local.size for part in parts) == array.size
    assert [part.local.shape for part in parts] == [layout.local_shape(rank) for rank in range(layout.ranks)]
    np.testing.assert_array_equal(ps.DistArray.assemble(parts), array)
    for rank, part in enumerate(parts):
        flat = part.local.reshape(-1, order="A")
        for block in layout.local_blocks(rank):
            seen = np.lib.stride_tricks.as_strided(
                flat[block.local_offset :], block.shape, [8 * stride for stride in block.strides]
            )
            where = tuple(slice(begin, begin + n) for begin, n in zip(block.global_start, block.shape, strict=True))
            np.testing.assert_array_equal(seen, array[where])


@settings(max_examples=100, deadline=None)
@given(st.data(), shapes)
def test_a_layout_survives_text_and_pickle(data, shape):
    layout = data.draw(layouts(shape))
    assert ps.Layout.parse(layout.serialize()) == layout
    assert pickle.loads(pickle.dumps(layout)) == layout
    assert hash(ps.Layout.parse(layout.serialize())) == hash(layout)
    assert layout != ps.Layout.whole((*shape, 1))


def test_block_cyclic_is_scalapacks():
    layout = ps.Layout.block_cyclic((10, 7), block=(3, 2), grid=(2, 2), order="row")
    assert layout.shape == (10, 7)
    assert (layout.ranks, layout.ndim, layout.size, layout.storage) == (4, 2, 70, "row")
    assert layout.local_shape(0) == (6, 4)
    assert layout.owner(3, 2) == 2
    assert layout.splits(1) == [0, 2, 4, 6, 7]


def test_grid_takes_owners_as_a_matrix():
    layout = ps.Layout.grid([0, 2, 5], [0, 4], [[1], [0]])
    assert layout.ranks == 2
    assert layout.local_shape(1) == (2, 4)
    assert layout == ps.Layout.grid(np.array([0, 2, 5]), (0, 4), [1, 0])


def test_even_and_whole():
    assert ps.Layout.even((10, 3), 4).local_shape(3) == (2, 3)
    assert ps.Layout.even((3, 10), 4, axis=1).local_shape(0) == (3, 3)
    assert ps.Layout.whole((2, 2), owner=3).ranks == 4
    assert ps.DistArray.from_global(ps.Layout.whole(()), 5.0).local.tolist() == 5.0


def test_memory_is_kept_not_copied():
    layout = ps.Layout.even((4, 3), 2)
    memory = np.zeros((2, 3))
    part = ps.DistArray(layout, memory, rank=1)
    assert part.local is memory
    assert part.shape == (4, 3)
    assert part.dtype == np.float64


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ps.Layout.grid([0, 5, 3], [0, 0]), r"splits\[2\] is 3 after 5"),
        (lambda: ps.Layout.grid([0, 5], [7], ranks=3), r"owners\[0\] is 7"),
        (lambda: ps.Layout.grid([0, 5], [-1]), r"owners\[0\] is -1"),
        (lambda: ps.Layout.whole((2, 2), owner=-1), r"owners\[0\] is -1"),
        (lambda: ps.Layout.boxes((8,), [(0, (0,))]), r"expected \(owner, begin, shape\)"),
        (lambda: ps.Layout.even((8, 2), 2).splits(2), "dimension 2 given for a grid of 2 dimensions"),
        (lambda: ps.Layout.grid(), "no owners"),
        (lambda: ps.Layout.grid([0, 2.5], [0]), "whole numbers"),
        (lambda: ps.Layout.block_cyclic((4, 4), (2, 0), (1, 1)), "block's length is 0"),
        (lambda: ps.Layout.block_cyclic((4, 4), (2, 1), (1, 1), order="diagonal"), "order is 'diagonal'"),
        (lambda: ps.Layout.block_cyclic((1 << 40, 1 << 40), (1, 1), (1, 1)), r"is 2\^63 or more"),
        (lambda: ps.Layout.parse("something"), "layout1"),
        (lambda: ps.DistArray(ps.Layout.even((4, 3), 2), np.zeros((3, 2))), r"shape \(3, 2\); expected \(2, 3\)"),
        (lambda: ps.DistArray(ps.Layout.even((6,), 2), np.zeros((1, 6))[:, ::2]), r"shape \(1, 3\); expected \(3,\)"),
        (lambda: ps.DistArray(ps.Layout.grid([0, 2, 4], [0, 0]), np.zeros(8)[::2]), "contiguous in C order"),
        (lambda: ps.DistArray(ps.Layout.even((4, 3), 2), [np.zeros((2, 3)), np.zeros(1)]), r"arrays of the shapes"),
        (lambda: ps.DistArray(ps.Layout.even((4, 3), 2), [np.zeros((2, 3))], dtype="f4"), "of the types"),
        (lambda: ps.DistArray(ps.Layout.whole((4,)), [], rank=1).dtype, "give it as dtype="),
        (lambda: ps.DistArray("rows", np.zeros(3)), "layout is a str"),
        (lambda: ps.DistArray.from_global(ps.Layout.even((4, 3), 2), np.zeros((3, 4))), r"\(3, 4\)"),
        (lambda: ps.DistArray.assemble([]), "no parts"),
    ],
)
def test_wrong_arguments_name_the_offence(make, message):
    with pytest.raises(ps.Error, match=message) as caught:
        make()
    assert caught.value.code == "invalid_argument"
