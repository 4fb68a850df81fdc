"""Suites that run on a store in a server which a folder of tests has started: of C++, and of MPI files."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOGS = ROOT / "build" / "test-logs"


def check_unit_store(filter: str, least: int, **environment: str) -> None:
    """The tests of unit_store that gtest's `filter` chooses: at least so many, of which none fails or is skipped."""
    done = subprocess.run(
        [ROOT / "build/release/tests/unit_store", f"--gtest_filter={filter}"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    failed = [line for line in done.stdout.splitlines() if "FAILED" in line or "Failure" in line]
    assert done.returncode == 0, "\n".join(failed) or done.stderr[-2000:]
    assert int(done.stdout.split("[  PASSED  ] ")[1].split()[0]) > least
    assert "SKIPPED" not in done.stdout


def check_mpi_files(mpi: str, ranks: int, place: str) -> None:
    """tests/mpi/test_file.py with its stores below the URL `place`."""
    LOGS.mkdir(parents=True, exist_ok=True)
    prefix = LOGS / f"{place.partition(':')[0]}-file-{mpi}.rank"
    command = [ROOT / "dev", "exec", "mpiexec", "-n", str(ranks), "python", ROOT / "scripts/mpi_pytest.py"]
    done = subprocess.run(
        [*command, prefix, ROOT / "tests/mpi/test_file.py"],
        env={**os.environ, "PENSTOCK_MPI": mpi, "PENSTOCK_TEST_PLACE": place},
        capture_output=True,
        text=True,
        check=False,
    )
    log = Path(f"{prefix}.0.log").read_text()
    assert done.returncode == 0, log[-3000:] + done.stderr[-1000:]
    assert " passed" in log and "failed" not in log
