"""DTensors in the trees of a checkpoint: each rank saves its own parts, and gets those of any other mesh and placements."""

from __future__ import annotations

import atexit
import functools
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.placement_types import Placement

from penstock.error import Error
from penstock.layout import DistArray, Layout
from penstock.tensor_layout import Box, layout_of_boxes
from penstock.torch.tensors import boxes_in_mesh, local_shape, views_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from penstock.checkpoint_tree import Shares

_MOST_LAYOUTS = 4096
_Places = tuple[Placement, ...]


def saved(tensor: DTensor, path: str, shares: Shares) -> Tensor | tuple[Layout, Tensor]:
    """What this rank saves: a tensor that all ranks have, or the layout and this rank's elements in it.

    Of ranks that hold one part in common one saves it, and which one is alike on all.
    """
    local = tensor.to_local().detach()
    shape, mesh, places = tuple(tensor.shape), tensor.device_mesh, tensor.placements
    if mesh.size() > 1:
        _check_ranks(path, shares)
    if tensor.numel() == 0:
        return local.new_empty(shape)
    if mesh.size() == shares.ranks and all(isinstance(place, Replicate) for place in places):
        return local
    boxes = _boxes(shape, mesh, places).get(shares.rank, [])
    if boxes and tuple(local.shape) != local_shape(boxes):
        raise Error(
            f"the local tensor of '{path}' has the shape {tuple(local.shape)}; expected {local_shape(boxes)}, which the "
            f"placements {places} give to rank {shares.rank} of {shape}"
        )
    owners = tuple(
        shares.give(holders, math.prod(box.shape) * tensor.element_size())
        for box, holders in _holders(shape, mesh, places).items()
    )
    layout, mine = _layout(shape, mesh, places, owners, shares.rank, shares.ranks)
    held = dict(zip((box for box in boxes if not box.is_empty), views_of(local, boxes)))
    parts = [held[box].reshape(-1) for box in mine]
    return layout, parts[0] if len(parts) == 1 else torch.cat([local.new_empty(0), *parts])


def _check_ranks(path: str, shares: Shares) -> None:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    if (rank, ranks) != (shares.rank, shares.ranks):
        raise Error(
            f"'{path}' is a DTensor of the {ranks} ranks of torch.distributed, of which this is {rank}; the Checkpointer has "
            f"{shares.ranks} ranks, of which this is {shares.rank}: give it a communicator of the same processes in the same order"
        )


@functools.lru_cache(maxsize=_MOST_LAYOUTS)
def _boxes(shape: tuple[int, ...], mesh: DeviceMesh, places: _Places) -> dict[int, list[Box]]:
    if mesh.size() == 1 and not any(place.is_partial() for place in places):
        return {dist.get_rank() if dist.is_initialized() else 0: [Box((0,) * len(shape), shape)]}
    return boxes_in_mesh(shape, mesh, places)


@functools.lru_cache(maxsize=_MOST_LAYOUTS)
def _holders(shape: tuple[int, ...], mesh: DeviceMesh, places: _Places) -> dict[Box, list[int]]:
    holders: dict[Box, list[int]] = {}
    for rank, boxes in sorted(_boxes(shape, mesh, places).items()):
        for box in boxes:
            if not box.is_empty:
                holders.setdefault(box, []).append(rank)
    return dict(sorted(holders.items()))


@functools.lru_cache(maxsize=_MOST_LAYOUTS)
def _layout(
    shape: tuple[int, ...], mesh: DeviceMesh, places: _Places, owners: tuple[int, ...], rank: int, ranks: int
) -> tuple[Layout, tuple[Box, ...]]:
    boxes = list(_holders(shape, mesh, places))
    mine = tuple(box for box, owner in zip(boxes, owners) if owner == rank)
    if not shape:
        return Layout.whole((), owners[0], ranks), mine
    return Layout.boxes(shape, [(owner, box.begin, box.shape) for owner, box in zip(owners, boxes)], ranks), mine


@functools.lru_cache(maxsize=_MOST_LAYOUTS)
def _wanted(shape: tuple[int, ...], mesh: DeviceMesh, places: _Places) -> Layout | None:
    boxes = _boxes(shape, mesh, places)
    if 0 in shape or mesh.size() == 1 or all(isinstance(place, Replicate) for place in places):
        return None
    try:
        return layout_of_boxes(shape, boxes, dist.get_world_size())
    except Error as error:
        if error.code != "unsupported":
            raise
        return None  # replicated in parts


def layout(like: DTensor) -> Layout | None:
    """The layout in which a restore reads a DTensor like this one; None: every rank the whole."""
    return _wanted(tuple(like.shape), like.device_mesh, like.placements)


def made(like: DTensor, value: NDArray[Any] | DistArray, tensor_of: Callable[[NDArray[Any]], Tensor]) -> DTensor:
    """A DTensor that is distributed as `like` is. `tensor_of`: makes a tensor of the bits of its elements."""
    shape, mesh, places = tuple(like.shape), like.device_mesh, like.placements
    rank = dist.get_rank() if dist.is_initialized() else 0
    boxes = _boxes(shape, mesh, places).get(rank)
    if boxes is None:  # outside of the mesh
        boxes = [Box((0,) * max(1, len(shape)), (0,) * max(1, len(shape)))]
    whole = [box for box in boxes if not box.is_empty]
    if isinstance(value, DistArray):
        lengths = [math.prod(box.shape) for box in whole]
        ends = np.cumsum(lengths)
        flat = value.local.reshape(-1)
        parts = [flat[end - length : end].reshape(box.shape) for box, length, end in zip(whole, lengths, ends)]
    else:
        parts = [np.ascontiguousarray(value[box.slices]) for box in whole]
    tensors = [tensor_of(part) for part in parts]
    if len(tensors) == 1:
        local = tensors[0]
    else:
        local = like.to_local().new_empty(local_shape(boxes))
        for view, tensor in zip(views_of(local, boxes), tensors):
            view.copy_(tensor)
    stride = torch.empty(shape, device="meta").stride()
    return DTensor.from_local(local, mesh, places, run_check=False, shape=like.shape, stride=stride)


for _cache in (_layout, _wanted):
    atexit.register(_cache.cache_clear)  # nanobind reports objects that outlive it
