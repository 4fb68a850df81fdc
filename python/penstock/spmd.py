"""What all ranks of a job run alike: a failure on one rank becomes a failure on all, and is reported once.

``agreed`` and ``from_root`` are for the library: they raise, and leave the host program alone. ``program`` is for programs
that own their process, such as Penstock's commands: no rank is left waiting for one that failed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import signal
import sys
import termios
import time
import traceback
from array import array
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, TypeVar

from penstock.error import Error

T = TypeVar("T")

#: How long a rank that failed waits for the others, before it aborts the job. They come if they failed as well or have
#: ended; others are stuck in a collective that this rank will not join.
GRACE_S = 5.0
INTERRUPT_GRACE_S = 1.0
RELAY_S = 5.0  #: how long the launcher may take to read what an aborting rank has said
INTERRUPTED = 130  #: the shell's status for SIGINT

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


#: The rank, as the launchers of MPICH, Intel MPI and Open MPI tell it before MPI is initialized.
_LAUNCHED_RANK = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK")


def launched_rank() -> int | None:
    """The rank that a launcher gave this process; None if there was none. Does not initialize MPI."""
    return next((int(os.environ[name]) for name in _LAUNCHED_RANK if name in os.environ), None)


def end_before_mpi(name: str, reason: str) -> NoReturn:
    """End a process that cannot initialize MPI, and with it the job.

    The others wait for it in MPI_Init. A launcher may overlook a rank that exits there, with any status, but none
    overlooks one that a signal ends.
    """
    rank = launched_rank()
    _say(name, reason if rank is None else f"{reason} [rank {rank}]")
    if rank is not None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
    raise SystemExit(1)


def as_error(error: Exception) -> Error:
    """What failed on one rank, as an Error that others can raise, too."""
    if isinstance(error, Error):
        return error
    if isinstance(error, OSError) and error.errno is not None:
        what = f"'{error.filename}'" if error.filename else "a file"
        code = "no_space" if error.errno in _NO_SPACE else "io"
        return Error(f"{what} cannot be used", code, cause=os.strerror(error.errno))
    return Error(_described(error), "internal")


def agreed(world: Any, work: Callable[[], T]) -> T:
    """Run `work` on this rank and return what it returns; if it fails on any rank, raise penstock.Error on all.

    Collective over `world`, a communicator of mpi4py. `work` itself must be local: a rank that fails does not come to
    collectives in it. The error is that of the lowest rank that failed.
    """
    value, failure = _tried(work)
    failures = world.allgather(failure)
    first = next((rank for rank, each in enumerate(failures) if each is not None), None)
    if first is None:
        return value  # type: ignore[return-value]
    raise _of_rank(failures[first], first)


def from_root(world: Any, work: Callable[[], T], root: int = 0) -> T:
    """Run `work` on the root alone and return what it returns on all ranks, or raise its failure on all. Collective."""
    value, failure = _tried(work) if world.rank == root else (None, None)
    value, failure = world.bcast((value, failure), root=root)
    if failure is not None:
        raise failure
    result: T = value
    return result


def _tried(work: Callable[[], T]) -> tuple[T | None, Error | None]:
    try:
        return work(), None
    except Exception as error:
        return None, as_error(error)


def _of_rank(error: Error, rank: int) -> Error:
    return error if error.rank >= 0 else Error(error.message, error.code, rank, error.cause)


@contextlib.contextmanager
def program(name: str) -> Iterator[Any]:
    """The body of a program that all ranks of MPI.COMM_WORLD run; gives that communicator.

    If the body fails on any rank, all ranks exit with the same status and one of them says why. A rank that fails alone,
    while others wait for it, says why and aborts the job: only for programs that own their process.
    """
    MPI = _mpi(name)
    # Apart from the body's own: after a failure the other ranks may still be in one of its collectives.
    meeting_place = MPI.COMM_WORLD.Dup()
    failure: BaseException | None = None
    try:
        yield MPI.COMM_WORLD
    except BaseException as error:
        failure = error
    status = _status(failure)
    worst, speaker = _meet(MPI, meeting_place, name, status, failure)
    if worst == 0:
        meeting_place.Free()
        return
    if speaker == meeting_place.rank and failure is not None:
        _say(name, _about(failure, meeting_place))
    raise SystemExit(worst)


def _mpi(name: str) -> Any:
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        end_before_mpi(name, f"it needs mpi4py and an MPI library (pip install mpich mpi4py): {reason}")
    return MPI


def _status(failure: BaseException | None) -> int:
    if failure is None:
        return 0
    if isinstance(failure, SystemExit):
        return failure.code if isinstance(failure.code, int) else int(failure.code is not None)
    if isinstance(failure, KeyboardInterrupt):
        return INTERRUPTED
    return getattr(failure, "exit_code", 1)  # click's exceptions have one


def _meet(MPI: Any, comm: Any, name: str, status: int, failure: BaseException | None) -> tuple[int, int]:
    """The worst status of all ranks, and the rank that says why: the first that did not merely hear of another's
    failure. Aborts if this rank failed and the others do not come."""
    heard = isinstance(failure, Error) and failure.code == "peer_failed"
    turn = 2 * comm.size if not status else comm.rank + heard * comm.size
    mine = array("i", [status, -turn])
    meeting = comm.Iallreduce(MPI.IN_PLACE, mine, op=MPI.MAX)
    grace_s = INTERRUPT_GRACE_S if isinstance(failure, KeyboardInterrupt) else GRACE_S
    end = time.monotonic() + grace_s
    while not meeting.Test():
        if failure is not None and status and time.monotonic() > end:
            _say(name, f"{_about(failure, comm)}; the other ranks wait for this one, so the job is aborted")
            _until_read(sys.stderr)
            comm.Abort(status)
            os._exit(status)  # Abort may return before the launcher has ended this rank
        time.sleep(0.002)
    return mine[0], -mine[1] % comm.size


def _until_read(stream: Any) -> None:
    """Wait until the launcher has read what was said: it may drop what it finds after an Abort."""
    end = time.monotonic() + RELAY_S
    with contextlib.suppress(OSError, ValueError):
        unread = array("i", [1])
        while unread[0] and time.monotonic() < end:
            fcntl.ioctl(stream.fileno(), termios.FIONREAD, unread)
            time.sleep(0.01)
    time.sleep(RELAY_S / 10)  # it has yet to pass it on


def _about(failure: BaseException, comm: Any) -> str:
    if isinstance(failure, KeyboardInterrupt):
        return "interrupted"
    if isinstance(failure, Error):
        return f"{failure} ({failure.code})"
    if callable(getattr(failure, "format_message", None)):  # click's exceptions
        return str(failure.format_message())  # type: ignore[attr-defined]
    if isinstance(failure, OSError) and failure.errno is not None:
        error = _of_rank(as_error(failure), comm.rank)
        return f"{error} ({error.code})"
    return f"{_described(failure)} [rank {comm.rank}]"


def _described(error: BaseException) -> str:
    """One line: what, and where, for failures that nobody foresaw."""
    if isinstance(error, SystemExit):
        return str(error.code)
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}{': ' if text else ''}{text}{where}"


def _say(name: str, text: str) -> None:
    sys.stdout.flush()
    print(f"{name}: {text}", file=sys.stderr, flush=True)
