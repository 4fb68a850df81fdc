"""send, recv and their asynchronous forms."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402


@pytest.fixture
def ring(group: Any) -> tuple[int, int]:
    """The ranks after and before this one."""
    if group.size() == 1:
        pytest.skip("a message needs two ranks")
    return (group.rank() + 1) % group.size(), (group.rank() - 1) % group.size()


@pytest.mark.parametrize("count", [0, 1, 1000, 3_000_000])
def test_messages_around_a_ring(group: Any, ring: tuple[int, int], count: int) -> None:
    to, source = ring
    mine = torch.full((count,), float(group.rank()))
    received = torch.full((count,), -1.0)
    sent = dist.isend(mine, to, tag=5)
    dist.recv(received, source, tag=5)
    sent.wait()
    assert torch.equal(received, torch.full((count,), float(source)))


def test_batches(group: Any, ring: tuple[int, int]) -> None:
    to, source = ring
    received = [torch.empty(n, dtype=torch.bfloat16) for n in (3, 70_000)]
    sent = [torch.full_like(each, group.rank()) for each in received]
    operations = [dist.P2POp(dist.irecv, each, source) for each in received]
    operations += [dist.P2POp(dist.isend, each, to) for each in sent]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    assert all(torch.equal(each, torch.full_like(each, source)) for each in received)


def test_from_any_rank(group: Any) -> None:
    if group.rank() > 0:
        dist.send(torch.tensor([float(group.rank())]), 0, tag=9)
        return
    seen = set()
    for _ in range(group.size() - 1):
        tensor = torch.empty(1)
        source = dist.recv(tensor, tag=9)
        assert tensor.item() == source
        seen.add(source)
    assert seen == set(range(1, group.size()))


def test_a_receiver_makes_progress_with_collectives(group: Any, ring: tuple[int, int]) -> None:
    """Rank 1 sends only when the collective is complete, which needs rank 0, which waits for the message."""
    tensor, token = torch.ones(500_000), torch.zeros(1)
    work = dist.all_reduce(tensor, async_op=True)
    if group.rank() == 0:
        dist.recv(token, 1)
        work.wait()
    else:
        work.wait()
        if group.rank() == 1:
            dist.send(torch.ones(1), 0)
    assert tensor[0] == group.size()


def test_a_collective_makes_progress_with_messages(group: Any, ring: tuple[int, int]) -> None:
    """Rank 1 waits for a long message, whose sender waits in a barrier that rank 1 has not reached."""
    message = torch.ones(4_000_000)
    if group.rank() == 0:
        sent = dist.isend(message, 1)
        dist.barrier()
        sent.wait()
    else:
        if group.rank() == 1:
            received = torch.zeros_like(message)
            dist.recv(received, 0)
            assert torch.equal(received, message)
        dist.barrier()


def test_a_message_of_another_size_is_a_mismatch(group: Any, ring: tuple[int, int]) -> None:
    to, source = ring
    sent = dist.isend(torch.ones(3), to)
    with pytest.raises(RuntimeError, match="12 bytes came, and the tensor has 20"):
        dist.recv(torch.zeros(5), source)
    sent.wait()


def test_ranks_outside_of_the_group(group: Any) -> None:
    with pytest.raises((RuntimeError, ValueError), match=str(group.size())):
        dist.send(torch.ones(1), group.size())
