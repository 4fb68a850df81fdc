"""Arrays in blobs, against NumPy's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import penstock as ps
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, basic_indices

TYPES = ["u1", "<f8", ">i4", "c16", "S3", [("a", "<i2"), ("b", "f4", (2,))]]


@st.composite
def cases(draw: st.DrawFn) -> tuple[np.dtype[Any], tuple[int, ...], list[Any]]:
    shape = draw(array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=6))
    indices = draw(st.lists(basic_indices(shape, allow_newaxis=True), min_size=1, max_size=4))
    return np.dtype(draw(st.sampled_from(TYPES))), shape, indices


def filled(dtype: np.dtype[Any], shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Without NaN, so that elements can be compared; never all zeros."""
    count = int(np.prod(shape, dtype=int))
    data = np.random.default_rng(seed).integers(1, 60, count * dtype.itemsize, np.uint8)
    return data.view(dtype).reshape(shape)


@settings(deadline=None, max_examples=200)
@given(cases(), st.integers(0, 100))
def test_parts_are_numpys(case, offset):
    dtype, shape, indices = case
    expected = filled(dtype, shape, 1)
    blob = ps.Store("memory:").create("field", size=offset + expected.nbytes + 7)
    array = blob.view(dtype, shape, offset)
    assert (array.shape, array.dtype, array.ndim, array.nbytes) == (shape, dtype, expected.ndim, expected.nbytes)
    array[...] = expected
    for number, index in enumerate(indices, 2):
        before = blob.snapshot()
        found = array[index]
        assert type(found) is type(expected[index]) and np.array_equal(found, expected[index])
        part = filled(dtype, np.shape(expected[index]), number)
        version = array.write(index, part)
        assert version == before.version + 1
        old = expected.copy()
        expected[index] = part
        assert np.array_equal(np.asarray(array), expected)
        assert np.array_equal(before.view(dtype, shape, offset)[index], old[index]), "a snapshot does not change"
    around = blob.read_array()
    assert not around[:offset].any() and not around[offset + expected.nbytes :].any()


def test_values_are_broadcast_and_converted():
    array = ps.Store("memory:").create("field", size=96).view(np.float64, (3, 4))
    array[1:, ::2] = np.array([[1], [2]])
    array[0] = 7
    assert np.asarray(array).tolist() == [[7, 7, 7, 7], [1, 0, 1, 0], [2, 0, 2, 0]]
    assert np.sum(array) == 34 and len(array) == 3
    assert np.asarray(array, np.int8).dtype == np.int8
    with pytest.raises(ValueError, match="broadcast"):
        array[0] = [1, 2]
    with pytest.raises(ValueError, match="could not convert"):
        array[0] = "x"


def test_a_changed_parent_is_told():
    blob = ps.Store("memory:").create("field", size=8)
    array = blob.view("u1", 8)
    first = array.write(0, 1)
    assert array.write(1, 2, parent=first) == first + 1
    with pytest.raises(FileExistsError):
        array.write(2, 3, parent=first)
    assert array[:3].tolist() == [1, 2, 0]


def test_a_blob_that_grows():
    blob = ps.Store("memory:").create("field", grows=True)
    array = blob.view("<i4", (4, 2))
    array[1:3] = 5
    assert blob.size == 24
    assert array[:3].tolist() == [[0, 0], [5, 5], [5, 5]]
    with pytest.raises(ps.Error, match="24"):
        array[3]


def test_what_is_read_between_elements_is_bounded():
    blob = ps.Store("memory:").create("field", size=1000)
    snapshot = blob.snapshot()
    reads: list[tuple[int, int]] = []

    class Counting:
        def read(self, regions: list[tuple[int, Any]]) -> None:
            reads.extend((offset, len(buffer)) for offset, buffer in regions)
            snapshot.read(regions)

    array = ps.SnapshotArray(Counting().read, "u1", (10, 100), 0, 1000)
    array[::9, 3:9:2]
    assert reads == [(3, 5), (903, 5)]
    reads.clear()
    array[5, ::50]
    assert reads == [(500, 1), (550, 1)]
    reads.clear()
    array[3:5], array[0:0], array[7, 9]
    assert reads == [(300, 200), (709, 1)]


def test_wrong_views_and_indices_are_told():
    blob = ps.Store("memory:").create("field", size=100)
    snapshot = blob.snapshot()
    with pytest.raises(ps.Error, match="ends at byte 104, this version at 100"):
        snapshot.view(np.float64, (13,))
    with pytest.raises(ps.Error, match="without Python objects"):
        snapshot.view(object, 1)
    with pytest.raises(ps.Error, match="not negative"):
        snapshot.view("u1", (2, -1))
    with pytest.raises(ps.Error, match="too far"):
        blob.view("f8", (1 << 40, 1 << 40))
    array = blob.view("u1", (10, 10))
    for wrong in ([1, 2], np.array([True] * 10), True, 1.5, "a", np.array([1])):
        with pytest.raises(IndexError, match="only integers, slices"):
            array[wrong]
    with pytest.raises(IndexError, match="out of bounds"):
        array[10]
    with pytest.raises(IndexError, match="too many indices"):
        array[0, 0, 0]
    with pytest.raises(TypeError):
        snapshot.view("u1", 10)[0] = 1
    if np.lib.NumpyVersion(np.__version__) >= "2.0.0":
        with pytest.raises(ValueError, match="without a copy"):
            np.asarray(array, copy=False)
