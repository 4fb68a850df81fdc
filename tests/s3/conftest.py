"""All tests of this folder share a server of S3 that is started here: Ceph's gateway, or moto's server."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests"), str(Path(__file__).parent)]
from ceph_cluster import Ceph, missing_packages  # noqa: E402
from faulty_proxy import FaultyProxy  # noqa: E402
from moto_server import MotoServer  # noqa: E402

KEY, SECRET = "penstock", "not a secret"
BUCKET = "samples"


@pytest.fixture(scope="session", params=["ceph", "moto"])
def server(request: pytest.FixtureRequest) -> Iterator[str]:
    pytest.importorskip("s3fs", reason="needs s3fs")
    if request.param == "moto":
        pytest.importorskip("moto.server", reason="needs moto[server], whose server of S3 it starts")
        with MotoServer() as running:
            yield running.url
        return
    if missing := missing_packages(gateway=True):
        pytest.skip(f"needs {', '.join(missing)} (Debian's names)")
    # The end of the runner must shut down Ceph in order too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    directory = Path(tempfile.mkdtemp(prefix="penstock-s3-"))
    try:
        small = {"osd pool default size": "1", "osd pool default min size": "1", "osd pool default pg num": "4"}
        with Ceph(directory, osds=1, settings=small) as cluster:
            yield cluster.start_gateway(KEY, SECRET)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def shared_proxy(server: str) -> Iterator[FaultyProxy]:
    with FaultyProxy(server) as proxy:
        yield proxy


@pytest.fixture
def proxy(shared_proxy: FaultyProxy) -> FaultyProxy:
    shared_proxy.reset()
    return shared_proxy


def options_of(url: str, **more: Any) -> dict[str, Any]:
    return {"key": KEY, "secret": SECRET, "endpoint_url": url, "client_kwargs": {"region_name": "default"}, **more}


@pytest.fixture(params=["s3fs", "obstore"])
def options(request: pytest.FixtureRequest, proxy: FaultyProxy) -> Iterator[dict[str, Any]]:
    """`storage_options` of a client that fsspec uses. Its own repetitions are off, so that Penstock's are tested."""
    os.environ.pop("AWS_PROFILE", None)
    import fsspec
    import s3fs

    if request.param == "obstore":
        obstore_fsspec = pytest.importorskip("obstore.fsspec", reason="needs obstore")
        obstore_fsspec.register("s3")
        yield {
            "config": {"access_key_id": KEY, "secret_access_key": SECRET, "endpoint": proxy.url, "region": "default"},
            "client_options": {"allow_http": True},
            "retry_config": {"max_retries": 0},
        }
        fsspec.register_implementation("s3", s3fs.S3FileSystem, clobber=True)
        return
    yield options_of(proxy.url, config_kwargs={"retries": {"max_attempts": 1, "mode": "standard"}})
