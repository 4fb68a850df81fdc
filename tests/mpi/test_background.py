"""Operations that complete while no rank calls Penstock or MPI: one communication core serves all ranks of a node."""

import sys
import threading
import time

import numpy as np
import penstock as ps
import pytest
from mpi4py import MPI

COUNT = 100_003
PATIENCE_S = 600  # only a hang takes this long


@pytest.fixture(scope="module")
def background():
    """A communicator with one progress thread per node, whether or not a core is free."""
    if MPI.COMM_WORLD.size == 1:
        pytest.skip("one rank waits for nobody")
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        pytest.skip("MPI was initialized without MPI_THREAD_MULTIPLE")
    with ps.Comm(MPI.COMM_WORLD, progress_cores=1) as comm:
        yield comm


def await_memory(array: np.ndarray, expected: np.ndarray) -> None:
    """Polls without making progress: only progress threads can move data."""
    deadline = time.monotonic() + PATIENCE_S
    while not np.array_equal(array, expected):
        assert time.monotonic() < deadline, "nobody has moved the data"
        time.sleep(0.002)


def on_one_node(comm: ps.Comm) -> bool:
    return comm.Split_type(MPI.COMM_TYPE_SHARED).size == comm.size


@pytest.mark.parametrize("algorithm", ["divided", "tree"])
@pytest.mark.parametrize("root", [0, -1])
def test_one_node(background, algorithm, root):
    comm = background
    if not on_one_node(comm):
        pytest.skip("the ranks are on several nodes")
    if "single copy: on" not in comm.report():
        pytest.skip("the ranks cannot read each other's memory")
    root %= comm.size
    ramp = np.arange(COUNT, dtype=np.int64)
    mine = ramp + comm.rank
    total = comm.size * ramp + comm.size * (comm.size - 1) // 2

    summed = np.zeros_like(ramp)
    request = comm.Iallreduce(mine, summed, algorithm=algorithm, split=0)
    await_memory(summed, total)
    request.Wait()

    reduced = np.zeros_like(ramp)
    request = comm.Ireduce(mine, reduced if comm.rank == root else None, root=root, algorithm=algorithm, split=0)
    if comm.rank == root:
        await_memory(reduced, total)
    request.Wait()

    sent = mine.copy() if comm.rank == root else np.zeros_like(mine)
    request = comm.Ibcast(sent, root=root, algorithm=algorithm, split=0)
    await_memory(sent, ramp + root)
    request.Wait()

    blocks = np.zeros((comm.size, COUNT), np.int64)
    request = comm.Igather(mine, blocks if comm.rank == root else None, root=root, algorithm=algorithm, split=0)
    if comm.rank == root:
        await_memory(blocks, ramp + np.arange(comm.size)[:, None])
    request.Wait()

    block = np.zeros_like(mine)
    request = comm.Iscatter(blocks if comm.rank == root else None, block, root=root, algorithm=algorithm, split=0)
    await_memory(block, mine)
    request.Wait()


def test_one_node_by_default(background):
    """Operations in which all ranks send blocks are divided into tasks beside communication cores."""
    comm = background
    if not on_one_node(comm):
        pytest.skip("the ranks are on several nodes")
    if "single copy: on" not in comm.report():
        pytest.skip("the ranks cannot read each other's memory")
    ramp = np.arange(COUNT, dtype=np.int64)
    numbers = np.arange(comm.size)[:, None]
    mine = ramp + comm.rank

    gathered = np.zeros((comm.size, COUNT), np.int64)
    request = comm.Iallgather(mine, gathered)
    await_memory(gathered, ramp + numbers)
    MPI.COMM_WORLD.Barrier()  # MPI's, so that no rank helps another
    request.Wait()

    received = np.zeros_like(gathered)
    request = comm.Ialltoall(ramp + comm.rank + 10 * numbers, received)
    await_memory(received, ramp + 10 * comm.rank + numbers)
    MPI.COMM_WORLD.Barrier()
    request.Wait()

    block = np.zeros_like(ramp)
    request = comm.Ireduce_scatter_block(ramp + comm.rank + 10 * numbers, block)
    await_memory(block, comm.size * (ramp + 10 * comm.rank) + comm.size * (comm.size - 1) // 2)
    MPI.COMM_WORLD.Barrier()
    request.Wait()


@pytest.mark.parametrize("root", [0, 1, -1])
def test_between_nodes(background, root):
    """The communication core of a node works for each of its ranks, whichever is the root."""
    comm = background
    if on_one_node(comm):
        pytest.skip("all ranks are on one node")
    root %= comm.size
    ramp = np.arange(COUNT, dtype=np.int64)
    mine = ramp + comm.rank
    total = comm.size * ramp + comm.size * (comm.size - 1) // 2

    sent = mine.copy() if comm.rank == root else np.zeros_like(mine)
    request = comm.Ibcast(sent, root=root)
    await_memory(sent, ramp + root)
    MPI.COMM_WORLD.Barrier()
    request.Wait()

    reduced = np.zeros_like(ramp)
    request = comm.Ireduce(mine, reduced if comm.rank == root else None, root=root)
    if comm.rank == root:
        await_memory(reduced, total)
    MPI.COMM_WORLD.Barrier()
    request.Wait()

    summed = np.zeros_like(ramp)
    request = comm.Iallreduce(mine, summed)
    await_memory(summed, total)
    request.Wait()


def test_levels_on_the_applications_cores_run_in_start_and_wait(background):
    comm = background
    ramp = np.arange(COUNT, dtype=np.float32)
    for split in range(5):
        for root in {0, comm.size - 1}:
            sent = ramp + root if comm.rank == root else np.zeros_like(ramp)
            request = comm.Ibcast(sent, root=root, split=split)
            time.sleep(0.001)
            request.Wait()
            assert np.array_equal(sent, ramp + root)


def test_many_operations_at_once(background, rng):
    comm = background
    counts = [int(n) for n in rng.integers(1, 40_000, 48)]
    inputs = [np.full(n, comm.rank + i, np.int32) for i, n in enumerate(counts)]
    outputs = [np.zeros(n, np.int32) for n in counts]
    requests = [comm.Iallreduce(x, y) for x, y in zip(inputs, outputs, strict=True)]
    order = rng.permutation(len(requests))
    for i in order:
        requests[i].Wait()
        assert (outputs[i] == comm.size * i + comm.size * (comm.size - 1) // 2).all()


def test_a_communicator_ends_while_a_thread_is_about_to_call_python():
    """The destructor waits for threads that drive several communicators; one of them needs the GIL for another operation."""
    world = MPI.COMM_WORLD
    if world.size == 1 or MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        pytest.skip("no thread calls Python")
    inside, leaving = threading.Event(), threading.Event()

    def add(a, b):
        if world.rank == 0:
            inside.set()
            leaving.wait()
        b += a

    ending = ps.Comm(world, progress_cores=world.size)
    with ps.Comm(world, progress_cores=world.size) as other:
        total = np.zeros(2)
        if world.rank == 0:
            barrier = ending.Ibarrier()  # in flight, so that the thread drives both
            request = other.Ireduce(np.ones(2), total, add, root=0)
            inside.wait()
            world.Barrier()
            barrier.Wait()
            del barrier
            interval = sys.getswitchinterval()
            sys.setswitchinterval(PATIENCE_S)  # this thread keeps the GIL
            leaving.set()
            ending.free()
            sys.setswitchinterval(interval)
        else:
            request = other.Ireduce(np.ones(2), None, add, root=0)
            world.Barrier()
            ending.Barrier()
            ending.free()
        request.Wait()
        assert world.rank > 0 or (total == world.size).all()
