"""mpi4py's own tests of collectives, requests and communicators give the same under `penstock run` as natively."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
from preload.launch import ALL, ROOT, Done, mpiexec, preloaded

MODULES = ("test_cco", "test_request", "test_grequest", "test_comm", "test_attributes", "test_errhandler")

pytestmark = pytest.mark.skipif(not ALL, reason="with --all, which fetches mpi4py's tests")


@pytest.fixture(scope="module")
def suite() -> Path:
    os.environ.setdefault("PENSTOCK_ROOT", str(ROOT))
    sys.path.insert(0, str(ROOT / "scripts"))
    import mpi4py_comparison

    try:
        return mpi4py_comparison.fetch(ROOT / "build/mpi4py-tests") / "main.py"
    except mpi4py_comparison.NoSourceError as reason:
        pytest.skip(str(reason))


def counts(done: Done) -> list[str]:
    """Return how many tests each rank ran, and their outcome."""
    assert done.status == 0, done.err[-4000:]
    return sorted(re.findall(r"^Ran \d+ tests|^OK.*|^FAILED.*", done.err + done.out, re.MULTILINE))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mpi", ["mpich", "openmpi"])
def test_mpi4py(mpi: str, suite: Path, tmp_path: Path) -> None:
    command = [sys.executable, suite, "-f", *(word for module in MODULES for word in ("-i", module))]
    natively = mpiexec(mpi, 2, *command, timeout_s=300)
    done = preloaded(mpi, 2, tmp_path / "report.json", *command, timeout_s=300)
    assert counts(done) == counts(natively)
    assert done.served("allreduce") > 100
    assert done.served("iallreduce") > 100
