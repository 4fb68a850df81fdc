"""Ranks of one host in PID namespaces, as in containers: those that find each other in /proc share memory."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest

NEW = ["unshare", "--pid", "--fork"]

pytest.importorskip("mpi4py")
pytestmark = [
    pytest.mark.skipif(shutil.which("mpiexec") is None, reason="no mpiexec in PATH"),
    pytest.mark.skipif(
        subprocess.run([*NEW, "--mount-proc", "true"], capture_output=True, check=False).returncode != 0,
        reason="this user may not make PID namespaces with a /proc of their own, as in a chroot",
    ),
]

#: Prints, per rank, how many ranks share memory with it.
PROGRAM = """
import json, re, sys
import numpy as np, penstock as ps
from mpi4py import MPI
with ps.Comm(MPI.COMM_WORLD) as comm:
    for count in (1, 1000, 300_000):
        x, y = np.arange(count) + comm.rank, np.empty(count, int)
        comm.Allreduce(x, y)
        assert np.array_equal(y, comm.size * np.arange(count) + sum(range(comm.size)))
        comm.Bcast(x, root=1)
        assert np.array_equal(x, np.arange(count) + 1)
    shared = re.search(r"shared memory: (\\d+) ranks", comm.report())
    found = MPI.COMM_WORLD.gather(int(shared[1]) if shared else 1)
if found:
    print(json.dumps(found))
"""


#: Long messages too: MPICH reads the memory of processes by numbers that mean others in a PID namespace.
NATIVE = "import numpy as np; from mpi4py import MPI; MPI.COMM_WORLD.Alltoall(np.ones(300_000), np.empty(300_000))"


def job(*segments: tuple[int, list[str]], program: str = PROGRAM) -> list[str]:
    """An mpiexec command with so many ranks behind each prefix."""
    command = ["mpiexec"]
    for ranks, prefix in segments:
        command += [":"] * (len(command) > 1) + ["-n", str(ranks), *prefix, sys.executable, "-c", program]
    return command


def ranks_that_share(*segments: tuple[int, list[str]], inside: tuple[str, ...] = ()) -> list[int]:
    native = [*inside, *job(*segments, program=NATIVE)]
    if subprocess.run(native, capture_output=True, check=False).returncode != 0:
        pytest.skip("this MPI itself does not work across PID namespaces")
    done = subprocess.run([*inside, *job(*segments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("proc", [[], ["--mount-proc"]], ids=["outer-proc", "own-proc"])
def test_a_job_inside_one_shares_memory(proc: list[str]) -> None:
    assert ranks_that_share((3, []), inside=(*NEW, *proc)) == [3, 3, 3]


def test_ranks_that_find_each_other_in_the_outer_proc_share_memory() -> None:
    assert ranks_that_share((3, NEW)) == [3, 3, 3]


def test_ranks_with_their_own_proc_share_none() -> None:
    assert ranks_that_share((3, [*NEW, "--mount-proc"])) == [1, 1, 1]


def test_a_rank_in_its_own_leaves_the_memory_of_the_others_shared() -> None:
    assert ranks_that_share((2, []), (1, [*NEW, "--mount-proc"])) == [2, 2, 1]
