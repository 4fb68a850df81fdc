"""MPIs that the system has besides those that Penstock was built with."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from preload.launch import HANGS_S, Done


def tool(name: str, mpi: str) -> str:
    """A compiler or the launcher of an MPI, as Debian names them. Skips the test without one."""
    found = shutil.which(f"{name}.{mpi}", path="/usr/bin:/usr/local/bin")
    if found is None:
        pytest.skip(f"no {name}.{mpi} here")
    return found


def flags_of(package: str) -> list[str]:
    """What the compiler needs for a library. Skips the test without it."""
    if shutil.which("pkg-config") is None:
        pytest.skip("no pkg-config here")
    done = subprocess.run(["pkg-config", "--cflags", "--libs", package], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"no {package} here")
    return done.stdout.split()


def environment() -> dict[str, str]:
    """Without what this session's own MPI has set."""
    launchers = ("PMI", "OMPI_", "PRTE", "HYDRA", "MPI", "OPAL_", "LD_LIBRARY_PATH")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(launchers)}
    return {
        **clean,
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "PENSTOCK_PRELOAD_AFTER": "0",
        "PENSTOCK_PRELOAD_MEASURE": "off",
    }


def run_installed(
    mpi: str,
    ranks: int,
    report: Path | None,
    command: Sequence[str],
    folder: Path,
    options: Sequence[str] = (),
    timeout_s: float = HANGS_S,
    **variables: str,
) -> Done:
    """Run a command by the launcher of an installed MPI: with a report under `penstock run`, otherwise natively."""
    words = [tool("mpiexec", mpi), "-n", str(ranks)]
    if report is not None:
        words += [sys.executable, "-m", "penstock", "run", "--report", str(report), *options]
    done = subprocess.run(
        [*words, *command],
        cwd=folder,
        env={**environment(), **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
    )
    facts = json.loads(report.read_text()) if report is not None and report.exists() else None
    return Done(done.returncode, done.stdout, done.stderr, facts)
