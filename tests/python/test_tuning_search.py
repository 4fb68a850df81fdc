"""How the tuner searches, on a machine that is a formula: what it chooses, and what it spends."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence

import numpy as np
import pytest
from penstock.tuning import ladder, measure, racing
from penstock.tuning.candidates import ITSELF, SEGMENTS, Space, config_of
from penstock.tuning.ladder import climb, expected, in_preference, interpolated, merged, near_best

START_S, BYTE_S = 1e-4, 8e-9  #: of a message between nodes
#: algorithm → messages before the last rank has something, and links' time for each segment from then on
OWN = SEGMENTS[2]  # length of segments, where none is asked for
CUT = {"binomial": (2, 2.0), "chain": (3, 1.0), "binary": (2, 1.6), "two_tree": (2.4, 1.15), "slow_chain": (5, 1.3)}
#: algorithm → messages one after the other, and links' times
WHOLE = {"flat": (7, 7.0), "ring": (6, 1.5), "doubling": (2, 3.0), "halving": (4, 1.5)}


def true_seconds(name: str, size: int) -> float:
    algorithm, segment = config_of(name)
    if name == ITSELF:
        return 1.6 * START_S + 2.6 * BYTE_S * size
    if algorithm in WHOLE:
        messages, links = WHOLE[algorithm]
        return messages * START_S + links * BYTE_S * size
    first, links = CUT[algorithm]
    length = min(size, segment or OWN)
    of_segment = START_S / 4 + BYTE_S * length
    return first * (START_S + BYTE_S * length) + (-(-size // length) - 1) * links * of_segment


def space_at(size: int) -> Space:
    lengths = {ITSELF: frozenset({0})} | {f"{algorithm}:0": frozenset({0, *SEGMENTS}) for algorithm in WHOLE}
    for algorithm in CUT:
        whole = frozenset(length for length in SEGMENTS if length >= size)
        for length in SEGMENTS:
            if length < size:
                lengths[f"{algorithm}:{length}"] = frozenset({length} | ({0} if length == OWN else set()))
        if size <= OWN:
            lengths[f"{algorithm}:0"] = whole | {0}
        elif whole:
            lengths[f"{algorithm}:{min(whole)}"] = whole
    return Space(lengths)


def seconds_of_all(size: int) -> float:
    """Of the exhaustive search."""
    times = [true_seconds(name, size) for name in SPACES[size].lengths]
    return sum(times) * float(np.clip(measure.ALL_S / np.mean(times), *measure.ALL_ROUNDS))


class Machine:
    """Times scatter, and one of twenty is a slow one."""

    def __init__(self, seed: int, scatter: float) -> None:
        self._random = np.random.default_rng(seed)
        self._scatter = scatter
        self.seconds = 0.0

    def race(self, size: int, names: list[str]) -> dict[str, float]:
        def draw(alive: list[str]) -> Sequence[float]:
            times = np.array([true_seconds(name, size) for name in alive])
            times *= np.exp(self._scatter * self._random.standard_normal(len(alive)))
            times *= np.where(self._random.random(len(alive)) < 0.05, 2.0, 1.0)
            self.seconds += float(times.sum())
            return times.tolist()

        return racing.race(draw, names, reference=ITSELF)


SPACES = {8 << doubled: space_at(8 << doubled) for doubled in range(20)}


def searched(machine: Machine, *, heuristics: bool = True) -> dict[int, dict[str, float]]:
    ladder_of_sizes = climb(SPACES, heuristics=heuristics)
    size, names, _ = next(ladder_of_sizes)
    while True:
        try:
            size, names, _ = ladder_of_sizes.send(machine.race(size, names))
        except StopIteration as end:
            return end.value


def chosen(points: dict[int, dict[str, float]], size: int) -> str:
    times = points.get(size) or interpolated(SPACES, points, size)
    return min(times, key=times.__getitem__)


@pytest.mark.parametrize("scatter", [0.01, 0.05])
def test_the_best_are_found_in_little_time(scatter: float) -> None:
    everything = sum(seconds_of_all(size) for size in SPACES)
    good, spent = [], []
    for seed in range(4):
        machine = Machine(seed, scatter)
        points = searched(machine)
        for size, space in SPACES.items():
            best = min(true_seconds(name, size) for name in space.lengths)
            good.append(true_seconds(chosen(points, size), size) <= 1.03 * best)
        spent.append(machine.seconds)
    assert np.mean(good) >= 0.95
    assert statistics.mean(spent) <= 0.07 * everything


def test_two_races_are_merged() -> None:
    first = {"a:0": 1.0, "b:0": 1.125, "c:0": 4.0}
    assert near_best(first) == ["a:0", "b:0"]
    assert merged(first, {"a:0": 4.0, "b:0": 4.5}) == pytest.approx({"a:0": 2.0, "b:0": 2.25, "c:0": 8.0})


def test_short_messages_are_left_to_mpi_unless_another_is_faster_for_certain() -> None:
    times = {"a:0": 1.0, ITSELF: 1.125, "b:0": 1.0625}
    assert in_preference(times, 4096) == ["a:0", "b:0", ITSELF]
    assert in_preference(times | {ITSELF: 1.05}, 4096) == [ITSELF, "a:0", "b:0"]
    assert in_preference(times | {ITSELF: 1.05}, ladder.TIES + 1) == ["a:0", ITSELF, "b:0"]
    assert in_preference({"a:0": 1.0}, 8) == ["a:0"]
    # Whoever is chosen raced a second time, too.
    assert near_best({"a:0": 1.0, "b:0": 1.0, "c:0": 1.0, "d:0": 1.0, ITSELF: 1.1}) == ["a:0", "b:0", "c:0", ITSELF]


@pytest.mark.parametrize(("behind", "first"), [(1.0, ITSELF), (0.8, "a:0")])
def test_what_a_race_cannot_tell_apart(behind: float, first: str) -> None:
    """`a` takes `behind` times as long as MPI's own: as long, within the scatter, or certainly less."""
    chosen_first = 0
    for seed in range(20):
        random = np.random.default_rng(seed)

        def draw(alive: list[str], random: np.random.Generator = random) -> list[float]:
            of = {"a:0": behind * 1e-4, ITSELF: 1e-4}
            return [of[name] * float(np.exp(0.2 * random.standard_normal())) for name in alive]

        times = racing.race(draw, ["a:0", ITSELF], reference=ITSELF)
        chosen_first += in_preference(times, 8)[0] == first
    assert chosen_first >= 18


