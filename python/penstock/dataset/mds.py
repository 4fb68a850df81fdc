"""MDS shards, as MosaicML's streaming writes them: format version 2, by its documentation.

The package itself is not used: it needs PyTorch, transformers and the clients of five clouds to read a table of offsets.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.dataset.reader import Request, opened
from penstock.error import Error

_WORD_BYTES = 4
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
        for path, shard in zip(self._paths, shards):
            if shard["compression"] and ("://" in path or not os.path.exists(path)):
                raise Error(
                    f"{path} is stored compressed ({shard['compression']}), which loses access to single samples; decompress "
                    "the shards, or write them without compression",
                    "unsupported",
                )
        with ThreadPoolExecutor(how.requests) as pool:
            counts = [int(shard["samples"]) for shard in shards]
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

    def _find(self, at: int) -> tuple[int, int]:
        shard = int(np.searchsorted(self._ends, at, side="right"))
        return shard, at - (int(self._ends[shard - 1]) if shard else 0)


def _offsets(path: str, samples: int, how: Request) -> NDArray[np.uint32]:
    """Of the samples, and of their end."""
    size = (samples + 1) * _WORD_BYTES
    with opened(path, how.storage_options) as file:
        content = file.read(_WORD_BYTES + size)
    table = np.frombuffer(content[: len(content) // _WORD_BYTES * _WORD_BYTES], np.uint32)
    if len(table) != samples + 2 or table[0] != samples or np.any(np.diff(table[1:].astype(np.int64)) < 0):
        raise Error(f"{path} does not begin with the offsets of {samples} samples, which its index promises", "corrupt")
    return table[1:]


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
