"""Saves that return before everything is copied, and tensors of CUDA devices, by stand-ins for torch.cuda."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import penstock as ps
import pytest


@pytest.fixture
def alone(tmp_path):
    from mpi4py import MPI

    with ps.Checkpointer(f"file://{tmp_path}/slow", comm=MPI.COMM_SELF) as opened:
        yield opened


def trained() -> tuple[Any, Any]:
    """A model with running averages and frozen parameters, after a step."""
    import torch

    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(300, 500), torch.nn.BatchNorm1d(500), torch.nn.Linear(500, 300))
    model[2].requires_grad_(False)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.1)
    step(model, optimizer)
    return model, optimizer


def step(model: Any, optimizer: Any) -> None:
    import torch

    loss = model(torch.randn(8, 300)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def copied(state: Any) -> Any:
    import torch

    if isinstance(state, dict):
        return {key: copied(value) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return type(state)(copied(value) for value in state)
    return state.detach().clone() if isinstance(state, torch.Tensor) else state


def equal(a: Any, b: Any) -> bool:
    import torch

    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(equal, a, b))
    return bool(torch.equal(a, b)) if isinstance(a, torch.Tensor) else bool(a == b)


def test_what_training_changes_after_a_save_is_not_in_it(alone, monkeypatch):
    model, optimizer = trained()
    expected = {}
    waited: list[Any] = []
    wait = ps.CheckpointHandle.wait

    def recorded(handle: Any, level: str = "drained") -> None:
        waited.append((level, equal(model.state_dict()["0.weight"], expected[handle.step]["model"]["0.weight"])))
        wait(handle, level)

    monkeypatch.setattr(ps.CheckpointHandle, "wait", recorded)
    for number in range(1, 6):
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        expected[number] = copied(state)
        handle = alone.save(number, state, until=optimizer)
        step(model, optimizer)  # the forward pass changes the running averages, the step all others
        assert handle.level != "copying", "the step did not wait"
        assert waited == [("staged", True)], "each step waits once, before it changes anything"
        waited.clear()
        step(model, optimizer)
        assert waited == []
    alone.finish()
    like = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    for number, state in expected.items():
        assert equal(alone.restore(step=number, like=like)[1], state), number


def test_only_what_steps_change_is_copied_later(alone):
    from penstock.checkpoint_tree import Shares, encode
    from penstock.checkpoint_until import Until

    model, optimizer = trained()
    arrays: list[Any] = []
    encode(
        {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "x": np.ones(9)}, "", arrays, Shares(0, 1)
    )
    later = {arrays[place][0] for place in Until(optimizer).later(arrays, None)}
    of_optimizer = {
        f"optimizer/state/{number}/{key}" for number in range(4) for key in ("exp_avg", "exp_avg_sq", "step")
    }
    assert later == {"model/0.weight", "model/0.bias", "model/1.weight", "model/1.bias"} | of_optimizer
    everything = {name for name, *_ in arrays}
    assert {arrays[place][0] for place in Until("wait").later(arrays, None)} == everything
    assert {"model/1.running_mean", "model/2.weight", "x"} <= everything - later
    assert Until(None).later(arrays, None) == []


def test_the_program_waits_by_itself(alone):
    array = np.arange(3_000_000.0)
    handle = alone.save(1, {"a": array}, until="wait")
    handle.wait("staged")
    assert handle.level != "copying"
    array[:] = 0
    alone.finish()
    assert (alone.restore()[1]["a"] == np.arange(3_000_000.0)).all()
    # The memory stays until it is copied, although nobody else holds it.
    for number in range(2, 12):
        alone.save(number, {"a": np.full(300_000, number)}, until="wait")
    alone.finish()
    for number in range(2, 12):
        assert (alone.restore(step=number)[1]["a"] == number).all()


def test_until_is_checked_before_anything_is_saved(alone):
    import torch

    for wrong, text in (
        ("later", "until is 'later'; expected an optimizer, several of them, or 'wait'"),
        (3, "until has a int; expected a torch.optim.Optimizer"),
        ([torch.nn.Linear(1, 1)], "until has a Linear; expected a torch.optim.Optimizer"),
    ):
        with pytest.raises(ps.Error, match=text):
            alone.save(1, {"a": np.ones(3)}, until=wrong)
    assert alone.steps() == []


def test_dtensors_of_an_optimizer_are_copied_later(checkpoints, group):
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(1)
    model = fully_shard(torch.nn.Linear(40, 60), mesh=init_device_mesh("cpu", (group.size(),)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)

    def train() -> None:
        loss = model(torch.ones(4, 40)).square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    train()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    expected = {name: tensor.full_tensor().clone() for name, tensor in state["model"].items()}
    checkpoints.save(1, state, until=[optimizer])
    train()
    checkpoints.finish()
    found = checkpoints.restore(like=state)[1]["model"]
    for name, tensor in expected.items():
        assert torch.equal(found[name].full_tensor(), tensor), name


class FakeCuda:
    """Stand-ins for what is used of torch.cuda: copies to pinned memory are made when their stream is waited for."""

    def __init__(self, monkeypatch: Any) -> None:
        import torch
        from penstock import checkpoint_cuda

        self.devices: set[int] = set()  #: addresses of the tensors that count as a device's
        self.pinned: list[Any] = []
        self.log: list[str] = []
        self.started: list[Any] = []
        empty = torch.empty
        fake = self

        class Pinned(torch.Tensor):
            def copy_(self, source: Any, non_blocking: bool = False) -> Any:
                assert non_blocking
                fake.log.append("copy")
                fake.started.append(lambda: torch.Tensor.copy_(self.as_subclass(torch.Tensor), source))
                return self

        class Stream:
            def __init__(self, device: Any) -> None:
                fake.log.append("stream")

            def wait_stream(self, stream: Any) -> None:
                assert stream == "current"
                fake.log.append("after the current stream")

            def synchronize(self) -> None:
                fake.log.append("synchronize")
                while fake.started:
                    fake.started.pop()()

        def make(*shape: Any, pin_memory: bool = False, **options: Any) -> Any:
            made = empty(*shape, **options)
            if not pin_memory:
                return made
            made.view(torch.uint8).fill_(0xEE) if made.dim() else None
            fake.pinned.append(made)
            return made.as_subclass(Pinned)

        monkeypatch.setattr(checkpoint_cuda, "is_on_device", lambda tensor: tensor.data_ptr() in self.devices)
        monkeypatch.setattr(torch, "empty", make)
        monkeypatch.setattr(torch.cuda, "Stream", Stream)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device: "current")
        monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())

    def tensor(self, values: Any) -> Any:
        self.devices.add(values.data_ptr())
        return values


def test_tensors_of_devices_go_through_pinned_memory_on_a_stream(alone, monkeypatch):
    import torch

    cuda = FakeCuda(monkeypatch)
    tensors = {
        "a": cuda.tensor(torch.arange(50_000.0)),
        "b": cuda.tensor(torch.arange(50_000.0) * 2),
        "half": cuda.tensor(torch.arange(100).to(torch.bfloat16)),
        "host": torch.arange(10.0),
    }
    for number in range(1, 4):
        expected = copied(tensors)
        handle = alone.save(number, tensors, until="wait" if number == 3 else None)
        assert not cuda.started, "save returned before the copies from the device were complete"
        handle.wait("staged")
        for tensor in tensors.values():
            tensor += 1
        alone.finish()
        found = alone.restore(step=number, like=expected)[1]
        assert equal(found, expected), number
    assert len(cuda.pinned) == 3, "pinned memory is used again"
    assert cuda.log[:8] == ["stream", *["after the current stream", "copy"] * 3, "synchronize"]
    assert cuda.log[8:15] == [*["after the current stream", "copy"] * 3, "synchronize"]


class OnDevice:
    """An array of a library such as CuPy."""

    def __init__(self, values: Any) -> None:
        self.values = values

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0  # CUDA

    def __dlpack__(self, **_: Any) -> Any:
        return self.values.__dlpack__()


def test_arrays_of_other_libraries_on_a_device_are_taken_as_tensors(alone, monkeypatch):
    import torch
    from penstock import checkpoint_torch

    cuda = FakeCuda(monkeypatch)
    values = torch.arange(1000.0)
    monkeypatch.setattr(checkpoint_torch, "from_device", lambda node: cuda.tensor(node.values))
    alone.save(1, {"a": OnDevice(values)}).wait()
    assert len(cuda.pinned) == 1
    assert (alone.restore()[1]["a"] == values.numpy()).all()
