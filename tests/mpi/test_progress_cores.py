"""Communication cores: how many progress threads each rank has, and that all ranks of a node agree."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

import numpy as np
import penstock as ps
import pytest
from mpi4py import MPI

WORLD = MPI.COMM_WORLD


def said(comm: ps.Comm) -> tuple[int, int]:
    """(progress threads of this node, of this process), from the report."""
    line = next(line for line in comm.report().splitlines() if line.startswith("progress threads: "))
    of_node = int(re.match(r"progress threads: (\d+)", line)[1])
    of_process = re.search(r"; (\d+) of them in this process$", line)
    assert (of_process is None) == (of_node == 0), line
    return of_node, int(of_process[1]) if of_process else 0


def threads_here() -> int:
    found = 0
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # other threads may end meanwhile
            found += (task / "comm").read_text() == "penstock\n"
    return found


@pytest.mark.parametrize("cores", ["auto", 0, 1, 2, 100000])
def test_all_ranks_of_a_node_agree(cores: str | int) -> None:
    node = WORLD.Split_type(MPI.COMM_TYPE_SHARED)
    with ps.Comm(WORLD, progress_cores=cores) as made:
        total = np.zeros(200000)
        made.Iallreduce(np.ones(200000), total).Wait()
        assert (total == WORLD.size).all()
        of_node, of_process = said(made)
        answers = node.allgather((of_node, of_process))
        assert {each for each, _ in answers} == {of_node}
        assert sum(each for _, each in answers) == of_node
        assert threads_here() >= (of_process if WORLD.size > 1 else 0)
        if cores in (0, 1):
            assert of_node == cores
        if cores == 100000:
            assert of_process >= 1 and "more than" in made.report()
    node.Free()


def test_parts_of_the_world_have_their_own() -> None:
    half = WORLD.Split(WORLD.rank % 2, WORLD.rank)
    with ps.Comm(WORLD, progress_cores=1) as whole, ps.Comm(half, progress_cores=2) as part:
        for comm in (whole, part):
            total = np.zeros(1000)
            comm.Iallreduce(np.ones(1000), total).Wait()
            assert (total == comm.size).all()
        assert said(part)[0] >= 1
    half.Free()


def test_the_smallest_wish_counts() -> None:
    with ps.Comm(WORLD, progress_cores=0 if WORLD.rank == WORLD.size - 1 else 2) as made:
        total = np.zeros(1)
        made.Allreduce(np.ones(1), total)
        assert total[0] == WORLD.size
        node = WORLD.Split_type(MPI.COMM_TYPE_SHARED)
        if WORLD.size - 1 in node.allgather(WORLD.rank):
            assert said(made) == (0, 0)
        node.Free()


def test_loaders_of_a_node_have_no_more_threads_than_cores() -> None:
    data = ps.Dataset.from_source(range(4)).batch(2)
    assert sum(len(batch) for batch in data) == 4
    node = WORLD.Split_type(MPI.COMM_TYPE_SHARED)
    threads, ranks = node.allreduce(data.stats.threads), node.size
    node.Free()
    assert data.stats.threads >= 1
    assert threads <= max(os.cpu_count() or 1, ranks)
