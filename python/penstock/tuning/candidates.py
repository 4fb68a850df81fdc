"""What can be chosen: an algorithm and a length of its segments."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from penstock import plan as plans
from penstock.error import Error

NATIVE = "native"  #: MPI's own collective, called through Penstock

#: What can be tuned: operations without counts of the ranks' own.
OPERATIONS = (
    "bcast", "reduce", "allreduce", "gather", "scatter", "allgather", "alltoall", "reduce_scatter_block", "scan",
    "exscan", "barrier",
)  # fmt: skip

#: Algorithms that are pipelines of tasks over two levels, for bcast, reduce and allreduce.
PIPELINES = ("hierarchical", "node_shared", "leader_binary", "leader_chain", "leader_two_tree")
#: 15 to 960 KiB: MPIs treat messages otherwise from a power of two on, and count their own headers, too.
SEGMENTS = tuple(15 << 10 << doubled for doubled in range(7))

Config = tuple[str, int]  #: algorithm, segment_bytes (0: its own)


def name_of(config: Config) -> str:
    return f"{config[0]}:{config[1]}"


def config_of(name: str) -> Config:
    algorithm, _, segment = name.rpartition(":")
    return algorithm, int(segment)


ITSELF = name_of((NATIVE, 0))


@dataclass(frozen=True)
class Space:
    """All that differs in what it does at one size of one operation.

    Every algorithm that fits, with every length of segments that leads to a plan of its own: many of the lengths do
    not, since algorithms limit the number of their segments or cut blocks of ranks that are shorter than the message.
    """

    lengths: dict[str, frozenset[int]]  #: name → lengths that lead to the same plan, 0 for the algorithm's own

    def like(self, algorithm: str, lengths: frozenset[int]) -> list[str]:
        """What is done here by an algorithm when it is given one of these lengths."""
        return [
            name
            for name, here in self.lengths.items()
            if config_of(name)[0] == algorithm and not here.isdisjoint(lengths)
        ]

    def same_as(self, other: Space, name: str) -> list[str]:
        """What `name`, of another size, is here: several where that size was too short to tell them apart."""
        return self.like(config_of(name)[0], other.lengths[name])


def space_of(core: Any, operation: str, size: int) -> Space:
    """Local: by the plans of this rank."""
    lengths: dict[str, frozenset[int]] = {}
    for row in plans.algorithms(operation):
        of_plan: dict[tuple, set[int]] = {}
        for segment in (0, *SEGMENTS):
            facts = _plan_facts(core, operation, size, row.name, segment)
            if facts is not None:
                of_plan.setdefault(facts, set()).add(segment)
        for same in of_plan.values():
            cutting = [segment for segment in same if 0 < segment < size]
            # Its own length goes unnamed where no other leads to the same, or none matters.
            named = 0 if len(of_plan) == 1 else max(cutting, default=min(same))
            lengths[name_of((row.name, named))] = frozenset(same)
    lengths[ITSELF] = frozenset({0})
    return Space(lengths)


def default_of(core: Any, operation: str, size: int, space: Space) -> str:
    """The candidate that runs without a table; MPI's own if the default is none of them. Local."""
    found = json.loads(core.explain(operation, max(8, size), "int64", "sum", 0, {}))
    algorithm = found["algorithm"].removeprefix(f"{operation}/")  # the name of its plan
    names = space.like(algorithm, frozenset({found.get("segment_bytes", 0)}))
    return names[0] if names else ITSELF


def _plan_facts(core: Any, operation: str, size: int, algorithm: str, segment: int) -> tuple | None:
    how: dict[str, Any] = {"algorithm": algorithm}
    if segment:
        how["segment_bytes"] = segment
    try:
        facts = json.loads(core.explain(operation, max(8, size), "int64", "sum", 0, how))
    except Error:
        return None
    wanted = ("steps", "tasks", "messages", "sent_bytes", "read_bytes", "scratch_bytes", "shared_bytes")
    return tuple(facts[each] for each in wanted)
