"""Reductions by operations, and of element types, that Penstock has no code for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock import mpi_abi
from penstock.error import Error
from penstock.message import Derived, parts

MPI = mpi_abi.import_mpi()


class UnsuitableError(Exception):
    """What only MPI itself can reduce."""


class UserReduction:
    """An operation of mpi4py, or a callable, on the elements that a buffer specification names.

    Elements travel as they lie in memory, with the holes that a derived datatype leaves; a receive buffer with holes
    gets only what the datatype describes.
    """

    def __init__(self, op: Any, spec: Any) -> None:
        array, _, _, datatype = parts(spec if isinstance(spec, (list, tuple)) else [spec])
        self._op = op
        self._dtype = None if isinstance(array, memoryview) or array is None else np.asarray(array).dtype
        self._datatype = _datatype(datatype, self._dtype, op)
        if self._datatype is None:
            self.element_bytes = self._dtype.itemsize if self._dtype is not None else memoryview(array).itemsize
            self._has_holes = False
        else:
            lower, self.element_bytes = self._datatype.Get_extent()
            true_lower, true_extent = self._datatype.Get_true_extent()
            if lower != 0 or true_lower < 0 or true_lower + true_extent > self.element_bytes:
                raise UnsuitableError
            self._has_holes = self._datatype.Get_size() != self.element_bytes
        self.commutative = op.Is_commutative() if isinstance(op, MPI.Op) else False

    def for_extension(self) -> tuple[Callable, int, bool]:
        """What the extension takes."""
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
        """The bytes that `spec` names, for the extension."""
        array, count, displacement, _ = parts(spec if isinstance(spec, (list, tuple)) else [spec])
        if array is None:
            return None
        size_bytes = -1 if count is None else count * blocks * self.element_bytes
        return array, displacement * self.element_bytes, size_bytes, ""

    def receive(self, spec: Any, blocks: int, keep: bool) -> tuple[Any, Callable[[], None] | None]:
        """The memory to receive in, and what remains to be done when the operation is complete."""
        given = self.memory(spec, blocks)
        if given is None or not self._has_holes:
            return given, None
        array, offset, size_bytes, _ = given
        whole = memoryview(array).cast("B")[offset:]
        if size_bytes < 0:
            size_bytes = whole.nbytes
        if size_bytes > whole.nbytes:
            raise Error(f"recvbuf has {whole.nbytes} bytes from its displacement on; {size_bytes} were asked for")
        count = size_bytes // self.element_bytes
        landed = bytearray(whole[:size_bytes]) if keep else bytearray(size_bytes)

        def finish() -> None:
            Derived(whole, count, self._datatype).unpack(Derived(memoryview(landed), count, self._datatype).pack())

        return landed, finish


def _datatype(given: Any, dtype: np.dtype | None, op: Any) -> Any:
    if isinstance(given, str):
        return MPI.Datatype.fromcode(given)
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
