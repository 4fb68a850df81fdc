"""All tests of this folder share one Ceph, which ends with them."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests")]
from ceph_cluster import Ceph, missing_packages  # noqa: E402

POOL = "penstock"


@pytest.fixture(scope="session")
def ceph() -> Iterator[Ceph]:
    """Starts three OSDs, and a pool of three copies that stays available with two."""
    if missing := missing_packages():
        pytest.skip(f"needs {', '.join(missing)} (Debian's names)")
    # The end of the runner must shut down Ceph in order too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    directory = Path(tempfile.mkdtemp(prefix="penstock-ceph-"))
    try:
        with Ceph(directory) as cluster:
            cluster.make_pool(POOL)
            os.environ.update(cluster.environment, PENSTOCK_TEST_RADOS=f"rados://{POOL}")
            yield cluster
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def url(ceph: Ceph) -> str:
    return f"rados://{POOL}/{uuid.uuid4().hex}"
