"""Functions of a dataset in worker processes. Arrays go there and back in shared memory."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import pickle
import select
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from multiprocessing import connection, spawn
from typing import Any

from penstock.dataset import worker_process
from penstock.dataset.shared_arrays import Part, SharedMemory, flattened, needed_bytes, store, view
from penstock.error import Error
from penstock.spmd import OF_LAUNCHERS

#: How often a thread that waits for a worker looks whether it was interrupted, and whether the worker lives.
_LOOK_S = 0.2
#: How long a worker may take to write its stack.
_STACK_S = 1.0
#: How long a worker that has nothing to do may take to end.
_END_S = 2.0

# Another thread may hold any lock when a process forks, so workers are started anew, by spawn's way of importing the main
# module. Processes of multiprocessing itself are not used: a forked child ends those of its parent when it exits.
_START = (
    "import sys; from multiprocessing import connection, spawn; "
    "pipe = connection.Connection(int(sys.argv[1])); data = pipe.recv(); "
    "main = {name: data.pop(name) for name in list(data) if name.startswith('init_main')}; "
    "spawn.prepare(data); from penstock.dataset import worker_process; worker_process.serve(pipe, main)"
)


class WorkerError(RuntimeError):
    """A worker process ended, or its function raised an exception, while it made a sample."""


class _Worker:
    """A process that runs one function. One thread uses it at a time."""

    def __init__(self, name: str, function: bytes, file: int) -> None:
        self._name = name
        self._stacks = os.memfd_create("penstock-stacks", os.MFD_CLOEXEC)
        self._pipe, theirs = connection.Pipe()
        lifeline, self._lifeline = os.pipe()
        inherited = (theirs.fileno(), lifeline, file, self._stacks)
        executable = os.fsdecode(spawn.get_executable() or sys.executable)
        try:
            self._process = subprocess.Popen(
                [executable, "-c", _START, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=inherited,
                env={name: value for name, value in os.environ.items() if not name.startswith(OF_LAUNCHERS)},
                start_new_session=True,  # the program decides what Ctrl-C means
            )
        except BaseException:
            self._close_files()
            raise
        finally:
            theirs.close()
            os.close(lifeline)
        weakref.finalize(self, _kill, self._process).atexit = False
        self._answers = select.poll()
        self._answers.register(self._pipe.fileno(), select.POLLIN)
        self._ready = False
        self._interrupts: dict[int, type[BaseException]] = {}  # thread → what it is to raise
        self._was_interrupted = False
        with contextlib.suppress(OSError):  # answer() says how it ended
            self._pipe.send(_preparation())
            self._pipe.send_bytes(pickle.dumps((*inherited[1:], function)))

    def wait_until_ready(self) -> None:
        if self._ready:
            return
        first = self.answer()
        if first[0] != "ready":
            raise Error(
                f"a worker process for {self._name} cannot start: it must be able to import the function and the program's "
                "main module; define the function at the top level of a module, or install cloudpickle",
                cause=first[1],
            )
        self._ready = True

    def send(self, message: Any) -> None:
        with contextlib.suppress(OSError):  # answer() says how it ended
            self._pipe.send_bytes(pickle.dumps(message))

    def answer(self) -> Any:
        # The pipe alone would not do: a child of the worker may hold its other end open.
        while not self._answers.poll(_LOOK_S * 1000) and self._process.poll() is None:
            if (interrupt := self._interrupts.get(threading.get_ident())) is not None:
                self._was_interrupted = True
                raise interrupt
        try:
            if not self._answers.poll(0):
                raise EOFError
            return pickle.loads(self._pipe.recv_bytes())
        except (EOFError, OSError):
            raise WorkerError(self._how_it_ended()) from None

    def begin(self) -> None:
        self._interrupts.clear()
        self._was_interrupted = False

    def goes_on_starting(self) -> bool:
        """Whether its thread was interrupted while it waited for the start, before it took the answer."""
        return self._was_interrupted and not self._ready and self._process.poll() is None

    def interrupt(self, thread: int, error: type[BaseException]) -> str:
        """Where its function stands. The thread, if it still waits for this worker, raises the error."""
        stack = self.stack()
        self._interrupts[thread] = error
        return stack

    def _how_it_ended(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)
        status = self._process.returncode
        if status is None:
            how = "closed its pipe"
        elif status < 0:
            how = f"ended by signal {-status} ({signal.strsignal(-status)})"
        else:
            how = f"ended with status {status}"
        return f"the worker process {self._process.pid} of {self._name} {how}"

    def stack(self) -> str:
        """Where its function stands."""
        if self._process.poll() is not None:
            return ""
        if not self._ready:  # the signal would end it
            return f"the worker process {self._process.pid} of {self._name} has not started yet"
        before = os.fstat(self._stacks).st_size
        os.kill(self._process.pid, signal.SIGUSR1)
        end = time.monotonic() + _STACK_S
        size = before
        while time.monotonic() < end:
            time.sleep(0.02)
            last, size = size, os.fstat(self._stacks).st_size
            if last == size > before:
                break
        text = os.pread(self._stacks, size - before, before).decode(errors="replace").rstrip()
        return f"{self._name} in its worker process {self._process.pid} stands at\n{text}"

    def dismiss(self) -> None:
        """A worker that waits for samples ends by itself."""
        self._pipe.close()

    def end(self, patience_s: float = 0) -> None:
        self._pipe.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(patience_s)
        self._process.kill()
        self._process.wait()
        self._close_files()

    def forget(self) -> None:
        """In a forked child: the parent's worker must see the parent's end."""
        self._process.returncode = 0  # not this process's child
        self._close_files()

    def _close_files(self) -> None:
        self._pipe.close()
        for file in (self._lifeline, self._stacks):
            if file >= 0:
                os.close(file)
        self._lifeline = self._stacks = -1


def _preparation() -> dict[str, Any]:
    """What spawn.prepare() needs for the modules of this program. The key is for multiprocessing's own children."""
    return {name: value for name, value in spawn.get_preparation_data("penstock-worker").items() if name != "authkey"}


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.returncode is None:
        process.kill()
        process.wait()


