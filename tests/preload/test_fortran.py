"""Fortran programs by each of MPI's interfaces, under MPIs that have a Fortran compiler (Debian's packages mpich and
libmpich-dev, openmpi-bin and libopenmpi-dev, with gfortran)."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from preload.installed import environment, run_installed, tool
from preload.launch import ROOT

PROGRAMS = ROOT / "tests/preload/programs"
BLOCKING = {
    "bcast": 2,
    "allgather": 2,
    "alltoall": 1,
    "gather": 2,
    "scatter": 2,
    "allgatherv": 1,
    "gatherv": 1,
    "scatterv": 1,
    "alltoallv": 1,
    "alltoallw": 1,
    "allreduce": 2,
    "reduce": 1,
    "scan": 1,
    "exscan": 1,
    "reduce_scatter_block": 1,
    "reduce_scatter": 1,
    "neighbor_alltoall": 1,
    "neighbor_allgather": 1,
}
NONBLOCKING = {"iallreduce": 2, "ibcast": 1}


INTERFACES = ["MPIF_H", "USE_MPI", "USE_MPI_F08"]


def compiled(mpi: str, name: str, folder: Path, *definitions: str) -> subprocess.CompletedProcess[str]:
    """Compiles a program to `folder`/program."""
    if shutil.which("gfortran") is None:
        pytest.skip("no gfortran here")
    flags = [
        "-O1",
        "-w",
        "-fallow-argument-mismatch",
        "-ffree-line-length-none",
        *(f"-D{word}" for word in definitions),
    ]
    words = [tool("mpifort", mpi), *flags, "-o", "program", str(PROGRAMS / f"{name}.F90")]
    return subprocess.run(
        words, cwd=folder, env=environment(), capture_output=True, text=True, check=False, timeout=120
    )


@pytest.mark.parametrize("mpi", ["mpich", "openmpi"])
@pytest.mark.parametrize("interface", INTERFACES)
def test_fortran(mpi: str, interface: str, tmp_path: Path) -> None:
    made = compiled(mpi, "fortran", tmp_path, interface)
    assert made.returncode == 0, made.stderr
    done = run_installed(mpi, 3, tmp_path / "report.json", ["./program"], tmp_path)
    assert done.status == 0, done.err
    assert "fortran: ok" in done.out
    assert done.report is not None, done.err
    rows = done.report["operations"]
    served = {operation: sum(row["served"] for row in rows if row["operation"] == operation) for operation in BLOCKING}
    assert served == BLOCKING, done.err
    for operation, calls in NONBLOCKING.items():
        own = [row for row in rows if row["operation"] == operation]
        assert sum(row["served"] + row["native"] for row in own) == calls, done.err
        assert all("no hook for progress" in row["why_native"] for row in own if row["native"]), done.err
    assert sum(row["native"] for row in rows if row["operation"] == "allreduce") == 1  # of logicals


@pytest.mark.parametrize("mpi", ["mpich", "openmpi"])
@pytest.mark.parametrize("interface", INTERFACES)
def test_completions(mpi: str, interface: str, tmp_path: Path) -> None:
    """Each collective that does not block, in each call that completes requests."""
    if compiled(mpi, "completions", tmp_path, interface, "HAVE_PERSISTENT").returncode != 0:  # Open MPI 4 has none
        made = compiled(mpi, "completions", tmp_path, interface)
        assert made.returncode == 0, made.stderr
    done = run_installed(mpi, 3, tmp_path / "report.json", ["./program"], tmp_path)
    assert done.status == 0, done.out + done.err
    (line,) = (line for line in done.out.splitlines() if line.startswith("completions: ok "))
    nonblocking, persistent = (int(word) for word in line.split()[2:])
    assert nonblocking >= 3 * 6
    for operation in ["barrier", *BLOCKING, "neighbor_allgatherv", "neighbor_alltoallv"]:
        for form, starts in ((f"i{operation}", nonblocking), (f"{operation}_init", persistent)):
            native = done.native(form)
            assert all("no hook for progress" in why for why in native), (form, done.err)
            assert done.served(form) == (0 if native else starts), (form, done.err)
            assert sum(native.values()) in (0, starts), (form, done.err)
