"""What differs between two checkpoints of one place."""

from __future__ import annotations

import glob
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from penstock.checkpoint import ArrayInfo, Checkpointer
from penstock.checkpoint_tree import bits_of, joined

_BLOCK = 1 << 20  # elements that are compared at once; bounds the memory beside the two arrays


class Difference(NamedTuple):
    """One leaf that is not equal in both."""

    name: str
    kind: str  #: "added", "removed", "type" (shape, element type, array or value), "value" or "elements"
    old: str  #: what it was: a value, or type and shape
    new: str
    elements: int = 0  #: whose bits differ
    of_elements: int = 0
    largest: float | None = None  #: absolute difference of numbers; None for other elements


def plain_values(tree: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """(name, text) of the leaves of a tree of ``inspect`` that are no arrays."""
    if isinstance(tree, ArrayInfo):
        return
    if not isinstance(tree, (dict, list, tuple)):
        yield name, repr(tree)
        return
    for key, child in tree.items() if isinstance(tree, dict) else enumerate(tree):
        yield from plain_values(child, joined(name, key))


def differences(checkpointer: Checkpointer, old: int, new: int) -> Iterator[Difference]:
    """The differences between two steps in the order of their names.

    Local. Reads arrays that both have with one shape and type, one after another: it takes memory for two arrays.
    """
    before, after = checkpointer.inspect(old), checkpointer.inspect(new)
    # Text of each leaf; arrays by type and shape.
    was, becomes = (
        dict(plain_values(info.tree)) | {name: f"{array.dtype} {array.shape}" for name, array in info.arrays.items()}
        for info in (before, after)
    )
    for name in sorted(was.keys() | becomes.keys()):
        if name not in was:
            yield Difference(name, "added", "", becomes[name])
        elif name not in becomes:
            yield Difference(name, "removed", was[name], "")
        elif (name in before.arrays) != (name in after.arrays):
            yield Difference(name, "type", was[name], becomes[name])
        elif was[name] != becomes[name]:
            yield Difference(name, "type" if name in before.arrays else "value", was[name], becomes[name])
        elif name in before.arrays:
            first, second = (
                next(iter(checkpointer.restore(step=step, only=glob.escape(name))[1].values())) for step in (old, new)
            )
            count, largest = _compare(np.asarray(first), np.asarray(second))
            if count > 0:
                yield Difference(name, "elements", was[name], becomes[name], count, np.asarray(first).size, largest)


def _compare(first: np.ndarray[Any, Any], second: np.ndarray[Any, Any]) -> tuple[int, float | None]:
    """How many elements have other bits, and their largest difference if they are numbers."""
    first, second = first.reshape(-1), second.reshape(-1)
    count = 0
    largest: float | None = None
    for begin in range(0, first.size, _BLOCK):
        a, b = first[begin : begin + _BLOCK], second[begin : begin + _BLOCK]
        bits = bits_of(a)[0], bits_of(b)[0]
        differ = a != b if bits[0] is None or bits[1] is None else _words(bits[0]) != _words(bits[1])
        count += int(np.count_nonzero(differ))
        if np.any(differ) and a.dtype.kind not in "SUMmO":
            wide = np.complex128 if a.dtype.kind == "c" else np.float64
            with np.errstate(invalid="ignore"):
                apart = np.abs(a[differ].astype(wide) - b[differ].astype(wide))
            found = float(np.max(np.nan_to_num(apart, nan=np.inf)))
            largest = found if largest is None else max(largest, found)
    return count, largest


def _words(bits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Elements as integers, so that NaN equals itself and -0 is not 0; of 16 bytes as pairs."""
    unsigned = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}.get(bits.dtype.itemsize)
    if unsigned is not None:
        return bits.view(unsigned)
    return bits.view(np.dtype([("low", np.uint64), ("high", np.uint64)]))
