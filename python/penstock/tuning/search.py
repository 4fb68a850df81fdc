"""The search: predicts, runs races at the sizes that need them, and writes the table."""

from __future__ import annotations

import contextlib
import json
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from penstock import output_file, spmd
from penstock.error import Error
from penstock.placement import ORDERS, ordered
from penstock.tuning.candidates import ITSELF, OPERATIONS, PIPELINES, SEGMENTS, config_of, name_of
from penstock.tuning.decide import Choice, by_medians
from penstock.tuning.journal import Journal
from penstock.tuning.ladder import Times, climb, interpolated, merged
from penstock.tuning.measure import Meter
from penstock.tuning.noise import Noise, Spread, noise_at
from penstock.tuning.outcome import Outcome
from penstock.tuning.predict import STAGES, predict
from penstock.tuning.table import require_table, write_table

TASK_SHARE = 0.3  #: Share of the time limit for tasks.
NOISE_SHARE = 0.1  #: Share of the time limit for the noise.


@dataclass
class TuningRequest:
    """What to tune. Equal on all ranks."""

    operations: list[str]
    sizes: list[int]
    minutes: float = 10.0
    heuristics: bool = True
    exhaustive: bool = False
    order: str = "launched"  #: Order of the ranks over the nodes, as in the application's communicators.


def sizes_between(smallest: int, largest: int) -> list[int]:
    """Sizes that grow by factors of 2, with both ends."""
    if not 1 <= smallest <= largest:
        raise Error(f"sizes from {smallest} to {largest}; expected 1 <= from <= to")
    sizes = []
    size = smallest
    while size < largest:
        sizes.append(size)
        size *= 2
    return [*sizes, largest]


