"""Traces: what each thread of this process did, and when.

``start()`` enables recording. The engine, the input pipeline, the stores and the checkpoints then record a span for each
activity; ``span`` adds the program's own. ``take()`` returns the spans; ``save()`` writes a file for ui.perfetto.dev. While
recording is off, a span costs two reads of the clock. All functions are thread-safe.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

from penstock._penstock import trace as _trace

__all__ = ["Event", "enabled", "now_ns", "save", "span", "start", "stop", "take"]

start: Callable[[], None] = _trace.start
stop: Callable[[], None] = _trace.stop
enabled: Callable[[], bool] = _trace.enabled
now_ns: Callable[[], int] = _trace.now_ns
"""CLOCK_MONOTONIC in nanoseconds: the clock of all spans."""

span = _trace.Span
"""``with span(name, lane="application", nbytes=0) as s: …`` records a span; ``s.seconds`` is then its duration."""


class Event(NamedTuple):
    """A finished span. Times are CLOCK_MONOTONIC, so traces of the processes of one machine can be merged."""

    name: str
    lane: str
    begin_ns: int
    end_ns: int
    nbytes: int
    thread: int
    core: int


def take() -> list[Event]:
    """All spans since the last call, ordered by their begin."""
    return [Event(*row) for row in _trace.take()]


def save(path: str | os.PathLike[str], process: int = 0) -> None:
    """Take all spans and write them as a Chrome trace. `process` distinguishes several processes: a rank, say."""
    with open(path, "w", encoding="utf-8") as file:
        file.write(_trace.take_json(process))
