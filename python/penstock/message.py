"""mpi4py's buffer specifications: an array, or [array, count, displacement, datatype] with optional items.

:func:`parse` splits a specification, for a message and for a message with one block per rank. Omitted items are inferred as
mpi4py does.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock import _penstock, mpi_abi
from penstock.datatype import flatten
from penstock.error import Error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mpi4py import MPI
else:
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


# -- parsing ----------------------------------------------------------------------------------------------------------


class Spec(NamedTuple):
    """The items of a buffer specification. Omitted items are None."""

    array: Any  #: None if there is no buffer. MPI.BOTTOM if the datatype has absolute addresses.
    count: Any
    displacement: Any
    datatype: Any  #: An MPI.Datatype.


def parse(spec: Any, has_blocks: bool = False) -> Spec:
    """Split `spec`. With `has_blocks`, count and displacement may be lists; then only a tuple is a pair of both."""
    if not isinstance(spec, (list, tuple)):
        return Spec(spec, None, None, None)
    count, displacement, datatype = None, None, None
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
    if len(spec) < 4 and isinstance(count, tuple if has_blocks else (list, tuple)):
        if len(count) != 2:
            pair = "(counts, displacements)" if has_blocks else "(count, displacement)"
            raise Error(f"a buffer specification has the pair {count!r}; expected {pair}")
        count, displacement = count
    return Spec(array, count, displacement, _datatype(datatype))


def _datatype(given: Any) -> Any:
    if isinstance(given, str):
        try:
            given = MPI.Datatype.fromcode(given)
        except (KeyError, ValueError):
            raise Error(f"a buffer specification has datatype {given!r}, which names no datatype of MPI") from None
    if given is None:
        return None
    if not isinstance(given, MPI.Datatype):
        raise Error(
            f"a buffer specification has the datatype {given!r}; expected [array, count, displacement, datatype] with a "
            "datatype of MPI or its character code (a list of numbers is not a buffer; pass numpy.array(...))"
        )
    if given == MPI.DATATYPE_NULL:
        raise Error("a buffer specification has the datatype MPI.DATATYPE_NULL; expected one that has been made")
    return given


def is_bottom(array: Any) -> bool:
    """Whether addresses are absolute. MPI.BOTTOM equals 0, so compare identity."""
    return array is MPI.BOTTOM


def _integer(given: Any, what: str) -> int:
    try:
        return operator.index(given)
    except TypeError:
        raise Error(f"a buffer specification has {what} {given!r}; expected an integer") from None


def _count(given: Any, what: str = "count") -> int:
    count = _integer(given, what)
    if count < 0:
        raise Error(f"a buffer specification has {what} {given!r}; expected a non-negative integer")
    return count


def _is_list(given: Any) -> bool:
    """Whether `given` has one number per rank. A 0-d NumPy array has no length."""
    try:
        len(given)
    except TypeError:
        return False
    return True


def _list(given: Any, ranks: int, what: str) -> list[int]:
    each = [_integer(number, what) for number in given]
    if len(each) != ranks:
        raise Error(f"a buffer specification has {len(each)} {what}; expected one for each of {ranks} ranks")
    return each


def numbers(given: Any, ranks: int, what: str) -> list[int]:
    """One non-negative integer per rank. A single number applies to all ranks."""
    each = _list(given, ranks, what) if _is_list(given) else [_integer(given, what)] * ranks
    if any(number < 0 for number in each):
        raise Error(f"a buffer specification has {what} {each!r}; expected non-negative integers")
    return each


# -- the memory -------------------------------------------------------------------------------------------------------


class Memory(NamedTuple):
    """Size and element type of an array's memory."""

    size_bytes: int
    item_bytes: int
    dtype: str  #: A name of dtypes.def. "" if Penstock can move the elements but not compute with them.


def memory_of(array: Any) -> Memory:
    """The memory of an object with the buffer protocol or DLPack. None and MPI.BOTTOM have no bytes."""
    if array is None or is_bottom(array):
        return Memory(0, 1, "")
    try:
        return Memory(*_penstock.memory_of(array))
    except Error:
        if _is_array(array):
            raise
        raise Error(
            f"a buffer is a {type(array).__name__}; expected an array with the buffer protocol or DLPack: "
            "numpy.array(...)"
        ) from None


