"""One job of a benchmark: mpiexec -n N python -m penstock.bench.worker CASE PROGRAM PARAMETERS RESULT"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from penstock import output_file, spmd
from penstock.error import Error

MIN_ROUNDS, MAX_ROUNDS = 3, 200
REST_S = 0.001


class Cannot(Error):  # noqa: N818
    """This program cannot be measured here. The text says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, "unsupported")

    def __reduce__(self) -> tuple:
        return (Cannot, (self.message,))


def times_of(
    comm: Any,
    actions: Mapping[Any, Callable[[], object]],
    budget_s: float,
    prepare: Mapping[Any, Callable[[], object]] | None = None,
    rests: bool = False,
) -> dict[Any, float]:
    """Seconds of each action on the slowest rank: the median of rounds that together take about `budget_s`. Collective.

    A round runs each action once, in random order: a slow phase of the machine slows all of them, and none always follows
    the same one. The entry of `prepare` for an action runs before it, untimed. `comm` is the MPI library's own communicator,
    so all peers are measured with the same clock and barrier. `rests`: a rank whose action has ended sleeps until those of all
    ranks have: in a barrier it would take cycles from those that compute, if they share cores.
    """
    import numpy as np
    from mpi4py import MPI

    to_run = list(actions.values())
    to_prepare = [(prepare or {}).get(name, lambda: None) for name in actions]
    same_on_all_ranks = np.random.default_rng(0)

    def once() -> list[float]:
        seconds = [0.0] * len(to_run)
        for i in same_on_all_ranks.permutation(len(to_run)):
            to_prepare[i]()
            comm.Barrier()
            begin = time.perf_counter()
            to_run[i]()
            seconds[i] = time.perf_counter() - begin
            if rests:
                _sleep_until_all_are_here(comm)
        return seconds

    def rounds_within(budget_s: float) -> int:
        return comm.bcast(int(budget_s / max(sum(once()), 1e-7)))

    count = rounds_within(budget_s)
    if count > 0:  # the first round was the warm-up
        count = rounds_within(budget_s)
    count = min(MAX_ROUNDS, max(MIN_ROUNDS, count))
    mine = np.array([once() for _ in range(count)])
    slowest = np.empty_like(mine)
    comm.Allreduce(mine, slowest, MPI.MAX)
    return dict(zip(actions, np.median(slowest, axis=0).tolist()))


def _sleep_until_all_are_here(comm: Any) -> None:
    all_are_here = comm.Ibarrier()
    while not all_are_here.Test():
        time.sleep(REST_S)


def time_of(comm: Any, action: Callable[[], object], budget_s: float) -> list[float]:
    """`times_of` a single action, as the samples of a row."""
    return list(times_of(comm, {"": action}, budget_s).values())


def main() -> None:
    case_name, program, parameters, result = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), Path(sys.argv[4])
    with spmd.program(f"penstock bench {case_name}") as world:
        from penstock.bench import runner

        rows = runner.load(case_name).measure(program, parameters)
        content = {"rows": [{"setting": setting, "seconds": seconds} for setting, seconds in rows]}
        spmd.from_root(world, lambda: output_file.write(result, json.dumps(content)))


if __name__ == "__main__":
    main()
