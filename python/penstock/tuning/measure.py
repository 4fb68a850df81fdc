"""Measures tasks and whole collectives on one communicator."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock import spmd
from penstock.tuning import racing
from penstock.tuning.candidates import ITSELF, SEGMENTS, Config, Space, config_of, default_of, space_of
from penstock.tuning.decide import AGAIN, Choice, duel
from penstock.tuning.journal import Journal
from penstock.tuning.noise import Noise, Spread, noise_of
from penstock.tuning.predict import STAGES, at_length, stages_of, steps_of

STABLE = 6  #: Tasks of a full pipeline in sequence; only the later ones count (HAN, figure 3).
TASKS_S = 0.02  #: Duration of one sequence of tasks.
#: With heuristics, tasks are measured for these segment lengths only; costs of other lengths follow.
FITTED = (SEGMENTS[1], SEGMENTS[3])
ALL_S = 0.06  #: Duration per candidate in an exhaustive search.
ALL_ROUNDS = (12, 200)  #: Minimum and maximum rounds of an exhaustive search: enough to resolve 3%.
SENDS_MANY = {"scatter", "alltoall", "reduce_scatter_block"}  #: Operations that send one block per rank.
REFEREE_S, REFEREE_ROUNDS = 0.5, (9, 100)
NOISE_S, NOISE_ROUNDS = (
    0.1,
    (8, 64),
)  #: Of one noise measurement: duration, minimum and maximum rounds.
DUEL_S = racing.RACE_S  #: Duration of one duel.


@dataclass(frozen=True)
class Action:
    """A collective with its own buffers."""

    run: Callable[[], object]
    sent: np.ndarray

    def prepare(self) -> None:
        """Write the send buffer, as a program would. Otherwise other ranks find it in their caches from the last round, which
        favours copies between processes."""
        np.multiply(self.sent, 1, out=self.sent)


class Meter:
    """All ranks call all methods in the same order. Values in the journal are not measured again."""

    def __init__(self, world: Any, comm: Any, operations: list[str], sizes: list[int], journal: Journal) -> None:
        from mpi4py import MPI

        self.world = world
        self.comm = comm
        self.core = comm._open()
        self.operations = operations
        self.journal = journal
        self._most = MPI.MAX
        self.buffers: dict[str, np.ndarray] = {}
        largest = max(1, max(sizes) // 8)
        many = SENDS_MANY & set(operations)
        gets_many = {"gather", "allgather", "alltoall"} & set(operations)
        counts = [largest * (world.size if wanted else 1) for wanted in (many, gets_many)]
        self.mine, self.result = spmd.agreed(world, lambda: [np.ones(count, np.int64) for count in counts])
        self.random = np.random.default_rng(0)  # equal numbers on all ranks

        self.spaces: dict[str, dict[int, Space]] = spmd.from_root(world, lambda: self._spaces(sizes))
        #: operation → bytes → candidate that runs without a table.
        self.defaults: dict[str, dict[int, str]] = spmd.from_root(world, self._defaults)

    def _spaces(self, sizes: list[int]) -> dict[str, dict[int, Space]]:
        return {
            operation: {
                size: space_of(self.core, operation, size) for size in (sizes[:1] if operation == "barrier" else sizes)
            }
            for operation in self.operations
        }

    def _defaults(self) -> dict[str, dict[int, str]]:
        return {
            operation: {size: default_of(self.core, operation, size, space) for size, space in spaces.items()}
            for operation, spaces in self.spaces.items()
        }

    def costs_of_tasks(self, algorithm: str, heuristics: bool) -> dict[int, dict[str, list[float]]]:
        """segment length → task → seconds of each rank."""
        if not heuristics:
            return {length: self.task_costs(algorithm, length) for length in SEGMENTS}
        measured = {length: self.task_costs(algorithm, length) for length in FITTED}
        return {length: at_length(measured, length) for length in SEGMENTS}

    def task_costs(self, algorithm: str, segment: int) -> dict[str, list[float]]:
        """Seconds of every rank for each task. A sequence starts on all ranks at once. Within it, a rank starts a task when it
        has finished the last one, so the starts are staggered as in the whole operation."""
        name = f"tasks/{algorithm}:{segment}"
        if name in self.journal:
            return self.journal[name]
        count = 4 * max(1, segment // 8)
        if count > len(self.buffers.get("in", ())):
            self.buffers = {"in": np.ones(count, np.int64), "out": np.ones(count, np.int64)}
        given, into = self.buffers["in"][:count], self.buffers["out"][:count]
        costs: dict[str, list[float]] = {}
        wanted = [operation for operation in STAGES if operation in self.operations]
        for operation in reversed(wanted):  # allreduce has all stages
            depth = len(STAGES[operation])
            for segments in (depth - 1 + STABLE, 1):
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
                middle = np.median(np.array(samples[1:]), axis=0)  # the first sequence is warm-up
                for step in dict.fromkeys(steps):
                    of_step = [middle[i] for i, each in enumerate(steps) if each == step]
                    if step not in costs or len(of_step) > 1:  # repeated tasks give the stabilised cost
                        costs[step] = [float(np.median(of_step[len(of_step) // 2 :]))]
        everyone = self.world.allgather({task: mine[0] for task, mine in costs.items()})
        self.journal.keep({name: {task: [rank[task] for rank in everyone] for task in costs}})
        return self.journal[name]

    def action(self, operation: str, size: int, config: Config) -> Action:
        how = {"algorithm": config[0], "segment_bytes": config[1]} if config[1] else {"algorithm": config[0]}
        count = max(1, size // 8)
        n, comm = self.world.size, self.comm
        mine, result = self.mine[:count], self.result[:count]
        many, many_results = self.mine[: count * n], self.result[: count * n]
        at_root = self.world.rank == 0
        run = {
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
        return Action(run, many if operation in SENDS_MANY else mine)

    def actions(self, operation: str, size: int, names: Iterable[str]) -> dict[str, Action]:
        return {name: self.action(operation, size, config_of(name.removesuffix(AGAIN))) for name in names}

    def round(self, actions: list[Action]) -> np.ndarray:
        """Seconds of each on the slowest rank. Each runs once, in a random order."""
        mine, slowest = np.zeros(len(actions)), np.zeros(len(actions))
        for i in self.random.permutation(len(actions)):
            actions[i].prepare()
            self.world.Barrier()
            begin = time.perf_counter()
            actions[i].run()
            mine[i] = time.perf_counter() - begin
        self.world.Allreduce(mine, slowest, self._most)
        return slowest

    def knows(self, operation: str, size: int, names: list[str], *, again: bool) -> bool:
        return (f"duel/{operation}/{size}" if again else f"whole/{operation}/{size}/{names[0]}") in self.journal

    def noise(self, operation: str, size: int) -> Noise:
        """The noise of the default: two measurements in every round."""
        name = f"noise/{operation}/{size}"
        if name not in self.journal:
            default = self.defaults[operation][size]
            actions = list(self.actions(operation, size, [default, default + AGAIN]).values())
            rounds = [self.round(actions)]
            if rounds[0].min() < racing.LONG_S:  # warm-up
                rounds = [self.round(actions)]
            count = int(np.clip(NOISE_S / max(1e-7, rounds[0].sum()), *NOISE_ROUNDS))
            times = np.array([*rounds, *(self.round(actions) for _ in range(count - 1))])
            self.journal.keep({name: noise_of(times[:, 0].tolist(), times[:, 1].tolist()).as_json()})
        return Noise(**self.journal[name])

    def race(self, operation: str, size: int, names: Iterable[str]) -> dict[str, float]:
        """Median seconds of the slowest rank."""
        stem = f"whole/{operation}/{size}/"
        names = list(names)
        missing = [name for name in names if stem + name not in self.journal]
        if missing:
            draw = self._drawing(operation, size, missing)
            begin = time.perf_counter()
            spreads: dict[str, Spread] = {}
            racing.race(draw, missing, references={ITSELF, self.defaults[operation][size]}, spreads=spreads)
            took_s = time.perf_counter() - begin
            self.journal.keep({stem + name: spread for name, spread in spreads.items()} | {f"took/{stem}": took_s})
        return {name: self.journal[stem + name][0] for name in names}

    def spreads(self, operation: str, size: int) -> dict[str, Spread]:
        """Of all candidates that raced."""
        stem = f"whole/{operation}/{size}/"
        return {
            name: tuple(self.journal[stem + name])
            for name in self.spaces[operation][size].lengths
            if stem + name in self.journal
        }

    def duel(self, operation: str, size: int, names: Sequence[str], noise: Noise, model: str) -> Choice:
        """A duel of the default, the first of `names`, with the others."""
        name = f"duel/{operation}/{size}"
        if name not in self.journal:
            draw = self._drawing(operation, size, [names[0], names[0] + AGAIN, *names[1:]])
            draw(list(names))  # warm-up
            choice = duel(draw, names[0], names[1:], noise, model=model, seconds=DUEL_S)
            self.journal.keep({name: choice.as_json()})
        return Choice.from_json(self.journal[name])

    def _drawing(self, operation: str, size: int, names: Iterable[str]) -> Callable[[list[str]], Sequence[float]]:
        actions = self.actions(operation, size, names)
        return lambda wanted: self.round([actions[name] for name in wanted]).tolist()

    def measure_all(self, operation: str, size: int, half: int) -> dict[str, list[float]]:
        """Measure every candidate equally often. One of the two halves of an exhaustive search."""
        stem = f"all/{operation}/{size}/{half}"
        if stem not in self.journal:
            names = list(self.spaces[operation][size].lengths)
            actions = list(self.actions(operation, size, names).values())
            rounds = [self.round(actions)]
            if rounds[0].min() < racing.LONG_S:  # warm-up
                rounds = [self.round(actions)]
            count = int(np.clip(ALL_S / max(1e-7, rounds[0].mean()), *ALL_ROUNDS)) // 2
            times = np.array([*rounds, *(self.round(actions) for _ in range(count - 1))])
            self.journal.keep({stem: dict(zip(names, times.T.tolist()))})
        return self.journal[stem]

    def compare(self, operation: str, size: int, chosen: str, best: str) -> dict[str, float]:
        actions = [self.action(operation, size, config_of(name)) for name in (chosen, best, best)]
        first = self.round(actions)
        least, most = REFEREE_ROUNDS
        count = int(np.clip(REFEREE_S / max(1e-7, first.sum()), least, most))
        times = np.median([self.round(actions) for _ in range(count)], axis=0)
        of_chosen, of_best, again = times.tolist()
        return {"chosen": of_best if chosen == best else of_chosen, "best": of_best, "best again": again}
