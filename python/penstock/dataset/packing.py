"""Sequences of different lengths in rows of one length."""

from __future__ import annotations

import bisect
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from penstock.dataset import sample_tree


class Packing(NamedTuple):
    """How sequences are packed; see :meth:`penstock.Dataset.pack`."""

    length: int
    rows: int | None = None
    value: Any = 0
    split: bool = True


class _Piece(NamedTuple):
    sample: int
    begin: int
    size: int


def placed(sizes: list[int], length: int) -> list[list[int]]:
    """The pieces in each row: best fit, longest first, which needs at most 11/9 of the fewest rows, plus one (Johnson et
    al., "Worst-Case Performance Bounds for Simple One-Dimensional Packing Algorithms", SIAM J. Comput. 1974)."""
    rows: list[list[int]] = []
    space: list[tuple[int, int]] = []  # (what is left, row), sorted
    for piece in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        found = bisect.bisect_left(space, (sizes[piece], -1))
        if found == len(space):
            left, row = length, len(rows)
            rows.append([])
        else:
            left, row = space.pop(found)
        rows[row].append(piece)
        if left > sizes[piece]:
            bisect.insort(space, (left - sizes[piece], row))
    return rows


def packed(samples: list[Any], packing: Packing) -> tuple[Any, int]:
    """(batch of these sequences, its size in bytes)."""
    length = packing.length
    columns = [_columns(sample) for sample in sample_tree.flattened(samples)]
    pieces = []
    for number, column in enumerate(columns):
        size = len(next(iter(column.values())))
        if size > length and not packing.split:
            raise ValueError(f"a sequence has {size} elements, more than the {length} of a row; use split=True")
        pieces += [_Piece(number, begin, min(length, size - begin)) for begin in range(0, size, length)]
    if not pieces:
        return sample_tree.NOTHING, 0
    rows = placed([piece.size for piece in pieces], length)
    count = len(rows) if packing.rows is None else packing.rows
    if len(rows) > count:
        raise ValueError(f"the sequences of a batch need {len(rows)} rows, more than {count}; use smaller batches")
    batch: dict[str, Any] = {}
    for name, first in columns[0].items():
        batch[name] = np.full((count, length, *first.shape[1:]), packing.value, first.dtype)
    segments = batch["segment_ids"] = np.zeros((count, length), np.int32)
    positions = batch["positions"] = np.zeros((count, length), np.int32)
    steps = np.arange(max(piece.begin + piece.size for piece in pieces), dtype=np.int32)
    for row, inside in enumerate(rows):
        place = 0
        for segment, number in enumerate(inside, 1):
            sample, begin, size = pieces[number]
            column, end = columns[sample], place + size
            if column.keys() != columns[0].keys():
                raise ValueError(f"a sequence has {', '.join(column)} in a batch of {', '.join(columns[0])}")
            for name, array in column.items():
                batch[name][row, place:end] = array[begin : begin + size]
            segments[row, place:end] = segment
            positions[row, place:end] = steps[begin : begin + size]
            place = end
    return batch, sum(array.nbytes for array in batch.values())


def _columns(sample: Any) -> dict[str, Any]:
    """The sequences of a sample by name, all equally long."""
    given = sample if isinstance(sample, Mapping) else {"tokens": sample}
    columns = {str(name): np.asarray(value) for name, value in given.items()}
    sizes = {
        name: array.shape[0] if array.ndim and not array.dtype.hasobject else None for name, array in columns.items()
    }
    if (
        not columns
        or None in sizes.values()
        or len(set(sizes.values())) > 1
        or columns.keys() & {"segment_ids", "positions"}
    ):
        raise ValueError(
            f"pack() got {sizes}; expected arrays that are equally long (segment_ids and positions are its own)"
        )
    return columns
