"""How far apart two measurements of the same thing are, and what of a difference remains beyond that.

Everything is paired: what is compared is measured in the same rounds, in an order of the round, so a machine that is slow for
a while is slow for all. Differences are those of logarithms, estimated by Hodges and Lehmann's median of pairwise means;
their confidence intervals are those of Wilcoxon's signed ranks, exact, without an assumption about how times scatter.
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

ERROR = 0.05  #: how often, at most, a choice may leave the default although nothing is faster
#: Less than this is not worth leaving the default for, however certain it is. No measured value: a decision.
FLOOR = 0.01
#: From the median absolute deviation to the standard deviation of a normal distribution.
_OF_MAD = 1 / NormalDist().inv_cdf(0.75)


#: Of one candidate's seconds: median, low and high end of its interval, and rounds.
Spread = tuple[float, float, float, int]


@dataclass(frozen=True)
class Difference:
    """Of the logarithms of two times; as ratios of times, see `ratio`."""

    middle: float
    low: float
    high: float
    rounds: int

    @property
    def ratio(self) -> tuple[float, float, float]:
        """Estimate, low and high end."""
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
    """How far `first` is behind `second`, seconds of the same rounds. Each end of the interval is passed with a
    probability of at most `level`; with too few rounds for that it is infinite."""
    apart = np.log(np.asarray(first, float)) - np.log(np.asarray(second, float))
    rows, columns = np.triu_indices(len(apart))
    means = np.sort((apart[rows] + apart[columns]) / 2)
    count = _rank_below(len(apart), level)
    low, high = (means[count - 1], means[-count]) if count > 0 else (-math.inf, math.inf)
    return Difference(float(np.median(means)), float(low), float(high), len(apart))


def median_interval(seconds: Sequence[float], level: float = ERROR / 2) -> tuple[float, float, float]:
    """The median, and between which measurements it lies: order statistics, by the binomial distribution. Of fewer than
    six measurements these are the least and the most, which hold it less often."""
    ordered = sorted(map(float, seconds))
    rounds = len(ordered)
    below, count = 0.0, 0
    while count < rounds // 2 and (below := below + math.comb(rounds, count) / 2**rounds) <= level:
        count += 1
    at = max(0, count - 1)
    return float(np.median(ordered)), ordered[at], ordered[rounds - 1 - at]


@dataclass(frozen=True)
class Noise:
    """What measuring one thing twice, beside itself, has shown."""

    #: Standard deviation of the difference of two single measurements of one round: robust, and the high end of what it
    #: may be by so few rounds.
    scatter: float
    apart: float  #: how far apart the two were in all
    rounds: int
    seconds: float  #: the median of one call

    def band(self, rounds: int, other_rounds: int | None = None, rivals: int = 1) -> float:
        """By how much the luckiest of so many equals seems to be ahead of another: one time of twenty it is more.

        Of medians of so many rounds; a difference of logarithms.
        """
        z = NormalDist().inv_cdf(1 - ERROR / max(1, rivals))
        of_medians = math.sqrt(math.pi / 4 * (1 / rounds + 1 / (other_rounds or rounds)))
        return max(FLOOR, self.apart, z * self.scatter * of_medians)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def noise_of(first: Sequence[float], second: Sequence[float]) -> Noise:
    """From the seconds of one thing, measured twice in each round."""
    apart = np.log(np.asarray(first, float)) - np.log(np.asarray(second, float))
    # Around 0, not around their median: that the two differ at all is noise.
    scatter = median_interval(np.abs(apart).tolist(), ERROR)[2] * _OF_MAD
    middle = difference(first, second).middle
    return Noise(scatter, abs(middle), len(apart), float(np.median([*first, *second])))


def noise_at(known: dict[int, Noise], size: int) -> Noise:
    """At a size between those that were measured: the worse of both neighbours, since nobody knows better."""
    low = known[max((each for each in known if each <= size), default=min(known))]
    high = known[min((each for each in known if each >= size), default=max(known))]
    return replace(max(low, high, key=lambda noise: noise.scatter), apart=max(low.apart, high.apart))
