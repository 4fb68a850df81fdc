"""Requests: operations that have been started, on one communicator or on several."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from penstock import mpi_abi
from penstock.error import Error

if TYPE_CHECKING:
    from typing import Protocol

    from mpi4py import MPI

    class Pending(Protocol):
        """An operation of the extension, or of MPI."""

        def wait(self) -> int | None: ...  # bytes moved, for a file access
        def test(self) -> bool: ...
else:
    MPI = mpi_abi.import_mpi()


class Request:
    """A collective that has been started.

    It keeps its buffers alive. They belong to it until ``Wait`` returns or ``Test`` returns True. A failure is raised
    once, by the call that observes it. Dropping an incomplete request waits for it.

    The static methods, such as ``ps.Request.Waitany``, take lists that mix requests of Penstock and of mpi4py, and return
    what ``MPI.Request``'s return. The methods of ``MPI.Request`` itself raise TypeError for Penstock's requests.
    """

    def __init__(self, pending: Pending | None, finish: Callable[[], None] | None = None) -> None:
        self._pending = pending  # None once complete
        self._finish = finish

    def Wait(self, status: Any = None) -> bool:
        """Wait until the operation is complete. Releases the GIL. Returns True."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.wait()
            self._complete()
        return True

    def Test(self, status: Any = None) -> bool:
        """Make progress. Returns whether the operation is complete."""
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
        """Make progress. Returns (whether the operation is complete, None), as mpi4py does."""
        return self.Test(status), None

    def _is_active(self) -> bool:
        return self._pending is not None

    def _complete(self) -> None:
        finish, self._finish = self._finish, None
        if finish is not None:
            finish()

    @staticmethod
    def Testall(requests: Sequence[Any], statuses: list[Any] | None = None) -> bool:
        """Make progress on requests of Penstock and of mpi4py. Returns whether all are complete."""
        return Request.testall(requests, statuses)[0]

    @staticmethod
    def testall(requests: Sequence[Any], statuses: list[Any] | None = None) -> tuple[bool, list[Any] | None]:
        """As Testall. Also returns the messages of mpi4py's requests, by index, once all are complete.

        Messages of requests that completed in an earlier call are lost; :meth:`testsome` returns them.
        """
        polled = _poll(requests, statuses)  # poll all, since each poll makes progress
        is_complete = all(one is None or one.is_complete for one in polled)
        return is_complete, [one.message if one else None for one in polled] if is_complete else None

    @staticmethod
    def Waitall(requests: Sequence[Any], statuses: list[Any] | None = None) -> bool:
        """Wait for requests of Penstock and of mpi4py. Returns True.

        If some fail, it raises the first failure once all are complete.
        """
        Request.waitall(requests, statuses)
        return True

    @staticmethod
    def waitall(requests: Sequence[Any], statuses: list[Any] | None = None) -> list[Any]:
        """As Waitall. Returns the messages of mpi4py's requests, by index."""
        filled = _fill_in(statuses, len(requests))
        messages: list[Any] = [None] * len(requests)
        failure: BaseException | None = None
        waiting = list(range(len(requests)))
        pause = _Pause()
        while waiting:
            left = []
            for i in waiting:
                try:
                    polled = _poll_one(requests[i], filled[i])
                    if polled is not None and not polled.is_complete:
                        left.append(i)
                    elif polled is not None:
                        messages[i] = polled.message
                except Exception as error:
                    failure = failure or error
            if left:
                pause.after(len(left) < len(waiting))
            waiting = left
        if failure is not None:
            raise failure
        return messages

    @staticmethod
    def Testany(requests: Sequence[Any], status: Any = None) -> tuple[int, bool]:
        """Make progress. Returns (index, True) of a complete request, or (MPI.UNDEFINED, True) if none is active."""
        return Request.testany(requests, status)[:2]

    @staticmethod
    def testany(requests: Sequence[Any], status: Any = None) -> tuple[int, bool, Any]:
        """As Testany. Also returns the request's message."""
        is_any_active = False
        for i, request in enumerate(requests):
            polled = _poll_one(request, status)
            if polled is not None and polled.is_complete:
                return i, True, polled.message
            is_any_active = is_any_active or polled is not None
        return MPI.UNDEFINED, not is_any_active, None

    @staticmethod
    def Waitany(requests: Sequence[Any], status: Any = None) -> int:
        """Wait until one is complete. Returns its index, or MPI.UNDEFINED if none is active."""
        return Request.waitany(requests, status)[0]

    @staticmethod
    def waitany(requests: Sequence[Any], status: Any = None) -> tuple[int, Any]:
        """As Waitany. Also returns the request's message."""
        pause = _Pause()
        while True:
            index, is_complete, received = Request.testany(requests, status)
            if is_complete:
                return index, received
            pause.after(False)

    @staticmethod
    def Testsome(requests: Sequence[Any], statuses: list[Any] | None = None) -> list[int] | None:
        """Make progress. Returns the indices of the requests that have completed, or None if none is active."""
        return Request.testsome(requests, statuses)[0]

    @staticmethod
    def testsome(
        requests: Sequence[Any], statuses: list[Any] | None = None
    ) -> tuple[list[int] | None, list[Any] | None]:
        """As Testsome. Also returns their messages. The first statuses are theirs, in the same order."""
        own = None if statuses is None else [MPI.Status() for _ in requests]
        polled = _poll(requests, own)
        if all(one is None for one in polled):
            return None, None
        complete = [i for i, one in enumerate(polled) if one is not None and one.is_complete]
        if statuses is not None and own is not None:
            statuses[: len(complete)] = [own[i] for i in complete]
        return complete, [one.message for one in polled if one is not None and one.is_complete]

    @staticmethod
    def Waitsome(requests: Sequence[Any], statuses: list[Any] | None = None) -> list[int] | None:
        """Wait until at least one is complete. Returns the indices, or None if none is active."""
        return Request.waitsome(requests, statuses)[0]

    @staticmethod
    def waitsome(
        requests: Sequence[Any], statuses: list[Any] | None = None
    ) -> tuple[list[int] | None, list[Any] | None]:
        """As Waitsome. Also returns their messages."""
        pause = _Pause()
        while True:
            indices, received = Request.testsome(requests, statuses)
            if indices is None or indices:
                return indices, received
            pause.after(False)


