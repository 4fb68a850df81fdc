"""Operations in flight together, persistent operations, and requests that are never waited for."""

from __future__ import annotations

import gc
import time
import weakref

import numpy as np
import penstock as ps
import pytest
from mpi4py import MPI


def test_out_of_order(comm: ps.Comm, rng: np.random.Generator) -> None:
    """Thirty operations in flight, waited for in a different order on each rank."""
    n, rank, size = 30, comm.rank, comm.size
    sent = [np.full(1 + 700 * i, rank + i, "i8") for i in range(n)]
    got = [np.zeros_like(x) for x in sent]
    gathered = [np.zeros((size, x.size), "i8") for x in sent]
    requests = []
    for i in range(n):
        if i % 3 == 0:
            requests.append(comm.Iallreduce(sent[i], got[i]))
        elif i % 3 == 1:
            got[i][:] = sent[i]
            requests.append(comm.Ibcast(got[i], i % size))
        else:
            requests.append(comm.Iallgather(sent[i], gathered[i]))
    for i in np.random.default_rng(rank).permutation(n):
        requests[i].Wait()
    for i in range(n):
        if i % 3 == 0:
            assert (got[i] == size * i + size * (size - 1) // 2).all()
        elif i % 3 == 1:
            assert (got[i] == i % size + i).all()
        else:
            assert (gathered[i] == np.arange(size)[:, None] + i).all()


def test_test_completes(comm: ps.Comm) -> None:
    total = np.zeros(50000)
    request = comm.Iallreduce(np.ones(50000), total)
    while not request.Test():
        time.sleep(1e-4)
    assert (total == comm.size).all()
    assert request.Test()  # and stays so
    assert request.Wait()
    assert request.test() == (True, None)


def test_keeps_its_arrays_until_it_is_complete(comm: ps.Comm) -> None:
    """Arrays by the path for whole arrays, and by the general one, which takes specifications."""
    for general in (False, True):
        sent, total = np.ones(50000), np.zeros(50000)
        kept = weakref.ref(sent)
        request = comm.Iallreduce([sent, MPI.DOUBLE] if general else sent, total)
        del sent
        gc.collect()
        assert kept() is not None
        request.Wait()
        assert kept() is None
        assert (total == comm.size).all()


def test_waitall_mixes_with_mpi4py(comm: ps.Comm) -> None:
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    received, total = np.zeros(1000), np.zeros(30000)
    requests = [
        comm.Irecv(received, left, tag=5),
        comm.Iallreduce(np.ones(30000), total),
        comm.Isend(np.full(1000, float(comm.rank)), right, tag=5),
        comm.Ibarrier(),
    ]
    assert ps.Request.Waitall(requests)
    assert ps.Request.Testall(requests[1:2])
    assert (received == left).all()
    assert (total == comm.size).all()


def test_persistent(comm: ps.Comm) -> None:
    """A persistent operation reads its buffer at each start."""
    x, y = np.zeros(3000), np.zeros(3000)
    request = comm.Allreduce_init(x, y)
    assert request.Test()  # not started
    for i in range(20):
        x[:] = i + comm.rank
        request.Start()
        request.Wait()
        assert (y == comm.size * i + comm.size * (comm.size - 1) / 2).all()
    request.Start()
    with pytest.raises(ps.Error, match="active"):
        request.Start()
    request.Wait()
    request.Free()
    with pytest.raises(ps.Error, match="freed"):
        request.Start()


def test_persistent_together(comm: ps.Comm) -> None:
    data = [np.zeros(100 * (i + 1), "i4") for i in range(8)]
    requests = [comm.Bcast_init(x, i % comm.size) for i, x in enumerate(data)]
    for turn in range(5):
        for i, x in enumerate(data):
            x[:] = turn * 10 + i if comm.rank == i % comm.size else -1
        ps.Prequest.Startall(requests)
        for request in reversed(requests):
            request.Wait()
        for i, x in enumerate(data):
            assert (x == turn * 10 + i).all()


def test_dropped_request(comm: ps.Comm) -> None:
    """A dropped request still completes, and its buffers live until then."""
    total = np.zeros(100000)
    comm.Iallreduce(np.ones(100000), total)
    gc.collect()
    assert (total == comm.size).all()


def test_computation_meanwhile(comm: ps.Comm) -> None:
    """The layers of a backward pass: each gradient is reduced while the next is computed."""
    gradients = [np.full((64, 32 * (i + 1)), comm.rank + i, "f4") for i in range(6)]
    requests = []
    for gradient in reversed(gradients):
        gradient @ gradient.T
        requests.append(comm.Iallreduce(MPI.IN_PLACE, gradient))
    for request in requests:
        request.Wait()
    for i, gradient in enumerate(gradients):
        assert (gradient == comm.size * i + comm.size * (comm.size - 1) / 2).all()
