"""Versioned blobs: atomic writes of many regions without locks, and consistent snapshots for readers.

Needs neither MPI nor mpi4py. Any number of processes may share a store.

>>> store = Store("memory:")
>>> blob = store.create("field", size=8)
>>> blob.write([(0, b"ab"), (4, b"cd")])
1
>>> data = bytearray(8)
>>> blob.read([(0, data)], version=1)
>>> data
bytearray(b'ab\\x00\\x00cd\\x00\\x00')
"""

from __future__ import annotations

import builtins
import io
import os
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from penstock import _penstock
from penstock.error import Error
from penstock.store_views import BlobArray, SnapshotArray

__all__ = [
    "Blob",
    "BlobArray",
    "BlobInfo",
    "CheckReport",
    "DamageWarning",
    "LogEntry",
    "RepairReport",
    "Snapshot",
    "SnapshotArray",
    "Store",
]

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

Regions = Iterable[tuple[int, Any]]


class BlobInfo(TypedDict):
    """A blob in the result of :meth:`Store.list`."""

    name: str
    size: int
    first_version: int
    latest_version: int
    grows: bool
    damage: str  #: why newer versions cannot be read; empty where there are none


class LogEntry(TypedDict):
    """A version in the result of :meth:`Blob.log`."""

    version: int
    time: float
    writer: str
    kind: str
    bytes: int
    regions: int


class CheckReport(TypedDict):
    """The result of :meth:`Store.check`."""

    blobs: int
    versions: int
    objects: int
    bytes: int
    garbage_objects: int
    garbage_bytes: int
    lost_versions: int  #: that repair has given up
    problems: list[str]


class RepairAction(TypedDict):
    """One thing that :meth:`Store.repair` does, or would do."""

    blob: str
    object: str
    reason: str
    action: str


class RepairReport(TypedDict):
    """What :meth:`Store.repair` found."""

    applied: bool
    actions: list[RepairAction]
    remaining: list[str]


def split_blob_url(url: str) -> tuple[str, str]:
    """``"…/run7/field"`` → (URL of the store, ``"field"``). A "?" and what follows stay with the store."""
    path, mark, query = (url, "", "") if url.startswith("file:") else url.partition("?")
    place, slash, name = path.rpartition("/")
    if not slash or not name:
        raise Error(f"{url!r} names no blob: expected the URL of a store, '/' and a name")
    return place + mark + query, name


class DamageWarning(UserWarning):
    """An older version is read in place of the newest, because a record is damaged."""


class Snapshot:
    """One immutable version of a blob. Readable until gc collects the version.

    Attributes
    ----------
    version : int
    size : int
        Size in bytes.
    damage : str
        Why this is not the newest version although that was asked for: a record is damaged. Else empty.
    """

    def __init__(self, core: _penstock.Snapshot) -> None:
        self._core = core
        self.version: int = core.version
        self.size: int = core.size
        self.damage: str = core.damage

    def read(self, regions: Regions) -> None:
        """Fill the buffers of ``[(offset, buffer), ...]``. Bytes that were never written are zero.

        Every chunk that is read is verified. Damaged data raises ``Error`` with code ``"corrupt"``, which names the object,
        the offset, and the expected and the found checksum.
        """
        self._core.read(regions)

    def read_bytes(self, offset: int = 0, size: int | None = None) -> bytes:
        """`size` bytes from `offset` on, or all up to the end. Fewer if the version ends before."""
        return self.read_array(offset=offset, count=size).tobytes()

    def read_array(self, dtype: DTypeLike = np.uint8, offset: int = 0, count: int | None = None) -> NDArray[Any]:
        """`count` elements from byte `offset` on, or all whole ones up to the end, as a new array.

        Fewer if the version ends before.
        """
        kind = np.dtype(dtype)
        if kind.hasobject:
            raise Error(f"a blob holds bytes, so it cannot be read as {kind}: expected a type without Python objects")
        if offset < 0 or (count is not None and count < 0):
            raise Error(f"read of {count} elements from byte {offset}: expected numbers that are not negative")
        there = max(self.size - offset, 0) // max(kind.itemsize, 1)
        found = np.empty(there if count is None else min(count, there), kind)
        if found.nbytes > 0:
            self.read([(offset, found.view(np.uint8))])
        return found

    def view(self, dtype: DTypeLike, shape: int | Sequence[int], offset: int = 0) -> SnapshotArray:
        """An array in C order from byte `offset` on, of which indexing reads parts. Reads nothing by itself."""
        return SnapshotArray(self.read, dtype, shape, offset, self.size)

    def open(self, buffering: int = 1 << 20) -> io.BufferedReader:
        """A binary file that reads this version, with `buffering` bytes of read-ahead. It can seek."""
        return io.BufferedReader(_SnapshotFile(self), buffering)

    def __repr__(self) -> str:
        return f"<Snapshot version {self.version}, {self.size} bytes>"


