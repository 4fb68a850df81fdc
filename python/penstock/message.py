"""mpi4py's buffer specifications: an array, or [array, count, displacement, datatype] with parts left out."""

from __future__ import annotations

from typing import Any

from penstock import mpi_abi
from penstock.datatype import flatten
from penstock.error import Error

MPI = mpi_abi.import_mpi()

_DTYPE_OF_TYPESTR = {
    **{f"{kind}{size}": f"{name}{8 * size}" for kind, name in (("i", "int"), ("u", "uint")) for size in (1, 2, 4, 8)},
    **{f"f{size}": f"float{8 * size}" for size in (2, 4, 8)},
    **{f"c{size}": f"complex{8 * size}" for size in (8, 16)},
    "f16": "longdouble",
    "c32": "clongdouble",
    "b1": "bool8",
}
_PAIRS = {
    MPI._handleof(datatype): name
    for datatype, name in (
        (MPI.FLOAT_INT, "float32_int32"),
        (MPI.DOUBLE_INT, "float64_int32"),
        (MPI.LONG_DOUBLE_INT, "longdouble_int32"),
        (MPI.SHORT_INT, "int16_int32"),
        (MPI.TWOINT, "int32_int32"),
        (MPI.LONG_INT, "int64_int32"),
    )
}


class Derived:
    """A buffer with a derived datatype, which travels packed."""

    def __init__(self, buffer: memoryview, count: int, datatype: Any) -> None:
        self._buffer = buffer
        self._count = count
        self._datatype = flatten(datatype)
        self.size_bytes = count * datatype.Get_size()

    def pack(self) -> bytearray:
        """Copy the elements to contiguous memory."""
        packed = bytearray(self.size_bytes)
        self._datatype.pack(self._buffer, 0, self._count, packed)
        return packed

    def unpack(self, packed: bytearray) -> None:
        """Copy the elements back to where they belong."""
        self._datatype.unpack(packed, self._buffer, 0, self._count)


def message(spec: Any, blocks: int = 1, computes: bool = False) -> Any:
    """What `spec` names, as the extension takes it; `blocks` is by how many ranks its count is multiplied.

    With `computes` pairs of a value and a place are elements, though they may have holes.

    Returns the array itself, (array, offset in bytes, size in bytes, element type), or a ``Derived``.
    Element type "" stands for one that Penstock can move but not compute with.
    """
    if not isinstance(spec, (list, tuple)):
        return spec
    array, count, displacement, datatype = parts(spec)
    if array is None:
        if count:
            raise Error(f"a buffer specification has count {count} and no buffer")
        return None
    pair = _PAIRS.get(MPI._handleof(datatype)) if computes and isinstance(datatype, MPI.Datatype) else None
    known = (datatype.extent, pair) if pair is not None else _element(array, datatype)
    if known is None:
        return _derived(array, count, displacement, _datatype(datatype), blocks)
    item_bytes, dtype = known
    size_bytes = -1 if count is None else count * blocks * item_bytes
    return (array, displacement * item_bytes, size_bytes, dtype)


class Blocks:
    """A buffer with a block for each rank: what the extension takes, and where the blocks lie, in bytes."""

    def __init__(self, given: Any, counts: list[int], displacements: list[int] | None) -> None:
        self.given = given
        self.counts = counts
        self.displacements = displacements


class DerivedBlocks:
    """Blocks of a derived datatype, which travel packed one after another."""

    def __init__(self, parts: list[Derived]) -> None:
        self._parts = parts
        self.counts = [part.size_bytes for part in parts]
        self.size_bytes = sum(self.counts)

    def pack(self) -> bytearray:
        """Copy the elements to contiguous memory."""
        return bytearray().join(part.pack() for part in self._parts)

    def unpack(self, packed: bytearray) -> None:
        """Copy the elements back to where they belong."""
        begin = 0
        for part in self._parts:
            part.unpack(packed[begin : begin + part.size_bytes])
            begin += part.size_bytes


