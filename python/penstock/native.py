"""Collectives for which Penstock has no plan: MPI's own, started only when all ranks are known to run them."""

from __future__ import annotations

import collections
from typing import Any

from penstock import mpi_abi
from penstock.error import Error

MPI = mpi_abi.import_mpi()


class NativeRun:
    """A collective of MPI's own, started when all ranks are known to run it natively."""

    def __init__(self, natives: Natives, guard: Any, name: str, arguments: tuple) -> None:
        self._natives = natives
        self.guard = guard
        self.call = (name, arguments)
        self.request: Any = None
        self.failure: Error | None = None

    def wait(self) -> None:
        self._natives.advance_to(self, blocking=True)
        self._deliver()
        self.request.Wait()

    def test(self) -> bool:
        if not self._natives.advance_to(self, blocking=False):
            return False
        self._deliver()
        return self.request.Test()

    def _deliver(self) -> None:
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure


class Natives:
    """The native collectives of one communicator, on a duplicate of its own.

    Each waits for its guard, an operation of Penstock that fails where the ranks do not agree to run it natively: one
    that has been started natively could not be taken back. They start in the order of the calls, on every rank.
    """

    def __init__(self, comm: Any) -> None:
        self._comm = comm.Dup()
        self._waiting: collections.deque[NativeRun] = collections.deque()

    def start(self, guard: Any, name: str, arguments: tuple) -> NativeRun:
        run = NativeRun(self, guard, name, arguments)
        self._waiting.append(run)
        return run

    def advance_to(self, run: NativeRun, blocking: bool) -> bool:
        """Start what can be started, up to `run`; return whether that is started or has failed."""
        while run.request is None and run.failure is None and self._waiting:
            first = self._waiting[0]
            try:
                if blocking:
                    first.guard.wait()
                elif not first.guard.test():
                    return False
            except Error as error:
                first.failure = error
            else:
                name, arguments = first.call
                first.request = getattr(self._comm, name)(*arguments)
            self._waiting.popleft()
        return True

    def free(self) -> None:
        if not MPI.Is_finalized():
            self._comm.Free()
