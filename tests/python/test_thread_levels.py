"""Reductions that MPI runs, in programs that initialize MPI below MPI_THREAD_MULTIPLE: nothing starts them but calls of this rank."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

pytest.importorskip("mpi4py")
pytestmark = pytest.mark.skipif(shutil.which("mpiexec") is None, reason="no mpiexec in PATH")

SCRIPT = """
import faulthandler, os, sys
import mpi4py
mpi4py.rc.thread_level = sys.argv[1]
from mpi4py import MPI
import numpy as np, penstock as ps

# A hang ends the job, with stacks, before the test's own limit.
faulthandler.dump_traceback_later(float(os.environ.get("PENSTOCK_TEST_HUNG_S", "600")) / 2, exit=True)
assert MPI.Query_thread() < MPI.THREAD_MULTIPLE
comm = ps.Comm(MPI.COMM_WORLD, progress_cores=0)
other = comm.Dup()
n, rank = comm.size, comm.rank

def add(a, b, datatype):
    into = np.frombuffer(b, "f8")
    into += np.frombuffer(a, "f8")

plus = MPI.Op.Create(add, commute=True)
total, x = np.zeros(3), np.zeros(2)

def start():
    total[:] = 0
    return comm.Iallreduce(np.full(3, rank + 1.0), total, plus)

def by_wait(request):
    request.Wait()

def by_test(request):
    while not request.Test():
        pass

def check():
    assert (total == n * (n + 1) / 2).all() and (x == n).all(), (total, x)

# Its Wait, and a blocking call, in another order on each rank: on the same communicator and on another one.
for finish in by_wait, by_test:
    for on in comm, other:
        for count in 2, 200_000:
            sent, x = np.ones(count), np.zeros(count)
            request = start()
            if rank == 0:
                on.Allreduce(sent, x)
                finish(request)
            else:
                finish(request)
                on.Allreduce(sent, x)
            check()

# Both non-blocking, waited for in another order.
x = np.zeros(2)
first, second = start(), comm.Iallreduce(np.ones(2), x)
for request in (first, second) if rank % 2 else (second, first):
    request.Wait()
check()

# Two of them, waited for backwards by some.
more = np.zeros(1)
first, second = start(), comm.Iallreduce(np.full(1, 2.0), more, plus)
for request in (first, second) if rank % 2 else (second, first):
    request.Wait()
check()
assert more[0] == 2 * n

# Dropped, as any request.
start()
check()

# The communicator is freed before.
request = start()
comm.free()
request.Wait()
check()

# A rank that fails before it calls MPI fails it on all, and nothing is left behind.
comm = ps.Comm(MPI.COMM_WORLD, progress_cores=0)
for finish in by_wait, by_test:
    code = ""
    try:
        finish(comm.Iallreduce(["nothing"] if rank == 0 else np.ones(3), total, plus))
    except ps.Error as error:
        code = error.code
    assert code == ("invalid_argument" if rank == 0 else "peer_failed"), code
finish(start())
check()
comm.free()
other.Free()
plus.Free()
"""


@pytest.mark.parametrize("level", ["single", "funneled", "serialized"])
def test_a_reduction_of_mpi_s_starts_in_any_call(level: str) -> None:
    command = ["mpiexec", "-n", "3", sys.executable, "-c", SCRIPT, level]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
