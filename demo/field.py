"""The demo's global 2-d field. It is computed in a block-cyclic layout, and dumped as overlapping tiles.

Element (i, j) holds i * WIDTH + j + step. These integers are below 2^24, exact in float32. So every element tells its step, and
a snapshot is consistent if and only if all its elements tell the same step.
"""

from __future__ import annotations

import numpy as np

HEIGHT = WIDTH = 1024
BLOCK = 96  # rows of a block in the computed layout; few tiles start at a block border
HALO = 8  # columns that a tile shares with each neighbour
FILE_BYTES = HEIGHT * WIDTH * 4


def grid_of(ranks: int) -> tuple[int, int]:
    """The process grid: blocks of rows are dealt cyclically to the ranks."""
    return ranks, 1


def initial(rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    return (rows[:, None] * WIDTH + columns[None, :]).astype(np.float32)


def block_cyclic_indices(length: int, block: int, processes: int, coordinate: int) -> np.ndarray:
    """Global indices along one dimension that a process owns, in storage order."""
    indices = np.arange(length)
    return indices[indices // block % processes == coordinate]


def indices_of(rank: int, ranks: int) -> tuple[np.ndarray, np.ndarray]:
    """Global rows and columns of a rank's part of the block-cyclic field."""
    rows, columns = grid_of(ranks)
    row, column = divmod(rank, columns)
    return block_cyclic_indices(HEIGHT, BLOCK, rows, row), block_cyclic_indices(WIDTH, WIDTH, columns, column)


def local_part(rank: int, ranks: int) -> np.ndarray:
    """A rank's part of the block-cyclic field at step 0."""
    return initial(*indices_of(rank, ranks))


def tile_splits(ranks: int) -> list[int]:
    """Borders of the tiles. The dumped field is cut into strips of columns, one per rank."""
    return [WIDTH * r // ranks for r in range(ranks + 1)]


def with_halo(splits: list[int], tile: int) -> tuple[int, int]:
    """(first, last + 1) column of a tile with its halo."""
    return max(0, splits[tile] - HALO), min(WIDTH, splits[tile + 1] + HALO)


def step_of(snapshot: np.ndarray) -> int | None:
    """The step of a dump (the transposed field), or None if its elements are from different steps."""
    steps = snapshot.reshape(WIDTH, HEIGHT) - initial(np.arange(WIDTH), np.arange(HEIGHT)).T
    return int(steps[0, 0]) if (steps == steps[0, 0]).all() else None


def edges(tile: np.ndarray) -> np.ndarray:
    """The columns of a tile that its neighbours need."""
    return np.ascontiguousarray(np.stack([tile[:, :HALO], tile[:, -HALO:]]))


def with_edges(tile: np.ndarray, position: int, edges_of_all: np.ndarray) -> np.ndarray:
    """The tile with its halo. `edges_of_all` is in the order of the tiles; `position` is this tile's."""
    parts = [tile]
    if position > 0:
        parts.insert(0, edges_of_all[position - 1][1])
    if position + 1 < len(edges_of_all):
        parts.append(edges_of_all[position + 1][0])
    return np.concatenate(parts, axis=1)
