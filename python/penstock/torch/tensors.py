"""DTensors: their placements as layouts, and redistribution between any meshes and placements."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.placement_types import Placement, _StridedShard

from penstock.error import Error
from penstock.layout import Layout
from penstock.tensor_layout import Box, Move, Redistributing, layout_of_boxes, owned_boxes, start_move
from penstock.torch.process_group import ProcessGroup

#: By size in bytes. Tensors are only moved, so elements without arithmetic (8-bit floats) travel as such bits.
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}
_MOST_LAYOUTS = 256


def layout_of(tensor: DTensor, group: Any = None) -> Layout:
    """Which rank owns which elements of a DTensor. Local.

    Parameters
    ----------
    tensor : DTensor
        With the placements Shard and Replicate; with FSDP2 and tensor parallelism together, too.
    group : ProcessGroup
        Whose ranks the layout has. Default: the default group, so that they are torch's global ranks.
    """
    _check_tensor(tensor)
    return layout_for(tensor.shape, tensor.device_mesh, tensor.placements, group)


def layout_for(shape: Sequence[int], mesh: DeviceMesh, placements: Sequence[Placement], group: Any = None) -> Layout:
    """The layout of a DTensor of this shape with these placements; see :func:`layout_of`. Local."""
    return _placed(tuple(shape), mesh, placements, group)[0]


def placements_of(layout: Layout, mesh: DeviceMesh, group: Any = None) -> tuple[Placement, ...]:
    """The placements, Shard and Replicate, by which a mesh distributes an array as a layout does. Local.

    Raises :class:`penstock.Error` if there are none. If several are equal, dimensions are sharded rather than replicated.
    """
    if not isinstance(layout, Layout):
        raise Error(f"placements_of: the layout is a {type(layout).__name__}; expected a penstock.Layout")
    owned = owned_boxes(layout)
    ranks = _ranks_of_mesh(mesh, group)
    choices: list[Placement] = [*map(Shard, range(layout.ndim)), Replicate()]
    for placements in itertools.product(choices, repeat=mesh.ndim):
        held = {
            rank: boxes[0]
            for rank, boxes in _boxes(layout.shape, ranks.shape, _coordinates(ranks), placements).items()
            if not boxes[0].is_empty
        }
        if held == owned:
            return placements
    raise Error(
        f"placements_of: no placements on a mesh of shape {tuple(mesh.shape)} distribute an array as {layout!r} does; a mesh "
        "cuts a dimension into pieces of equal length, the last ones being shorter"
    )


def redistribute(
    tensor: DTensor,
    device_mesh: DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
    *,
    group: Any = None,
) -> DTensor:
    """A copy of a DTensor with other placements, and on another mesh. Collective over the group, and blocking.

    Each byte goes from a rank that owns it to the ranks that need it; nothing is gathered, and what a rank has already
    is copied. Elements are only moved, so all types will do. Plans are cached, as by :meth:`penstock.Comm.redistribute`.

    Invalid arguments of one rank raise :class:`penstock.Error` there, and "peer_failed" or "mismatch" on the others.

    Parameters
    ----------
    tensor : DTensor
        On the CPU, of any strides. Ranks outside of its mesh pass a DTensor, too; its local part is empty there. The
        result has no gradient: call it under ``torch.no_grad()``, or with ``tensor.detach()``.
    device_mesh : DeviceMesh
        Default: that of the tensor. Its ranks may be others than the tensor's.
    placements : sequence of Placement
        One for each dimension of the mesh: Shard or Replicate. Default: Replicate. To reduce a Partial tensor, redistribute it
        by its own method first.
    group : ProcessGroup
        A group of backend "penstock" with all ranks of both meshes. Default: the default group.
    """
    return iredistribute(tensor, device_mesh, placements, group=group).wait()


def iredistribute(
    tensor: DTensor,
    device_mesh: DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
    *,
    group: Any = None,
) -> Redistributing[DTensor]:
    """Start :func:`redistribute`; ``wait()`` of what it returns gives the DTensor. Do not change the tensor before."""
    found = _group(group)

    def prepare() -> Move[DTensor]:
        _check_tensor(tensor)
        if tensor.requires_grad and torch.is_grad_enabled():
            raise Error(
                "redistribute: the tensor requires a gradient, which the result would not have; pass tensor.detach(), call it "
                "under torch.no_grad(), or use the tensor's own redistribute()"
            )
        mesh = tensor.device_mesh if device_mesh is None else device_mesh
        if not isinstance(mesh, DeviceMesh):
            raise Error(f"redistribute: device_mesh is a {type(mesh).__name__}; expected a DeviceMesh")
        places = [Replicate()] * mesh.ndim if placements is None else list(placements)
        shape, rank = tuple(tensor.shape), found.rank()
        source, held = _placed(shape, tensor.device_mesh, tensor.placements, found)
        target, wanted = _placed(shape, mesh, places, found)
        with torch.no_grad():
            given = _checked_local(tensor, held.get(rank), rank)
            local = given.new_empty(local_shape(wanted[rank])) if rank in wanted else given.new_empty(0)
        parts = _views(given, held.get(rank, ())), _views(local, wanted.get(rank, ()))

        def finish() -> DTensor:
            stride = torch.empty(shape, device="meta").stride()
            return DTensor.from_local(local, mesh, places, run_check=False, shape=tensor.shape, stride=stride)

        return Move((source, target), _bits(given).dtype, *parts, finish)

    return start_move(found._core, prepare, found.explained)


def _check_tensor(tensor: object) -> None:
    if not isinstance(tensor, DTensor):
        raise Error(
            f"the tensor is a {type(tensor).__name__}; expected a DTensor: DTensor.from_local(tensor, mesh, placements) makes one"
        )


def _group(given: Any) -> ProcessGroup:
    group = dist.group.WORLD if given is None else given
    if not isinstance(group, ProcessGroup):
        name = "no backend: call init_process_group" if group is None else f'the backend "{dist.get_backend(group)}"'
        raise Error(
            f'the group has {name}; expected "penstock": dist.new_group(backend="penstock") makes such a group of all ranks'
        )
    return group


def _ranks_of_mesh(mesh: DeviceMesh, group: Any, any_device: bool = False) -> NDArray[Any]:
    """The ranks in the group, in the shape of the mesh."""
    if not isinstance(mesh, DeviceMesh):
        raise Error(f"the mesh is a {type(mesh).__name__}; expected a DeviceMesh")
    if mesh.device_type != "cpu" and not any_device:
        raise Error(f'the mesh has devices of type "{mesh.device_type}"; expected "cpu"')
    members = None if group is None else tuple(dist.get_process_group_ranks(group))
    ranks = np.asarray(mesh.mesh)
    if any((np.diff(ranks, axis=axis) < 0).any() for axis in range(ranks.ndim)):
        raise Error(
            f"the mesh has the ranks {ranks.tolist()}; expected ranks that increase along each dimension: with others torch "
            "gives parts to ranks by their number in some calls, and by their place in the mesh in others",
            "unsupported",
        )
    if members is None:
        return ranks
    places = {member: place for place, member in enumerate(members)}
    missing = [rank for rank in ranks.ravel().tolist() if rank not in places]
    if missing:
        raise Error(
            f"rank {missing[0]} of the mesh is not in the group of the ranks {list(members)}; pass group= with all ranks of the "
            "meshes"
        )
    return np.vectorize(places.get, otypes=[np.int64])(ranks)


def _placed(
    shape: tuple[int, ...], mesh: DeviceMesh, placements: Sequence[Placement], group: Any
) -> tuple[Layout, dict[int, list[Box]]]:
    """The layout of a tensor, and the boxes of each rank in the order of its local tensor."""
    return _layout(*_places(shape, mesh, placements, group), dist.get_world_size(group))


def boxes_in_mesh(shape: tuple[int, ...], mesh: DeviceMesh, placements: Sequence[Placement]) -> dict[int, list[Box]]:
    """The boxes of each rank in the order of its local tensor, which may be replicated in any way. On any device."""
    return _boxes(*_places(shape, mesh, placements, None, any_device=True))


def _places(
    shape: tuple[int, ...], mesh: DeviceMesh, placements: Sequence[Placement], group: Any, any_device: bool = False
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[tuple[int, tuple[int, ...]], ...], tuple[Placement, ...]]:
    ranks = _ranks_of_mesh(mesh, group, any_device)
    places = tuple(_checked_placement(place, len(shape)) for place in placements)
    if len(places) != ranks.ndim:
        raise Error(
            f"{len(places)} placements given for a mesh of {ranks.ndim} dimensions; expected one for each of them"
        )
    return shape, ranks.shape, _coordinates(ranks), places


def _checked_placement(placement: object, ndim: int) -> Placement:
    if isinstance(placement, Replicate):
        return placement
    if isinstance(placement, (Shard, _StridedShard)):
        dim = placement.dim + ndim if placement.dim < 0 else placement.dim
        if not 0 <= dim < ndim:
            raise Error(f"the placement is {placement!r}, and the tensor has {ndim} dimensions")
        return placement
    if isinstance(placement, Placement) and placement.is_partial():
        raise Error(
            f"the placement is {placement!r}: sums that no rank has yet; expected Shard or Replicate. Reduce the tensor first: "
            "tensor.redistribute(placements=...) with Shard or Replicate",
            "unsupported",
        )
    raise Error(
        f"the placement is {placement!r}; expected Shard or Replicate of torch.distributed.tensor", "unsupported"
    )


def _coordinates(ranks: NDArray[Any]) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """(rank, its place in the mesh)."""
    return tuple((int(rank), tuple(map(int, place))) for place, rank in np.ndenumerate(ranks))


@functools.lru_cache(maxsize=_MOST_LAYOUTS)
def _layout(
    shape: tuple[int, ...],
    mesh_shape: tuple[int, ...],
    coordinates: tuple[tuple[int, tuple[int, ...]], ...],
    placements: tuple[Placement, ...],
    total: int,
) -> tuple[Layout, dict[int, list[Box]]]:
    boxes = _boxes(shape, mesh_shape, coordinates, placements)
    return layout_of_boxes(shape, boxes, total), boxes


def _boxes(
    shape: Sequence[int],
    mesh_shape: Sequence[int],
    coordinates: Sequence[tuple[int, tuple[int, ...]]],
    placements: Sequence[Placement],
) -> dict[int, list[Box]]:
    """Each rank's boxes, in the order of its local tensor, which consists of them as a grid."""
    found = {}
    for rank, place in coordinates:
        runs = [[(0, length)] for length in shape]
        for along, pieces, placement in zip(place, mesh_shape, placements):
            if isinstance(placement, (Shard, _StridedShard)):
                factor = placement.split_factor if isinstance(placement, _StridedShard) else 1
                runs[placement.dim] = _shard(runs[placement.dim], int(factor), pieces, along)
        found[rank] = [
            Box(tuple(begin for begin, _ in each), tuple(length for _, length in each))
            for each in itertools.product(*runs)
        ]
    return found


