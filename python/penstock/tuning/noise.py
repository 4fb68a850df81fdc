"""Noise: how much repeated measurements differ, and whether a difference exceeds that.

All comparisons are paired: candidates are measured in the same rounds, in random order, so a slow phase of the machine slows
all of them. Differences are those of logarithms, with the Hodges-Lehmann estimator (median of pairwise means) and exact
confidence intervals from Wilcoxon's signed ranks, which assume nothing about the distribution of times.
Source: J. L. Hodges, E. L. Lehmann: Estimates of location based on rank tests, Ann. Math. Statist. 34 (1963).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np

ERROR = 0.05  #: Maximum probability that a choice leaves the default although nothing is faster.
#: A smaller gain does not justify leaving the default, however certain it is. A decision, not a measured value.
FLOOR = 0.01
#: Standard deviation / median absolute deviation of a normal distribution.
_OF_MAD = 1 / NormalDist().inv_cdf(0.75)


#: Seconds of one candidate: median, low and high end of its interval, and the number of rounds.
Spread = tuple[float, float, float, int]


@dataclass(frozen=True)
class Difference:
    """The difference of the logarithms of two times. `ratio` gives it as a ratio of times."""

    middle: float
    low: float
    high: float
    rounds: int

    @property
    def ratio(self) -> tuple[float, float, float]:
        """(estimate, low end, high end)."""
        return math.exp(self.middle), math.exp(self.low), math.exp(self.high)


@functools.lru_cache(maxsize=256)
def _rank_below(rounds: int, level: float) -> int:
    """The largest c for which Wilcoxon's signed rank statistic is below c with a probability of at most `level`."""
    ways: np.ndarray[Any, np.dtype[np.float64]] = np.ones(1)
    for rank in range(1, rounds + 1):  # each rank is in the sum or not
        more = np.zeros(len(ways) + rank)
        more[: len(ways)] += ways
        more[rank:] += ways
        ways = more / 2
    return int(np.searchsorted(np.cumsum(ways), level * (1 + 1e-9), side="right"))


def difference(first: Sequence[float], second: Sequence[float], level: float = ERROR / 2) -> Difference:
    """By how much `first` is slower than `second`, in seconds of the same rounds. Each end of the interval is exceeded with
    probability `level` at most. With too few rounds for that, it is infinite."""
    apart = np.log(np.asarray(first, float)) - np.log(np.asarray(second, float))
    rows, columns = np.triu_indices(len(apart))
    means = np.sort((apart[rows] + apart[columns]) / 2)
    count = _rank_below(len(apart), level)
    low, high = (means[count - 1], means[-count]) if count > 0 else (-math.inf, math.inf)
    return Difference(float(np.median(means)), float(low), float(high), len(apart))


def median_interval(seconds: Sequence[float], level: float = ERROR / 2) -> tuple[float, float, float]:
    """(median, low and high end of its interval): order statistics, by the binomial distribution. With fewer than six
    measurements the ends are their minimum and maximum, and the interval is less certain."""
    ordered = sorted(map(float, seconds))
    rounds = len(ordered)
    below, count = 0.0, 0
    while count < rounds // 2 and (below := below + math.comb(rounds, count) / 2**rounds) <= level:
        count += 1
    at = max(0, count - 1)
    return float(np.median(ordered)), ordered[at], ordered[rounds - 1 - at]


@dataclass(frozen=True)
class Noise:
    """The noise of one candidate, from two measurements in every round."""

    #: Standard deviation of the difference of two single measurements of a round. Robust; the upper confidence limit.
    scatter: float
    apart: float  #: Difference of the two over all rounds.
    rounds: int
    seconds: float  #: Median of one call.

    def band(self, rounds: int, other_rounds: int | None = None, rivals: int = 1) -> float:
        """The lead of the luckiest of `rivals` equal candidates, which chance exceeds once in twenty times.

        For medians of so many rounds. A difference of logarithms.
        """
        z = NormalDist().inv_cdf(1 - ERROR / max(1, rivals))
        of_medians = math.sqrt(math.pi / 4 * (1 / rounds + 1 / (other_rounds or rounds)))
        return max(FLOOR, self.apart, z * self.scatter * of_medians)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def noise_of(first: Sequence[float], second: Sequence[float]) -> Noise:
    """From the seconds of one candidate, measured twice in each round."""
    apart = np.log(np.asarray(first, float)) - np.log(np.asarray(second, float))
    # Around 0, not around their median: any difference between the two is noise.
    scatter = median_interval(np.abs(apart).tolist(), ERROR)[2] * _OF_MAD
    middle = difference(first, second).middle
    return Noise(scatter, abs(middle), len(apart), float(np.median([*first, *second])))


def noise_at(known: dict[int, Noise], size: int) -> Noise:
    """The noise at a size between measured sizes: the larger of both neighbours'."""
    low = known[max((each for each in known if each <= size), default=min(known))]
    high = known[min((each for each in known if each >= size), default=max(known))]
    return replace(max(low, high, key=lambda noise: noise.scatter), apart=max(low.apart, high.apart))
