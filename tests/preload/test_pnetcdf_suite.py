"""PnetCDF's own tests, compiled from Debian's source package with MPICH, end as natively with their files in the store, and write
the same bytes. Needs, besides the packages of test_file_libraries.py, dpkg-dev, autoconf, automake, libtool, m4 and a source
of packages' sources (deb-src)."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from preload.installed import run_installed, tool
from preload.launch import ALL

pytestmark = pytest.mark.skipif(not ALL, reason="with --all, which fetches the sources")

RANKS = 2
TIMEOUT_S = 600
#: Natively, too, two bytes of what it writes differ from run to run.
DIFFERS = "check_type"


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the programs are built, and where they are run."""
    for needed in ("apt-get", "dpkg-source", "autoreconf", "libtoolize", "m4"):
        if shutil.which(needed) is None:
            pytest.skip(f"no {needed} here")
    compilers = [f"{name}={tool(of, 'mpich')}" for name, of in (("MPICC", "mpicc"), ("MPICXX", "mpicxx"))]
    folder = tmp_path_factory.mktemp("sources")

    def run(*words: str, where: Path) -> None:
        done = subprocess.run(words, cwd=where, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]

    fetched = subprocess.run(
        ["apt-get", "source", "-q", "pnetcdf"], cwd=folder, capture_output=True, text=True, check=False, timeout=300
    )
    if fetched.returncode != 0:
        pytest.skip(f"apt-get source pnetcdf: {fetched.stderr.strip()[-200:]}")
    (unpacked,) = (found for found in folder.glob("pnetcdf-*") if found.is_dir())
    run("autoreconf", "-i", where=unpacked)
    # Static, since libtool would start programs with a shared library by scripts.
    options = ["--disable-cxx", "--disable-fortran", "--disable-shared", "--enable-static"]
    run("./configure", "--with-mpi=/usr", *options, *compilers, where=unpacked)
    tests = unpacked / "test/testcases"
    for where in (unpacked / "src", unpacked / "test/common", tests):
        run("make", "-j2", "check", "TESTS=", where=where)
    return tests


def names(programs: Path) -> list[str]:
    found = re.search(r"^TESTPROGRAMS = ((?:.*\\\n)*.*)", (programs / "Makefile.am").read_text(), re.MULTILINE)
    assert found is not None
    return found[1].replace("\\", " ").split()


@pytest.mark.timeout(3 * TIMEOUT_S)
def test_end_as_natively_with_the_same_bytes(programs: Path, tmp_path: Path) -> None:
    natively, stored = tmp_path / "natively", tmp_path / "stored"
    natively.mkdir()
    stored.mkdir()
    tested = names(programs)
    assert len(tested) > 30
    # PnetCDF looks at a file that it opens again without MPI, too.
    options = ["--files", "*", "--export-files"]
    for name in tested:
        command, report = str(programs / name), tmp_path / f"{name}.json"
        plain = run_installed("mpich", RANKS, None, [command, str(natively / "file.nc")], programs, (), TIMEOUT_S)
        done = run_installed("mpich", RANKS, report, [command, str(stored / "file.nc")], programs, options, TIMEOUT_S)
        assert done.status == plain.status, name + done.out[-2000:] + done.err[-4000:]
        assert done.report is not None, name + done.err
        assert done.report["files"], name
        assert all(row["stored"] for row in done.report["files"]), name + done.err
        if name != DIFFERS:
            assert (stored / "file.nc").read_bytes() == (natively / "file.nc").read_bytes(), name
        for folder in (natively, stored):
            shutil.rmtree(folder)
            folder.mkdir()
