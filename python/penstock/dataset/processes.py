"""Functions of a dataset in worker processes. Arrays go there and back in shared memory."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import importlib
import mmap
import multiprocessing
import os
import pickle
import queue
import signal
import tempfile
import threading
import time
import traceback
import weakref
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np

from penstock.dataset import sample_tree
from penstock.error import Error

_ALIGNMENT_BYTES = 64
_SMALLEST_BYTES = 1 << 12
#: Shorter strings of bytes go through the pipe.
_LONG_BYTES = 1 << 12
#: How often a thread that waits for a worker looks whether it was interrupted.
_LOOK_S = 0.2
#: How long a worker may take to write its stack.
_STACK_S = 1.0


class WorkerFailed(RuntimeError):
    """A worker process ended, or its function raised an exception, while it made a sample."""


# Shared memory.


class Part(NamedTuple):
    """Where something is in the shared file."""

    begin: int
    size_bytes: int


class SharedFile:
    """Memory that processes share: a file without a name, which grows."""

    def __init__(self, file: int) -> None:
        self.file = file
        self.map: mmap.mmap | None = None

    def mapped(self, end: int) -> mmap.mmap:
        """A map of at least the first `end` bytes. Older maps stay valid while something refers to them."""
        if self.map is None or len(self.map) < end:
            self.map = mmap.mmap(self.file, os.fstat(self.file).st_size)
        return self.map

    def close(self) -> None:
        self.map = None
        os.close(self.file)


class Arena:
    """Shared memory in parts of 2^n bytes. A part is free again when nothing refers to its memory."""

    def __init__(self) -> None:
        self.shared = SharedFile(os.memfd_create("penstock-samples", os.MFD_CLOEXEC))
        self._lock = threading.Lock()
        self._free: dict[int, list[int]] = {}
        self._end = 0

    def take(self, size_bytes: int) -> tuple[Part, Any]:
        """(part, its memory)."""
        size = max(_SMALLEST_BYTES, 1 << max(size_bytes - 1, 0).bit_length())
        with self._lock:
            free = self._free.setdefault(size, [])
            if free:
                begin = free.pop()
            else:
                begin, self._end = self._end, self._end + size
                # Twice as much each time: every map is made anew.
                if self._end > os.fstat(self.shared.file).st_size:
                    os.ftruncate(self.shared.file, max(2 * self._end, 1 << 20))
            memory = (ctypes.c_char * size).from_buffer(self.shared.mapped(self._end), begin)
        # append() needs no lock, which a finalizer could find taken by its own thread.
        weakref.finalize(memory, free.append, begin).atexit = False
        return Part(begin, size), memory


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


def _place_in(given: Part, memory: Any, array: memoryview) -> Part | None:
    """Where an array is, if it is in a part of shared memory."""
    begin = _address(array) - _address(memory) if array.nbytes else -1
    inside = given.begin <= begin <= given.begin + given.size_bytes - array.nbytes
    return Part(begin, array.nbytes) if inside else None


def _address(buffer: Any) -> int:
    return int(np.frombuffer(buffer, np.uint8).__array_interface__["data"][0])


# The worker process.


def _worker(pipe: Connection, file: int, errors: str, function: bytes) -> None:
    """Runs the function on samples until the pipe ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the program decides what an interrupt means
    with open(errors, "wb", buffering=0) as stacks:
        faulthandler.register(signal.SIGUSR1, stacks)
        try:
            run = pickle.loads(function)
        except BaseException as error:
            pipe.send_bytes(_failure(error))
            return
        pipe.send_bytes(pickle.dumps("ready"))
        parent = os.getppid()
        shared = SharedFile(os.open(f"/proc/{parent}/fd/{file}", os.O_RDWR | os.O_CLOEXEC))
        with contextlib.suppress(EOFError, OSError):
            while True:
                _serve(pipe, shared, run)


def _serve(pipe: Connection, shared: SharedFile, run: Callable[..., Any]) -> None:
    """Makes one sample."""
    head, parts, given, room = pickle.loads(pipe.recv_bytes())
    try:
        whole = memoryview(shared.mapped(room.begin + room.size_bytes))
        arguments = pickle.loads(head, buffers=[whole[part.begin : part.begin + part.size_bytes] for part in parts])
        head, arrays = flattened(run(*arguments))
        places = [_place_in(given, whole, array) for array in arrays]
    except BaseException as error:
        pipe.send_bytes(_failure(error))
        return
    moving = [array for array, place in zip(arrays, places) if place is None]
    if needed_bytes(moving) > room.size_bytes:
        pipe.send_bytes(pickle.dumps(("larger", needed_bytes(moving))))
        room = pickle.loads(pipe.recv_bytes())
    moved = iter(store(moving, shared, room.begin))
    pipe.send_bytes(pickle.dumps(("made", head, [place or next(moved) for place in places])))


def _failure(error: BaseException) -> bytes:
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__)).rstrip()
    return pickle.dumps(("failed", text))


# The program's side.


