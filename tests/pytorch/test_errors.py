"""Wrong calls: what each rank hears, and that the group works afterwards."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402
from penstock import Error  # noqa: E402


def expect(group: Any, function: Callable[[], Any], codes: set[str], match: str) -> Error:
    """All ranks call it, all get one of these codes, and the next collective works."""
    with pytest.raises(Error, match=match) as caught:
        function()
    assert caught.value.code in codes, caught.value
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    assert tensor.item() == group.size()
    return caught.value


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "strided": (lambda: dist.all_reduce(torch.ones(4, 4)[:, 0]), r"not contiguous.*\.contiguous\(\)"),
    "transposed": (lambda: dist.broadcast(torch.ones(2, 3).t(), 0), "not contiguous"),
    "elsewhere": (lambda: dist.all_reduce(torch.ones(4, device="meta")), 'is on device "meta"'),
    "product_of_sparse": (
        lambda: dist.all_reduce(torch.ones(4).to_sparse(), dist.ReduceOp.PRODUCT),
        "PRODUCT.*of sparse tensors is not defined",
    ),
    "sparse": (lambda: dist.broadcast(torch.ones(4).to_sparse(), 0), "expected a dense tensor"),
    "no_arithmetic": (
        lambda: dist.all_reduce(torch.zeros(4, dtype=torch.float8_e4m3fn)),
        "no arithmetic for torch.float8_e4m3fn; reduce in one of float32",
    ),
    "average_of_integers": (lambda: dist.all_reduce(torch.ones(4, dtype=torch.int32), dist.ReduceOp.AVG), "AVG of"),
    "bits_of_floats": (lambda: dist.all_reduce(torch.ones(4), dist.ReduceOp.BAND), "band"),
    "uneven_rows": (
        lambda: dist.all_to_all_single(
            torch.ones(2 * dist.get_world_size() + 1), torch.ones(2 * dist.get_world_size() + 1)
        ),
        "cannot be divided evenly|input_split_sizes",
    ),
    "wrong_splits": (
        lambda: dist.group.WORLD.all_to_all_single(torch.ones(4), torch.ones(4), [1] * dist.get_world_size(), [9]),
        "split_sizes",
    ),
    "short_output": (
        lambda: dist.group.WORLD.all_gather_single(torch.ones(3 * dist.get_world_size() + 1), torch.ones(3)),
        "output has .* elements; expected",
    ),
    "two_types": (
        lambda: dist.group.WORLD.all_gather_single(torch.ones(dist.get_world_size(), dtype=torch.int32), torch.ones(1)),
        "expected the same type",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_on_all_ranks(group: Any, what: str) -> None:
    if what == "uneven_rows" and group.size() == 1:
        pytest.skip("one rank divides everything")
    function, match = WRONG[what]
    expect(group, function, {"invalid_argument", "peer_failed"}, match)


@pytest.mark.parametrize("is_async", [False, True])
def test_wrong_on_one_rank_is_told_to_all(group: Any, is_async: bool) -> None:
    last = group.size() - 1
    tensor = torch.ones(4, 4)[:, 0] if group.rank() == last else torch.ones(4)

    def call() -> None:
        work = dist.all_reduce(tensor, async_op=is_async)
        if is_async:
            work.wait()

    error = expect(group, call, {"invalid_argument", "peer_failed"}, "not contiguous")
    assert group.rank() == last or (error.code, error.rank) == ("peer_failed", last)


def test_another_shape_on_one_rank(group: Any) -> None:
    if group.size() == 1:
        pytest.skip("one rank cannot differ")
    tensor = torch.ones(5 if group.rank() == 0 else 4)
    expect(group, lambda: dist.all_reduce(tensor), {"mismatch", "peer_failed"}, "allreduce")


def test_another_type_on_one_rank(group: Any) -> None:
    if group.size() == 1:
        pytest.skip("one rank cannot differ")
    tensor = torch.ones(4, dtype=torch.int32 if group.rank() == 0 else torch.float32)
    expect(group, lambda: dist.all_reduce(tensor), {"mismatch", "peer_failed"}, "allreduce")


def test_another_collective_on_one_rank(group: Any) -> None:
    if group.size() == 1:
        pytest.skip("one rank cannot differ")
    tensor = torch.ones(4)
    function = dist.barrier if group.rank() == 0 else lambda: dist.all_reduce(tensor)
    expect(group, function, {"mismatch", "peer_failed"}, "")


def test_a_wrong_list_fails_all_of_its_operations(group: Any) -> None:
    tensors = [torch.ones(3), torch.ones(4, 4)[:, 0] if group.rank() == 0 else torch.ones(4), torch.ones(2)]
    expect(
        group,
        lambda: group.allreduce_coalesced(tensors, dist.AllreduceCoalescedOptions()).wait(),
        {"invalid_argument", "peer_failed"},
        "not contiguous",
    )


def test_futures_carry_failures(group: Any) -> None:
    if group.size() == 1:
        pytest.skip("one rank cannot differ")
    tensor = torch.ones(5 if group.rank() == 0 else 4)
    future = dist.all_reduce(tensor, async_op=True).get_future()
    with pytest.raises(RuntimeError, match="allreduce"):
        future.wait()
    check = torch.ones(1)
    dist.all_reduce(check)
    assert check.item() == group.size()


@pytest.mark.parametrize("is_async", [False, True])
def test_a_timeout_names_the_rank_that_is_missing(group: Any, gloo: Any, is_async: bool) -> None:
    if group.size() == 1:
        pytest.skip("nobody is missing on one rank")
    missing = group.size() - 1
    sub = dist.new_group(timeout=timedelta(seconds=1))
    tensor = torch.ones(1000)

    def call() -> None:
        work = dist.all_reduce(tensor, group=sub, async_op=is_async)
        if is_async:
            work.wait()

    if group.rank() == missing:
        dist.barrier(gloo)
        with contextlib.suppress(Error):  # it may find all that it needs
            call()
    else:
        with pytest.raises(Error, match="timed out") as caught:
            call()
        assert f"rank {missing} of the group did not call it within the timeout of 1 s" in str(caught.value), (
            caught.value
        )
        dist.barrier(gloo)
    sub.set_timeout(timedelta(minutes=5))
    check = torch.ones(1)
    dist.all_reduce(check, group=sub)
    assert check.item() == group.size()
    dist.destroy_process_group(sub)


def test_a_monitored_barrier(group: Any, gloo: Any) -> None:
    group.monitored_barrier(timedelta(minutes=1))
    dist.monitored_barrier(timeout=timedelta(minutes=1), wait_all_ranks=True)
    dist.monitored_barrier(gloo)
    if group.size() == 1:
        return
    late = group.size() - 1
    if group.rank() == late:
        dist.barrier(gloo)
        with contextlib.suppress(Error):
            group.monitored_barrier()
    else:
        with pytest.raises(Error, match=f"Rank {group.rank()} .*Rank {late} failed to pass monitoredBarrier"):
            dist.monitored_barrier(timeout=timedelta(seconds=0.5))
        dist.barrier(gloo)
    dist.barrier()


def test_a_message_that_does_not_come_times_out(group: Any) -> None:
    if group.size() == 1:
        pytest.skip("a message needs two ranks")
    sub = dist.new_group(timeout=timedelta(seconds=0.3))
    if group.rank() == 0:
        with pytest.raises(RuntimeError, match=r"recv from rank 1 .*did not complete within 0\.3 s"):
            dist.recv(torch.empty(1), 1, group=sub, tag=3)
    dist.barrier()
    if group.rank() == 1:  # so that the receive is matched before its communicator goes
        dist.send(torch.empty(1), 0, group=sub, tag=3)
    dist.barrier()
    sub.set_timeout(timedelta(minutes=5))
    dist.destroy_process_group(sub)
