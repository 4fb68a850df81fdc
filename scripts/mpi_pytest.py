"""Runs pytest on every rank of an MPI job: mpiexec -n N python scripts/mpi_pytest.py JUNIT_PREFIX [PYTEST ARGUMENTS]

Each rank writes PREFIX.<rank>.xml and PREFIX.<rank>.log. The tests are collective, so a rank whose test failed can
leave the others waiting for it: it ends its own session at once and, if the job has not come to its end soon after,
takes all ranks down with MPI_Abort. A test that hangs is shown with the stacks of its threads and ends its rank.
"""

from __future__ import annotations

import array
import contextlib
import os
import sys
import tempfile
import time
import traceback
from pathlib import Path

import pytest
from mpi4py import MPI

GRACE_S = float(os.environ.get("PENSTOCK_MPI_PYTEST_GRACE_S", "20"))
# As for the other tests, see testing.py: only a hang takes longer.
TEST_TIMEOUT_S = float(os.environ.get("PENSTOCK_TEST_HUNG_S", "1800"))


def main() -> int:
    prefix, arguments = sys.argv[1], sys.argv[2:]
    # Apart from the tests' own: after a failure the other ranks may still be in one of its collectives.
    comm = MPI.COMM_WORLD.Dup()
    log_path = Path(f"{prefix}.{comm.rank}.log")
    sys.stdout.flush()
    log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    options = [f"--junitxml={prefix}.{comm.rank}.xml", "--maxfail=1", "-v", "-rs", "-p", "no:cacheprovider"]
    # Other plugins only cost every rank their imports.
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    options += ["-p", "pytest_timeout", f"--timeout={TEST_TIMEOUT_S:.0f}", "--timeout-method=thread"]
    # Left to itself, pytest tidies up a directory that the sessions of all ranks share, and they meet there.
    with tempfile.TemporaryDirectory(prefix="penstock-rank-", ignore_cleanup_errors=True) as own:
        try:
            status = int(pytest.main([*options, f"--basetemp={own}/tests", *arguments]))
        except Exception:  # pytest itself failed: nobody else would hear of it
            traceback.print_exc()
            comm.Abort(1)
        if status in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            status = 0
        return worst_of_all(comm, status)


def worst_of_all(comm: MPI.Comm, status: int) -> int:
    """Meet the others; a failed rank that never does must not leave the job hanging."""
    worst = array.array("i", [status])
    meeting = comm.Iallreduce(MPI.IN_PLACE, worst, op=MPI.MAX)
    deadline = time.monotonic() + GRACE_S
    while not meeting.Test():
        if status and time.monotonic() > deadline:
            comm.Abort(1)
        time.sleep(0.01)
    return worst[0]


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        sys.exit(main())
