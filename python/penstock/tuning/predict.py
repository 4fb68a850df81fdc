"""Predicts the time of whole collectives from the costs of their tasks: HAN's equations (3) and (4)."""

from __future__ import annotations

import numpy as np

#: The stages that run at the same time in a task, for a message of `u` segments; see `steps_of`.
STAGES = {"bcast": ("ib", "sb"), "reduce": ("sr", "ir"), "allreduce": ("sr", "ir", "ib", "sb")}


def steps_of(operation: str, segments: int) -> list[str]:
    """The tasks of an operation on this many segments, in sequence: for bcast ib, sbib, …, sbib, sb."""
    stages = STAGES[operation]
    return [
        "".join(stage for depth, stage in reversed(list(enumerate(stages))) if 0 <= step - depth < segments)
        for step in range(segments + len(stages) - 1)
    ]


def predict(operation: str, segments: int, costs: dict[str, list[float]]) -> float:
    """Seconds of the whole operation by equations (3) and (4): the maximum over ranks of the sum of their tasks' costs.

    `costs` holds the seconds of every rank for each task; for repeated tasks, the stabilised ones. An unmeasured task, of
    messages of very few segments, costs the sum of its stages. Equation (4) as printed ends with sbib(u-1); figure 5 has
    one more task, sb(u-1), which is counted here.
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


def at_length(measured: dict[int, dict[str, list[float]]], length: int) -> dict[str, list[float]]:
    """Task costs for any segment length, from those of two lengths: a time per segment plus a time per byte."""
    (short, costs), (long, more) = sorted(measured.items())
    found = {}
    for task in costs:
        per_byte = np.maximum(0, (np.array(more[task]) - costs[task]) / (long - short))
        start = np.maximum(0, np.array(costs[task]) - per_byte * short)
        found[task] = (start + per_byte * length).tolist()
    return found
