"""What can be chosen: an algorithm and a length of its segments."""

from __future__ import annotations

NATIVE = "native"  #: MPI's own collective, called through Penstock

#: What can be tuned: operations without counts of the ranks' own.
OPERATIONS = (
    "bcast", "reduce", "allreduce", "gather", "scatter", "allgather", "alltoall", "reduce_scatter_block", "scan",
    "exscan", "barrier",
)  # fmt: skip

#: Algorithms that are pipelines of tasks over two levels, for bcast, reduce and allreduce.
PIPELINES = ("hierarchical", "node_shared", "leader_binary", "leader_chain", "leader_two_tree")
SEGMENTS = (16 << 10, 64 << 10, 256 << 10, 1 << 20)

Config = tuple[str, int]  #: algorithm, segment_bytes (0: its own)


def name_of(config: Config) -> str:
    return f"{config[0]}:{config[1]}"


def config_of(name: str) -> Config:
    algorithm, _, segment = name.rpartition(":")
    return algorithm, int(segment)
