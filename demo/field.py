"""The global 2-d field that the demo carries along: in a block-cyclic layout, dumped as overlapping tiles.

Element (i, j) holds i * WIDTH + j + step: whole numbers below 2^24, exact in float32, so a reader can tell from any element
which step it is from, and a snapshot is consistent if and only if all its elements say the same.
"""

from __future__ import annotations

import numpy as np

HEIGHT = WIDTH = 1024
BLOCK = 96  # rows of a block in the layout in which the field is computed; few tiles begin where a block does
HALO = 8  # columns that a tile shares with each neighbour
FILE_BYTES = HEIGHT * WIDTH * 4


def grid_of(ranks: int) -> tuple[int, int]:
    """The process grid: blocks of rows are dealt to the ranks in turn."""
    return ranks, 1


def initial(rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    return (rows[:, None] * WIDTH + columns[None, :]).astype(np.float32)


def block_cyclic_indices(length: int, block: int, processes: int, coordinate: int) -> np.ndarray:
    """Global indices of one dimension that a process holds, in the order in which it stores them."""
    indices = np.arange(length)
    return indices[indices // block % processes == coordinate]


def indices_of(rank: int, ranks: int) -> tuple[np.ndarray, np.ndarray]:
    """Global rows and columns of what a rank holds of the block-cyclic field."""
    rows, columns = grid_of(ranks)
    row, column = divmod(rank, columns)
    return block_cyclic_indices(HEIGHT, BLOCK, rows, row), block_cyclic_indices(WIDTH, WIDTH, columns, column)


def local_part(rank: int, ranks: int) -> np.ndarray:
    """What a rank holds of the block-cyclic field at step 0."""
    return initial(*indices_of(rank, ranks))


def tile_splits(ranks: int) -> list[int]:
    """Borders of the tiles: the dumped field is cut into strips of columns, one per rank."""
    return [WIDTH * r // ranks for r in range(ranks + 1)]


def with_halo(splits: list[int], tile: int) -> tuple[int, int]:
    """First and last + 1 column of a tile with what it shares with its neighbours."""
    return max(0, splits[tile] - HALO), min(WIDTH, splits[tile + 1] + HALO)


def step_of(snapshot: np.ndarray) -> int | None:
    """The step that a dump (the transposed field) is from, or None if its elements are from different steps."""
    steps = snapshot.reshape(WIDTH, HEIGHT) - initial(np.arange(WIDTH), np.arange(HEIGHT)).T
    return int(steps[0, 0]) if (steps == steps[0, 0]).all() else None


def edges(tile: np.ndarray) -> np.ndarray:
    """The columns of a tile that its neighbours need."""
    return np.ascontiguousarray(np.stack([tile[:, :HALO], tile[:, -HALO:]]))


def with_edges(tile: np.ndarray, position: int, edges_of_all: np.ndarray) -> np.ndarray:
    """The tile with its neighbours' nearest columns; `edges_of_all` in the order of the tiles, of which it is `position`."""
    parts = [tile]
    if position > 0:
        parts.insert(0, edges_of_all[position - 1][1])
    if position + 1 < len(edges_of_all):
        parts.append(edges_of_all[position + 1][0])
    return np.concatenate(parts, axis=1)
