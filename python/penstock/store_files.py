"""A store as a file system: maps paths to blobs and versions. `store_mount` serves it through FUSE."""

from __future__ import annotations

import contextlib
import ctypes
import threading
import time
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor

from penstock.error import Error
from penstock.store import Blob, Snapshot, Store

_STRETCH_BYTES = 2 << 20
_KEPT_STRETCHES = 4
_KEPT_SNAPSHOTS = 256


class OpenVersion:
    """An open file. For sequential readers it reads large blocks of the store, one ahead of the kernel."""

    def __init__(self, snapshot: Snapshot, pool: ThreadPoolExecutor) -> None:
        self.snapshot = snapshot
        self._pool = pool
        self._lock = threading.Lock()
        self._stretches: OrderedDict[int, Future[bytearray]] = OrderedDict()
        self._last = 0

    def read(self, size: int, offset: int) -> ctypes.Array[ctypes.c_char] | bytes:
        size = min(size, self.snapshot.size - offset)
        if size <= 0:
            return b""
        first, skip = divmod(offset, _STRETCH_BYTES)
        stretches: list[Future[bytearray]] = []
        with self._lock:
            # The kernel reads ahead with concurrent requests, which may arrive out of order.
            sequential = abs(offset - self._last) <= _STRETCH_BYTES
            self._last = offset
            known = first in self._stretches
            if sequential or known:
                stretches = [
                    self._stretch(number) for number in range(first, (offset + size - 1) // _STRETCH_BYTES + 1)
                ]
                if (first + 1) * _STRETCH_BYTES < self.snapshot.size:
                    self._stretch(first + 1)
        if sequential or known:
            # A prefetch error is not this read's. A later read of that range finds it again.
            with contextlib.suppress(Error):
                if len(stretches) == 1:
                    return (ctypes.c_char * size).from_buffer(stretches[0].result(), skip)
                return b"".join([stretch.result() for stretch in stretches])[skip : skip + size]
        return bytes(self._fetch(offset, size))

    def _stretch(self, number: int) -> Future[bytearray]:
        found = self._stretches.get(number)
        if found is None:
            begin = number * _STRETCH_BYTES
            size = min(_STRETCH_BYTES, self.snapshot.size - begin)
            found = self._stretches[number] = self._pool.submit(self._fetch, begin, size)
            while len(self._stretches) > _KEPT_STRETCHES:
                self._stretches.popitem(last=False)
        return found

    def _fetch(self, offset: int, size: int) -> bytearray:
        data = bytearray(size)
        self.snapshot.read([(offset, data)])
        return data


class Files:
    """Maps paths to the blobs, versions and tags of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._blobs: dict[str, Blob] = {}
        self._snapshots: OrderedDict[tuple[str, int], Snapshot] = OrderedDict()
        self._times: dict[str, dict[int, float]] = {}
        self._opened: dict[int, OpenVersion] = {}
        self._handles = 0
        self._since = time.time()
        self._pool = ThreadPoolExecutor(4, "penstock-mount")

    def blob(self, name: str) -> Blob:
        with self._lock:
            known = self._blobs.get(name)
        if known is None:
            known = self._store.open(name)
            with self._lock:
                known = self._blobs.setdefault(name, known)
        return known

    def forget(self, name: str) -> None:
        """Forget a removed blob. A new blob may have its name."""
        with self._lock:
            self._blobs.pop(name, None)
            self._times.pop(name, None)
            for key in [key for key in self._snapshots if key[0] == name]:
                del self._snapshots[key]

    def snapshot(self, name: str, version: int) -> Snapshot:
        key = (name, version)
        with self._lock:
            if key in self._snapshots:
                self._snapshots.move_to_end(key)
                return self._snapshots[key]
        made = self.blob(name).snapshot(version)
        with self._lock:
            self._snapshots[key] = made
            while len(self._snapshots) > _KEPT_SNAPSHOTS:
                self._snapshots.popitem(last=False)
        return made

    def time(self, name: str, version: int) -> float:
        """When a version was written. If gc has collected its record: the oldest known time."""
        times = self._times.setdefault(name, {})
        if version not in times:
            times.update({row["version"]: row["time"] for row in self.blob(name).log(max(version, 1))})
        return times.get(version) or min(times.values(), default=self._since)

    def names(self, parts: list[str]) -> list[str]:
        if not parts:
            return [row["name"] for row in self._store.list()]
        if len(parts) == 1:
            return ["latest", "tags", "versions"]
        tags = self.blob(parts[0]).tags
        if parts[1] == "tags":
            return list(tags)
        row = next((row for row in self._store.list() if row["name"] == parts[0]), None)
        if row is None:
            raise Error(f"no blob {parts[0]}", "not_found")
        numbers = set(range(row["first_version"], row["latest_version"] + 1)) | set(tags.values())
        return [str(number) for number in sorted(numbers)]

    def link(self, parts: list[str]) -> str:
        """The target of a link: latest or a tag."""
        blob = self.blob(parts[0])
        if parts[1] == "latest":
            return f"versions/{blob.latest}"
        tags = blob.tags
        if parts[2] not in tags:
            raise Error(f"no tag {parts[2]}", "not_found")
        return f"../versions/{tags[parts[2]]}"

    def open(self, name: str, version: int) -> int:
        node = OpenVersion(self.snapshot(name, version), self._pool)
        with self._lock:
            self._handles += 1
            self._opened[self._handles] = node
            return self._handles

    def node(self, handle: int) -> OpenVersion:
        return self._opened[handle]

    def close(self, handle: int) -> None:
        with self._lock:
            self._opened.pop(handle, None)


def kind_of(parts: list[str]) -> str:
    """The kind of a path, by its form: "folder", "link", "version" or ""."""
    if len(parts) < 2:
        return "folder"
    if parts[1] == "latest":
        return "link" if len(parts) == 2 else ""
    if parts[1] not in ("versions", "tags") or len(parts) > 3:
        return ""
    if len(parts) == 2:
        return "folder"
    if parts[1] == "tags":
        return "link"
    plain = parts[2].isascii() and parts[2].isdecimal() and str(int(parts[2])) == parts[2]
    return "version" if plain and int(parts[2]) < 1 << 63 else ""
