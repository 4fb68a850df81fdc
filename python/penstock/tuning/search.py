"""The search itself: predicts, lets the best candidates race, and writes the table."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from penstock.error import Error
from penstock.tuning.candidates import NATIVE, OPERATIONS, PIPELINES, SEGMENTS, config_of, name_of
from penstock.tuning.journal import Journal
from penstock.tuning.measure import RACE_S, Meter
from penstock.tuning.outcome import Outcome
from penstock.tuning.predict import STAGES, interpolate, predict
from penstock.tuning.table import write_table

KEPT = 3  #: predicted candidates that race from end to end, and as many of each segment length; see _best
SHORT = 32 << 10  #: up to here all candidates race: that takes less time than to predict them
TASK_SHARE = 0.4  #: of the time, for tasks and for algorithms that have none
BEHIND = 1.5  #: how far behind a candidate may be at a neighbouring size to race again
CLEAR = 1.15  #: how far ahead a choice is that is taken over where both neighbouring sizes made it


@dataclass
class TuningRequest:
    """What to tune. Equal on all ranks."""

    operations: list[str]
    sizes: list[int]
    minutes: float = 10.0
    heuristics: bool = True
    exhaustive: bool = False


def sizes_between(smallest: int, largest: int) -> list[int]:
    """Sizes a factor of 4 apart, with both ends."""
    if not 1 <= smallest <= largest:
        raise Error(f"sizes from {smallest} to {largest}; expected 1 <= from <= to")
    sizes = []
    size = smallest
    while size < largest:
        sizes.append(size)
        size *= 4
    return [*sizes, largest]


def coarse_first(items: list[int]) -> list[int]:
    """The ends, then the middles between what came before: where time runs out, the rest can be interpolated."""
    order = list(dict.fromkeys([items[0], items[-1]])) if items else []
    gaps = [(0, len(items) - 1)]
    while gaps:
        low, high = gaps.pop(0)
        if high - low < 2:
            continue
        middle = (low + high) // 2
        order.append(items[middle])
        gaps += [(low, middle), (middle, high)]
    return order


class _Search:
    """One run of the tuner. All members are called by all ranks in the same order."""

    def __init__(self, request: TuningRequest, path: Path, again: bool, bar: bool) -> None:
        from mpi4py import MPI

        from penstock.comm import Comm

        self.world = MPI.COMM_WORLD
        self.comm = Comm(self.world)
        self.request = request
        self.path = path
        self.bar = bar and self.world.rank == 0
        self.key = self.world.bcast(json.loads(self.comm._core.tuning_key()))
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

    def predictions(self) -> dict[str, dict[int, dict[str, float]]]:
        """Seconds of every candidate, from tasks or from a few sizes of algorithms that have none."""
        sizes = self.request.sizes
        found: dict[str, dict[int, dict[str, float]]] = {
            operation: {size: {} for size in sizes} for operation in self.request.operations
        }
        candidates = {
            (operation, size): self.meter.configs(operation, size, self.request.heuristics)
            for operation in self.request.operations
            for size in sizes
        }
        pipelines = sorted(
            {
                (config[0], config[1] or size)
                for (operation, size), configs in candidates.items()
                for config in configs
                if operation in STAGES and config[0] in PIPELINES
            },
            key=lambda config: (config[1], config[0]),
        )
        if self.request.heuristics:  # what is sent as one segment follows from the next longer one closely enough
            pipelines = [config for config in pipelines if config[1] in (*SEGMENTS, min(sizes))]
        for number, (algorithm, segment) in enumerate(pipelines, 1):
            if f"tasks/{algorithm}:{segment}" not in self.journal and self.seconds_left(TASK_SHARE) < 0:
                continue
            costs = self.meter.task_costs(algorithm, segment)
            self.tell("tasks", number, len(pipelines), f"{algorithm}, segments of {segment}")
            for (operation, size), configs in candidates.items():
                config = (algorithm, 0 if size == segment else segment)
                if operation in STAGES and config in configs:
                    found[operation][size][name_of(config)] = predict(operation, -(-size // segment), costs)
        # Every algorithm as one segment, or without any, on a coarse grid of sizes.
        longer = [size for size in sizes if size > SHORT]
        grid = longer[:: 3 if len(longer) > 4 else 2]
        points = self.points([*grid, longer[-1]] if longer and grid[-1] != longer[-1] else grid)
        for number, (operation, size) in enumerate(points, 1):
            flat = [name_of(c) for c in candidates[operation, size] if name_of(c) not in found[operation][size]]
            if self.seconds_left(TASK_SHARE * 1.5) < 0 and number > 2 * len(self.request.operations):
                break
            found[operation][size] |= self.meter.race(operation, size, flat, budget_s=RACE_S / 20)
            self.tell("whole", number, len(points), f"{operation}, {size} bytes")
        for operation in self.request.operations:
            interpolate(found[operation], {size: candidates[operation, size] for size in sizes})
        return found

    def points(self, sizes: list[int]) -> list[tuple[str, int]]:
        """Operations and sizes, coarse first. A barrier has one size."""
        return [
            (operation, size)
            for size in coarse_first(sizes)
            for operation in self.request.operations
            if operation != "barrier" or size == self.request.sizes[0]
        ]

    def worth_measuring(self, chosen: dict[int, dict[str, Any]], size: int, ranked: list[str]) -> list[str]:
        """Of `ranked`, the best by prediction first, who may win; with what was chosen at other sizes so far."""
        neighbours = _neighbours(chosen, size) if self.request.heuristics else ()
        clear = {_clear_winner(point) for point in neighbours}
        if len(clear) == 1 and (winner := clear.pop()) in (*ranked, name_of((NATIVE, 0))):
            return [winner]
        if size > SHORT:
            return _best(ranked)
        near = {name for point in neighbours for name in _close_ones(point)}
        return [name for name in ranked if name in near] if near else ranked

    def search(self) -> Outcome | None:
        spent = self.journal.spent
        start = time.monotonic()
        predicted = self.predictions()
        spent["predicting"] = spent.get("predicting", 0.0) + time.monotonic() - start
        start = time.monotonic()
        points = self.points(self.request.sizes)
        chosen: dict[str, dict[int, dict[str, Any]]] = {operation: {} for operation in self.request.operations}
        left_out = 0
        native = name_of((NATIVE, 0))
        for number, (operation, size) in enumerate(points, 1):
            known = f"whole/{operation}/{size}/{native}" in self.journal
            if not known and self.seconds_left() < 0:
                left_out += 1
                continue
            ranked = sorted(predicted[operation][size], key=predicted[operation][size].__getitem__)
            if size <= SHORT:
                ranked = [name_of(config) for config in self.meter.configs(operation, size, self.request.heuristics)]
            wanted = self.worth_measuring(chosen[operation], size, ranked)
            times = self.meter.race(operation, size, dict.fromkeys([*wanted, native]))
            chosen[operation][size] = _point(times)
            self.tell("validate", number, len(points), f"{operation}, {size} bytes")
        spent["validating"] = spent.get("validating", 0.0) + time.monotonic() - start
        everything: dict[str, dict[int, dict[str, float]]] = {}
        referee: dict[str, dict[int, dict[str, float]]] = {}
        if self.request.exhaustive:
            start = time.monotonic()
            for number, (operation, size) in enumerate(points, 1):
                names = [*map(name_of, self.meter.configs(operation, size, heuristics=False)), native]
                everything.setdefault(operation, {})[size] = self.meter.measure_all(operation, size, names)
                self.tell("all", number, len(points), f"{operation}, {size} bytes")
            spent["exhaustive search"] = spent.get("exhaustive search", 0.0) + time.monotonic() - start
            for operation, size in points:
                if size not in chosen[operation]:
                    continue
                first = chosen[operation][size]["candidates"][0]
                times = everything[operation][size]
                referee.setdefault(operation, {})[size] = self.meter.compare(
                    operation,
                    size,
                    name_of((first["algorithm"], first["segment_bytes"])),
                    min(times, key=times.__getitem__),
                )
        self.journal.keep({"finished": not left_out})
        self.comm.free()
        if self.world.rank != 0:
            return None
        outcome = Outcome(
            self.key, asdict(self.request), chosen, predicted, everything, referee, spent, left_out, str(self.path)
        )
        write_table(self.path, outcome)
        return outcome


def _neighbours(chosen: dict[int, dict[str, Any]], size: int) -> tuple[dict[str, Any], ...]:
    """What was found at the next smaller and the next larger size; nothing unless both are known."""
    below = max((known for known in chosen if known < size), default=None)
    above = min((known for known in chosen if known > size), default=None)
    return () if below is None or above is None else (chosen[below], chosen[above])


def _clear_winner(point: dict[str, Any]) -> str | None:
    first, *rest = point["candidates"]
    if not rest or rest[0]["seconds"] < CLEAR * first["seconds"]:
        return None
    return name_of((first["algorithm"], first["segment_bytes"]))


def _close_ones(point: dict[str, Any]) -> list[str]:
    candidates = point["candidates"]
    return [
        name_of((each["algorithm"], each["segment_bytes"]))
        for each in candidates
        if each["seconds"] <= BEHIND * candidates[0]["seconds"]
    ]


def _best(ranked: list[str]) -> list[str]:
    """The best few, and the best few of each segment length: tasks wait for each other, which plans do not, and that
    makes predictions for short segments worse than those for long ones."""
    of_segment: dict[int, list[str]] = {}
    for name in ranked:
        of_segment.setdefault(config_of(name)[1], []).append(name)
    return list(dict.fromkeys([*ranked[:KEPT], *(name for names in of_segment.values() for name in names[:KEPT])]))


def _point(times: dict[str, float]) -> dict[str, Any]:
    candidates = [
        {"algorithm": config_of(name)[0], "segment_bytes": config_of(name)[1], "seconds": seconds}
        for name, seconds in sorted(times.items(), key=lambda item: item[1])
    ]
    return {"native_s": times[name_of((NATIVE, 0))], "candidates": candidates}


def run(request: TuningRequest, path: Path, *, again: bool = False, bar: bool = False) -> Outcome | None:
    """Tune, and write the table to `path`. Collective over MPI.COMM_WORLD; what was found is returned on rank 0.

    What has been measured is kept beside the table, so a run that was cut short goes on where it ended.
    """
    unknown = [operation for operation in request.operations if operation not in OPERATIONS]
    if unknown or not request.operations:
        raise Error(f"operations are {request.operations}; expected some of {', '.join(OPERATIONS)}")
    if request.minutes <= 0:
        raise Error(f"minutes is {request.minutes}, expected a positive number")
    return _Search(request, path, again, bar).search()