def _is_array(given: Any) -> bool:
    if hasattr(given, "__dlpack__"):
        return True
    try:
        memoryview(given)
    except TypeError:
        return False
    except (ValueError, BufferError):  # bfloat16
        pass
    return True


class Derived:
    """Items of a derived datatype. They travel packed."""

    def __init__(self, array: Any, offset_bytes: int, count: int, datatype: Any) -> None:
        self._array = None if is_bottom(array) else array
        self._offset_bytes = offset_bytes
        self._count = count
        self._datatype = flatten(datatype)
        self.size_bytes: int = count * self._datatype.size_bytes
        self._datatype.check(self._array, offset_bytes, count)

    def pack(self) -> bytearray:
        """Copy the elements to contiguous memory."""
        packed = bytearray(self.size_bytes)
        self.pack_into(packed)
        return packed

    def pack_into(self, packed: Any) -> None:
        self._datatype.pack(self._array, self._offset_bytes, self._count, packed)

    def unpack(self, packed: Any) -> None:
        """Copy packed elements back to their places."""
        self._datatype.unpack(packed, self._array, self._offset_bytes, self._count)

    def check_writable(self) -> None:
        self._datatype.check(self._array, self._offset_bytes, self._count, writes=True)

    def receive_buffer(self, keep: bool) -> bytearray:
        """Contiguous memory to receive into. With `keep` it holds the current elements. Rejects read-only arrays."""
        self.check_writable()
        return self.pack() if keep else bytearray(self.size_bytes)


class DerivedBlocks:
    """Blocks of a derived datatype. They travel packed, one after another."""

    def __init__(self, blocks: list[Derived]) -> None:
        self._blocks = blocks
        self.counts: list[int] = [block.size_bytes for block in blocks]
        self.size_bytes: int = sum(self.counts)

    def _parts(self, packed: bytearray) -> Iterator[tuple[Derived, memoryview]]:
        view, begin = memoryview(packed), 0
        for block in self._blocks:
            yield block, view[begin : begin + block.size_bytes]
            begin += block.size_bytes

    def pack(self) -> bytearray:
        """Copy the elements to contiguous memory."""
        packed = bytearray(self.size_bytes)
        for block, part in self._parts(packed):
            block.pack_into(part)
        return packed

    def unpack(self, packed: bytearray) -> None:
        """Copy packed elements back to their places."""
        for block, part in self._parts(packed):
            block.unpack(part)

    def receive_buffer(self, keep: bool) -> bytearray:
        """As :meth:`Derived.receive_buffer`."""
        for block in self._blocks:
            block.check_writable()
        return self.pack() if keep else bytearray(self.size_bytes)


def _element(array: Any, datatype: Any, computes: bool = False) -> tuple[int, str | None] | None:
    """(bytes, type) of an element. None for a derived datatype and for absolute addresses."""
    if is_bottom(array):
        if datatype is None:
            raise Error("a buffer specification has MPI.BOTTOM and no datatype; expected one with absolute addresses")
        return None
    if datatype is None:
        return memory_of(array).item_bytes, None
    if computes and (pair := _PAIRS.get(MPI._handleof(datatype))) is not None:
        return datatype.extent, pair
    if not datatype.is_predefined or datatype.Get_size() != datatype.extent:
        return None
    return datatype.extent, _DTYPE_OF_TYPESTR.get(datatype.typestr, "")


def _items(array: Any, offset_bytes: int, item_bytes: int) -> int:
    """Number of items in an array from an offset on, if the count was omitted."""
    size_bytes = memory_of(array).size_bytes - offset_bytes
    if size_bytes == 0:
        return 0
    if size_bytes < 0:
        raise Error(
            f"the displacement is {offset_bytes} bytes; expected at most the {size_bytes + offset_bytes} bytes of the buffer"
        )
    if item_bytes <= 0:
        raise Error(f"the datatype has extent {item_bytes}, so the count cannot be derived; give it")
    if size_bytes % item_bytes != 0:
        raise Error(f"the buffer has {size_bytes} bytes; expected a multiple of the datatype's extent, {item_bytes}")
    return size_bytes // item_bytes