class _SnapshotFile(io.RawIOBase):
    """An unbuffered binary file of one version."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__()
        self._snapshot = snapshot
        self._at = 0

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._check_open()
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._snapshot.size}.get(whence)
        if start is None or start + offset < 0:
            raise Error(f"seek to {offset} with whence {whence}: expected a place at or behind the begin")
        self._at = start + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        self._check_open()
        target = memoryview(buffer).cast("B")
        size = min(len(target), max(self._snapshot.size - self._at, 0))
        if size > 0:
            self._snapshot.read([(self._at, target[:size])])
        self._at += size
        return size


class Blob:
    """A sequence of bytes with numbered versions. Version 0 is all zeros; each write makes the next version.

    Made by `Store.create` and `Store.open`. Thread-safe; all methods block.
    """

    def __init__(self, core: _penstock.Blob) -> None:
        self._core = core

    @property
    def name(self) -> str:
        return self._core.name

    @property
    def latest(self) -> int:
        """The number of the newest version."""
        return self._core.latest

    @property
    def size(self) -> int:
        """Size in bytes, at the newest version."""
        return self._core.size

    @property
    def grows(self) -> bool:
        """Whether writes may go beyond the end."""
        return self._core.grows

    def write(self, regions: Regions, parent: int | None = None) -> int:
        """Write all of ``[(offset, buffer), ...]`` as one version, on top of the newest. Returns its number.

        Readers see all regions or none. The version is durable when the call returns. The regions must not overlap and must
        lie inside the blob, unless it grows. Buffers are bytes, NumPy arrays, or any contiguous memory with the buffer
        protocol or DLPack.

        With `parent`, the call writes only if nothing changed since that version. Else it raises ``Error`` with code
        ``"exists"`` (a FileExistsError). Of several concurrent calls with one parent, one succeeds. So a program can read a
        version, compute, and write the result without losing what others write meanwhile. What gc adds to the log is no
        change, but versions that it has collected since `parent` count as changes.
        """
        return self._core.write(regions, parent)

    def append(self, *buffers: Any) -> tuple[int, int]:
        """Write at the end of the newest version. Returns (version, offset). Only for blobs that grow."""
        return self._core.append(buffers)

    def resize(self, size: int) -> int:
        """Truncate, or extend with zeros. Returns the version. Only for blobs that grow."""
        return self._core.resize(size)

    def read(self, regions: Regions, version: int | None = None) -> None:
        """Fill the buffers of ``[(offset, buffer), ...]`` from one version, the newest by default."""
        if version is not None:
            self._core.read(regions, version)
        else:
            self.snapshot().read(regions)

    def read_bytes(self, offset: int = 0, size: int | None = None, version: int | None = None) -> bytes:
        """As `Snapshot.read_bytes`, of one version, the newest by default."""
        return self.snapshot(version).read_bytes(offset, size)

    def read_array(
        self, dtype: DTypeLike = np.uint8, offset: int = 0, count: int | None = None, version: int | None = None
    ) -> NDArray[Any]:
        """As `Snapshot.read_array`, of one version, the newest by default."""
        return self.snapshot(version).read_array(dtype, offset, count)

    def view(self, dtype: DTypeLike, shape: int | Sequence[int], offset: int = 0) -> BlobArray:
        """An array in C order from byte `offset` on: indexing reads parts of the newest version, assigning writes versions.

        >>> field = Store("memory:").create("field", size=48).view(np.int32, (3, 4))
        >>> field[1:, ::2] = 7
        >>> field[1]
        array([7, 0, 7, 0], dtype=int32)
        """
        return BlobArray(self.read, self.write, dtype, shape, offset)

    def snapshot(self, version: int | None = None) -> Snapshot:
        """Pin one version, the newest by default.

        If a damaged record hides newer versions, the newest readable one is pinned. A `DamageWarning` and
        `Snapshot.damage` say so.
        """
        snapshot = Snapshot(self._core.snapshot(version))
        if snapshot.damage:
            warnings.warn(snapshot.damage, DamageWarning, stacklevel=2)
        return snapshot

    def wait(self, version: int, timeout: float | None = None) -> bool:
        """Wait until `version` exists. Returns False after `timeout` seconds; None waits forever."""
        if timeout is not None:
            return self._core.wait(version, timeout)
        # Short waits let KeyboardInterrupt through.
        while not self._core.wait(version, 0.2):
            continue
        return True

    def tag(self, tag: str, version: int | None = None) -> None:
        """Name a version (default: the newest). `Store.gc` keeps tagged versions.

        Raises ``Error`` with code ``"exists"``, or ``"not_found"`` if gc has collected the version.
        """
        self._core.tag(tag, version)

    def untag(self, tag: str) -> None:
        """Remove a tag."""
        self._core.untag(tag)

    @property
    def tags(self) -> dict[str, int]:
        """All tags: name → version."""
        return self._core.tags()

    def diff(self, old: int, new: int | None = None) -> list[tuple[int, int]]:
        """Byte ranges written between two versions: [(offset, size), ...], ascending. Reads no data.

        Bytes rewritten with the same value count, and so do bytes that only the longer version has.
        """
        return self._core.diff(old, new)

    def compact(self, version: int | None = None) -> None:
        """Copy the data of a version (default: the newest) to contiguous storage, so that it reads like a plain file.

        Needs the space twice, until gc collects the other versions that use the scattered data.
        """
        self._core.compact(version)

    def log(self, first: int = 1) -> list[LogEntry]:
        """Versions from `first` on, oldest first, without collected ones. A dict has version, time (seconds since 1970),
        writer, kind, bytes and regions."""
        return self._core.log(first)

    def __repr__(self) -> str:
        return f"<Blob {self.name!r}>"


class Store:
    """A collection of blobs.

    Parameters
    ----------
    url : str or Path
        "file:///scratch/run7", a directory, made if needed; or "memory:name", shared within this process. A `Path` is a
        directory.
    create : bool
        Make the store if it does not exist.
    durable : bool
        Writes return after their data is on the device. False: they return after it is in the page cache, which survives
        the process but not a power loss.
    compress_level : int
        Writes store their data compressed by zstd, each chunk of up to 64 KiB alone: 1 (fast) to 22 (small). 0: as it is.
        Anybody reads both, with libzstd.so.1 on the machine; a Penstock that knows no compression says that it needs a newer
        one. A write then takes memory for its compressed data.
    """

    def __init__(
        self, url: str | os.PathLike[str], create: bool = True, durable: bool = True, *, compress_level: int = 0
    ) -> None:
        place = f"file://{url.absolute()}" if isinstance(url, Path) else os.fspath(url)
        self._core = _penstock.Store(place, create, durable, compress_level)

    @property
    def url(self) -> str:
        return self._core.url

    def create(self, name: str, size: int = 0, grows: bool = False) -> Blob:
        """Make a blob of zeros. Raises ``Error`` with code ``"exists"``."""
        return Blob(self._core.create(name, size, grows))

    def open(self, name: str) -> Blob:
        """Open a blob. Raises ``Error`` with code ``"not_found"``."""
        return Blob(self._core.open(name))

    def __contains__(self, name: str) -> bool:
        return name in self._core

    def list(self) -> builtins.list[BlobInfo]:
        """All blobs: dicts with name, size, first_version (the oldest readable), latest_version and grows."""
        return self._core.list()

    def clone(self, name: str, new_name: str, version: int | None = None) -> Blob:
        """Make a blob whose version 1 is a version of another blob (default: the newest).

        In a directory both share data by hard links. Each can be written, collected and removed without the other.
        """
        return Blob(self._core.clone(name, version, new_name))

    def remove(self, name: str) -> dict[str, int]:
        """Remove a blob with all versions and tags. Returns a dict with objects_removed and bytes_freed.

        Raises ``Error`` with code ``"not_found"``; all handles of the blob do so afterwards."""
        return self._core.remove(name)

    def check(self) -> CheckReport:
        """Read everything and verify all checksums and references. The store is sound if ``problems`` is empty."""
        return self._core.check()

    def repair(self, apply: bool = False, drop_damaged_data: bool = False) -> RepairReport:
        """Find what a loss of power, a failing device or manual changes have damaged, and with `apply` mend it.

        Afterwards everything else can be read and written again. Damaged objects are kept in the blob's folder "lost".
        Others may use the store meanwhile.

        Parameters
        ----------
        apply : bool
            False: only say what would be done.
        drop_damaged_data : bool
            Give up versions whose data is damaged or missing, too: they read as the versions before them.
        """
        return self._core.repair(apply, drop_damaged_data)

    def gc(self, keep_last: int | None = None, lease: float = 3600.0, keep_for: float | None = None) -> dict[str, int]:
        """Free the space of old versions, of dead writers and of interrupted gc runs.

        Safe while others read, write and collect. Tagged versions stay.

        Parameters
        ----------
        keep_last : int or None
            Versions of each blob to keep. None: all; with `keep_for`, the newest.
        lease : float
            Seconds after which an uncommitted write counts as dead. If it is too short, a slow writer retries; no data is
            lost.
        keep_for : float or None
            Also keep versions that were the newest within this many seconds. A reader's snapshot stays readable at least
            that long.
        """
        if keep_for is not None and keep_last is None:
            keep_last = 1
        return self._core.gc(keep_last, 0.0 if keep_for is None else keep_for, lease)

    def export(self, name: str, path: str | os.PathLike[str], version: int | None = None) -> None:
        """Write one version (default: the newest) as a plain file, atomically."""
        self._core.export(name, os.fspath(path), version)

    def __repr__(self) -> str:
        return f"Store({self.url!r})"
