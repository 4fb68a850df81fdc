"""The algorithms of other MPIs on the same platform: SimGrid's SMPI runs a small MPI program with their selectors."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Generator, Sequence
from pathlib import Path

from penstock.error import Error
from penstock.simulation import Result, Team, last_words, platform_file, running

__all__ = ["OPERATIONS", "SELECTORS", "simulate"]

#: As SMPI calls them.
SELECTORS = ("ompi", "mpich", "mvapich2", "impi")

#: That collectives.c knows.
OPERATIONS = ("bcast", "reduce", "allreduce", "gather", "scatter", "allgather", "alltoall", "barrier")

_SOURCE = Path(__file__).parent / "collectives.c"


def _settings(team: Team, selector: str) -> list[str]:
    """The network of penstock-simgrid, with the overhead of a message and the eager limit of the platform. Unlike there, unless
    with equal charges, a message has no gap, and a long one no handshake: SMPI would charge them by factors that it
    calibrates for other clusters."""
    overhead = f"0:{team.machine['network']['overhead_seconds']:.9g}:0"
    longer = int(team.machine["network"]["eager_bytes"]) + 1  # SMPI's limits are lengths that are no longer eager
    settings = {
        "network/model": "CM02",
        "network/crosstraffic": 0,
        "network/TCP-gamma": 0,
        "network/latency-factor": 1,
        "network/bandwidth-factor": 1,
        "smpi/coll-selector": selector,
        "smpi/os": overhead,
        "smpi/ois": overhead,
        "smpi/or": overhead,
        "smpi/async-small-thresh": longer,
        "smpi/send-is-detached-thresh": longer,
        "smpi/simulate-computation": "no",
        "smpi/shared-malloc-blocksize": 64
        << 20,  # else each MiB of each buffer is a mapping, of which a process may have 65,530
        "smpi/wtime": 0,
        "smpi/init": 0,
        "contexts/stack-size": 1024,
        "contexts/guard-size": 0,
    }
    return [f"--cfg={name}:{value}" for name, value in settings.items()]


def simulate(
    platform: str, team: Team, operation: str, nbytes: Sequence[int], selector: str, root: int = 0
) -> Generator[Result, None, None]:
    """Yields the result of each length as it is known."""
    if operation not in OPERATIONS:
        raise Error(f"operation is {operation!r}; with peers expected one of {', '.join(OPERATIONS)}")
    path = platform_file(platform)
    compiler, launcher = _tool("smpicc"), _tool("smpirun")
    with tempfile.TemporaryDirectory(prefix="penstock-") as name, tempfile.TemporaryFile("w+") as errors:
        folder = Path(name)
        program, hosts = folder / "collectives", folder / "hosts"
        done = subprocess.run([compiler, "-O1", "-o", program, _SOURCE], capture_output=True, text=True, check=False)
        if done.returncode:
            raise Error(
                "smpicc could not compile Penstock's program for peers", "unsupported", cause=done.stderr.strip()
            )
        hosts.write_text("".join(f"{host}:{team.ranks_per_node}\n" for host in team.hosts))
        node = team.machine["node"]
        command = [launcher, "-np", str(team.ranks), "-platform", str(path), "-hostfile", str(hosts), "-no-privatize"]
        command += [*_settings(team, selector), "--log=root.thresh:critical", str(program), operation, str(root)]
        command += [f"{1e12 * node['combine_seconds_per_byte']:.9g}", f"{node['cache_bytes']:.0f}"]
        command += [f"{node['uncached_factor']:.9g}", *map(str, nbytes)]
        with running(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, cwd=folder) as process:
            assert process.stdout is not None
            for line in process.stdout:
                words = line.split()
                yield Result(selector, int(words[0]), float(words[1]))
            status = process.wait()
        if status:
            raise Error(f"SMPI could not simulate {operation} with the selector {selector}", cause=last_words(errors))


def _tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise Error(f"there is no {name}, which comes with SimGrid; install it (Debian: libsimgrid-dev)", "unsupported")
    return found
