"""Saves that return before everything is copied: which arrays may wait, and who waits for them."""

from __future__ import annotations

import bisect
import sys
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from penstock.error import Error

if TYPE_CHECKING:
    from penstock.checkpoint import CheckpointHandle
    from penstock.checkpoint_cuda import DeviceCopies
    from penstock.checkpoint_tree import Saved


class Until:
    """What ``Checkpointer.save(until=)`` was given."""

    def __init__(self, given: Any) -> None:
        #: All arrays may wait, and the program calls ``wait``.
        self.program_waits: bool = isinstance(given, str)
        self.optimizers: list[Any] = []
        if given is None:
            return
        if isinstance(given, str):
            if given != "wait":
                raise Error(f"until is {given!r}; expected an optimizer, several of them, or 'wait'")
            return
        self.optimizers = list(given) if isinstance(given, Iterable) else [given]
        for one in self.optimizers:
            if not hasattr(one, "register_step_pre_hook") or not hasattr(one, "param_groups"):
                raise Error(
                    f"until has a {type(one).__name__}; expected a torch.optim.Optimizer, several of them, or 'wait'"
                )

    def later(self, arrays: list[Saved], device_copies: DeviceCopies | None) -> list[int]:
        """The arrays that may wait, by their places: those in memory that only a step of the optimizers changes.

        Others, such as the running averages of a normalization, may change in the next forward pass. What has come from a
        device does not wait: the next save uses its memory again.
        """
        places = [place for place, array in enumerate(arrays) if array[3] is not None and array[3].nbytes > 0]
        if self.program_waits:
            copied = [] if device_copies is None else sorted(device_copies.ranges())
            return [place for place in places if not _within(arrays[place], copied)] if copied else places
        if not self.optimizers:
            return []
        from penstock.checkpoint_torch import memory_of

        ranges = sorted(memory_of(self.optimizers))
        return [place for place in places if _within(arrays[place], ranges)]


def _within(array: Saved, ranges: list[tuple[int, int]]) -> bool:
    """Whether its memory is in one of the ranges, which are sorted."""
    memory = array[3]
    assert memory is not None
    begin = memory.__array_interface__["data"][0]
    owner = bisect.bisect_right(ranges, (begin, sys.maxsize)) - 1
    return owner >= 0 and begin + memory.nbytes <= ranges[owner][1]


class Steps:
    """The steps of optimizers wait for what is being copied of their tensors."""

    def __init__(self) -> None:
        self._pending: weakref.WeakKeyDictionary[Any, list[CheckpointHandle]] = weakref.WeakKeyDictionary()

    def wait_for(self, handle: CheckpointHandle, optimizers: list[Any]) -> None:
        for optimizer in optimizers:
            pending = self._pending.get(optimizer)
            if pending is None:
                pending = self._pending[optimizer] = []
                optimizer.register_step_pre_hook(_waiting(pending))
            pending.append(handle)


def _waiting(pending: list[CheckpointHandle]) -> Any:
    def wait(*_: object) -> None:
        while pending:
            pending[0].wait("staged")
            del pending[0]

    return wait
