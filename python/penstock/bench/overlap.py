"""Benchmark: computation overlapped with a collective, with a fixed problem size (split-tree paper, section 6)."""

from __future__ import annotations

import hashlib
import statistics
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from penstock.bench.installation import Installation, cores
from penstock.bench.overlap_results import WITHOUT_TREE, plot, summarize, table
from penstock.bench.runner import Jobs, Measured, Program
from penstock.error import Error

__all__ = ["CHOICES", "OPTIONS", "RANKS", "SUMMARY", "measure", "plot", "prepare", "programs", "summarize", "table"]

SUMMARY = """The same total computation on fewer and fewer cores, with a collective in flight beside it.

The computation is sized so that on all cores it takes --ratio times as long as the fastest MPI's blocking collective
there. Each number of ranks leaves the other cores to communication. Per peer and mode: the collective alone, the
computation alone, both together, the overlap as IMB-NBC and the OSU benchmarks define it, and the hidden share of the
collective, 1 - (both - computation) / alone; last, the shortest time to solution of Penstock and of the peers, each at
its own best number of ranks.
"""

USUAL = ("reduce", "bcast", "allreduce", "gather", "scatter")
OPERATIONS = (*USUAL, *WITHOUT_TREE)
#: Allowed values of parameters.
CHOICES = {"ops": OPERATIONS}
OPTIONS = {
    "ops": (list(USUAL), ["reduce"], "collectives to measure; allgather and alltoall too"),
    "bytes": ([2 << 20], [2 << 20], "bytes of one rank's contribution, in float32"),
    "splits": (
        ["0", "1", "2", "3", "4", "divided", "auto"],
        ["0", "1", "auto"],
        "tree levels on the application's cores; a name is an algorithm",
    ),
    "ratio": ([1.0], [1.0], "computation by blocking collective, both on all cores; 10 is ample"),
    "progress_cores": ("auto", "auto", "cores of each node that Penstock's progress threads use"),
    "root": (0, 0, "rank at the root, modulo the number of ranks"),
    "budget_s": (0.5, 0.3, "seconds for one collective in one job"),
}
MINUTES = 8


