"""The two layouts of the field, and the bytes that move between them."""

from __future__ import annotations

import field
import numpy as np
import penstock as ps


def layouts_of(ranks: int) -> tuple[ps.Layout, ps.Layout]:
    """(layout of the computed field, layout of its transpose, which is dumped)."""
    shape, block = (field.HEIGHT, field.WIDTH), (field.BLOCK, field.WIDTH)
    computed = ps.Layout.block_cyclic(shape, block=block, grid=field.grid_of(ranks))
    return computed, ps.Layout.grid([0, field.WIDTH], field.tile_splits(ranks), list(range(ranks)))


def relabelings(ranks: tuple[int, ...]) -> list[dict]:
    """The bytes that a dump moves, for each number of ranks. Computed, not run."""
    found = [(n, ps.relabel(*layouts_of(n), np.float32, op="T", ranks=n)) for n in ranks]
    return [{"ranks": n, "bytes_before": r.bytes_before, "bytes_after": r.bytes_after} for n, r in found]
