"""Compiles Fortran programs and runs them: over the MPIs of build/mpi, by interfaces of Debian's packages that ./dev test fetches
into build/fortran, and over Debian's own MPIs, if they are installed (mpich and libmpich-dev, openmpi-bin and libopenmpi-dev)."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from preload.installed import environment, run_installed, tool
from preload.launch import ALL, ROOT, Done, mpiexec, preloaded

#: Debian's own are "debian-mpich" and "debian-openmpi".
MPIS = ["mpich", "openmpi", "debian-mpich", "debian-openmpi"]
INTERFACES = ["MPIF_H", "USE_MPI", "USE_MPI_F08"]
#: The module mpi has the library of mpif.h.
LIBRARIES = INTERFACES if ALL else ["MPIF_H", "USE_MPI_F08"]
FETCHED = ROOT / "build/fortran"
FLAGS = ["-O1", "-w", "-fallow-argument-mismatch", "-ffree-line-length-none"]


def debian(mpi: str) -> str | None:
    """The name of one of Debian's MPIs in Debian."""
    return mpi.removeprefix("debian-") if mpi.startswith("debian-") else None


def compiled(mpi: str, name: str, interface: str, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Compiles a program to `folder`/program. `options` may hold libraries to link before MPI."""
    if shutil.which("gfortran") is None:
        pytest.skip("no gfortran here")
    source = str(ROOT / f"tests/preload/programs/{name}.F90")
    words = [*FLAGS, f"-D{interface}", "-o", "program", source, *options]
    if installed := debian(mpi):
        words = [tool("mpifort", installed), *words]
    elif not FETCHED.exists():
        pytest.skip(f"no build/fortran: {os.environ.get('PENSTOCK_NO_FORTRAN', './dev test preload fetches it')}")
    else:
        libraries = sorted(str(library) for library in (FETCHED / mpi / "lib").iterdir())
        loader = f"-Wl,--no-as-needed,-rpath,{FETCHED / mpi / 'lib'},--unresolved-symbols=ignore-in-shared-libs"
        words = ["gfortran", "-I", str(FETCHED / mpi / "include"), *words, loader, *libraries]
    return subprocess.run(words, cwd=folder, env=environment(), capture_output=True, text=True, check=False)


def run(mpi: str, ranks: int, folder: Path, report: Path | None, **variables: str) -> Done:
    """Runs `folder`/program: with a report under `penstock run`, otherwise natively."""
    if installed := debian(mpi):
        return run_installed(installed, ranks, report, ["./program"], folder, **variables)
    if report is not None:
        return preloaded(mpi, ranks, report, folder / "program", **variables)
    return mpiexec(mpi, ranks, folder / "program", **variables)
