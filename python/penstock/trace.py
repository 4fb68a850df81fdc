"""What every thread of this process did when.

``start()`` switches recording on; the engine, the input pipeline, the stores and the checkpoints then leave a span for
everything they do, and ``span`` adds the program's own. ``take()`` returns them; ``save()`` writes a file for
ui.perfetto.dev. Off, a span costs two reads of the clock. All functions are thread-safe.
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
"""CLOCK_MONOTONIC in nanoseconds: the clock of all events."""

span = _trace.Span
"""``with span(name, lane="application", nbytes=0) as s: …`` records its life; afterwards ``s.seconds`` is its length."""


class Event(NamedTuple):
    """A finished span; times are CLOCK_MONOTONIC, so the traces of one machine's processes fit together."""

    name: str
    lane: str
    begin_ns: int
    end_ns: int
    nbytes: int
    thread: int
    core: int


def take() -> list[Event]:
    """All events since the last call, in the order of their begin."""
    return [Event(*row) for row in _trace.take()]


def save(path: str | os.PathLike[str], process: int = 0) -> None:
    """Takes all events and writes them as a Chrome trace; `process` (a rank, say) tells several processes apart."""
    with open(path, "w", encoding="utf-8") as file:
        file.write(_trace.take_json(process))
