"""Native collectives: MPI runs operations that have no plan, once all ranks are known to run them."""

from __future__ import annotations

import collections
import contextlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from penstock import mpi_abi
from penstock.error import Error

if TYPE_CHECKING:
    from mpi4py import MPI
else:
    MPI = mpi_abi.import_mpi()


@contextlib.contextmanager
def errors_of_mpi(doing: str) -> Iterator[None]:
    """Re-raises MPI.Exception as penstock.Error."""
    try:
        yield
    except MPI.Exception as error:
        raise Error(f"{doing} failed", "mpi", -1, str(error)) from error


class Start:
    """Starts a collective of MPI on a communicator, and keeps MPI's request or the failure."""

    def __init__(self, comm: Any, name: str, arguments: tuple[Any, ...]) -> None:
        self._comm = comm
        self.name = name
        self._arguments = arguments
        self.request: Any = None
        self.failure: Exception | None = None

    def __call__(self) -> int:
        """Start it. Returns the address of MPI's request, or 0 if it failed."""
        try:
            with errors_of_mpi(self.name):
                self.request = getattr(self._comm, self.name)(*self._arguments)
        except Exception as error:
            self.failure = error
            return 0
        return int(MPI._addressof(self.request))


class RunInCalls:
    """A collective of MPI that Penstock starts and tests in every call of this rank that waits or tests."""

    def __init__(self, natives: Natives, start: Start, pending: Any) -> None:
        self._natives = natives
        self._start = start
        self._pending = pending

    def wait(self) -> None:
        try:
            self._pending.wait()
        finally:
            self._natives.forget(self._start)
        self._deliver()

    def test(self) -> bool:
        try:
            if not self._pending.test():
                return False
        except Error:
            self._natives.forget(self._start)
            raise
        self._natives.forget(self._start)
        self._deliver()
        return True

    def __del__(self) -> None:
        del self._pending  # waits
        self._natives.forget(self._start)

    def _deliver(self) -> None:
        if self._start.failure is not None:
            raise self._start.failure


class RunOnThread:
    """A collective of MPI that a thread starts."""

    def __init__(self, natives: Natives, guard: Any, start: Start) -> None:
        self._natives = natives
        self._guard = guard
        self._start = start
        self.is_decided: threading.Event = threading.Event()  #: Set when the collective has started or failed.

    def wait(self) -> None:
        self._natives.decide(self)
        self._deliver()
        with errors_of_mpi(self._start.name):
            self._start.request.Wait()
        self._natives.forget(self._start)

    def test(self) -> bool:
        if not self._natives.has_decided(self):
            return False
        self._deliver()
        with errors_of_mpi(self._start.name):
            if not self._start.request.Test():
                return False
        self._natives.forget(self._start)
        return True

    def can_start(self) -> bool:
        try:
            return bool(self._guard.test())
        except Error as error:
            self._start.failure = error
            return True

    def start(self) -> None:
        """Start the collective once all ranks have called it, or record the failure."""
        try:
            if self._start.failure is None:
                self._guard.wait()
                self._start()
        except Exception as error:
            self._start.failure = error
        self.is_decided.set()

    def _deliver(self) -> None:
        if self._start.failure is not None:
            self._natives.forget(self._start)
            raise self._start.failure


class Natives:
    """The native collectives of one communicator, on a duplicate of their own.

    A native collective cannot be cancelled. So each waits for its guard first: an operation of Penstock that fails if
    the ranks do not all run it natively. Collectives start in the order of the calls, on every rank. They start on a
    thread of their own, independent of what this rank does before it waits. If MPI allows only the calling thread, they
    start inside any call of Penstock that waits or tests.
    """

    def __init__(self, comm: Any, any_thread: bool) -> None:
        handler = comm.Get_errhandler()
        comm.Set_errhandler(MPI.ERRORS_RETURN)  # the duplicate inherits it
        try:
            with errors_of_mpi("MPI_Comm_dup"):
                self._comm = comm.Dup()
        finally:
            comm.Set_errhandler(handler)
            handler.Free()
        self._any_thread = any_thread
        self._test_request = mpi_abi.entry_point(MPI, "penstock_test_request_at_address")
        self._lock = threading.Lock()
        self._waiting: collections.deque[RunOnThread] = collections.deque()
        self._thread: threading.Thread | None = None  #: Starts waiting collectives while it lives.
        self._incomplete: set[Start] = set()
        self._is_freed = False

    def start(self, core: Any, kind: str, arguments: tuple[Any, ...], *, waits: bool) -> RunOnThread | RunInCalls:
        """`waits`: the caller waits at once, so no thread is needed."""
        start = Start(self._comm, "I" + kind, arguments)
        if not self._any_thread:
            pending = core.start_native(kind, start, self._test_request)
            self._incomplete.add(start)
            return RunInCalls(self, start, pending)
        run = RunOnThread(self, core.guard(kind), start)
        with self._lock:
            self._waiting.append(run)
            self._incomplete.add(start)
            if not waits and self._thread is None:
                self._thread = threading.Thread(target=self._start_all, name="penstock-native")
                self._thread.start()
        return run

    def forget(self, start: Start) -> None:
        """Drop a collective that is complete or has failed."""
        self._incomplete.discard(start)
        self._free_when_complete()

    def decide(self, run: RunOnThread) -> None:
        """Wait until `run` has started or failed."""
        while self._thread is None and not run.is_decided.is_set():
            self._start_first()
        run.is_decided.wait()

    def has_decided(self, run: RunOnThread) -> bool:
        """Start the collectives up to `run` that can start. Returns whether `run` has started or failed."""
        while self._thread is None and not run.is_decided.is_set() and self._waiting[0].can_start():
            self._start_first()
        return run.is_decided.is_set()

    def _start_first(self) -> None:
        self._waiting[0].start()
        self._waiting.popleft()

    def _start_all(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._thread = None
                    return
            self._start_first()

    def free(self) -> None:
        """Free the duplicate when the last started collective is complete. Waits for no rank."""
        self._is_freed = True
        self._free_when_complete()

    def _free_when_complete(self) -> None:
        # Open MPI crashes in collectives of a communicator that was freed meanwhile, though MPI allows it.
        if self._is_freed and not self._incomplete and self._comm != MPI.COMM_NULL and not MPI.Is_finalized():
            self._comm.Free()
