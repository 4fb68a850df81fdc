"""Layouts for property tests."""

from __future__ import annotations

import numpy as np
import penstock as ps
from hypothesis import strategies as st


@st.composite
def axes(draw, length):
    """Splits along one dimension."""
    borders = draw(st.sets(st.integers(1, max(length - 1, 1)), max_size=4)) if length > 1 else set()
    return [0, *sorted(borders), length] if length else [0]


@st.composite
def boxes(draw, shape, max_ranks):
    """Boxes (owner, begin, shape) that tile an array, in irregular positions."""
    found = [([0] * len(shape), list(shape))]
    for _ in range(draw(st.integers(0, 6))):
        begin, extent = found[draw(st.integers(0, len(found) - 1))]
        axis = draw(st.integers(0, len(shape) - 1))
        rest = begin.copy(), extent.copy()
        extent[axis] = draw(st.integers(0, extent[axis]))
        rest[0][axis] += extent[axis]
        rest[1][axis] -= extent[axis]
        found.append(rest)
    return [(draw(st.integers(0, max_ranks - 1)), begin, extent) for begin, extent in found]


@st.composite
def layouts(draw, shape, max_ranks=5):
    """Any layout of an array of this shape."""
    storage = draw(st.sampled_from(["row", "column"]))
    if draw(st.booleans()):
        block = [draw(st.integers(1, 6)) for _ in shape]
        grid = [draw(st.integers(1, 2)) for _ in shape]
        layout = ps.Layout.block_cyclic(shape, block, grid, draw(st.sampled_from(["row", "column"])), storage)
        return layout.relabeled(draw(st.permutations(range(layout.ranks))))
    if shape and draw(st.integers(0, 2)) == 0:
        return ps.Layout.boxes(shape, draw(boxes(shape, max_ranks)), max_ranks, storage)
    splits = [draw(axes(length)) for length in shape]
    blocks = int(np.prod([len(borders) - 1 for borders in splits]))
    owners = draw(st.lists(st.integers(0, max_ranks - 1), min_size=blocks, max_size=blocks))
    return ps.Layout.grid(*splits, owners, ranks=max_ranks, storage=storage)
