"""Candidates: an algorithm and its segment length."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from penstock import plan as plans
from penstock.error import Error

NATIVE = "native"  #: MPI's own collective, called through Penstock.

#: Operations that can be tuned: those without counts per rank.
OPERATIONS = (
    "bcast", "reduce", "allreduce", "gather", "scatter", "allgather", "alltoall", "reduce_scatter_block", "scan",
    "exscan", "barrier",
)  # fmt: skip

#: Algorithms that are pipelines of tasks over two levels: for bcast, reduce and allreduce.
PIPELINES = ("hierarchical", "node_shared", "leader_binary", "leader_chain", "leader_two_tree")
#: 15 to 960 KiB. Not powers of two: MPIs switch protocols there, and count their own headers too.
SEGMENTS = tuple(15 << 10 << doubled for doubled in range(7))

Config = tuple[str, int]  #: (algorithm, segment_bytes); 0 is the algorithm's own length.


def name_of(config: Config) -> str:
    return f"{config[0]}:{config[1]}"


def config_of(name: str) -> Config:
    algorithm, _, segment = name.rpartition(":")
    return algorithm, int(segment)


ITSELF = name_of((NATIVE, 0))


@dataclass(frozen=True)
class Space:
    """The candidates of one operation at one size: all plans that differ.

    These are all algorithms that apply, with all segment lengths that lead to different plans. Many lengths do not, since
    algorithms limit the number of segments, or cut blocks that are shorter than the message.
    """

    lengths: dict[str, frozenset[int]]  #: name → lengths with the same plan; 0 is the algorithm's own.

    def like(self, algorithm: str, lengths: frozenset[int]) -> list[str]:
        """Names of the candidates here that an algorithm with one of these lengths leads to."""
        return [
            name
            for name, here in self.lengths.items()
            if config_of(name)[0] == algorithm and not here.isdisjoint(lengths)
        ]

    def same_as(self, other: Space, name: str) -> list[str]:
        """Names of candidate `name` of another size here: several, if that size was too short to tell them apart."""
        return self.like(config_of(name)[0], other.lengths[name])


def space_of(core: Any, operation: str, size: int) -> Space:
    """The candidates, from this rank's plans. Local."""
    lengths: dict[str, frozenset[int]] = {}
    for row in plans.algorithms(operation):
        of_plan: dict[tuple, set[int]] = {}
        for segment in (0, *SEGMENTS):
            facts = _plan_facts(core, operation, size, row.name, segment)
            if facts is not None:
                of_plan.setdefault(facts, set()).add(segment)
        for same in of_plan.values():
            cutting = [segment for segment in same if 0 < segment < size]
            # The algorithm's own length is unnamed if no other length has its plan, or if the length has no effect.
            named = 0 if len(of_plan) == 1 else max(cutting, default=min(same))
            lengths[name_of((row.name, named))] = frozenset(same)
    lengths[ITSELF] = frozenset({0})
    return Space(lengths)


def default_of(core: Any, operation: str, size: int, space: Space) -> str:
    """The candidate that runs without a table; MPI's own if the default is not among them. Local."""
    found = json.loads(core.explain(operation, max(8, size), "int64", "sum", 0, {}))
    algorithm = found["algorithm"].removeprefix(f"{operation}/")
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
