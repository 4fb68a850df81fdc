"""Groups of some of the ranks, groups that are made again, and device meshes."""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402


def test_every_subset_is_a_group(group: Any) -> None:
    rank, size = group.rank(), group.size()
    for count in range(1, size + 1):
        for members in itertools.combinations(range(size), count):
            sub = dist.new_group(list(members))
            if rank in members:
                tensor = torch.tensor([float(rank)])
                dist.all_reduce(tensor, group=sub)
                assert tensor.item() == sum(members)
                assert dist.get_rank(sub) == members.index(rank)
                root = torch.tensor([rank])
                dist.broadcast(root, src=members[-1], group=sub)
                assert root.item() == members[-1]
                dist.destroy_process_group(sub)


def test_members_alone_make_a_group(group: Any) -> None:
    rank, size = group.rank(), group.size()
    # PyTorch names such a group by its members and by how many groups a process is in, which must be equal on them.
    count = torch.tensor([len(dist.distributed_c10d._world.pg_names)])
    most = count.clone()
    dist.all_reduce(most, dist.ReduceOp.MAX)
    for _ in range(int(most - count)):
        dist.new_group([rank], use_local_synchronization=True)
    pair = [rank - rank % 2, rank - rank % 2 + 1]
    if pair[1] >= size:
        return
    sub = dist.new_group(pair, use_local_synchronization=True)
    tensor = torch.tensor([float(rank)])
    dist.all_reduce(tensor, group=sub)
    assert tensor.item() == sum(pair)
    dist.destroy_process_group(sub)


def test_groups_that_overlap_work_at_the_same_time(group: Any) -> None:
    rank, size = group.rank(), group.size()
    if size < 3:
        pytest.skip("two groups with one common rank have three")
    left, right = dist.new_group([0, 1]), dist.new_group([1, 2])
    works, tensors = [], []
    for members, sub in (((0, 1), left), ((1, 2), right)):
        if rank in members:
            tensors.append((torch.full((50_000,), float(rank)), sum(members)))
            works.append(dist.all_reduce(tensors[-1][0], group=sub, async_op=True))
    everyone = torch.ones(1)
    dist.all_reduce(everyone)
    for work in reversed(works):
        work.wait()
    assert everyone.item() == size
    assert all(torch.equal(tensor, torch.full_like(tensor, expected)) for tensor, expected in tensors)


def test_meshes(group: Any) -> None:
    from torch.distributed.device_mesh import init_device_mesh

    size = group.size()
    shape = (size // 2, 2) if size % 2 == 0 else (size, 1)
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("outer", "inner"))
    tensor = torch.ones(1)
    dist.all_reduce(tensor, group=mesh.get_group("inner"))
    dist.all_reduce(tensor, group=mesh.get_group("outer"))
    assert tensor.item() == size


def test_a_destroyed_group_says_so(group: Any) -> None:
    sub = dist.new_group()
    dist.destroy_process_group(sub)
    with pytest.raises(RuntimeError, match="has been destroyed"):
        sub.allreduce([torch.ones(1)])


def test_what_a_group_says_of_itself(group: Any) -> None:
    assert dist.get_backend() == "penstock"
    assert group.name() == "penstock"
    assert "progress threads" in group.report()
    with pytest.raises(RuntimeError, match="cpu"):
        group._get_backend(torch.device("cuda"))


def test_options(group: Any) -> None:
    import penstock.torch

    sub = dist.new_group(pg_options=penstock.torch.Options(progress_cores=0), timeout=timedelta(minutes=1))
    tensor = torch.ones(1)
    dist.all_reduce(tensor, group=sub)
    assert tensor.item() == group.size()
    dist.destroy_process_group(sub)
    for wrong in (penstock.torch.Options(progress_cores="many"), penstock.torch.Options(progress_cores=-3)):
        with pytest.raises(RuntimeError, match="progress_cores is"):
            dist.new_group(pg_options=wrong)
