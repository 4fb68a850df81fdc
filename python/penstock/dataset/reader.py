"""Reading of samples from any storage that fsspec knows, with many requests in flight."""

from __future__ import annotations

import contextlib
import os
import random
import stat
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, NamedTuple, Protocol

from penstock import _penstock
from penstock.error import Error

# Neighbours in one file are read by one request if no more than this lies between them.
_GAP_BYTES = 64 << 10

# In flight until their latency and rate are known: TCP's initial window (RFC 6928), in requests.
_FIRST_REQUESTS = 10

# Each has a thread.
_MOST_REQUESTS = 256

# No object has so many: S3 takes 50 TB.
_ANY_BYTES = 1 << 53

_S3 = ("s3://", "s3a://")

# What another attempt does not change.
_FINAL = (
    Error,
    FileNotFoundError,
    PermissionError,
    IsADirectoryError,
    NotADirectoryError,
    ValueError,
    TypeError,
    ImportError,
)


class SampleList(Protocol):
    """Where samples are. :class:`_penstock.dataset.SampleIndex` is one."""

    def __len__(self) -> int: ...

    def __getitem__(self, at: int, /) -> tuple[bytes, int, int, int]:
        """(path or URL, begin, size, label). The size -1 stands for the whole object."""
        ...


class UrlList:
    """Whole objects."""

    def __init__(self, urls: Sequence[bytes]) -> None:
        self._urls = urls

    def __len__(self) -> int:
        return len(self._urls)

    def __getitem__(self, at: int, /) -> tuple[bytes, int, int, int]:
        return self._urls[at], 0, -1, 0


class Request(NamedTuple):
    """How objects are read; see :meth:`penstock.Dataset.from_files`."""

    requests: int | None = None
    deadline_s: float = 60.0
    storage_options: dict[str, Any] | None = None


class _Fetch(NamedTuple):
    function: Callable[[int], Any]
    argument: int
    size: int
    future: Future[Any]


