"""Samples as trees of arrays, and their collation into batches."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.error import Error


class Padding(NamedTuple):
    """How arrays of different lengths are padded; see :meth:`penstock.Dataset.pad`."""

    value: Any = 0
    length: int | None = None  #: Length of all arrays. None: that of the longest in the batch.
    multiple: int = 1  #: The length is rounded up to a multiple of this.


def children(node: Any) -> list[tuple[Any, Any]] | None:
    """[(key, child)] of a container, in order. None for a leaf."""
    if isinstance(node, Mapping):
        return list(node.items())
    if isinstance(node, tuple):
        return list(zip(_fields(node), node)) if _fields(node) else list(enumerate(node))
    if dataclasses.is_dataclass(node) and not isinstance(node, type):
        return [(field.name, getattr(node, field.name)) for field in dataclasses.fields(node) if field.init]
    return None


def rebuilt(node: Any, values: Iterable[Any]) -> Any:
    """A container like ``node`` with other children."""
    if isinstance(node, Mapping):
        return dict(zip(node, values))
    if isinstance(node, tuple):
        return type(node)(*values) if _fields(node) else tuple(values)
    names = [field.name for field in dataclasses.fields(node) if field.init]
    return type(node)(**dict(zip(names, values)))


def is_tree(node: Any) -> bool:
    return children(node) is not None


def mapped(function: Callable[[Any], Any], node: Any) -> Any:
    """Applies ``function`` to every leaf, and keeps the containers of ``node``."""
    inner = children(node)
    if inner is None:
        return function(node)
    return rebuilt(node, [mapped(function, child) for _, child in inner])


def leaves(node: Any, path: str = "sample") -> Iterator[tuple[str, Any]]:
    """Yields (name for messages, leaf), in order."""
    inner = children(node)
    if inner is None:
        yield path, node
        return
    for key, child in inner:
        yield from leaves(child, f"{path}[{key!r}]")


class Several(list[Any]):
    """What flat_map() has made of one sample."""


#: The batch of no samples, before it is known what a sample is.
NOTHING = object()


def flattened(samples: list[Any]) -> list[Any]:
    """The samples of a batch, with those that flat_map() has made in place of theirs."""
    if not any(isinstance(sample, Several) for sample in samples):
        return samples
    return [one for sample in samples for one in (sample if isinstance(sample, Several) else [sample])]


def size_bytes(node: Any) -> int:
    """About the memory that a sample takes."""
    if isinstance(node, Several):
        return sum(size_bytes(one) for one in node)
    return sum(
        leaf.nbytes if isinstance(leaf, np.ndarray) else len(leaf) if isinstance(leaf, (str, bytes)) else 8
        for _, leaf in leaves(node)
    )


def copied(node: Any) -> Any:
    """A copy that can be changed without changing ``node``."""
    if isinstance(node, Several):
        return Several(copied(one) for one in node)
    return mapped(lambda leaf: leaf.copy() if isinstance(leaf, np.ndarray) else leaf, node)


def packed(node: Any) -> bytes:
    """The bytes by which cache() keeps a sample in files."""
    return pickle.dumps(node, 5)


def unpacked(content: bytes) -> Any:
    return pickle.loads(content)


def emptied(batch: Any) -> Any:
    """A batch with the structure of ``batch`` and no samples."""
    return mapped(lambda leaf: leaf[:0], batch)


def collate(samples: list[Any], padding: Padding | None = None) -> tuple[Any, int]:
    """(batch of these samples, its size in bytes).

    A batch has the containers of a sample. Arrays and numbers get a new first dimension; strings, bytes and None become
    lists.
    """
    samples = flattened(samples)
    if not samples:
        return NOTHING, 0
    size = [0]
    return _collate(samples, "sample", padding, size), size[0]


def _collate(nodes: list[Any], path: str, padding: Padding | None, size: list[int]) -> Any:
    first = nodes[0]
    inner = children(first)
    if inner is None:
        leaf = _stack(nodes, path, padding)
        size[0] += leaf.nbytes if isinstance(leaf, np.ndarray) else sum(len(x) for x in leaf if x is not None)
        return leaf
    keys = [key for key, _ in inner]
    columns: list[list[Any]] = [[] for _ in keys]
    for node in nodes:
        entries = children(node)
        if entries is None or type(node) is not type(first) or {key for key, _ in entries} != set(keys):
            raise ValueError(f"{path} is {_described(node)} in a batch of {_described(first)}")
        found = dict(entries)
        for column, key in zip(columns, keys):
            column.append(found[key])
    return rebuilt(first, [_collate(c, f"{path}[{k!r}]", padding, size) for k, c in zip(keys, columns)])


def _stack(values: list[Any], path: str, padding: Padding | None) -> Any:
    first = values[0]
    if first is None or isinstance(first, (str, bytes)):
        for value in values:
            if type(value) is not type(first):
                raise ValueError(f"{path} is {_described(value)} in a batch of {_described(first)}")
        return values
    arrays = [_as_array(value, path) for value in values]
    if padding is not None:
        arrays = _padded(arrays, padding, path)
    shape, dtype = arrays[0].shape, arrays[0].dtype
    for array in arrays:
        if array.shape != shape:
            raise ValueError(f"{path} has the shape {array.shape} in a batch of {shape}; use pad(), or make them alike")
        if array.dtype != dtype:
            raise ValueError(f"{path} has elements of {array.dtype} in a batch of {dtype}")
    batch = np.empty((len(arrays), *shape), dtype)
    for place, array in enumerate(arrays):
        batch[place] = array
    return batch


def _as_array(value: Any, path: str) -> NDArray[Any]:
    array = np.asarray(value)
    if array.dtype.hasobject:
        raise ValueError(
            f"{path} is {_described(value)}; a sample holds arrays, numbers, strings, bytes and None, in dicts, tuples "
            "and dataclasses"
        )
    return array


def _padded(arrays: list[NDArray[Any]], padding: Padding, path: str) -> list[NDArray[Any]]:
    if arrays[0].ndim == 0:
        return arrays
    longest = max(len(array) for array in arrays)
    length = longest if padding.length is None else padding.length
    length += -length % padding.multiple
    if longest > length:
        raise ValueError(f"{path} has {longest} elements, more than the {length} that pad() makes")
    padded = []
    for array in arrays:
        full = np.full((length, *array.shape[1:]), padding.value, array.dtype)
        full[: len(array)] = array
        padded.append(full)
    return padded


def _described(node: Any) -> str:
    inner = children(node)
    name = type(node).__name__
    return f"a {name}" if inner is None else f"a {name} of {', '.join(str(key) for key, _ in inner)}"


def _fields(node: tuple[Any, ...]) -> tuple[str, ...]:
    """The names of a named tuple's fields. Empty for other tuples."""
    names: tuple[str, ...] = getattr(node, "_fields", ())
    return names