_busy: dict[int, _Worker] = {}  # thread → the worker that it waits for


def worker_of(thread: int) -> _Worker | None:
    """The worker for which a thread waits."""
    return _busy.get(thread)


class _Pool:
    """The workers of one function, and the memory that they share with this process."""

    def __init__(self, name: str, function: bytes, processes: int, kept_bytes: int) -> None:
        if worker_process.importing_main:
            raise Error(
                f"a worker process for {name} runs the program's main module again, which starts to iterate; put what it does "
                'under if __name__ == "__main__":'
            )
        self.process: int = os.getpid()
        self.memory: SharedMemory = SharedMemory(kept_bytes)
        self._name = name
        self._function = function
        self._processes = processes
        self._changed = threading.Condition()
        #: Those that an interrupted thread has lost end as garbage.
        self._workers: weakref.WeakSet[_Worker] = weakref.WeakSet()
        self._result_bytes = 0  # the largest so far
        workers: list[_Worker] = []
        _pools.add(self)
        try:
            workers += (self._start() for _ in range(processes))
            for worker in workers:
                worker.wait_until_ready()
        except BaseException as error:
            for worker in list(self._workers):
                worker.end()
            if isinstance(error, WorkerError):
                raise Error(f"{error} before it was ready", cause="see what it wrote") from None
            raise
        self._idle = workers

    def _start(self) -> _Worker:
        worker = _Worker(self._name, self._function, self.memory.shared.file)
        self._workers.add(worker)
        return worker

    def _take(self) -> _Worker:
        with self._changed:
            while not self._idle and len(self._workers) >= self._processes:
                self._changed.wait(_LOOK_S)
            return self._idle.pop() if self._idle else self._start()

    def _give_back(self, worker: _Worker) -> None:
        with self._changed:
            self._idle.append(worker)
            self._changed.notify()

    def call(self, arguments: tuple[Any, ...]) -> Any:
        head, arrays = flattened(arguments)
        given = needed_bytes(arrays)
        part, memory = self.memory.take(given + self._result_bytes)
        taken = [(part, memory)]
        parts = store(arrays, self.memory.shared, part.begin)
        thread = threading.get_ident()
        worker = self._take()
        try:
            worker.begin()
            _busy[thread] = worker
            worker.wait_until_ready()
            worker.send((head, parts, Part(part.begin, given), Part(part.begin + given, part.size_bytes - given)))
            answer = worker.answer()
            if answer[0] == "larger":
                self._result_bytes = max(self._result_bytes, answer[1])
                taken.append(self.memory.take(answer[1]))
                worker.send(taken[-1][0])
                answer = worker.answer()
        except BaseException:
            # An interrupt, perhaps. Only then is the memory free: nobody writes to it.
            if worker.goes_on_starting():  # a start may take longer than a sample may; a later one finds it ready
                self._give_back(worker)
            else:
                worker.end()
                self._workers.discard(worker)
            raise
        finally:
            _busy.pop(thread, None)
        self._give_back(worker)
        if answer[0] == "failed":
            raise WorkerError(f"{self._name} in its worker process:\n{answer[1]}")
        _, head, parts = answer
        return pickle.loads(head, buffers=[view(part, taken) for part in parts])

    def end(self) -> None:
        """Ends the workers, which have nothing to do."""
        workers = list(self._workers)
        for worker in workers:
            worker.dismiss()
        patience_end = time.monotonic() + _END_S
        for worker in workers:
            worker.end(max(patience_end - time.monotonic(), 0))
        self._workers.clear()
        self._idle.clear()

    def forget(self) -> None:
        for worker in list(self._workers):
            worker.forget()


