"""Races: find the fastest of several candidates by measuring them in turns and dropping slow ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Sequence

import numpy as np

from penstock.tuning.noise import Spread, median_interval

WARM_MARGIN = (
    4.0  #: Drop margin after the warm-up round, which makes plans and touches memory. Its times count only here.
)
FIRST_MARGIN = 1.6  #: Drop margin after the first counted round, which may have been slow.
DEVIATIONS = 2.0  #: A candidate drops out if it is this many standard errors of the difference behind.
LEAST_NOISE = 0.02  #: Minimum noise of a measurement: two that are equal by chance do not prove that there is none.
EQUAL = 1.03  #: A candidate certainly within this ratio of the leader is equal to it.
LONG_S = 0.01  #: Operations longer than this have no warm-up, and LONG_ROUNDS decide.
ROUNDS, LONG_ROUNDS, MOST_ROUNDS = 5, 2, 100
REFERENCE_ROUNDS = 3
FAVOURED = 2  #: For long operations, this many of the predicted best are always measured twice.
SHORT_S = 0.002  #: Shorter operations are noisy and cheap: a single measurement drops no candidate.
SHORT_ROUNDS = 5  #: Rounds of all candidates for short operations.
RACE_S = 0.12  #: Duration of a race, for all that stay to the end.


def race(
    draw: Callable[[list[str]], Sequence[float]],
    names: Sequence[str],
    *,
    references: Container[str] = (),
    spreads: dict[str, Spread] | None = None,
) -> dict[str, float]:
    """Median seconds of each of `names`, whose first entries are the predicted best. Short operations among the
    `references` are always measured a few times. `spreads` receives (median, low and high end of its interval, rounds) of
    each.

    `draw` measures the names it is given once, in sequence. The noise of a single measurement is estimated from all
    measurements here, so few rounds suffice on a quiet machine. A candidate drops out if it is further behind than chance
    explains.
    """
    first = dict(zip(names, draw(list(names))))
    least = min(first.values())
    warms_up = least < LONG_S
    limit = math.inf if least < SHORT_S else least * (WARM_MARGIN if warms_up else FIRST_MARGIN)
    stays = {name for name in names if name in references} if warms_up else set(names[:FAVOURED])
    alive = [name for name in names if first[name] <= limit or name in stays]
    found = {name: first[name] for name in names}
    samples = np.array([[first[name] for name in alive]])[: 0 if warms_up else 1]  # one row per round
    spreads = {} if spreads is None else spreads
    spreads |= {name: (seconds, seconds, seconds, 1) for name, seconds in first.items()}
    left: list[tuple[str, str, float]] = []  # (who dropped out, leader, time ratio)
    judged = 0
    while True:
        samples = np.vstack([samples, draw(alive)])
        if not warms_up and len(samples) == 2 and samples[1].min() < samples[0].min() / 2:
            samples = samples[1:]  # warm-up
        rounds = len(samples)
        if rounds < judged * 1.2:  # checking costs time
            continue
        judged = rounds
        # Relative to the round's median, which removes slow phases of the machine; then in seconds again.
        of_rounds = np.median(samples, axis=1, keepdims=True)
        relative = samples / of_rounds
        # The lower of two: a single slow measurement drops no candidate.
        even = relative * float(np.median(of_rounds))
        medians = np.sort(even, axis=0)[(rounds - 1) // 2]
        found |= zip(alive, medians.tolist())
        spreads |= {
            name: (found[name], *median_interval(of_it)[1:], rounds) for name, of_it in zip(alive, even.T.tolist())
        }
        leader = float(medians.min())
        margin = FIRST_MARGIN if rounds > 1 or leader >= SHORT_S else math.inf
        if rounds >= (SHORT_ROUNDS if leader < SHORT_S else 2):
            noise = max(LEAST_NOISE, float(np.median(relative.std(axis=0, ddof=1) / relative.mean(axis=0))))
            margin = min(FIRST_MARGIN, 1 + DEVIATIONS * noise * _median_error(rounds))
        if rounds >= (REFERENCE_ROUNDS if warms_up else 2):
            stays = set()
        # Repeated checks overestimate a reference's lag at times. It may be preferred, so it gets a larger margin.
        of_references = max(margin, min(FIRST_MARGIN, margin**2))
        staying = [
            i
            for i, name in enumerate(alive)
            if medians[i] <= (of_references if name in references else margin) * leader or name in stays
        ]
        ahead = alive[int(medians.argmin())]
        left += [(name, ahead, medians[i] / leader) for i, name in enumerate(alive) if i not in staying]
        alive, samples = [alive[i] for i in staying], samples[:, staying]
        enough = max(LONG_ROUNDS if leader > LONG_S else ROUNDS, min(MOST_ROUNDS, RACE_S / medians.sum()))
        if rounds >= enough or (rounds > 1 and (len(alive) == 1 < len(names) or margin <= EQUAL)):
            break
    # The machine's speed may have changed since: keep the ratios of those that dropped out.
    for name, ahead, behind in reversed(left):
        found[name] = behind * found[ahead]
    for name, (middle, low, high, rounds) in spreads.items():
        scale = found[name] / middle
        spreads[name] = (found[name], low * scale, high * scale, rounds)
    return found


def _median_error(rounds: int) -> float:
    """Standard error of the difference of two medians, in standard deviations of one measurement."""
    return math.sqrt(math.pi / rounds)