class ArraySource:
    """A source of samples from a tree of arrays: sample n is row n of each."""

    def __init__(self, arrays: Any) -> None:
        self._arrays = mapped(_read_only, arrays)
        sizes = {path: len(array) for path, array in leaves(self._arrays, "arrays")}
        if not sizes:
            raise Error("from_arrays() got no array")
        if len(set(sizes.values())) > 1:
            raise Error(f"the arrays differ in their first dimension: {sizes}")
        self._size = next(iter(sizes.values()))

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> Any:
        return mapped(lambda array: array[index], self._arrays)

    def digest(self) -> str:
        """A digest of names, types, shapes and some rows: hashing large arrays would take as long as reading them."""
        import hashlib

        total = hashlib.sha256()
        for path, array in leaves(self._arrays, "arrays"):
            total.update(f"{path} {array.dtype} {array.shape} ".encode())
            for row in np.unique(np.linspace(0, max(len(array) - 1, 0), 64).astype(np.int64))[: len(array)]:
                total.update(np.ascontiguousarray(array[row]).tobytes())
        return total.hexdigest()[:32]


def _read_only(leaf: Any) -> NDArray[Any]:
    array = np.asarray(leaf)
    if array.ndim == 0 or array.dtype.hasobject:
        raise Error(f"from_arrays() got {_described(leaf)}; expected arrays with the samples in their first dimension")
    view = array.view()
    view.flags.writeable = False
    return view
