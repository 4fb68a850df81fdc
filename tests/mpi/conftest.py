"""Every rank runs every test at the same time; see README.md."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import penstock as ps
import pytest
from mpi4py import MPI


@pytest.fixture(scope="session")
def comm() -> Iterator[ps.Comm]:
    """One communicator of all ranks for the whole session, as a long-running program has."""
    with ps.Comm(MPI.COMM_WORLD) as made:
        yield made


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """The same numbers on all ranks, other ones for each test."""
    return np.random.default_rng(list(request.node.name.encode()))


@pytest.fixture(autouse=True)
def _together() -> None:
    """Each test begins on all ranks at once, so that the failure of one cannot disturb the next."""
    MPI.COMM_WORLD.Barrier()
