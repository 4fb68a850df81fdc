"""Runs pytest on every rank of an MPI job: mpiexec -n N python scripts/mpi_pytest.py JUNIT_PREFIX [PYTEST ARGUMENTS]

Each rank writes PREFIX.<rank>.xml and PREFIX.<rank>.log. Tests are collective, so a rank whose test failed may leave the others
waiting. It therefore ends its session at once and, if the job does not end soon after, calls MPI_Abort. A hanging test is
reported with the stacks of its threads, and ends its rank.
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
# Only a hang takes this long; see testing.py.
TEST_TIMEOUT_S = float(os.environ.get("PENSTOCK_TEST_HUNG_S", "1800"))


def main() -> int:
    prefix, arguments = sys.argv[1], sys.argv[2:]
    # Its own communicator: after a failure other ranks may still be in a collective of the tests.
    comm = MPI.COMM_WORLD.Dup()
    log_path = Path(f"{prefix}.{comm.rank}.log")
    sys.stdout.flush()
    log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    options = [f"--junitxml={prefix}.{comm.rank}.xml", "--maxfail=1", "-v", "-rs", "-p", "no:cacheprovider"]
    # Other plugins would only add import time on every rank.
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    options += ["-p", "pytest_timeout", f"--timeout={TEST_TIMEOUT_S:.0f}", "--timeout-method=thread"]
    # By default pytest cleans up a directory that all ranks share, which fails when they do so at once.
    with tempfile.TemporaryDirectory(prefix="penstock-rank-", ignore_cleanup_errors=True) as own:
        try:
            status = int(pytest.main([*options, f"--basetemp={own}/tests", *arguments]))
        except Exception:  # pytest itself failed; the other ranks must hear of it
            traceback.print_exc()
            comm.Abort(1)
        if status in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            status = 0
        return worst_of_all(comm, status)


def worst_of_all(comm: MPI.Comm, status: int) -> int:
    """The worst status of all ranks. Aborts the job if a failed rank waits in vain for the others."""
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
