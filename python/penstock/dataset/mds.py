"""MDS shards, as MosaicML's streaming writes them: format version 2, by its documentation.

The package itself is not used: it needs PyTorch, transformers and the clients of five clouds to read a table of offsets.
"""

from __future__ import annotations

import bz2
import functools
import gzip
import hashlib
import importlib
import importlib.util
import io
import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.dataset.reader import Reader, Request, UrlList, opened
from penstock.dataset.tables import GroupSource
from penstock.error import Error

_WORD_BYTES = 4
_FILES: dict[str, Callable[[Any], Any]] = {"gz": lambda file: gzip.GzipFile(fileobj=file), "bz2": bz2.BZ2File}
#: MDS's name → Arrow's.
_ARROW_CODECS = {"zstd": "zstd", "br": "brotli", "snappy": "snappy"}
_CODECS = (*_FILES, *_ARROW_CODECS)
_ARRAY_DTYPES = {
    8: "uint8",
    9: "int8",
    16: "uint16",
    17: "int16",
    18: "float16",
    32: "uint32",
    33: "int32",
    34: "float32",
    64: "uint64",
    65: "int64",
    66: "float64",
}


class MdsShards:
    """Where the samples of a folder of shards are; and how their bytes become trees."""

    def __init__(self, folder: str, split: str | None, columns: Sequence[str] | None, how: Request) -> None:
        place = "/".join([folder.rstrip("/"), *([split] if split else [])])
        try:
            with opened(f"{place}/index.json", how.storage_options) as file:
                index = json.load(file)
            shards = index["shards"] if index["version"] == 2 else None
        except (KeyError, TypeError, ValueError) as error:
            raise Error(f"{place}/index.json is no index of MDS shards", cause=repr(error)) from None
        if shards is None:
            raise Error(f"{place}/index.json has version {index['version']}; expected 2", "unsupported")
        self._decode = [_decoder(shard, columns, place) for shard in shards]
        self._paths = [f"{place}/{shard['raw_data']['basename']}" for shard in shards]
        self._counts = counts = [int(shard["samples"]) for shard in shards]
        self._sizes = [int(shard["raw_data"]["bytes"]) for shard in shards]
        self._codecs = [""] * len(shards)
        for at, (path, shard) in enumerate(zip(self._paths, shards)):
            # Its name may go with a level: zstd:7. A shard that was decompressed lies beside the index.
            if shard["compression"] and ("://" in path or not os.path.exists(path)):
                self._codecs[at] = shard["compression"].partition(":")[0]
                _check_codec(self._codecs[at], path)
                zipped = (shard.get("zip_data") or {}).get("basename")
                if zipped is None:
                    raise Error(f"{place}/index.json does not say where the compressed {path} is", "corrupt")
                self._paths[at] = f"{place}/{zipped}"
        self.compressed: bool = any(self._codecs)
        if not self.compressed:
            with ThreadPoolExecutor(how.requests) as pool:
                self._offsets = list(pool.map(lambda path, n: _offsets(path, n, how), self._paths, counts))
        self._ends = np.cumsum(counts, dtype=np.int64)
        described = [(shard["raw_data"]["basename"], shard["raw_data"]["bytes"], shard["samples"]) for shard in shards]
        self.digest: str = hashlib.sha256(repr((described, columns)).encode()).hexdigest()[:32]

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def __getitem__(self, at: int, /) -> tuple[bytes, int, int, int]:
        shard, sample = self._find(at)
        begin, end = (int(offset) for offset in self._offsets[shard][sample : sample + 2])
        return os.fsencode(self._paths[shard]), begin, end - begin, 0

    def tree(self, at: int, data: Any) -> dict[str, Any]:
        """Sample ``at``, from its bytes."""
        return self._decode[self._find(at)[0]](memoryview(data))

    def groups(self, how: Request) -> GroupSource:
        """The same samples from shards that are read whole, since they are compressed."""
        reader = Reader(UrlList([os.fsencode(path) for path in self._paths]), how)
        groups = [(samples, functools.partial(self._load, reader, shard)) for shard, samples in enumerate(self._counts)]
        return GroupSource(groups, self.digest, self._name)

    def _load(self, reader: Reader, shard: int) -> Callable[[int], dict[str, Any]]:
        path, codec, size = self._paths[shard], self._codecs[shard], self._sizes[shard]
        content = memoryview(reader.read(shard))
        try:
            content = memoryview(_decompressed(codec, content, size)) if codec else content
        except Exception as error:
            raise ValueError(f"{path} cannot be decompressed: {error}") from error
        if len(content) != size:
            raise ValueError(f"{path} holds {len(content)} bytes, and its index promises {size}")
        offsets = _checked_offsets(path, content, self._counts[shard]).tolist()
        if offsets[-1] > size:
            raise ValueError(f"{path} ends at {size} bytes, before its last sample, which ends at {offsets[-1]}")
        decode = self._decode[shard]
        return lambda sample: decode(content[offsets[sample] : offsets[sample + 1]])

    def _name(self, at: int) -> str:
        shard, sample = self._find(at)
        return f"{self._paths[shard]} sample {sample}"

    def _find(self, at: int) -> tuple[int, int]:
        shard = int(np.searchsorted(self._ends, at, side="right"))
        return shard, at - (int(self._ends[shard - 1]) if shard else 0)