class _Worker:
    """A process that runs one function. One thread uses it at a time."""

    def __init__(self, function: bytes, file: int) -> None:
        self._stacks = tempfile.NamedTemporaryFile(prefix="penstock-stacks-")  # noqa: SIM115
        spawn = multiprocessing.get_context("spawn")
        self._pipe, theirs = spawn.Pipe()
        self._process = spawn.Process(
            target=_worker, args=(theirs, file, self._stacks.name, function), name="penstock-worker", daemon=True
        )
        with _starting:
            self._process.start()
        theirs.close()
        self._ready = False

    def await_ready(self) -> None:
        if self._ready:
            return
        first = self.answer()
        if first != "ready":
            raise Error(
                "the function of a dataset cannot run in a worker process: it must be importable there, so define it in a "
                "module, or install cloudpickle",
                cause=first[1],
            )
        self._ready = True

    def send(self, message: Any) -> None:
        with contextlib.suppress(OSError):  # answer() says how it ended
            self._pipe.send_bytes(pickle.dumps(message))

    def answer(self) -> Any:
        try:
            while not self._pipe.poll(_LOOK_S):
                pass
            return pickle.loads(self._pipe.recv_bytes())
        except (EOFError, OSError):
            self._process.join()
            status = self._process.exitcode or 0
            how = f"the worker process ended {f'by signal {-status}' if status < 0 else f'with status {status}'}"
            if not self._ready:
                how += '; a program that uses processes= needs if __name__ == "__main__": around what it runs'
            raise WorkerFailed(how) from None

    def stack(self) -> str:
        """Where its function stands."""
        with contextlib.suppress(OSError), open(self._stacks.name, encoding="utf-8", errors="replace") as file:
            file.seek(0, os.SEEK_END)
            os.kill(self._process.pid or 0, signal.SIGUSR1)
            end = time.monotonic() + _STACK_S
            text = ""
            while time.monotonic() < end:
                time.sleep(0.02)
                more = file.read()
                if text and not more:
                    break
                text += more
            return f"its worker process {self._process.pid} stands at\n{text.rstrip()}"
        return ""

    def end(self) -> None:
        self._pipe.close()
        self._process.kill()
        self._process.join()
        self._stacks.close()


_starting = threading.Lock()  # multiprocessing's own state is not for several threads
_busy: dict[int, _Worker] = {}  # thread → the worker that it waits for


def stack_of_worker(thread: int) -> str:
    worker = _busy.get(thread)
    return worker.stack() if worker is not None else ""


class _Pool:
    """The workers of one function, and the memory that they share with this process."""

    def __init__(self, function: bytes, processes: int) -> None:
        self.process = os.getpid()
        self._function = function
        self._arena = Arena()
        self._result_bytes = 0  # the largest so far
        self._idle: queue.LifoQueue[_Worker | None] = queue.LifoQueue()
        workers = [self._start() for _ in range(processes)]
        try:
            for worker in workers:
                worker.await_ready()
        except BaseException:
            for worker in workers:
                worker.end()
            self._arena.shared.close()
            raise
        for worker in workers:
            self._idle.put(worker)

    def _start(self) -> _Worker:
        return _Worker(self._function, self._arena.shared.file)

    def call(self, arguments: tuple[Any, ...]) -> Any:
        head, arrays = flattened(arguments)
        given = needed_bytes(arrays)
        part, memory = self._arena.take(given + self._result_bytes)
        lent = [(part, memory)]
        parts = store(arrays, self._arena.shared, part.begin)
        worker = self._idle.get()
        try:
            if worker is None:
                worker = self._start()
            _busy[threading.get_ident()] = worker
            worker.await_ready()
            worker.send((head, parts, Part(part.begin, given), Part(part.begin + given, part.size_bytes - given)))
            answer = worker.answer()
            if answer[0] == "larger":
                self._result_bytes = max(self._result_bytes, answer[1])
                lent.append(self._arena.take(answer[1]))
                worker.send(lent[-1][0])
                answer = worker.answer()
        except BaseException:
            # An interrupt, perhaps: the memory is lent again only after nobody writes to it.
            if worker is not None:
                worker.end()
                worker = None
            raise
        finally:
            _busy.pop(threading.get_ident(), None)
            self._idle.put(worker)
        if answer[0] == "failed":
            raise WorkerFailed("in a worker process:\n" + answer[1])
        _, head, parts = answer
        return pickle.loads(head, buffers=[_view(part, lent) for part in parts])

    def end(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                worker = self._idle.get_nowait()
                if worker is not None:
                    worker.end()
        self._arena.shared.close()


def _view(part: Part, lent: list[tuple[Part, Any]]) -> memoryview:
    for place, memory in lent:
        begin = part.begin - place.begin
        if 0 <= begin <= place.size_bytes - part.size_bytes:
            return memoryview(memory).cast("B")[begin : begin + part.size_bytes]
    raise AssertionError(f"{part} is not in {[place for place, _ in lent]}")


def _end(pool: _Pool) -> None:
    if pool.process == os.getpid():
        pool.end()


class InProcesses:
    """A function that runs in worker processes, which start with the first iteration. Several threads call it at once."""

    def __init__(self, function: Callable[..., Any], processes: int) -> None:
        self._function = _pickled(function)
        self._processes = processes
        self._pool: _Pool | None = None

    def __call__(self, *arguments: Any) -> Any:
        assert self._pool is not None
        return self._pool.call(arguments)

    def prepare(self, _blocks: Any, _max_bytes: int) -> None:
        """An iteration begins. A forked child shares no worker with its parent."""
        if self._pool is None or self._pool.process != os.getpid():
            self._pool = _Pool(self._function, self._processes)
            weakref.finalize(self, _end, self._pool)

    def forget(self) -> None:
        """An iteration ended: the workers wait for the next one."""


def _pickled(function: Callable[..., Any]) -> bytes:
    try:
        content: bytes = importlib.import_module("cloudpickle").dumps(function)
        return content
    except ImportError:
        pass
    try:
        return pickle.dumps(function)
    except Exception as error:
        raise Error(
            f"{getattr(function, '__qualname__', function)!r} cannot go to worker processes: define it at the top level of a "
            "module, or install cloudpickle",
            cause=str(error),
        ) from None
