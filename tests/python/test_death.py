"""Ranks killed in the middle of operations: what they leave behind, and how the others notice."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

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
import os, re, sys, time, numpy as np, penstock as ps
from pathlib import Path
from mpi4py import MPI

def workers():
    "Of each thread of Penstock's, its state and how often it has run."
    found = {}
    for task in Path("/proc/self/task").iterdir():
        status = (task / "status").read_text()
        if status.startswith("Name:\\tpenstock\\n"):
            found[task.name] = re.search("State:\\t(.)", status)[1], re.findall("_switches:\\t(.*)", status)
    return found

def at_rest():
    before = workers()
    time.sleep(0.3)
    return workers() == before and all(state == "S" for state, _ in before.values())

comm = ps.Comm(MPI.COMM_WORLD, progress_cores=1)
x, y = np.ones(300_000), np.empty(300_000)
for _ in range(20):
    comm.Allreduce(x, y)
if comm.rank == 1:
    comm.Iallreduce(x, y)
    # For the others this rank is dead: its memory and files are gone.
    wait = 'until [ -e "$0/0" ] && [ -e "$0/2" ]; do sleep 0.1; done'
    os.execv("/bin/sh", ["sh", "-c", wait, sys.argv[1]])
try:
    for _ in range(3):
        comm.Allreduce(x, y)
    answer = "no error"
except ps.Error as error:
    # A progress thread that spins would never sleep.
    while not at_rest():
        pass
    answer = f"{error.code}, and {len(workers())} workers at rest"
folder = Path(sys.argv[1])
(folder / f"{comm.rank}.new").write_text(answer)
(folder / f"{comm.rank}.new").rename(folder / str(comm.rank))
# The launcher ends the job when the first rank ends.
while not ((folder / "0").exists() and (folder / "2").exists()):
    time.sleep(0.1)
os._exit(0)
"""

# Without progress threads: ranks that wait or test must detect the death.
LEFT_ALONE = """
import os, sys, time, numpy as np, penstock as ps
from pathlib import Path
from mpi4py import MPI

how, leaves_child = sys.argv[2], sys.argv[3] == "child"
folder = Path(sys.argv[1])
comm = ps.Comm(MPI.COMM_WORLD, progress_cores=0)
x, y = np.ones(8192), np.empty(8192)
for _ in range(20):
    comm.Allreduce(x, y)

def complete(request):
    if how == "test":
        while not request.Test():
            pass
    elif how == "waitall":
        ps.Request.Waitall([request])
    else:
        request.Wait()

if comm.rank == 1:
    wait = 'until [ -e "$0/0" ] && [ -e "$0/2" ]; do sleep 0.1; done'
    if leaves_child and os.fork() == 0:
        while not ((folder / "0").exists() and (folder / "2").exists()):
            time.sleep(0.1)
        os._exit(0)
    os.execv("/bin/sh", ["sh", "-c", wait, str(folder)])
answers = []
for _ in range(2):  # the next call fails too
    try:
        for _ in range(100):
            complete(comm.Iallreduce(x, y))
        answers.append("no error")
    except ps.Error as error:
        answers.append(f"{error.code} of rank {error.rank}")
(folder / f"{comm.rank}.new").write_text(", ".join(answers))
(folder / f"{comm.rank}.new").rename(folder / str(comm.rank))
while not ((folder / "0").exists() and (folder / "2").exists()):
    time.sleep(0.1)
os._exit(0)
"""


def segments(ranks: list[int]) -> list[str]:
    """Shared memory of these processes; other jobs have their own."""
    names = tuple(f"penstock-{rank}-" for rank in ranks)
    return [name for name in os.listdir("/dev/shm") if name.startswith(names)]


def mpiexec(*arguments: str, script: str) -> list[str]:
    return ["mpiexec", *arguments, "-n", str(RANKS), sys.executable, "-c", script]


def test_killed_ranks_leave_no_shared_memory() -> None:
    for moment_s in (0.0, 0.05, 0.2):
        job = subprocess.Popen(mpiexec(script=FOREVER), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            ranks = [int(job.stdout.readline().split()[1]) for _ in range(RANKS)]
            time.sleep(moment_s)
            for rank in ranks:
                with contextlib.suppress(ProcessLookupError):  # when one has died, mpiexec ends the others
                    os.kill(rank, signal.SIGKILL)
            job.wait()
        finally:
            job.kill()
            job.wait()
        assert not segments(ranks)
    # A new job is not affected.
    script = "import penstock as ps; from mpi4py import MPI; ps.Comm(MPI.COMM_WORLD).Barrier()"
    subprocess.run(mpiexec(script=script), check=True, capture_output=True)


def test_survivors_get_an_error_and_their_workers_sleep(tmp_path: Path) -> None:
    done = subprocess.run([*mpiexec(script=SURVIVOR), tmp_path], capture_output=True, text=True, check=False)
    answers = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert answers == {"0": "peer_failed, and 1 workers at rest", "2": "peer_failed, and 0 workers at rest"}, done


@pytest.mark.parametrize("child", ["no child", "child"])
@pytest.mark.parametrize("how", ["wait", "test", "waitall"])
def test_survivors_without_progress_threads_are_told(tmp_path: Path, how: str, child: str) -> None:
    command = [*mpiexec(script=LEFT_ALONE), tmp_path, how, child]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    answers = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert answers == dict.fromkeys("02", "peer_failed of rank 1, peer_failed of rank 1"), done
