"""Times the phases on the application thread, and records them as spans of the trace."""

from __future__ import annotations

from collections import defaultdict
from contextlib import contextmanager

import penstock as ps


class Clock:
    def __init__(self) -> None:
        self._lengths: dict[str, list[float]] = defaultdict(list)

    @contextmanager
    def __call__(self, phase: str):
        span = ps.trace.span(phase, lane="application")
        with span:
            yield
        self._lengths[phase].append(span.seconds)

    def clear(self) -> None:
        self._lengths.clear()

    def lengths(self) -> dict[str, list[float]]:
        """Phase → its durations in seconds, since clear()."""
        return dict(self._lengths)
