"""Which candidates of one operation are to race at which size, given what the races before have found.

Short messages are sent whole: all algorithms race, but only at every second size, and in between where the winners differ.
From there on sizes are gone through upwards. At the first few all candidates race, which costs little, since a race
soon loses those who are slow. What lies ahead is then reckoned from the two sizes before: ranks of a pipeline go on as
they have been, and its time grows by the stabilised cost of a segment.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Generator, Mapping

from penstock.tuning.candidates import ITSELF, Space, config_of
from penstock.tuning.racing import LONG_S

SHORT = 16 << 10  #: up to here nothing is cut into segments
ALL_RACE = 256 << 10  #: up to here all candidates race; beyond, those that may win
BEHIND = 1.3  #: how far behind the best a candidate may be expected to be to race
LEAST, MOST = 3, 10  #: how many race at least and at most
#: The same for the best lengths of each algorithm: what takes long to fill a pipeline is the best in the end.
FAMILY = 1.5
LEADS = 1.2  #: how far behind the best an algorithm may be for its next longer segments to race
BETWEEN = 1.3  #: how far behind the best at a neighbour a candidate may be to race at a size in between
AGAIN, MOST_AGAIN = 1.2, 3  #: who meets the default in a duel where times are short: how far behind, and how many
SAME = 1.02  #: how far behind the best at both neighbours a candidate may be for the size in between to need no race

Times = dict[str, float]  #: of candidates, by name
#: A size, who is to race there, and whether it is the duel after the race, with the default first.
Step = tuple[int, list[str], bool]
Steps = Generator[Step, Times, dict[int, Times]]


def climb(
    spaces: Mapping[int, Space],
    *,
    heuristics: bool = True,
    defaults: Mapping[int, str] | None = None,
    predict: Callable[[int], Mapping[str, float]] = lambda size: {},
) -> Steps:
    """Yields who is to race at which size, is sent their times, and returns what was measured.

    `predict` gives seconds of those candidates whose tasks were measured: the best of them races even if it has no past.
    MPI's own collective and the default of the size always race. A machine is slow for some time, and what is short is
    measured in that time only: so the best of short races meet the default once more in the end.
    """
    points: dict[int, Times] = {}
    defaults = defaults or {}
    if heuristics:
        yield from _climb(spaces, predict, points, defaults)
    else:
        for size, space in sorted(spaces.items()):
            points[size] = yield size, list(space.lengths), False
    for size, times in points.items():
        near = near_best(times, defaults.get(size, ITSELF))
        if len(near) > 1 and min(times.values()) < LONG_S:
            points[size] = merged(times, (yield size, near, True))
    return points


def _climb(
    spaces: Mapping[int, Space],
    predict: Callable[[int], Mapping[str, float]],
    points: dict[int, Times],
    defaults: Mapping[int, str],
) -> Generator[Step, Times, None]:
    sizes = sorted(spaces)
    short = [size for size in sizes if size <= SHORT]
    coarse = sorted({*short[::2], *short[-1:]})
    for size in coarse:
        points[size] = yield size, list(spaces[size].lengths), False
    for size in sizes[len(short) :]:
        known = [before for before in sorted(points) if before > SHORT // 2]
        space = spaces[size]
        behind = expected(spaces, points, known, size) if known else {}
        wanted = set(space.lengths)
        if size > ALL_RACE and known:
            predicted = predict(size)
            wanted = {*_contenders(behind, space), ITSELF, *sorted(predicted, key=predicted.__getitem__)[:1]}
            wanted |= {*space.lengths} & {defaults.get(size)}
        points[size] = yield size, sorted(wanted, key=lambda name: (behind.get(name, math.inf), name)), False
    gaps = list(itertools.pairwise(coarse))
    while gaps:
        low, high = gaps.pop(0)
        between = [size for size in sizes if low < size < high]
        if not between or _have_one_winner(spaces, points, low, high):
            continue
        size = between[len(between) // 2]
        wanted = {
            ITSELF,
            *filter(None, [defaults.get(size)]),
            *_close(spaces, points, low, size),
            *_close(spaces, points, high, size),
        }
        points[size] = yield size, [name for name in spaces[size].lengths if name in wanted], False
        gaps += [(low, size), (size, high)]


def expected(spaces: Mapping[int, Space], points: Mapping[int, Times], known: list[int], size: int) -> Times:
    """How many times as long as the best each candidate may take at `size`, by the last of the sizes `known` that has it.

    The better of two reckonings counts: it stays as far behind as it was, or its time grows as from the size before.
    """
    found: Times = {}
    for last, before in zip(known[::-1], [*known[-2::-1], None]):
        times = points[last]
        grown: Times = {}
        for name, seconds in times.items():
            if before is None:
                break
            past = [
                points[before][each] for each in spaces[before].same_as(spaces[last], name) if each in points[before]
            ]
            if past:
                growth = max(0.0, seconds - min(past)) / (last - before)
                grown[name] = seconds + growth * (size - last)
        best, best_grown = min(times.values()), min(grown.values(), default=1.0)
        here: Times = {}
        for name, seconds in times.items():
            behind = min(seconds / best, grown[name] / best_grown) if name in grown else seconds / best
            for each in spaces[size].same_as(spaces[last], name):
                here[each] = min(behind, here.get(each, math.inf))
        found = here | found
    return found


def interpolated(spaces: Mapping[int, Space], points: Mapping[int, Times], size: int) -> Times:
    """Times at a size between two that were measured, on logarithmic scales; nothing outside of them."""
    low = max((known for known in points if known < size), default=None)
    high = min((known for known in points if known > size), default=None)
    if low is None or high is None:
        return {}
    share = math.log(size / low) / math.log(high / low)
    found: Times = {}
    for name in spaces[size].lengths:
        below = [points[low][each] for each in spaces[low].same_as(spaces[size], name) if each in points[low]]
        above = [points[high][each] for each in spaces[high].same_as(spaces[size], name) if each in points[high]]
        if below and above:
            found[name] = min(below) ** (1 - share) * min(above) ** share
    return found


def near_best(times: Times, default: str) -> list[str]:
    """The default, and who may be faster once it is measured again."""
    ranked = sorted(times, key=times.__getitem__)
    near = [
        name
        for place, name in enumerate(ranked)
        if (place < MOST_AGAIN or name == ITSELF) and times[name] <= AGAIN * times[ranked[0]] and name != default
    ]
    return [default, *near] if default in times else near


def merged(first: Times, second: Times) -> Times:
    """Times of a race, and of the duel after it of some who were in the race. What the duel found counts; the others are
    as far behind these as they were."""
    change = statistics.median(second[name] / first[name] for name in second)
    return {name: second.get(name, seconds * change) for name, seconds in first.items()}


def _contenders(behind: Times, space: Space) -> set[str]:
    ranked = sorted(behind, key=behind.__getitem__)
    chosen = {*ranked[:LEAST], *(name for name in ranked[:MOST] if behind[name] <= BEHIND)}
    of_algorithm: dict[str, str] = {}
    for name in ranked:
        of_algorithm.setdefault(config_of(name)[0], name)
    chosen |= {name for name in of_algorithm.values() if behind[name] <= FAMILY}
    leading = dict(config_of(name) for name in of_algorithm.values() if behind[name] <= LEADS)
    for algorithm, segment in list(leading.items())[:2]:
        longer = [length for name in space.lengths for own, length in [config_of(name)] if own == algorithm]
        longer = [length for length in longer if length > segment > 0]
        chosen |= {f"{algorithm}:{length}" for length in sorted(longer)[:1]}
    return chosen


def _close(spaces: Mapping[int, Space], points: Mapping[int, Times], known: int, size: int) -> set[str]:
    best = min(points[known].values())
    near = [name for name, seconds in points[known].items() if seconds <= BETWEEN * best]
    return {here for name in near for here in spaces[size].same_as(spaces[known], name)}


def _have_one_winner(spaces: Mapping[int, Space], points: Mapping[int, Times], low: int, high: int) -> bool:
    limit_low, limit_high = (SAME * min(points[at].values()) for at in (low, high))
    return any(
        seconds <= limit_low and points[high].get(there, math.inf) <= limit_high
        for name, seconds in points[low].items()
        for there in spaces[high].same_as(spaces[low], name)
    )