class _Search:
    """One run of the tuner. All ranks call all methods in the same order."""

    def __init__(self, request: TuningRequest, path: Path, again: bool, bar: bool) -> None:
        from mpi4py import MPI

        from penstock.comm import Comm

        spmd.from_root(MPI.COMM_WORLD, lambda: require_outputs(path))
        self.world = ordered(MPI.COMM_WORLD, request.order)
        with without_table():
            self.comm = Comm(self.world)
        self.request = request
        self.path = path
        self.bar = bar and self.world.rank == 0
        self.key = self.world.bcast(json.loads(self.comm._open().tuning_key()))
        self.journal = Journal(self.world, self.key, path.with_name(path.name + ".progress"), again)
        self.meter = Meter(self.world, self.comm, request.operations, request.sizes, self.journal)
        self.begin = time.monotonic()

    def seconds_left(self, share: float = 1.0) -> float:
        return self.world.bcast(60 * self.request.minutes * share - (time.monotonic() - self.begin))

    def tell(self, part: str, done: int, total: int, what: str) -> None:
        if not self.bar:
            return
        filled = 30 * done // max(1, total)
        print(f"\r{part:9} [{'#' * filled}{'.' * (30 - filled)}] {done}/{total} {what:44.44}", end="", file=sys.stderr)
        if done == total:
            print(file=sys.stderr)

    def predictions(self) -> dict[str, dict[int, Times]]:
        """Predicted seconds of the pipelines, by equations (3) and (4). With heuristics: only if all their tasks occur."""
        spaces = self.meter.spaces
        found: dict[str, dict[int, Times]] = {o: {size: {} for size in sizes} for o, sizes in spaces.items()}
        operations = [operation for operation in spaces if operation in STAGES]
        cut = {
            config_of(name)
            for operation in operations
            for space in spaces[operation].values()
            for name in space.lengths
        }
        pipelines = [algorithm for algorithm in PIPELINES if any((algorithm, length) in cut for length in SEGMENTS)]
        for number, algorithm in enumerate(pipelines, 1):
            if self.seconds_left(TASK_SHARE) < 0:
                break
            costs = self.meter.costs_of_tasks(algorithm, self.request.heuristics)
            self.tell("tasks", number, len(pipelines), algorithm)
            for operation in operations:
                for size, space in spaces[operation].items():
                    for name in space.lengths:
                        own, segment = config_of(name)
                        if own == algorithm and segment > 0 and -(-size // segment) >= len(STAGES[operation]):
                            found[operation][size][name] = predict(operation, -(-size // segment), costs[segment])
        return found

    def noises(self) -> dict[str, dict[int, Noise]]:
        """The noise of each operation at its smallest, middle and largest size; the first size in any case."""
        found: dict[str, dict[int, Noise]] = {operation: {} for operation in self.meter.spaces}
        places = [
            (operation, size)
            for place in (0.0, 1.0, 0.5)
            for operation, spaces in self.meter.spaces.items()
            for size in [sorted(spaces)[round(place * (len(spaces) - 1))]]
        ]
        places = list(dict.fromkeys(places))
        for number, (operation, size) in enumerate(places, 1):
            if found[operation] and self.seconds_left(NOISE_SHARE) < 0:
                continue
            found[operation][size] = self.meter.noise(operation, size)
            self.tell("noise", number, len(places), f"{operation}, {size} bytes")
        return found

    def races(
        self, predicted: dict[str, dict[int, Times]], noises: dict[str, dict[int, Noise]]
    ) -> tuple[dict[str, dict[int, Times]], dict[str, dict[int, Choice]]]:
        """The measurements, and the choices of duels. Operations take turns, so that all of them get equally far in the
        available time."""
        duels: dict[str, dict[int, Choice]] = {operation: {} for operation in self.request.operations}
        found: dict[str, dict[int, Times]] = {operation: {} for operation in self.request.operations}
        ladders = {
            operation: climb(
                spaces,
                heuristics=self.request.heuristics,
                defaults=self.meter.defaults[operation],
                predict=predicted[operation].__getitem__,
            )
            for operation, spaces in self.meter.spaces.items()
        }
        steps = {operation: next(ladder) for operation, ladder in ladders.items()}
        total = sum(map(len, self.meter.spaces.values()))
        while steps:
            for operation, (size, names, again) in list(steps.items()):
                if not self.meter.knows(operation, size, names, again=again) and self.seconds_left() < 0:
                    del steps[operation]
                    continue
                if again:
                    model = best_of(predicted[operation][size])
                    choice = self.meter.duel(operation, size, names, noise_at(noises[operation], size), model)
                    duels[operation][size] = choice
                    times = {name: spread[0] for name, spread in choice.spreads.items()}
                    found[operation][size] = merged(found[operation][size], times)
                else:
                    times = found[operation][size] = self.meter.race(operation, size, names)
                self.tell("races", sum(map(len, found.values())), total, f"{operation}, {size} bytes")
                try:
                    steps[operation] = ladders[operation].send(times)
                except StopIteration:
                    del steps[operation]
        self.tell("races", total, total, "")
        return found, duels

    def search(self) -> Outcome | None:
        spent = self.journal.spent
        start = time.monotonic()
        noises = self.noises()
        spent["measuring the noise"] = spent.get("measuring the noise", 0.0) + time.monotonic() - start
        start = time.monotonic()
        predicted = self.predictions()
        spent["predicting"] = spent.get("predicting", 0.0) + time.monotonic() - start
        start = time.monotonic()
        raced, duels = self.races(predicted, noises)
        spent["racing"] = spent.get("racing", 0.0) + time.monotonic() - start
        chosen: dict[str, dict[int, dict[str, Any]]] = {}
        for operation, spaces in self.meter.spaces.items():
            points = {
                size: raced[operation].get(size) or interpolated(spaces, raced[operation], size) for size in spaces
            }
            chosen[operation] = {}
            for size, times in points.items():
                if not times:
                    continue
                noise, default = noise_at(noises[operation], size), self.meter.defaults[operation][size]
                model = best_of(predicted[operation][size])
                spreads = self.meter.spreads(operation, size) if size in raced[operation] else {}
                rounds = {name: spread[3] for name, spread in spreads.items()} or 2
                choice = duels[operation].get(size) or by_medians(times, default, noise, rounds, model=model)
                chosen[operation][size] = point_of(
                    times, choice, {**spreads, **choice.spreads}, noise, measured=size in raced[operation]
                )
        left_out = sum(map(len, self.meter.spaces.values())) - sum(map(len, chosen.values()))
        outcome = Outcome(self.key, asdict(self.request), chosen, predicted, seconds=spent, left_out=left_out)
        outcome.noise = {
            operation: {size: noise.as_json() for size, noise in known.items()} for operation, known in noises.items()
        }
        if self.request.exhaustive:
            self.measure_all(outcome)
        self.journal.keep({"finished": not left_out})
        self.comm.free()
        outcome.path = str(self.path)
        spmd.from_root(self.world, lambda: write_table(self.path, outcome))
        return outcome if self.world.rank == 0 else None

    def measure_all(self, outcome: Outcome) -> None:
        """Run the exhaustive search, and measure its best and this search's choice side by side. It runs in two halves, whose
        difference shows its error."""
        points = [(operation, size) for operation, spaces in self.meter.spaces.items() for size in spaces]
        start = time.monotonic()
        for half in range(2):
            for number, (operation, size) in enumerate(points, 1):
                self.meter.measure_all(operation, size, half)
                self.tell(f"all, {half + 1}/2", number, len(points), f"{operation}, {size} bytes")
        outcome.seconds["exhaustive search"] = outcome.seconds.get("exhaustive search", 0.0) + time.monotonic() - start
        for number, (operation, size) in enumerate(points, 1):
            first, second = (self.meter.measure_all(operation, size, half) for half in range(2))
            halves = [{name: statistics.median(times) for name, times in half.items()} for half in (first, second)]
            together = {name: statistics.median(first[name] + second[name]) for name in first}
            outcome.exhaustive.setdefault(operation, {})[size] = together
            outcome.halves.setdefault(operation, {})[size] = disagreement(*halves)
            if size in outcome.operations[operation]:
                best = outcome.operations[operation][size]["candidates"][0]
                outcome.referee.setdefault(operation, {})[size] = self.meter.compare(
                    operation,
                    size,
                    name_of((best["algorithm"], best["segment_bytes"])),
                    min(together, key=together.__getitem__),
                )
            self.tell("referee", number, len(points), f"{operation}, {size} bytes")


def require_outputs(path: Path) -> None:
    """Check early that the table and the journal can be written, and that an existing table file is a table."""
    output_file.require_writable(path)
    require_table(path)


def disagreement(first: Times, second: Times) -> float:
    """How much longer the best of one half of the measurements takes in the other half than that half's best. A ratio."""
    return max(
        there[min(here, key=here.__getitem__)] / min(there.values())
        for here, there in ((first, second), (second, first))
    )


def best_of(times: Times) -> str:
    return min(times, key=times.__getitem__, default="")


def point_of(
    times: Times, choice: Choice, spreads: dict[str, Spread], noise: Noise, *, measured: bool = True
) -> dict[str, Any]:
    """The candidates by preference: the choice, then by time. A rank that cannot use MPI's own collective takes the best
    of the others."""
    rest = {name: seconds for name, seconds in times.items() if name != choice.name}
    second = by_medians(rest, choice.default, noise).name if choice.name == ITSELF and rest else ""
    names = [choice.name, *sorted(rest, key=lambda name: (name != second, rest[name]))]
    candidates = []
    for name in names:
        algorithm, segment = config_of(name)
        each = {"algorithm": algorithm, "segment_bytes": segment, "seconds": times[name]}
        if name in spreads:
            # Median and interval come from the last measurement; `seconds` from all.
            middle, low, high, rounds = spreads[name]
            each |= {"low_s": low * times[name] / middle, "high_s": high * times[name] / middle, "rounds": rounds}
        candidates.append(each)
    facts = {"why": choice.why, "default": choice.default, "noise": choice.noise}
    facts |= {"runner_up": choice.runner_up, "runner_up_ratio": choice.runner_up_ratio}
    facts |= {"default_ratio": choice.default_ratio}
    return {"native_s": times[ITSELF], "measured": measured, **facts, "candidates": candidates}


@contextlib.contextmanager
def without_table() -> Iterator[None]:
    """Disable PENSTOCK_TUNING: the default must not come from a table."""
    from penstock import _penstock

    before = {name: value for name, _, _, value, _ in _penstock.option_table()}["tuning"]
    _penstock.set_option("tuning", "")
    try:
        yield
    finally:
        _penstock.set_option("tuning", before)


def run(request: TuningRequest, path: Path, *, again: bool = False, bar: bool = False) -> Outcome | None:
    """Tune, and write the table to `path`. Collective over MPI.COMM_WORLD. Rank 0 returns the outcome, others None.

    Measurements are kept in a journal beside the table, so an interrupted run resumes.
    """
    unknown = [operation for operation in request.operations if operation not in OPERATIONS]
    if unknown or not request.operations:
        raise Error(f"operations are {request.operations}; expected some of {', '.join(OPERATIONS)}")
    if request.order not in ORDERS:
        raise Error(f"order is '{request.order}'; expected {' or '.join(ORDERS)}")
    if request.minutes <= 0:
        raise Error(f"minutes is {request.minutes}; expected a positive number")
    return _Search(request, path, again, bar).search()
