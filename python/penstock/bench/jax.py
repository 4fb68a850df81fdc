"""Collectives and resharding of JAX arrays: JAX's own collectives against Penstock."""

from __future__ import annotations

import importlib.util
import math
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from penstock.bench import runner
from penstock.bench.installation import Installation
from penstock.bench.runner import Program

SUMMARY = (
    "JAX arrays on CPUs, one device per process: an allreduce by a compiled jax.lax.psum and by penstock.Comm.Allreduce, and "
    "other shardings of a matrix by a compiled identity with out_shardings and by penstock.jax.redistribute, in turns in the "
    "same jobs. JAX's own collectives are gloo, or MPI as the library in MPITRAMPOLINE_LIB wraps it."
)
RESHARDINGS = ("rows_to_columns", "rows_to_replicated", "rows_to_grid")
OPERATIONS = ("allreduce", *RESHARDINGS)
IMPLEMENTATIONS = ("gloo", "mpi")
CHOICES = {"ops": OPERATIONS, "implementation": IMPLEMENTATIONS}

OPTIONS = {
    "ops": (list(OPERATIONS), ["allreduce", "rows_to_columns"], "what to measure"),
    "bytes": (
        [8, 1024, 64 << 10, 1 << 20, 16 << 20, 64 << 20],
        [1024, 64 << 10],
        "bytes of an array in float32: of each process for allreduce, else of all together",
    ),
    "implementation": ("gloo", "gloo", "what carries JAX's own collectives: gloo or mpi"),
    "budget_s": (1.0, 0.2, "seconds for one setting in one job"),
}
RANKS = [2, 4]
MINUTES = 8


def missing(_: Installation) -> dict[str, str]:
    if importlib.util.find_spec("jax") is not None:
        return {}
    return dict.fromkeys(("jax", "penstock"), "JAX is not installed for the Python that runs the benchmark")


def programs(mpi: Installation) -> list[Program]:
    return [] if missing(mpi) else [Program("jax", job="in turns"), Program("penstock", ("jax",), job="in turns")]


@contextmanager
def reserved_address(host: str = "127.0.0.1") -> Iterator[str]:
    """Hold a free port for JAX's coordinator on this host. gRPC, in which it listens, sets SO_REUSEPORT, so it alone can bind
    the port, too."""
    has_ipv6 = socket.has_dualstack_ipv6()
    with socket.socket(socket.AF_INET6 if has_ipv6 else socket.AF_INET) as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if has_ipv6:
            held.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        held.bind(("", 0))
        yield f"{host}:{held.getsockname()[1]}"


def measure(program: str, parameters: dict[str, Any]) -> runner.Measured:
    """Measure all peers of one job."""
    import atexit
    import os

    from mpi4py import MPI

    world = MPI.COMM_WORLD
    import jax

    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_cpu_collectives_implementation", parameters["implementation"])
    with reserved_address(socket.gethostbyname(socket.gethostname())) as mine:
        jax.distributed.initialize(world.bcast(mine), world.size, world.rank)

    import penstock as ps
    from penstock.bench.worker import times_of

    comm = ps.Comm(world)
    names = program.split(",")
    rows: runner.Measured = []
    for operation in parameters["ops"]:
        for size_bytes in parameters["bytes"]:
            of_both = _allreduces(size_bytes, comm) if operation == "allreduce" else _moves(operation, size_bytes, comm)
            actions = {name: of_both[name] for name in names}
            for name, seconds in times_of(world, actions, parameters["budget_s"] * len(names)).items():
                rows.append(({"program": name, "operation": operation, "bytes": size_bytes}, [seconds]))
    comm.free()
    jax.distributed.shutdown()
    if parameters["implementation"] == "mpi":
        # JAX 0.10 frees its communicators after MPI_Finalize, which ends the process with an error.
        atexit.register(os._exit, 0)
    return rows


def _allreduces(size_bytes: int, comm: Any) -> dict[str, Callable[[], object]]:
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec
    from mpi4py import MPI

    count = max(1, size_bytes // 4)
    mesh = Mesh(np.array(jax.devices()), ("x",))
    spec = PartitionSpec("x")
    array = jax.make_array_from_callback(
        (comm.size, count), NamedSharding(mesh, spec), lambda _: np.ones((1, count), np.float32)
    )
    psum = jax.jit(jax.shard_map(lambda part: jax.lax.psum(part, "x"), mesh=mesh, in_specs=spec, out_specs=spec))
    local = array.addressable_shards[0].data

    def penstock() -> object:
        received = np.empty((1, count), np.float32)
        comm.Allreduce(local, received, op=MPI.SUM)
        return jax.device_put(received).block_until_ready()

    return {"jax": lambda: psum(array).block_until_ready(), "penstock": penstock}


def _moves(operation: str, size_bytes: int, comm: Any) -> dict[str, Callable[[], object]]:
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    import penstock.jax

    devices = np.array(jax.devices())
    order = max(comm.size, math.isqrt(size_bytes // 4) // comm.size * comm.size)
    mesh = Mesh(devices, ("x",))
    source, target = NamedSharding(mesh, PartitionSpec("x")), NamedSharding(mesh, PartitionSpec(None, "x"))
    if operation == "rows_to_replicated":
        target = NamedSharding(mesh, PartitionSpec())
    elif operation == "rows_to_grid":
        target = NamedSharding(Mesh(devices.reshape(-1, 2), ("x", "y")), PartitionSpec("x", "y"))
    array = jax.make_array_from_callback(
        (order, order), source, lambda index: np.ones((order // comm.size, order), np.float32)
    )
    identity = jax.jit(lambda given: given, out_shardings=target)
    return {
        "jax": lambda: identity(array).block_until_ready(),
        "penstock": lambda: penstock.jax.redistribute(array, target, comm).block_until_ready(),
    }
