"""An array that lies in a blob: NumPy's indexing reads and writes parts of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.error import Error

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

__all__ = ["BlobArray", "SnapshotArray"]

#: A read takes what lies between strided elements along, if that is at most so many times what was asked for. It is then one
#: region for each row instead of one for each element.
_MOST_READ_ALONG = 4


class _Selection:
    """The elements that a basic index chooses: where they lie, and how they become the array that NumPy would give."""

    def __init__(self, chosen: NDArray[Any], first_bytes: int, has_ellipsis: bool) -> None:
        self.shape = chosen.shape
        self.is_element = chosen.shape == () and not has_ellipsis
        # The ellipsis keeps what is indexed an array where it has no axes.
        self._flipped: tuple[Any, ...] = (
            *(slice(None, None, -1 if stride < 0 else 1) for stride in chosen.strides),
            Ellipsis,
        )
        self.start_bytes = first_bytes
        self.run_bytes = chosen.dtype.itemsize
        #: (number, stride in bytes) of the axes along which runs of bytes repeat, the outermost first.
        self.axes: list[tuple[int, int]] = []
        for length, stride in zip(chosen.shape, chosen.strides, strict=True):
            if stride < 0:
                self.start_bytes += stride * (length - 1)
            if length != 1:
                self.axes.append((length, abs(stride)))
        while self.axes and self.axes[-1][1] == self.run_bytes:
            self.run_bytes *= self.axes.pop()[0]

    def in_numpys_order(self, ascending: NDArray[Any]) -> NDArray[Any]:
        """Swaps the order in a file and that of the index: both ways."""
        ordered: NDArray[Any] = ascending.reshape(self.shape)[self._flipped]
        return ordered

    def offsets(self, axes: Sequence[tuple[int, int]]) -> list[int]:
        found = np.array([self.start_bytes], np.int64)
        for length, stride in axes:
            found = (found[:, None] + np.arange(length, dtype=np.int64) * stride).reshape(-1)
        return list(found.tolist())


def _regions(offsets: Iterable[int], rows: NDArray[np.uint8]) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    return zip(offsets, rows, strict=True)


class SnapshotArray:
    """An array in C order that lies in one version of a blob. Made by `Snapshot.view`.

    Indexing with integers, slices, ``...`` and ``None`` reads what was chosen, and nothing else but what lies between the elements
    of a slice with a small step. It returns a new array, or a scalar. ``numpy.asarray`` reads all of it. Each chunk that is read
    is verified.

    Attributes
    ----------
    shape : tuple of int
    dtype : numpy.dtype
    ndim, size, nbytes : int
        As of NumPy's arrays.
    offset : int
        Of the first element in the blob, in bytes.
    """

    def __init__(
        self,
        read: Callable[[list[tuple[int, Any]]], None],
        dtype: DTypeLike,
        shape: int | Sequence[int],
        offset: int,
        blob_bytes: int | None,
    ) -> None:
        self._read = read
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self.shape: tuple[int, ...] = tuple(int(n) for n in shape) if isinstance(shape, Sequence) else (int(shape),)
        self.offset: int = int(offset)
        if self.dtype.hasobject or self.dtype.itemsize == 0:
            raise Error(
                f"a blob holds bytes, so it has no view as {self.dtype}: expected a type of a fixed size without Python objects"
            )
        if self.offset < 0 or any(n < 0 for n in self.shape):
            raise Error(f"view of shape {self.shape} from byte {self.offset}: expected numbers that are not negative")
        end_bytes = self.offset + self.nbytes
        if end_bytes >= 1 << 63 or (blob_bytes is not None and end_bytes > blob_bytes):
            raise Error(
                f"view of shape {self.shape} and type {self.dtype} from byte {self.offset}: it ends at byte {end_bytes}, "
                f"{'which is too far' if blob_bytes is None else f'this version at {blob_bytes}'}"
            )

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of an array without dimensions")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of shape {self.shape} and type {self.dtype} from byte {self.offset} on>"

    def _select(self, index: Any) -> _Selection:
        """NumPy itself says what an index chooses, of an array whose elements nobody touches."""
        parts = index if isinstance(index, tuple) else (index,)
        for part in parts:
            if (
                isinstance(part, (bool, np.bool_))
                or not (part is None or part is Ellipsis or isinstance(part, slice) or hasattr(part, "__index__"))
                or (isinstance(part, np.ndarray) and part.ndim > 0)
            ):
                raise IndexError(
                    f"index {part!r}: only integers, slices, ... and None choose parts of an array in a blob"
                )
        has_ellipsis = any(part is Ellipsis for part in parts)
        if not has_ellipsis:
            parts = (*parts, Ellipsis)  # else NumPy would read a single element
        element = np.empty(1, f"V{self.dtype.itemsize}")
        strides = np.cumprod([self.dtype.itemsize, *self.shape[:0:-1]], dtype=np.int64)[::-1] if self.shape else ()
        untouched = np.lib.stride_tricks.as_strided(element, self.shape, tuple(int(s) for s in strides))
        chosen = untouched[parts]
        return _Selection(chosen, self.offset + chosen.ctypes.data - element.ctypes.data, has_ellipsis)

    def __getitem__(self, index: Any) -> Any:
        chosen = self._select(index)
        found = np.empty(math.prod(chosen.shape), self.dtype)
        if found.size > 0:
            rows = found.view(np.uint8).reshape(-1, chosen.run_bytes)
            if chosen.axes and self._reads_along(chosen):
                number, stride = chosen.axes[-1]
                spans = np.empty((len(rows) // number, stride * (number - 1) + chosen.run_bytes), np.uint8)
                self._read(list(_regions(chosen.offsets(chosen.axes[:-1]), spans)))
                elements = np.lib.stride_tricks.as_strided(
                    spans, (len(spans), number, chosen.run_bytes), (spans.strides[0], stride, 1)
                )
                rows.reshape(elements.shape)[...] = elements
            else:
                self._read(list(_regions(chosen.offsets(chosen.axes), rows)))
        # As NumPy: what an index without ... chooses of a single element is a scalar.
        return chosen.in_numpys_order(found)[() if chosen.is_element else ...]

    @staticmethod
    def _reads_along(chosen: _Selection) -> bool:
        return chosen.axes[-1][1] <= _MOST_READ_ALONG * chosen.run_bytes

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("an array in a blob cannot be used without a copy of it in memory")
        found: NDArray[Any] = self[...]
        return found if dtype is None else found.astype(dtype, copy=False)


class BlobArray(SnapshotArray):
    """An array in C order that lies in a blob. Made by `Blob.view`. Reads as `SnapshotArray` does, of the newest version.

    Each assignment to a part, such as ``array[3:7, ::2] = 1``, is one version of the blob, which readers see as a whole or not at
    all. Values are converted as NumPy's arrays do it. What one process reads and then assigns, another may have changed between:
    pass that version to :meth:`write` as `parent`.
    """

    def __init__(
        self,
        read: Callable[[list[tuple[int, Any]]], None],
        write: Callable[[list[tuple[int, Any]], int | None], int],
        dtype: DTypeLike,
        shape: int | Sequence[int],
        offset: int,
    ) -> None:
        super().__init__(read, dtype, shape, offset, None)
        self._write = write

    def __setitem__(self, index: Any, value: Any) -> None:
        self.write(index, value)

    def write(self, index: Any, value: Any, parent: int | None = None) -> int:
        """As ``self[index] = value``. Returns the number of the version. `parent` is as for `Blob.write`."""
        chosen = self._select(index)
        values = np.empty(chosen.shape, self.dtype)
        values[...] = value
        ascending = np.ascontiguousarray(chosen.in_numpys_order(values)).reshape(-1)
        if ascending.size == 0:
            return self._write([], parent)
        rows = ascending.view(np.uint8).reshape(-1, chosen.run_bytes)
        return self._write(list(_regions(chosen.offsets(chosen.axes), rows)), parent)
