"""DDP, FSDP2, DTensor, DCP and pipelines on this backend, against gloo or one process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402

WIDTH, BATCH, STEPS = 32, 8, 4


def network() -> nn.Module:
    torch.manual_seed(1)
    layers = [nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 4)]
    return nn.Sequential(*layers)


def batch(step: int, rank: int) -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(BATCH, WIDTH, generator=generator), torch.randn(BATCH, 4, generator=generator)


def losses(model: nn.Module, rank: int) -> list[float]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    found = []
    for step in range(STEPS):
        inputs, wanted = batch(step, rank)
        loss = ((model(inputs) - wanted) ** 2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.item())
    return found


def plain_losses(rank: int, size: int) -> list[float]:
    """Of this rank's batches, as one process finds them that trains on those of all ranks."""
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    found = []
    for step in range(STEPS):
        for each in range(size):
            inputs, wanted = batch(step, each)
            loss = ((model(inputs) - wanted) ** 2).mean()
            (loss / size).backward()
            if each == rank:
                found.append(loss.item())
        optimizer.step()
        optimizer.zero_grad()
    return found


def parallel(group: Any, **options: Any) -> nn.Module:
    return nn.parallel.DistributedDataParallel(network(), process_group=group, **options)


def test_ddp_trains_as_on_gloo(group: Any, gloo: Any) -> None:
    ours, theirs = (losses(parallel(each, bucket_cap_mb=0.005), group.rank()) for each in (group, gloo))
    assert ours == pytest.approx(theirs, rel=1e-6)
    assert ours == pytest.approx(plain_losses(group.rank(), group.size()), rel=1e-5)


def test_ddp_options(group: Any) -> None:
    expected = plain_losses(group.rank(), group.size())
    for options in ({"gradient_as_bucket_view": True}, {"static_graph": True}, {"find_unused_parameters": True}):
        assert losses(parallel(group, **options), group.rank()) == pytest.approx(expected, rel=1e-5), options


def test_ddp_hooks(group: Any) -> None:
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    expected = plain_losses(group.rank(), group.size())
    for hook, precision in ((default_hooks.allreduce_hook, 1e-5), (default_hooks.fp16_compress_hook, 0.1)):
        model = parallel(group, bucket_cap_mb=0.005)
        model.register_comm_hook(group, hook)
        assert losses(model, group.rank()) == pytest.approx(expected, rel=precision), hook


def test_ddp_with_sparse_gradients(group: Any) -> None:
    def gradients(model: nn.Module, rank: int) -> Any:
        model(torch.tensor([rank, rank + 1, rank])).square().sum().backward()
        return next(model.parameters()).grad.to_dense()

    def embedding() -> nn.Module:
        torch.manual_seed(1)
        return nn.Embedding(10, 3, sparse=True)

    ours = gradients(nn.parallel.DistributedDataParallel(embedding(), process_group=group), group.rank())
    expected = sum(gradients(embedding(), rank) for rank in range(group.size())) / group.size()
    assert torch.allclose(ours, expected)


def test_ddp_without_synchronization(group: Any) -> None:
    model = parallel(group)
    inputs, wanted = batch(0, group.rank())
    with model.no_sync():
        ((model(inputs) - wanted) ** 2).mean().backward()
    ((model(inputs) - wanted) ** 2).mean().backward()
    gradient = model.module[0].weight.grad.clone()
    everyone = [torch.empty_like(gradient) for _ in range(group.size())]
    dist.all_gather(everyone, gradient)
    assert all(torch.equal(each, gradient) for each in everyone)


def test_sync_batch_norm_like_sums(group: Any) -> None:
    """The ranks' own sizes, as modules that gather statistics ask for."""
    mine = torch.arange(float(group.rank() + 1))
    sizes = [torch.empty(1, dtype=torch.int64) for _ in range(group.size())]
    dist.all_gather(sizes, torch.tensor([mine.numel()]))
    assert [int(each) for each in sizes] == list(range(1, group.size() + 1))


def shard(model: nn.Module, **options: Any) -> nn.Module:
    from torch.distributed.fsdp import fully_shard

    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, **options)
    return fully_shard(model, **options)


def test_fsdp_averages_gradients(group: Any) -> None:
    expected = plain_losses(group.rank(), group.size())
    assert losses(shard(network()), group.rank()) == pytest.approx(expected, rel=1e-5)


