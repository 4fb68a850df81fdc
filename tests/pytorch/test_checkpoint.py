"""torch.distributed.checkpoint on a penstock.Checkpointer: any sharding into any other, and read without PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import penstock as ps
import pytest


def state(axis: int, scale: float) -> dict[str, Any]:
    """Sharded along `axis`. With scale 0 there is nothing in it that a load must not replace."""
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    weights = torch.arange(7 * 10, dtype=torch.float32).reshape(7, 10) * scale
    return {
        "model": {
            "weights[0]": distribute_tensor(weights, mesh, [Shard(axis)]),
            "half": distribute_tensor((weights * 2).to(torch.bfloat16), mesh, [Shard(1 - axis)]),
            "bias": distribute_tensor(weights[0].clone(), mesh, [Replicate()]),
            "counts": (torch.arange(5) * int(scale)).to(torch.int64),
            "flags": torch.tensor([True, False, True]) if scale else torch.zeros(3, dtype=torch.bool),
            "complex": torch.ones(3, dtype=torch.complex128) * scale,
            "scalar": torch.tensor(3.5 * scale),
            "empty": torch.zeros((0, 4)),
        },
        "optimizer": {"lr": 0.1 * scale, "names": ["a", "b"] if scale else [], "step": int(scale)},
    }


def equal(a: Any, b: Any) -> bool:
    import torch
    from torch.distributed.tensor import DTensor

    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, DTensor):
        return bool(torch.equal(a.full_tensor(), b.full_tensor()))
    if isinstance(a, torch.Tensor):
        return bool(torch.equal(a, b)) and a.dtype == b.dtype
    return bool(a == b)


def test_any_sharding_comes_back_in_any_other(checkpoints):
    import torch.distributed.checkpoint as dcp
    from penstock.torch.checkpoint import Reader, Writer

    for step, axis in [(1, 0), (2, 1)]:
        dcp.save(state(axis, step), storage_writer=Writer(checkpoints, step))
    for step in (1, 2):
        for axis in (0, 1):
            found = state(axis, 0)
            dcp.load(found, storage_reader=Reader(checkpoints, step))
            assert equal(found, state(axis, step))
    found = state(0, 0)
    dcp.load(found, storage_reader=Reader(checkpoints))
    assert equal(found, state(0, 2))


def test_asynchronous_saves_and_steps_by_checkpoint_id(checkpoints):
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from penstock.torch.checkpoint import Reader, Writer

    gloo = dist.new_group(backend="gloo")
    dcp.async_save(state(0, 3), checkpoint_id="3", storage_writer=Writer(checkpoints), process_group=gloo).result()
    assert checkpoints.steps() == [3]
    found = state(1, 0)
    dcp.load(found, checkpoint_id="3", storage_reader=Reader(checkpoints))
    assert equal(found, state(1, 3))


def test_programs_without_pytorch_read_the_tensors(checkpoints):
    import torch.distributed.checkpoint as dcp
    from penstock.torch.checkpoint import Writer

    dcp.save(state(0, 1), storage_writer=Writer(checkpoints, 1))
    _, found = checkpoints.restore(only="state/*")
    assert np.array_equal(found["state/model.weights[0]"], np.arange(70, dtype=np.float32).reshape(7, 10))
    assert found["state/model.scalar"] == 3.5
    assert "state/model.empty" not in found


def test_one_process_loads_what_all_ranks_have_saved(checkpoints):
    import torch
    import torch.distributed.checkpoint as dcp
    from mpi4py import MPI
    from penstock.torch.checkpoint import Reader, Writer

    dcp.save(state(0, 2), storage_writer=Writer(checkpoints, 1))
    weights = torch.arange(70, dtype=torch.float32).reshape(7, 10) * 2
    found = {
        "model": {"weights[0]": torch.zeros(7, 10), "half": torch.zeros(7, 10, dtype=torch.bfloat16)},
        "optimizer": {"step": 0},
    }
    with ps.Checkpointer(checkpoints._where.split()[0], comm=MPI.COMM_SELF) as alone:
        dcp.load(found, storage_reader=Reader(alone), no_dist=True)
    assert torch.equal(found["model"]["weights[0]"], weights)
    assert torch.equal(found["model"]["half"], (weights * 2).to(torch.bfloat16))
    assert found["optimizer"]["step"] == 2


def test_what_fits_not_is_told(checkpoints, group):
    import torch
    import torch.distributed.checkpoint as dcp
    from mpi4py import MPI
    from penstock.torch.checkpoint import Reader, Writer
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.planner import LoadPlan, SavePlan

    with pytest.raises(ps.Error, match="level is 'durable'; expected 'staged', 'fast' or 'drained'"):
        Writer(checkpoints, 1, level="durable")
    with pytest.raises(CheckpointException, match="no step to save"):
        dcp.save({"a": torch.ones(3)}, storage_writer=Writer(checkpoints))
    with pytest.raises(ps.Error, match="checkpoint_id is 'last'; expected the number of a step"):
        Writer(checkpoints).reset("last")
    checkpoints.save(4, {"a": np.ones(3)}).wait()
    with pytest.raises(CheckpointException, match=r"was not saved by penstock\.torch\.checkpoint\.Writer"):
        dcp.load({"a": torch.ones(3)}, storage_reader=Reader(checkpoints))
    with ps.Checkpointer("memory:", comm=MPI.COMM_SELF) as wrong:
        text = "process group has 2 ranks, the Checkpointer 1; give both the same ranks"
        with pytest.raises(ps.Error, match=text):
            Writer(wrong, 1).prepare_global_plan([SavePlan([]), SavePlan([])])
        with pytest.raises(ps.Error, match=text):
            Reader(wrong, 1).prepare_global_plan([LoadPlan([]), LoadPlan([])])
    differ = [LoadPlan([], storage_data=4 + rank) for rank in range(group.size())]
    if len(differ) > 1:
        with pytest.raises(ps.Error, match="rank 1 sees the checkpoint of step 5 as the newest, rank 0 that of step 4"):
            Reader(checkpoints).prepare_global_plan(differ)
    cached = [SavePlan([], usable=False) for _ in range(group.size())]
    with pytest.raises(ps.Error, match="enable_plan_caching is on"):
        Writer(checkpoints, 1).prepare_global_plan(cached)


def test_a_rank_that_fails_fails_all(checkpoints, group):
    import torch
    import torch.distributed.checkpoint as dcp
    from penstock.torch.checkpoint import Writer
    from torch.distributed.checkpoint.api import CheckpointException

    class Broken(dcp.DefaultSavePlanner):
        def resolve_data(self, write_item: Any) -> Any:
            if group.rank() == group.size() - 1:
                raise ValueError("no such data here")
            return super().resolve_data(write_item)

    tree = state(0, 1)
    with pytest.raises(CheckpointException, match="no such data here"):
        dcp.save(tree, storage_writer=Writer(checkpoints, 1), planner=Broken())
    assert checkpoints.steps() == []
    dcp.save({"a": torch.ones(3)}, storage_writer=Writer(checkpoints, 2))
    assert checkpoints.steps() == [2]
