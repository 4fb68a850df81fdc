"""Times of whole collectives from those of their tasks: equations (3) and (4) of paper 001."""

from __future__ import annotations

import math

import numpy as np

from penstock.tuning.candidates import Config, name_of

#: The stages that run at the same time, step by step, for a message of `u` segments; see `steps_of`.
STAGES = {"bcast": ("ib", "sb"), "reduce": ("sr", "ir"), "allreduce": ("sr", "ir", "ib", "sb")}


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
            total += np.sum([costs[stage] for stage in stages_of(task)], axis=0)
    return float(total.max())


def stages_of(task: str) -> list[str]:
    return [task[at : at + 2] for at in range(0, len(task), 2)]


def interpolate(found: dict[int, dict[str, float]], candidates: dict[int, list[Config]]) -> None:
    """Fill in, on logarithmic scales, what is known at other sizes of the same candidate."""
    known: dict[str, list[tuple[float, float]]] = {}
    for size, times in sorted(found.items()):
        for name, seconds in times.items():
            known.setdefault(name, []).append((math.log(max(1, size)), math.log(max(seconds, 1e-9))))
    for size, times in found.items():
        for config in candidates[size]:
            points = known.get(name_of(config))
            if points and name_of(config) not in times:
                places, logs = zip(*points)
                times[name_of(config)] = float(np.exp(np.interp(math.log(max(1, size)), places, logs)))