def test_native_is_always_measured() -> None:
    points = searched(Machine(1, 0.05))
    assert all(ITSELF in times for times in points.values())
    assert set(points) < set(SPACES)  # sizes between two with one winner are not measured
    assert ITSELF in interpolated(SPACES, points, next(size for size in SPACES if size not in points))


def test_without_heuristics_everything_races_everywhere() -> None:
    points = searched(Machine(1, 0.05), heuristics=False)
    assert {size: set(times) for size, times in points.items()} == {
        s: set(space.lengths) for s, space in SPACES.items()
    }


def test_a_slow_round_loses_nobody() -> None:
    of_b = itertools.chain([1.0, 1.3e-3], itertools.repeat(0.8e-3))

    def draw(alive: list[str]) -> list[float]:
        times = {"a:0": 1e-3, "b:0": next(of_b)}
        return [times[name] for name in alive]

    times = racing.race(draw, ["a:0", "b:0"])
    assert min(times, key=times.__getitem__) == "b:0"


def test_a_race_ends_soon_where_nothing_scatters() -> None:
    calls: list[list[str]] = []

    def draw(alive: list[str]) -> list[float]:
        calls.append(alive)
        return [{"a:0": 0.5, "b:0": 0.51, "c:0": 0.9}[name] for name in alive]

    assert racing.race(draw, ["a:0", "b:0", "c:0"]) == {"a:0": 0.5, "b:0": 0.51, "c:0": 0.9}
    assert calls == [["a:0", "b:0", "c:0"], ["a:0", "b:0"]]


def test_what_is_expected_of_a_longer_message() -> None:
    spaces = {size: SPACES[size] for size in (1 << 18, 1 << 19, 1 << 20)}
    points = {
        1 << 18: {"chain:30720": 5.0, "ring:0": 3.0, "flat:0": 6.0},
        1 << 19: {"chain:30720": 6.0, "ring:0": 5.0},
    }
    behind = expected(spaces, points, [1 << 18, 1 << 19], 1 << 20)
    # By growth chain takes 8 and ring 9; as it was, ring is ahead. Who did not race is as far behind as when it did.
    assert behind == {"chain:30720": 1.0, "ring:0": 1.0, "flat:0": 2.0}
    assert ladder._contenders({"chain:15360": 1.0, "ring:0": 1.1, "flat:0": 9.0, "binary:0": 9.5}, spaces[1 << 20]) == {
        "chain:15360", "chain:30720", "ring:0", "flat:0",
    }  # fmt: skip