def test_fsdp_in_bfloat16(group: Any) -> None:
    from torch.distributed.fsdp import MixedPrecisionPolicy

    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
    model = shard(network(), mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    expected = plain_losses(group.rank(), group.size())
    for step in range(STEPS):
        inputs, wanted = batch(step, group.rank())
        loss = ((model(inputs).float() - wanted) ** 2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        assert loss.item() == pytest.approx(expected[step], rel=0.1)


def test_redistribution_of_tensors(group: Any) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    size = group.size()
    whole = torch.arange(7.0 * 6).reshape(7, 6)
    mesh = init_device_mesh("cpu", (size,))
    tensor = distribute_tensor(whole, mesh, [Shard(0)])
    for placement in (Shard(1), Replicate(), Shard(0), Shard(1)):
        tensor = tensor.redistribute(mesh, [placement])
        assert torch.equal(tensor.full_tensor(), whole), placement
    assert (tensor @ tensor.t()).full_tensor().equal(whole @ whole.t())
    assert tensor.sum().full_tensor() == whole.sum()
    assert tensor.mean().full_tensor() == whole.mean()
    if size % 2 == 0:
        square = init_device_mesh("cpu", (size // 2, 2))
        assert torch.equal(distribute_tensor(whole, square, [Shard(0), Shard(1)]).full_tensor(), whole)


@pytest.fixture
def shared_path(group: Any, tmp_path: Path) -> Path:
    paths: list[Any] = [str(tmp_path)]
    dist.broadcast_object_list(paths)
    return Path(paths[0])


@pytest.mark.parametrize("is_async", [False, True])
def test_checkpoints(group: Any, shared_path: Path, is_async: bool) -> None:
    from torch.distributed import checkpoint
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    def state(model: nn.Module, optimizer: Any) -> dict[str, Any]:
        return dict(zip(("model", "optimizer"), get_state_dict(model, optimizer)))

    model = shard(network())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses(model, group.rank())
    saved = state(model, optimizer)
    if is_async:
        checkpoint.async_save(saved, checkpoint_id=shared_path / "one").result()
    else:
        checkpoint.save(saved, checkpoint_id=shared_path / "one")
    other = shard(network())
    other_optimizer = torch.optim.AdamW(other.parameters(), lr=0.01)
    loaded = state(other, other_optimizer)
    checkpoint.load(loaded, checkpoint_id=shared_path / "one")
    set_state_dict(other, other_optimizer, model_state_dict=loaded["model"], optim_state_dict=loaded["optimizer"])
    for ours, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(ours.full_tensor(), theirs.full_tensor())
    dist.barrier()


def _schedules() -> list[Callable[..., Any]]:
    from torch.distributed.pipelining import Schedule1F1B, ScheduleGPipe

    return [ScheduleGPipe, Schedule1F1B]


@pytest.mark.parametrize("which", [0, 1])
def test_pipelines(group: Any, which: int) -> None:
    from torch.distributed.pipelining import PipelineStage

    rank, size = group.rank(), group.size()
    if not 2 <= size <= 4:
        pytest.skip("the network has stages for 2 to 4 ranks")
    layers, cuts = list(network()), {2: (0, 2, 5), 3: (0, 1, 3, 5), 4: (0, 1, 2, 4, 5)}[size]
    module = nn.Sequential(*layers[cuts[rank] : cuts[rank + 1]])
    stage = PipelineStage(module, rank, size, torch.device("cpu"), group=group)
    schedule = _schedules()[which](stage, n_microbatches=4, loss_fn=nn.MSELoss())
    inputs, wanted = batch(0, 0)
    found: list[Any] = []
    if rank == 0:
        schedule.step(inputs)
    elif rank == size - 1:
        schedule.step(target=wanted, losses=found)
    else:
        schedule.step()
    plain = network()
    loss = nn.functional.mse_loss(plain(inputs), wanted)
    loss.backward()
    if rank == size - 1:
        assert torch.stack(found).mean().item() == pytest.approx(loss.item(), rel=1e-5)
    for ours, theirs in zip(module.parameters(), list(plain)[cuts[rank] : cuts[rank + 1]], strict=False):
        assert ours.grad is not None, theirs
