"""Messages between two ranks: MPI's own on the communicator of the group, or those of UCX."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from penstock import _penstock
from penstock.error import Error
from penstock.torch.work import Work

_SPINS = 200

#: Messages that did not come in time: MPI or UCX may still write into their tensors.
_abandoned: list[Message] = []


class Request(Protocol):
    """A message in flight, of MPI or UCX."""

    def test(self) -> bool: ...

    #: Of a complete message.
    @property
    def source(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...


class Transport(Protocol):
    """The messages of one group."""

    def send(self, memory: Any, peer: int, tag: int) -> Request: ...
    def receive(self, memory: Any, peer: int | None, tag: int) -> Request:
        """`peer`: None for any rank."""
        ...

    def free(self) -> None:
        """Collective."""


class _MpiRequest:
    def __init__(self, request: Any) -> None:
        from mpi4py import MPI

        self._request = request
        self._status: Any = MPI.Status()

    def test(self) -> bool:
        from penstock.native import errors_of_mpi  # importing it initializes MPI

        with errors_of_mpi("MPI_Test"):
            return bool(self._request.Test(self._status))

    @property
    def source(self) -> int:
        return int(self._status.Get_source())

    @property
    def size_bytes(self) -> int:
        return int(self._status.Get_count())


class MpiMessages:
    """Those of a communicator of mpi4py, which it owns."""

    def __init__(self, comm: Any) -> None:
        self._comm = comm

    def send(self, memory: Any, peer: int, tag: int) -> _MpiRequest:
        from mpi4py import MPI

        return _MpiRequest(self._comm.Isend([memory, MPI.BYTE], peer, tag))

    def receive(self, memory: Any, peer: int | None, tag: int) -> _MpiRequest:
        from mpi4py import MPI

        return _MpiRequest(self._comm.Irecv([memory, MPI.BYTE], MPI.ANY_SOURCE if peer is None else peer, tag))

    def free(self) -> None:
        self._comm.Free()


class UcxMessages:
    """Those of a group over UCX."""

    def __init__(self, messages: _penstock.UcxMessages) -> None:
        self._messages: _penstock.UcxMessages | None = messages

    def send(self, memory: Any, peer: int, tag: int) -> Request:
        return self._open.send(memory, peer, tag)

    def receive(self, memory: Any, peer: int | None, tag: int) -> Request:
        return self._open.receive(memory, -1 if peer is None else peer, tag)

    def free(self) -> None:
        self._messages = None

    @property
    def _open(self) -> _penstock.UcxMessages:
        if self._messages is None:
            raise Error("this process group has been destroyed")
        return self._messages


class Message:
    """A message with the interface of other operations in flight."""

    def __init__(
        self,
        request: Request,
        tensor: Any,
        what: str,
        expected_bytes: int | None,
        timeout_s: float,
        meanwhile: Callable[[], None],
    ) -> None:
        self.request = request
        self._tensor = tensor
        self._what = what
        self._expected_bytes = expected_bytes  # of one that receives
        self._timeout_s = timeout_s
        self._meanwhile = meanwhile

    def test(self) -> bool:
        try:
            if not self.request.test():
                return False
        except Error as error:
            raise Error(f"{self._what}: {error.message}", error.code, error.rank, error.cause) from error
        if self._expected_bytes is not None and self.request.size_bytes != self._expected_bytes:
            raise Error(
                f"{self._what}: {self.request.size_bytes} bytes came, and the tensor has {self._expected_bytes}; "
                "send and receive tensors of one shape and type",
                "mismatch",
            )
        return True

    def wait(self) -> None:
        """The library's own wait would neither end in time nor let this rank's collectives make progress."""
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
        self._request = message.request

    def source_rank(self) -> int:
        """The rank, in the group, whose message this one has received."""
        self.wait()
        return self._request.source

    _source_rank = source_rank
