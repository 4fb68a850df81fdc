"""DTensors as layouts, and redistribution between meshes and placements, against torch's own index mapping and collectives."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import penstock as ps
import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402
from penstock.tensor_layout import owned_boxes  # noqa: E402
from penstock.torch import tensors  # noqa: E402
from torch.distributed.device_mesh import DeviceMesh  # noqa: E402
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor  # noqa: E402
from torch.distributed.tensor._utils import _compute_local_shape_and_global_offset  # noqa: E402
from torch.distributed.tensor.placement_types import _StridedShard  # noqa: E402

MESHES = [(1,), (2,), (3,), (5,), (1, 1), (2, 2), (2, 3), (3, 2), (4, 1)]
SHAPES: list[tuple[int, ...]] = [(), (0,), (1,), (7,), (12,), (3, 5), (4, 0), (8, 6), (2, 3, 5)]


def local_parts(whole: Any, mesh_shape: Sequence[int], placements: Sequence[Any]) -> dict[tuple[int, ...], Any]:
    """What torch puts on each place of a mesh."""
    found = {}
    for place in np.ndindex(*mesh_shape):
        part = whole
        for along, pieces, placement in zip(place, mesh_shape, placements):
            if not isinstance(placement, Replicate):
                part = placement._split_tensor(part, pieces, with_padding=False, contiguous=True)[0][along]
        found[place] = part
    return found


def simulated(shape: tuple[int, ...], mesh_shape: tuple[int, ...], placements: Sequence[Any]) -> tuple[Any, Any, Any]:
    """Layout, boxes and places of a mesh whose ranks need not exist."""
    ranks = np.random.default_rng(1).permutation(int(np.prod(mesh_shape))).reshape(mesh_shape)
    places = tensors._coordinates(ranks)
    return *tensors._layout(shape, mesh_shape, places, tuple(placements), ranks.size), places


def placements_for(ndim: int, strided: bool = False) -> list[Any]:
    choices = [Replicate(), *map(Shard, range(ndim))]
    return choices + [_StridedShard(dim, split_factor=factor) for dim in range(ndim) for factor in (2, 3)] * strided


@pytest.mark.parametrize("mesh_shape", MESHES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_layout_is_torchs_index_mapping(shape: tuple[int, ...], mesh_shape: tuple[int, ...]) -> None:
    whole = torch.arange(int(np.prod(shape, dtype=int))).reshape(shape)
    for placements in itertools.product(placements_for(len(shape), strided=True), repeat=len(mesh_shape)):
        layout, boxes, places = simulated(shape, mesh_shape, placements)
        assert layout.shape == shape
        parts = local_parts(whole, mesh_shape, placements)
        strided = any(isinstance(placement, _StridedShard) for placement in placements)
        for rank, place in places:
            part, held = parts[place], boxes[rank]
            assert tensors.local_shape(held) == tuple(part.shape), (placements, place)
            views = tensors._views(part, held)
            array = ps.DistArray(layout, views, rank, tensors._bits(part).dtype)  # checks shapes
            for view, box in zip(array.local, [box for box in held if not box.is_empty]):
                assert np.array_equal(view, whole.numpy()[box.slices])
            if not strided:
                expected = _compute_local_shape_and_global_offset(shape, mesh_shape, list(place), placements)
                assert held[0].shape == expected[0]
                assert held[0].is_empty or held[0].begin == expected[1]


@pytest.mark.parametrize("mesh_shape", [(4,), (2, 3)], ids=str)
def test_placements_of_a_layout_distribute_alike(mesh_shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    mesh = DeviceMesh.__new__(DeviceMesh)  # of ranks that do not exist
    ranks = np.arange(int(np.prod(mesh_shape))).reshape(mesh_shape)
    monkeypatch.setattr(tensors, "_ranks_of_mesh", lambda mesh, group: ranks)
    monkeypatch.setattr(DeviceMesh, "ndim", ranks.ndim, raising=False)
    monkeypatch.setattr(DeviceMesh, "shape", mesh_shape, raising=False)
    for shape in [(), (7,), (8, 6), (3, 5)]:
        for placements in itertools.product(placements_for(len(shape)), repeat=len(mesh_shape)):
            layout = tensors._layout(shape, mesh_shape, tensors._coordinates(ranks), placements, ranks.size)[0]
            again = tensors.placements_of(layout, mesh)
            same = tensors._layout(shape, mesh_shape, tensors._coordinates(ranks), again, ranks.size)[0]
            assert owned_boxes(same) == owned_boxes(layout)
    with pytest.raises(ps.Error, match="no placements on a mesh of shape"):
        tensors.placements_of(ps.Layout.grid([0, 1, 8], [0, 1], ranks=ranks.size), mesh)
    with pytest.raises(ps.Error, match="more than one box"):
        tensors.placements_of(ps.Layout.block_cyclic((8,), (1,), (2,)), mesh)


def whole_of(shape: Sequence[int], dtype: Any) -> Any:
    count = int(np.prod(shape, dtype=int))
    bits = torch.arange(count, dtype=torch.int32).reshape(tuple(shape))
    if dtype in (torch.complex64, torch.complex128):
        return torch.complex(bits.double(), -bits.double()).to(dtype)
    return (bits % 5).to(dtype) if dtype.itemsize == 1 else bits.to(dtype)


def placed(whole: Any, mesh: Any, placements: Sequence[Any]) -> Any:
    """As distribute_tensor, without communication and for every placement."""
    place = mesh.get_coordinate()
    if place is None:
        local = whole.new_empty(0)
    else:
        local = local_parts(whole, tuple(mesh.shape), placements)[tuple(place)].clone()
    return DTensor.from_local(local, mesh, placements, run_check=False, shape=whole.shape, stride=whole.stride())


def check(result: Any, whole: Any, mesh: Any, placements: Sequence[Any]) -> None:
    assert isinstance(result, DTensor) and result.device_mesh == mesh and result.shape == whole.shape
    assert result.placements == tuple(placements) and result.dtype == whole.dtype
    if mesh.get_coordinate() is not None:
        expected = local_parts(whole, tuple(mesh.shape), placements)[tuple(mesh.get_coordinate())]
        bits = [tensors._bits(part.contiguous()) for part in (result.to_local(), expected)]
        assert bits[0].shape == bits[1].shape and bits[0].tobytes() == bits[1].tobytes()


def meshes_of(size: int) -> list[Any]:
    ranks = np.arange(size)
    shapes = [(size,), *([(2, size // 2), (size // 2, 2)] if size % 2 == 0 else [])]
    return [DeviceMesh("cpu", ranks.reshape(shape).tolist()) for shape in shapes]


@pytest.mark.parametrize("shape", [(), (5,), (0, 3), (9, 4), (3, 4, 5)], ids=str)
def test_between_all_placements(group: Any, shape: tuple[int, ...]) -> None:
    whole = whole_of(shape, torch.float32)
    meshes = meshes_of(group.size())
    random = np.random.default_rng(len(shape))
    pairs = [
        (mesh, placements)
        for mesh in meshes
        for placements in itertools.product(placements_for(len(shape), strided=True), repeat=mesh.ndim)
    ]
    for _ in range(25):
        (mesh, before), (other, after) = (pairs[i] for i in random.integers(len(pairs), size=2))
        result = ps.torch.redistribute(placed(whole, mesh, before), other, after)
        check(result, whole, other, after)


@pytest.mark.parametrize(
    "dtype",
    [
        torch.bool,
        torch.uint8,
        torch.int16,
        torch.bfloat16,
        torch.float8_e4m3fn,
        torch.int64,
        torch.complex64,
        torch.complex128,
    ],
    ids=str,
)
def test_every_element_type_moves(group: Any, dtype: Any) -> None:
    whole, mesh = whole_of((7, 6), dtype), meshes_of(group.size())[0]
    result = ps.torch.redistribute(placed(whole, mesh, [Shard(0)]), placements=[Shard(1)])
    check(result, whole, mesh, [Shard(1)])


def test_as_torchs_own_redistribute(group: Any) -> None:
    mesh = meshes_of(group.size())[-1]
    tensor = distribute_tensor(torch.arange(60.0).reshape(12, 5), mesh, [Shard(0)] * mesh.ndim)
    for after in ([Replicate()] * mesh.ndim, [Shard(1)] * mesh.ndim):
        assert torch.equal(
            ps.torch.redistribute(tensor, placements=after).to_local(), tensor.redistribute(placements=after).to_local()
        )
    assert torch.equal(ps.torch.redistribute(tensor, mesh).to_local(), tensor.full_tensor())


def test_between_meshes_of_other_ranks(group: Any) -> None:
    size = group.size()
    if size < 2:
        pytest.skip("needs 2 ranks")
    left = DeviceMesh("cpu", list(range(size // 2)))
    right = DeviceMesh("cpu", list(range(size // 2, size)))
    whole = whole_of((6, 5), torch.float64)
    there = ps.torch.redistribute(placed(whole, left, [Shard(0)]), right, [Shard(1)])
    check(there, whole, right, [Shard(1)])
    check(ps.torch.redistribute(there, left, [Replicate()]), whole, left, [Replicate()])
    assert ps.torch.layout_of(there).ranks == size


def test_in_a_group_of_some_ranks(group: Any) -> None:
    if group.size() < 2:
        pytest.skip("needs 2 ranks")
    members = list(range(1, group.size()))
    sub = dist.new_group(members)
    mesh = DeviceMesh("cpu", members)
    if group.rank() in members:
        whole = whole_of((5, 4), torch.float32)
        tensor = placed(whole, mesh, [Shard(0)])
        check(ps.torch.redistribute(tensor, placements=[Shard(1)], group=sub), whole, mesh, [Shard(1)])
        layout = ps.torch.layout_of(tensor, sub)
        assert layout.ranks == len(members)
        assert ps.torch.placements_of(layout, mesh, sub)[0] in (Shard(0), Replicate())


def test_strides_of_the_local_tensor_do_not_matter(group: Any) -> None:
    mesh = meshes_of(group.size())[0]
    whole = whole_of((group.size() * 3, 4), torch.float32)
    for local in (
        placed(whole, mesh, [Shard(0)]).to_local().t().contiguous().t(),
        torch.stack([placed(whole, mesh, [Shard(0)]).to_local()] * 2, dim=-1)[..., 1],
    ):
        assert not local.is_contiguous()
        tensor = DTensor.from_local(local, mesh, [Shard(0)], run_check=False)
        check(ps.torch.redistribute(tensor, placements=[Shard(1)]), whole, mesh, [Shard(1)])
    ones = DTensor.from_local(torch.ones(1).expand(3, 4), mesh, [Replicate()], run_check=False)
    check(ps.torch.redistribute(ones, placements=[Shard(0)]), torch.ones(3, 4), mesh, [Shard(0)])
    conjugate = whole_of((4, 4), torch.complex64)
    tensor = DTensor.from_local(conjugate.conj(), mesh, [Replicate()], run_check=False)
    check(ps.torch.redistribute(tensor, placements=[Shard(0)]), conjugate.conj().resolve_conj(), mesh, [Shard(0)])


def test_started_and_waited_for(group: Any) -> None:
    mesh = meshes_of(group.size())[0]
    wholes = [whole_of((8, n), torch.float32) for n in (3, 5)]
    started = [ps.torch.iredistribute(placed(whole, mesh, [Shard(0)]), placements=[Shard(1)]) for whole in wholes]
    total = torch.ones(1)
    dist.all_reduce(total)
    assert total.item() == group.size()
    for whole, each in reversed(list(zip(wholes, started))):
        check(each.wait(), whole, mesh, [Shard(1)])
        assert each.test() and each.wait() is each.wait()


def test_a_layout_serves_numpy_arrays(group: Any) -> None:
    """Into any layout of NumPy arrays, for other libraries and checkpoints."""
    mesh = meshes_of(group.size())[0]
    whole = whole_of((9, 4), torch.float32)
    tensor = placed(whole, mesh, [Shard(0)])
    part = ps.DistArray(ps.torch.layout_of(tensor), tensor.to_local().numpy(), group.rank())
    found = part.to_global(np.full((9, 4), -1, np.float32))
    mine = found >= 0
    assert mine.sum() == tensor.to_local().numel() and np.array_equal(found[mine], whole.numpy()[mine])


def wrong_calls(group: Any) -> dict[str, tuple[Any, str]]:
    mesh = meshes_of(group.size())[0]
    tensor = placed(whole_of((4, 4), torch.float32), mesh, [Shard(0)])
    partial = DTensor.from_local(torch.ones(4), mesh, [Partial()], run_check=False)
    wrong_shape = DTensor.from_local(torch.ones(9, 9), mesh, [Shard(0)], run_check=False, shape=(4, 4), stride=(4, 1))
    parameter = torch.nn.Parameter(tensor)
    meta = DTensor.from_local(torch.ones(4, device="meta"), mesh, [Replicate()], run_check=False)
    move = ps.torch.redistribute
    return {
        "no_dtensor": (lambda: move(torch.ones(4)), "Tensor; expected a DTensor"),
        "partial": (lambda: move(partial), r"Partial.*tensor\.redistribute\(placements="),
        "to_partial": (lambda: move(tensor, placements=[Partial()]), "expected Shard or Replicate"),
        "too_many": (lambda: move(tensor, placements=[Shard(0), Shard(1)]), "2 placements given for a mesh of 1"),
        "no_dimension": (lambda: move(tensor, placements=[Shard(2)]), "the tensor has 2 dimensions"),
        "no_placement": (lambda: move(tensor, placements=["rows"]), "the placement is 'rows'"),
        "no_mesh": (lambda: move(tensor, [0, 1]), "device_mesh is a list"),
        "shape": (lambda: move(wrong_shape), r"has the shape \(9, 9\); expected \(\d, 4\)"),
        "gradient": (lambda: move(parameter), r"tensor\.detach\(\)"),
        "device": (lambda: move(meta), 'on device "meta"'),
    }


NAMES = [
    "no_dtensor",
    "partial",
    "to_partial",
    "too_many",
    "no_dimension",
    "no_placement",
    "no_mesh",
    "shape",
    "gradient",
    "device",
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("alone", [False, True], ids=["all ranks", "one rank"])
def test_wrong_calls(group: Any, name: str, alone: bool) -> None:
    call, said = wrong_calls(group)[name]
    mesh = meshes_of(group.size())[0]
    whole = whole_of((4, 4), torch.float32)
    right = placed(whole, mesh, [Shard(0)])
    if not alone or group.rank() == 0:
        with pytest.raises(ps.Error, match=said):
            call()
    else:
        with pytest.raises(ps.Error) as caught:
            ps.torch.redistribute(right, placements=[Shard(1)])
        assert caught.value.code in ("peer_failed", "mismatch"), caught.value
    check(ps.torch.redistribute(right, placements=[Shard(1)]), whole, mesh, [Shard(1)])


def test_groups_of_other_backends_and_ranks(group: Any, gloo: Any) -> None:
    tensor = placed(torch.ones(4), meshes_of(group.size())[0], [Shard(0)])
    with pytest.raises(ps.Error, match=r'the backend "gloo"; expected "penstock"'):
        ps.torch.redistribute(tensor, group=gloo)
    if group.size() > 1:
        backwards = DeviceMesh("cpu", list(range(group.size()))[::-1])
        with pytest.raises(ps.Error, match="expected ranks that increase along each dimension"):
            ps.torch.redistribute(tensor, backwards)
        alone = [dist.new_group([rank]) for rank in range(group.size())][group.rank()]
        with pytest.raises(ps.Error, match="is not in the group of the ranks"):
            ps.torch.redistribute(tensor, group=alone)


def test_parameters_move_without_gradients(group: Any) -> None:
    mesh = meshes_of(group.size())[0]
    whole = whole_of((4, 4), torch.float32)
    parameter = torch.nn.Parameter(placed(whole, mesh, [Shard(0)]))
    with torch.no_grad():
        check(ps.torch.redistribute(parameter, placements=[Shard(1)]), whole, mesh, [Shard(1)])
