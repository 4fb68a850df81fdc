"""Sources that are read in groups of samples. Tables are such: a sample is a row of a Parquet file or of an Arrow table."""

from __future__ import annotations

import bisect
import contextlib
import functools
import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from penstock.dataset.reader import filesystem, read_errors
from penstock.error import Error

#: Groups in memory, unless a shuffle in blocks needs more.
_GROUPS = 4

Column = Callable[[int], Any]


#: Loads a group. What it gives makes a sample of its place in the group.
Load = Callable[[], Callable[[int], Any]]


class GroupSource:
    """Samples of groups that are loaded whole. The groups used last stay in memory."""

    def __init__(
        self, groups: Sequence[tuple[int, Load]], digest: str, name: Callable[[int], str] = "row {}".format
    ) -> None:
        """``groups`` holds (samples, function that loads them)."""
        self._load = [load for _, load in groups]
        self._ends = np.cumsum([samples for samples, _ in groups]).tolist()
        self._digest = digest
        self.name: Callable[[int], str] = name
        self._lock = threading.Lock()
        self._kept = _GROUPS
        self._groups: OrderedDict[int, Future[Callable[[int], Any]]] = OrderedDict()

    def __len__(self) -> int:
        return int(self._ends[-1]) if self._ends else 0

    def __getitem__(self, index: int) -> Any:
        group = bisect.bisect_right(self._ends, index)
        return self._loaded(group)(index - (self._ends[group - 1] if group else 0))

    def digest(self) -> str:
        return self._digest

    def prepare(self, blocks: tuple[int, int] | None, max_bytes: int) -> None:
        """An iteration begins, which may shuffle in blocks."""
        block, window = blocks or (1, 0)
        samples = max(len(self) // max(len(self._ends), 1), 1)
        with self._lock:
            self._kept = max(_GROUPS, 2 * -(-block * window // samples) + 1)

    def forget(self) -> None:
        with self._lock:
            self._groups.clear()

    def _loaded(self, group: int) -> Callable[[int], Any]:
        with self._lock:
            future = self._groups.get(group)
            mine = future is None
            if future is None:
                future = self._groups[group] = Future()
                while len(self._groups) > self._kept:
                    self._groups.popitem(last=False)
            self._groups.move_to_end(group)
        if mine:
            try:
                future.set_result(self._load[group]())
            except BaseException as error:
                with self._lock:
                    self._groups.pop(group, None)
                future.set_exception(error)
        return future.result()


def parquet(
    paths: Iterable[str | os.PathLike[str]], columns: Sequence[str] | None, storage_options: dict[str, Any] | None
) -> GroupSource:
    pq = _pyarrow("pyarrow.parquet")
    groups: list[tuple[int, Load]] = []
    digest = hashlib.sha256(repr(columns).encode())
    for path in (os.fspath(each) for each in paths):
        where = filesystem(path, storage_options) if "://" in path else None
        place = where._strip_protocol(path) if where else path
        with _table_errors(path), pq.ParquetFile(place, filesystem=where) as file:
            metadata = file.metadata
        digest.update(f"{os.path.basename(path)} {metadata.num_rows} {metadata.serialized_size} ".encode())

        def load(group: int, place: str = place, where: Any = where) -> Callable[[int], Any]:
            # A file object is for one thread.
            with pq.ParquetFile(place, filesystem=where) as file:
                return _rows(file.read_row_group(group, columns=columns, use_threads=False))

        groups += [
            (metadata.row_group(group).num_rows, functools.partial(load, group))
            for group in range(metadata.num_row_groups)
        ]
    return GroupSource(groups, digest.hexdigest()[:32])


def arrow(tables: Any) -> GroupSource:
    """Of tables, or of the paths of Arrow IPC files (which are mapped into memory)."""
    pa = _pyarrow("pyarrow")
    groups: list[tuple[int, Load]] = []
    digest = hashlib.sha256()
    for each in [tables] if isinstance(tables, pa.Table) else tables:
        if isinstance(each, pa.Table):
            table, name = each, "table"
        else:
            with _table_errors(os.fspath(each)):
                table, name = _mapped_table(pa, os.fspath(each)), os.path.basename(os.fspath(each))
        digest.update(f"{name} {table.num_rows} {table.schema} {table.nbytes} ".encode())
        groups += [(batch.num_rows, functools.partial(_rows_of_batch, batch)) for batch in table.to_batches()]
    return GroupSource(groups, digest.hexdigest()[:32])


def _rows(table: Any) -> Callable[[int], dict[str, Any]]:
    columns = {name: column(table.column(name)) for name in table.column_names}
    return lambda row: {name: value(row) for name, value in columns.items()}


def _rows_of_batch(batch: Any) -> Callable[[int], dict[str, Any]]:
    return _rows(_pyarrow("pyarrow").Table.from_batches([batch]))


@contextlib.contextmanager
def _table_errors(path: str) -> Iterator[None]:
    try:
        with read_errors(path):
            yield
    except _pyarrow("pyarrow").ArrowInvalid as error:
        raise Error(f"{path} holds no table that Arrow knows", "corrupt", cause=str(error)) from None


def _mapped_table(pa: Any, path: str) -> Any:
    try:
        return pa.ipc.open_file(pa.memory_map(path)).read_all()
    except pa.ArrowInvalid:
        return pa.ipc.open_stream(pa.memory_map(path)).read_all()


def column(chunked: Any) -> Column:
    """A function that gives the value of a row: numbers and arrays of them without a copy, else Python's values."""
    import pyarrow as pa

    array = chunked.combine_chunks()
    if isinstance(array, pa.ChunkedArray):  # older versions, for no rows
        array = array.chunk(0) if array.num_chunks else pa.array([], array.type)
    kind = array.type
    if _is_plain(pa, kind) and array.null_count == 0:
        values = array.to_numpy(zero_copy_only=False)
        return lambda row: values[row]
    lists = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if lists and _is_plain(pa, kind.value_type) and array.null_count == 0 and array.values.null_count == 0:
        inner = array.values.to_numpy(zero_copy_only=False)
        offsets = array.offsets.to_numpy()
        return lambda row: inner[offsets[row] : offsets[row + 1]]
    return lambda row: array[row].as_py()


def _is_plain(pa: Any, kind: Any) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _pyarrow(module: str) -> Any:
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise Error(
            "this source needs pyarrow; pip install 'penstock[tables]'", "unsupported", cause=str(error)
        ) from None
