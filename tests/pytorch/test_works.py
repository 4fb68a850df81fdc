"""What asynchronous calls return: works and futures, that complete whoever waits, or nobody."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402


def test_a_future_completes_though_nobody_waits(group: Any) -> None:
    tensor = torch.ones(100_000)
    future = dist.all_reduce(tensor, async_op=True).get_future()
    deadline = time.monotonic() + 60
    while not future.done():
        assert time.monotonic() < deadline, "the future did not complete by itself"
        time.sleep(0.001)
    assert future.value()[0] is tensor
    assert tensor[0] == group.size()


def test_callbacks_run_after_the_average(group: Any) -> None:
    tensor = torch.full((10,), 2.0)
    future = dist.all_reduce(tensor, dist.ReduceOp.AVG, async_op=True).get_future()
    assert future.then(lambda done: float(done.value()[0].sum())).wait() == 20.0


def test_a_dropped_work_is_completed(group: Any, gloo: Any) -> None:
    """Its tensors live until then, and dropping it waits for nobody: the others call only after the first rank has dropped its."""
    if group.rank() > 0:
        dist.barrier(gloo)
    dist.all_reduce(torch.ones(1000), async_op=True)
    if group.rank() == 0:
        dist.barrier(gloo)
    check = torch.ones(1)
    dist.all_reduce(check)
    assert check.item() == group.size()


def test_works_in_any_order_of_waiting(group: Any) -> None:
    tensors = [torch.full((n,), 1.0) for n in (10, 100_000, 1, 5000)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for work in reversed(works):
        assert work.wait() is True
        assert work.is_completed() and work.is_success() and work.exception() is None
    assert all(torch.equal(each, torch.full_like(each, group.size())) for each in tensors)


def test_polling_makes_progress(group: Any) -> None:
    tensor = torch.ones(300_000)
    work = dist.all_reduce(tensor, async_op=True)
    deadline = time.monotonic() + 60
    while not work.is_completed():
        assert time.monotonic() < deadline
    assert tensor[-1] == group.size()
    assert work.result()[0] is tensor


def test_a_wait_has_its_own_timeout(group: Any, gloo: Any) -> None:
    if group.size() == 1:
        pytest.skip("nobody is late on one rank")
    tensor = torch.ones(4)
    if group.rank() == 0:
        work = dist.all_reduce(tensor, async_op=True)
        with pytest.raises(RuntimeError, match=r"did not complete within 0\.2 s"):
            work.wait(timedelta(seconds=0.2))
        dist.barrier(gloo)
        work.wait()
    else:
        dist.barrier(gloo)
        dist.all_reduce(tensor)
    assert tensor[0] == group.size()


def test_functional_collectives(group: Any) -> None:
    """They come from C++, and wait there."""
    from torch.distributed import _functional_collectives as functional

    rank, size = group.rank(), group.size()
    mine = torch.full((2,), float(rank))
    assert torch.equal(functional.all_reduce(mine, "sum", group) + 0, torch.full((2,), float(sum(range(size)))))
    assert torch.equal(functional.all_reduce(mine, "avg", group) + 0, torch.full((2,), (size - 1) / 2))
    gathered = functional.all_gather_tensor(mine, 0, group) + 0
    assert torch.equal(gathered.reshape(size, 2)[:, 0], torch.arange(float(size)))
    whole = torch.arange(float(2 * size))
    scattered = functional.reduce_scatter_tensor(whole, "sum", 0, group) + 0
    assert torch.equal(scattered, size * whole.reshape(size, 2)[rank])
    swapped = functional.all_to_all_single(torch.full((size,), float(rank)), None, None, group) + 0
    assert torch.equal(swapped, torch.arange(float(size)))
    root = functional.broadcast(mine, size - 1, group) + 0
    assert torch.equal(root, torch.full((2,), float(size - 1)))
    many = functional.all_reduce_coalesced([mine, torch.ones(3)], "sum", group)
    assert torch.equal(many[1] + 0, torch.full((3,), float(size)))
