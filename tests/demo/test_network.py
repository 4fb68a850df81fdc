"""The demo's network computes correct gradients, for any distribution of the batch."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "demo"))
from network import Network


def batch(samples: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    return rng.integers(0, 256, (samples, 16, 16, 3), dtype=np.uint8), rng.integers(0, 5, samples)


def gradients(network: Network, images: np.ndarray, labels: np.ndarray) -> np.ndarray:
    network.forward(images, labels)
    for _ in network.backward():
        pass
    return network.gradients.copy()


def test_gradients_are_those_of_finite_differences():
    network = Network(16, 5, seed=1)
    images, labels = batch(6)
    exact = gradients(network, images, labels)
    # Test directions: the effect of a single weight is lost in float32 rounding.
    for seed in range(5):
        direction = np.random.default_rng(seed).standard_normal(exact.size).astype(np.float32)
        direction /= np.linalg.norm(direction)
        here, step = network.parameters.copy(), np.float32(0.02)
        network.parameters[:] = here + step * direction
        above = network.forward(images, labels)
        network.parameters[:] = here - step * direction
        below = network.forward(images, labels)
        network.parameters[:] = here
        assert (above - below) / (2 * step) == pytest.approx(exact @ direction, rel=0.05, abs=0.02)


def test_parts_of_a_batch_add_up():
    network = Network(16, 5, seed=1)
    images, labels = batch(7)
    whole = gradients(network, images, labels)
    parts = sum(gradients(network, images[p], labels[p]) for p in (slice(0, 3), slice(3, 3), slice(3, 7)))
    np.testing.assert_allclose(parts, whole, rtol=1e-3, atol=1e-4)


def test_backward_yields_every_gradient_once():
    network = Network(16, 5, seed=1)
    network.forward(*batch(4))
    network.gradients[:] = np.nan
    pieces = list(network.backward())
    assert sum(piece.size for piece in pieces) == network.gradients.size
    assert np.isfinite(network.gradients).all()
