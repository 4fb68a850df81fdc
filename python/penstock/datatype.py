"""MPI datatypes as lists of bytes: what a file view and a message need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock import _penstock, mpi_abi
from penstock.error import Error

MPI = mpi_abi.import_mpi()

Pieces = npt.NDArray[np.int64]  # rows of (offset, size) in bytes, in the order in which MPI lists the data


def flatten(datatype: Any) -> Pieces:
    """The bytes of one item of `datatype`, as (offset, size) rows in typemap order; neighbours that touch are one.

    Decodes any nesting of MPI's constructors by Get_envelope and Get_contents.
    """
    combiner = datatype.combiner
    if combiner == MPI.COMBINER_NAMED or datatype.is_predefined:
        return _named(datatype)
    build = _BUILDERS.get(combiner)
    if build is None:
        return _by_packing(datatype)
    integers, addresses, types = _contents(datatype)
    olds = [(flatten(old), old.extent) for old in types]
    return _joined(build(integers, addresses, olds))


_PIECES = MPI.Datatype.Create_keyval()
_TYPEMAP = MPI.Datatype.Create_keyval()


def pieces_of(datatype: Any) -> Pieces:
    """As `flatten`; the result is kept with the datatype until it is freed."""
    if datatype.is_predefined:
        return flatten(datatype)
    kept = datatype.Get_attr(_PIECES)
    if kept is None:
        kept = np.ascontiguousarray(flatten(datatype))
        datatype.Set_attr(_PIECES, kept)
    return kept


def typemap(datatype: Any) -> _penstock.Typemap:
    """What packs and unpacks items of `datatype`: flattened once, kept with the datatype until it is freed."""
    kept = datatype.Get_attr(_TYPEMAP)
    if kept is None:
        kept = _penstock.Typemap(np.ascontiguousarray(pieces_of(datatype)), datatype.extent)
        datatype.Set_attr(_TYPEMAP, kept)
    return kept


def _contents(datatype: Any) -> tuple[list[int], list[int], list[Any]]:
    """The arguments of the datatype's constructor: integers, addresses, old types."""
    contents = datatype.Get_contents()
    if len(contents) == 3:
        integers, addresses, types = contents
        return list(integers), list(addresses), list(types)
    integers, addresses, counts, types = contents
    if not counts:
        return list(integers), list(addresses), list(types)
    # Made by a constructor with MPI 4's large counts, which come in a list of their own; mpi4py prefers these.
    combiner = datatype.combiner
    if combiner == MPI.COMBINER_SUBARRAY:
        dimensions, order = integers
        return [dimensions, *counts, order], [], list(types)
    if combiner == MPI.COMBINER_DARRAY:
        return [*integers[:3], *counts, *integers[3:]], [], list(types)
    integer_count = {
        MPI.COMBINER_RESIZED: 0,
        MPI.COMBINER_HVECTOR: 2,
        MPI.COMBINER_HINDEXED_BLOCK: 2,
        MPI.COMBINER_HINDEXED: 1 + counts[0],
        MPI.COMBINER_STRUCT: 1 + counts[0],
    }.get(combiner, len(counts))
    return list(counts[:integer_count]), list(counts[integer_count:]), list(types)


def _named(datatype: Any) -> Pieces:
    size, extent = datatype.Get_size(), datatype.extent
    if size != extent and size > 0:  # MPI_DOUBLE_INT and its like have a hole that only the MPI library knows
        return _by_packing(datatype)
    return np.array([[0, size]] if size else np.empty((0, 2)), dtype=np.int64).reshape(-1, 2)


def _by_packing(datatype: Any) -> Pieces:
    """What any datatype is made of, found out by packing memory that holds the digits of its own addresses."""
    lower, extent = datatype.Get_true_extent()
    if lower < 0:
        raise Error(f"a datatype that begins {-lower} bytes before its buffer cannot be taken apart", "unsupported")
    end = lower + extent
    addresses = np.zeros(datatype.Get_size(), dtype=np.int64)
    item = datatype.Create_resized(0, end).Commit()
    for shift in range(0, max(end.bit_length(), 1), 8):
        packed = np.zeros(len(addresses), np.uint8)
        item.Pack((np.arange(end) >> shift).astype(np.uint8), packed, 0, MPI.COMM_SELF)
        addresses |= packed.astype(np.int64) << shift
    item.Free()
    return _joined(np.column_stack((addresses, np.ones_like(addresses))))


def _joined(pieces: Pieces) -> Pieces:
    pieces = pieces[pieces[:, 1] > 0]
    if len(pieces) < 2:
        return pieces
    starts = np.concatenate(([True], pieces[1:, 0] != pieces[:-1, 0] + pieces[:-1, 1]))
    first = np.flatnonzero(starts)
    return np.column_stack((pieces[first, 0], np.add.reduceat(pieces[:, 1], first))).astype(np.int64)


