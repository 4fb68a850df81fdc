"""When to save: at signals and at the interval that loses the least time, decided alike on all ranks."""

from __future__ import annotations

import math
import operator
import signal
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from penstock.error import Error

_OVERDUE = 1  #: The flag of rank 0, whose clock counts. Signal n has flag 1 << n.
_COSTS = 5  #: So many of the last saves tell what one costs.


def interval_s(cost_s: float, mtbf_s: float) -> float:
    """Computation between two saves for which the least time is lost, for saves that take ``cost_s``.

    J. T. Daly, A higher order estimate of the optimum checkpoint interval for restart dumps, 2006, equation 37. Its first
    term is Young's.
    """
    ratio = cost_s / (2 * mtbf_s)
    if ratio >= 1:
        return mtbf_s
    return math.sqrt(2 * cost_s * mtbf_s) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - cost_s


class Signals:
    """Counts signals. The handlers do nothing else, so they can come at any time."""

    def __init__(self, wanted: Iterable[int]) -> None:
        self._counts: dict[int, int] = {}
        self._seen: dict[int, int] = {}
        self._previous: dict[int, Any] = {}
        numbers = [_checked(one) for one in wanted]
        if numbers and threading.current_thread() is not threading.main_thread():
            raise Error(
                "save_on_signal is given in a thread other than the main one, where Python can install no handlers; "
                "make the Checkpointer in the main thread"
            )
        try:
            for number in numbers:
                self._install(number)
        except BaseException:
            self.restore()
            raise

    def _install(self, number: int) -> None:
        if number in self._previous:
            return
        if signal.getsignal(number) is None:
            raise Error(
                f"save_on_signal has {signal.Signals(number).name}, whose handler was not installed by Python and could "
                "not be put back; leave it out",
                "unsupported",
            )
        self._counts[number] = self._seen[number] = 0
        try:
            self._previous[number] = signal.signal(number, self._count)
        except (OSError, ValueError) as error:
            raise Error(
                f"save_on_signal has {signal.Signals(number).name}, which no program can handle: {error}"
            ) from None

    def _count(self, number: int, frame: Any) -> None:
        self._counts[number] += 1

    def take(self) -> int:
        """The flags of the signals that have come since the last call."""
        flags = 0
        for number, count in list(self._counts.items()):
            if count != self._seen[number]:
                self._seen[number] = count
                flags |= 1 << number
        return flags

    def restore(self) -> None:
        """Put the previous handlers back, except where another one has been installed since."""
        if threading.current_thread() is not threading.main_thread():
            return
        while self._previous:
            number, previous = self._previous.popitem()
            if signal.getsignal(number) == self._count:
                signal.signal(number, previous)


def _checked(one: Any) -> int:
    try:
        number = operator.index(one)
        signal.Signals(number)
    except (TypeError, ValueError):
        raise Error(f"save_on_signal has {one!r}; expected signals, such as signal.SIGTERM") from None
    if number >= 63:
        raise Error(f"save_on_signal has signal {number}; expected one below 63")
    return number


class Schedule:
    """What :meth:`penstock.Checkpointer.due` knows."""

    def __init__(
        self,
        save_on_signal: Iterable[int],
        mtbf_s: float | None,
        save_every: int | None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        if mtbf_s is not None and not 0 < mtbf_s < math.inf:
            raise Error(f"mtbf_s is {mtbf_s}; expected seconds above 0, or None")
        if save_every is not None and save_every < 1:
            raise Error(f"save_every is {save_every}; expected a number of steps from 1 on, or None")
        self._mtbf_s = mtbf_s
        self._save_every = save_every
        self._now_s = now_s
        self._costs_s: deque[float] = deque(maxlen=_COSTS)
        self._since_s: float | None = None  #: When the last save returned.
        self._agreed = 0
        self.signals: Signals = Signals(save_on_signal)

    def saved(self, cost_s: float) -> None:
        """A save has returned after ``cost_s``."""
        self._costs_s.append(cost_s)
        self._since_s = self._now_s()

    @property
    def interval_s(self) -> float | None:
        if self._mtbf_s is None or not self._costs_s:
            return None
        return interval_s(statistics.median(self._costs_s), self._mtbf_s)

    @property
    def agreed(self) -> frozenset[signal.Signals]:
        return frozenset(one for one in signal.Signals if self._agreed >> one & 1)

    def due(self, step: int, rank: int, any_of: Callable[[int], int]) -> bool:
        """``any_of`` gives the flags that any rank has set."""
        flags = self.signals.take()
        if rank == 0 and self._mtbf_s is not None:
            interval = self.interval_s
            # Without a save, what one costs is unknown.
            if interval is None or self._since_s is None or self._now_s() - self._since_s >= interval:
                flags |= _OVERDUE
        flags = any_of(flags)
        self._agreed |= flags & ~_OVERDUE
        return flags != 0 or (self._save_every is not None and step % self._save_every == 0)
