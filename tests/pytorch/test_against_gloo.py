"""Random collectives through Penstock and through gloo: the same results, for any operation, type, shape and form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402

R = dist.ReduceOp
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int8, torch.uint8, torch.int32, torch.int64)
OPS = (R.SUM, R.PRODUCT, R.MIN, R.MAX)
BITWISE = (R.BAND, R.BOR, R.BXOR)
CALLS = 60
Outputs = list[Any]


class Draws:
    """Random numbers that are equal on all ranks, and tensors that are not."""

    def __init__(self, seed: int, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self._same = torch.Generator().manual_seed(seed)
        self._own = torch.Generator().manual_seed(1000 * seed + rank)

    def below(self, limit: int) -> int:
        return int(torch.randint(limit, (1,), generator=self._same))

    def one_of(self, choices: tuple) -> Any:
        return choices[self.below(len(choices))]

    def elements(self) -> int:
        return self.one_of((0, 1, 7, 64, 1000, 40000))

    def tensor(self, count: int, dtype: Any) -> Any:
        # Small whole numbers: sums and products of any order are exact in every type.
        return torch.randint(1, 4, (count,), generator=self._own).to(dtype)

    def splits(self) -> list[list[int]]:
        """How many rows each rank sends to each other one."""
        return [[self.below(5) for _ in range(self.size)] for _ in range(self.size)]


def broadcast(draws: Draws, dtype: Any, run: Callable) -> Outputs:
    tensor, root = draws.tensor(draws.elements(), dtype), draws.below(draws.size)
    run(dist.broadcast, tensor, root)
    return [tensor]


def all_reduce(draws: Draws, dtype: Any, run: Callable) -> Outputs:
    tensor = draws.tensor(draws.elements(), dtype)
    run(dist.all_reduce, tensor, _op(draws, dtype))
    return [tensor]


def all_reduce_coalesced(draws: Draws, dtype: Any, run: Callable) -> Outputs:
    tensors, op = [draws.tensor(draws.elements() or 1, dtype) for _ in range(3)], _op(draws, dtype)
    run(dist.all_reduce_coalesced, tensors, op)
    return tensors


def reduce(draws: Draws, dtype: Any, run: Callable) -> Outputs:
    tensor, root = draws.tensor(draws.elements(), dtype), draws.below(draws.size)
    run(dist.reduce, tensor, root, _op(draws, dtype))
    return [tensor] if draws.rank == root else []


def all_gather(draws: Draws, dtype: Any, run: Callable) -> Outputs:
    mine = draws.tensor(draws.elements() or 1, dtype)
    outputs = [torch.empty_like(mine) for _ in range(draws.size)]
    run(dist.all_gather, outputs, mine)
    return outputs


def all_gather_slices(draws: Draws, dtype: Any, run: Callable) -> Outputs:
    mine = draws.tensor(draws.elements() or 1, dtype)
    whole = torch.zeros(draws.size * mine.numel(), dtype=dtype)
    outputs = list(whole.chunk(draws.size))
    outputs[draws.rank].copy_(mine)
    run(dist.all_gather, outputs, outputs[draws.rank])
    return [whole]


def all_gather_into_tensor(draws: Draws, dtype: Any, run: Callable) -> Outputs:
    mine = draws.tensor(draws.elements() or 1, dtype)
    output = torch.empty(draws.size * mine.numel(), dtype=dtype)
    run(dist.all_gather_into_tensor, output, mine)
    return [output]


def all_gather_in_place(draws: Draws, dtype: Any, run: Callable) -> Outputs:
    mine = draws.tensor(draws.elements() or 1, dtype)
    output = torch.zeros(draws.size * mine.numel(), dtype=dtype)
    part = output.chunk(draws.size)[draws.rank]
    part.copy_(mine)
    run(dist.all_gather_into_tensor, output, part)
    return [output]


def reduce_scatter(draws: Draws, dtype: Any, run: Callable) -> Outputs:
    count = draws.elements() or 1
    inputs = [draws.tensor(count, dtype) for _ in range(draws.size)]
    output = torch.empty(count, dtype=dtype)
    run(dist.reduce_scatter, output, inputs, _op(draws, dtype))
    return [output]


def reduce_scatter_tensor(draws: Draws, dtype: Any, run: Callable) -> Outputs:
    count = draws.elements() or 1
    mine, output = draws.tensor(count * draws.size, dtype), torch.empty(count, dtype=dtype)
    run(dist.reduce_scatter_tensor, output, mine, _op(draws, dtype))
    return [output, mine]


def all_to_all_single(draws: Draws, dtype: Any, run: Callable) -> Outputs:
    splits, width = draws.splits(), draws.one_of((1, 3))
    sends, receives = splits[draws.rank], [row[draws.rank] for row in splits]
    mine = draws.tensor(sum(sends) * width, dtype).reshape(-1, width)
    output = torch.empty(sum(receives), width, dtype=dtype)
    run(dist.all_to_all_single, output, mine, receives, sends)
    return [output]


def all_to_all_even(draws: Draws, dtype: Any, run: Callable) -> Outputs:
    mine = draws.tensor(draws.size * draws.one_of((1, 5, 3000)), dtype)
    output = torch.empty_like(mine)
    run(dist.all_to_all_single, output, mine)
    return [output]


def gather(draws: Draws, dtype: Any, run: Callable) -> Outputs:
    mine, root = draws.tensor(draws.elements() or 1, dtype), draws.below(draws.size)
    outputs = [torch.empty_like(mine) for _ in range(draws.size)] if draws.rank == root else None
    run(dist.gather, mine, outputs, root)
    return outputs or []


def scatter(draws: Draws, dtype: Any, run: Callable) -> Outputs:
    count, root = draws.elements() or 1, draws.below(draws.size)
    output = torch.empty(count, dtype=dtype)
    inputs = [draws.tensor(count, dtype) for _ in range(draws.size)] if draws.rank == root else None
    run(dist.scatter, output, inputs, root)
    return [output]


KINDS = (
    broadcast,
    all_reduce,
    all_reduce_coalesced,
    reduce,
    all_gather,
    all_gather_slices,
    all_gather_into_tensor,
    all_gather_in_place,
    reduce_scatter,
    reduce_scatter_tensor,
    all_to_all_single,
    all_to_all_even,
    gather,
    scatter,
)


def _op(draws: Draws, dtype: Any) -> Any:
    return draws.one_of(OPS if dtype in FLOATS else OPS + BITWISE)


def _blocking(group: Any) -> Callable:
    return lambda function, *arguments: function(*arguments, group=group)


def _asynchronous(group: Any) -> Callable:
    return lambda function, *arguments: function(*arguments, group=group, async_op=True).wait()


@pytest.mark.parametrize("seed", range(4))
def test_random_calls(group: Any, gloo: Any, seed: int) -> None:
    choices = Draws(seed, 0, group.size())
    for number in range(CALLS):
        kind = choices.one_of(KINDS)
        dtype = choices.one_of(FLOATS + INTEGERS)
        form = choices.one_of((_blocking, _asynchronous))
        both = []
        for by in (group, gloo):
            draws = Draws(100 * seed + number, group.rank(), group.size())
            both.append(kind(draws, dtype, form(by)))
        for ours, theirs in zip(*both, strict=True):
            assert torch.equal(ours, theirs), (seed, number, kind.__name__, dtype, form.__name__, ours, theirs)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, torch.uint16, torch.complex64, torch.bool])
def test_sums_of_every_type(group: Any, dtype: Any) -> None:
    size = group.size()
    if dtype is torch.bool:
        mine = torch.tensor([False, group.rank() == 0, True])
        expected = torch.tensor([False, True, True])
    else:
        mine = torch.full((3,), group.rank() + 1).to(dtype)
        expected = torch.full((3,), size * (size + 1) // 2).to(dtype)
    dist.all_reduce(mine)
    assert torch.equal(mine, expected)


@pytest.mark.parametrize("dtype", FLOATS)
def test_averages_are_averages(group: Any, dtype: Any) -> None:
    """gloo refuses AVG in all_reduce, and reduce_scatter by it is a sum there."""
    rank, size = group.rank(), group.size()
    expected = torch.full((4,), (size + 1) / 2).to(dtype)
    reduced = torch.full((4,), rank + 1).to(dtype)
    dist.all_reduce(reduced, R.AVG)
    scattered, mine = torch.empty(4, dtype=dtype), torch.full((4 * size,), rank + 1).to(dtype)
    dist.reduce_scatter_tensor(scattered, mine, R.AVG, async_op=True).wait()
    rooted = torch.full((4,), rank + 1).to(dtype)
    dist.reduce(rooted, 0, R.AVG)
    assert torch.equal(reduced, expected)
    assert torch.equal(scattered, expected)
    assert torch.equal(mine, torch.full((4 * size,), rank + 1).to(dtype))
    assert rank != 0 or torch.equal(rooted, expected)


def test_premultiplied_sums(group: Any) -> None:
    size = group.size()
    op = dist._make_nccl_premul_sum(0.5)
    reduced = torch.full((4,), 2.0)
    dist.all_reduce(reduced, op)
    mine, scattered = torch.full((size,), 2.0), torch.empty(1)
    dist.reduce_scatter_tensor(scattered, mine, op)
    assert torch.equal(reduced, torch.full((4,), float(size)))
    assert torch.equal(scattered, torch.full((1,), float(size)))
    assert torch.equal(mine, torch.full((size,), 2.0))


def test_lists_may_be_uneven(group: Any) -> None:
    rank, size = group.rank(), group.size()
    outputs = [torch.empty(i + 1) for i in range(size)]
    dist.all_gather(outputs, torch.full((rank + 1,), float(rank)))
    assert all(torch.equal(output, torch.full((i + 1,), float(i))) for i, output in enumerate(outputs))
    output = torch.empty(rank + 1)
    dist.reduce_scatter(output, [torch.full((i + 1,), float(i)) for i in range(size)])
    assert torch.equal(output, torch.full((rank + 1,), float(rank * size)))
    received = [torch.empty(rank + 1) for _ in range(size)]
    dist.all_to_all(received, [torch.full((i + 1,), float(rank)) for i in range(size)])
    assert all(torch.equal(each, torch.full((rank + 1,), float(i))) for i, each in enumerate(received))


def test_channels_last_is_reduced_in_place(group: Any) -> None:
    mine = torch.arange(24.0).reshape(1, 2, 3, 4).to(memory_format=torch.channels_last)
    expected = mine * group.size()
    dist.all_reduce(mine)
    assert torch.equal(mine, expected)


def test_objects(group: Any) -> None:
    rank, size = group.rank(), group.size()
    everyone: list[Any] = [None] * size
    dist.all_gather_object(everyone, {"rank": rank, "text": "x" * rank})
    assert everyone == [{"rank": i, "text": "x" * i} for i in range(size)]
    shared = [["from the last rank"] if rank == size - 1 else None]
    dist.broadcast_object_list(shared, src=size - 1)
    assert shared == [["from the last rank"]]


def test_the_coalescing_manager(group: Any) -> None:
    from torch.distributed.distributed_c10d import _coalescing_manager

    rank, size = group.rank(), group.size()
    tensors = [torch.full((n,), float(rank)) for n in (1, 5, 1000)]
    with _coalescing_manager(async_ops=True) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor)
    manager.wait()
    assert all(torch.equal(each, torch.full_like(each, sum(range(size)))) for each in tensors)
    outputs = [torch.empty(size * n) for n in (1, 5)]
    with _coalescing_manager():
        for output, n in zip(outputs, (1, 5)):
            dist.all_gather_into_tensor(output, torch.full((n,), float(rank)))
    assert torch.equal(outputs[1].reshape(size, 5)[:, 0], torch.arange(float(size)))
    scattered = [torch.empty(n) for n in (1, 5)]
    with _coalescing_manager():
        for output in scattered:
            dist.reduce_scatter_tensor(output, torch.full((size * output.numel(),), float(rank)))
    assert all(torch.equal(each, torch.full_like(each, sum(range(size)))) for each in scattered)
    device = torch.device("cpu")
    other = torch.full((3,), float(rank))
    with _coalescing_manager(device=device, async_ops=True) as manager:
        dist.broadcast(other, size - 1)
    manager.wait()
    assert torch.equal(other, torch.full((3,), float(size - 1)))
