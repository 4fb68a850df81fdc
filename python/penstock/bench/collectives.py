"""Benchmark: Penstock's collectives and those of the MPI below."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.bench import runner
from penstock.bench.installation import Installation
from penstock.bench.runner import Program, Report
from penstock.placement import ORDERS, ordered
from penstock.text_table import columns

SUMMARY = (
    "Blocking collectives of Penstock and of each installed MPI, by operation, size and number of ranks; under Open MPI "
    "once more with its HAN forced, below Penstock, too. What runs on one MPI is measured in turns in the same jobs. "
    "Before each call the ranks write what they send."
)

#: Parameter → (default, default for --quick, help). Lists are comma-separated on the command line.
OPTIONS = {
    "ops": (["bcast", "reduce", "allreduce", "allgather"], ["allreduce"], "collectives to measure"),
    "bytes": (
        [8, 1024, 65536, 1 << 20, 16 << 20],
        [8, 65536, 1 << 20],
        "bytes of one rank's contribution; of (neighbor_)alltoall, scatter and reduce_scatter_block of the part for one rank",
    ),
    "budget_s": (0.5, 0.1, "seconds for one setting in one job"),
    "order": ("launched", "launched", "of the ranks: launched, or round-robin over the nodes"),
    "algorithm": ("", "", "of Penstock; without it, what it chooses"),
    "nodes": (1, 1, "nodes that the ranks are spread over evenly, for the limit of their links"),
    "link_mbit": (0.0, 0.0, "rate of a node's link, to show the share of its limit that is reached"),
}
RANKS = [2, 4]

OPERATIONS = (
    "barrier",
    "bcast",
    "reduce",
    "allreduce",
    "gather",
    "scatter",
    "allgather",
    "alltoall",
    "reduce_scatter_block",
    "scan",
    "exscan",
    "neighbor_allgather",
    "neighbor_alltoall",
)
#: Of each rank in neighborhood().
NEIGHBORS = 8
#: Allowed values of parameters.
CHOICES = {"ops": OPERATIONS, "order": ORDERS}


def programs(mpi: Installation) -> list[Program]:
    def in_turns(suffix: str, environment: dict[str, str]) -> list[Program]:
        names, job = (f"native{suffix}", f"penstock{suffix}"), f"in turns{suffix}"
        return [Program(name, names[:position], environment, job=job) for position, name in enumerate(names)]

    peers = in_turns("", {})
    if mpi.name == "openmpi":
        peers += in_turns("-han", {"OMPI_MCA_coll_han_priority": "100"})
    return peers


#: Share of a link's rate for data: TCP puts 1448 bytes of data into Ethernet frames of 1514.
TCP_SHARE = 1448 / 1514


def limit_s(setting: dict[str, Any], nodes: int, link_mbit: float) -> float:
    """Minimum seconds for the busiest direction of a node's link, with the ranks spread evenly over the nodes."""
    size_bytes, ranks = setting["bytes"], setting["ranks"]
    elsewhere = ranks - ranks / nodes  # ranks on other nodes
    through_a_link = {
        "bcast": size_bytes,
        "reduce": size_bytes,
        "allreduce": 2 * size_bytes * (nodes - 1) / nodes,
        "allgather": size_bytes * elsewhere,
        "gather": size_bytes * elsewhere,
        "scatter": size_bytes * elsewhere,
        "alltoall": size_bytes * elsewhere * ranks / nodes,
        "reduce_scatter_block": size_bytes * elsewhere,
        "scan": size_bytes,
        "exscan": size_bytes,
    }.get(setting["operation"], 0)
    return through_a_link * 8e-6 / (link_mbit * TCP_SHARE)


def summarize(report: Report) -> list[dict[str, Any]]:
    """For each setting: the best of Penstock against the best peer, and its share of the links' limit."""
    nodes, link_mbit = report.parameters["nodes"], report.parameters["link_mbit"]
    summary = []
    for row in report.rows:
        ours = [s for peer, s in row.seconds.items() if peer.startswith("penstock")]
        peers = {peer: s for peer, s in row.seconds.items() if not peer.startswith("penstock")}
        if not ours or not peers:
            continue
        best = min(peers, key=peers.__getitem__)
        facts = {"setting": row.setting, "best_peer": best, "speedup": peers[best] / min(ours)}
        has_limit = row.setting["operation"] != "barrier" and not row.setting["operation"].startswith("neighbor")
        if nodes > 1 and link_mbit > 0 and has_limit:
            facts["share_of_links"] = limit_s(row.setting, nodes, link_mbit) / min(ours)
        summary.append(facts)
    return summary


