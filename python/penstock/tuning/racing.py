"""Which of some candidates is the fastest, by measuring them in turns and the less often, the further behind they are."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Sequence

import numpy as np

from penstock.tuning.noise import Spread, median_interval

WARM_MARGIN = 4.0  #: after the round that also makes plans and touches memory; its times count for nothing else
FIRST_MARGIN = 1.6  #: after the first round that counts, which may have been a slow one
DEVIATIONS = 2.0  #: how many standard errors of a difference a candidate has to be behind to leave
LEAST_NOISE = 0.02  #: of one measurement; two that are equal by chance do not prove there is none
EQUAL = 1.03  #: who is within this of the leader for certain is as good
LONG_S = 0.01  #: what takes longer than this is not warmed up, and decided by LONG_ROUNDS
ROUNDS, LONG_ROUNDS, MOST_ROUNDS = 5, 2, 100
REFERENCE_ROUNDS = 3
FAVOURED = 2  #: of what takes long, so many who are expected to be the best are measured twice in any case
SHORT_S = 0.002  #: what takes less than this scatters much and costs little: nobody leaves for a single measurement
SHORT_ROUNDS = 5  #: so often is everyone measured then
RACE_S = 0.12  #: for all that stay to the end


def race(
    draw: Callable[[list[str]], Sequence[float]],
    names: Sequence[str],
    *,
    references: Container[str] = (),
    spreads: dict[str, Spread] | None = None,
) -> dict[str, float]:
    """Median seconds of each of `names`, of whom the first are expected to be the best. What takes little time is
    measured a few times if it is one of the `references`. `spreads` gets the median of each, the low and the high end of
    its interval, and how often it was measured.

    `draw` measures those it is given once, one after the other. How much a single measurement scatters follows from all
    that is measured here, so few rounds decide where there is little noise; a candidate leaves when it is further
    behind than chance explains.
    """
    first = dict(zip(names, draw(list(names))))
    least = min(first.values())
    warms_up = least < LONG_S
    limit = math.inf if least < SHORT_S else least * (WARM_MARGIN if warms_up else FIRST_MARGIN)
    stays = {name for name in names if name in references} if warms_up else set(names[:FAVOURED])
    alive = [name for name in names if first[name] <= limit or name in stays]
    found = {name: first[name] for name in names}
    samples = np.array([[first[name] for name in alive]])[: 0 if warms_up else 1]  # a row for each round
    spreads = {} if spreads is None else spreads
    spreads |= {name: (seconds, seconds, seconds, 1) for name, seconds in first.items()}
    left: list[tuple[str, str, float]] = []  # who has left, behind whom, and how far
    judged = 0
    while True:
        samples = np.vstack([samples, draw(alive)])
        if not warms_up and len(samples) == 2 and samples[1].min() < samples[0].min() / 2:
            samples = samples[1:]  # it did warm up
        rounds = len(samples)
        if rounds < judged * 1.2:  # looking costs time, too
            continue
        judged = rounds
        # Relative to its round, which is slow for all if it is; then in seconds again.
        of_rounds = np.median(samples, axis=1, keepdims=True)
        relative = samples / of_rounds
        # The lower one of two: a single slow time loses nobody.
        medians = np.sort(relative, axis=0)[(rounds - 1) // 2] * float(np.median(of_rounds))
        found |= zip(alive, medians.tolist())
        spreads |= {
            name: (found[name], *median_interval(of_it)[1:], rounds) for name, of_it in zip(alive, samples.T.tolist())
        }
        leader = float(medians.min())
        margin = FIRST_MARGIN if rounds > 1 or leader >= SHORT_S else math.inf
        if rounds >= (SHORT_ROUNDS if leader < SHORT_S else 2):
            noise = max(LEAST_NOISE, float(np.median(relative.std(axis=0, ddof=1) / relative.mean(axis=0))))
            margin = min(FIRST_MARGIN, 1 + DEVIATIONS * noise * _median_error(rounds))
        if rounds >= (REFERENCE_ROUNDS if warms_up else 2):
            stays = set()
        # One look in so many finds a reference further behind than it is; it may be preferred, so it is given more.
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
    # The machine may have become slower or faster since: who has left is as far behind as it was.
    for name, ahead, behind in reversed(left):
        found[name] = behind * found[ahead]
    for name, (middle, low, high, rounds) in spreads.items():
        scale = found[name] / middle
        spreads[name] = (found[name], low * scale, high * scale, rounds)
    return found


def _median_error(rounds: int) -> float:
    """Of the difference of two medians of so many measurements, in deviations of one."""
    return math.sqrt(math.pi / rounds)
