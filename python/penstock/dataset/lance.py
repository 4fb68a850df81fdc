"""Rows of Lance datasets, by its library (pylance)."""

from __future__ import annotations

import hashlib
import importlib
import os
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from penstock.dataset.reader import Request
from penstock.dataset.tables import Column, column
from penstock.error import Error


class LanceSource:
    """Rows of one version. Those that are announced are taken by one call for each batch."""

    def __init__(self, url: str, version: int | None, columns: Sequence[str] | None, how: Request) -> None:
        try:
            lance = importlib.import_module("lance")
        except ImportError as error:
            raise Error(
                "this source needs Lance; pip install 'penstock[lance]'", "unsupported", cause=str(error)
            ) from None
        try:
            self._table = lance.dataset(url, version=version, storage_options=how.storage_options)
            self._rows = int(self._table.count_rows())
            names = self._table.schema.names
        except Exception as error:
            raise Error(f"{url} cannot be opened by Lance", "not_found", cause=str(error)) from None
        missing = [name for name in columns or () if name not in names]
        if missing:
            raise Error(f"{url} has no column {missing[0]!r}, only {', '.join(names)}", "not_found")
        self._name = f"{url} version {self._table.version}"
        self._columns = None if columns is None else list(columns)
        described = (
            os.path.basename(url.rstrip("/")),
            self._table.version,
            self._rows,
            str(self._table.schema),
            columns,
        )
        self.digest: str = hashlib.sha256(repr(described).encode()).hexdigest()[:32]
        self._requests = how.requests
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._pool: ThreadPoolExecutor | None = None
        self._ahead: dict[int, deque[tuple[Future[dict[str, Column]], int]]] = {}

    def __len__(self) -> int:
        return self._rows

    def name(self, index: int) -> str:
        return f"row {index} of {self._name}"

    def __getitem__(self, index: int) -> dict[str, Any]:
        with self._lock:
            waiting = self._ahead.get(index)
            future, row = waiting.popleft() if waiting else (None, 0)
            if waiting is not None and not waiting:
                del self._ahead[index]
        columns = self._take([index]) if future is None else future.result()
        return {name: value(row) for name, value in columns.items()}

    def announce(self, indices: Sequence[int]) -> None:
        rows = sorted(set(indices))
        place = {index: row for row, index in enumerate(rows)}
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._requests, "penstock-lance")
            future = self._pool.submit(self._take, rows)
            for index in indices:
                self._ahead.setdefault(index, deque()).append((future, place[index]))

    def prepare(self, _blocks: Any, _max_bytes: int) -> None:
        if os.getpid() != self._process:
            raise Error(
                f"{self._name} was opened before this process was forked, and Lance's threads are not here; open it in the "
                "child, or start child processes by spawn",
                "unsupported",
            )
        self.forget()

    def forget(self) -> None:
        if os.getpid() != self._process:
            return
        with self._lock:
            futures = {future for waiting in self._ahead.values() for future, _ in waiting}
            self._ahead.clear()
        for future in futures:
            future.cancel()

    def _take(self, rows: list[int]) -> dict[str, Column]:
        table = self._table.take(np.asarray(rows, np.int64).tolist(), columns=self._columns)
        return {name: column(table.column(name)) for name in table.column_names}
