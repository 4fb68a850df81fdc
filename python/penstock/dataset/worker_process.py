"""A worker process: runs a function of a dataset on samples that another process sends."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import pickle
import signal
import threading
import traceback
from collections.abc import Callable
from multiprocessing import spawn
from multiprocessing.connection import Connection
from typing import Any

from penstock.dataset.shared_arrays import SharedFile, flattened, needed_bytes, place_in, store

#: Whether this process is a worker that runs the program's main module again, as multiprocessing does.
importing_main: bool = False


class Listing:
    """A function whose samples come as a list: what yields them cannot leave its process."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *arguments: Any) -> list[Any]:
        return list(self._function(*arguments))


def serve(pipe: Connection, main: dict[str, Any]) -> None:
    """Runs the function until the pipe ends. `main` says how the program's main module is imported."""
    lifeline, file, stacks, function = pickle.loads(pipe.recv_bytes())
    threading.Thread(target=_end_with_program, args=(lifeline,), daemon=True).start()
    faulthandler.register(signal.SIGUSR1, stacks, all_threads=False)
    global importing_main
    try:
        importing_main = True
        spawn.prepare(main)
        importing_main = False
        run = pickle.loads(function)
    except BaseException as error:
        pipe.send_bytes(_failure(error))
        return
    pipe.send_bytes(pickle.dumps(("ready", os.getpid())))
    shared = SharedFile(file)
    with contextlib.suppress(EOFError, OSError):
        while True:
            _make(pipe, shared, run)


def _end_with_program(lifeline: int) -> None:
    """Nothing is ever sent. The read returns when the program's end of the pipe is closed, however the program ended."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # they belong to the thread that runs functions
    os.read(lifeline, 1)
    os._exit(1)


def _make(pipe: Connection, shared: SharedFile, run: Callable[..., Any]) -> None:
    """Makes one sample."""
    head, parts, given, room = pickle.loads(pipe.recv_bytes())
    try:
        whole = memoryview(shared.mapped(room.begin + room.size_bytes))
        arguments = pickle.loads(head, buffers=[whole[part.begin : part.begin + part.size_bytes] for part in parts])
        head, arrays = flattened(run(*arguments))
        places = [place_in(given, whole, array) for array in arrays]
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
