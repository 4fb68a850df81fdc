"""ScaLAPACK's own test programs pass with Penstock preloaded, and Penstock executes their calls."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from scalapack.library import MPI_NAME, OURS, ROOT, scalapack_name

if int(os.environ.get("PENSTOCK_SCALAPACK_JOB", "0")):
    pytest.skip("starts the jobs", allow_module_level=True)

PROGRAMS = Path("/usr/lib") / f"{os.uname().machine}-linux-gnu/scalapack/{MPI_NAME}-tests"
DATA = Path("/usr/share/scalapack")
RANKS = 4

needs_scalapack = pytest.mark.skipif(
    scalapack_name() is None, reason="ScaLAPACK is not installed; `./dev test --all` does that on Debian"
)


def mpiexec(ranks: int, *command: str | Path, cwd: Path, **environment: str | Path) -> str:
    launch = [ROOT / "dev", "exec", "mpiexec", "-n", ranks, "env"]
    launch += [f"{key}={value}" for key, value in environment.items()]
    done = subprocess.run(
        [str(word) for word in (*launch, *command)],
        cwd=cwd,
        env={**os.environ, "PENSTOCK_MPI": MPI_NAME},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout + done.stderr


def served(folder: Path) -> dict[str, dict[str, int]]:
    """Return the counts in the report of one process, by routine."""
    for path in folder.glob("report.*.jsonl"):
        for line in path.read_text().splitlines():
            facts = json.loads(line)
            if "scalapack" in facts:
                return {counts.pop("routine"): counts for counts in facts["scalapack"]}
    return {}


def wide_scalapack(folder: Path) -> Path:
    """Build the parts of a ScaLAPACK with integers of 64 bits that Penstock calls."""
    path = folder / "libwide.so"
    source = Path(__file__).with_name("ilp64.c")
    command = ["cc", "-shared", "-fPIC", f'-DSCALAPACK="{scalapack_name()}"', source, "-ldl", "-o", path]
    subprocess.run([str(word) for word in command], check=True)
    return path


def run_tests(file: str, ranks: int, integers: str, folder: Path) -> None:
    """Run a file of tests on all ranks of a job, in whose BLACS integers have this length."""
    command = [sys.executable, ROOT / "scripts/mpi_pytest.py", folder / "rank", Path(__file__).with_name(file)]
    environment = {"PENSTOCK_SCALAPACK_JOB": "1", "PENSTOCK_REPORT": folder / "report"}
    if integers == "ilp64":
        environment["PENSTOCK_SCALAPACK_ILP64"] = wide_scalapack(folder)
    try:
        mpiexec(ranks, *command, cwd=folder, **environment)
    except AssertionError as error:
        logs = "\n".join(path.read_text()[-3000:] for path in sorted(folder.glob("rank.*.log")))
        raise AssertionError(f"{error}\n{logs}") from None
    assert "passed" in (folder / "rank.0.log").read_text()


@needs_scalapack
@pytest.mark.parametrize(
    ("ranks", "integers"), [(1, "lp64"), (2, "lp64"), (4, "lp64"), (6, "lp64"), (1, "ilp64"), (4, "ilp64")]
)
def test_calls(ranks: int, integers: str, tmp_path: Path) -> None:
    run_tests("test_calls.py", ranks, integers, tmp_path)
    counts = served(tmp_path)
    assert counts["PDGEMR2D"]["calls"] > 36
    assert counts["PDTRAN"]["passed_on"] == 1
    assert counts["PIGEMR2D"]["plans"] < counts["PIGEMR2D"]["calls"] / 2


@needs_scalapack
@pytest.mark.parametrize("integers", ["lp64", "ilp64"])
def test_integers_of_another_length_are_an_error(integers: str, tmp_path: Path) -> None:
    run_tests("test_integers.py", 2, integers, tmp_path)


@pytest.mark.parametrize(
    ("program", "routine"),
    [("xssvd", "PSGEMR2D"), ("xdsvd", "PDGEMR2D"), ("xcsep", "PCGEMR2D"), ("xzsep", "PZGEMR2D")],
)
def test_drivers_of_scalapack(program: str, routine: str, tmp_path: Path) -> None:
    """ScaLAPACK redistributes matrices itself when it computes singular values and eigenvalues."""
    if not (PROGRAMS / program).exists():
        pytest.skip(f"there is no {PROGRAMS / program}; `./dev test --all` installs it on Debian")
    for data in DATA.glob("*.dat"):
        shutil.copy(data, tmp_path)
    for _ in range(3):  # other random matrices each time; some fail even without Penstock
        said = mpiexec(RANKS, PROGRAMS / program, cwd=tmp_path, LD_PRELOAD=OURS, PENSTOCK_REPORT=tmp_path / "report")
        assert "passed" in said.lower(), said[-3000:]
        failures = [line for line in said.splitlines() if "FAILED" in line or "Failed" in line]
        if not failures:
            break
    assert not failures, failures
    counts = served(tmp_path)[routine]
    assert counts["calls"] > 0 and counts["failed"] == 0 and counts["passed_on"] == 0


def test_beside_collectives(tmp_path: Path) -> None:
    """Under `penstock run` the program's collectives are Penstock's, too."""
    if not (PROGRAMS / "xdsvd").exists():
        pytest.skip(f"there is no {PROGRAMS / 'xdsvd'}; `./dev test --all` installs it on Debian")
    for data in DATA.glob("*.dat"):
        shutil.copy(data, tmp_path)
    report = tmp_path / "collectives.json"
    command = ["penstock", "run", "--report", report, PROGRAMS / "xdsvd"]
    always = {"PENSTOCK_PRELOAD_AFTER": "0", "PENSTOCK_PRELOAD_MEASURE": "off"}
    said = mpiexec(RANKS, *command, cwd=tmp_path, LD_PRELOAD=OURS, PENSTOCK_REPORT=tmp_path / "report", **always)
    assert "passed" in said.lower(), said[-3000:]
    counts = served(tmp_path)["PDGEMR2D"]
    assert counts["calls"] > 0 and counts["failed"] == 0 and counts["passed_on"] == 0
    assert sum(row["served"] for row in json.loads(report.read_text())["operations"]) > 0


@pytest.mark.parametrize("letter", "isdcz")
def test_redistribution_tester_of_scalapack(letter: str, tmp_path: Path) -> None:
    """Debian does not compile REDIST/TESTING of ScaLAPACK's sources: there and back between 90 pairs of layouts."""
    if scalapack_name() is None:
        pytest.skip("ScaLAPACK is not installed; `./dev test --all` does that on Debian")
    if "PENSTOCK_SCALAPACK_SOURCE" not in os.environ:
        tried = os.environ.get("PENSTOCK_SCALAPACK_NO_SOURCE", "not tried; `./dev test --all` does")
        pytest.skip(f"no sources of ScaLAPACK (give their folder in PENSTOCK_SCALAPACK_SOURCE): {tried}")
    testing = Path(os.environ["PENSTOCK_SCALAPACK_SOURCE"]) / "REDIST/TESTING"
    library = next(Path("/usr/lib").glob(f"*/{scalapack_name()}"))
    command = ["cc", "-std=gnu89", "-w", "-DAdd_", f"-I{testing}", testing / f"p{letter}gemrdrv.c", library]
    command += ["-Wl,--allow-shlib-undefined", "-lm", "-o", tmp_path / "tester"]
    subprocess.run([str(word) for word in command], check=True)
    shutil.copy(testing / "GEMR2D.dat", tmp_path)
    said = mpiexec(RANKS, "./tester", cwd=tmp_path, LD_PRELOAD=OURS, PENSTOCK_REPORT=tmp_path / "report")
    tests = int((testing / "GEMR2D.dat").read_text().split()[0])
    assert said.count("TEST PASSED OK") == tests
    counts = served(tmp_path)[f"P{letter.upper()}GEMR2D"]
    assert counts["calls"] == 2 * tests and counts["failed"] == 0
