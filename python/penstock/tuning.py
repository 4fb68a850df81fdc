"""The tuner: which algorithm is the fastest for every operation and size on this machine (paper 001, section III).

Tasks (one stage of a segment on each level, at the same time) are measured once for each algorithm and segment size, as
they follow each other, so that every rank starts a task when it has ended the one before. Equations (3) and (4) make
times of whole collectives of them. The best few by prediction, and MPI's own collective, then race from end to end.
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

FORMAT, VERSION = "penstock-tuning", 2

NATIVE = "native"  #: MPI's own collective, called through Penstock

#: What can be tuned: operations without counts of the ranks' own.
OPERATIONS = (
    "bcast", "reduce", "allreduce", "gather", "scatter", "allgather", "alltoall", "reduce_scatter_block", "scan",
    "exscan", "barrier",
)  # fmt: skip

#: Algorithms that are pipelines of tasks over two levels, for bcast, reduce and allreduce.
PIPELINES = ("hierarchical", "node_shared", "leader_binary", "leader_chain", "leader_two_tree")
SEGMENTS = (16 << 10, 64 << 10, 256 << 10, 1 << 20)
#: The stages that run at the same time, step by step, for a message of `u` segments; see `steps_of`.
STAGES = {"bcast": ("ib", "sb"), "reduce": ("sr", "ir"), "allreduce": ("sr", "ir", "ib", "sb")}
STABLE = 6  #: tasks of a full pipeline in a row; the cost of the later ones counts (figure 3)
KEPT = 3  #: predicted candidates that race from end to end, and as well the best of each segment length; see _best
SHORT = 32 << 10  #: up to here all candidates race: that takes less time than to predict them
TASKS_S = 0.02  #: of one sequence of tasks
TASK_SHARE = 0.4  #: of the time, for tasks and for algorithms that have none
#: Rounds of a race → how far behind the leader a candidate may be to go on. Few rounds tell only large differences.
MARGINS = {1: 1.6, 3: 1.25, 7: 1.1}
MAX_ROUNDS = 100
RACE_S = 0.05  #: of each candidate
LONG_S = 0.02  #: what takes longer is measured twice at least, instead of three times
CLEAR = 1.15  #: how far ahead a choice is that is taken over where both neighbouring sizes made it

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
    #: operation → bytes → seconds of "chosen", "best" and "best again", which are the same, side by side
    referee: dict[str, dict[int, dict[str, float]]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)  #: what each part of the search took
    left_out: int = 0  #: points for which the time did not suffice
    path: str = ""

    def as_json(self) -> str:
        return json.dumps(asdict(self), indent=2)

    def within(self, share: float = 0.03, *, noise: float = 0.0) -> tuple[int, int]:
        """Points at which the choice is at most `share` slower than the best of all, and how many are known.

        Of the two that are compared, each was measured beside the other. What differs by less than `noise` is equal.
        """
        ratios = [t["chosen"] / t["best"] for points in self.referee.values() for t in points.values()]
        return sum(ratio <= 1 + max(share, noise) for ratio in ratios), len(ratios)

    def noise(self) -> float:
        """How far apart two measurements of the same candidate were: nine of ten were closer."""
        apart = [
            max(t["best"], t["best again"]) / min(t["best"], t["best again"]) - 1
            for points in self.referee.values()
            for t in points.values()
        ]
        return float(np.quantile(apart, 0.9)) if apart else 0.0

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
            noise = self.noise()
            equal, _ = self.within(noise=noise)
            lines.append(
                f"within 3% of the exhaustive best at {good} of {known} points, and at {equal} within what the same "
                f"candidate differs by when it is measured twice ({noise:.1%}, nine times of ten)"
            )
            searched = self.seconds.get("predicting", 0.0) + self.seconds.get("validating", 0.0)
            if everything := self.seconds.get("exhaustive search"):
                lines.append(f"the search took {searched / everything:.1%} of the time of the exhaustive one")
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
        self.most = MPI.MAX
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
        largest = max(1, max(request.sizes) // 8)
        many = {"scatter", "alltoall", "reduce_scatter_block"} & set(request.operations)
        gets_many = {"gather", "allgather", "alltoall"} & set(request.operations)
        self.mine = np.ones(largest * (self.world.size if many else 1), np.int64)
        self.result = np.ones(largest * (self.world.size if gets_many else 1), np.int64)
        self.random = np.random.default_rng(0)  # the same numbers on all ranks

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

    def configs(self, operation: str, size: int, heuristics: bool) -> list[Config]:
        """Every algorithm that fits, pipelines with every segment size that cuts the message."""
        found: list[Config] = []
        for row in plans.algorithms(operation):
            if not self.fits(operation, row.name, size):
                continue
            is_pipeline = operation in STAGES and row.name in PIPELINES
            segments = [s for s in SEGMENTS if s < size] if is_pipeline else []
            if heuristics and is_pipeline:
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
        wanted = [operation for operation in STAGES if operation in self.request.operations]
        for operation in reversed(wanted):  # allreduce has the stages of all
            depth = len(STAGES[operation])
            for segments in (1, depth - 1 + STABLE):
                steps = steps_of(operation, segments)
                if segments == 1 and set(steps) <= set(costs):
                    continue
                samples: list[list[float]] = []
                begin = time.perf_counter()
                rounds = 0
                while rounds < 2 or self.world.bcast(rounds < 12 and time.perf_counter() - begin < TASKS_S):
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
                    if step not in costs or len(of_step) > 1:  # in a row it is the stabilised one
                        costs[step] = [float(np.median(of_step[len(of_step) // 2 :]))]
        everyone = self.world.allgather({task: mine[0] for task, mine in costs.items()})
        return self._keep(name, {task: [rank[task] for rank in everyone] for task in costs})

    def action(self, operation: str, size: int, config: Config) -> Callable[[], object]:
        how = {"algorithm": config[0], "segment_bytes": config[1]} if config[1] else {"algorithm": config[0]}
        count = max(1, size // 8)
        n, comm = self.world.size, self.comm
        mine, result = self.mine[:count], self.result[:count]
        many, many_results = self.mine[: count * n], self.result[: count * n]
        at_root = self.world.rank == 0
        return {
            "bcast": lambda: comm.Bcast(mine, root=0, **how),
            "reduce": lambda: comm.Reduce(mine, result if at_root else None, root=0, **how),
            "allreduce": lambda: comm.Allreduce(mine, result, **how),
            "gather": lambda: comm.Gather(mine, many_results if at_root else None, root=0, **how),
            "scatter": lambda: comm.Scatter(many if at_root else None, result, root=0, **how),
            "allgather": lambda: comm.Allgather(mine, many_results, **how),
            "alltoall": lambda: comm.Alltoall(many, many_results, **how),
            "reduce_scatter_block": lambda: comm.Reduce_scatter_block(many, result, **how),
            "scan": lambda: comm.Scan(mine, result, **how),
            "exscan": lambda: comm.Exscan(mine, result, **how),
            "barrier": lambda: comm.Barrier(**how),
        }[operation]

    def actions(self, operation: str, size: int, names: Iterable[str]) -> dict[str, Callable[[], object]]:
        return {name: self.action(operation, size, _config(name)) for name in names}

    def round(self, actions: list[Callable[[], object]]) -> np.ndarray:
        """Seconds of each on the slowest rank; each once, in an order of this round."""
        mine, slowest = np.zeros(len(actions)), np.zeros(len(actions))
        for i in self.random.permutation(len(actions)):
            self.world.Barrier()
            begin = time.perf_counter()
            actions[i]()
            mine[i] = time.perf_counter() - begin
        self.world.Allreduce(mine, slowest, self.most)
        return slowest

    def race(self, operation: str, size: int, names: Iterable[str], budget_s: float = RACE_S) -> dict[str, float]:
        """Medians of the slowest rank. What is clearly behind after some rounds is not measured further."""
        stem = f"whole/{operation}/{size}/"
        names = list(names)
        missing = [name for name in names if stem + name not in self.done]
        if missing:
            samples: dict[str, list[float]] = {name: [] for name in missing}
            actions = self.actions(operation, size, missing)
            first = self.round(list(actions.values()))
            alive = missing
            if first.min() > LONG_S:  # nothing to warm up
                for name, seconds in zip(alive, first):
                    samples[name].append(seconds)
                alive = [name for name in alive if samples[name][0] <= MARGINS[1] * first.min()]
            spent_s = float(first.sum())
            for _ in range(MAX_ROUNDS):
                times = self.round([actions[name] for name in alive])
                spent_s += float(times.sum())
                for name, seconds in zip(alive, times):
                    samples[name].append(seconds)
                medians = {name: statistics.median(samples[name]) for name in alive}
                leader = min(medians.values())
                rounds = len(samples[alive[0]])
                margin = next((m for r, m in reversed(MARGINS.items()) if rounds >= r), math.inf)
                alive = [name for name in alive if medians[name] <= margin * leader]
                enough = rounds >= (2 if leader > LONG_S else 3)
                if enough and (spent_s > budget_s * len(missing) or len(alive) == 1 < len(missing)):
                    break
            for name, seconds in samples.items():
                self.done[stem + name] = statistics.median(seconds)
            self._keep(stem + missing[0], self.done[stem + missing[0]])
        return {name: self.done[stem + name] for name in names}

    def measure_all(self, operation: str, size: int, names: list[str]) -> dict[str, float]:
        """What a search without any of this does: every candidate as often as the others."""
        from penstock.bench.worker import times_of

        stem = f"all/{operation}/{size}"
        if stem in self.done:
            return self.done[stem]
        return self._keep(stem, times_of(self.world, self.actions(operation, size, names), 0.04 * len(names)))

    def compare(self, operation: str, size: int, chosen: str, best: str) -> dict[str, float]:
        wanted = {"chosen": chosen, "best": best, "best again": best}
        actions = [self.action(operation, size, _config(name)) for name in wanted.values()]
        first = self.round(actions)
        count = int(min(60, max(7, 0.3 / max(1e-7, first.sum()))))
        times = np.median([self.round(actions) for _ in range(count)], axis=0)
        return dict(zip(wanted, times.tolist()))

    # -- the search ----------------------------------------------------------------------------------------------

    def predictions(self) -> dict[str, dict[int, dict[str, float]]]:
        """Seconds of every candidate, from tasks or from a few sizes of algorithms that have none."""
        sizes = self.request.sizes
        found: dict[str, dict[int, dict[str, float]]] = {
            operation: {size: {} for size in sizes} for operation in self.request.operations
        }
        candidates = {
            (operation, size): self.configs(operation, size, self.request.heuristics)
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
            if f"tasks/{algorithm}:{segment}" not in self.done and self.seconds_left(TASK_SHARE) < 0:
                continue
            costs = self.task_costs(algorithm, segment)
            self.tell("tasks", number, len(pipelines), f"{algorithm}, segments of {segment}")
            for (operation, size), configs in candidates.items():
                config = (algorithm, 0 if size == segment else segment)
                if operation in STAGES and config in configs:
                    found[operation][size][_name(config)] = predict(operation, -(-size // segment), costs)
        # Every algorithm as one segment, or without any, on a coarse grid of sizes.
        longer = [size for size in sizes if size > SHORT]
        grid = longer[:: 3 if len(longer) > 4 else 2]
        points = self.points([*grid, longer[-1]] if longer and grid[-1] != longer[-1] else grid)
        for number, (operation, size) in enumerate(points, 1):
            flat = [_name(c) for c in candidates[operation, size] if _name(c) not in found[operation][size]]
            if self.seconds_left(TASK_SHARE * 1.5) < 0 and number > 2 * len(self.request.operations):
                break
            found[operation][size] |= self.race(operation, size, flat, budget_s=RACE_S / 20)
            self.tell("whole", number, len(points), f"{operation}, {size} bytes")
        for operation in self.request.operations:
            _interpolate(found[operation], {size: candidates[operation, size] for size in sizes})
        return found

    def points(self, sizes: list[int]) -> list[tuple[str, int]]:
        """Operations and sizes, coarse first. A barrier has one size."""
        return [
            (operation, size)
            for size in coarse_first(sizes)
            for operation in self.request.operations
            if operation != "barrier" or size == self.request.sizes[0]
        ]

    def taken_over(self, chosen: dict[int, dict[str, Any]], size: int) -> str | None:
        """What both measured neighbours of a size chose clearly, so that it need not be compared with others again."""
        below = max((known for known in chosen if known < size), default=None)
        above = min((known for known in chosen if known > size), default=None)
        if below is None or above is None or not self.request.heuristics:
            return None
        names = set()
        for known in (below, above):
            first, *rest = chosen[known]["candidates"]
            if not rest or rest[0]["seconds"] < CLEAR * first["seconds"]:
                return None
            names.add(_name((first["algorithm"], first["segment_bytes"])))
        return names.pop() if len(names) == 1 else None

    def search(self) -> Outcome | None:
        spent = self.spent
        start = time.monotonic()
        predicted = self.predictions()
        spent["predicting"] = spent.get("predicting", 0.0) + time.monotonic() - start
        start = time.monotonic()
        points = self.points(self.request.sizes)
        chosen: dict[str, dict[int, dict[str, Any]]] = {operation: {} for operation in self.request.operations}
        left_out = 0
        native = _name((NATIVE, 0))
        for number, (operation, size) in enumerate(points, 1):
            known = f"whole/{operation}/{size}/{native}" in self.done
            if not known and self.seconds_left() < 0:
                left_out += 1
                continue
            ranked = sorted(predicted[operation][size], key=predicted[operation][size].__getitem__)
            if size <= SHORT:
                ranked = [_name(config) for config in self.configs(operation, size, self.request.heuristics)]
            clear = self.taken_over(chosen[operation], size)
            wanted = [clear] if clear in ranked or clear == native else ranked if size <= SHORT else _best(ranked)
            times = self.race(operation, size, dict.fromkeys([*wanted, native]))
            chosen[operation][size] = _point(times)
            self.tell("validate", number, len(points), f"{operation}, {size} bytes")
        spent["validating"] = spent.get("validating", 0.0) + time.monotonic() - start
        everything: dict[str, dict[int, dict[str, float]]] = {}
        referee: dict[str, dict[int, dict[str, float]]] = {}
        if self.request.exhaustive:
            start = time.monotonic()
            for number, (operation, size) in enumerate(points, 1):
                names = [*map(_name, self.configs(operation, size, heuristics=False)), native]
                everything.setdefault(operation, {})[size] = self.measure_all(operation, size, names)
                self.tell("all", number, len(points), f"{operation}, {size} bytes")
            spent["exhaustive search"] = spent.get("exhaustive search", 0.0) + time.monotonic() - start
            for operation, size in points:
                if size not in chosen[operation]:
                    continue
                first = chosen[operation][size]["candidates"][0]
                times = everything[operation][size]
                referee.setdefault(operation, {})[size] = self.compare(
                    operation,
                    size,
                    _name((first["algorithm"], first["segment_bytes"])),
                    min(times, key=times.__getitem__),
                )
        self._keep("finished", not left_out)
        self.comm.free()
        if self.world.rank != 0:
            return None
        outcome = Outcome(
            self.key, asdict(self.request), chosen, predicted, everything, referee, spent, left_out, str(self.path)
        )
        write_table(self.path, outcome)
        return outcome


def _best(ranked: list[str]) -> list[str]:
    """The best few, and the best of each segment length: tasks wait for each other, which plans do not, and that makes
    predictions for short segments worse than those for long ones."""
    kept = dict.fromkeys(ranked[:KEPT])
    of_segment: dict[int, str] = {}
    for name in ranked:
        of_segment.setdefault(_config(name)[1], name)
    return list(dict.fromkeys([*kept, *of_segment.values()]))


def _point(times: dict[str, float]) -> dict[str, Any]:
    candidates = [
        {"algorithm": _config(name)[0], "segment_bytes": _config(name)[1], "seconds": seconds}
        for name, seconds in sorted(times.items(), key=lambda item: item[1])
    ]
    return {"native_s": times[_name((NATIVE, 0))], "candidates": candidates}


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
        # A part of version 1 becomes one of this: its candidates lack MPI's own.
        if old["format"] == FORMAT and old["version"] in (1, VERSION):
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
    unknown = [operation for operation in request.operations if operation not in OPERATIONS]
    if unknown or not request.operations:
        raise Error(f"operations are {request.operations}; expected some of {', '.join(OPERATIONS)}")
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
