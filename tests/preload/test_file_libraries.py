"""Libraries that write files through MPI: parallel HDF5, h5py and PnetCDF, unchanged, with their files in the store. Needs
an MPI with its compiler and these libraries built for it (Debian: libhdf5-mpich-dev, libhdf5-openmpi-dev, libpnetcdf-dev,
python3-h5py-mpi)."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from penstock.store import Store
from preload.installed import environment, flags_of, run_installed, tool
from preload.launch import ROOT

#: The program, and what pkg-config calls its library, by the MPI.
LIBRARIES = {
    ("hdf5", "mpich"): "hdf5-mpich",
    ("hdf5", "openmpi"): "hdf5-openmpi",
    ("pnetcdf", "openmpi"): "pnetcdf",
}


@pytest.mark.parametrize(("name", "mpi"), LIBRARIES)
def test_its_files_go_to_the_store(name: str, mpi: str, tmp_path: Path) -> None:
    compiler = tool("mpicc", mpi)
    flags = flags_of(LIBRARIES[name, mpi])
    source = str(ROOT / f"tests/preload/programs/libraries/{name}.c")
    subprocess.run([compiler, "-O1", "-o", "program", source, *flags], cwd=tmp_path, check=True)
    report = tmp_path / "report.json"
    # PnetCDF reads the first bytes of a file that it opens again without MPI.
    exports = name == "pnetcdf"
    options = ["--files", "*.dat", *(["--export-files"] if exports else [])]
    done = run_installed(mpi, 3, report, ["./program", "field.dat"], tmp_path, options)
    assert done.status == 0, done.err
    assert f"{name}: ok" in done.out
    assert done.report is not None, done.err
    # PnetCDF opens it on each rank for itself, too.
    assert all(row["stored"] for row in done.report["files"]), done.err
    assert {row["path"] for row in done.report["files"]} == {str(tmp_path / "field.dat")}
    assert (tmp_path / "field.dat").exists() == exports
    # The bytes in the store are a whole file: the program reads it natively.
    blob = Store(f"file://{tmp_path}/penstock.store").open("field.dat")
    assert any(tag.startswith("closed-") for tag in blob.tags)
    (tmp_path / "exported.dat").write_bytes(blob.read_bytes())
    checked = run_installed(mpi, 3, None, ["./program", "exported.dat", "read"], tmp_path)
    assert checked.status == 0, checked.err
    assert f"{name}: ok" in checked.out


H5PY = """
import sys
import h5py
import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
with h5py.File(sys.argv[1], "w", driver="mpio", comm=comm) as file:
    rows = file.create_dataset("rows", (comm.size, 1000), "f8", chunks=(1, 300))
    with rows.collective:
        rows[comm.rank] = np.arange(1000) + comm.rank
    file.create_dataset("alone", (comm.size,), "i4")[comm.rank] = comm.rank
    file.attrs["ranks"] = comm.size
with h5py.File(sys.argv[1], "r", driver="mpio", comm=comm) as file:
    assert file.attrs["ranks"] == comm.size
    other = (comm.rank + 1) % comm.size
    assert (file["rows"][other] == np.arange(1000) + other).all()
    assert list(file["alone"]) == list(range(comm.size))
if comm.rank == 0:
    print("h5py: ok")
"""


def test_h5py(tmp_path: Path) -> None:
    python = "/usr/bin/python3"
    asked = [python, "-c", "import h5py, mpi4py; assert h5py.get_config().mpi"]
    always = {**environment(), "H5PY_ALWAYS_USE_MPI": "1"}  # Debian's package has a serial build, too
    found = os.access(python, os.X_OK) and subprocess.run(asked, env=always, capture_output=True, check=False)
    if not found or found.returncode != 0:
        pytest.skip("the system's Python has no h5py for MPI")
    tool("mpiexec", "openmpi")
    script = tmp_path / "script.py"
    script.write_text(H5PY)
    command = [python, str(script), "field.h5"]
    done = run_installed("openmpi", 3, tmp_path / "report.json", command, tmp_path, ["--files", "*.h5"])
    assert done.status == 0, done.err
    assert "h5py: ok" in done.out
    assert done.report is not None, done.err
    (row,) = done.report["files"]
    assert row["stored"] is True
    assert not (tmp_path / "field.h5").exists()
