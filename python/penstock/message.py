"""mpi4py's buffer specifications: an array, or [array, count, displacement, datatype] with parts left out."""

from __future__ import annotations

from typing import Any

from penstock import mpi_abi
from penstock.error import Error

MPI = mpi_abi.import_mpi()

_DTYPE_OF_TYPESTR = {
    **{f"{kind}{size}": f"{name}{8 * size}" for kind, name in (("i", "int"), ("u", "uint")) for size in (1, 2, 4, 8)},
    **{f"f{size}": f"float{8 * size}" for size in (2, 4, 8)},
    **{f"c{size}": f"complex{8 * size}" for size in (8, 16)},
}


class Derived:
    """A buffer with a derived datatype, which travels packed."""

    def __init__(self, buffer: memoryview, count: int, datatype: Any) -> None:
        self._buffer = buffer
        self.size_bytes = count * datatype.Get_size()
        # MPI packs as many items as fit into a buffer: make the whole message one item that fits exactly once.
        whole = datatype.Create_contiguous(count)
        self._whole = whole.Create_resized(0, buffer.nbytes).Commit()
        whole.Free()

    def __del__(self) -> None:
        if hasattr(self, "_whole") and not MPI.Is_finalized():
            self._whole.Free()

    def pack(self) -> bytearray:
        """Copy the elements to contiguous memory."""
        packed = bytearray(self.size_bytes)
        if packed:
            self._whole.Pack(self._buffer, packed, 0, MPI.COMM_SELF)
        return packed

    def unpack(self, packed: bytearray) -> None:
        """Copy the elements back to where they belong."""
        if packed:
            self._whole.Unpack(packed, 0, self._buffer, MPI.COMM_SELF)


def message(spec: Any, blocks: int = 1) -> Any:
    """What `spec` names, as the extension takes it; `blocks` is by how many ranks its count is multiplied.

    Returns the array itself, (array, offset in bytes, size in bytes, element type), or a ``Derived``.
    Element type "" stands for one that Penstock can move but not compute with.
    """
    if not isinstance(spec, (list, tuple)):
        return spec
    array, count, displacement, datatype = _parts(spec)
    if array is None:
        if count:
            raise Error(f"a buffer specification has count {count} and no buffer")
        return None
    if isinstance(datatype, str):
        datatype = MPI.Datatype.fromcode(datatype)
    if datatype is None:
        view = memoryview(array)
        item_bytes, dtype = view.itemsize, None
    elif not datatype.is_predefined or datatype.Get_size() != datatype.extent:
        return _derived(array, count, displacement, datatype, blocks)
    else:
        item_bytes, dtype = datatype.extent, _DTYPE_OF_TYPESTR.get(datatype.typestr, "")
    size_bytes = -1 if count is None else count * blocks * item_bytes
    return (array, displacement * item_bytes, size_bytes, dtype)


def _parts(spec: Any) -> tuple:
    """(array, count or None, displacement, datatype or None), as mpi4py reads them."""
    count, displacement, datatype = None, 0, None
    if len(spec) == 2:
        array, second = spec
        if isinstance(second, (MPI.Datatype, str)):
            datatype = second
        else:
            count = second
    elif len(spec) == 3:
        array, count, datatype = spec
    elif len(spec) == 4:
        array, count, displacement, datatype = spec
    else:
        raise Error(f"a buffer specification has {len(spec)} items; expected [array, count, displacement, datatype]")
    if isinstance(count, (list, tuple)):
        count, displacement = count
    if count is not None and (not hasattr(count, "__index__") or count < 0):
        raise Error(f"a buffer specification has count {count!r}; expected a non-negative integer")
    if displacement is None:
        displacement = 0
    return array, None if count is None else int(count), int(displacement), datatype


def _derived(array: Any, count: int | None, displacement: int, datatype: Any, blocks: int) -> Derived:
    if datatype == MPI.DATATYPE_NULL:
        raise Error("a buffer specification has datatype DATATYPE_NULL")
    buffer = memoryview(array).cast("B")
    extent = datatype.extent
    offset = displacement * extent
    if extent <= 0 or not 0 <= offset <= buffer.nbytes:
        raise Error(f"a derived datatype of extent {extent} at displacement {displacement} is outside of the buffer")
    buffer = buffer[offset:]
    if count is None:
        if buffer.nbytes % extent != 0:
            raise Error(f"the buffer has {buffer.nbytes} bytes, no multiple of the datatype's extent {extent}")
        count = buffer.nbytes // extent
    else:
        count *= blocks
    lower, true_extent = datatype.Get_true_extent()
    needed = (count - 1) * extent + lower + true_extent if count else 0
    if lower < 0 or needed > buffer.nbytes:
        raise Error(
            f"{count} items of the derived datatype reach from byte {lower} to {needed} of a buffer of {buffer.nbytes}"
        )
    return Derived(buffer, count, datatype)
