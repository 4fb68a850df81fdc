"""Fixtures for test_calls.py. All ranks run each of its tests together."""

from __future__ import annotations

import ctypes
import os

import numpy as np
import pytest
from scalapack.library import OURS, OURS_ILP64, Library, scalapack_name

ILP64 = os.environ.get("PENSTOCK_SCALAPACK_ILP64")  #: A library that is built from ilp64.c.


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """Draws the same numbers on all ranks, and different numbers in each test."""
    return np.random.default_rng(list(request.node.name.encode()))


@pytest.fixture(scope="session")
def theirs() -> Library:
    """ScaLAPACK with its BLACS."""
    name = scalapack_name()
    if name is None:
        pytest.skip("ScaLAPACK is not installed; `./dev test --all` does that on Debian")
    if ILP64:
        ctypes.CDLL(ILP64, mode=ctypes.RTLD_GLOBAL)
        return Library(name, ctypes.RTLD_LOCAL)
    return Library(name, ctypes.RTLD_GLOBAL)  # makes its BLACS visible to Penstock


@pytest.fixture(scope="session")
def ours(theirs: Library) -> Library:
    if ILP64:
        return Library(OURS_ILP64, ctypes.RTLD_LOCAL, ctypes.c_int64)
    return Library(OURS, ctypes.RTLD_LOCAL)  # does not replace ScaLAPACK's own routines
