"""A Fortran program by each of MPI's interfaces, under MPIs that have a Fortran compiler (Debian's packages mpich and
libmpich-dev, openmpi-bin and libopenmpi-dev, with gfortran)."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from preload.installed import environment, run_installed, tool
from preload.launch import ROOT

SOURCE = ROOT / "tests/preload/programs/fortran.F90"
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


@pytest.mark.parametrize("mpi", ["mpich", "openmpi"])
@pytest.mark.parametrize("interface", ["MPIF_H", "USE_MPI", "USE_MPI_F08"])
def test_fortran(mpi: str, interface: str, tmp_path: Path) -> None:
    if shutil.which("gfortran") is None:
        pytest.skip("no gfortran here")
    compiler = tool("mpifort", mpi)
    flags = ["-O1", "-w", "-fallow-argument-mismatch", f"-D{interface}"]
    subprocess.run(
        [compiler, *flags, "-o", "program", str(SOURCE)], cwd=tmp_path, env=environment(), check=True, timeout=120
    )
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
