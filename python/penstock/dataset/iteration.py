"""One pass over a dataset."""

from __future__ import annotations

import atexit
import ctypes
import dataclasses
import json
import math
import os
import sys
import traceback
import warnings
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock import _penstock
from penstock.dataset import sample_tree
from penstock.dataset.processes import InProcesses, end_workers, worker_of
from penstock.dataset.reader import Reader
from penstock.dataset.statistics import Skipped, SkippedSamples, Stats

if TYPE_CHECKING:
    from penstock.dataset.lance import LanceSource
    from penstock.dataset.pipeline import Dataset
    from penstock.dataset.tables import GroupSource


class Interrupted(BaseException):
    """Raised inside a function of a dataset that exceeds :meth:`Dataset.limits`, or that keeps an iteration from closing."""


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of stages that the Python side implements."""

    seed: int | None = None
    epochs: int = 1
    with_indices: bool = False
    prefetch: bool = False  #: Whether prefetch() was called.
    random_stages: int = 0
    #: (what identifies it: text, or a function; its arguments) of each stage that changes samples.
    stages: tuple[tuple[Any, ...], ...] = ()
    deterministic: bool = True  #: Batches come in their order.
    ranks: int = 1  #: Of shard().
    batch: int = 0  #: Samples in a full batch, of all ranks; 0 before batch().
    limits: tuple[int, int, int] = (1 << 30, 1 << 28, 0)  #: (bytes, pixels, milliseconds).
    cpus: int = 0  #: Of budget(); 0: the default.
    ram_bytes: int = 0  #: Of budget(); 0: no limit.
    log: Callable[[Skipped], Any] | str | None = None
    digest: Callable[[], str] = lambda: ""
    #: Sources and stages with threads, processes or memory of their own, and the (block, window) by which they are shuffled.
    readers: tuple[tuple[Reader | GroupSource | LanceSource | InProcesses, tuple[int, int] | None], ...] = ()


DEFAULT_PREFETCH = (2, 256 << 20)


class Iteration:
    """One pass over a dataset. Advances the dataset's position."""

    def __init__(self, dataset: Dataset) -> None:
        options = dataset._options
        self._dataset = weakref.ref(dataset)
        self._options = options
        self._process = os.getpid()
        chain = dataset._chain
        # What is fetched from URLs, and the samples and batches that are made of it, divide the budget.
        fetched = options.ram_bytes // 2 if any(isinstance(each, Reader) for each, _ in options.readers) else 0
        if fetched:
            chain = chain.budget(options.cpus, options.ram_bytes - fetched)
        if options.batch and not options.prefetch:
            batches, most = DEFAULT_PREFETCH
            # Batches far ahead would need other blocks than those that are kept.
            adapts = all(blocks is None for _, blocks in options.readers)
            chain = chain.prefetch(batches, 0 if options.ram_bytes else most, True, adapts)
        for reader, blocks in options.readers:
            if isinstance(reader, Reader):
                reader.prepare(blocks, options.limits[0], max(fetched // len(options.readers), 1) if fetched else 0)
            else:
                reader.prepare(blocks, options.limits[0])
        self._core = chain.iterate(
            (dataset._epoch, dataset._position, dataset._skipped_before, dataset._given), dataset._trees
        )
        self._last_tree: Any = None
        self._done = False
        self.delivered: bool = False
        self.skipped: SkippedSamples = SkippedSamples()
        self.end_epoch: float = (
            math.inf if options.epochs == 0 else (dataset._epoch // options.epochs + 1) * options.epochs
        )
        _open.add(self)

    def __iter__(self) -> Iteration:
        return self

    def __next__(self) -> Any:
        if self._done:
            raise StopIteration
        batch = self._core.next()
        dataset = self._dataset()
        current = dataset is not None and dataset._running is self
        new = [
            Skipped(os.fsdecode(path), index, epoch, place, why)
            for path, index, epoch, place, why in self._core.skipped(self.skipped.total)
        ]
        self.skipped.add(new)
        if dataset is not None and current:
            dataset._epoch, dataset._position, dataset._skipped_before, dataset._given = self._core.state()
            dataset._skipped_total += len(new)
        for one in new:
            self._log(one)
        if batch is None:
            self._done = True
            if dataset is not None and current:
                dataset._stop()
            raise StopIteration
        self.delivered = True
        samples, labels, indices = batch
        if labels is not None:
            return (samples, labels, indices) if self._options.with_indices else (samples, labels)
        if samples is sample_tree.NOTHING:
            samples = None
        if samples is not None:
            self._last_tree = samples
        elif self._last_tree is not None:
            samples = sample_tree.emptied(self._last_tree)
        return (samples, indices) if self._options.with_indices else samples

    def _log(self, skipped: Skipped) -> None:
        log = self._options.log
        if callable(log):
            log(skipped)
        elif log is not None:
            with open(log, "a", encoding="utf-8", errors="surrogateescape") as file:
                file.write(json.dumps(skipped._asdict()) + "\n")

    def forked(self) -> bool:
        return os.getpid() != self._process

    def stats(self) -> Stats:
        return Stats(*self._core.stats())

    def close(self) -> None:
        left_behind = self._core.close()
        for reader, _ in self._options.readers:
            reader.forget()
        _open.discard(self)
        for where in left_behind:
            warnings.warn(
                "a function of this dataset does not return; its thread is left behind" + (where and f": {where}"),
                RuntimeWarning,
                stacklevel=4,
            )


# Threads that call map functions must end before the interpreter.
_open: weakref.WeakSet[Iteration] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for iteration in list(_open):
        iteration.close()
    end_workers()
    _penstock.dataset.forget_functions()


def interrupt(thread: int) -> str:
    """Returns the stack of a thread, and raises Interrupted in the Python function that it runs."""
    frame = sys._current_frames().get(thread)
    here = "it stands at\n" + "".join(traceback.format_stack(frame)).rstrip() if frame else ""
    if (worker := worker_of(thread)) is not None:
        # An asynchronous exception would be lost if it came in a finalizer, as it often does where there is no GIL.
        return worker.interrupt(thread, Interrupted) or here
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(Interrupted))
    return here
