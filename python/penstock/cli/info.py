"""penstock info: MPI, cores and shared memory of this machine, and all options with their values."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
from pathlib import Path

import click

from penstock.cli import version


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--options", "with_options", is_flag=True, help="Explain every option.")
@click.option("--ranks", type=click.IntRange(1, 1024), help="Ranks per node to place communication cores for.")
def info(as_json: bool, with_options: bool, ranks: int | None) -> None:
    """MPI, cores, shared memory, and enabled features.

    \b
    Examples:
      penstock info
      penstock info --options
      penstock info --ranks 8 --json
    """
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
