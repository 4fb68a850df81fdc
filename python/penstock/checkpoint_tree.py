"""Trees of a checkpoint as JSON: what holds what, plain values, and where the arrays are.

None, booleans, strings, integers and finite floats are JSON values. Everything else is an object with one member, whose
name is its kind. Types are named, never stored as code: a restore looks them up among the loaded modules, and imports
nothing.
"""

from __future__ import annotations

import atexit
import dataclasses
import fnmatch
import functools
import heapq
import itertools
import math
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock.checkpoint_random import RngState, RowOfRank
from penstock.error import Error
from penstock.layout import DistArray, Layout

if TYPE_CHECKING:
    from types import ModuleType
    from typing import Literal

    from numpy.typing import NDArray

    from penstock import _penstock
    from penstock.checkpoint_cuda import DeviceCopies
    from penstock.checkpoint_torch import Saved as SavedTensor

    #: (name, element type, layout, memory)
    Saved = tuple[str, str, _penstock.Layout, NDArray[Any] | None]

# Element types that are saved as such. Other types are saved as the bits of an unsigned integer of their size.
_NATIVE = {
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "bfloat16", "float32", "float64", "complex64", "complex128",
}  # fmt: skip
_BITS = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64", 16: "complex128"}

_MAX_DIFFERENCES = 20  # in one error

# Parts of arrays below this are not worth another rank. A quarter of a chunk.
_SHARE_BYTES = 256 << 10


class ArrayInfo(NamedTuple):
    """An array of a checkpoint, without its elements."""

    dtype: str
    shape: tuple[int, ...]
    layout: Layout  #: as it was saved
    nbytes: int


class _Registration(NamedTuple):
    flatten: Callable[[Any], Any]
    unflatten: Callable[[Any], Any]


_registered: dict[type, _Registration] = {
    RngState: _Registration(lambda state: state._saved(), lambda rows: RngState._of_rank(rows, 0))
}


def register_node(kind: type, flatten: Callable[[Any], Any], unflatten: Callable[[Any], Any]) -> None:
    """Teach checkpoints a type of tree node.

    Call it on all ranks, both in the program that saves and in the one that restores. A second call for a type replaces
    the first.

    Parameters
    ----------
    kind : type
        Instances of exactly this type, not of subclasses, are meant.
    flatten : callable
        ``flatten(node)`` returns a tree that a checkpoint can hold, such as a dictionary of arrays.
    unflatten : callable
        ``unflatten(tree)`` returns the node again.
    """
    if not isinstance(kind, type):
        raise Error(f"register_node: kind is {kind!r}; expected a class")
    _registered[kind] = _Registration(flatten, unflatten)


# -- what is a node -----------------------------------------------------------------------------------------------


class _Node(NamedTuple):
    """A container and what it holds."""

    kind: str
    type: type
    items: list[tuple[Any, Any]]  # (key, child)


def _open(node: Any) -> _Node | None:
    """None for leaves."""
    cls = type(node)
    if cls in _registered:
        return _Node("registered", cls, [("", _registered[cls].flatten(node))])
    if cls is np.ndarray or isinstance(node, (DistArray, Layout)):
        return None
    if dataclasses.is_dataclass(cls):
        return _Node("dataclass", cls, [(field.name, getattr(node, field.name)) for field in dataclasses.fields(cls)])
    if isinstance(node, Mapping):
        return _Node("ordereddict" if isinstance(node, OrderedDict) else "dict", cls, list(node.items()))
    if isinstance(node, tuple) and hasattr(cls, "_fields"):
        return _Node("namedtuple", cls, list(zip(cls._fields, node)))
    if isinstance(node, (list, tuple)):
        return _Node("tuple" if isinstance(node, tuple) else "list", cls, list(enumerate(node)))
    return None


def _not_saved(cls: type, name: str) -> bool:
    """Whether a field is configuration, which a tree does not hold: ``pytree_node=False`` of flax."""
    return not next(f for f in dataclasses.fields(cls) if f.name == name).metadata.get("pytree_node", True)


def joined(prefix: str, key: object) -> str:
    """The name of an array in a container."""
    if key == "":
        return prefix
    separator = "" if not prefix or prefix.endswith(":") else "/"
    return f"{prefix}{separator}{key}"


