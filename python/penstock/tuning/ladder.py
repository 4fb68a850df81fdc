"""Decides which candidates of one operation race at which size, from the results of earlier races.

Short messages have no segments: all algorithms race, at every second size, and in between if the winners differ. Longer
sizes are visited upwards. At the first few all candidates race, which is cheap, since a race soon drops slow ones. After
that, the two previous sizes predict the next: the order of the candidates stays, and the time of a pipeline grows by the
stabilised cost of a segment.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Generator, Mapping

from penstock.tuning.candidates import ITSELF, Space, config_of
from penstock.tuning.racing import LONG_S

SHORT = 16 << 10  #: Up to this size there are no segments.
ALL_RACE = 256 << 10  #: Up to this size all candidates race; beyond, those that may win.
BEHIND = 1.3  #: A candidate races if it is predicted to take at most this many times as long as the best.
LEAST, MOST = 3, 10  #: Minimum and maximum number of candidates in a race.
#: BEHIND for the best lengths of each algorithm: long segments fill a pipeline slowly, but win for long messages.
FAMILY = 1.5
LEADS = 1.2  #: The next longer segments of an algorithm race if it is at most this far behind the best.
BETWEEN = 1.3  #: A candidate races at an intermediate size if it is at most this far behind the best at a neighbour.
AGAIN, MOST_AGAIN = 1.2, 3  #: Candidates for a duel with the default: how far behind at most, and how many.
SAME = 1.02  #: An intermediate size needs no race if one candidate is at most this far behind at both neighbours.

Times = dict[str, float]  #: Candidate name → seconds.
#: (size, names of candidates, whether it is the duel that follows the race, with the default first).
Step = tuple[int, list[str], bool]
Steps = Generator[Step, Times, dict[int, Times]]


def climb(
    spaces: Mapping[int, Space],
    *,
    heuristics: bool = True,
    defaults: Mapping[int, str] | None = None,
    predict: Callable[[int], Mapping[str, float]] = lambda size: {},
) -> Steps:
    """Yields who races at which size, receives their times, and returns all measurements.

    `predict` returns the seconds of candidates whose tasks were measured; the best of these race even without results of
    smaller sizes. MPI's own collective and the default always race. A machine may be slow for a while, and a short race may
    fall into that time; so the best candidates of short races meet the default again in the end.
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
    """Predicted time / best time of each candidate at `size`, from the last of the sizes `known` that has it.

    It uses the better of two predictions: the ratio stays, or the time grows as from the size before.
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
    """Times at a size between two measured sizes, interpolated on logarithmic scales. No extrapolation."""
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
    """The default, and candidates that may be faster when measured again."""
    ranked = sorted(times, key=times.__getitem__)
    near = [
        name
        for place, name in enumerate(ranked)
        if (place < MOST_AGAIN or name == ITSELF) and times[name] <= AGAIN * times[ranked[0]] and name != default
    ]
    return [default, *near] if default in times else near


def merged(first: Times, second: Times) -> Times:
    """Times of a race, updated by the duel after it. The duel's times replace the race's; other candidates keep their
    ratios to these."""
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
