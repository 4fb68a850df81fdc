"""A rank of a real MPI job is killed at a random point: its survivors are told, and none of them hangs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mpi4py")

ROOT = Path(__file__).parents[2]
RANKS = 3
MPIS = [mpi for mpi in ("mpich", "openmpi") if (ROOT / "build/mpi" / mpi).exists()]
KILLS = 20 if os.environ.get("PENSTOCK_TEST_ALL") == "1" else 2
pytestmark = pytest.mark.skipif(not MPIS, reason="no MPI of ./dev in build/mpi")

# The launcher would end the job with the rank. So it sees a shell, which lives until all survivors have told.
SHELL = """
folder=$1
shift
"$@"
while [ "$(ls "$folder" | grep -c told)" -lt 2 ]; do sleep 0.1; done
"""
RANK = """
import faulthandler, os, random, signal, sys, time
from pathlib import Path
import numpy as np, penstock as ps
from mpi4py import MPI

folder, seed = Path(sys.argv[1]), int(sys.argv[2])
faulthandler.dump_traceback_later(float(os.environ.get("PENSTOCK_TEST_HUNG_S", "600")) / 4, exit=True)
draw = random.Random(seed)  # equal on all ranks
victim, last = draw.randrange(3), draw.randrange(5, 60)
comm = ps.Comm(MPI.COMM_WORLD, progress_cores=draw.choice([0, 1]))
n, rank = comm.size, comm.rank
(folder / f"process-{os.getpid()}").touch()

def wait(requests):
    for request in requests:
        request.Wait()

def test(requests):
    while not all([request.Test() for request in requests]):
        pass

def start(kind, elems, root):
    x, y = np.ones(elems), np.zeros(elems)
    return {
        "allreduce": lambda: comm.Iallreduce(x, y),
        "bcast": lambda: comm.Ibcast(x, root),
        "reduce": lambda: comm.Ireduce(x, y, MPI.SUM, root),
        "allgather": lambda: comm.Iallgather(x, np.zeros(n * elems)),
        "alltoall": lambda: comm.Ialltoall(np.ones(n * elems), np.zeros(n * elems)),
        "scan": lambda: comm.Iscan(x, y),
    }[kind]()

def step(number):
    if rank == victim and number == last:  # dies within the next operations, of a signal that runs no code here
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, random.Random(seed).uniform(1e-6, 3e-3))
    kinds = draw.choices(["allreduce", "bcast", "reduce", "allgather", "alltoall", "scan"], k=draw.choice([1, 1, 2, 4]))
    arguments = [(kind, draw.choice([1, 100, 5000, 40_000, 200_000]), draw.randrange(n)) for kind in kinds]
    finish = draw.choice([wait, test, ps.Request.Waitall])
    finish([start(*each) for each in arguments])

told = []
number = 0
# What the dead rank had sent may complete some operations; the next fail.
while len(told) < 2:
    try:
        step(number)
    except ps.Error as error:
        told.append(f"{error.code} of rank {error.rank}")
    number += 1
(folder / f"{rank}.new").write_text(f"{victim}: " + ", ".join(told))
(folder / f"{rank}.new").rename(folder / f"{rank}.told")
while len(list(folder.glob("*.told"))) < n - 1:
    time.sleep(0.05)
os._exit(0)
"""


@pytest.mark.parametrize("seed", range(KILLS))
@pytest.mark.parametrize("mpi", MPIS)
def test_survivors_of_a_killed_rank_are_told(tmp_path: Path, mpi: str, seed: int) -> None:
    is_inside = os.environ.get("PENSTOCK_MPI") == mpi
    launch = [*([] if is_inside else [str(ROOT / "dev"), "exec"]), "mpiexec", "-n", str(RANKS)]
    rank = [sys.executable, "-c", RANK, str(tmp_path), str(seed)]
    done = subprocess.run(
        [*launch, "sh", "-c", SHELL, "sh", str(tmp_path), *rank],
        env={**os.environ, "PENSTOCK_MPI": mpi},
        capture_output=True,
        text=True,
        check=False,
    )
    told = {int(path.stem): path.read_text() for path in tmp_path.glob("*.told")}
    assert len(told) == RANKS - 1, done.stdout + done.stderr
    victim = next(iter(set(range(RANKS)) - set(told)))
    assert set(told.values()) == {f"{victim}: peer_failed of rank {victim}, peer_failed of rank {victim}"}, done.stderr
    processes = [path.name.partition("-")[2] for path in tmp_path.glob("process-*")]
    assert len(processes) == RANKS
    own = tuple(f"penstock-{process}-" for process in processes)  # other jobs may have theirs now
    assert not [name for name in os.listdir("/dev/shm") if name.startswith(own)]
