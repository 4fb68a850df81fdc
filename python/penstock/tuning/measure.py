"""Measures tasks and whole collectives on the ranks of MPI.COMM_WORLD."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from penstock import plan as plans
from penstock.error import Error
from penstock.tuning.candidates import PIPELINES, SEGMENTS, Config, config_of
from penstock.tuning.journal import Journal
from penstock.tuning.predict import STAGES, stages_of, steps_of

STABLE = 6  #: tasks of a full pipeline in a row; the cost of the later ones counts (figure 3)
TASKS_S = 0.02  #: of one sequence of tasks
#: Rounds of a race → how far behind the leader a candidate may be to go on. Few rounds tell only large differences.
MARGINS = {3: 1.5, 5: 1.25, 9: 1.1}
LONG_MARGIN = 1.6  #: after the first round of what takes LONG_S and more
MAX_ROUNDS = 100
RACE_S = 0.05  #: of each candidate
LONG_S = 0.02  #: what takes longer is measured twice at least, instead of three times


class Meter:
    """All members are called by all ranks in the same order. What the journal knows is not measured again."""

    def __init__(self, world: Any, comm: Any, operations: list[str], sizes: list[int], journal: Journal) -> None:
        from mpi4py import MPI

        self.world = world
        self.comm = comm
        self.core = comm._core
        self.operations = operations
        self.journal = journal
        self._most = MPI.MAX
        self.buffers: dict[str, np.ndarray] = {}
        largest = max(1, max(sizes) // 8)
        many = {"scatter", "alltoall", "reduce_scatter_block"} & set(operations)
        gets_many = {"gather", "allgather", "alltoall"} & set(operations)
        self.mine = np.ones(largest * (world.size if many else 1), np.int64)
        self.result = np.ones(largest * (world.size if gets_many else 1), np.int64)
        self.random = np.random.default_rng(0)  # the same numbers on all ranks

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
        if name in self.journal:
            return self.journal[name]
        count = 4 * max(1, segment // 8)
        if count > len(self.buffers.get("in", ())):
            self.buffers = {"in": np.ones(count, np.int64), "out": np.ones(count, np.int64)}
        given, into = self.buffers["in"][:count], self.buffers["out"][:count]
        costs: dict[str, list[float]] = {}
        wanted = [operation for operation in STAGES if operation in self.operations]
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
                        self.core.run_task(algorithm, stages_of(step), given, into)
                        times.append(time.perf_counter() - start)
                    samples.append(times)
                    rounds += 1
                middle = np.median(np.array(samples[1:]), axis=0)  # the first one warmed up
                for step in dict.fromkeys(steps):
                    of_step = [middle[i] for i, each in enumerate(steps) if each == step]
                    if step not in costs or len(of_step) > 1:  # in a row it is the stabilised one
                        costs[step] = [float(np.median(of_step[len(of_step) // 2 :]))]
        everyone = self.world.allgather({task: mine[0] for task, mine in costs.items()})
        self.journal.keep({name: {task: [rank[task] for rank in everyone] for task in costs}})
        return self.journal[name]

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
        return {name: self.action(operation, size, config_of(name)) for name in names}

    def round(self, actions: list[Callable[[], object]]) -> np.ndarray:
        """Seconds of each on the slowest rank; each once, in an order of this round."""
        mine, slowest = np.zeros(len(actions)), np.zeros(len(actions))
        for i in self.random.permutation(len(actions)):
            self.world.Barrier()
            begin = time.perf_counter()
            actions[i]()
            mine[i] = time.perf_counter() - begin
        self.world.Allreduce(mine, slowest, self._most)
        return slowest

    def race(self, operation: str, size: int, names: Iterable[str], budget_s: float = RACE_S) -> dict[str, float]:
        """Medians of the slowest rank. What is clearly behind after some rounds is not measured further."""
        stem = f"whole/{operation}/{size}/"
        names = list(names)
        missing = [name for name in names if stem + name not in self.journal]
        if missing:
            samples: dict[str, list[float]] = {name: [] for name in missing}
            actions = self.actions(operation, size, missing)
            first = self.round(list(actions.values()))
            alive = missing
            if first.min() > LONG_S:  # nothing to warm up
                for name, seconds in zip(alive, first):
                    samples[name].append(seconds)
                alive = [name for name in alive if samples[name][0] <= LONG_MARGIN * first.min()]
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
            self.journal.keep({stem + name: statistics.median(seconds) for name, seconds in samples.items()})
        return {name: self.journal[stem + name] for name in names}

    def measure_all(self, operation: str, size: int, names: list[str]) -> dict[str, float]:
        """What a search without any of this does: every candidate as often as the others."""
        from penstock.bench.worker import times_of

        stem = f"all/{operation}/{size}"
        if stem not in self.journal:
            times = times_of(self.world, self.actions(operation, size, names), 0.04 * len(names))
            self.journal.keep({stem: times})
        return self.journal[stem]

    def compare(self, operation: str, size: int, chosen: str, best: str) -> dict[str, float]:
        actions = [self.action(operation, size, config_of(name)) for name in (chosen, best, best)]
        first = self.round(actions)
        count = int(min(60, max(7, 0.3 / max(1e-7, first.sum()))))
        times = np.median([self.round(actions) for _ in range(count)], axis=0)
        of_chosen, of_best, again = times.tolist()
        return {"chosen": of_best if chosen == best else of_chosen, "best": of_best, "best again": again}