_pools: weakref.WeakSet[_Pool] = weakref.WeakSet()


def _forget_pools() -> None:
    for pool in list(_pools):
        pool.forget()
    _pools.clear()
    _busy.clear()


os.register_at_fork(after_in_child=_forget_pools)


def end_workers() -> None:
    """Before the interpreter ends, once no thread uses a worker."""
    for pool in list(_pools):
        pool.end()
    _pools.clear()


def _end(pool: _Pool) -> None:
    if pool in _pools:  # of this process
        _pools.discard(pool)
        pool.end()


class InProcesses:
    """A function that runs in worker processes, which start with the first iteration. Several threads call it at once."""

    def __init__(
        self, function: Callable[..., Any], processes: int, kept_bytes: int, makes_several: bool = False
    ) -> None:
        self._name = _name(function)
        self._function = _pickled(worker_process.Listing(function) if makes_several else function, self._name)
        self._processes = processes
        self._kept_bytes = kept_bytes
        self._pool: _Pool | None = None

    def __call__(self, *arguments: Any) -> Any:
        if self._pool is None:
            raise Error(f"the worker processes of {self._name} have not started")
        return self._pool.call(arguments)

    def prepare(self, _blocks: Any, _max_bytes: int) -> None:
        """An iteration begins. A forked child shares no worker with its parent."""
        if self._pool is None or self._pool.process != os.getpid():
            self._pool = _Pool(self._name, self._function, self._processes, self._kept_bytes)
            weakref.finalize(self, _end, self._pool).atexit = False

    def forget(self) -> None:
        """An iteration ended: the workers wait for the next one."""
        if self._pool is not None and self._pool.process == os.getpid():
            self._pool.memory.trim()


def _name(function: Any) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    return f"{getattr(function, '__qualname__', type(function).__qualname__)}()"


def _pickled(function: Callable[..., Any], name: str) -> bytes:
    main_can_be_imported = any(key.startswith("init_main") for key in _preparation())
    try:
        content = pickle.dumps(function)
        if main_can_be_imported or b"__main__" not in content:
            return content
        why: str = "it is defined in a session or a string, which another process cannot import"
    except Exception as error:
        why = str(error)
    try:
        by_value: bytes = importlib.import_module("cloudpickle").dumps(function)
        return by_value
    except ImportError:
        pass
    except Exception as error:
        why = str(error)
    raise Error(
        f"{name} cannot go to worker processes: it must be picklable; define it at the top level of a module, or install "
        "cloudpickle",
        cause=why,
    ) from None
