"""Ranks that are killed in the middle of operations: what they leave behind, and what it costs the others."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

pytest.importorskip("mpi4py")
pytestmark = pytest.mark.skipif(shutil.which("mpiexec") is None, reason="no mpiexec in PATH")

RANKS = 3
FOREVER = """
import os, numpy as np, penstock as ps
from mpi4py import MPI
with ps.Comm(MPI.COMM_WORLD, progress_cores=1) as comm:
    inputs = [np.ones(300_000) for _ in range(4)]
    outputs = [np.empty_like(x) for x in inputs]
    os.write(1, f"pid {os.getpid()}\\n".encode())
    while True:
        for request in [comm.Iallreduce(x, y) for x, y in zip(inputs, outputs)]:
            request.Wait()
"""
SURVIVOR = """
import os, time, numpy as np, penstock as ps
from mpi4py import MPI
comm = ps.Comm(MPI.COMM_WORLD, progress_cores=1)
x, y = np.ones(300_000), np.empty(300_000)
for _ in range(20):
    comm.Allreduce(x, y)
if comm.rank == 1:
    comm.Iallreduce(x, y)
    # For the others this rank is dead: its memory and files are gone. Its launcher has no reason to end the job.
    os.execv("/bin/sleep", ["sleep", "4"])
try:
    for _ in range(3):
        comm.Allreduce(x, y)
    os.write(1, b"no error\\n")
except ps.Error as error:
    before = time.process_time()
    time.sleep(1)
    os.write(1, f"{error.code} {time.process_time() - before:.3f}\\n".encode())
os._exit(0)
"""


def segments() -> set[str]:
    return {name for name in os.listdir("/dev/shm") if "penstock" in name}


def mpiexec(*arguments: str, script: str) -> list[str]:
    return ["mpiexec", *arguments, "-n", str(RANKS), sys.executable, "-c", script]


def test_killed_ranks_leave_no_shared_memory() -> None:
    for moment_s in (0.0, 0.05, 0.2):
        before = segments()
        job = subprocess.Popen(mpiexec(script=FOREVER), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            ranks = [int(job.stdout.readline().split()[1]) for _ in range(RANKS)]
            time.sleep(moment_s)
            for rank in ranks:
                os.kill(rank, signal.SIGKILL)
            job.wait(60)
        finally:
            job.kill()
            job.wait()
        assert segments() <= before
    # And a new job starts as if nothing had been.
    script = "import penstock as ps; from mpi4py import MPI; ps.Comm(MPI.COMM_WORLD).Barrier()"
    subprocess.run(mpiexec(script=script), check=True, timeout=60, capture_output=True)


def test_survivors_get_an_error_and_their_workers_sleep() -> None:
    done = subprocess.run(mpiexec(script=SURVIVOR), capture_output=True, text=True, timeout=120, check=False)
    answers = [line.split() for line in done.stdout.splitlines() if line.startswith(("peer_failed ", "no error"))]
    assert [answer[0] for answer in answers] == ["peer_failed"] * (RANKS - 1), done.stdout + done.stderr
    # A worker that span would take the whole second.
    assert all(float(seconds) < 0.5 for _, seconds in answers), done.stdout
