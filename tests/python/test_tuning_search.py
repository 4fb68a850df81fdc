"""The tuner's search on a simulated machine: its choices, and the time it spends."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence

import numpy as np
import pytest
from penstock.tuning import decide, ladder, measure, noise, racing
from penstock.tuning.candidates import ITSELF, SEGMENTS, Space, config_of
from penstock.tuning.ladder import climb, expected, interpolated, merged, near_best
from penstock.tuning.noise import Noise, noise_at, noise_of

START_S, BYTE_S = 1e-4, 8e-9  #: Of a message between nodes.
#: algorithm → (messages until the last rank has data, transfer times per segment from then on).
OWN = SEGMENTS[2]  # length of segments, where none is asked for
CUT = {"binomial": (2, 2.0), "chain": (3, 1.0), "binary": (2, 1.6), "two_tree": (2.4, 1.15), "slow_chain": (5, 1.3)}
#: algorithm → (messages in sequence, transfer times).
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
    """The time of the exhaustive search."""
    times = [true_seconds(name, size) for name in SPACES[size].lengths]
    return sum(times) * float(np.clip(measure.ALL_S / np.mean(times), *measure.ALL_ROUNDS))


class Machine:
    """Random times; one in twenty is slow."""

    def __init__(self, seed: int, scatter: float) -> None:
        self._random = np.random.default_rng(seed)
        self._scatter = scatter
        self._noises: dict[int, Noise] = {}
        self.seconds = 0.0

    def draw(self, size: int, names: list[str]) -> Sequence[float]:
        times = np.array([true_seconds(name.removesuffix(decide.AGAIN), size) for name in names])
        times *= np.exp(self._scatter * self._random.standard_normal(len(names)))
        times *= np.where(self._random.random(len(names)) < 0.05, 2.0, 1.0)
        self.seconds += float(times.sum())
        return times.tolist()

    def race(self, size: int, names: list[str]) -> dict[str, float]:
        return racing.race(lambda alive: self.draw(size, alive), names, references={ITSELF})

    def noises(self) -> dict[int, Noise]:
        """As the tuner does before it races."""
        if not self._noises:
            sizes = sorted(SPACES)
            for size in (sizes[0], sizes[len(sizes) // 2], sizes[-1]):
                self._noises[size] = noise_of(*np.array([self.draw(size, [ITSELF, ITSELF]) for _ in range(8)]).T)
        return self._noises

    def duel(self, size: int, names: list[str]) -> decide.Choice:
        return decide.duel(
            lambda alive: self.draw(size, alive),
            names[0],
            names[1:],
            noise_at(self.noises(), size),
            seconds=measure.DUEL_S,
        )


SPACES = {8 << doubled: space_at(8 << doubled) for doubled in range(20)}


def searched(machine: Machine, *, heuristics: bool = True) -> dict[int, dict[str, float]]:
    ladder_of_sizes = climb(SPACES, heuristics=heuristics)
    step = next(ladder_of_sizes)
    while True:
        size, names, again = step
        if again:
            times = {name: spread[0] for name, spread in machine.duel(size, names).spreads.items()}
        else:
            times = machine.race(size, names)
        try:
            step = ladder_of_sizes.send(times)
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
    assert statistics.mean(spent) <= 0.09 * everything  # a quarter of it for the noise


def test_a_duel_counts_more_than_the_race_before_it() -> None:
    first = {"a:0": 1.0, "b:0": 1.125, "c:0": 4.0}
    assert near_best(first, "c:0") == ["c:0", "a:0", "b:0"]
    assert merged(first, {"a:0": 4.0, "b:0": 4.5}) == pytest.approx({"a:0": 4.0, "b:0": 4.5, "c:0": 16.0})
    # The default meets the three that are close to the best, and MPI's own if it is close.
    near = {"a:0": 1.0, "b:0": 1.0, "c:0": 1.0, "d:0": 1.0, ITSELF: 1.1}
    assert near_best(near, "d:0") == ["d:0", "a:0", "b:0", "c:0", ITSELF]
    assert near_best({"a:0": 1.0, "b:0": 2.0}, "a:0") == ["a:0"]


def test_native_is_always_measured() -> None:
    points = searched(Machine(1, 0.05))
    assert all(ITSELF in times for times in points.values())
    assert set(points) < set(SPACES)  # no measurement between two sizes with the same winner
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

    assert racing.race(draw, ["a:0", "b:0", "c:0"]) == pytest.approx({"a:0": 0.5, "b:0": 0.51, "c:0": 0.9})
    assert calls == [["a:0", "b:0", "c:0"], ["a:0", "b:0"]]


def test_an_interval_holds_its_median_when_the_machine_slows_down() -> None:
    slow_down = [{"a:0": 0.2, "b:0": 0.2, "c:0": 0.2}, {"a:0": 0.21, "b:0": 0.7, "c:0": 0.7}]
    rounds = itertools.chain(slow_down, itertools.repeat(slow_down[-1]))

    def draw(names: list[str]) -> list[float]:
        times = next(rounds)
        return [times[name] for name in names]

    spreads: dict[str, noise.Spread] = {}
    found = racing.race(draw, ["a:0", "b:0", "c:0"], spreads=spreads)
    for name, (middle, low, high, _) in spreads.items():
        assert middle == found[name] and low <= middle <= high


def test_what_is_expected_of_a_longer_message() -> None:
    spaces = {size: SPACES[size] for size in (1 << 18, 1 << 19, 1 << 20)}
    points = {
        1 << 18: {"chain:30720": 5.0, "ring:0": 3.0, "flat:0": 6.0},
        1 << 19: {"chain:30720": 6.0, "ring:0": 5.0},
    }
    behind = expected(spaces, points, [1 << 18, 1 << 19], 1 << 20)
    # By growth, chain takes 8 and ring 9; by ratio, ring leads. A candidate that did not race keeps its ratio.
    assert behind == {"chain:30720": 1.0, "ring:0": 1.0, "flat:0": 2.0}
    assert ladder._contenders({"chain:15360": 1.0, "ring:0": 1.1, "flat:0": 9.0, "binary:0": 9.5}, spaces[1 << 20]) == {
        "chain:15360", "chain:30720", "ring:0", "flat:0",
    }  # fmt: skip
