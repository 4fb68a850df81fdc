"""The tuner's choices and reasons on a simulated machine with known noise: it ignores differences within the noise, and finds real
ones."""

from __future__ import annotations

import json
import math
from collections import Counter

import numpy as np
import pytest
from penstock.tuning import decide, racing
from penstock.tuning.candidates import ITSELF
from penstock.tuning.decide import AGAIN, Choice, by_medians, duel
from penstock.tuning.noise import FLOOR, Noise, difference, median_interval, noise_at, noise_of

TRIALS = 100
SCATTERS = [0.02, 0.1, 0.2]


class Machine:
    """Random times: one in twenty is slow, and whole rounds and their neighbours are slow together."""

    def __init__(self, seed: int, scatter: float, factors: dict[str, float] | None = None) -> None:
        self._random = np.random.default_rng(seed)
        self._scatter = scatter
        self._factors = factors or {}
        self._drift = 0.0
        self.rounds = 0

    def draw(self, names: list[str]) -> list[float]:
        self.rounds += 1
        self._drift = 0.9 * self._drift + 0.05 * self._random.standard_normal()
        factors = [self._factors.get(name, self._factors.get(name.removesuffix(AGAIN), 1.0)) for name in names]
        times = (
            1e-4 * np.array(factors) * np.exp(self._drift + self._scatter * self._random.standard_normal(len(names)))
        )
        return (times * np.where(self._random.random(len(names)) < 0.05, 2.0, 1.0)).tolist()

    def noise(self, rounds: int = 16) -> Noise:
        return noise_of(*np.array([self.draw([ITSELF, ITSELF]) for _ in range(rounds)]).T)


def raced_and_dueled(machine: Machine, names: list[str], default: str, model: str = "") -> Choice:
    """As the tuner does for short messages: noise, race, duel of the leaders."""
    noise = machine.noise()
    times = racing.race(machine.draw, names, references={ITSELF, default})
    ahead = sorted((name for name in names if name != default), key=times.__getitem__)[:3]
    return duel(machine.draw, default, ahead, noise, model=model)


MANY = [ITSELF, *(f"a{i}:0" for i in range(16))]


@pytest.mark.parametrize("scatter", SCATTERS)
def test_without_a_difference_the_default_is_kept(scatter: float) -> None:
    found = [raced_and_dueled(Machine(seed, scatter), MANY, "a0:0") for seed in range(TRIALS)]
    assert sum(choice.name == "a0:0" for choice in found) >= 0.95 * TRIALS
    # It also says so: one of 17 nearly always leads by chance.
    assert Counter(choice.why for choice in found if choice.name == "a0:0")[decide.WITHIN] > TRIALS / 2


@pytest.mark.parametrize(("scatter", "factor"), [(0.02, 0.93), (0.1, 0.8), (0.2, 0.65)])
def test_a_difference_well_above_the_noise_is_found(scatter: float, factor: float) -> None:
    found = [raced_and_dueled(Machine(seed, scatter, {"a7:0": factor}), MANY, "a0:0") for seed in range(TRIALS)]
    assert sum((choice.name, choice.why) == ("a7:0", decide.MEASURED) for choice in found) >= 0.95 * TRIALS
    ratios = [choice.default_ratio for choice in found if choice.default_ratio]
    assert np.median([ratio for ratio, _, _ in ratios]) == pytest.approx(1 / factor, rel=0.03)
    assert np.mean([low <= 1 / factor <= high for _, low, high in ratios]) >= 0.9  # early checks cost a little coverage


@pytest.mark.parametrize("scatter", [0.01, 0.02, 0.05])
def test_medians_of_few_rounds_are_not_believed_either(scatter: float) -> None:
    """Long messages, or a search without time left: no duel, but the noise is known."""
    kept = found = 0
    for seed in range(TRIALS):
        for factors in ({}, {"a7:0": 1 / (1 + 12 * scatter)}):
            machine = Machine(seed, scatter, factors)
            noise = machine.noise()
            rounds = np.array([machine.draw(MANY) for _ in range(3)])
            times = dict(zip(MANY, np.median(rounds, axis=0).tolist()))
            choice = by_medians(times, "a0:0", noise, 3)
            if factors:
                found += (choice.name, choice.why) == ("a7:0", decide.MEASURED)
            else:
                kept += choice.name == "a0:0" and choice.why in (decide.WITHIN, decide.FASTEST)
    assert kept >= 0.95 * TRIALS
    assert found >= 0.9 * TRIALS


def test_it_ends_once_it_is_decided() -> None:
    def rounds(factor: float) -> float:
        spent = []
        for seed in range(20):
            machine = Machine(seed, 0.05, {"b:0": factor})
            duel(machine.draw, "a:0", ["b:0"], Noise(0.05, 0.0, 16, 1e-4))
            spent.append(machine.rounds)
        return float(np.median(spent))

    assert rounds(0.5) == rounds(2.0) == min(decide.LOOKS)
    assert rounds(0.5) < rounds(0.97) <= max(decide.LOOKS)