def RANKS(core_count: int) -> list[int]:
    """First one core for communication, then none, then more and more, up to half of the cores."""
    left = (1, 0, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128)
    return [core_count - n for n in left if core_count - n >= max(2, core_count // 2)] or [2]


def programs(mpi: Installation) -> list[Program]:
    asynchronous = {
        "mpich": [Program("async", environment={"MPICH_ASYNC_PROGRESS": "1"}, bound=False, threads_per_rank=2)],
        "impi": [Program("async", environment={"I_MPI_ASYNC_PROGRESS": "1"}, bound=True, threads_per_rank=2)],
    }
    return [
        Program("native", bound=True),
        *asynchronous.get(mpi.name, []),
        Program("penstock", bound=True, once=True),
        Program("penstock-off", bound=True, once=True),
    ]


def prepare(parameters: dict[str, Any], jobs: Jobs) -> dict[str, Any]:
    """Measure on all cores the speed of the computation, and the blocking collectives that determine its size."""
    size = max(2, len(cores()))
    fastest: dict[str, float] = {}
    computations = []
    natives = [peer for peer, (_, program) in jobs.peers.items() if program.name == "native"]
    if not natives:
        raise Error("an MPI's own collectives determine the size of the computation; expected native among --peers")
    for peer in natives:
        for setting, (seconds,) in jobs.measure(peer, parameters, size, ": blocking collectives on all cores"):
            if setting["measured"] == "computation":
                computations.append(seconds)
                continue
            key = size_key(setting["operation"], setting["bytes"])
            fastest[key] = min(seconds, fastest.get(key, seconds))
    if not computations:
        raise Error(f"no MPI could be measured on {size} ranks: {'; '.join(jobs.left_out.values())}")
    rate = CALIBRATION_ITERATIONS / min(computations)
    return {**parameters, "all_cores": size, "iterations_per_s": rate, "blocking_s": fastest}


def size_key(operation: str, size_bytes: int) -> str:
    return f"{operation}/{size_bytes}"


def measure(program: str, parameters: dict[str, Any]) -> Measured:
    from mpi4py import MPI

    from penstock.bench.worker import times_of

    world = MPI.COMM_WORLD
    if "blocking_s" not in parameters:
        return _survey(world, parameters)
    comm: Any = world
    if program.startswith("penstock"):
        from penstock.comm import Comm

        comm = Comm(world, progress_cores=0 if program == "penstock-off" else _cores_of(parameters["progress_cores"]))
    rows: Measured = []
    for collective in _collectives(comm, parameters):
        blocking_s = parameters["blocking_s"][size_key(collective.operation, collective.size_bytes)]
        ways, cannot = _ways(comm, collective, parameters["splits"] if program == "penstock" else ["auto"])
        for split, reason in cannot.items():
            rows.append(({"operation": collective.operation, "split": split, "cannot": reason}, []))
        actions: dict[tuple[str, str, float], Callable[[], object]] = {}
        if program != "async":  # blocking collectives are only slower there
            actions["blocking", "", 0] = collective.run
        for split, (how, _) in ways.items():
            actions["alone", split, 0] = partial(collective.with_computation, 0, how)
        for ratio in parameters["ratio"]:
            core_seconds = ratio * blocking_s * parameters["all_cores"]
            iterations = max(1, round(core_seconds * parameters["iterations_per_s"] / world.size))
            actions["computation", "", ratio] = partial(compute, iterations)
            if program != "async":
                actions["sequence", "", ratio] = partial(collective.before_computation, iterations)
            for split, (how, _) in ways.items():
                actions["overlapped", split, ratio] = partial(collective.with_computation, iterations, how)
        for (measured, split, ratio), seconds in times_of(world, actions, parameters["budget_s"], rests=True).items():
            what = {"operation": collective.operation, "bytes": collective.size_bytes, "ratio": ratio, "split": split}
            plan = ways[split][1] if split else ""
            rows.append(({**what, "plan": plan, "measured": measured}, [seconds]))
    if program == "penstock":
        progress = "; ".join(line for line in comm.report().splitlines() if "progress" in line)
        comm.free()
        for measured, seconds in _idle(world, parameters).items():
            what = {"operation": "none", "bytes": 0, "ratio": 0, "split": "", "plan": progress}
            rows.append(({**what, "measured": measured}, [seconds]))
    return rows


def _cores_of(given: str) -> str | int:
    return int(given) if given.isdigit() else given


def _ways(
    comm: Any, collective: _Collective, splits: list[str]
) -> tuple[dict[str, tuple[dict[str, Any], str]], dict[str, str]]:
    """Split, as the option gives it → (keywords of the collective, resulting plan). Last, the splits that do not fit these
    ranks, and why.

    An MPI's own collectives have one way.
    """
    if not hasattr(comm, "explain"):
        return {"nonblocking": ({}, "")}, {}
    ways, cannot = {}, {}
    for split in splits:
        how = {"split": int(split) if split.isdigit() else "auto"}
        if not split.isdigit() and split != "auto":
            how["algorithm"] = split
        try:
            plan = comm.explain(collective.operation, collective.size_bytes, dtype="float32", **how)
        except Error as error:
            cannot[split] = str(error)
            continue
        ways[split] = (how, plan["algorithm"] + (f" S={plan['split']}" if plan["algorithm"].endswith("/tree") else ""))
    return ways, cannot


def compute(iterations: int) -> None:
    """A fixed amount of work in C, in registers, without the GIL. It takes longer if other threads take its cycles."""
    if iterations > 0:
        hashlib.pbkdf2_hmac("sha256", b"penstock", b"overlap", iterations)


class _Collective:
    """One operation at one size, with its buffers; verified once."""

    def __init__(self, comm: Any, operation: str, size_bytes: int, root: int) -> None:
        self.operation, self.size_bytes = operation, size_bytes
        count, size, rank = max(1, size_bytes // 4), comm.Get_size(), comm.Get_rank()
        root %= size
        at_root = rank == root
        # Write every page: reads of untouched pages come from the cache, at no cost.
        mine, result = np.full(count, 1 + rank, np.float32), np.full(count, 0, np.float32)
        has_every = operation in WITHOUT_TREE or (at_root and operation in ("gather", "scatter"))
        every = np.full((size if has_every else 0, count), 1 + rank, np.float32)
        sent = np.full((size if operation == "alltoall" else 0, count), 1 + rank, np.float32)
        arguments = {
            "bcast": (mine,),
            "reduce": (mine, result if at_root else None),
            "allreduce": (mine, result),
            "gather": (mine, every if at_root else None),
            "scatter": (every if at_root else None, result),
            "allgather": (mine, every),
            "alltoall": (sent, every),
        }
        at = {} if operation == "allreduce" or operation in WITHOUT_TREE else {"root": root}
        self._blocking = partial(getattr(comm, operation.capitalize()), *arguments[operation], **at)
        self._start = partial(getattr(comm, f"I{operation}"), *arguments[operation], **at)
        self._start().Wait()
        total = size * (size + 1) // 2
        expected = {"bcast": 1 + root, "reduce": total, "allreduce": total, "scatter": 1 + root}
        if operation in ("gather", "reduce") and not at_root:
            right = True
        elif operation in ("gather", *WITHOUT_TREE):
            right = bool((every == np.arange(1, size + 1)[:, None]).all())
        else:
            right = bool(((mine if operation == "bcast" else result) == expected[operation]).all())
        if not right:
            raise AssertionError(f"{operation} of {size_bytes} bytes on {size} ranks gave a wrong result")

    def run(self) -> None:
        self._blocking()

    def before_computation(self, iterations: int) -> None:
        self._blocking()
        compute(iterations)

    def with_computation(self, iterations: int, how: dict[str, Any]) -> None:
        request = self._start(**how)
        compute(iterations)
        request.Wait()


def _collectives(comm: Any, parameters: dict[str, Any]) -> Iterator[_Collective]:
    for operation in parameters["ops"]:
        for size_bytes in parameters["bytes"]:
            yield _Collective(comm, operation, size_bytes, parameters["root"])


IDLE_WORK_S = 0.02
CALIBRATION_ITERATIONS = 20_000


def _survey(world: Any, parameters: dict[str, Any]) -> Measured:
    """Measure a computation after each collective, as in the benchmark itself: a tight loop finds all data in the cache."""
    from penstock.bench.worker import times_of

    rows: Measured = []
    for collective in _collectives(world, parameters):
        what = {"operation": collective.operation, "bytes": collective.size_bytes}
        actions: dict[str, Callable[[], object]] = {
            "blocking": collective.run,
            "computation": partial(compute, CALIBRATION_ITERATIONS),
        }
        for measured, seconds in times_of(world, actions, parameters["budget_s"], rests=True).items():
            rows.append(({**what, "measured": measured}, [seconds]))
    return rows


def _idle(world: Any, parameters: dict[str, Any]) -> dict[str, float]:
    """The same computation with no operation in flight, alternately with and without an open communicator."""
    from penstock.bench.worker import time_of
    from penstock.comm import Comm

    work = partial(compute, round(IDLE_WORK_S * parameters["iterations_per_s"]))
    samples: dict[str, list[float]] = {"idle": [], "closed": []}
    for _ in range(5):
        with Comm(world) as comm:
            comm.Allreduce(np.zeros(1), np.zeros(1))  # starts the background progress
            samples["idle"] += time_of(world, work, parameters["budget_s"] / 5)
        samples["closed"] += time_of(world, work, parameters["budget_s"] / 5)
    return {measured: statistics.median(seconds) for measured, seconds in samples.items()}
