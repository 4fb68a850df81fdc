"""Error handling for SPMD programs: a failure on one rank becomes a failure on all ranks, reported once.

``agreed`` and ``from_root`` are for libraries: they only raise. ``program`` is for programs that own their process, such as
Penstock's commands: no rank is left waiting for a failed one.
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

#: A failed rank waits this long for the others, then aborts the job. Ranks that failed too or have ended arrive in time;
#: others are blocked in a collective that the failed rank will not join.
GRACE_S = 5.0
INTERRUPT_GRACE_S = 1.0
RELAY_S = 5.0  #: Limit for the launcher to read the output of an aborting rank.
INTERRUPTED = 130  #: Exit status of a shell for SIGINT.

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


#: Environment variables with the rank, set by the launchers of MPICH, Intel MPI and Open MPI.
_LAUNCHED_RANK = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK")

#: What launchers leave in the environment, and what would make an MPI_Init here join their job.
OF_LAUNCHERS = (
    "PMI_",
    "PMIX_",
    "PMI2_",
    "OMPI_COMM_WORLD",
    "OMPI_APP_CTX",
    "PRTE_LAUNCHED",
    "MPI_LOCALRANKID",
    "HYDI_",
)


def launched_rank() -> int | None:
    """This process's rank according to its launcher, or None without a launcher. Does not initialize MPI."""
    return next((int(os.environ[name]) for name in _LAUNCHED_RANK if name in os.environ), None)


def end_before_mpi(name: str, reason: str) -> NoReturn:
    """End a process that cannot initialize MPI, and with it the job.

    The other ranks wait for it in MPI_Init. A launcher may ignore a rank that exits before MPI_Init, whatever its status,
    but not one that dies by a signal.
    """
    rank = launched_rank()
    _say(name, reason if rank is None else f"{reason} [rank {rank}]")
    if rank is not None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
    raise SystemExit(1)


def as_error(error: Exception) -> Error:
    """An exception of one rank as an Error, which other ranks can raise too."""
    if isinstance(error, Error):
        return error
    if isinstance(error, OSError) and error.errno is not None:
        what = f"'{error.filename}'" if error.filename else "a file"
        code = "no_space" if error.errno in _NO_SPACE else "io"
        return Error(f"{what} cannot be used", code, cause=os.strerror(error.errno))
    return Error(_described(error), "internal")


def agreed(world: Any, work: Callable[[], T]) -> T:
    """Run `work` on this rank and return its result. If it fails on any rank, raise penstock.Error on all ranks.

    Collective over `world`, a communicator of mpi4py. `work` must be local: a failed rank does not join collectives in
    it. The error is that of the lowest failed rank.
    """
    value, failure = _tried(work)
    failures = world.allgather(failure)
    first = next((rank for rank, each in enumerate(failures) if each is not None), None)
    if first is None:
        return value  # type: ignore[return-value]
    raise _of_rank(failures[first], first)


def from_root(world: Any, work: Callable[[], T], root: int = 0) -> T:
    """Run `work` on the root. Return its result on all ranks, or raise its failure on all. Collective."""
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
    """The body of a program that all ranks of MPI.COMM_WORLD run. Yields that communicator.

    If the body fails on any rank, all ranks exit with one status, and one rank reports the reason. A rank that fails
    while others wait for it reports the reason and aborts the job. For programs that own their process.
    """
    MPI = _mpi(name)
    # Its own communicator: after a failure other ranks may still be in a collective of the body.
    exit_comm = MPI.COMM_WORLD.Dup()
    failure: BaseException | None = None
    try:
        yield MPI.COMM_WORLD
    except BaseException as error:
        failure = error
    status = _status(failure)
    worst, reporter = _agree_on_exit(MPI, exit_comm, name, status, failure)
    if worst == 0:
        exit_comm.Free()
        return
    if reporter == exit_comm.rank and failure is not None:
        _say(name, _about(failure, exit_comm))
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


def _agree_on_exit(MPI: Any, comm: Any, name: str, status: int, failure: BaseException | None) -> tuple[int, int]:
    """(worst exit status of all ranks, rank that reports). The reporter is the first rank whose failure is not merely
    "peer_failed". Aborts the job if this rank failed and the others do not arrive."""
    is_consequence = isinstance(failure, Error) and failure.code == "peer_failed"
    order = 2 * comm.size if not status else comm.rank + is_consequence * comm.size
    mine = array("i", [status, -order])
    meeting = comm.Iallreduce(MPI.IN_PLACE, mine, op=MPI.MAX)
    grace_s = INTERRUPT_GRACE_S if isinstance(failure, KeyboardInterrupt) else GRACE_S
    end = time.monotonic() + grace_s
    while not meeting.Test():
        if failure is not None and status and time.monotonic() > end:
            _say(name, f"{_about(failure, comm)}; the other ranks wait for this one, so the job is aborted")
            _until_read(sys.stderr)
            comm.Abort(status)
            os._exit(status)  # Abort may return before the launcher kills this rank
        time.sleep(0.002)
    return mine[0], -mine[1] % comm.size


def _until_read(stream: Any) -> None:
    """Wait until the launcher has read this rank's output: it may discard output after an Abort."""
    end = time.monotonic() + RELAY_S
    with contextlib.suppress(OSError, ValueError):
        unread = array("i", [1])
        while unread[0] and time.monotonic() < end:
            fcntl.ioctl(stream.fileno(), termios.FIONREAD, unread)
            time.sleep(0.01)
    time.sleep(RELAY_S / 10)  # the launcher still has to forward it


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
    """An unexpected failure in one line: type, text and source line."""
    if isinstance(error, SystemExit):
        return str(error.code)
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}{': ' if text else ''}{text}{where}"


def _say(name: str, text: str) -> None:
    sys.stdout.flush()
    print(f"{name}: {text}", file=sys.stderr, flush=True)
