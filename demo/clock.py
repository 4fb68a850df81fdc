"""Seconds per phase on the application thread, and the same phases as spans of the trace."""

from __future__ import annotations

from collections import defaultdict
from contextlib import contextmanager

import penstock as ps


class Clock:
    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    @contextmanager
    def __call__(self, phase: str):
        span = ps.trace.span(phase, lane="application")
        with span:
            yield
        self.seconds[phase] += span.seconds
