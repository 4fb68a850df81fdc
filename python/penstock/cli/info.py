"""penstock info: MPI, cores and shared memory of this machine, and all options with their values."""

from __future__ import annotations

import importlib.metadata
import itertools
import json
import os
import platform
from pathlib import Path

import click

from penstock import spmd
from penstock.cli import version
from penstock.error import Error


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--options", "with_options", is_flag=True, help="Explain every option.")
@click.option("--ranks", type=click.IntRange(1, 1024), help="Ranks per node to place communication cores for.")
@click.option(
    "--machine",
    "with_machine",
    is_flag=True,
    help="What communication costs between and inside the nodes, under mpiexec: measured, or kept by an earlier job.",
)
@click.option("--again", is_flag=True, help="With --machine: measure even if it is known.")
def info(as_json: bool, with_options: bool, ranks: int | None, with_machine: bool, again: bool) -> None:
    """MPI, cores, shared memory, and enabled features.

    \b
    Examples:
      penstock info
      penstock info --options
      penstock info --ranks 8 --json
      mpiexec -n 4 penstock info --machine
    """
    if again and not with_machine:
        raise Error("--again measures a machine again; add --machine")
    if with_machine:
        with spmd.program("penstock info --machine"):
            _machine(as_json, again)
        return
    facts = gather(ranks)
    if as_json:
        click.echo(json.dumps(facts, indent=2))
        return
    cores, memory = facts["cores"], facts["shared_memory"]
    click.echo(f"Penstock {facts['version']}, Python {facts['python']}")
    click.echo(
        f"cores           {cores['cores']} usable, CPU {cores['cpus']} of {cores['online']} (from {cores['topology']})"
    )
    click.echo(f"memory nodes    {cores['numa_nodes']}")
    click.echo(f"CPU set         {cores['process_cpus']}, of the job {cores['inherited_cpus']}")
    progress = facts["progress_cores"]
    click.echo(f"progress cores  auto, {progress['ranks']} rank{'s' * (progress['ranks'] > 1)} on this node:")
    click.echo(f"                not bound: {progress['not_bound']}")
    click.echo(f"                bound to a core each: {progress['bound']}")
    click.echo(f"shared memory   {memory['free_bytes'] / 2**30:.1f} GiB free of {memory['size_bytes'] / 2**30:.1f}")
    click.echo(f"single copy     {facts['single_copy']}")
    click.echo(f"built for       {', '.join(facts['mpi']['built_for']) or 'no MPI'}")
    click.echo(f"mpi4py          {facts['mpi']['mpi4py'] or 'not installed'}")
    click.echo(f"MPI library     {facts['mpi']['library'] or facts['mpi']['problem']}")
    click.echo(f"ABI             {facts['mpi']['abi'] or 'none fits'}")
    changed = [o for o in facts["options"] if o["environment"] in os.environ]
    for option in facts["options"] if with_options else changed:
        click.echo(f"{option['environment']}={option['value']}")
        if with_options:
            click.echo(f"    {option['type']}: {option['meaning']}")


