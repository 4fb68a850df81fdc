"""Every rank runs every test at the same time; see README.md."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import penstock as ps
import pytest
from mpi4py import MPI


@pytest.fixture(scope="session")
def comm() -> Iterator[ps.Comm]:
    """One communicator of all ranks for the whole session, as in a long-running program."""
    with ps.Comm(MPI.COMM_WORLD) as made:
        yield made


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """Equal numbers on all ranks, different for each test."""
    return np.random.default_rng(list(request.node.name.encode()))


@pytest.fixture(autouse=True)
def _together() -> None:
    """Each test starts on all ranks together, so that a failure does not disturb the next test."""
    MPI.COMM_WORLD.Barrier()
