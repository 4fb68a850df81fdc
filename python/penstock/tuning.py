"""The tuner: which algorithm is the fastest for every operation and size on this machine (paper 001, section III).

Tasks (one stage of a segment on each level, at the same time) are measured once for each algorithm and segment size, as
they follow each other, so that every rank starts a task when it has ended the one before. Equations (3) and (4) make
times of whole collectives of them. The best few by prediction are then measured from end to end.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from penstock import plan as plans
from penstock.error import Error

__all__ = ["Outcome", "TuningRequest", "predict", "run", "sizes_between", "write_table"]

FORMAT, VERSION = "penstock-tuning", 1

#: Algorithms that are pipelines of tasks over two levels, for bcast, reduce and allreduce.
PIPELINES = ("hierarchical", "node_shared", "leader_binary", "leader_chain", "leader_two_tree")
SEGMENTS = (16 << 10, 64 << 10, 256 << 10, 1 << 20)
#: The stages that run at the same time, step by step, for a message of `u` segments; see `steps_of`.
STAGES = {"bcast": ("ib", "sb"), "reduce": ("sr", "ir"), "allreduce": ("sr", "ir", "ib", "sb")}
STABLE = 6  #: tasks of a full pipeline in a row; the cost of the later ones counts (figure 3)
KEPT = 3  #: predicted candidates that are measured from end to end
TASK_SHARE = 0.4  #: of the time, for tasks and for algorithms that have none

Config = tuple[str, int]  #: algorithm, segment_bytes (0: its own)


@dataclass
class TuningRequest:
    """What to tune. Equal on all ranks."""

    operations: list[str]
    sizes: list[int]
    minutes: float = 10.0
    heuristics: bool = True
    exhaustive: bool = False


@dataclass
class Outcome:
    """What was found; on rank 0."""

    key: dict[str, Any]
    request: dict[str, Any]
    operations: dict[str, dict[int, dict[str, Any]]]  #: operation → bytes → native_s and candidates, the best first
    predicted: dict[str, dict[int, dict[str, float]]]  #: operation → bytes → "algorithm:segment" → seconds
    exhaustive: dict[str, dict[int, dict[str, float]]]  #: the same, measured, of all there are
    seconds: dict[str, float] = field(default_factory=dict)  #: what each part of the search took
    left_out: int = 0  #: points for which the time did not suffice
    path: str = ""

    def as_json(self) -> str:
        return json.dumps(asdict(self), indent=2)

    def within(self, share: float = 0.03) -> tuple[int, int]:
        """Points at which the choice is at most `share` slower than the best of all, and how many are known."""
        good = known = 0
        for operation, points in self.operations.items():
            for size, point in points.items():
                times = self.exhaustive.get(operation, {}).get(size, {})
                if not times or not point["candidates"]:
                    continue
                known += 1
                best = point["candidates"][0]
                chosen = times.get(_name((best["algorithm"], best["segment_bytes"])))
                good += chosen is not None and chosen <= (1 + share) * min(times.values())
        return good, known

    def summary(self) -> str:
        lines = [f"{'operation':10} {'bytes':>10}  {'algorithm':24} {'segment':>9} {'time':>10} {'native':>10}"]
        for operation, points in self.operations.items():
            for size, point in sorted(points.items()):
                if not point["candidates"]:
                    continue
                best = point["candidates"][0]
                lines.append(
                    f"{operation:10} {size:10}  {best['algorithm']:24} {best['segment_bytes'] or '-':>9} "
                    f"{_time(best['seconds']):>10} {_time(point['native_s']):>10}"
                )
        lines.append("")
        lines += [f"{part}: {seconds:.1f} s" for part, seconds in self.seconds.items()]
        if self.left_out:
            lines.append(f"{self.left_out} points were left to interpolation for want of time; run again to go on")
        good, known = self.within()
        if known:
            lines.append(f"within 3% of the exhaustive best at {good} of {known} points")
        lines.append(f"written: {self.path}; use it with PENSTOCK_TUNING={self.path}")
        return "\n".join(lines)


def _time(seconds: float) -> str:
    if not seconds:
        return "-"
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.1f} µs"


def _name(config: Config) -> str:
    return f"{config[0]}:{config[1]}"


def _config(name: str) -> Config:
    algorithm, _, segment = name.rpartition(":")
    return algorithm, int(segment)


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
    order = [items[0], items[-1]] if len(items) > 1 else list(items)
    gaps = [(0, len(items) - 1)]
    while gaps:
        low, high = gaps.pop(0)
        if high - low < 2:
            continue
        middle = (low + high) // 2
        order.append(items[middle])
        gaps += [(low, middle), (middle, high)]
    return order


def steps_of(operation: str, segments: int) -> list[str]:
    """The tasks of an operation of so many segments, one after the other: for bcast ib, sbib, …, sbib, sb."""
    stages = STAGES[operation]
    return [
        "".join(stage for depth, stage in reversed(list(enumerate(stages))) if 0 <= step - depth < segments)
        for step in range(segments + len(stages) - 1)
    ]


def predict(operation: str, segments: int, costs: dict[str, list[float]]) -> float:
    """Seconds of the whole operation by equations (3) and (4): the largest sum over ranks of the costs of its tasks.

    `costs` has the seconds of every rank for each task, the stabilised ones of tasks that repeat. A task that was not
    measured, of messages of very few segments, costs as much as its stages one after the other. Equation (4) as printed
    ends with sbib(u-1); figure 5 has one more task, sb(u-1), which is counted here.
    """
    ranks = len(next(iter(costs.values())))
    total = np.zeros(ranks)
    for task in steps_of(operation, segments):
        if task in costs:
            total += costs[task]
        else:
            total += np.sum([costs[stage] for stage in _stages(task)], axis=0)
    return float(total.max())


def _stages(task: str) -> list[str]:
    return [task[at : at + 2] for at in range(0, len(task), 2)]


class _Search:
    """One run of the tuner. All members are called by all ranks in the same order."""

    def __init__(self, request: TuningRequest, path: Path, again: bool, bar: bool) -> None:
        from mpi4py import MPI

        from penstock.comm import Comm

        self.world = MPI.COMM_WORLD
        self.comm = Comm(self.world)
        self.core = self.comm._core
        self.request = request
        self.path = path
        self.bar = bar and self.world.rank == 0
        self.key = self.world.bcast(json.loads(self.core.tuning_key()))
        self.done: dict[str, Any] = {}
        self.state_path = path.with_name(path.name + ".progress")
        if self.world.rank == 0 and not again:
            self.done = self._resumed()
        self.done = self.world.bcast(self.done)
        self.begin = time.monotonic()
        self.buffers: dict[str, np.ndarray] = {}
        self.spent: dict[str, float] = dict(self.done.get("spent", {}))
        largest = max(request.sizes)
        blocks = self.world.size if set(request.operations) & {"gather", "scatter", "allgather"} else 1
        self.mine = np.ones(max(1, largest // 8) * (blocks if "scatter" in request.operations else 1), np.int64)
        self.result = np.ones(max(1, largest // 8) * blocks, np.int64)

    # -- what was measured before --------------------------------------------------------------------------------

    def _resumed(self) -> dict[str, Any]:
        try:
            state = json.loads(self.state_path.read_text())
            return state["done"] if state["key"] == self.key else {}
        except (OSError, ValueError, KeyError):
            return {}

    def _keep(self, name: str, value: Any) -> Any:
        self.done[name] = value
        if self.world.rank == 0:
            temporary = self.state_path.with_name(self.state_path.name + ".new")
            temporary.write_text(json.dumps({"key": self.key, "done": {**self.done, "spent": self.spent}}))
            os.replace(temporary, self.state_path)
        return value

    def seconds_left(self, share: float = 1.0) -> float:
        return self.world.bcast(60 * self.request.minutes * share - (time.monotonic() - self.begin))

    def tell(self, part: str, done: int, total: int, what: str) -> None:
        if not self.bar:
            return
        filled = 30 * done // max(1, total)
        print(f"\r{part:9} [{'#' * filled}{'.' * (30 - filled)}] {done}/{total} {what:44.44}", end="", file=sys.stderr)
        if done == total:
            print(file=sys.stderr)

    # -- measuring -----------------------------------------------------------------------------------------------

    def fits(self, operation: str, algorithm: str, size: int) -> bool:
        try:
            self.core.explain(operation, max(8, size), "int64", "sum", 0, {"algorithm": algorithm})
        except Error:
            return False
        return True

    def configs(self, operation: str, size: int) -> list[Config]:
        """Every algorithm that fits, pipelines with every segment size that cuts the message."""
        found: list[Config] = []
        for row in plans.algorithms(operation):
            if not self.fits(operation, row.name, size):
                continue
            is_pipeline = operation in STAGES and row.name in PIPELINES
            segments = [s for s in SEGMENTS if s < size] if is_pipeline else []
            if self.request.heuristics and is_pipeline:
                # A chain with few segments never fills, and very many short ones cost more than they overlap.
                segments = [s for s in segments if 4 * s <= size and size // s <= 256]
            found += [(row.name, segment) for segment in segments] or [(row.name, 0)]
        return found

    def task_costs(self, algorithm: str, segment: int) -> dict[str, list[float]]:
        """Seconds of every rank for each task. Each sequence begins on all ranks at once; within it a rank starts a
        task when it has ended the last one, so the starts are staggered as they are in the whole operation."""
        name = f"tasks/{algorithm}:{segment}"
        if name in self.done:
            return self.done[name]
        count = 4 * max(1, segment // 8)
        if count > len(self.buffers.get("in", ())):
            self.buffers = {"in": np.ones(count, np.int64), "out": np.ones(count, np.int64)}
        given, into = self.buffers["in"][:count], self.buffers["out"][:count]
        costs: dict[str, list[float]] = {}
        for operation in STAGES:
            depth = len(STAGES[operation])
            for segments in (1, depth - 1 + STABLE):
                steps = steps_of(operation, segments)
                if set(steps) <= set(costs):
                    continue
                samples: list[list[float]] = []
                begin = time.perf_counter()
                rounds = 0
                while rounds < 2 or self.world.bcast(rounds < 12 and time.perf_counter() - begin < 0.15):
                    self.world.Barrier()
                    times = []
                    for step in steps:
                        start = time.perf_counter()
                        self.core.run_task(algorithm, _stages(step), given, into)
                        times.append(time.perf_counter() - start)
                    samples.append(times)
                    rounds += 1
                middle = np.median(np.array(samples[1:]), axis=0)  # the first one warmed up
                for step in dict.fromkeys(steps):
                    of_step = [middle[i] for i, each in enumerate(steps) if each == step]
                    costs.setdefault(step, [float(np.median(of_step[len(of_step) // 2 :]))])
        everyone = self.world.allgather({task: mine[0] for task, mine in costs.items()})
        return self._keep(name, {task: [rank[task] for rank in everyone] for task in costs})

    def action(self, comm: Any, operation: str, size: int, config: Config | None) -> Callable[[], object]:
        how = {"algorithm": config[0], "segment_bytes": config[1]} if config else {}
        count = max(1, size // 8)
        mine, n = self.mine[:count], self.world.size
        at_root = self.world.rank == 0
        return {
            "bcast": lambda: comm.Bcast(mine, root=0, **how),
            "reduce": lambda: comm.Reduce(mine, self.result[:count] if at_root else None, root=0, **how),
            "allreduce": lambda: comm.Allreduce(mine, self.result[:count], **how),
            "gather": lambda: comm.Gather(mine, self.result[: count * n] if at_root else None, root=0, **how),
            "scatter": lambda: comm.Scatter(
                self.mine[: count * n] if at_root else None, self.result[:count], root=0, **how
            ),
            "allgather": lambda: comm.Allgather(mine, self.result[: count * n], **how),
        }[operation]

    def measure(self, operation: str, size: int, configs: Iterable[Config], native: bool) -> dict[str, float]:
        """Seconds of the slowest rank from end to end, in turns; medians."""
        from penstock.bench.worker import times_of

        wanted = [_name(config) for config in configs] + (["native"] if native else [])
        stem = f"whole/{operation}/{size}/"
        missing = [name for name in wanted if stem + name not in self.done]
        if missing:
            actions = {
                name: self.action(self.world, operation, size, None)
                if name == "native"
                else self.action(self.comm, operation, size, _config(name))
                for name in missing
            }
            budget_s = 0.04 * len(actions)
            for name, seconds in times_of(self.world, actions, budget_s).items():
                self.done[stem + name] = seconds
            self._keep(stem + missing[0], self.done[stem + missing[0]])
        return {name: self.done[stem + name] for name in wanted}

    # -- the search ----------------------------------------------------------------------------------------------

    def predictions(self) -> dict[str, dict[int, dict[str, float]]]:
        """Seconds of every candidate, from tasks or from a few sizes of algorithms that have none."""
        sizes = self.request.sizes
        found: dict[str, dict[int, dict[str, float]]] = {
            operation: {size: {} for size in sizes} for operation in self.request.operations
        }
        candidates = {
            (operation, size): self.configs(operation, size) for operation in self.request.operations for size in sizes
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
            if f"tasks/{algorithm}:{segment}" not in self.done and self.seconds_left(TASK_SHARE) < 0:
                continue
            costs = self.task_costs(algorithm, segment)
            self.tell("tasks", number, len(pipelines), f"{algorithm}, segments of {segment}")
            for (operation, size), configs in candidates.items():
                config = (algorithm, 0 if size == segment else segment)
                if operation in STAGES and config in configs:
                    found[operation][size][_name(config)] = predict(operation, -(-size // segment), costs)
        # Every algorithm as one segment, or without any, on a coarse grid of sizes.
        grid = sizes[:: 2 if len(sizes) > 4 else 1]
        grid = [*grid, sizes[-1]] if grid[-1] != sizes[-1] else grid
        total = len(self.request.operations) * len(grid)
        for number, (operation, size) in enumerate(
            ((operation, size) for size in coarse_first(grid) for operation in self.request.operations), 1
        ):
            flat = [c for c in candidates[operation, size] if _name(c) not in found[operation][size]]
            if self.seconds_left(TASK_SHARE * 1.5) < 0 and number > 2 * len(self.request.operations):
                break
            found[operation][size] |= self.measure(operation, size, flat, native=False)
            self.tell("whole", number, total, f"{operation}, {size} bytes")
        for operation in self.request.operations:
            _interpolate(found[operation], {size: candidates[operation, size] for size in sizes})
        return found

    def search(self) -> Outcome | None:
        spent = self.spent
        start = time.monotonic()
        predicted = self.predictions()
        spent["predicting"] = spent.get("predicting", 0.0) + time.monotonic() - start
        start = time.monotonic()
        points = [(o, size) for size in coarse_first(self.request.sizes) for o in self.request.operations]
        chosen: dict[str, dict[int, dict[str, Any]]] = {operation: {} for operation in self.request.operations}
        left_out = 0
        for number, (operation, size) in enumerate(points, 1):
            known = f"whole/{operation}/{size}/native" in self.done
            if not known and self.seconds_left() < 0:
                left_out += 1
                continue
            ranked = sorted(predicted[operation][size], key=predicted[operation][size].__getitem__)
            times = self.measure(operation, size, map(_config, ranked[:KEPT]), native=True)
            chosen[operation][size] = _point(times)
            self.tell("validate", number, len(points), f"{operation}, {size} bytes")
        spent["validating"] = spent.get("validating", 0.0) + time.monotonic() - start
        everything: dict[str, dict[int, dict[str, float]]] = {}
        if self.request.exhaustive:
            start = time.monotonic()
            for number, (operation, size) in enumerate(points, 1):
                configs = self.configs(operation, size)
                times = self.measure(operation, size, configs, native=False)
                everything.setdefault(operation, {})[size] = times
                self.tell("all", number, len(points), f"{operation}, {size} bytes")
            spent["exhaustive search"] = spent.get("exhaustive search", 0.0) + time.monotonic() - start
        self._keep("finished", not left_out)
        self.comm.free()
        if self.world.rank != 0:
            return None
        outcome = Outcome(
            self.key, asdict(self.request), chosen, predicted, everything, spent, left_out, str(self.path)
        )
        write_table(self.path, outcome)
        return outcome


def _point(times: dict[str, float]) -> dict[str, Any]:
    native_s = times.pop("native")
    candidates = [
        {"algorithm": _config(name)[0], "segment_bytes": _config(name)[1], "seconds": seconds}
        for name, seconds in sorted(times.items(), key=lambda item: item[1])
    ]
    return {"native_s": native_s, "candidates": candidates}


def _interpolate(found: dict[int, dict[str, float]], candidates: dict[int, list[Config]]) -> None:
    """Fill in, on logarithmic scales, what is known at other sizes of the same candidate."""
    known: dict[str, list[tuple[float, float]]] = {}
    for size, times in sorted(found.items()):
        for name, seconds in times.items():
            known.setdefault(name, []).append((math.log(max(1, size)), math.log(max(seconds, 1e-9))))
    for size, times in found.items():
        for config in candidates[size]:
            points = known.get(_name(config))
            if points and _name(config) not in times:
                places, logs = zip(*points)
                times[_name(config)] = float(np.exp(np.interp(math.log(max(1, size)), places, logs)))


def write_table(path: Path, outcome: Outcome) -> None:
    """Put what was found into the file, in the place of an older part for the same key; other parts stay."""
    content: dict[str, Any] = {"format": FORMAT, "version": VERSION, "tables": []}
    try:
        old = json.loads(path.read_text())
        if old["format"] == FORMAT and old["version"] == VERSION:
            content["tables"] = [t for t in old["tables"] if any(t[k] != v for k, v in outcome.key.items())]
    except (OSError, ValueError, KeyError, TypeError):
        pass  # no table, or none that a communicator would read
    operations = [
        {
            "operation": operation,
            "points": [
                {
                    "bytes": size,
                    "native_nanoseconds": round(point["native_s"] * 1e9),
                    "candidates": [
                        {
                            "algorithm": each["algorithm"],
                            "segment_bytes": each["segment_bytes"],
                            "nanoseconds": max(1, round(each["seconds"] * 1e9)),
                        }
                        for each in point["candidates"]
                    ],
                }
                for size, point in sorted(points.items())
            ],
        }
        for operation, points in outcome.operations.items()
    ]
    content["tables"].append({**outcome.key, "made": time.strftime("%Y-%m-%d %H:%M"), "operations": operations})
    temporary = path.with_name(path.name + ".new")
    temporary.write_text(json.dumps(content, indent=1) + "\n")
    os.replace(temporary, path)


def run(request: TuningRequest, path: Path, *, again: bool = False, bar: bool = False) -> Outcome | None:
    """Tune, and write the table to `path`. Collective over MPI.COMM_WORLD; what was found is returned on rank 0.

    What has been measured is kept beside the table, so a run that was cut short goes on where it ended.
    """
    unknown = [operation for operation in request.operations if operation not in
               ("bcast", "reduce", "allreduce", "gather", "scatter", "allgather")]  # fmt: skip
    if unknown or not request.operations:
        raise Error(
            f"operations are {request.operations}; expected some of bcast, reduce, allreduce, gather, scatter, allgather"
        )
    if request.minutes <= 0:
        raise Error(f"minutes is {request.minutes}, expected a positive number")
    return _Search(request, path, again, bar).search()


def median_gain(outcome: Outcome) -> float:
    """How many times as fast as MPI's own collectives the choices are, as a median over all points."""
    gains = [
        point["native_s"] / point["candidates"][0]["seconds"]
        for points in outcome.operations.values()
        for point in points.values()
        if point["candidates"]
    ]
    return statistics.median(gains) if gains else math.nan
