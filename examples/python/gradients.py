"""Data-parallel training: gradients are averaged in buckets while the backward pass continues.

./dev exec mpiexec -n 4 python -m mpi4py examples/python/gradients.py
"""

import numpy as np
import penstock as ps
from mpi4py import MPI

BUCKET_BYTES = 64 << 10
LAYERS, WIDTH, SAMPLES, STEPS, RATE = 6, 64, 32, 20, 0.05


class Buckets:
    """Sums gradients over all ranks, bucket by bucket, in the order in which the backward pass computes them."""

    def __init__(self, comm: ps.Comm) -> None:
        self._comm, self._size = comm, 0
        self._waiting: list[np.ndarray] = []
        self._running: list[tuple[ps.Request, np.ndarray, list[np.ndarray]]] = []

    def add(self, gradient: np.ndarray) -> None:
        self._waiting.append(gradient)
        self._size += gradient.nbytes
        if self._size >= BUCKET_BYTES:
            self.flush()

    def flush(self) -> None:
        if not self._waiting:
            return
        flat = np.concatenate([gradient.ravel() for gradient in self._waiting])
        # Bit-identical for any number of nodes and any placement, so that a run can be repeated elsewhere.
        request = self._comm.Iallreduce(MPI.IN_PLACE, flat, reproducible=True)
        self._running.append((request, flat, self._waiting))
        self._waiting, self._size = [], 0

    def finish(self) -> None:
        """Waits. All gradients are averages afterwards."""
        self.flush()
        for request, flat, gradients in self._running:
            request.Wait()
            at = 0
            for gradient in gradients:
                gradient[...] = flat[at : at + gradient.size].reshape(gradient.shape) / self._comm.size
                at += gradient.size
        self._running = []


def gradients(weights: list[np.ndarray], inputs: np.ndarray, wanted: np.ndarray, buckets: Buckets | None) -> tuple:
    """Loss and gradients of a network of tanh layers. The sum of each gradient starts as soon as it is computed."""
    values = [inputs]
    for weight in weights:
        values.append(np.tanh(values[-1] @ weight))
    error = values[-1] - wanted
    loss = float((error**2).mean())
    found: list[np.ndarray] = [error] * len(weights)
    slope = 2 * error / error.size
    for layer in reversed(range(len(weights))):
        slope = slope * (1 - values[layer + 1] ** 2)
        found[layer] = values[layer].T @ slope
        if buckets is not None:
            buckets.add(found[layer])
        slope = slope @ weights[layer].T
    return loss, found


with ps.Comm(MPI.COMM_WORLD) as comm:
    rng = np.random.default_rng(1)  # equal weights and samples on all ranks; each rank uses its part of the samples
    weights = [rng.normal(size=(WIDTH, WIDTH)) / np.sqrt(WIDTH) for _ in range(LAYERS)]
    inputs = rng.normal(size=(SAMPLES * comm.size, WIDTH))
    wanted = np.tanh(inputs[:, ::-1])
    share = slice(comm.rank * SAMPLES, (comm.rank + 1) * SAMPLES)
    buckets, losses = Buckets(comm), []
    for step in range(STEPS):
        loss, found = gradients(weights, inputs[share], wanted[share], buckets)
        buckets.finish()
        if step == 0:  # the averages equal one rank's gradients for all samples
            for own, alone in zip(found, gradients(weights, inputs, wanted, None)[1], strict=True):
                np.testing.assert_allclose(own, alone, rtol=1e-9, atol=1e-12)
        for weight, gradient in zip(weights, found, strict=True):
            weight -= RATE * WIDTH * gradient
        losses.append(loss)
    assert losses[-1] < losses[0], losses
    digest = np.array([weight.sum() for weight in weights])
    everyone = np.empty((comm.size, LAYERS))
    comm.Allgather(digest, everyone)
    assert (everyone == digest).all(), "the ranks drifted apart"
    if comm.rank == 0:
        print(f"{comm.size} ranks: loss {losses[0]:.4f} to {losses[-1]:.4f} in {STEPS} steps")