_Runs = list[tuple[int, int]]  # (begin, length) of consecutive indices


def _shard(runs: _Runs, factor: int, pieces: int, index: int) -> _Runs:
    """Of each of `factor` pieces, one of `pieces` pieces."""
    taken = []
    for outer in range(factor):
        taken += _piece(_piece(runs, factor, outer), pieces, index)
    kept = [run for run in taken if run[1]]
    joined: _Runs = []
    for begin, length in kept:
        if joined and sum(joined[-1]) == begin:
            joined[-1] = (joined[-1][0], joined[-1][1] + length)
        else:
            joined.append((begin, length))
    return joined or [(sum(runs[-1]), 0)]


def _piece(runs: _Runs, pieces: int, index: int) -> _Runs:
    """One of the pieces of torch.chunk: of equal length, the last ones being shorter or empty."""
    total = sum(length for _, length in runs)
    each = -(-total // pieces)
    first, end = min(each * index, total), min(each * (index + 1), total)
    found, at = [], 0
    for begin, length in runs:
        low, high = max(first, at), min(end, at + length)
        if low < high:
            found.append((begin + low - at, high - low))
        at += length
    return found


def local_shape(boxes: Sequence[Box]) -> tuple[int, ...]:
    """Of a local tensor that is a grid of boxes."""
    axes = zip(*(zip(box.begin, box.shape) for box in boxes))
    return tuple(sum(length for _, length in set(axis)) for axis in axes)


def _checked_local(tensor: DTensor, boxes: Sequence[Box] | None, rank: int) -> Tensor:
    local = tensor.to_local()
    if not local.is_cpu:
        raise Error(f'the tensor is on device "{local.device}"; expected memory of the CPU: pass tensor.cpu()')
    if local.layout is not torch.strided:
        raise Error(f"the tensor has the layout {local.layout}; expected a dense tensor")
    if boxes is not None and tuple(local.shape) != local_shape(boxes):
        raise Error(
            f"the local tensor of rank {rank} has the shape {tuple(local.shape)}; expected {local_shape(boxes)}, which the "
            f"placements {tensor.placements} give to it of {tuple(tensor.shape)}"
        )
    local = local.detach().resolve_conj().resolve_neg()
    expanded = any(stride == 0 and length > 1 for stride, length in zip(local.stride(), local.shape))
    return local.contiguous() if expanded else local


def _bits(tensor: Tensor) -> NDArray[Any]:
    """A tensor's memory as elements of its size."""
    kind = _BITS.get(tensor.element_size())
    if kind is None:
        raise Error(f"{tensor.dtype} has elements of {tensor.element_size()} bytes; expected one of {list(_BITS)}")
    return tensor.view(kind).numpy()


def _views(tensor: Tensor, boxes: Sequence[Box]) -> list[NDArray[Any]]:
    """The part of a local tensor's memory for each of its boxes that is not empty."""
    return [_bits(view) for view in views_of(tensor, boxes)]


def views_of(tensor: Tensor, boxes: Sequence[Box]) -> list[Tensor]:
    """The part of a local tensor for each of its boxes that is not empty."""
    if len(boxes) <= 1:
        return [tensor for box in boxes if not box.is_empty]
    starts: list[dict[tuple[int, int], int]] = []
    for axis in range(tensor.dim()):
        at: dict[tuple[int, int], int] = {}
        place = 0
        for run in dict.fromkeys((box.begin[axis], box.shape[axis]) for box in boxes):
            at[run] = place
            place += run[1]
        starts.append(at)
    views = []
    for box in boxes:
        if not box.is_empty:
            begin = tuple(at[run] for at, run in zip(starts, zip(box.begin, box.shape)))
            views.append(tensor[Box(begin, box.shape).slices])
    return views
