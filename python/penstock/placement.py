"""Orders of a communicator's ranks over the nodes."""

from __future__ import annotations

from typing import Any

ORDERS = ("launched", "round-robin")


def ordered(world: Any, order: str) -> Any:
    """The ranks of an mpi4py communicator in the order "launched" or "round-robin". Collective.

    "round-robin" takes one rank of each node in turn; nodes are in the order of their lowest ranks.
    """
    if order == "launched":
        return world
    from mpi4py import MPI

    node = world.Split_type(MPI.COMM_TYPE_SHARED)
    place = node.rank
    node.Free()
    return world.Split(0, place * world.size + world.rank)
