"""Overlaps a computation with an allreduce: ./dev exec mpiexec -n 4 python -m mpi4py examples/python/overlap.py"""

import numpy as np
import penstock as ps
from mpi4py import MPI

with ps.Comm(MPI.COMM_WORLD) as comm:
    gradient, total = np.ones(1 << 20, np.float32), np.empty(1 << 20, np.float32)
    request = comm.Iallreduce(gradient, total, op=MPI.SUM)
    pi = np.sqrt(6 * np.sum(1.0 / np.arange(1.0, 1e6) ** 2))  # runs during the allreduce
    request.Wait()
    assert (total == comm.size).all()
    if comm.rank == 0:
        print(f"pi {pi:.5f}, ranks {total[0]:.0f}")
