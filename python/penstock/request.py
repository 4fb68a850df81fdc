"""Operations that have been started, of one communicator or of several."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from penstock.error import Error


class Request:
    """A collective that has been started.

    The buffers belong to it until ``Wait`` has returned or ``Test`` has returned true; it keeps them alive. A failure
    is raised once, by whichever of them sees it. Dropping a request that is not complete waits for it.
    """

    def __init__(self, pending: Any, finish: Callable[[], None] | None = None) -> None:
        self._pending = pending  # has wait() and test(); None once complete
        self._finish = finish

    def Wait(self, status: Any = None) -> bool:
        """Wait until the operation is complete; other Python threads run meanwhile. Returns True."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.wait()
            self._complete()
        return True

    def Test(self, status: Any = None) -> bool:
        """Make progress; return whether the operation is complete."""
        if self._pending is None:
            return True
        try:
            complete = self._pending.test()
        except BaseException:
            self._pending = None
            raise
        if complete:
            self._pending = None
            self._complete()
        return complete

    def wait(self, status: Any = None) -> None:
        """Wait until the operation is complete."""
        self.Wait(status)

    def test(self, status: Any = None) -> tuple[bool, None]:
        """Make progress; return whether the operation is complete, and None as mpi4py does."""
        return self.Test(status), None

    def _complete(self) -> None:
        finish, self._finish = self._finish, None
        if finish is not None:
            finish()

    @staticmethod
    def Testall(requests: Sequence[Any], statuses: Any = None) -> bool:
        """Make progress with requests of Penstock and of mpi4py; return whether all are complete."""
        complete = [request.Test() for request in requests]  # all of them: each makes progress
        return all(complete)

    @staticmethod
    def Waitall(requests: Sequence[Any], statuses: Any = None) -> bool:
        """Wait for requests of Penstock and of mpi4py, in any order. Returns True.

        If some fail, the first failure is raised when all are complete.
        """
        waiting = list(requests)
        failure: BaseException | None = None
        pause = 0.0
        while waiting:
            left = []
            for request in waiting:
                try:
                    if not request.Test():
                        left.append(request)
                except Exception as error:
                    failure = failure or error
            pause = 0.0 if len(left) < len(waiting) else min(pause + 20e-6, 1e-3)
            waiting = left
            if waiting:
                time.sleep(pause)
        if failure is not None:
            raise failure
        return True


class Prequest(Request):
    """A persistent collective: ``Start`` it, ``Wait`` for it, any number of times, on the same buffers."""

    def __init__(self, start: Callable[[], Request]) -> None:
        super().__init__(None)
        self._start = start
        self._running: Request | None = None

    def Start(self) -> None:
        """Start the operation. The previous one must be complete."""
        if self._running is not None:
            raise Error("this persistent request is still active; wait for it before starting it again")
        self._running = self._start()

    def Wait(self, status: Any = None) -> bool:
        """Wait until the operation is complete. Returns True, also when it has not been started."""
        running, self._running = self._running, None
        return running is None or running.Wait(status)

    def Test(self, status: Any = None) -> bool:
        """Make progress; return whether the operation is complete, or not started."""
        if self._running is None:
            return True
        try:
            complete = self._running.Test(status)
        except BaseException:
            self._running = None
            raise
        if complete:
            self._running = None
        return complete

    def Free(self) -> None:
        """Complete the operation if it is active, and let the buffers go."""
        self.Wait()
        self._start = _freed_request

    @staticmethod
    def Startall(requests: Sequence[Any]) -> None:
        """Start persistent requests of Penstock and of mpi4py in this order."""
        for request in requests:
            request.Start()


def _freed_request() -> Request:
    raise Error("this persistent request has been freed")
