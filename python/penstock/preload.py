"""Finds the preload library for a program: which MPI it uses, and whether Penstock has been built for that MPI."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from penstock import _penstock
from penstock.error import Error

#: The name of an MPI's library → its ABI.
_ABIS = {"libmpi.so.12": "mpich", "libmpi.so.40": "openmpi", "libmpi_abi.so.1": "abi", "libmpi_abi.so.0": "abi"}
#: Debian's own name for MPICH's library. A library that needs libmpi.so.12 would load a second MPI.
_RENAMED = {"libmpich.so.12": "MPICH under Debian's name"}
#: Variables that a launcher sets for each process → the ABI of its MPI.
_LAUNCHERS = {"OMPI_COMM_WORLD_RANK": "openmpi", "PMI_RANK": "mpich"}
ABIS = tuple(dict.fromkeys(_ABIS.values()))


def rank(environment: Mapping[str, str] = os.environ) -> int:
    """The rank of this process, as the launcher says; 0 without one."""
    for name in ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"):
        if environment.get(name, "").isdigit():
            return int(environment[name])
    return 0


def library(abi: str) -> Path:
    """The preload library for an ABI. Raises Error("unsupported") if it has not been built."""
    folder = Path(_penstock.library_directory())
    path = folder / f"libpenstock_preload_{abi}.so"
    if path.exists():
        return path
    built = sorted(p.name[len("libpenstock_preload_") : -len(".so")] for p in folder.glob("libpenstock_preload_*.so"))
    raise Error(
        f"this Penstock has no preload library for the {abi} ABI, only for {', '.join(built) or 'no MPI at all'}; build it "
        "with that MPI in PENSTOCK_MPI_ROOTS",
        "unsupported",
    )


def _loaded_by(program: Path) -> list[str]:
    """The shared libraries that a program loads at its start, as ldd prints them. Empty for a script."""
    with program.open("rb") as file:
        if file.read(4) != b"\x7fELF":
            return []
    done = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False)
    if done.returncode != 0 or "statically linked" in done.stdout:
        raise Error(
            f"{program} is linked statically, so nothing can be preloaded; link it to a shared MPI", "unsupported"
        )
    return [line.strip() for line in done.stdout.splitlines()]


def abi_of(program: str, environment: Mapping[str, str] = os.environ) -> str:
    """The ABI of the MPI that a program uses: the one that it is linked to, or the launcher's for scripts and for
    programs that load MPI later, such as Python. Raises Error("unsupported") if it is none that Penstock knows."""
    path = shutil.which(program)
    if path is None:
        raise Error(f"there is no program {program!r}; expected a path, or a name on PATH")
    for line in _loaded_by(Path(path)):
        name = Path(line.split(" ")[0]).name
        if name in _RENAMED:
            raise Error(
                f"{program} uses {_RENAMED[name]} ({name}), for which there is no preload library", "unsupported"
            )
        if name in _ABIS and "not found" in line:
            raise Error(
                f"{program} needs {name}, which is not found here; set LD_LIBRARY_PATH to its MPI", "unsupported"
            )
        if name in _ABIS:
            return _ABIS[name]
    for variable, abi in _LAUNCHERS.items():
        if variable in environment:
            return abi
    raise Error(
        f"{program} is not linked to an MPI, and no mpiexec has started it; if it loads MPI later, start it by mpiexec or "
        "name the ABI with --mpi",
        "unsupported",
    )


def settings(
    abi: str, report: str, files: Sequence[str] = (), environment: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """The environment variables that preload Penstock. `files`: globs of the MPI files that go to a store."""
    before = environment.get("LD_PRELOAD", "")
    added = {
        "LD_PRELOAD": f"{library(abi)}{':' + before if before else ''}",
        "PENSTOCK_PRELOAD_REPORT": report,
    }
    if files:
        added["PENSTOCK_FILES"] = ":".join(files)
    return added
