"""Layouts: which rank owns which elements of a global n-d array. Distributed arrays: a rank's elements in NumPy memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, cast, overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from penstock import _penstock
from penstock.error import Error

if TYPE_CHECKING:
    from typing import Literal

    from typing_extensions import Self, TypeVar

    from penstock import layout_convert

    _Local = TypeVar("_Local", bound=NDArray[Any] | list[NDArray[Any]], default=NDArray[Any])
else:
    from typing import TypeVar

    _Local = TypeVar("_Local")

LINE_BYTES = 64  #: Length of a cache line.


class LayoutBlock(NamedTuple):
    """One block of a layout in its owner's memory. Lengths are in elements; tuples have one entry per dimension."""

    global_start: tuple[int, ...]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    local_offset: int


class Layout:
    """The distribution of a global n-d array over ranks. Immutable, hashable, picklable; compares by value.

    A layout is a grid. Each dimension is cut into intervals; a block is a product of intervals; each block has one owner.
    Make one with :meth:`block_cyclic`, :meth:`grid`, :meth:`even`, :meth:`whole`, :meth:`boxes` or :meth:`replicated`.
    ``storage`` is the element order of a rank's local array: "row" (C) or "column" (Fortran).
    All methods are local. Invalid arguments raise :class:`penstock.Error`, which names the first of them.
    """

    __slots__ = ("_native", "_text")

    def __init__(self, native: _penstock.Layout) -> None:
        self._native = native
        self._text: str | None = None

    @classmethod
    def block_cyclic(
        cls,
        shape: Sequence[int],
        block: Sequence[int],
        grid: Sequence[int],
        order: str = "row",
        storage: str = "row",
        *,
        first: Sequence[int] = (),
        ranks: Sequence[int] = (),
    ) -> Layout:
        """ScaLAPACK's layout: blocks of ``block[d]`` elements, dealt cyclically to ``grid[d]`` processes along dimension d.

        Parameters
        ----------
        shape, block, grid : sequence of int
            Shape of the array, of a block and of the process grid; one entry per dimension.
        order : str
            How ranks are numbered over the process grid: "row" or "column".
        storage : str
            Element order of the local arrays: "row" or "column".
        first : sequence of int
            Grid coordinates of the process that owns the first block (RSRC and CSRC). Default: all 0.
        ranks : sequence of int
            Rank of each process of the grid, in ``order``. Default: 0, 1, 2 and so on.
        """
        shape, block, grid, first, ranks = (_integers(values) for values in (shape, block, grid, first, ranks))
        return cls(_penstock.Layout.block_cyclic(shape, block, grid, first, ranks, order, storage))

    @classmethod
    def grid(cls, *splits_and_owners: ArrayLike, ranks: int | None = None, storage: str = "row") -> Layout:
        """A general grid: ``Layout.grid(row_splits, col_splits, owners)``, with one list of splits per dimension.

        A rank's blocks lie one after another in its memory, in C order of the blocks.

        Parameters
        ----------
        *splits_and_owners : array_like
            First one list per dimension: the borders of its intervals, increasing from 0 to the length. Last the owners:
            one rank per block, as an n-d array or flat in C order.
        ranks : int
            Number of ranks. Default: the largest owner + 1.
        storage : str
            Element order of each block: "row" or "column".
        """
        if not splits_and_owners:
            raise Error("Layout.grid: no owners given; expected one list of splits per dimension, then the owners")
        *splits, owners = splits_and_owners
        flat = _integers(owners)
        if ranks is None:
            ranks = max([0, *flat]) + 1
        return cls(_penstock.Layout.grid([_integers(borders) for borders in splits], flat, ranks, storage))

    @classmethod
    def even(cls, shape: Sequence[int], ranks: int, axis: int = 0) -> Layout:
        """The array cut along one axis into ``ranks`` nearly equal pieces. The first pieces may be one longer."""
        return cls(_penstock.Layout.even(_integers(shape), ranks, axis))

    @classmethod
    def whole(cls, shape: Sequence[int], owner: int = 0, ranks: int | None = None) -> Layout:
        """The whole array on one rank."""
        return cls(_penstock.Layout.whole(_integers(shape), owner, max(0, owner) + 1 if ranks is None else ranks))

    @classmethod
    def boxes(
        cls,
        shape: Sequence[int],
        boxes: Iterable[tuple[int, Sequence[int], Sequence[int]]],
        ranks: int | None = None,
        storage: str = "row",
    ) -> Layout:
        """Boxes (owner, begin, shape) that tile the array: each element lies in exactly one box.

        A rank's boxes lie one after another in its memory, in the given order, each dense. If a rank has a single box,
        that box is its local array. ``ranks`` is the number of ranks. Default: the largest owner + 1.
        """
        given = []
        for box in boxes:
            try:
                owner, begin, extent = box
            except (TypeError, ValueError):
                raise Error(f"Layout.boxes: {box!r} given; expected (owner, begin, shape)") from None
            (rank,) = _integers([owner])
            given.append((rank, _integers(begin), _integers(extent)))
        if ranks is None:
            ranks = max([0, *(owner for owner, _, _ in given)]) + 1
        return cls(_penstock.Layout.boxes(_integers(shape), given, ranks, storage))

    @classmethod
    def replicated(cls, copies: Iterable[Layout]) -> Layout:
        """Several copies of one array. Each of the given layouts holds the whole array, on ranks of its own.

        As a source: a rank reads the copy that it owns a part of; ranks outside of the source take turns. As a target:
        all copies are written. :meth:`on_ranks` places a copy of a layout on other ranks.
        """
        copies = list(copies)
        if wrong := [type(copy).__name__ for copy in copies if not isinstance(copy, Layout)]:
            raise Error(f"Layout.replicated: a {wrong[0]} given; expected Layouts")
        return cls(_penstock.Layout.replicated([copy._native for copy in copies]))

    @classmethod
    def from_scalapack(
        cls, descriptor: Sequence[int], grid: Sequence[int], order: str = "row", *, ranks: Sequence[int] = ()
    ) -> Layout:
        """The layout that a ScaLAPACK array descriptor (9 integers) describes on a process grid.

        Parameters
        ----------
        descriptor : sequence of int
            ScaLAPACK's DESC. The context is ignored. The leading dimension (LLD) belongs to one rank's memory: pass it to
            :meth:`Comm.plan_redistribute` as ``source_leading`` or ``target_leading``.
        grid : sequence of int
            (rows, columns) of the process grid.
        order : str
            How BLACS_GRIDINIT numbered the ranks: "row" or "column".
        ranks : sequence of int
            Rank of each process of the grid, in ``order``. Default: 0, 1, 2 and so on.
        """
        from penstock import layout_convert

        return layout_convert.from_scalapack(descriptor, grid, order, ranks)

    def to_scalapack(
        self,
        rank: int,
        grid: Sequence[int],
        order: str = "row",
        *,
        context: int = 0,
        ranks: Sequence[int] = (),
        leading: int = 0,
    ) -> NDArray[Any]:
        """The ScaLAPACK array descriptor (9 integers, int32) of a rank; see :meth:`from_scalapack`.

        Raises :class:`penstock.Error` if the layout is not block-cyclic on that grid with column-major storage.

        Parameters
        ----------
        context : int
            BLACS context of the grid.
        leading : int
            Leading dimension (LLD). Default: that of a dense local array.
        """
        from penstock import layout_convert

        return layout_convert.to_scalapack(self, rank, grid, order, context, ranks, leading)

    @classmethod
    def from_darray(
        cls,
        gsizes: Sequence[int],
        distribs: Sequence[int],
        dargs: Sequence[int],
        psizes: Sequence[int],
        order: int | None = None,
    ) -> Layout:
        """The layout of all ranks of ``MPI.Datatype.Create_darray`` with these arguments."""
        from penstock import layout_convert

        return layout_convert.from_darray(gsizes, distribs, dargs, psizes, order)

    def to_darray(self, grid: Sequence[int]) -> layout_convert.Darray:
        """Arguments (size, gsizes, distribs, dargs, psizes, order) for ``MPI.Datatype.Create_darray`` on a process grid.

        Insert the rank after the size. Raises :class:`penstock.Error` if the layout is not block-cyclic, or if its ranks
        are not numbered in row order of the grid, as MPI numbers them.
        """
        from penstock import layout_convert

        return layout_convert.to_darray(self, grid)

    @classmethod
    def from_subarrays(
        cls,
        sizes: Sequence[int],
        subsizes: Sequence[Sequence[int]],
        starts: Sequence[Sequence[int]],
        order: int | None = None,
    ) -> Layout:
        """The layout in which rank r owns ``MPI.Datatype.Create_subarray(sizes, subsizes[r], starts[r], order)``.

        The subarrays tile the array: each element lies in exactly one. A subarray with a 0 among its sizes is empty.
        """
        from penstock import layout_convert

        return layout_convert.from_subarrays(sizes, subsizes, starts, order)

    def to_subarray(self, rank: int) -> layout_convert.Subarray:
        """Arguments (sizes, subsizes, starts, order) for ``MPI.Datatype.Create_subarray``, if the rank owns one box."""
        from penstock import layout_convert

        return layout_convert.to_subarray(self, rank)

    @classmethod
    def parse(cls, text: str) -> Layout:
        """The layout that :meth:`serialize` turned into ``text``."""
        return cls(_penstock.Layout.parse(text))

    def serialize(self) -> str:
        """The layout as one line of text. :meth:`parse` makes an equal layout from it."""
        if self._text is None:
            self._text = self._native.serialize()
        return self._text

    @property
    def shape(self) -> tuple[int, ...]:
        return self._native.shape

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements of the global array."""
        return self._native.size

    @property
    def ranks(self) -> int:
        """Number of ranks. Higher ranks own nothing."""
        return self._native.ranks

    @property
    def storage(self) -> str:
        return self._native.storage

    def splits(self, axis: int) -> list[int]:
        """The borders of the blocks along one axis, from 0 to its length."""
        return self._native.splits(axis)

    def owner(self, *block_index: int) -> int:
        """The owner of a block, given its index along each dimension."""
        return self._native.owner(list(block_index))

    def local_size(self, rank: int) -> int:
        """Number of elements that a rank owns."""
        return self._native.local_size(rank)

    def local_shape(self, rank: int) -> tuple[int, ...]:
        """Shape of a rank's local array: n-d if the rank owns one tile or box, else (number of elements,)."""
        return self._native.local_shape(rank)

    def part_shapes(self, rank: int) -> list[tuple[int, ...]]:
        """Shapes of a rank's local arrays: of its boxes, if the layout was made of boxes; else of its tiles."""
        return self._native.part_shapes(rank)

    def local_blocks(self, rank: int) -> list[LayoutBlock]:
        """All blocks of a rank."""
        return [LayoutBlock(*block) for block in self._native.blocks(rank)]

    def subarray(self, begin: Sequence[int], shape: Sequence[int]) -> Layout:
        """The subarray of this shape that starts at ``begin``, on the same ranks.

        Each rank's local array holds its part of the subarray only. To redistribute a subarray in place, pass its
        bounds to :meth:`Comm.plan_redistribute`.
        """
        return Layout(self._native.subarray(_integers(begin), _integers(shape)))

    @property
    def copies(self) -> int:
        """Number of copies of the array: 1, except for :meth:`replicated`."""
        return self._native.copies

    def copy(self, index: int) -> Layout:
        """One copy of a replicated layout. A layout with one copy returns itself."""
        if not 0 <= index < self.copies:
            raise Error(f"Layout.copy: index is {index}; expected 0 to {self.copies - 1}")
        return Layout(self._native.copy(index))

    def on_ranks(self, ranks: Sequence[int], total: int | None = None) -> Layout:
        """The same layout on other ranks: rank r's part goes to ``ranks[r]`` of ``total`` (default: largest rank + 1).

        Use it to bring layouts of different process groups into one communicator that contains them all:
        ``layout.on_ranks(group.Translate_ranks(None, union_group))``.
        """
        numbers = _integers(ranks)
        return Layout(self._native.on_ranks(numbers, max(numbers, default=-1) + 1 if total is None else total))

    def relabeled(self, permutation: Sequence[int]) -> Layout:
        """The same layout with rank r's blocks owned by ``permutation[r]``."""
        return Layout(self._native.relabeled(_integers(permutation)))

    def local_views(self, rank: int, local: NDArray[Any]) -> Iterator[tuple[NDArray[Any], tuple[NDArray[Any], ...]]]:
        """Yields (view of ``local``, global indices along each dimension) for each tile of a rank."""
        flat = local.reshape(-1, order="A")
        for offset, shape, strides, axes in self._native.tiles(rank):
            indices = _indices(axes)
            steps = [stride * flat.itemsize for stride in strides]
            view = (
                np.lib.stride_tricks.as_strided(flat[offset:], shape, steps)
                if 0 not in shape
                else np.empty(shape, flat.dtype)
            )
            yield view, indices

    def _part_indices(self, rank: int) -> list[tuple[NDArray[Any], ...]]:
        """The global indices along each dimension, for each array of :meth:`part_shapes`."""
        begins = self._native.box_begins(rank)
        if begins:
            boxes = zip(begins, self.part_shapes(rank))
            return [tuple(np.arange(at, at + n) for at, n in zip(begin, shape)) for begin, shape in boxes]
        return [_indices(axes) for _, _, _, axes in self._native.tiles(rank)]

    def _same_places(self, other: Layout) -> bool:
        """Whether all ranks hold the same elements at the same offsets. Layouts of different form may do so."""
        if (self.shape, self.storage) != (other.shape, other.storage):
            return False

        def places(layout: Layout, rank: int) -> list[tuple[int, tuple[int, ...], list[list[int]]]]:
            tiles = (
                (offset, strides, [list(map(int, along)) for along in _indices(axes)])
                for offset, shape, strides, axes in layout._native.tiles(rank)
                if 0 not in shape
            )
            return sorted(tiles, key=lambda tile: tile[0])

        return all(places(self, rank) == places(other, rank) for rank in range(max(self.ranks, other.ranks)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and self.serialize() == other.serialize()

    def __hash__(self) -> int:
        return hash(self.serialize())

    def __reduce__(self) -> tuple[Callable[[str], Layout], tuple[str]]:
        return Layout.parse, (self.serialize(),)

    def __repr__(self) -> str:
        text = self.serialize()
        return f"Layout.parse({text if len(text) <= 80 else text[:77] + '...'!r})"


class DistArray(Generic[_Local]):
    """One rank's part of a distributed array: its layout and its elements in NumPy memory.

    Parameters
    ----------
    layout : Layout
        The distribution of the global array.
    local : ndarray or sequence of ndarray
        The rank's elements, kept and not copied. One of:

        - an array of ``layout.local_shape(rank)`` with any strides, for example a view of another array;
        - a contiguous 1-d array in the layout's storage order;
        - a list with one array for each of ``layout.part_shapes(rank)``, each with any strides.
    rank : int
        The rank that owns the elements.
    dtype : dtype
        Element type. Needed only if ``local`` is an empty list.
    """

    __slots__ = ("_dtype", "layout", "local", "rank")

    layout: Layout
    local: _Local
    rank: int

    @overload
    def __init__(
        self: DistArray[NDArray[Any]], layout: Layout, local: NDArray[Any], rank: int = 0, dtype: DTypeLike = None
    ) -> None: ...

    @overload
    def __init__(
        self: DistArray[list[NDArray[Any]]],
        layout: Layout,
        local: Sequence[NDArray[Any]],
        rank: int = 0,
        dtype: DTypeLike = None,
    ) -> None: ...

    def __init__(self, layout: Layout, local: Any, rank: int = 0, dtype: DTypeLike = None) -> None:
        if not isinstance(layout, Layout):
            raise Error(f"DistArray: layout is a {type(layout).__name__}; expected a penstock.Layout")
        self.layout = layout
        self.rank = rank
        self._dtype = None if dtype is None else np.dtype(dtype)
        if isinstance(local, (list, tuple)):
            self.local = cast("_Local", self._checked_parts(local))
            return
        local = np.asanyarray(local)
        expected = layout.local_shape(rank)
        size = layout.local_size(rank)
        if local.size != size or (local.ndim > 1 and size > 0 and local.shape != expected):
            raise Error(
                f"DistArray: local has the shape {local.shape}; expected {expected}, what the layout gives to rank {rank}"
            )
        contiguous = local.flags.c_contiguous if layout.storage == "row" else local.flags.f_contiguous
        if not contiguous and [local.shape] != layout.part_shapes(rank):
            order = "C" if layout.storage == "row" else "Fortran"
            raise Error(
                f"DistArray: local is not contiguous in {order} order, and not of the shape of the rank's only array;"
                f" expected {expected}, or a list of arrays of layout.part_shapes({rank})"
            )
        self.local = local

    def _checked_parts(self, given: Sequence[Any]) -> list[NDArray[Any]]:
        parts = [np.asanyarray(part) for part in given]
        shapes, expected = [part.shape for part in parts], self.layout.part_shapes(self.rank)
        if shapes != expected:
            raise Error(
                f"DistArray: local has arrays of the shapes {shapes}; expected {expected}, what the layout gives to rank"
                f" {self.rank}"
            )
        if len({part.dtype for part in parts} | ({self._dtype} - {None})) > 1:
            raise Error(f"DistArray: local has arrays of the types {[str(part.dtype) for part in parts]}; expected one")
        return parts

    def _views(self) -> Iterator[tuple[NDArray[Any], tuple[NDArray[Any], ...]]]:
        """Yields (array, global indices along each dimension) for this rank's elements."""
        if isinstance(self.local, list) or [self.local.shape] == self.layout.part_shapes(self.rank):
            parts = self.local if isinstance(self.local, list) else [self.local]
            return zip(parts, self.layout._part_indices(self.rank))
        return self.layout.local_views(self.rank, self.local)

    @classmethod
    def empty(cls: type[DistArray[Any]], layout: Layout, dtype: DTypeLike = np.float64, rank: int = 0) -> DistArray:
        """Uninitialized memory for a rank's part, aligned to a cache line."""
        order: Literal["C", "F"] = "C" if layout.storage == "row" else "F"
        shape = layout.local_shape(rank)
        nbytes = layout.local_size(rank) * np.dtype(dtype).itemsize
        memory = np.empty(nbytes + LINE_BYTES, np.uint8)
        begin = -memory.ctypes.data % LINE_BYTES
        return cls(layout, memory[begin : begin + nbytes].view(dtype).reshape(shape, order=order), rank)

    @classmethod
    def zeros(cls: type[DistArray[Any]], layout: Layout, dtype: DTypeLike = np.float64, rank: int = 0) -> DistArray:
        part = cls.empty(layout, dtype, rank)
        part.local[...] = 0
        return part

    @classmethod
    def from_global(cls: type[DistArray[Any]], layout: Layout, array: ArrayLike, rank: int = 0) -> DistArray:
        """A rank's part of a global array, copied from ``array``, which holds all of it."""
        array = np.asarray(array)
        if array.shape != layout.shape:
            raise Error(f"DistArray.from_global: the array has the shape {array.shape}, the layout {layout.shape}")
        part = cls.empty(layout, array.dtype, rank)
        return part.fill_from(array)

    def fill_from(self, array: ArrayLike) -> Self:
        """Copy this rank's part from ``array``, which holds the whole global array. Returns self."""
        array = np.asarray(array)
        if array.shape != self.layout.shape:
            raise Error(f"DistArray.fill_from: the array has the shape {array.shape}, the layout {self.layout.shape}")
        for view, indices in self._views():
            view[...] = array[np.ix_(*indices)] if indices else array
        return self

    def to_global(self, out: NDArray[Any]) -> NDArray[Any]:
        """Write this rank's part to its place in the global array ``out``. Returns ``out``."""
        if out.shape != self.layout.shape:
            raise Error(f"DistArray.to_global: out has the shape {out.shape}, the layout {self.layout.shape}")
        for view, indices in self._views():
            out[np.ix_(*indices) if indices else ()] = view
        return out

    @staticmethod
    def assemble(parts: Iterable[DistArray]) -> NDArray[Any]:
        """The global array, assembled from the parts of all ranks in this process."""
        parts = list(parts)
        if not parts:
            raise Error("DistArray.assemble: no parts given; expected those of all ranks")
        out = np.zeros(parts[0].layout.shape, parts[0].dtype)
        for part in parts:
            part.to_global(out)
        return out

    @classmethod
    def from_dlpack(cls: type[DistArray[Any]], layout: Layout, local: Any, rank: int = 0) -> DistArray:
        """A rank's part in the memory of a DLPack library (PyTorch, JAX, CuPy, …). The memory is not copied.

        It must be host memory. Read-only memory (arrays of JAX) can only be a source.
        """
        try:
            view = np.from_dlpack(local)
        except (BufferError, RuntimeError, TypeError, AttributeError) as error:
            raise Error(
                f"DistArray.from_dlpack: a {type(local).__name__} given; expected host memory by DLPack",
                cause=str(error),
            ) from error
        return cls(layout, view, rank)

    def __dlpack__(self, **options: Any) -> Any:
        """This rank's memory for a DLPack library, not copied: ``torch.from_dlpack(part)``."""
        return self._only_array().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._only_array().__dlpack_device__()

    def _only_array(self) -> NDArray[Any]:
        if isinstance(self.local, list):
            raise Error(f"DistArray: this part consists of {len(self.local)} arrays; give them to DLPack one by one")
        return self.local

    @property
    def dtype(self) -> np.dtype[Any]:
        if not isinstance(self.local, list):
            return self.local.dtype
        if self.local:
            return self.local[0].dtype
        if self._dtype is None:
            raise Error("DistArray: local is an empty list, so its dtype is not known; give it as dtype=")
        return self._dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the global array."""
        return self.layout.shape

    def __repr__(self) -> str:
        size = self.layout.local_size(self.rank)
        held = f"{len(self.local)} arrays" if isinstance(self.local, list) else f"{size} x {self.dtype}"
        return f"DistArray({self.layout!r}, <{held}>, rank={self.rank})"


def _indices(axes: list[tuple[list[int], list[int]]]) -> tuple[NDArray[Any], ...]:
    """The global indices of a tile along each dimension, from the starts and lengths of its intervals."""
    indices = []
    for starts, lengths in axes:
        pieces = [np.arange(start, start + length) for start, length in zip(starts, lengths)]
        indices.append(np.concatenate(pieces) if pieces else np.empty(0, np.int64))
    return tuple(indices)


def _integers(values: ArrayLike) -> list[int]:
    """A flat list of integers. Raises Error for other numbers."""
    array = np.asarray(values)
    if array.size == 0:
        return []
    if array.dtype.kind not in "iu":
        raise Error(f"expected whole numbers, given {values!r}")
    return array.reshape(-1).tolist()
