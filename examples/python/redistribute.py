"""Transposes a matrix from rows to columns: ./dev exec mpiexec -n 4 python -m mpi4py examples/python/redistribute.py"""

import numpy as np
import penstock as ps
from mpi4py import MPI

with ps.Comm(MPI.COMM_WORLD) as comm:
    source = ps.Layout.block_cyclic((512, 256), block=(32, 32), grid=(comm.size, 1))
    target = ps.Layout.block_cyclic((256, 512), block=(64, 64), grid=(1, comm.size))
    plan = comm.plan_redistribute(source, target, np.float64, op="T", relabel=True)
    b = np.ones(source.local_shape(comm.rank))
    a = np.empty(plan.target.local_shape(comm.rank))
    plan.run(b, a, alpha=2.0)  # a = 2 * transpose(b)
    assert (a == 2).all()
    if comm.rank == 0:
        print(f"bytes between ranks: {plan.bytes_before}, with the ranks of the target relabeled: {plan.bytes_after}")
