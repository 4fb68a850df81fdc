"""Versioned blobs: atomic writes of many regions at once, without locks, and consistent snapshots for readers.

Works in one process as well as in thousands, and needs neither MPI nor mpi4py.

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
import os
import warnings
from collections.abc import Iterable
from typing import Any, TypedDict

from penstock import _penstock
from penstock.error import Error

__all__ = ["Blob", "BlobInfo", "CheckReport", "DamageWarning", "LogEntry", "RepairReport", "Snapshot", "Store"]

Regions = Iterable[tuple[int, Any]]


class BlobInfo(TypedDict):
    """What :meth:`Store.list` says of a blob."""

    name: str
    size: int
    first_version: int
    latest_version: int
    grows: bool
    damage: str  #: why newer versions cannot be read; empty where there are none


class LogEntry(TypedDict):
    """What :meth:`Blob.log` says of a version."""

    version: int
    time: float
    writer: str
    kind: str
    bytes: int
    regions: int


class CheckReport(TypedDict):
    """What :meth:`Store.check` found."""

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
    """``"…/run7/field"`` → the URL of the store and ``"field"``; what follows a "?" belongs to the store."""
    path, mark, query = (url, "", "") if url.startswith("file:") else url.partition("?")
    place, slash, name = path.rpartition("/")
    if not slash or not name:
        raise Error(f"{url!r} names no blob: expected the URL of a store, '/' and a name")
    return place + mark + query, name


class DamageWarning(UserWarning):
    """An older version is read in place of the newest, because a record is damaged."""


class Snapshot:
    """One version of a blob, which never changes. Readable until gc collects the version.

    Attributes
    ----------
    version : int
    size : int
        Bytes.
    damage : str
        Why this is not the newest version although that was asked for: a record is damaged. Else empty.
    """

    def __init__(self, core: _penstock.Snapshot) -> None:
        self._core = core
        self.version: int = core.version
        self.size: int = core.size
        self.damage: str = core.damage

    def read(self, regions: Regions) -> None:
        """Fill the buffers of ``[(offset, buffer), ...]``; bytes that were never written are zero.

        Every chunk that is touched is verified: damaged data raises ``Error`` with code ``"corrupt"`` that names
        object, offset, expected and found checksum.
        """
        self._core.read(regions)

    def __repr__(self) -> str:
        return f"<Snapshot version {self.version}, {self.size} bytes>"


class Blob:
    """A sequence of bytes with numbered versions. Version 0 is all zeros; every write makes one more.

    Made by `Store.create` and `Store.open`. Safe to use from many threads.
    """

    def __init__(self, core: _penstock.Blob) -> None:
        self._core = core

    @property
    def name(self) -> str:
        return self._core.name

    @property
    def latest(self) -> int:
        """The newest version."""
        return self._core.latest

    @property
    def size(self) -> int:
        """Bytes, at the newest version."""
        return self._core.size

    @property
    def grows(self) -> bool:
        """Whether writes may go beyond the end."""
        return self._core.grows

    def write(self, regions: Regions) -> int:
        """Make one version out of the newest one and all of ``[(offset, buffer), ...]``; return its number.

        Readers see all regions or none. When the call returns the version is durable. The regions must not overlap
        each other and must lie inside the blob, unless it grows. Buffers are bytes, NumPy arrays or anything contiguous
        with the buffer protocol or DLPack.
        """
        return self._core.write(regions)

    def append(self, *buffers: Any) -> tuple[int, int]:
        """Add data at the end, wherever that is by then; return (version, offset). Only for blobs that grow."""
        return self._core.append(buffers)

    def resize(self, size: int) -> int:
        """Cut the end off, or add zeros; return the version. Only for blobs that grow."""
        return self._core.resize(size)

    def read(self, regions: Regions, version: int | None = None) -> None:
        """Fill the buffers of ``[(offset, buffer), ...]`` from one version, the newest by default."""
        if version is not None:
            self._core.read(regions, version)
        else:
            self.snapshot().read(regions)

    def snapshot(self, version: int | None = None) -> Snapshot:
        """Pin one version, the newest by default.

        Where a record is damaged the newest that can be read is not the newest: a `DamageWarning` says so, and
        `Snapshot.damage`.
        """
        snapshot = Snapshot(self._core.snapshot(version))
        if snapshot.damage:
            warnings.warn(snapshot.damage, DamageWarning, stacklevel=2)
        return snapshot

    def wait(self, version: int, timeout: float | None = None) -> bool:
        """Wait until `version` exists. False when it does not within `timeout` seconds; None waits forever."""
        if timeout is not None:
            return self._core.wait(version, timeout)
        # In short waits, so that an interrupt from the keyboard comes through.
        while not self._core.wait(version, 0.2):
            continue
        return True

    def tag(self, tag: str, version: int | None = None) -> None:
        """Name a version, the newest by default; it then stays readable whatever `Store.gc` is asked to keep.

        Raises ``Error`` with code ``"exists"``, or ``"not_found"`` for a version that gc has collected.
        """
        self._core.tag(tag, version)

    def untag(self, tag: str) -> None:
        """Take a tag away."""
        self._core.untag(tag)

    @property
    def tags(self) -> dict[str, int]:
        """Tag → version."""
        return self._core.tags()

    def diff(self, old: int, new: int | None = None) -> list[tuple[int, int]]:
        """What was written between two versions: [(offset, size), ...], ascending. Reads no data.

        Bytes that were written anew with the same value count; so do those that only the longer version has.
        """
        return self._core.diff(old, new)

    def compact(self, version: int | None = None) -> None:
        """Copy the data of a version, the newest by default, to one place, so that it reads like a plain file.

        Needs as much space again, until gc frees the scattered data with the versions that need it.
        """
        self._core.compact(version)

    def log(self, first: int = 1) -> list[LogEntry]:
        """Versions from `first` on, oldest first: dicts with version, time (seconds since 1970), writer, kind, bytes
        and regions. Collected versions are left out."""
        return self._core.log(first)

    def __repr__(self) -> str:
        return f"<Blob {self.name!r}>"


class Store:
    """A place for blobs.

    Parameters
    ----------
    url : str
        "file:///scratch/run7", a directory that is made if need be; "memory:name", shared by all of this process.
    create : bool
        Make the store where it does not exist.
    durable : bool
        A version is on the device before its write returns. False: the page cache of the system is enough, which
        survives the death of the program but not of the machine.
    """

    def __init__(self, url: str | os.PathLike[str], create: bool = True, durable: bool = True) -> None:
        self._core = _penstock.Store(os.fspath(url), create, durable)

    @property
    def url(self) -> str:
        return self._core.url

    def create(self, name: str, size: int = 0, grows: bool = False) -> Blob:
        """A new blob of zeros. Raises ``Error`` with code ``"exists"``."""
        return Blob(self._core.create(name, size, grows))

    def open(self, name: str) -> Blob:
        """Raises ``Error`` with code ``"not_found"``."""
        return Blob(self._core.open(name))

    def __contains__(self, name: str) -> bool:
        return name in self._core

    def list(self) -> builtins.list[BlobInfo]:
        """The blobs: dicts with name, size, first_version (the oldest that can be read), latest_version, grows."""
        return self._core.list()

    def clone(self, name: str, new_name: str, version: int | None = None) -> Blob:
        """A new blob whose version 1 is a version of another one, the newest by default.

        In a directory both share the data (by hard links), and each can be written, collected and removed without the
        other.
        """
        return Blob(self._core.clone(name, version, new_name))

    def remove(self, name: str) -> dict[str, int]:
        """Remove a blob with all versions and tags. Raises ``Error`` with code ``"not_found"``, as all handles of the blob
        do from then on. Returns a dict with objects_removed and bytes_freed."""
        return self._core.remove(name)

    def check(self) -> CheckReport:
        """Read everything and verify every checksum and reference. The store is sound if ``problems`` is empty."""
        return self._core.check()

    def repair(self, apply: bool = False, drop_damaged_data: bool = False) -> RepairReport:
        """Find what a loss of power, a failing device or a hand has damaged, and with `apply` mend it.

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
        """Free the space of old versions, of dead writers and of interrupted runs of gc.

        Safe at any time, also while others read, write and collect. Versions with a tag stay in any case.

        Parameters
        ----------
        keep_last : int or None
            How many versions of each blob stay readable; None: all, or with `keep_for` the newest.
        lease : float
            Seconds that a write may take before its data counts as left by a dead writer. Too short costs a slow
            writer a second attempt, never data.
        keep_for : float or None
            Seconds. Versions stay, too, that were the newest at any time this long ago or less: a reader that takes a
            snapshot has it for as long at least.
        """
        if keep_for is not None and keep_last is None:
            keep_last = 1
        return self._core.gc(keep_last, 0.0 if keep_for is None else keep_for, lease)

    def export(self, name: str, path: str | os.PathLike[str], version: int | None = None) -> None:
        """Write one version of a blob, the newest by default, as a plain file that appears when it is complete."""
        self._core.export(name, os.fspath(path), version)

    def __repr__(self) -> str:
        return f"Store({self.url!r})"