def _type_name(cls: type) -> list[str]:
    return [cls.__module__, cls.__qualname__]


# -- saving -------------------------------------------------------------------------------------------------------


class Shares:
    """Which rank saves which part of the arrays that all ranks have. It follows from their shapes, so all ranks know it."""

    def __init__(self, rank: int, ranks: int, device_copies: DeviceCopies | None = None) -> None:
        self.rank = rank
        self._loads_bytes = [0] * ranks
        self.device_copies = device_copies  #: into which the copies from devices go that are not complete yet

    @property
    def ranks(self) -> int:
        return len(self._loads_bytes)

    def give(self, holders: Sequence[int], size_bytes: int) -> int:
        """Of the ranks that hold something, the one that saves it."""
        owner = min(holders, key=self._loads_bytes.__getitem__)
        self._loads_bytes[owner] += size_bytes
        return owner

    def take(self, array: NDArray[Any]) -> tuple[_penstock.Layout, NDArray[Any] | None]:
        """The layout in which all ranks save an array, and this rank's part: elements that follow each other."""
        ranks = len(self._loads_bytes)
        if ranks == 1:
            return _whole(array.shape, 0, 1), array
        parts = max(1, min(ranks, array.size, array.nbytes // _SHARE_BYTES))
        loads = self._loads_bytes
        owners = range(ranks) if parts == ranks else sorted(heapq.nsmallest(parts, range(ranks), key=loads.__getitem__))
        if parts == 1:
            loads[owners[0]] += array.nbytes
            return _whole(array.shape, owners[0], ranks), array if self.rank == owners[0] else None
        layout, borders = _cut(array.shape, tuple(owners), ranks)
        part = None
        for owner, (begin, end) in zip(owners, itertools.pairwise(borders)):
            loads[owner] += (end - begin) * array.itemsize
            if owner == self.rank:
                row = array.size // array.shape[0]
                rows = np.ascontiguousarray(array[begin // row : -(-end // row)]).reshape(-1)
                part = rows[begin % row :][: end - begin]
        return layout, part


def encode(node: Any, path: str, arrays: list[Saved], shares: Shares) -> Any:
    """The tree as JSON values. Appends its arrays to `arrays`."""
    opened = _open(node)
    if opened is None:
        return _encode_leaf(node, path, arrays, shares)
    kind, cls, children = opened
    if kind in ("dict", "ordereddict"):
        for key, _ in children:
            if not isinstance(key, (str, int)) or isinstance(key, bool):
                raise Error(f"'{path}' has the key {key!r}; expected strings and integers")
    items = []
    for key, child in children:
        try:
            encoded = encode(child, joined(path, key), arrays, shares)
        except Error:
            if kind != "dataclass" or not _not_saved(cls, key):
                raise
            encoded = {"left out": type(child).__name__}
        items.append([key, encoded])
    if kind in ("dict", "ordereddict"):
        return {kind: items}
    if kind in ("list", "tuple"):
        return {kind: [encoded for _, encoded in items]}
    if kind == "registered":
        return {kind: [*_type_name(cls), items[0][1]]}
    return {kind: [*_type_name(cls), items]}


def _jax_leaves(node: Any) -> ModuleType | None:
    """What knows this leaf, if it is one of JAX."""
    jax = sys.modules.get("jax")
    kinds = () if jax is None else (getattr(jax, "Array", ()), getattr(jax, "ShapeDtypeStruct", ()))
    if not isinstance(node, kinds):
        return None
    import penstock.jax.checkpoint

    return penstock.jax.checkpoint


def _torch_leaves(node: Any) -> ModuleType | None:
    """What knows this leaf, if it is a tensor of PyTorch."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(node, getattr(torch, "Tensor", ())):
        return None
    import penstock.checkpoint_torch

    return penstock.checkpoint_torch


def _is_on_device(node: Any) -> bool:
    """Whether it is an array in memory that NumPy cannot read, of another library than PyTorch and JAX."""
    if isinstance(node, np.ndarray) or not hasattr(node, "__dlpack_device__"):
        return False
    if _torch_leaves(node) is not None or _jax_leaves(node) is not None:
        return False
    cpu, pinned = 1, 3  # of dlpack.h
    return int(node.__dlpack_device__()[0]) not in (cpu, pinned)


def _host_or_tensor(node: Any, path: str) -> Any:
    """A tensor of PyTorch where that is loaded, which copies it through pinned memory; else what CuPy copies itself."""
    if "torch" in sys.modules:
        import penstock.checkpoint_torch

        return penstock.checkpoint_torch.from_device(node)
    if hasattr(node, "get"):
        return node.get()
    raise Error(
        f"'{path}' is a {type(node).__name__} on a device that NumPy cannot read; import torch, which can, or pass a NumPy array"
    )


def _encode_leaf(node: Any, path: str, arrays: list[Saved], shares: Shares) -> Any:
    if type(node) is np.ndarray:  # most leaves; nothing below has to look at them
        return _encode_array(node, path or "tree", arrays, shares)
    if node is None or isinstance(node, (bool, str)):
        return node
    if isinstance(node, np.generic):
        return {"scalar": [_described(node.dtype, path), node.tobytes().hex()]}
    if isinstance(node, int):
        return int(node)
    if isinstance(node, float):
        return float(node) if math.isfinite(node) else {"float": repr(float(node))}
    if isinstance(node, complex):
        return {"complex": [repr(node.real), repr(node.imag)]}
    if isinstance(node, (bytes, bytearray)):
        return {"bytes": bytes(node).hex()}
    if isinstance(node, RowOfRank):
        arrays.append((path, "uint8", _rows(shares.ranks, node.row.size), node.row))
        return {"distributed": [path, node.row.dtype.str]}
    if _is_on_device(node):
        node = _host_or_tensor(node, path)
    if (leaves_of_torch := _torch_leaves(node)) is not None:
        return _encode_tensor(leaves_of_torch.saved(node, path or "tree", shares), path or "tree", arrays, shares)
    if (leaves_of_jax := _jax_leaves(node)) is not None:
        node = leaves_of_jax.saved(node, path or "tree", shares)
    if isinstance(node, DistArray):
        if node.rank != shares.rank and node.layout.local_size(shares.rank) != node.local.size:
            raise Error(f"'{path}' is the part of rank {node.rank}, saved by rank {shares.rank}")
        bits, dtype = bits_of(node.local.reshape(-1, order="A"))
        if bits is None:
            raise Error(f"'{path}' has elements of {node.dtype}, which a DistArray cannot save")
        arrays.append((path or "tree", dtype, node.layout._native, bits))
        return {"distributed": [path or "tree", _described(node.dtype, path)]}
    if isinstance(node, np.ndarray) or hasattr(node, "__dlpack__") or hasattr(node, "__array__"):
        return _encode_array(node, path or "tree", arrays, shares)
    raise Error(
        f"'{path}' is a {type(node).__name__}, which cannot be saved; expected arrays, numbers, strings, bytes, None, and "
        "dictionaries, lists, tuples, named tuples, dataclasses and registered nodes (penstock.register_node) of them"
    )


def _encode_array(node: Any, path: str, arrays: list[Saved], shares: Shares) -> Any:
    array = np.asarray(node) if isinstance(node, np.ndarray) or hasattr(node, "__array__") else np.from_dlpack(node)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    described = _described(array.dtype, path)
    shape = array.shape
    dtype, is_same = _bits_type(array.dtype)
    if not dtype:  # elements of an odd size: strings, long doubles
        array, dtype, is_same = np.ascontiguousarray(array).reshape(-1).view(np.uint8), "uint8", True
    layout, part = shares.take(array)
    if part is not None:
        part = np.ascontiguousarray(part).reshape(-1)
        part = part if is_same else part.view(dtype)
    arrays.append((path, dtype, layout, part))
    return {"array": [path, described, shape]}


def _encode_tensor(tensor: SavedTensor, path: str, arrays: list[Saved], shares: Shares) -> Any:
    elements, shape = tensor.elements, list(tensor.elements.shape)
    if elements.dtype.name == tensor.dtype:
        described, dtype = elements.dtype.str, _bits_type(elements.dtype)[0]
    else:
        described = tensor.dtype
        dtype = described if described in _NATIVE else _BITS[elements.itemsize]
    if tensor.layout is not None:
        arrays.append((path, dtype, tensor.layout._native, bits_of(elements.reshape(-1))[0]))
        return {"distributed": [path, described]}
    layout, part = shares.take(elements)
    bits = None if part is None else bits_of(np.ascontiguousarray(part).reshape(-1))[0]
    arrays.append((path, dtype, layout, bits))
    return {"array": [path, described, shape]}


def bits_of(flat: NDArray[Any]) -> tuple[NDArray[Any] | None, str]:
    """The elements as a type that is saved, and its name; None for sizes that none has."""
    dtype, is_same = _bits_type(flat.dtype)
    return (None, "") if not dtype else (flat if is_same else flat.view(dtype), dtype)


# NumPy computes a type's name anew each time, which took most of the time that a tree of many small arrays did.
@functools.lru_cache(maxsize=256)
def _bits_type(dtype: np.dtype[Any]) -> tuple[str, bool]:
    """The type that elements are saved as, empty if there is none, and whether it is their own."""
    if dtype.name in _NATIVE and dtype.isnative:
        return dtype.name, True
    return _BITS.get(dtype.itemsize, ""), False


@functools.lru_cache(maxsize=1024)
def _whole(shape: tuple[int, ...], owner: int, ranks: int) -> _penstock.Layout:
    return Layout.whole(shape, owner, ranks)._native


@functools.lru_cache(maxsize=64)
def _rows(ranks: int, length: int) -> _penstock.Layout:
    """A row of each rank."""
    return Layout.grid(range(ranks + 1), [0, length], range(ranks), ranks=ranks)._native


@functools.lru_cache(maxsize=1024)
def _cut(shape: tuple[int, ...], owners: tuple[int, ...], ranks: int) -> tuple[_penstock.Layout, list[int]]:
    """Cut into nearly equal parts in the order of the elements, and where each part begins, and the last one ends.

    The blocks of a part follow each other: each row of the dimensions before `axis`, of which there are few, is cut into
    several blocks along it.
    """
    parts = len(owners)
    axis = next((d for d in range(len(shape)) if math.prod(shape[: d + 1]) >= 4 * parts), len(shape) - 1)
    rows = math.prod(shape[:axis])
    cuts = parts if rows == 1 else min(shape[axis], -(-4 * parts // rows))
    columns = [shape[axis] * cut // cuts for cut in range(cuts + 1)]
    blocks = rows * cuts
    first = [-(-part * blocks // parts) for part in range(parts + 1)]  # block of each part
    splits = (
        [list(range(length + 1)) for length in shape[:axis]] + [columns] + [[0, length] for length in shape[axis + 1 :]]
    )
    of_blocks = [owner for owner, (begin, end) in zip(owners, itertools.pairwise(first)) for _ in range(begin, end)]
    inner = math.prod(shape[axis + 1 :])
    borders = [(block // cuts * shape[axis] + columns[block % cuts]) * inner for block in first]
    return Layout.grid(*splits, of_blocks, ranks=ranks)._native, borders


for _cache in (_whole, _rows, _cut):
    atexit.register(_cache.cache_clear)  # nanobind reports objects that outlive it


def _described(dtype: np.dtype[Any], path: str) -> str:
    """How the manifest calls a type: as NumPy does, but by name for those that NumPy does not know."""
    if not (name := _name_of(dtype)):
        raise Error(f"'{path}' has elements of {dtype}; expected numbers, booleans, dates or strings of fixed length")
    return name


@functools.lru_cache(maxsize=256)
def _name_of(dtype: np.dtype[Any]) -> str:
    """Empty if no manifest has elements of this type."""
    if dtype.hasobject or dtype.names is not None:
        return ""
    return dtype.str if is_numpys(dtype) else dtype.name


@functools.lru_cache(maxsize=256)
def is_numpys(dtype: np.dtype[Any]) -> bool:
    """Whether NumPy itself knows the type: not bfloat16 and float8, which ml_dtypes adds."""
    try:
        return np.dtype(dtype.str) == dtype
    except TypeError:
        return False


def _is_numpys(described: str) -> bool:
    return not described[:1].isalpha()


def dtype_of(described: str) -> np.dtype[Any]:
    """The element type that a manifest calls so."""
    if _is_numpys(described):
        return np.dtype(described)
    try:
        import ml_dtypes
    except ImportError:
        raise Error(
            f"the checkpoint has elements of {described}, which NumPy does not know; install ml_dtypes", "unsupported"
        ) from None
    known = getattr(ml_dtypes, described, None)
    if known is None:
        raise Error(
            f"the checkpoint has elements of {described}, which this ml_dtypes does not know; install a newer one",
            "unsupported",
        )
    dtype: np.dtype[Any] = np.dtype(known)
    return dtype


def _dtype_name(described: str) -> str:
    return np.dtype(described).name if _is_numpys(described) else described


# -- what was saved -----------------------------------------------------------------------------------------------


class _Encoded(NamedTuple):
    """A container as it was saved."""

    kind: str
    type_name: tuple[str, str]  # of module and qualified name; empty for dictionaries, lists and tuples
    items: list[tuple[Any, Any]]  # (key, JSON value)


def _open_encoded(node: Any) -> _Encoded | None:
    """None for leaves."""
    if not isinstance(node, dict):
        return None
    ((kind, value),) = node.items()
    if kind in ("dict", "ordereddict"):
        return _Encoded(kind, ("", ""), [(key, child) for key, child in value])
    if kind in ("list", "tuple"):
        return _Encoded(kind, ("", ""), list(enumerate(value)))
    if kind in ("namedtuple", "dataclass"):
        return _Encoded(kind, (value[0], value[1]), [(key, child) for key, child in value[2]])
    if kind == "registered":
        return _Encoded(kind, (value[0], value[1]), [("", value[2])])
    return None


def _array_of(node: Any) -> tuple[str, str, Any] | None:
    """(name, described type, shape or None for that of the saved layout) of an array; None for other leaves."""
    if isinstance(node, dict):
        ((kind, value),) = node.items()
        if kind == "array":
            return value[0], value[1], tuple(value[2])
        if kind == "distributed":
            return value[0], value[1], None
    return None


def leaves(node: Any, path: str) -> Iterator[tuple[str, Any]]:
    """(name, JSON value) of all leaves."""
    opened = _open_encoded(node)
    if opened is None:
        yield path, node
        return
    for key, child in opened.items:
        yield from leaves(child, joined(path, key))


def array_leaves(content: Mapping[str, Any]) -> Iterator[tuple[str, str, tuple[int, ...] | None]]:
    """(name, described type, shape or None for that of the saved layout) of all arrays of a checkpoint's metadata."""
    for key, prefix in (("tree", ""), ("dataset", "dataset:")):
        for _, leaf in leaves(content[key], prefix) if key in content else ():
            if (array := _array_of(leaf)) is not None:
                yield array


def summary(node: Any, layouts: Mapping[str, Layout]) -> tuple[Any, dict[str, ArrayInfo]]:
    """The tree of dictionaries and lists, with an ArrayInfo for each array; and these by name."""
    found: dict[str, ArrayInfo] = {}

    def build(node: Any) -> Any:
        opened = _open_encoded(node)
        if opened is not None:
            if opened.kind in ("list", "tuple"):
                items = [build(child) for _, child in opened.items]
                return tuple(items) if opened.kind == "tuple" else items
            if opened.kind == "registered":
                return build(opened.items[0][1])
            return {key: build(child) for key, child in opened.items}
        array = _array_of(node)
        if array is None:
            return None if _left_out(node) else _decode_plain(node)
        name, described, shape = array
        layout = layouts[name]
        elements = math.prod(layout.shape if shape is None else shape)
        size = np.dtype(described).itemsize if _is_numpys(described) else dtype_of(described).itemsize
        info = ArrayInfo(_dtype_name(described), layout.shape if shape is None else shape, layout, elements * size)
        found[name] = info
        return info

    return build(node), found


def _left_out(node: Any) -> str | None:
    return node["left out"] if isinstance(node, dict) and "left out" in node else None


def matches(name: str, patterns: list[str] | None) -> bool:
    return patterns is None or any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


# -- comparing with what is wanted --------------------------------------------------------------------------------

_ANYTHING: Any = object()


def _leaf_text(node: Any) -> str:
    array = _array_of(node)
    if array is None:
        left = _left_out(node)
        return f"a {left} that was not saved" if left else f"the value {_decode_plain(node)!r}"
    _, described, shape = array
    return f"an array of {_dtype_name(described)}" + ("" if shape is None else f" {list(shape)}")


def _like_text(like: Any) -> str:
    opened = _open(like)
    if opened is not None:
        return _items_text(opened.kind, opened.type.__qualname__, [key for key, _ in opened.items])
    if isinstance(like, Layout):
        return f"a layout {list(like.shape)}"
    if isinstance(like, DistArray):
        return f"an array of {_type_of(like)} {list(like.layout.shape)}"
    if hasattr(like, "shape") and hasattr(like, "dtype"):
        return f"an array of {_type_of(like)} {list(like.shape)}"
    return f"the value {like!r}"


def _items_text(kind: str, name: str, keys: list[Any]) -> str:
    if kind in ("list", "tuple"):
        return f"a {kind} of {len(keys)}"
    if kind == "registered":
        return f"a node of type {name}"
    shown = ", ".join(map(repr, keys[:8])) + (", …" if len(keys) > 8 else "")
    return f"{'a dictionary' if kind in ('dict', 'ordereddict') else name} with {shown or 'nothing'}"


def _type_of(like: Any) -> str:
    return like.dtype.name if isinstance(like.dtype, np.dtype) else str(like.dtype).removeprefix("torch.")


class Comparison:
    """What a tree `like` asks of a saved tree: layouts and memory of arrays, and the differences."""

    def __init__(self, patterns: list[str] | None, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.layouts: dict[str, Layout] = {}
        self.differences: list[str] = []
        self._patterns = patterns
        self._shapes = shapes

    def compare(self, node: Any, like: Any, path: str) -> None:
        saved, wanted = _open_encoded(node), _open(like)
        if saved is None and wanted is None:
            self._compare_leaves(node, like, path)
        elif _is_rng_state(saved) and isinstance(like, RngState):
            pass  # of whatever generators there were
        elif saved is None or wanted is None or not _compatible(saved, wanted):
            text = _leaf_text(node) if saved is None else self._saved_text(saved)
            if matches(path, self._patterns) or saved is not None:
                self._differ(path, text, _like_text(like))
        else:
            for (key, child), one in zip(saved.items, _paired(saved, wanted)):
                self.compare(child, one, joined(path, key))

    def check(self) -> None:
        if not self.differences:
            return
        shown = self.differences[:_MAX_DIFFERENCES]
        more = len(self.differences) - len(shown)
        raise Error(
            "the saved tree is not like `like`:\n  "
            + "\n  ".join(shown)
            + (f"\n  and {more} more differences" if more else "")
        )

    def _saved_text(self, saved: _Encoded) -> str:
        return _items_text(saved.kind, saved.type_name[1], [key for key, _ in saved.items])

    def _differ(self, path: str, saved: str, wanted: str) -> None:
        self.differences.append(f"'{path}': saved was {saved}; `like` has {wanted}")

    def _compare_leaves(self, node: Any, like: Any, path: str) -> None:
        if not matches(path or "tree", self._patterns):
            return
        array = _array_of(node)
        is_array = isinstance(like, (DistArray, Layout)) or (
            hasattr(like, "shape") and hasattr(like, "dtype") and not isinstance(like, np.generic)
        )
        if _left_out(node):
            return  # `like` gives the value
        if (array is None) != (not is_array):
            self._differ(path, _leaf_text(node), _like_text(like))
            return
        if array is None:
            return
        name, described, shape = array
        shape = self._shapes[name] if shape is None else shape
        layout = _layout_of(like)
        wanted_shape = tuple(like.shape)
        wanted_type = None if isinstance(like, Layout) else _type_of(like)
        if wanted_shape != tuple(shape) or wanted_type not in (None, _dtype_name(described)):
            saved = f"an array of {_dtype_name(described)} {list(shape)}"
            self._differ(path, saved, _like_text(like))
        elif layout is not None:
            self.layouts[name] = layout


def _is_rng_state(saved: _Encoded | None) -> bool:
    return saved is not None and list(saved.type_name) == _type_name(RngState)


def _layout_of(like: Any) -> Layout | None:
    if isinstance(like, (Layout, DistArray)):
        return like if isinstance(like, Layout) else like.layout
    known = _torch_leaves(like) or _jax_leaves(like)
    return None if known is None else known.layout(like)


def _compatible(saved: _Encoded, wanted: _Node) -> bool:
    """Whether the items of the one can become items of the other: by position, or by equal names."""
    if saved.kind == "registered" or wanted.kind == "registered":
        return saved.kind == wanted.kind
    by_position = {"list", "tuple", "namedtuple"}
    if saved.kind in ("list", "tuple") or wanted.kind in ("list", "tuple"):
        return {saved.kind, wanted.kind} <= by_position and len(saved.items) == len(wanted.items)
    return {key for key, _ in saved.items} == {key for key, _ in wanted.items}


def _paired(saved: _Encoded, wanted: _Node) -> list[Any]:
    """The children of `wanted` in the order of those of `saved`."""
    if saved.kind in ("list", "tuple") or wanted.kind in ("list", "tuple", "registered"):
        return [child for _, child in wanted.items]
    by_key = dict(wanted.items)
    return [by_key[key] for key, _ in saved.items]


# -- restoring ----------------------------------------------------------------------------------------------------


class Restorer:
    """Makes a tree of what was saved. `arrays`: (type, layout, memory, wanted) by name, of those that were read."""

    def __init__(
        self,
        arrays: Mapping[str, tuple[str, Layout, NDArray[Any] | None, Any]],
        rank: int,
        patterns: list[str] | None = None,
    ) -> None:
        self._arrays = arrays
        self._rank = rank
        self._patterns = patterns

    def restore(self, node: Any, path: str, like: Any = _ANYTHING) -> Any:
        saved = _open_encoded(node)
        if saved is None:
            if like is not _ANYTHING and not matches(path or "tree", self._patterns):
                return like
            left = _left_out(node)
            if left is None:
                leaves_of_torch = None if like is _ANYTHING else _torch_leaves(like)
                if leaves_of_torch is not None:
                    return leaves_of_torch.made(like, self.leaf(node, as_bits=True))
                leaves_of_jax = None if like is _ANYTHING else _jax_leaves(like)
                return self.leaf(node) if leaves_of_jax is None else leaves_of_jax.made(like, self.leaf(node))
            if like is _ANYTHING:
                raise Error(f"'{path}', a {left}, was not saved; pass like= with a tree that has it")
            return like
        if _is_rng_state(saved):
            return RngState._of_rank(self.restore(saved.items[0][1], path), self._rank)
        wanted = None if like is _ANYTHING else _open(like)
        if wanted is None:
            children = [self.restore(child, joined(path, key)) for key, child in saved.items]
            return self._made_as_saved(saved, children, path)
        children = [
            self.restore(child, joined(path, key), one)
            for (key, child), one in zip(saved.items, _paired(saved, wanted))
        ]
        return _made(wanted.kind, wanted.type, [key for key, _ in saved.items], children)

    def selected(self, node: Any) -> dict[str, Any]:
        """The leaves that the patterns match, by name."""
        return {
            path or "tree": self.leaf(leaf)
            for path, leaf in leaves(node, "")
            if matches(path or "tree", self._patterns) and _left_out(leaf) is None
        }

    def _made_as_saved(self, saved: _Encoded, children: list[Any], path: str) -> Any:
        keys = [key for key, _ in saved.items]
        if not saved.type_name[0]:
            plain: type = {"dict": dict, "ordereddict": OrderedDict, "list": list, "tuple": tuple}[saved.kind]
            return _made(saved.kind, plain, keys, children)
        cls: Any = _loaded_type(saved, path)
        if saved.kind != "registered":
            names = list(cls._fields) if saved.kind == "namedtuple" else [f.name for f in dataclasses.fields(cls)]
            if set(names) != set(keys):
                raise Error(
                    f"'{path}': {saved.type_name[1]} was saved with the fields {keys}; the class has {names} now. Pass "
                    "like=, or restore with the class as it was"
                )
        return _made(saved.kind, cls, keys, children)

    def leaf(self, node: Any, as_bits: bool = False) -> Any:
        """`as_bits`: elements of types that NumPy does not know as integers of their size."""
        array = _array_of(node)
        if array is None:
            return _decode_plain(node)
        name, described, shape = array
        saved_as, layout, memory, wanted = self._arrays[name]
        if as_bits and not _is_numpys(described):
            dtype = np.dtype("uint16" if saved_as == "bfloat16" else saved_as)
        else:
            dtype = dtype_of(described)
        if isinstance(wanted, DistArray):
            if wanted.dtype != dtype:
                raise Error(f"'{name}' was saved with elements of {dtype}, the DistArray to fill has {wanted.dtype}")
            return wanted
        if memory is None:
            raise Error(f"'{name}' has no memory, and no DistArray to fill", "internal")
        flat = memory.view(dtype)
        order: Literal["C", "F"] = "C" if layout.storage == "row" else "F"
        if wanted is not None:
            return DistArray(wanted, flat.reshape(layout.local_shape(self._rank), order=order), self._rank)
        return flat.reshape(layout.shape if shape is None else shape, order=order)


def _made(kind: str, cls: Any, keys: list[Any], children: list[Any]) -> Any:
    if kind == "registered":
        return _registered[cls].unflatten(children[0])
    if kind == "namedtuple":
        by_name = dict(zip(keys, children))
        by_position = bool(keys) and not isinstance(keys[0], str)
        return tuple.__new__(cls, children if by_position else [by_name[name] for name in cls._fields])
    if kind == "dataclass":
        # As copy and pickle do: no __init__, which may take other arguments or compute anew. Frozen ones too.
        node = cls.__new__(cls)
        for key, child in zip(keys, children):
            object.__setattr__(node, key, child)
        return node
    if kind in ("dict", "ordereddict"):
        return cls(zip(keys, children)) if cls in (dict, OrderedDict) else dict(zip(keys, children))
    return cls(children) if cls in (list, tuple) else (tuple if kind == "tuple" else list)(children)


def _loaded_type(saved: _Encoded, path: str) -> type:
    """The class with this name in a loaded module. Nothing is imported, and no code of the module runs."""
    module, qualified = saved.type_name
    found: Any = sys.modules.get(module)
    for part in qualified.split("."):
        found = None if found is None else vars(found).get(part) if hasattr(found, "__dict__") else None
    what = {"namedtuple": "named tuple", "dataclass": "dataclass", "registered": "registered node"}[saved.kind]
    if not isinstance(found, type):
        raise Error(
            f"'{path}' was saved as the {what} {module}.{qualified}, which is not loaded; import {module} before you "
            "restore, or pass like= with a tree that has the type for it",
            "not_found",
        )
    fits = {
        "namedtuple": issubclass(found, tuple) and hasattr(found, "_fields"),
        "dataclass": dataclasses.is_dataclass(found),
        "registered": found in _registered,
    }[saved.kind]
    if not fits:
        hint = "call penstock.register_node for it" if saved.kind == "registered" else "pass like="
        raise Error(f"'{path}' was saved as the {what} {module}.{qualified}, which is no {what} now; {hint}")
    return found


def check_types(node: Any, path: str) -> None:
    """Raises what `Restorer.restore` would for a type that is not loaded."""
    opened = _open_encoded(node)
    if opened is None:
        return
    if opened.type_name[0]:
        _loaded_type(opened, path)
    for key, child in opened.items:
        check_types(child, joined(path, key))


def _decode_plain(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    ((kind, value),) = node.items()
    if kind == "float":
        return float(value)
    if kind == "complex":
        return complex(float(value[0]), float(value[1]))
    if kind == "bytes":
        return bytes.fromhex(value)
    if kind == "scalar":
        return np.frombuffer(bytes.fromhex(value[1]), dtype_of(value[0]))[0]
    raise Error(
        f"the checkpoint has a value of kind '{kind}', which this Penstock does not know; use a newer one",
        "unsupported",
    )


def flatten_layouts(layouts: Any, path: str, to: dict[str, Any]) -> None:
    """Layouts by name, of a tree of layouts."""
    if isinstance(layouts, Mapping):
        for key, value in layouts.items():
            flatten_layouts(value, joined(path, key), to)
    elif isinstance(layouts, (list, tuple)):
        for index, value in enumerate(layouts):
            flatten_layouts(value, joined(path, index), to)
    elif layouts is not None:
        to[path or "tree"] = layouts