# -- messages ---------------------------------------------------------------------------------------------------------


def _resolved(
    spec: Any, blocks: int, item_bytes: int | None = None, computes: bool = False
) -> tuple[Any, Any, int, int | None]:
    """Resolve a specification to (array, element as of _element(), offset in bytes, count or None for the rest).

    With `item_bytes`, elements have that size, whatever the datatype.
    """
    array, given_count, given_displacement, datatype = parse(spec)
    count = None if given_count is None else _count(given_count)
    displacement = 0 if given_displacement is None else _count(given_displacement, "displacement")
    if array is None:
        if count:
            raise Error(f"a buffer specification has count {count} and no buffer; give a buffer, or count 0")
        return None, None, 0, 0
    known = (item_bytes, "") if item_bytes is not None else _element(array, datatype, computes)
    stride_bytes = datatype.extent if known is None else known[0]
    return array, known, displacement * stride_bytes, None if count is None else count * blocks


def message(spec: Any, blocks: int = 1, computes: bool = False) -> Any:
    """`spec` as the extension takes it: the array, (array, offset in bytes, size in bytes, element type), or a Derived.

    `blocks` multiplies the count: the number of ranks it applies to. With `computes`, value-index pairs (MPI.DOUBLE_INT)
    are elements, although they may have padding. Element type "" means that Penstock can only move the elements.
    """
    if not isinstance(spec, (list, tuple)):
        return spec
    array, known, offset_bytes, count = _resolved(spec, blocks, computes=computes)
    if array is None:
        return None
    if known is not None:
        return array, offset_bytes, -1 if count is None else count * known[0], known[1]
    datatype = parse(spec).datatype
    if count is None:
        count = _items(array, offset_bytes, datatype.extent)
    return Derived(array, offset_bytes, count, datatype)


def region_of(spec: Any, blocks: int, item_bytes: int) -> tuple[Any, int, int]:
    """(array, offset in bytes, size in bytes) of elements of `item_bytes` each."""
    array, _, offset_bytes, count = _resolved(spec, blocks, item_bytes)
    if array is None:
        return None, 0, 0
    if count is None:
        count = _items(array, offset_bytes, item_bytes)
    return array, offset_bytes, count * item_bytes


def item_count(spec: Any) -> int:
    """Number of datatype items that `spec` describes."""
    array, known, offset_bytes, count = _resolved(spec, 1, computes=True)
    if array is None or count is not None:
        return count or 0
    return _items(array, offset_bytes, parse(spec).datatype.extent if known is None else known[0])


def datatype_of(spec: Any) -> Any:
    """The MPI.Datatype of `spec`: as given, or as mpi4py infers it from the array."""
    array, _, _, datatype = parse(spec)
    return datatype if datatype is not None else MPI.Datatype.fromcode(memoryview(array).format.lstrip("@=<>"))


class Blocks:
    """A buffer with one block per rank: the buffer for the extension, and counts and displacements in bytes."""

    def __init__(self, given: Any, counts: list[int], displacements: list[int] | None) -> None:
        self.given = given
        self.counts = counts
        self.displacements = displacements


