"""Programs of PyTorch that are launched by a test, rather than collective tests as in tests/pytorch."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(os.environ.get("PENSTOCK_ROOT", Path(__file__).parents[2]))
PYTHON = ROOT / "build/torch-env/bin/python"
TIMEOUT_S = 900

Run = Callable[..., subprocess.CompletedProcess]


@pytest.fixture(autouse=True)
def _needs_torch() -> None:
    if not PYTHON.exists():
        pytest.skip("PyTorch is not in build/torch-env; ./dev setup --with torch installs it")


@pytest.fixture
def run() -> Run:
    """Run a program with `ranks` processes of an MPI; without `ranks` as it is."""

    def launch(*command: object, ranks: int = 0, mpi: str = "mpich", **environment: str) -> subprocess.CompletedProcess:
        launcher = ["mpiexec", "-n", str(ranks)] if ranks else []
        return subprocess.run(
            [str(word) for word in (ROOT / "dev", "exec", *launcher, *command)],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
            env={**os.environ, "PENSTOCK_MPI": mpi, **environment},
            cwd=ROOT,
        )

    return launch
