"""All tests of this folder share one Slurm of two emulated nodes, which ends with them."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "scripts")]
from slurm_cluster import Slurm, missing_packages  # noqa: E402


@pytest.fixture(scope="session")
def slurm() -> Iterator[Slurm]:
    if missing := missing_packages():
        pytest.skip(f"needs {', '.join(missing)} (Debian's names)")
    if os.geteuid() != 0:
        pytest.skip("emulated nodes need root")
    # The end of the runner must shut down Slurm in order too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    directory = Path(tempfile.mkdtemp(prefix="penstock-slurm-"))
    try:
        with Slurm(directory / "slurm") as cluster:
            yield cluster
    finally:
        shutil.rmtree(directory, ignore_errors=True)
