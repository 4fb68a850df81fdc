"""Messages between two ranks: MPI's own, on the communicator of the group."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from penstock.error import Error
from penstock.native import errors_of_mpi
from penstock.torch.work import Work

_SPINS = 200

#: Messages that did not come in time: MPI may still write into their tensors.
_abandoned: list[Message] = []


class Message:
    """A request of MPI, with the interface of other operations in flight."""

    def __init__(
        self,
        request: Any,
        tensor: Any,
        what: str,
        expected_bytes: int | None,
        timeout_s: float,
        meanwhile: Callable[[], None],
    ) -> None:
        from mpi4py import MPI

        self._request = request
        self._tensor = tensor
        self._what = what
        self._expected_bytes = expected_bytes  # of one that receives
        self._timeout_s = timeout_s
        self._meanwhile = meanwhile
        self.status: Any = MPI.Status()

    def test(self) -> bool:
        with errors_of_mpi(self._what):
            if not self._request.Test(self.status):
                return False
        if self._expected_bytes is not None and self.status.Get_count() != self._expected_bytes:
            raise Error(
                f"{self._what}: {self.status.Get_count()} bytes came, and the tensor has {self._expected_bytes}; "
                "send and receive tensors of one shape and type",
                "mismatch",
            )
        return True

    def wait(self) -> None:
        """MPI's own wait would neither end in time nor let this rank's collectives make progress."""
        for _ in range(_SPINS):
            if self.test():
                return
            time.sleep(0)
        deadline, pause = time.monotonic() + self._timeout_s, 0.0
        while not self.test():
            self._meanwhile()
            if time.monotonic() > deadline:
                _abandoned.append(self)
                raise Error(f"{self._what} did not complete within {self._timeout_s:g} s", "timed_out")
            time.sleep(pause)
            pause = min(pause + 20e-6, 5e-4)


class MessageWork(Work):
    """A work that also names the rank that sent the message."""

    def __init__(self, message: Message, tensor: Any, what: str) -> None:
        super().__init__(message, [tensor], name=what)
        self._status = message.status

    def source_rank(self) -> int:
        """The rank, in the group, whose message this one has received."""
        self.wait()
        return int(self._status.Get_source())

    _source_rank = source_rank