class _Pause:
    """Sleeps for linearly growing intervals while nothing completes."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def after(self, has_completed: bool) -> None:
        self._seconds = 0.0 if has_completed else min(self._seconds + 20e-6, 1e-3)
        time.sleep(self._seconds)


class _Polled:
    """The result of polling one active request."""

    __slots__ = ("is_complete", "message")

    def __init__(self, is_complete: bool, received: Any = None) -> None:
        self.is_complete = is_complete
        self.message = received


def _poll_one(request: Any, status: Any) -> _Polled | None:
    """Make progress on one request. Returns None if it is inactive."""
    if isinstance(request, Request):
        return _Polled(request.Test(status)) if request._is_active() else None
    if not isinstance(request, MPI.Request):
        raise Error(f"a request is a {type(request).__name__}; expected requests of Penstock or of mpi4py")
    # Only this call of MPI distinguishes an inactive request from a complete one.
    indices, received = MPI.Request.testsome([request], None if status is None else [status])
    if indices is None:
        return None
    return _Polled(bool(indices), received[0] if indices and received else None)


def _poll(requests: Sequence[Any], statuses: list[Any] | None) -> list[_Polled | None]:
    filled = _fill_in(statuses, len(requests))
    return [_poll_one(request, status) for request, status in zip(requests, filled)]


def _fill_in(statuses: list[Any] | None, count: int) -> list[Any]:
    """One status per request. A list that is too short is extended, as mpi4py does."""
    if statuses is None:
        return [None] * count
    statuses += [MPI.Status() for _ in range(count - len(statuses))]
    return statuses


class Prequest(Request):
    """A persistent collective: ``Start`` and ``Wait`` any number of times, on the same buffers."""

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
        """Wait until the operation is complete. Returns True at once if it was not started."""
        running, self._running = self._running, None
        return running is None or running.Wait(status)

    def Test(self, status: Any = None) -> bool:
        """Make progress. Returns whether the operation is complete or was not started."""
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

    def _is_active(self) -> bool:
        return self._running is not None

    def Free(self) -> None:
        """Complete the operation if it is active, and release the buffers."""
        self.Wait()
        self._start = _freed_request

    @staticmethod
    def Startall(requests: Sequence[Any]) -> None:
        """Start persistent requests of Penstock and of mpi4py, in the order given."""
        for request in requests:
            request.Start()


# mpi4py's TypeErrors show these names.
Request.__name__, Prequest.__name__ = "penstock.Request", "penstock.Prequest"


def _freed_request() -> Request:
    raise Error("this persistent request has been freed")