def block_message(spec: Any, ranks: int) -> Blocks | DerivedBlocks:
    """Resolve [array, counts], [array, (counts, displacements)] or [array, counts, displacements, datatype].

    Counts and displacements are in items of the datatype. A single count is the length of each block. Without counts the
    array is divided evenly; the first ranks get the remainder. A single displacement is the distance between blocks.
    Without displacements the blocks are contiguous.
    """
    array, given_counts, given_displacements, datatype = parse(spec, has_blocks=True)
    known = _element(array, datatype)
    item_bytes = datatype.extent if known is None else known[0]
    if given_counts is None:
        each, remainder = divmod(_items(array, 0, item_bytes), ranks)
        counts = [each + (rank < remainder) for rank in range(ranks)]
    else:
        counts = numbers(given_counts, ranks, "counts")
    if array is None and any(counts):
        raise Error(f"a buffer specification has counts {counts} and no buffer; give a buffer, or counts of 0")
    places = None
    if given_displacements is not None:
        if _is_list(given_displacements):
            places = _list(given_displacements, ranks, "displacements")
        else:
            stride = _integer(given_displacements, "displacement")
            places = [stride * rank for rank in range(ranks)]
    if known is None:
        if places is None:
            places = [sum(counts[:rank]) for rank in range(ranks)]
        return DerivedBlocks(
            [Derived(array, place * item_bytes, count, datatype) for count, place in zip(counts, places)]
        )
    if places is not None:
        # The displacement of an empty block has no meaning.
        places = [place if count else 0 for count, place in zip(counts, places)]
        if any(place < 0 for place in places):
            raise Error(f"a buffer specification has displacements {places}, which lie before the buffer")
        places = [place * item_bytes for place in places]
    given = array if array is None else (array, 0, -1, known[1])
    return Blocks(given, [count * item_bytes for count in counts], places)


def typed_block_message(spec: Any, ranks: int) -> DerivedBlocks:
    """Resolve [array, datatypes], [array, (counts, displacements), datatypes] or [array, counts, displacements, datatypes].

    There is one datatype per rank. Displacements are in bytes. Without counts each block is one item, or none if there is no
    array; without displacements all blocks begin where the array does.
    """
    what = "[array, counts, displacements in bytes, datatypes]"
    if not isinstance(spec, (list, tuple)) or not 2 <= len(spec) <= 4:
        raise Error(f"a buffer specification of Alltoallw is {spec!r}; expected {what}")
    array, datatypes = spec[0], list(spec[-1])
    given_counts, given_displacements = None, None
    if len(spec) == 4:
        given_counts, given_displacements = spec[1:3]
    elif len(spec) == 3:
        if not isinstance(spec[1], (list, tuple)) or len(spec[1]) != 2:
            raise Error(f"a buffer specification of Alltoallw has {spec[1]!r}; expected (counts, displacements)")
        given_counts, given_displacements = spec[1]
    if is_bottom(array) and (given_counts is None or given_displacements is None):
        raise Error(
            f"a buffer specification of Alltoallw has MPI.BOTTOM without counts or displacements; expected {what}"
        )
    if len(datatypes) != ranks:
        raise Error(
            f"a buffer specification has {len(datatypes)} datatypes; expected {what} with one for each of {ranks} ranks"
        )
    counts = numbers(1 if given_counts is None else given_counts, ranks, "counts")
    if array is None:
        if given_counts is not None and any(counts):
            raise Error(f"a buffer specification has counts {counts} and no buffer; give a buffer, or counts of 0")
        counts = [0] * ranks
    if given_displacements is None:
        places = [0] * ranks
    elif _is_list(given_displacements):
        places = _list(given_displacements, ranks, "displacements")
    else:
        places = [_integer(given_displacements, "displacement")] * ranks
    return DerivedBlocks(
        [
            # The datatype and the displacement of an empty block have no meaning.
            Derived(array, place, count, _datatype(datatype)) if count else Derived(None, 0, 0, MPI.BYTE)
            for count, place, datatype in zip(counts, places, datatypes)
        ]
    )


_COMPUTED = {"b", "B", "h", "H", "i", "I", "l", "L", "q", "Q", "n", "N", "e", "f", "d", "g", "Zf", "Zd", "Zg", "?"}


def is_computed(given: Any) -> bool:
    """Whether Penstock can compute with the elements of a result of message()."""
    if isinstance(given, Derived):
        return False
    if isinstance(given, tuple):
        if given[3] is not None:
            return bool(given[3] != "")
        given = given[0]
    try:
        code = memoryview(given).format
    except (TypeError, ValueError, BufferError):  # DLPack only, or bfloat16: the extension decides
        return True
    return code.lstrip("@=<") in _COMPUTED
