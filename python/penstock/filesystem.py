"""Stores as a file system of fsspec: ``penstock://``.

Each blob is a file. ``name`` is its newest version, ``name@3`` version 3, ``name@best`` the version with the tag "best".

>>> import fsspec
>>> with fsspec.open("penstock:///scratch/run7/field@3") as file:  # doctest: +SKIP
...     file.read(16)
>>> fs = fsspec.filesystem("penstock", store="rados://pool/run7")  # doctest: +SKIP
>>> fs.cat_file("field", 0, 16)  # doctest: +SKIP

Needs fsspec, which pandas, xarray, zarr and Hugging Face's datasets install.
"""

from __future__ import annotations

import io
from typing import Any

from fsspec.spec import AbstractFileSystem  # pyright: ignore[reportMissingImports]

from penstock.error import Error
from penstock.store import Blob, Snapshot, Store


class PenstockFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """The blobs of one store as files.

    Parameters
    ----------
    store : str
        URL of the store. In a URL ``penstock:///directory/name`` the directory is the store.
    create : bool
        Make the store if it does not exist.
    """

    protocol = "penstock"
    root_marker = ""
    cachable = False  # versions come and go in other processes

    def __init__(self, store: str | None = None, create: bool = False, **storage_options: Any) -> None:
        super().__init__(store=store, create=create, **storage_options)
        if store is None:
            raise Error("no store was given: expected store=URL, or a URL such as penstock:///scratch/run7/field")
        self.store: Store = Store(store, create=create)

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        # The name of a blob has no slash. What comes before it names the store.
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        return str(path).rpartition("/")[2]

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, Any]:
        directory = path.removeprefix("penstock://").rpartition("/")[0]
        return {"store": f"file://{directory}"} if directory.startswith("/") else {}

    def _blob(self, path: str) -> tuple[Blob, int | None]:
        name, mark, version = self._strip_protocol(path).partition("@")
        blob = self.store.open(name)
        if not mark:
            return blob, None
        if version.isdecimal():
            return blob, int(version)
        tags = blob.tags
        if version not in tags:
            raise Error(f"{self.store.url}, blob {name!r} has no version or tag {version!r}", "not_found")
        return blob, tags[version]

    def _snapshot(self, path: str) -> Snapshot:
        blob, version = self._blob(path)
        return blob.snapshot(version)

    def _writable(self, path: str) -> str:
        name: str = self._strip_protocol(path)
        if "@" in name:
            raise Error(f"{name!r} is a version, and versions never change: expected the name of a blob")
        return name

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        name = self._strip_protocol(path)
        if not name:
            return {"name": "", "size": 0, "type": "directory"}
        snapshot = self._snapshot(path)
        return {"name": name, "size": snapshot.size, "type": "file", "version": snapshot.version}

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        if self._strip_protocol(path):
            found = [self.info(path)]
        else:
            found = [
                {"name": blob["name"], "size": blob["size"], "type": "file", "version": blob["latest_version"]}
                for blob in self.store.list()
            ]
        return found if detail else [one["name"] for one in found]

    def ukey(self, path: str) -> str:
        """Differs between versions."""
        snapshot = self._snapshot(path)
        return f"{self.store.url} {self._strip_protocol(path)} {snapshot.version}"

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        snapshot = self._snapshot(path)
        first, last, _ = slice(start, end).indices(snapshot.size)
        return snapshot.read_bytes(first, max(last - first, 0))

    def _open(self, path: str, mode: str = "rb", block_size: int | None = None, **kwargs: Any) -> Any:
        if mode == "rb":
            snapshot = self._snapshot(path)
            return snapshot.open(block_size) if isinstance(block_size, int) and block_size > 0 else snapshot.open()
        if mode in ("wb", "xb", "ab"):
            return _NewVersion(self.store, self._writable(path), mode)
        raise Error(f"a blob cannot be opened in mode {mode!r}: expected rb, wb, xb or ab")

    def cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        """Clone a version. The copy shares its data with the original."""
        blob, version = self._blob(path1)
        self.store.clone(blob.name, self._writable(path2), version)

    def _rm(self, path: str) -> None:
        self.store.remove(self._writable(path))


class _NewVersion(io.BytesIO):
    """Becomes a version of a blob when it is closed. A blob that does not exist is made, and grows.

    A shorter content than before takes two versions: the write, and the cut.
    """

    def __init__(self, store: Store, name: str, mode: str) -> None:
        super().__init__()
        self._store = store
        self._name = name
        self._appends = mode == "ab"
        self._is_given_up = False
        if mode == "xb" and name in store:
            raise Error(f"{store.url}, blob {name!r} exists already; open it with mode wb to replace it", "exists")

    def __exit__(self, kind: Any, *rest: Any) -> None:
        self._is_given_up = kind is not None
        super().__exit__(kind, *rest)

    def discard(self) -> None:
        """Close without a new version."""
        self._is_given_up = True
        self.close()

    def close(self) -> None:
        if self.closed:
            return
        content = self.getvalue()
        super().close()
        if self._is_given_up:
            return
        blob = self._store.open(self._name) if self._name in self._store else self._store.create(self._name, grows=True)
        if self._appends:
            blob.append(content)
            return
        if content:
            blob.write([(0, content)])
        if blob.size != len(content):
            blob.resize(len(content))