def test_it_ends_when_its_time_is_over() -> None:
    machine = Machine(0, 0.2, {"b:0": 0.97})
    duel(machine.draw, "a:0", ["b:0"], Noise(0.2, 0.0, 16, 1e-4), seconds=1e-9)
    assert machine.rounds == min(decide.LOOKS)


def test_a_thing_that_differs_from_itself_cannot_be_beaten_by_less() -> None:
    """The default's second measurement in each round is 10% slower, for an unknown reason. Then 6% mean nothing."""
    machine = Machine(3, 0.01, {"a:0 again": 1.1, "b:0": 0.94})
    assert duel(machine.draw, "a:0", ["b:0"], Noise(0.01, 0.0, 16, 1e-4)).why == decide.WITHIN
    machine = Machine(3, 0.01, {"b:0": 0.94})
    assert duel(machine.draw, "a:0", ["b:0"], Noise(0.01, 0.0, 16, 1e-4)).name == "b:0"
    # Nor does a lead within the noise measured before.
    machine = Machine(3, 0.01, {"b:0": 0.94})
    assert duel(machine.draw, "a:0", ["b:0"], Noise(0.01, 0.1, 16, 1e-4)).why == decide.WITHIN


@pytest.mark.parametrize(
    ("challengers", "model", "expected"),
    [
        (["b:0", "c:0", ITSELF], "c:0", (ITSELF, decide.WITHIN_NATIVE)),
        (["b:0", "c:0"], "c:0", ("c:0", decide.WITHIN_MODEL)),
        (["b:0"], "b:0", ("b:0", decide.MEASURED)),
    ],
)
def test_of_equals_that_beat_the_default(challengers: list[str], model: str, expected: tuple[str, str]) -> None:
    def draw(names: list[str]) -> list[float]:
        # The preferred one is slower by less than chance explains.
        return [
            (2.0 if name.removesuffix(AGAIN) == "a:0" else 1.0 + 0.0001 * challengers.index(name)) * wobble
            for name, wobble in zip(names, np.exp(0.01 * random.standard_normal(len(names))))
        ]

    random = np.random.default_rng(1)
    choice = duel(draw, "a:0", challengers, Noise(0.03, 0.0, 16, 1e-4), model=model)
    assert (choice.name, choice.why) == expected
    times = {"a:0": 2.0} | {name: 1.0 + 0.001 * place for place, name in enumerate(challengers)}
    choice = by_medians(times, "a:0", Noise(0.03, 0.0, 16, 1e-4), 5, model=model)
    assert (choice.name, choice.why) == expected


def test_a_choice_survives_the_journal() -> None:
    choice = duel(Machine(0, 0.1, {"b:0": 0.5}).draw, "a:0", ["b:0", "c:0"], Noise(0.1, 0.0, 16, 1e-4))
    assert choice.name == "b:0"
    assert choice.runner_up in ("a:0", "c:0")
    assert Choice.from_json(json.loads(json.dumps(choice.as_json()))) == choice


def test_an_interval_holds_the_difference_as_often_as_it_says() -> None:
    random = np.random.default_rng(0)
    held = 0
    for _ in range(400):
        second = np.exp(0.2 * random.standard_normal(12))
        first = 1.1 * np.exp(0.2 * random.standard_normal(12))
        found = difference(first, second)
        held += found.low <= math.log(1.1) <= found.high
    assert 0.93 * 400 <= held <= 0.985 * 400
    # Six tosses are all heads once in 64 times, five once in 32.
    assert difference([2.0] * 6, [1.0] * 6, 1 / 64).low == pytest.approx(math.log(2))
    assert difference([2.0] * 5, [1.0] * 5, 1 / 64).low == -math.inf


def test_between_which_measurements_a_median_lies() -> None:
    assert median_interval([3.0, 1.0, 2.0]) == (2.0, 1.0, 3.0)
    assert median_interval([5.0]) == (5.0, 5.0, 5.0)
    # Of 20 measurements the 6th and the 15th, by a table of the binomial distribution.
    assert median_interval(list(range(1, 21))) == (10.5, 6, 15)


def test_noise_between_sizes_is_that_of_the_worse_neighbour() -> None:
    low, high = Noise(0.1, 0.0, 8, 1e-6), Noise(0.3, 0.0, 8, 1e-5)
    known = {8: low, 1024: high}
    assert noise_at(known, 8) == low
    assert noise_at(known, 64) == high
    assert noise_at(known, 1 << 20) == high


def test_a_machine_without_noise_has_a_floor() -> None:
    silent = noise_of([1.0] * 8, [1.0] * 8)
    assert silent.band(8) == FLOOR
    assert by_medians({"a:0": 1.0, "b:0": 1.0 - FLOOR / 2}, "a:0", silent).why == decide.WITHIN
    assert by_medians({"a:0": 1.0, "b:0": 1.0 - 3 * FLOOR}, "a:0", silent).name == "b:0"
