"""The first collective of a new user, on all ranks: mpiexec -n 2 python first_collective.py"""

import numpy as np
import penstock as ps
from mpi4py import MPI

with ps.Comm(MPI.COMM_WORLD) as comm:
    total = np.empty(4)
    comm.Allreduce(np.full(4, comm.rank + 1.0), total, op=MPI.SUM)
    assert (total == comm.size * (comm.size + 1) / 2).all(), total
    print(f"rank {comm.rank} of {comm.size}: {total[0]:g}")
