"""Chooses a candidate: the default, unless another is faster beyond the noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from penstock.tuning.candidates import ITSELF
from penstock.tuning.noise import ERROR, FLOOR, Difference, Noise, Spread, difference, median_interval

MEASURED = "measured"  #: Faster than the default, beyond the noise.
FASTEST = "default is the fastest"
WITHIN = "within noise: default kept"
#: One of several that are certainly faster than the default; preferred among those within the noise.
WITHIN_NATIVE = "within noise: MPI's own"
WITHIN_MODEL = "within noise: model"
#: The default was not measured, so nothing is known about it.
NO_DEFAULT = "measured without the default"
REASONS = (MEASURED, FASTEST, WITHIN, WITHIN_NATIVE, WITHIN_MODEL, NO_DEFAULT)

#: Rounds after which the duel checks for a decision, with the part of ERROR that each check spends: checking often would
#: otherwise find differences by chance. Six rounds are the minimum: six heads in a row have a probability of 1/64.
LOOKS = {6: 1 / 64, 12: 0.01, 24: 0.01, 48: 0.007, 96: 0.007}
assert sum(LOOKS.values()) <= ERROR
AGAIN = " again"  #: Suffix of a name that is measured a second time in every round.


@dataclass(frozen=True)
class Choice:
    """A chosen candidate. Times are in seconds. Ratios of times are (estimate, low and high end of a 95% interval)."""

    name: str
    why: str
    default: str
    noise: float  #: The relative difference from the default that had to be exceeded.
    runner_up: str = ""
    runner_up_ratio: tuple[float, float, float] | None = None  #: Runner-up's time / choice's time.
    default_ratio: tuple[float, float, float] | None = None  #: Default's time / choice's time.
    spreads: dict[str, Spread] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Choice:
        pairs = {key: tuple(value[key]) if value[key] else None for key in ("runner_up_ratio", "default_ratio")}
        spreads = {name: tuple(spread) for name, spread in value["spreads"].items()}
        return Choice(**{**value, **pairs, "spreads": spreads})


def duel(
    draw: Callable[[list[str]], Sequence[float]],
    default: str,
    challengers: Sequence[str],
    noise: Noise,
    *,
    model: str = "",
    seconds: float = math.inf,
) -> Choice:
    """A paired comparison of the default, twice, with challengers, in turns, until a choice is certain.

    `draw` measures the candidates it is given once, in any order. A name that ends with AGAIN is a second measurement. A
    challenger is faster than the default if the confidence interval of their difference says so, and if that difference
    exceeds the one between the two measurements of the default, in these rounds and in `noise`. Takes about `seconds` at
    most, but at least the rounds of the first check.
    """
    samples: dict[str, list[float]] = {name: [] for name in (default, default + AGAIN, *challengers)}
    alive = list(samples)
    faster: set[str] = set()
    spent, rounds, band = 0.0, 0, 0.0
    for until, share in LOOKS.items():
        if rounds and spent + spent / rounds * (until - rounds) > seconds:
            break
        while rounds < until:
            times = draw(alive)
            spent += float(np.sum(times))
            rounds += 1
            for name, each in zip(alive, times):
                samples[name].append(each)
        itself = abs(difference(samples[default + AGAIN], samples[default]).middle)
        band = max(FLOOR, noise.apart, itself)
        level = share / max(1, len(challengers))
        for name in alive[2:]:
            if (of_it := difference(samples[name], samples[default], level)).high < 0 and of_it.middle < -band:
                faster.add(name)
            else:
                faster.discard(name)
        equal = _equals(samples, faster, band, level)
        undecided = [
            name for name in alive[2:] if name not in faster and _may_win(samples, name, default, equal, band, level)
        ]
        if not undecided and len(equal) <= 1:
            break
        # Keep the candidates that may still win, and those equal to the best.
        alive = [default, default + AGAIN, *(name for name in alive[2:] if name in equal or name in undecided)]
        faster.intersection_update(alive)
    return _choice(samples, default, faster, band, model)


def _may_win(
    samples: Mapping[str, Sequence[float]], name: str, default: str, equal: Sequence[str], band: float, level: float
) -> bool:
    """Whether a candidate may still be faster than the default beyond the noise, and not behind the best such candidate."""
    if difference(samples[name], samples[default], level).low > -band:
        return False
    return not equal or difference(samples[name], samples[equal[0]], level).low <= 0


def _equals(samples: Mapping[str, Sequence[float]], faster: set[str], band: float, level: float) -> list[str]:
    """The best of `faster`, and then those that cannot be distinguished from it."""
    if not faster:
        return []
    ranked = sorted(faster, key=lambda name: float(np.median(samples[name])))
    best = ranked[0]
    equal = [best]
    for name in ranked[1:]:
        behind = difference(samples[name], samples[best], level)
        if not (behind.low > 0 and behind.middle > band):
            equal.append(name)
    return equal


def _choice(samples: Mapping[str, Sequence[float]], default: str, faster: set[str], band: float, model: str) -> Choice:
    spreads = {
        name: (*median_interval(seconds), len(seconds)) for name, seconds in samples.items() if not name.endswith(AGAIN)
    }
    equal = _equals(samples, faster, band, ERROR / 2)
    if equal:
        name, why = _preferred(equal, model)
    else:
        name = default
        ahead = any(_paired(samples[each], samples[default]).middle < 0 for each in spreads if each != default)
        why = WITHIN if ahead else FASTEST
    behind = {each: _paired(samples[each], samples[name]) for each in spreads if each != name}
    runner_up = min(behind, key=lambda each: behind[each].middle, default="")
    return Choice(
        name,
        why,
        default,
        math.expm1(band),
        runner_up,
        behind[runner_up].ratio if behind else None,
        behind[default].ratio if name != default else None,
        spreads,
    )


def _paired(first: Sequence[float], second: Sequence[float]) -> Difference:
    """Of the rounds that both took part in. The one that dropped out has fewer."""
    rounds = min(len(first), len(second))
    return difference(first[:rounds], second[:rounds])


def _preferred(equal: Sequence[str], model: str) -> tuple[str, str]:
    """The preferred one of equal candidates that are all faster than the default, best first."""
    if len(equal) > 1 and ITSELF in equal[1:]:
        return ITSELF, WITHIN_NATIVE
    if len(equal) > 1 and ITSELF not in equal and model in equal[1:]:
        return model, WITHIN_MODEL
    return equal[0], MEASURED


def by_medians(
    times: Mapping[str, float], default: str, noise: Noise, rounds: Mapping[str, int] | int = 2, *, model: str = ""
) -> Choice:
    """The choice without a duel: for long messages, whose races are short, or if there is no time.

    The best of many leads by chance. So its lead must exceed that of the luckiest of as many equal candidates.
    """

    def count(name: str) -> int:
        return rounds if isinstance(rounds, int) else max(1, rounds.get(name, 1))

    ranked = sorted(times, key=times.__getitem__)
    rivals = max(1, len(times) - 1)
    best = ranked[0]

    def chosen(name: str, why: str, band: float) -> Choice:
        others = [each for each in ranked if each != name]
        ratios = [
            _by_band(times[each] / times[name], noise.band(count(each), count(name)))
            for each in (*others[:1], *([default] if default in times and name != default else []))
        ]
        return Choice(
            name, why, default, math.expm1(band), others[0] if others else "",
            ratios[0] if others else None, ratios[-1] if len(ratios) > 1 else None,
        )  # fmt: skip

    if default not in times:
        return chosen(best, NO_DEFAULT, noise.band(count(best), None, rivals))

    def band_to(name: str, other: str) -> float:
        return noise.band(count(name), count(other), rivals)

    faster = [name for name in ranked if math.log(times[default] / times[name]) > band_to(name, default)]
    if not faster:
        return chosen(default, FASTEST if best == default else WITHIN, band_to(best, default))
    equal = [name for name in faster if math.log(times[name] / times[faster[0]]) <= band_to(name, faster[0])]
    return chosen(*_preferred(equal, model), band_to(faster[0], default))


def _by_band(ratio: float, band: float) -> tuple[float, float, float]:
    return ratio, ratio / math.exp(band), ratio * math.exp(band)
