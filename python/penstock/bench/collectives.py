"""Penstock's collectives and those of the MPI library below it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.bench.installation import Installation
from penstock.bench.runner import Program
from penstock.error import Error

SUMMARY = "Blocking collectives of Penstock and of each installed MPI, by operation, size and number of ranks."

#: Parameter → (default, for --quick, help). Lists are given on the command line with commas.
OPTIONS = {
    "operations": (["bcast", "reduce", "allreduce", "allgather"], ["allreduce"], "collectives to measure"),
    "sizes": ([8, 1024, 65536, 1 << 20, 16 << 20], [8, 65536, 1 << 20], "bytes of one rank's contribution"),
    "budget_s": (0.5, 0.1, "seconds for one setting in one job"),
}
RANKS = [2, 4]


def programs(mpi: Installation) -> list[Program]:
    return [Program("native"), Program("penstock", baselines=("native",))]


def measure(program: str, parameters: dict[str, Any]) -> list[tuple[dict[str, Any], list[float]]]:
    from mpi4py import MPI

    from penstock.bench.worker import time_of

    world = MPI.COMM_WORLD
    comm: Any = world
    if program == "penstock":
        from penstock.comm import Comm

        comm = Comm(world)
    rows = []
    for operation in parameters["operations"]:
        for size_bytes in parameters["sizes"]:
            count = max(1, size_bytes // 8)
            mine = np.arange(count, dtype=np.float64) + world.rank
            result = np.empty(count * (world.size if operation in ("allgather", "gather") else 1))
            action = _action(comm, operation, mine, result)
            rows.append(({"operation": operation, "bytes": count * 8}, time_of(world, action, parameters["budget_s"])))
            if operation == "allreduce":
                expected = world.size * np.arange(count) + sum(range(world.size))
                if not np.allclose(result, expected):
                    raise AssertionError(f"{program}: wrong sums at {size_bytes} bytes")
    return rows


def _action(comm: Any, operation: str, mine: np.ndarray, result: np.ndarray) -> Callable[[], object]:
    actions: dict[str, Callable[[], object]] = {
        "barrier": lambda: comm.Barrier(),
        "bcast": lambda: comm.Bcast(mine, root=0),
        "reduce": lambda: comm.Reduce(mine, result, root=0),
        "allreduce": lambda: comm.Allreduce(mine, result),
        "gather": lambda: comm.Gather(mine, result if comm.Get_rank() == 0 else None, root=0),
        "allgather": lambda: comm.Allgather(mine, result),
    }
    if operation not in actions:
        raise Error(f"unknown operation '{operation}'; expected some of {', '.join(actions)}")
    return actions[operation]
