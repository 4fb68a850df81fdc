"""What an asynchronous call of torch.distributed returns, and who completes it."""

from __future__ import annotations

import collections
import queue
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Protocol

import torch
from torch.distributed import Work as _TorchWork

from penstock import _penstock
from penstock.error import Error


class Pending(Protocol):
    """An operation in flight, of the extension or of MPI."""

    def wait(self) -> Any: ...
    def test(self) -> bool: ...


class All:
    """Several of them, complete when all are."""

    def __init__(self, pending: Sequence[Pending]) -> None:
        self._pending = list(pending)

    def wait(self) -> None:
        failure: Exception | None = None
        for one in self._pending:
            try:
                one.wait()
            except Exception as error:
                failure = failure or error
        self._pending = []
        if failure is not None:
            raise failure

    def test(self) -> bool:
        while self._pending and self._pending[0].test():
            self._pending.pop(0)
        return not self._pending


class Work(_TorchWork):
    """An operation that has been started. Owns its tensors until it is complete; any thread may wait for it."""

    def __init__(
        self,
        pending: Pending | None,
        result: list[Any],
        finish: Callable[[], None] | None = None,
        owned: Any = None,
        name: str = "",
        group: Any = None,
    ) -> None:
        super().__init__()
        self._pending = pending  # None once complete
        self._result = result
        self._finish = finish
        self._owned = owned
        self._name = name
        self.group: Any = group  # None for a message
        self._lock = threading.Lock()
        self._failure: Exception | None = None
        self._future: Any = None

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Wait until the operation is complete; raise its failure.

        A `timeout` of its own ends only this wait, with Error; the operation continues. The group's timeout ends the
        operation.
        """
        if self._pending is not None:
            if timeout > timedelta(0):
                self._wait_for(timeout.total_seconds())
            else:
                self.complete()
        if self._failure is not None:
            raise self._failure
        return True

    def _wait_for(self, seconds: float) -> None:
        deadline, pause = time.monotonic() + seconds, 0.0
        while not self.is_completed():
            if time.monotonic() > deadline:
                raise Error(f"{self._name} did not complete within {seconds:g} s; it continues", "timed_out")
            time.sleep(pause)
            pause = min(pause + 20e-6, 1e-3)

    def complete(self) -> None:
        """Wait until it is over, and keep its failure for later callers."""
        with self._lock:
            self._complete(lambda pending: pending.wait())

    def _complete(self, advance: Callable[[Pending], Any]) -> None:
        """Complete it once. Needs the lock. `advance` returns False while the operation is not complete."""
        if self._pending is None:
            return
        try:
            if advance(self._pending) is False:
                return
            if self._finish is not None:
                self._finish()
        except Error as error:
            self._failure = error if self.group is None else self.group.explained(error)
        except Exception as error:
            self._failure = error
        self._pending = self._finish = self._owned = None
        if self._future is not None:
            self._resolve()

    def _resolve(self) -> None:
        if self._failure is None:
            self._future.set_result(self._result)
        else:
            self._future.set_exception(self._failure)

    def is_completed(self) -> bool:
        """Make progress; return whether the operation is complete, or has failed."""
        if self._pending is not None and self._lock.acquire(blocking=False):  # else somebody waits, and makes progress
            try:
                self._complete(lambda pending: pending.test())
            finally:
                self._lock.release()
        return self._pending is None

    @property
    def is_over(self) -> bool:
        """Whether it is known to be complete, or to have failed."""
        return self._pending is None

    def is_success(self) -> bool:
        return self.is_completed() and self._failure is None

    def exception(self) -> Exception | None:
        return self._failure

    def synchronize(self) -> None:
        self.wait()

    def result(self) -> list[Any]:
        """Return the tensors that the operation has filled. Waits for it."""
        self.wait()
        return self._result

    def get_future(self) -> Any:
        """Return a future that completes also when nobody waits for this operation."""
        with self._lock:
            if self._future is None:
                self._future = torch.futures.Future()
                if self._pending is None:
                    self._resolve()
                else:
                    completer.add(self)
            return self._future


class Done(_TorchWork):
    """An operation that was complete when its call returned."""

    def __init__(self, result: list[Any]) -> None:
        super().__init__()
        self._result = result

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        return True

    def is_completed(self) -> bool:
        return True

    is_success = is_completed

    def exception(self) -> None:
        return None

    def synchronize(self) -> None:
        pass

    def result(self) -> list[Any]:
        return self._result

    def get_future(self) -> Any:
        future: Any = torch.futures.Future()
        future.set_result(self._result)
        return future


class _Completer:
    """A thread that completes the operations whose futures were asked for, in the order in which they were.

    DDP waits for futures alone, and from C++.
    """

    def __init__(self) -> None:
        self._works: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def add(self, work: Work) -> None:
        with self._lock:
            self._works.put(work)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="penstock-torch", daemon=True)
                self._thread.start()

    def stop(self, patience_s: float) -> None:
        """End the thread when it has done what it was given; a thread that outlives the interpreter ends the process."""
        with self._lock:
            thread, self._thread = self._thread, None
            if thread is not None:
                self._works.put(None)
        if thread is not None:
            thread.join(patience_s)

    def _run(self) -> None:
        _penstock.sleep_in_waits()  # the computation may have this thread's core
        while (work := self._works.get()) is not None:
            work.complete()
            del work  # not while nothing is there to do


completer = _Completer()


class Incomplete:
    """The operations of this process that have been started: they continue if their caller drops them."""

    def __init__(self) -> None:
        self._works: collections.deque[Work] = collections.deque()

    def add(self, work: Work) -> None:
        works = self._works
        works.append(work)
        while works and works[0].is_over:
            works.popleft()

    def pending_of(self, group: Any) -> list[Pending]:
        return [_Whole(work) for work in self._works if work.group is group]

    def make_progress(self) -> None:
        """Drive what is in flight, as a rank that waits in MPI must: others may need its part of it."""
        for work in tuple(self._works)[:1]:
            work.is_completed()

    def wait_all(self) -> None:
        """Wait for all of them; failures are their callers' to see."""
        while self._works:
            self._works.popleft().complete()


class _Whole:
    """Another work as a part of one."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def wait(self) -> None:
        self._work.wait()

    def test(self) -> bool:
        return self._work.is_completed()
