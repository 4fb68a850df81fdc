"""penstock info: what Penstock finds on this machine, and every option with its value."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
from pathlib import Path

import click


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--options", "with_options", is_flag=True, help="Explain every option.")
def info(as_json: bool, with_options: bool) -> None:
    """MPI, cores, shared memory, and what is switched on."""
    facts = gather()
    if as_json:
        click.echo(json.dumps(facts, indent=2))
        return
    cores, memory = facts["cores"], facts["shared_memory"]
    click.echo(f"Penstock {facts['version']}, Python {facts['python']}")
    click.echo(f"cores           {cores['usable']} usable of {cores['online']}")
    click.echo(f"shared memory   {memory['free_bytes'] / 2**30:.1f} GiB free of {memory['size_bytes'] / 2**30:.1f}")
    click.echo(f"built for       {', '.join(facts['mpi']['built_for']) or 'no MPI'}")
    click.echo(f"mpi4py          {facts['mpi']['mpi4py'] or 'not installed'}")
    click.echo(f"MPI library     {facts['mpi']['library'] or facts['mpi']['problem']}")
    click.echo(f"ABI             {facts['mpi']['abi'] or 'none fits'}")
    changed = [o for o in facts["options"] if o["environment"] in os.environ]
    for option in facts["options"] if with_options else changed:
        click.echo(f"{option['environment']}={option['value']}")
        if with_options:
            click.echo(f"    {option['type']}: {option['meaning']}")


def gather() -> dict:
    from penstock import _penstock

    stat = os.statvfs("/dev/shm")
    keys = ("name", "environment", "type", "value", "meaning")
    return {
        "version": importlib.metadata.version("penstock") if _installed("penstock") else "from a build folder",
        "python": platform.python_version(),
        "cores": {"usable": len(os.sched_getaffinity(0)), "online": os.cpu_count()},
        "shared_memory": {"size_bytes": stat.f_blocks * stat.f_frsize, "free_bytes": stat.f_bavail * stat.f_frsize},
        "mpi": _mpi(Path(_penstock.library_directory())),
        "options": [dict(zip(keys, row, strict=True)) for row in _penstock.option_table()],
    }


def _mpi(libraries: Path) -> dict:
    found = {
        "built_for": [abi for abi in ("mpich", "openmpi", "abi") if any(libraries.glob(f"libpenstock_{abi}.so*"))],
        "mpi4py": importlib.metadata.version("mpi4py") if _installed("mpi4py") else None,
        "library": None,
        "abi": None,
        "problem": None,
    }
    # mpi4py without a loadable MPI library raises ImportError or RuntimeError; both are an answer here, not a failure.
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
