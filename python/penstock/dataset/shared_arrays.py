"""Samples in memory that processes share: their arrays lie there, and are not pickled."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import pickle
import threading
import weakref
from collections import deque
from typing import Any, NamedTuple

import numpy as np

from penstock.dataset import sample_tree

_ALIGNMENT_BYTES = 64
#: Shorter strings of bytes go through the pipe.
_LONG_BYTES = 1 << 12


class Part(NamedTuple):
    """Where something is in the shared file."""

    begin: int
    size_bytes: int


class SharedFile:
    """Memory that processes share: a file without a name, which grows."""

    def __init__(self, file: int) -> None:
        self.file: int = file
        self._map: mmap.mmap | None = None

    def mapped(self, end: int) -> mmap.mmap:
        """A map of at least the first `end` bytes. Older maps stay valid while something refers to them."""
        found = self._map
        if found is None or len(found) < end:
            found = self._map = mmap.mmap(self.file, os.fstat(self.file).st_size)
        return found


class SharedMemory:
    """Shared memory in parts of 2^n bytes. A part is free again when nothing refers to its memory.

    Free parts keep at most `kept_bytes` of memory; the system gets the rest back.
    """

    def __init__(self, kept_bytes: int) -> None:
        self.shared: SharedFile = SharedFile(os.memfd_create("penstock-samples", os.MFD_CLOEXEC))
        weakref.finalize(self, os.close, self.shared.file)
        self._kept_bytes = kept_bytes
        self._lock = threading.Lock()
        #: What nothing refers to any more. Finalizers append to it, which needs no lock: they could find one taken by their
        #: own thread.
        self._returned: deque[Part] = deque()
        self._free: dict[int, list[int]] = {}  # size → where
        self._free_bytes = 0
        self._empty: dict[int, list[int]] = {}  # the same without memory
        self._end = 0

    def take(self, size_bytes: int) -> tuple[Part, Any]:
        """(part, its memory)."""
        size = max(mmap.PAGESIZE, 1 << max(size_bytes - 1, 0).bit_length())
        with self._lock:
            self._sort()
            if self._free.get(size):
                begin = self._free[size].pop()
                self._free_bytes -= size
            elif self._empty.get(size):
                begin = self._empty[size].pop()
            else:
                begin, self._end = self._end, self._end + size
                # Twice as much each time: every map is made anew. What is not used has no memory.
                if self._end > os.fstat(self.shared.file).st_size:
                    os.ftruncate(self.shared.file, max(2 * self._end, 1 << 20))
            memory = (ctypes.c_char * size).from_buffer(self.shared.mapped(self._end), begin)
        part = Part(begin, size)
        weakref.finalize(memory, self._returned.append, part).atexit = False
        return part, memory

    def trim(self) -> None:
        """Gives back memory that is too much for the bound."""
        with self._lock:
            self._sort()

    def _sort(self) -> None:
        with contextlib.suppress(IndexError):
            while True:
                begin, size = self._returned.popleft()
                self._free.setdefault(size, []).append(begin)
                self._free_bytes += size
        while self._free_bytes > self._kept_bytes:
            size = max(size for size, parts in self._free.items() if parts)
            begin = self._free[size].pop(0)
            self._free_bytes -= size
            self._empty.setdefault(size, []).append(begin)
            with contextlib.suppress(OSError):  # the memory stays
                self.shared.mapped(self._end).madvise(mmap.MADV_REMOVE, begin, size)


class _Blob:
    """Bytes that travel like an array."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def __reduce_ex__(self, _protocol: Any) -> tuple[Any, ...]:
        return bytes, (pickle.PickleBuffer(self._content),)


def _prepared(leaf: Any) -> Any:
    if isinstance(leaf, np.ndarray) and not (leaf.flags.c_contiguous or leaf.flags.f_contiguous):
        return np.ascontiguousarray(leaf)  # pickle takes only these out of its stream
    if type(leaf) is bytes and len(leaf) >= _LONG_BYTES:
        return _Blob(leaf)
    return leaf


def _prepared_tree(value: Any) -> Any:
    if isinstance(value, sample_tree.Several):
        return sample_tree.Several(_prepared_tree(one) for one in value)
    if isinstance(value, list):  # of samples, as flat_map() wants
        return [_prepared_tree(one) for one in value]
    return sample_tree.mapped(_prepared, value)


def flattened(value: Any) -> tuple[bytes, list[memoryview]]:
    """A value without its arrays, and these."""
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(_prepared_tree(value), 5, buffer_callback=buffers.append)
    return head, [buffer.raw() for buffer in buffers]


def needed_bytes(arrays: list[memoryview]) -> int:
    return sum(array.nbytes + _ALIGNMENT_BYTES for array in arrays)


def store(arrays: list[memoryview], shared: SharedFile, begin: int) -> list[Part]:
    """Copies arrays into shared memory, from `begin` on."""
    parts: list[Part] = []
    for array in arrays:
        begin += -begin % _ALIGNMENT_BYTES
        target = np.frombuffer(shared.mapped(begin + array.nbytes), np.uint8, array.nbytes, begin)
        target[:] = np.frombuffer(array, np.uint8)
        parts.append(Part(begin, array.nbytes))
        begin += array.nbytes
    return parts


def place_in(given: Part, memory: Any, array: memoryview) -> Part | None:
    """Where an array is, if it is in a part of shared memory."""
    begin = _address(array) - _address(memory) if array.nbytes else -1
    inside = given.begin <= begin <= given.begin + given.size_bytes - array.nbytes
    return Part(begin, array.nbytes) if inside else None


def _address(buffer: Any) -> int:
    return int(np.frombuffer(buffer, np.uint8).__array_interface__["data"][0])


def view(part: Part, taken: list[tuple[Part, Any]]) -> memoryview:
    """An array in one of the parts that take() has given. It keeps that one in use."""
    for place, memory in taken:
        begin = part.begin - place.begin
        if 0 <= begin <= place.size_bytes - part.size_bytes:
            return memoryview(memory).cast("B")[begin : begin + part.size_bytes]
    raise AssertionError(f"{part} is not in {[place for place, _ in taken]}")
