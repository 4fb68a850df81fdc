"""Every rank runs every test at the same time; see README.md."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import penstock as ps
import pytest
from mpi4py import MPI


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "anywhere: costly, and the same wherever the ranks are; over nodes with --all only"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get("PENSTOCK_TEST_NODES") and os.environ.get("PENSTOCK_TEST_ALL") != "1":
        for item in items:
            if item.get_closest_marker("anywhere"):
                item.add_marker(pytest.mark.skip(reason="the same wherever the ranks are: over nodes with --all only"))


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