class Reader:
    """Reads samples by threads of its own, which are apart from those that decode.

    Announced samples are fetched before they are asked for: as many at a time as the window of measured latency x rate
    holds, unless their number is given. A fetch that fails is tried again, with growing pauses, until its deadline.
    Thread-safe.
    """

    def __init__(self, samples: SampleList, how: Request) -> None:
        self._samples = samples
        self._how = how
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._pool: ThreadPoolExecutor | None = None
        self._ahead: dict[int, list[Future[Any]]] = {}
        self._filesystems: dict[str, Any] = {}
        self._block, self._window = 1, 0
        self._max_bytes = 1 << 62
        self._ram_bytes = 0
        self._read_window = _penstock.dataset.ReadWindow()
        self._waiting: deque[_Fetch] = deque()
        self._urgent: deque[_Fetch] = deque()
        self._iteration = 0
        self._in_flight = 0
        self._in_flight_bytes = 0
        self._ready_bytes = 0  # fetched, not asked for yet
        self._fetched, self._fetched_bytes = 0, 0
        self._blocks: OrderedDict[int, Future[list[Any]]] = OrderedDict()

    def name(self, index: int) -> str:
        path, begin, size, _ = self._samples[index]
        return os.fsdecode(path) + ("" if size < 0 or begin == 0 else f" at {begin}")

    def prepare(self, blocks: tuple[int, int] | None, max_bytes: int, ram_bytes: int = 0) -> None:
        """An iteration begins. If it shuffles in blocks, they are fetched whole."""
        self._check_process()
        with self._lock:
            self._block, self._window = blocks or (1, 0)
            self._max_bytes = max_bytes
            self._ram_bytes = ram_bytes
        self.forget()

    def announce(self, indices: Sequence[int]) -> None:
        self._check_process()
        with self._lock:
            for index in indices:
                if self._window:
                    self._find_block(index // self._block)
                    continue
                size = self._samples[index][2]
                if size <= self._max_bytes:
                    self._ahead.setdefault(index, []).append(self._submit(self._fetch, index, size))

    def wants_more(self) -> bool:
        """Whether more requests could be in flight than there are samples to fetch."""
        with self._lock:
            return not self._waiting and self._may_send(-1)

    def read(self, index: int, max_bytes: int | None = None) -> Any:
        """The bytes of a sample. Raises the error of its last fetch."""
        self._check_process()
        _, _, size, _ = self._samples[index]
        max_bytes = self._max_bytes if max_bytes is None else max_bytes
        if size > max_bytes:
            raise ValueError(f"it holds {size} bytes, more than the limit of {max_bytes} bytes per sample")
        with self._lock:
            block = self._window > 0
            future: Future[Any]
            if block:
                future = self._find_block(index // self._block)
            else:
                waiting = self._ahead.get(index)
                future = waiting.pop(0) if waiting else self._submit(self._fetch, index, size)
                if waiting == []:
                    del self._ahead[index]
            iteration = self._iteration
            self._send_now(future)
        # Fetches end at their deadline themselves, unless one request hangs; queued ones have not begun.
        while not wait([future], timeout=1.5 * self._how.deadline_s).done:
            if future.running():
                raise TimeoutError(f"a request takes longer than the deadline of {self._how.deadline_s:g} s")
        if not block:
            self._taken(future, iteration)
        result = future.result()
        if block:
            result = result[index % self._block]
            if isinstance(result, Exception):
                raise result
        return result

    def forget(self) -> None:
        """An iteration ended: drops what was fetched for it."""
        if os.getpid() != self._process:
            return
        with self._lock:
            futures = [future for waiting in self._ahead.values() for future in waiting] + list(self._blocks.values())
            self._ahead.clear()
            self._blocks.clear()
            self._waiting.clear()
            self._urgent.clear()
            self._iteration += 1
            self._ready_bytes = 0
        for future in futures:
            future.cancel()

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            self.__init__(self._samples, self._how)  # type: ignore[misc]  # a forked child has none of the threads

    # Under the lock, as far as nothing else is said.

    def _submit(self, function: Callable[[int], Any], argument: int, size: int) -> Future[Any]:
        """``size`` is that of the answer, -1 if nobody knows it."""
        fetch = _Fetch(function, argument, size, Future())
        self._waiting.append(fetch)
        self._send()
        return fetch.future

    def _send(self) -> None:
        while self._urgent and self._in_flight < self._most():
            self._start(self._urgent.popleft())
        while self._waiting and self._may_send(self._waiting[0].size):
            self._start(self._waiting.popleft())

    def _send_now(self, future: Future[Any]) -> None:
        """Somebody waits for it, so neither the window nor the budget may hold it back."""
        for place, fetch in enumerate(self._waiting):
            if fetch.future is future:
                del self._waiting[place]
                self._urgent.append(fetch)
                self._send()
                break

    def _most(self) -> int:
        return self._how.requests or _MOST_REQUESTS

    def _may_send(self, size: int) -> bool:
        if self._in_flight >= self._most():
            return False
        expected = self._expected(size)
        held = self._in_flight_bytes + self._ready_bytes
        if self._ram_bytes and held and held + expected > self._ram_bytes:
            return False
        if self._how.requests or self._in_flight == 0:
            return True
        window = self._read_window.bytes
        if window == 0:
            return self._in_flight < _FIRST_REQUESTS
        return self._in_flight_bytes + expected <= window

    def _expected(self, size: int) -> int:
        return size if size >= 0 else self._fetched_bytes // max(self._fetched, 1)

    def _start(self, fetch: _Fetch) -> None:
        if not fetch.future.set_running_or_notify_cancel():
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._most(), "penstock-reader")
        expected = self._expected(fetch.size)
        self._in_flight += 1
        self._in_flight_bytes += expected
        self._pool.submit(self._run, fetch, expected, self._iteration)

    def _run(self, fetch: _Fetch, expected: int, iteration: int) -> None:
        """On a thread of the pool, without the lock."""
        begin = time.monotonic()
        result, failure, got = None, None, 0
        try:
            result = fetch.function(fetch.argument)
            parts = result if isinstance(result, list) else [result]
            got = sum(len(part) for part in parts if not isinstance(part, Exception))
        except BaseException as error:
            failure = error
        end = time.monotonic()
        with self._lock:
            self._in_flight -= 1
            self._in_flight_bytes -= expected
            if failure is None:
                self._read_window.finished(begin, end, max(got, 1))
                self._fetched += 1
                self._fetched_bytes += got
                if iteration == self._iteration and not isinstance(result, list):
                    self._ready_bytes += got
            self._send()
        if failure is None:
            fetch.future.set_result(result)
        else:
            fetch.future.set_exception(failure)

    def _taken(self, future: Future[Any], iteration: int) -> None:
        """Without the lock: what was fetched is its reader's now."""
        if future.exception() is not None:
            return
        with self._lock:
            if iteration == self._iteration:
                self._ready_bytes -= len(future.result())
                self._send()

    def _find_block(self, block: int) -> Future[list[Any]]:
        """Under the lock. Keeps the blocks of the window in use and of the next one, which begins to be announced."""
        future = self._blocks.get(block)
        if future is None:
            future = self._blocks[block] = self._submit(self._fetch_block, block, -1)
            while len(self._blocks) > 2 * self._window:
                self._blocks.popitem(last=False)
        self._blocks.move_to_end(block)
        return future

    def _fetch(self, index: int) -> bytes:
        path, begin, size, _ = self._samples[index]
        return self._fetch_part(os.fsdecode(path), begin, size)

    def _fetch_block(self, block: int) -> list[Any]:
        """The samples of a block. Errors take the places of those that cannot be read."""
        first = block * self._block
        entries = [self._samples[i] for i in range(first, min(first + self._block, len(self._samples)))]
        found: list[Any] = [None] * len(entries)
        begin = 0
        while begin < len(entries):
            path, start, size, _ = entries[begin]
            stop, end = start + size, begin + 1
            while end < len(entries) and size >= 0:
                next_path, next_start, next_size, _ = entries[end]
                if next_path != path or not 0 <= next_start - stop <= _GAP_BYTES:
                    break
                stop, end = next_start + next_size, end + 1
            try:
                data = memoryview(self._fetch_part(os.fsdecode(path), start, -1 if size < 0 else stop - start))
                for i in range(begin, end):
                    place = entries[i][1] - start
                    found[i] = data if size < 0 else data[place : place + entries[i][2]]
            except Exception as error:
                found[begin:end] = [error] * (end - begin)
            begin = end
        return found

    def _fetch_part(self, path: str, begin: int, size: int) -> bytes:
        end = time.monotonic() + self._how.deadline_s
        pause = 0.05
        for attempt in range(1, 1 << 30):
            try:
                return self._get(path, begin, size)
            except _FINAL:
                raise
            except Exception as error:
                # Full jitter, so that clients that failed together do not return together.
                pause = min(2 * pause, 5.0)
                delay = random.uniform(0, pause)
                if time.monotonic() + delay >= end:
                    raise OSError(f"{path} failed {attempt} times in {self._how.deadline_s:g} s: {error!r}") from error
                time.sleep(delay)
        raise AssertionError

    def _get(self, path: str, begin: int, size: int) -> bytes:
        limit = self._max_bytes
        if size == 0:
            data = b""
        elif "://" not in path:
            data = _local(path, begin, limit + 1 if size < 0 else size)
        elif size < 0:
            data = _object(self._filesystem(path), path, limit)
        else:
            data = self._filesystem(path).cat_file(path, start=begin, end=begin + size)
        if size < 0 and len(data) > limit:
            raise ValueError(f"it holds more than the limit of {limit} bytes per sample")
        if 0 <= size != len(data):
            raise ValueError(
                f"it gave {len(data)} of the {size} bytes from {begin}; make the index again if it changed"
            )
        return bytes(data)

    def _filesystem(self, url: str) -> Any:
        place = "/".join(url.split("/", 3)[:3])
        found = self._filesystems.get(place)
        if found is None:
            found = self._filesystems[place] = filesystem(url, self._how.storage_options)
        return found


def _local(path: str, begin: int, size: int) -> bytes:
    """The bytes of a file from ``begin`` on: ``size`` of them, or as many as there are."""
    # O_NONBLOCK: opening a FIFO must not block the thread until somebody writes.
    with open(path, "rb", buffering=0, opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"{path} is not a regular file")
        file.seek(begin)
        parts = []
        while size > 0 and (part := file.read(min(size, max(status.st_size - begin, 0) + 1))):
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


def _object(filesystem: Any, url: str, limit: int) -> Any:
    """A whole object, or its first ``limit`` + 1 bytes if there are more: nobody knows its size before."""
    if limit >= _ANY_BYTES:
        return filesystem.cat_file(url)
    try:
        return filesystem.cat_file(url, start=0, end=limit + 1)
    except _FINAL:
        raise
    except Exception as error:
        # Servers of objects refuse every range of an object without bytes (RFC 9110, 14.1.2).
        if _is_refused_range(error) and filesystem.size(url) == 0:
            return b""
        raise


def _is_refused_range(error: BaseException | None) -> bool:
    # Clients say it in words of their own, or only in what caused their error.
    while error is not None:
        if "416" in str(error) or "range" in str(error).lower():
            return True
        error = error.__cause__
    return False


def filesystem(url: str, storage_options: dict[str, Any] | None) -> Any:
    """fsspec's file system for a URL."""
    try:
        import fsspec
    except ImportError as error:
        raise Error(f"{url} needs fsspec; pip install 'penstock[remote]'", "unsupported", cause=str(error)) from None
    try:
        options = dict(storage_options or {})
        if url.startswith(_S3) and _is_s3fs(fsspec.get_filesystem_class(url.split(":", 1)[0])):
            options.setdefault("max_concurrency", 1)  # more makes s3fs ask for an object's size before it reads it
            # Its client has 10 connections otherwise, whatever is asked for at a time.
            options["config_kwargs"] = {"max_pool_connections": _MOST_REQUESTS, **options.get("config_kwargs", {})}
        return fsspec.core.url_to_fs(url, **options)[0]
    except (ImportError, ValueError) as error:
        raise Error(f"{url} cannot be read", "unsupported", cause=str(error)) from None


def _is_s3fs(kind: type) -> bool:
    """A program can register another client for S3 with fsspec."""
    return kind.__module__.split(".")[0] == "s3fs"


@contextlib.contextmanager
def read_errors(place: str) -> Iterator[None]:
    """What the system or a storage refuses becomes an Error that names the file, the object or the folder."""
    try:
        yield
    except Error:
        raise
    except OSError as error:
        code = "not_found" if isinstance(error, FileNotFoundError) else "io"
        raise Error(f"{error.filename or place} cannot be read", code, cause=error.strerror or str(error)) from None


@contextlib.contextmanager
def opened(url: str, storage_options: dict[str, Any] | None) -> Iterator[Any]:
    """A file object for reading a local file or an object."""
    with read_errors(url):
        where = filesystem(url, storage_options) if "://" in url else None
        with where.open(url, "rb") if where else open(url, "rb") as file:
            yield file
