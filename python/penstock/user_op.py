"""Reductions by operations, or of element types, that Penstock has no kernel for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock import mpi_abi
from penstock.error import Error
from penstock.message import Derived, is_bottom, memory_of, parse, region_of

if TYPE_CHECKING:
    from mpi4py import MPI
else:
    MPI = mpi_abi.import_mpi()


class UnsuitableError(Exception):
    """Only MPI itself can run this reduction."""


class UserReduction:
    """An operation of mpi4py, or a callable, on the elements of a buffer specification.

    Elements travel with the holes of their derived datatype. In a receive buffer with holes, only the bytes that the
    datatype describes are written.
    """

    def __init__(self, op: Any, spec: Any) -> None:
        array, _, _, datatype = parse(spec)
        if is_bottom(array):
            raise UnsuitableError
        self._op = op
        self._dtype = _dtype_of(array)
        self.element_bytes: int
        self._datatype = _datatype(datatype, self._dtype, op)
        if self._datatype is None:
            self.element_bytes = self._dtype.itemsize if self._dtype is not None else memory_of(array).item_bytes
            self._has_holes = False
        else:
            lower, self.element_bytes = self._datatype.Get_extent()
            true_lower, true_extent = self._datatype.Get_true_extent()
            if lower != 0 or true_lower < 0 or true_lower + true_extent > self.element_bytes:
                raise UnsuitableError
            self._has_holes = self._datatype.Get_size() != self.element_bytes
        self.commutative: bool = op.Is_commutative() if isinstance(op, MPI.Op) else False

    def for_extension(self) -> tuple[Callable[[memoryview, memoryview], None], int, bool]:
        """(callable, bytes per element, commutative), as the extension takes them."""
        return self._combine, max(self.element_bytes, 1), self.commutative

    def _combine(self, lower: memoryview, higher: memoryview) -> None:
        count = higher.nbytes // self.element_bytes
        if isinstance(self._op, MPI.Op):
            self._op.Reduce_local([lower, count, self._datatype], [higher, count, self._datatype])
            return
        left, right = (np.frombuffer(memory, self._dtype) for memory in (lower, higher))
        combined = self._op(left, right)
        if combined is not None and combined is not right:
            right[...] = combined

    def memory(self, spec: Any, blocks: int) -> tuple[Any, int, int, str] | None:
        """The bytes that `spec` describes, for the extension."""
        array, offset_bytes, size_bytes = region_of(spec, blocks, self.element_bytes)
        if array is None:
            return None
        if not self._has_holes:
            return array, offset_bytes, size_bytes, ""
        # The hole behind the last element may lie outside of the array.
        return self._spread(Derived(array, offset_bytes, size_bytes // self.element_bytes, self._datatype)), 0, -1, ""

    def receive(self, spec: Any, blocks: int, keep: bool) -> tuple[Any, Callable[[], None] | None]:
        """(memory to receive into, function to call when the operation is complete, or None)."""
        array, offset_bytes, size_bytes = region_of(spec, blocks, self.element_bytes)
        if array is None:
            return None, None
        if not self._has_holes:
            return (array, offset_bytes, size_bytes, ""), None
        count = size_bytes // self.element_bytes
        target = Derived(array, offset_bytes, count, self._datatype)
        target.check_writable()
        received = self._spread(target) if keep else bytearray(size_bytes)
        return received, lambda: target.unpack(Derived(received, 0, count, self._datatype).pack())

    def _spread(self, elements: Derived) -> bytearray:
        """A copy of elements with their holes; the holes are zero."""
        packed = elements.pack()
        count = len(packed) // self._datatype.Get_size() if packed else 0
        copy = bytearray(count * self.element_bytes)
        Derived(copy, 0, count, self._datatype).unpack(packed)
        return copy


def _dtype_of(array: Any) -> np.dtype[Any] | None:
    if isinstance(array, memoryview) or array is None:
        return None
    if hasattr(array, "__dlpack__") and not hasattr(array, "__array__"):
        known = memory_of(array).dtype
        if not known:
            raise Error(
                "the elements of a buffer are of no type that NumPy knows; give a datatype: [array, count, datatype]"
            )
        return np.dtype("bool" if known == "bool8" else known)
    return np.asarray(array).dtype


def _datatype(given: Any, dtype: np.dtype[Any] | None, op: Any) -> Any:
    if given is not None:
        return given
    if not isinstance(op, MPI.Op):
        return None
    if dtype is not None and dtype.isnative:
        try:
            return MPI.Datatype.fromcode(dtype.char)
        except ValueError:
            pass
    raise Error(f"elements of type {dtype} have no MPI datatype; give one: [array, count, datatype]")