def _machine(as_json: bool, again: bool) -> None:
    """Collective. Rank 0 prints."""
    os.environ["PENSTOCK_NETWORK"] = "off"  # what the communicator would measure would be what is shown
    from mpi4py import MPI

    from penstock.comm import Comm

    comm = Comm(MPI.COMM_WORLD.Dup(), progress_cores=0)
    text, has_network, has_node, source, seconds, rows = comm._open().machine(again)
    nodes = MPI.COMM_WORLD.allgather(platform.node())
    comm.Free()
    if MPI.COMM_WORLD.rank != 0:
        return
    facts = {
        **json.loads(text),
        "network_measured": has_network,
        "node_measured": has_node,
        "source": source,
        "measuring_seconds": seconds,
        "algorithms": [dict(zip(("operation", "bytes", "algorithm", "nanoseconds"), row, strict=True)) for row in rows],
    }
    if as_json:
        click.echo(json.dumps(facts, indent=2))
        return
    network, node = facts["network"], facts["node"]
    took = f" in {seconds:.2f} s" if seconds else ""
    click.echo(f"{source}{took}, {len(nodes)} ranks on {len(set(nodes))} hosts")
    click.echo("between nodes" if has_network else "between nodes: default values; there is one node")
    click.echo(f"  latency       {network['latency_seconds'] * 1e6:10.2f} us")
    click.echo(f"  overhead      {network['overhead_seconds'] * 1e6:10.2f} us per message and core")
    click.echo(f"  gap           {network['gap_seconds'] * 1e6:10.2f} us")
    click.echo(f"  link          {_gigabits(network['seconds_per_byte']):10.2f} Gbit/s")
    click.echo(f"  one process   {_gigabits(network['process_seconds_per_byte']):10.2f} Gbit/s")
    click.echo(f"  eager         {network['eager_bytes'] / 1024:10.1f} KiB")
    click.echo("inside a node" if has_node else "inside a node: flags and remote reads have default values; one rank")
    click.echo(f"  flag          {node['flag_seconds'] * 1e6:10.2f} us")
    click.echo(f"  copy          {_gigabytes(node['copy_seconds_per_byte']):10.2f} GB/s, in or out of shared memory")
    click.echo(f"  remote read   {_gigabytes(node['remote_read_seconds_per_byte']):10.2f} GB/s")
    click.echo(f"                {node['remote_read_seconds'] * 1e6:10.2f} us per call")
    click.echo(f"  combine       {_gigabytes(node['combine_seconds_per_byte']):10.2f} GB/s")
    click.echo(f"  beyond caches {node['uncached_factor']:10.2f} times as long")
    click.echo(f"  messages      {node['message_bytes'] / 1024:10.1f} KiB are copied twice, longer ones once")
    click.echo(f"  cache         {node['cache_bytes'] / 1024:10.1f} KiB")
    click.echo(f"  cores         {node['cores']:10d}")
    click.echo(f"                {node['ranks_per_core']:10.2f} ranks took turns on one")
    if rows:
        click.echo("algorithms by time, us; 0: not measured")
    for (operation, size), group in itertools.groupby(rows, key=lambda row: row[:2]):
        times = sorted((nanoseconds, algorithm) for *_, algorithm, nanoseconds in group)
        shown = ", ".join(f"{algorithm} {nanoseconds / 1e3:.1f}" for nanoseconds, algorithm in times)
        click.echo(f"  {operation:<20} {size / 1024:5.0f} KiB  {shown}")


def _gigabits(seconds_per_byte: float) -> float:
    return 8e-9 / seconds_per_byte


def _gigabytes(seconds_per_byte: float) -> float:
    return 1e-9 / seconds_per_byte


_CORES = ("topology", "cores", "cpus", "numa_nodes", "process_cpus", "inherited_cpus")


def gather(ranks: int | None = None) -> dict:
    from penstock import _penstock

    # Default: one rank per CPU, but one CPU left for communication.
    usable = len(os.sched_getaffinity(0))
    machine = json.loads(_penstock.describe_machine(ranks or min(max(usable - 1, 1), 1024)))

    stat = os.statvfs("/dev/shm")
    keys = ("name", "environment", "type", "value", "meaning")
    return {
        "version": version(),
        "python": platform.python_version(),
        "cores": {
            "usable": usable,
            "online": os.cpu_count(),
            **{key: machine[key] for key in _CORES},
        },
        "progress_cores": machine["progress_cores"],
        "single_copy": machine["single_copy"],
        "shared_memory": {"size_bytes": stat.f_blocks * stat.f_frsize, "free_bytes": stat.f_bavail * stat.f_frsize},
        "mpi": mpi_facts(Path(_penstock.library_directory())),
        "options": [dict(zip(keys, row, strict=True)) for row in _penstock.option_table()],
    }


def mpi_facts(libraries: Path) -> dict:
    found = {
        "built_for": [abi for abi in ("mpich", "openmpi", "abi") if any(libraries.glob(f"libpenstock_{abi}.so*"))],
        "mpi4py": importlib.metadata.version("mpi4py") if _installed("mpi4py") else None,
        "library": None,
        "abi": None,
        "problem": None,
    }
    # mpi4py without a loadable MPI raises ImportError or RuntimeError. Here that is a result, not a failure.
    try:
        import mpi4py

        mpi4py.rc.initialize = False
        from mpi4py import MPI

        found["library"] = " ".join(MPI.Get_library_version().split("\n")[0].rstrip("\0").split())
    except (ImportError, RuntimeError) as error:
        found["problem"] = str(error).splitlines()[0]
        return found
    from penstock import Error, mpi_abi

    try:
        found["abi"] = mpi_abi.name(MPI)
    except Error as error:
        found["problem"] = error.message
    return found


def _installed(distribution: str) -> bool:
    try:
        importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