def table(report: Report) -> str:
    lines = [["operation", "bytes", "ranks", "best peer", "x best peer", "of the links"]]
    for facts in report.summary:
        setting, share = facts["setting"], facts.get("share_of_links")
        cells = [setting["operation"], str(setting["bytes"]), str(setting["ranks"]), facts["best_peer"]]
        lines.append([*cells, f"{facts['speedup']:.2f}", f"{share:.2f}" if share else "-"])
    return runner.table(report) + "\n\n" + columns(lines, keys=3)


def measure(program: str, parameters: dict[str, Any]) -> runner.Measured:
    """Measure all peers of one job."""
    from mpi4py import MPI

    from penstock.bench.worker import times_of
    from penstock.comm import Comm

    world = ordered(MPI.COMM_WORLD, parameters["order"])
    forced = {"algorithm": parameters["algorithm"]} if parameters["algorithm"] else {}
    near = neighborhood(world) if any(operation.startswith("neighbor") for operation in parameters["ops"]) else None

    def peers_on(given: Any) -> dict[str, tuple[Any, dict[str, str]]]:
        return {
            name: (Comm(given), forced) if name.startswith("penstock") else (given, {}) for name in program.split(",")
        }

    on_world = peers_on(world)
    on_near = {} if near is None else peers_on(near)
    rows: runner.Measured = []
    for operation in parameters["ops"]:
        peers = on_near if operation.startswith("neighbor") else on_world
        for size_bytes in parameters["bytes"]:
            count = max(1, size_bytes // 8)
            calls = {name: _Call(comm, operation, count, how) for name, (comm, how) in peers.items()}
            runs = {name: call.run for name, call in calls.items()}
            writes = {name: call.write for name, call in calls.items()}
            for name, seconds in times_of(world, runs, parameters["budget_s"] * len(runs), writes).items():
                calls[name].check(name)
                rows.append(({"program": name, "operation": operation, "bytes": count * 8}, [seconds]))
    return rows


def neighborhood(world: Any) -> Any:
    """The 8 ranks around each rank of a periodic grid, as a distributed graph: the halo of a 9-point stencil."""
    from mpi4py import MPI

    rows, columns_of = MPI.Compute_dims(world.size, 2)
    row, column = divmod(world.rank, columns_of)
    steps = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1) if (i, j) != (0, 0)]
    ranks = [(row + i) % rows * columns_of + (column + j) % columns_of for i, j in steps]
    return world.Create_dist_graph_adjacent(ranks[::-1], ranks)


class _Call:
    """One operation on its own memory: `count` float64 per rank, or per block for operations with one block per rank."""

    def __init__(self, comm: Any, operation: str, count: int, how: dict[str, str]) -> None:
        ranks, rank = comm.Get_size(), comm.Get_rank()
        sends = receives = count
        if operation in ("scatter", "alltoall", "reduce_scatter_block"):
            sends = count * ranks
        if operation in ("allgather", "gather", "alltoall"):
            receives = count * ranks
        if operation.startswith("neighbor"):
            receives = count * NEIGHBORS
            sends = receives if operation == "neighbor_alltoall" else count
        self.mine, self.result = np.arange(sends, dtype=np.float64) + rank, np.full(receives, -1.0)
        self._expected = None
        if operation == "allreduce":
            self._expected = ranks * np.arange(count) + sum(range(ranks))
        self.run = _action(comm, operation, self.mine, self.result, how)

    def write(self) -> None:
        """Write the send buffer, as a program would. Otherwise other ranks find it in their caches from the last call."""
        np.multiply(self.mine, 1.0, out=self.mine)

    def check(self, name: str) -> None:
        if self._expected is not None and not np.allclose(self.result, self._expected):
            raise AssertionError(f"{name}: wrong sums of {len(self.result)} numbers")


def _action(
    comm: Any, operation: str, mine: np.ndarray, result: np.ndarray, how: dict[str, str]
) -> Callable[[], object]:
    actions: dict[str, Callable[[], object]] = {
        "barrier": lambda: comm.Barrier(**how),
        "bcast": lambda: comm.Bcast(mine, root=0, **how),
        "reduce": lambda: comm.Reduce(mine, result, root=0, **how),
        "allreduce": lambda: comm.Allreduce(mine, result, **how),
        "gather": lambda: comm.Gather(mine, result if comm.Get_rank() == 0 else None, root=0, **how),
        "scatter": lambda: comm.Scatter(mine if comm.Get_rank() == 0 else None, result, root=0, **how),
        "allgather": lambda: comm.Allgather(mine, result, **how),
        "alltoall": lambda: comm.Alltoall(mine, result, **how),
        "reduce_scatter_block": lambda: comm.Reduce_scatter_block(mine, result, **how),
        "scan": lambda: comm.Scan(mine, result, **how),
        "exscan": lambda: comm.Exscan(mine, result, **how),
        "neighbor_allgather": lambda: comm.Neighbor_allgather(mine, result, **how),
        "neighbor_alltoall": lambda: comm.Neighbor_alltoall(mine, result, **how),
    }
    return actions[operation]
