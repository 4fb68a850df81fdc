"""Checkpointer.save and restore(like=) of trees with tensors: DTensors of any mesh, state_dicts of FSDP2, random numbers."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import penstock as ps
import pytest


def meshes(size: int) -> list[Any]:
    """One- and two-dimensional ones, of all ranks and of some."""
    from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

    found = [init_device_mesh("cpu", (size,))]
    if size % 2 == 0:
        found.append(init_device_mesh("cpu", (2, size // 2)))
    if size > 2:
        found.append(DeviceMesh("cpu", list(range(1, size))))
    return found


def placements(dimensions: int) -> list[tuple[Any, ...]]:
    from torch.distributed.tensor import Replicate, Shard

    return list(itertools.product([Shard(0), Shard(1), Replicate()], repeat=dimensions))


def distributed(values: Any, mesh: Any, places: Any) -> Any:
    """A DTensor on a mesh that may leave out some ranks."""
    from torch.distributed.tensor import DTensor, distribute_tensor

    if mesh.get_coordinate() is not None:
        return distribute_tensor(values, mesh, places)
    stride = values.stride()
    return DTensor.from_local(values.new_empty(0), mesh, places, run_check=False, shape=values.shape, stride=stride)


def equal(a: Any, b: Any) -> bool:
    import torch
    from torch.distributed.tensor import DTensor

    if isinstance(a, DTensor):
        same = isinstance(b, DTensor) and a.placements == b.placements and a.shape == b.shape
        return same and a.dtype == b.dtype and bool(torch.equal(a.to_local(), b.to_local()))
    return bool(torch.equal(a, b)) and a.dtype == b.dtype


def test_a_dtensor_comes_back_on_any_mesh(checkpoints, group):
    import torch

    values = torch.arange(7 * 10, dtype=torch.float32).reshape(7, 10)
    cases = [(mesh, places) for mesh in meshes(group.size()) for places in placements(mesh.ndim)]
    trees = [{"w": distributed(values, *case), "half": distributed(values.to(torch.bfloat16), *case)} for case in cases]
    for step, tree in enumerate(trees):
        checkpoints.save(step, tree)
    checkpoints.finish()
    for step, like in itertools.product(range(len(trees)), trees[:: max(1, len(trees) // 7)]):
        wanted = {name: tensor.detach().clone() for name, tensor in like.items()}
        for tensor in wanted.values():
            tensor.to_local().zero_()
        _, found = checkpoints.restore(step=step, like=wanted)
        for name in like:
            assert equal(found[name], like[name]), (cases[step], name)
    assert (checkpoints.restore(step=0)[1]["w"] == values.numpy()).all()


def test_no_element_is_saved_twice(checkpoints, group):
    import torch
    from torch.distributed.tensor import Replicate, Shard

    values = torch.arange(600_000, dtype=torch.float32).reshape(600, 1000)
    cases = {}
    for number, mesh in enumerate(meshes(group.size())):
        for places in [(Replicate(),) * mesh.ndim, (Replicate(),) * (mesh.ndim - 1) + (Shard(0),)]:
            cases[f"{number}{places}"] = distributed(values, mesh, places)
    checkpoints.save(1, {**cases, "plain": values}).wait()
    saved = checkpoints.inspect(1).arrays
    held = np.zeros(group.size(), np.int64)
    for array in saved.values():
        assert sum(array.layout.local_size(rank) for rank in range(group.size())) == values.numel()
        held += [array.layout.local_size(rank) for rank in range(group.size())]
    assert set(saved) == {*cases, "plain"}
    assert held.max() <= 1.5 * held.mean(), "some rank saves more than its share"


class Net:
    """An MLP that FSDP2 shards by layer, and its optimizer after a step."""

    def __init__(self, mesh: Any, seed: int, *, steps: int = 1) -> None:
        import torch
        from torch.distributed.fsdp import fully_shard

        torch.manual_seed(seed)
        layers = [torch.nn.Linear(9, 13), torch.nn.ReLU(), torch.nn.Linear(13, 5)]
        self.model = torch.nn.Sequential(*layers)
        for layer in (layers[0], layers[2], self.model):
            fully_shard(layer, mesh=mesh)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01 * seed)
        for _ in range(steps):
            self.train()

    def train(self) -> float:
        import torch

        loss = self.model(torch.ones(4, 9)).square().sum()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return float(loss)

    def state(self) -> dict[str, Any]:
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load(self, tree: dict[str, Any]) -> None:
        self.model.load_state_dict(tree["model"])
        self.optimizer.load_state_dict(tree["optimizer"])


def test_fsdp2_trains_on_from_a_checkpoint(checkpoints, group):
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", (group.size(),))
    net = Net(mesh, 1, steps=2)
    checkpoints.save(7, net.state())
    expected = [net.train() for _ in range(3)]
    checkpoints.finish()
    other = Net(mesh, 5)
    step, tree = checkpoints.restore(like=other.state())
    assert step == 7
    assert type(tree["model"]) is type(other.model.state_dict())
    assert tree["optimizer"]["param_groups"][0]["lr"] == 0.01
    other.load(tree)
    assert [other.train() for _ in range(3)] == expected


def test_fsdp2_on_other_meshes(checkpoints, group):
    """HSDP, and all of it on one rank."""
    import torch
    from mpi4py import MPI
    from torch.distributed.device_mesh import init_device_mesh

    if group.size() % 2:
        pytest.skip("an even number of ranks makes a mesh of two dimensions")
    flat = Net(init_device_mesh("cpu", (group.size(),)), 1)
    full = {name: tensor.full_tensor() for name, tensor in flat.model.state_dict().items()}
    checkpoints.save(1, flat.state()).wait()
    hybrid = Net(init_device_mesh("cpu", (2, group.size() // 2), mesh_dim_names=("copies", "parts")), 3)
    hybrid.load(checkpoints.restore(like=hybrid.state())[1])
    for name, tensor in hybrid.model.state_dict().items():
        assert torch.equal(tensor.full_tensor(), full[name])
    checkpoints.save(2, hybrid.state()).wait()
    with ps.Checkpointer(checkpoints._where.split()[0], comm=MPI.COMM_SELF) as alone:
        _, selected = alone.restore(only="model/*", step=2)
        for name, tensor in full.items():
            assert (selected[f"model/{name}"] == tensor.numpy()).all(), name


def test_fsdp2_and_tensor_parallelism_together(checkpoints, group):
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    from torch.distributed.tensor.placement_types import _StridedShard

    if group.size() % 2:
        pytest.skip("an even number of ranks makes a mesh of two dimensions")
    mesh = init_device_mesh("cpu", (group.size() // 2, 2), mesh_dim_names=("data", "tensor"))

    def model(seed: int) -> Any:
        torch.manual_seed(seed)
        net = torch.nn.Sequential(torch.nn.Linear(6, 10), torch.nn.Linear(10, 6))
        parallelize_module(net, mesh["tensor"], {"0": ColwiseParallel(), "1": RowwiseParallel()})
        return fully_shard(net, mesh=mesh["data"])

    saved = model(1).state_dict()
    if group.size() > 2:
        assert any(isinstance(place, _StridedShard) for tensor in saved.values() for place in tensor.placements)
    checkpoints.save(1, saved).wait()
    found = checkpoints.restore(like=model(2).state_dict())[1]
    assert all(equal(found[name], tensor) for name, tensor in saved.items())
    whole = checkpoints.restore()[1]
    for name, tensor in saved.items():
        assert (whole[name] == tensor.full_tensor().numpy()).all(), name


def plain_tensors(scale: int) -> dict[str, Any]:
    import torch

    steps = torch.arange(1, 7).reshape(2, 3) * scale
    tree: dict[str, Any] = {
        str(dtype): steps.to(dtype)
        for dtype in (
            torch.bool, torch.uint8, torch.int8, torch.int16, torch.int64, torch.float16, torch.bfloat16, torch.float32,
            torch.float64, torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2, torch.uint16,
        )
    }  # fmt: skip
    return tree | {
        "scalar": torch.tensor(2.5 * scale),
        "empty": torch.zeros((0, 4)),
        "transposed": steps.to(torch.float32).t(),
        "parameter": torch.nn.Parameter(steps.to(torch.float32)),
        "conjugate": torch.complex(steps.to(torch.float32), steps.to(torch.float32)).conj(),
        "learning rate": 0.1,
    }


def test_tensors_of_all_types_come_back_as_tensors(checkpoints):
    import torch

    saved = plain_tensors(1)
    checkpoints.save(1, saved).wait()
    found = checkpoints.restore(like=plain_tensors(0))[1]
    assert saved.keys() == found.keys()
    for name, tensor in saved.items():
        if isinstance(tensor, torch.Tensor):
            assert found[name].dtype == tensor.dtype and found[name].shape == tensor.shape, name
            assert (found[name].detach().resolve_conj() == tensor.detach().resolve_conj()).all(), name
    arrays = checkpoints.restore(only=["torch.float32", "torch.bool", "transposed"])[1]
    assert arrays["torch.float32"].dtype == np.float32 and arrays["torch.bool"].dtype == np.bool_
    assert (arrays["transposed"] == saved["transposed"].numpy()).all()
    assert checkpoints.inspect(1).arrays["torch.float16"].dtype == "float16"


def test_what_one_process_has_saved_comes_to_all_as_dtensors(checkpoints, group):
    import torch
    from mpi4py import MPI
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    values = torch.arange(35.0).reshape(5, 7)
    if group.rank() == 0:
        with ps.Checkpointer(checkpoints._where.split()[0], comm=MPI.COMM_SELF) as alone:
            alone.save(3, {"w": values}).wait()
    MPI.COMM_WORLD.Barrier()
    mesh = init_device_mesh("cpu", (group.size(),))
    like = distribute_tensor(torch.zeros(5, 7), mesh, [Shard(1)])
    assert torch.equal(checkpoints.restore(like={"w": like})[1]["w"].full_tensor(), values)


def test_what_fits_not_is_told(checkpoints, group):
    import torch
    from mpi4py import MPI
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Partial, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (group.size(),))
    values = torch.arange(70.0).reshape(7, 10)
    sharded = distribute_tensor(values, mesh, [Shard(0)])
    if group.size() > 1:
        with pytest.raises(ps.Error, match="sums that no rank has yet; expected Shard or Replicate"):
            checkpoints.save(1, {"w": DTensor.from_local(values, mesh, [Partial()])})
        with (
            ps.Checkpointer("memory:", comm=MPI.COMM_SELF) as alone,
            pytest.raises(ps.Error, match=f"'w' is a DTensor of the {group.size()} ranks of torch.distributed"),
        ):
            alone.save(1, {"w": sharded})
    for wrong, text in (
        (values.to_sparse(), "'w' has the layout torch.sparse_coo; expected a dense tensor"),
        (torch.empty(3, device="meta"), "'w' is on the device 'meta', which has no elements"),
    ):
        with pytest.raises(ps.Error, match=text):
            checkpoints.save(1, {"w": wrong})
    checkpoints.save(2, {"w": sharded}).wait()
    for like in (distribute_tensor(values.t().contiguous(), mesh, [Shard(0)]), values.to(torch.float64)):
        with pytest.raises(ps.Error, match=r"'w': saved was an array of float32 \[7, 10\]; `like` has an array of"):
            checkpoints.restore(like={"w": like})


def test_each_rank_gets_its_random_numbers_back(checkpoints, group):
    import torch

    def draw() -> tuple[Any, ...]:
        return random.random(), float(np.random.standard_normal()), float(torch.rand(()))  # noqa: NPY002

    for generator in (random.seed, np.random.seed, torch.manual_seed):
        generator(100 + group.rank())
    np.random.standard_normal()  # a normal number is left over  # noqa: NPY002
    checkpoints.save(1, {"random": ps.RngState()})
    expected = [draw() for _ in range(3)]
    checkpoints.finish()
    for like in ({}, {"like": {"random": ps.RngState()}}):
        checkpoints.restore(**like)[1]["random"].set()
        assert [draw() for _ in range(3)] == expected


def test_ranks_that_were_not_there_get_random_numbers_of_their_own(checkpoints, group):
    import torch
    import torch.distributed as dist
    from mpi4py import MPI

    torch.manual_seed(3)
    if group.rank() == 0:
        with ps.Checkpointer(checkpoints._where.split()[0], comm=MPI.COMM_SELF) as alone:
            alone.save(1, {"random": ps.RngState()}).wait()
    MPI.COMM_WORLD.Barrier()
    first = float(torch.rand(()))
    found: list[list[Any]] = []
    for _ in range(2):
        checkpoints.restore()[1]["random"].set()
        mine = [random.random(), float(np.random.random()), float(torch.rand(()))]  # noqa: NPY002
        told: list[Any] = [None] * group.size()
        dist.all_gather_object(told, mine)
        found.append(told)
    assert found[0] == found[1], "a restore gives the same numbers each time"
    assert found[0][0][2] == first
    for of_generator in zip(*found[0]):
        assert len(set(of_generator)) == group.size(), "two ranks have the same numbers"
