"""Conversion of layouts from and to ScaLAPACK descriptors and MPI datatype arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock import mpi_abi
from penstock.error import Error
from penstock.layout import Layout, _integers

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SCALAPACK_TYPE = 1


class Darray(NamedTuple):
    """Arguments of ``MPI.Datatype.Create_darray``, without the rank."""

    size: int
    gsizes: list[int]
    distribs: list[int]
    dargs: list[int]
    psizes: list[int]
    order: int


class Subarray(NamedTuple):
    """Arguments of ``MPI.Datatype.Create_subarray``."""

    sizes: list[int]
    subsizes: list[int]
    starts: list[int]
    order: int


def from_scalapack(descriptor: Sequence[int], grid: Sequence[int], order: str, ranks: Sequence[int]) -> Layout:
    numbers = _integers(descriptor)
    if len(numbers) != 9:
        raise Error(f"Layout.from_scalapack: the descriptor has {len(numbers)} entries; expected 9")
    kind, _, rows, columns, row_block, column_block, first_row, first_column, _ = numbers
    if kind != _SCALAPACK_TYPE:
        raise Error(f"Layout.from_scalapack: the descriptor's type, entry 1, is {kind}; expected {_SCALAPACK_TYPE}")
    return Layout.block_cyclic(
        (rows, columns),
        (row_block, column_block),
        grid,
        order,
        "column",
        first=(first_row, first_column),
        ranks=ranks,
    )


def to_scalapack(
    layout: Layout, rank: int, grid: Sequence[int], order: str, context: int, ranks: Sequence[int], leading: int
) -> NDArray[Any]:
    if layout.ndim != 2 or layout.storage != "column":
        raise Error(
            f"Layout.to_scalapack: the layout has {layout.ndim} dimensions in {layout.storage} order; ScaLAPACK's have 2 "
            "in column order"
        )
    process_grid = np.asarray(_integers(grid))
    if process_grid.shape != (2,) or process_grid.min() < 1:
        raise Error(f"Layout.to_scalapack: the process grid is {list(grid)}; expected (rows, columns)")
    numbering = np.arange(process_grid.prod()) if len(ranks) == 0 else np.asarray(_integers(ranks))
    if numbering.size != process_grid.prod():
        raise Error(f"Layout.to_scalapack: {numbering.size} ranks given for a process grid of {process_grid.prod()}")
    places = numbering.reshape(process_grid, order="C" if order == "row" else "F")
    rows, columns = layout.shape
    leading = leading or max(1, layout.local_shape(rank)[0])
    blocks = [_block(layout, axis) for axis in range(2)]
    found = np.argwhere(places == layout.owner(0, 0)) if rows and columns else np.zeros((1, 2), int)
    for first in found:
        descriptor = [_SCALAPACK_TYPE, context, rows, columns, *blocks, *first.tolist(), leading]
        if from_scalapack(descriptor, grid, order, ranks)._same_places(layout):
            if leading < layout.local_shape(rank)[0]:
                raise Error(
                    f"Layout.to_scalapack: leading is {leading}; expected at least {layout.local_shape(rank)[0]}, the "
                    f"local rows of rank {rank}"
                )
            return np.array(descriptor, np.int32)
    raise Error(f"Layout.to_scalapack: {layout!r} is not block-cyclic on this process grid, or begins within a block")


def _block(layout: Layout, axis: int) -> int:
    splits = layout.splits(axis)
    return splits[1] - splits[0] if len(splits) > 1 else 1


def from_darray(
    gsizes: Sequence[int], distribs: Sequence[int], dargs: Sequence[int], psizes: Sequence[int], order: int | None
) -> Layout:
    MPI = mpi_abi.import_mpi()
    lists = [_integers(values) for values in (gsizes, distribs, dargs, psizes)]
    if len({len(values) for values in lists}) != 1:
        raise Error(
            "Layout.from_darray: gsizes, distribs, dargs and psizes have "
            f"{', '.join(str(len(values)) for values in lists)} entries; expected one per dimension each"
        )
    blocks = []
    for axis, (length, kind, argument, processes) in enumerate(zip(*lists)):
        default = argument == MPI.DISTRIBUTE_DFLT_DARG
        if kind == MPI.DISTRIBUTE_NONE:
            if processes != 1:
                raise Error(
                    f"Layout.from_darray: axis {axis} is not distributed, but psizes has {processes}; expected 1"
                )
            blocks.append(max(length, 1))
        elif kind == MPI.DISTRIBUTE_BLOCK:
            block = max(-(-length // max(processes, 1)), 1) if default else argument
            if block * processes < length:
                raise Error(
                    f"Layout.from_darray: {processes} blocks of {block} are too few for the {length} of axis {axis}"
                )
            blocks.append(block)
        elif kind == MPI.DISTRIBUTE_CYCLIC:
            blocks.append(1 if default else argument)
        else:
            raise Error(
                f"Layout.from_darray: distribs has {kind} for axis {axis}; expected an MPI.DISTRIBUTE_ constant"
            )
    # MPI numbers processes in row-major order, whatever the array's order.
    return Layout.block_cyclic(lists[0], blocks, lists[3], "row", _storage(MPI, order, "from_darray"))


def to_darray(layout: Layout, grid: Sequence[int]) -> Darray:
    MPI = mpi_abi.import_mpi()
    psizes = _integers(grid)
    if len(psizes) != layout.ndim:
        raise Error(f"Layout.to_darray: the process grid has {len(psizes)} dimensions, the layout {layout.ndim}")
    blocks = [_block(layout, axis) for axis in range(layout.ndim)]
    made = Layout.block_cyclic(layout.shape, blocks, psizes, "row", layout.storage)
    if not made._same_places(layout):
        raise Error(f"Layout.to_darray: {layout!r} is not block-cyclic on ranks in row order of the grid {psizes}")
    order = MPI.ORDER_C if layout.storage == "row" else MPI.ORDER_FORTRAN
    size = int(np.prod(psizes, dtype=np.int64))
    return Darray(size, list(layout.shape), [MPI.DISTRIBUTE_CYCLIC] * layout.ndim, blocks, psizes, order)


def from_subarrays(
    sizes: Sequence[int], subsizes: Sequence[Sequence[int]], starts: Sequence[Sequence[int]], order: int | None
) -> Layout:
    MPI = mpi_abi.import_mpi()
    if len(subsizes) != len(starts):
        raise Error(
            f"Layout.from_subarrays: {len(subsizes)} subsizes and {len(starts)} starts given; expected one of each per rank"
        )
    boxes = [(rank, begin, shape) for rank, (begin, shape) in enumerate(zip(starts, subsizes))]
    return Layout.boxes(sizes, boxes, ranks=len(boxes), storage=_storage(MPI, order, "from_subarrays"))


def to_subarray(layout: Layout, rank: int) -> Subarray:
    MPI = mpi_abi.import_mpi()
    order = MPI.ORDER_C if layout.storage == "row" else MPI.ORDER_FORTRAN
    blocks = layout.local_blocks(rank)
    sizes = list(layout.shape)
    if not blocks:
        raise Error(f"Layout.to_subarray: rank {rank} owns nothing, and MPI has no empty subarrays")
    starts = np.min([block.global_start for block in blocks], axis=0)
    ends = np.max([np.add(block.global_start, block.shape) for block in blocks], axis=0)
    if np.prod(ends - starts) != layout.local_size(rank) or len(layout.local_shape(rank)) != layout.ndim:
        raise Error(f"Layout.to_subarray: what rank {rank} owns is not one box of the array")
    return Subarray(sizes, (ends - starts).tolist(), starts.tolist(), order)


def _storage(MPI: Any, order: int | None, function: str) -> str:
    if order is None or order == MPI.ORDER_C:
        return "row"
    if order != MPI.ORDER_FORTRAN:
        raise Error(f"Layout.{function}: order is {order}; expected MPI.ORDER_C or MPI.ORDER_FORTRAN")
    return "column"