def _at(pieces: Pieces, offsets: npt.ArrayLike) -> Pieces:
    """Copies of `pieces` at each of `offsets`."""
    offsets = np.asarray(offsets, dtype=np.int64)
    placed = np.empty((len(offsets), len(pieces), 2), dtype=np.int64)
    placed[:, :, 0] = offsets[:, None] + pieces[None, :, 0]
    placed[:, :, 1] = pieces[None, :, 1]
    return placed.reshape(-1, 2)


def _run(old: tuple[Pieces, int], count: int) -> Pieces:
    pieces, extent = old
    return _joined(_at(pieces, np.arange(count, dtype=np.int64) * extent))


def _blocks(old: tuple[Pieces, int], lengths: Sequence[int], offsets: Sequence[int]) -> Pieces:
    if len(set(lengths)) == 1:
        return _at(_run(old, lengths[0]), offsets)
    parts = [_at(_run(old, length), [offset]) for length, offset in zip(lengths, offsets)]
    return np.concatenate([np.empty((0, 2), dtype=np.int64), *parts])


def _vector(integers: list[int], addresses: list[int], olds: list) -> Pieces:
    count, length = integers[:2]
    stride = addresses[0] if addresses else integers[2] * olds[0][1]
    return _blocks(olds[0], [length] * count, [i * stride for i in range(count)]) if count else olds[0][0][:0]


def _indexed(integers: list[int], addresses: list[int], olds: list) -> Pieces:
    count, extent = integers[0], olds[0][1]
    lengths = integers[1 : 1 + count]
    offsets = addresses or [displacement * extent for displacement in integers[1 + count :]]
    return _blocks(olds[0], lengths, offsets) if count else olds[0][0][:0]


def _indexed_block(integers: list[int], addresses: list[int], olds: list) -> Pieces:
    count, length = integers[:2]
    offsets = addresses or [displacement * olds[0][1] for displacement in integers[2:]]
    return _blocks(olds[0], [length] * count, offsets) if count else olds[0][0][:0]


def _struct(integers: list[int], addresses: list[int], olds: list) -> Pieces:
    parts = [_blocks(old, [length], [at]) for old, length, at in zip(olds, integers[1:], addresses)]
    return np.concatenate([np.empty((0, 2), dtype=np.int64), *parts])


def _subarray(integers: list[int], addresses: list[int], olds: list) -> Pieces:
    dimensions = integers[0]
    sizes, subsizes, starts = (integers[1 + i * dimensions : 1 + (i + 1) * dimensions] for i in range(3))
    if integers[1 + 3 * dimensions] == MPI.ORDER_FORTRAN:
        sizes, subsizes, starts = sizes[::-1], subsizes[::-1], starts[::-1]
    pieces, extent = olds[0]
    for size, subsize, start in reversed(list(zip(sizes, subsizes, starts))):
        pieces = _joined(_at(pieces, (start + np.arange(subsize, dtype=np.int64)) * extent))
        extent *= size
    return pieces


def _darray(integers: list[int], addresses: list[int], olds: list) -> Pieces:
    _, rank, dimensions = integers[:3]
    arrays = [integers[3 + i * dimensions : 3 + (i + 1) * dimensions] for i in range(5)]
    owned = []
    # The place of the rank in the grid is by rows, whatever the order of the array.
    for extent, distribution, block, processes in reversed(list(zip(*arrays[:4]))):
        rank, place = divmod(rank, processes)
        owned.append(_owned(extent, distribution, block, processes, place))
    sizes = arrays[0]
    owned.reverse()
    if integers[3 + 4 * dimensions] == MPI.ORDER_FORTRAN:
        sizes, owned = sizes[::-1], owned[::-1]
    pieces, extent = olds[0]
    for size, indices in reversed(list(zip(sizes, owned))):
        pieces = _joined(_at(pieces, indices * extent))
        extent *= size
    return pieces


def _owned(extent: int, distribution: int, block: int, processes: int, place: int) -> npt.NDArray[np.int64]:
    """The indices of one dimension of a distributed array that lie at `place`."""
    if distribution == MPI.DISTRIBUTE_NONE:
        return np.arange(extent, dtype=np.int64)
    if block == MPI.DISTRIBUTE_DFLT_DARG:
        block = -(-extent // processes) if distribution == MPI.DISTRIBUTE_BLOCK else 1
    indices = np.arange(extent, dtype=np.int64)
    return indices[indices // block % processes == place]


_BUILDERS = {
    MPI.COMBINER_DUP: lambda integers, addresses, olds: olds[0][0],
    MPI.COMBINER_RESIZED: lambda integers, addresses, olds: olds[0][0],
    MPI.COMBINER_CONTIGUOUS: lambda integers, addresses, olds: _run(olds[0], integers[0]),
    MPI.COMBINER_VECTOR: _vector,
    MPI.COMBINER_HVECTOR: _vector,
    MPI.COMBINER_INDEXED: _indexed,
    MPI.COMBINER_HINDEXED: _indexed,
    MPI.COMBINER_INDEXED_BLOCK: _indexed_block,
    MPI.COMBINER_HINDEXED_BLOCK: _indexed_block,
    MPI.COMBINER_STRUCT: _struct,
    MPI.COMBINER_SUBARRAY: _subarray,
    MPI.COMBINER_DARRAY: _darray,
}