def _offsets(path: str, samples: int, how: Request) -> NDArray[np.uint32]:
    """Of the samples, and of their end."""
    with opened(path, how.storage_options) as file:
        return _checked_offsets(path, file.read(_table_bytes(samples)), samples)


def _table_bytes(samples: int) -> int:
    return (samples + 2) * _WORD_BYTES


def _checked_offsets(path: str, content: Any, samples: int) -> NDArray[np.uint32]:
    content = content[: _table_bytes(samples)]
    table = np.frombuffer(content[: len(content) // _WORD_BYTES * _WORD_BYTES], np.uint32)
    if len(table) != samples + 2 or table[0] != samples or np.any(np.diff(table[1:].astype(np.int64)) < 0):
        raise Error(f"{path} does not begin with the offsets of {samples} samples, which its index promises", "corrupt")
    return table[1:]


def _check_codec(codec: str, path: str) -> None:
    if codec not in _CODECS:
        raise Error(
            f"{path} is compressed by {codec!r}; Penstock reads {', '.join(_CODECS)}; decompress the shards",
            "unsupported",
        )
    if codec in _ARROW_CODECS and importlib.util.find_spec("pyarrow") is None:
        raise Error(
            f"{path} is compressed by {codec}, which needs pyarrow; pip install 'penstock[tables]'", "unsupported"
        )


def _decompressed(codec: str, content: memoryview, size: int) -> Any:
    """At most ``size`` + 1 bytes, so that a damaged shard takes no more memory than a whole one."""
    if codec in _ARROW_CODECS:
        return importlib.import_module("pyarrow").Codec(_ARROW_CODECS[codec]).decompress(content, size)
    with _FILES[codec](io.BytesIO(content)) as file:
        return file.read(size + 1)


def _decoder(shard: dict[str, Any], wanted: Sequence[str] | None, place: str) -> Callable[[memoryview], dict[str, Any]]:
    names, encodings = shard["column_names"], shard["column_encodings"]
    sizes: list[int | None] = shard["column_sizes"]
    missing = [name for name in wanted or () if name not in names]
    if missing:
        raise Error(f"the shards of {place} have no column {missing[0]!r}, only {', '.join(names)}", "not_found")
    decode = [_column(name, kind) if wanted is None or name in wanted else None for name, kind in zip(names, encodings)]

    def tree(data: memoryview) -> dict[str, Any]:
        begin, own = 0, []
        for size in sizes:
            if not size:
                size = int.from_bytes(data[begin : begin + _WORD_BYTES], "little")
                begin += _WORD_BYTES
            own.append(size)
        if begin + sum(own) != len(data):
            raise ValueError(f"it holds {len(data)} bytes, and its columns {begin + sum(own)}")
        sample = {}
        for name, size, value in zip(names, own, decode):
            if value is not None:
                sample[name] = value(data[begin : begin + size])
            begin += size
        return sample

    return tree


def _column(name: str, encoding: str) -> Callable[[memoryview], Any]:
    kind, _, details = encoding.partition(":")
    if kind == "ndarray":
        return _array(*details.split(":")) if details else _array()
    if kind in _SCALARS:
        dtype = np.dtype(kind if kind != "int" else "int64")
        return lambda data: np.frombuffer(data, dtype)[0]
    if encoding in _VALUES:
        return _VALUES[encoding]
    raise Error(
        f"the column {name!r} is encoded as {encoding!r}, which Penstock does not read"
        + (" (it would run code of the shard)" if encoding == "pkl" else "")
        + "; name the other columns by columns=",
        "unsupported",
    )


def _array(dtype: str = "", shape: str = "") -> Callable[[memoryview], Any]:
    fixed = tuple(int(extent) for extent in shape.split(",")) if shape else None

    def value(data: memoryview) -> NDArray[Any]:
        at, kind, extents = 0, dtype, fixed
        if not kind:
            kind, at = _ARRAY_DTYPES[data[0]], 1
        if extents is None:
            dims, width = data[at] >> 2, 1 << data[at] % 4
            extents = tuple(np.frombuffer(data[at + 1 : at + 1 + dims * width], f"uint{8 * width}").tolist())
            at += 1 + dims * width
        return np.frombuffer(data[at:], kind).reshape(extents).copy()

    return value


def _pixels(data: memoryview) -> NDArray[np.uint8]:
    width, height, mode = np.frombuffer(data[:12], np.uint32).tolist()
    return np.frombuffer(data[12 + mode :], np.uint8).reshape(height, width, -1).copy()


_SCALARS = {"int", *_ARRAY_DTYPES.values()}
_VALUES: dict[str, Callable[[memoryview], Any]] = {
    "bytes": bytes,
    "jpeg": bytes,
    "png": bytes,
    "str": lambda data: str(data, "utf-8"),
    "str_int": lambda data: int(bytes(data)),
    "str_float": lambda data: float(bytes(data)),
    "str_decimal": lambda data: str(data, "utf-8"),
    "json": lambda data: json.loads(bytes(data)),
    "pil": _pixels,
}