def block_message(spec: Any, ranks: int) -> Blocks | DerivedBlocks:
    """What `spec` names: [array, counts], [array, (counts, displacements)], [array, counts, displacements, datatype].

    Counts and displacements are in items of the datatype. Without counts the array is divided evenly, with one number
    for them all blocks are of that length; without displacements the blocks follow each other.
    """
    array, counts, displacements, datatype = _block_parts(spec)
    known = _element(array, datatype)
    item_bytes = known[0] if known else _datatype(datatype).extent
    size_bytes = memoryview(array).nbytes if array is not None else 0
    if counts is None:
        items, remainder = divmod(size_bytes, item_bytes or 1)
        if remainder or items % ranks:
            raise Error(f"a buffer of {size_bytes} bytes cannot be divided evenly among {ranks} ranks; give counts")
        counts = items // ranks
    counts = numbers(counts, ranks, "counts")
    places = numbers(displacements, ranks, "displacements") if displacements is not None else None
    if array is None and any(counts):
        raise Error(f"a buffer specification has counts {counts} and no buffer")
    if known is None:
        begins = places if places is not None else [sum(counts[:rank]) for rank in range(ranks)]
        return DerivedBlocks(
            [_derived(array, count, begin, _datatype(datatype), 1) for count, begin in zip(counts, begins)]
        )
    in_bytes = None if places is None else [place * item_bytes for place in places]
    given = array if array is None else (array, 0, -1, known[1])
    return Blocks(given, [count * item_bytes for count in counts], in_bytes)


def _block_parts(spec: Any) -> tuple:
    """(array, counts or None, displacements or None, datatype or None), as mpi4py reads them."""
    if not isinstance(spec, (list, tuple)):
        return spec, None, None, None
    array, counts, displacements, datatype = spec[0], None, None, None
    if len(spec) == 2:
        if isinstance(spec[1], (MPI.Datatype, str)):
            datatype = spec[1]
        else:
            counts = spec[1]
    elif len(spec) == 3:
        counts, datatype = spec[1:]
    elif len(spec) == 4:
        counts, displacements, datatype = spec[1:]
    else:
        raise Error(f"a buffer specification has {len(spec)} items; expected [array, counts, displacements, datatype]")
    if isinstance(counts, tuple):
        if len(counts) != 2:
            raise Error(f"a buffer specification has the pair {counts!r}; expected (counts, displacements)")
        counts, displacements = counts
    return array, counts, displacements, datatype


def numbers(given: Any, ranks: int, what: str) -> list[int]:
    """An integer for each rank, given as such or as one for all of them."""
    each = [given] * ranks if hasattr(given, "__index__") else list(given)
    if len(each) != ranks:
        raise Error(f"a buffer specification has {len(each)} {what}; expected one for each of {ranks} ranks")
    if any(not hasattr(number, "__index__") or number < 0 for number in each):
        raise Error(f"a buffer specification has {what} {each!r}; expected non-negative integers")
    return [int(number) for number in each]


def _datatype(given: Any) -> Any:
    return MPI.Datatype.fromcode(given) if isinstance(given, str) else given


def _element(array: Any, datatype: Any) -> tuple[int, str | None] | None:
    """Size in bytes and type of an element; None where the datatype is a derived one."""
    if datatype is None:
        return (memoryview(array).itemsize, None) if array is not None else (1, None)
    datatype = _datatype(datatype)
    if not datatype.is_predefined or datatype.Get_size() != datatype.extent:
        return None
    return datatype.extent, _DTYPE_OF_TYPESTR.get(datatype.typestr, "")


def parts(spec: Any) -> tuple:
    """(array, count or None, displacement, datatype or None), as mpi4py reads them."""
    count, displacement, datatype = None, 0, None
    if len(spec) == 1:
        (array,) = spec
    elif len(spec) == 2:
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


_COMPUTED = {"b", "B", "h", "H", "i", "I", "l", "L", "q", "Q", "n", "N", "e", "f", "d", "g", "Zf", "Zd", "Zg", "?"}


def is_computed(given: Any) -> bool:
    """Whether Penstock computes with the elements of what message() returned."""
    if isinstance(given, Derived):
        return False
    if isinstance(given, tuple):
        if given[3] is not None:
            return given[3] != ""
        given = given[0]
    try:
        code = memoryview(given).format
    except (TypeError, ValueError, BufferError):  # no buffer but DLPack, or bfloat16: the extension looks at it
        return True
    return code.lstrip("@=<") in _COMPUTED
