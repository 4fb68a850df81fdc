"""Every rank runs every test of test_calls.py at the same time."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from scalapack.library import OURS, Library, scalapack_name


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """The same numbers on all ranks, other ones for each test."""
    return np.random.default_rng(list(request.node.name.encode()))


@pytest.fixture(scope="session")
def theirs() -> Library:
    """ScaLAPACK with its BLACS."""
    name = scalapack_name()
    if name is None:
        pytest.skip("ScaLAPACK is not installed; `./dev test --all` does that on Debian")
    return Library(name, ctypes.RTLD_GLOBAL)  # where Penstock finds its BLACS


@pytest.fixture(scope="session")
def ours(theirs: Library) -> Library:
    return Library(OURS, ctypes.RTLD_LOCAL)  # ScaLAPACK's own calls stay its own
