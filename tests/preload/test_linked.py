"""Programs that are linked to the preload library before MPI, and started without LD_PRELOAD."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from preload.fortran import MPIS as FORTRAN_MPIS
from preload.fortran import compiled, run
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
    )
    done = mpiexec(abi, 3, made, PENSTOCK_PRELOAD_REPORT=str(report), **SETTINGS)
    assert done.status == 0, done.err
    assert "collectives: ok" in done.out
    for operation in ("bcast", "allreduce", "alltoallw"):
        assert served(report, operation) > 0, (operation, done.err)


# Not with Debian's MPICH, whose library has another file name than the one that the preload library needs.
@pytest.mark.parametrize("mpi", [mpi for mpi in FORTRAN_MPIS if mpi != "debian-mpich"])
@pytest.mark.parametrize("interface", ["MPIF_H", "USE_MPI_F08"])
def test_fortran(mpi: str, interface: str, tmp_path: Path) -> None:
    made = compiled(mpi, "fortran", interface, tmp_path, *flags(mpi.removeprefix("debian-")))
    assert made.returncode == 0, made.stderr
    report = tmp_path / "report.json"
    done = run(mpi, 3, tmp_path, None, PENSTOCK_PRELOAD_REPORT=str(report), **SETTINGS)
    assert done.status == 0, done.err
    assert "fortran: ok" in done.out
    for operation in ("bcast", "allreduce", "alltoallw"):
        assert served(report, operation) > 0, (operation, done.err)
