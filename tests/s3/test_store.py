"""Stores in S3: the contract of backends, lost answers, servers that do not know the condition, parts, and what needs a store."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import penstock as ps
import pytest
from conftest import KEY, SECRET, options_of
from faulty_proxy import FaultyProxy
from store_suites import check_mpi_files, check_unit_store

MIB = 1 << 20


@pytest.fixture(scope="session")
def bucket(server: str) -> str:
    import s3fs

    name = f"stores-{uuid.uuid4().hex[:8]}"
    s3fs.S3FileSystem(**options_of(server)).mkdir(name)
    return name


@pytest.fixture
def is_ceph(request: pytest.FixtureRequest, server: str) -> bool:
    return bool(request.node.callspec.params["server"] == "ceph")


@pytest.fixture(autouse=True)
def environment(proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def url(bucket: str) -> str:
    return f"s3://{bucket}/{uuid.uuid4().hex}"


def test_every_promise_of_a_backend_and_of_blobs(server: str, bucket: str) -> None:
    """Straight at the server: the proxy would make these tens of thousands of requests too slow."""
    check_unit_store("*s3*", least=50, PENSTOCK_TEST_S3=f"s3://{bucket}", AWS_ENDPOINT_URL=server)


@pytest.mark.parametrize("mpi", ["mpich", "openmpi"])
def test_mpi_files(server: str, bucket: str, mpi: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", server)
    check_mpi_files(mpi, 2, f"s3://{bucket}")


def contents(blob: ps.Blob, version: int, size: int = 8) -> int:
    """The value that fills the version."""
    found = np.zeros(size, np.uint8)
    blob.read([(0, found)], version=version)
    assert (found == found[0]).all()
    return int(found[0])


@pytest.mark.parametrize("fault", ["lost", "reset", "internal", "slow_down"])
def test_a_write_whose_answer_is_lost_is_made_once(url: str, proxy: FaultyProxy, fault: str) -> None:
    blob = ps.Store(url).create("field", size=MIB)
    proxy.change_fault = lambda key, before: fault if before == 0 else ""
    versions = [blob.write([(0, np.full(8, i, np.uint8))]) for i in range(1, 6)]
    assert versions == list(range(versions[0], versions[0] + 5))
    assert [contents(blob, version) for version in versions] == list(range(1, 6))
    again = ps.Store(url, create=False).open("field")
    assert [contents(again, version) for version in versions] == list(range(1, 6))


def test_a_lost_answer_does_not_give_a_number_to_two_writers(url: str, proxy: FaultyProxy) -> None:
    """The first writer's answer is lost; its number stays its own, and the second writer takes the next."""
    ps.Store(url).create("field", size=MIB)
    blobs = [ps.Store(url).open("field") for _ in range(2)]
    first = blobs[0].write([(0, np.full(8, 1, np.uint8))])
    proxy.change_fault = lambda key, before: "lost" if before == 0 and f"{first + 1:020}" in key else ""
    versions = [blobs[0].write([(0, np.full(8, 2, np.uint8))]), blobs[1].write([(0, np.full(8, 3, np.uint8))])]
    assert versions == [first + 1, first + 2]
    assert [contents(blobs[1], version) for version in versions] == [2, 3]


def test_reads_go_on_through_failures(url: str, proxy: FaultyProxy) -> None:
    data = np.random.default_rng(1).integers(0, 255, 40 * MIB, np.uint8)
    blob = ps.Store(url).create("field", size=data.nbytes)
    version = blob.write([(0, data)])
    ways = ["cut", "reset", "internal", "slow_down"]
    proxy.fault = lambda key, before: ways[before % 4] if before < 5 else ""
    found = np.zeros_like(data)
    ps.Store(url, create=False).open("field").read([(0, found)], version=version)
    assert (found == data).all()


def test_large_writes_go_in_parts_that_may_fail(url: str, proxy: FaultyProxy) -> None:
    data = np.random.default_rng(2).integers(0, 255, 23 * MIB, np.uint8)
    place = f"{url}?part_bytes={5 * MIB}"
    blob = ps.Store(place).create("field", size=data.nbytes)
    ways = ["reset", "lost", "internal", ""]
    proxy.change_fault = lambda key, before: ways[before % 4] if before < 20 else ""
    version = blob.write([(0, data)])
    assert proxy.methods["POST"] >= 2, "an upload in parts begins and ends with a POST"
    found = np.zeros_like(data)
    blob.read([(0, found)], version=version)
    assert (found == data).all()


def checkpointer(url: str, **how: Any) -> ps.Checkpointer:
    return ps.Checkpointer(f"{url}?part_bytes={5 * MIB}&put_bytes={6 * MIB}", **how)


def test_checkpoints(url: str, proxy: FaultyProxy, tmp_path: Path, is_ceph: bool) -> None:
    """Drained to S3 from a burst buffer. Its objects are larger than one request may make, so they go in parts."""
    tree = {"weights": np.random.default_rng(3).standard_normal((2 * MIB,)), "step": 1}
    try:
        with checkpointer(url, burst_buffer=f"file://{tmp_path}/fast", keep=2) as checkpoints:
            for step in range(1, 4):
                checkpoints.save(step, {**tree, "step": step}).wait("drained")
    except ps.Error as error:
        assert is_ceph, "only an old gateway of Ceph does not know the condition for objects in parts"
        assert error.code == "unsupported" and "If-None-Match" in str(error)
        pytest.skip(f"this gateway: {error}")
    with checkpointer(url) as checkpoints:
        step, found = checkpoints.restore()
        assert step == 3 and found["step"] == 3 and (found["weights"] == tree["weights"]).all()
        assert sorted(checkpoints.steps()) == [2, 3]


def test_a_run_in_a_blob(url: str) -> None:
    tree = {"weights": np.arange(MIB, dtype=np.float32)}
    with ps.Checkpointer(url, run="training") as checkpoints:
        for step in range(3):
            checkpoints.save(step, {"weights": tree["weights"] + step}).wait("drained")
    with ps.Checkpointer(url, run="training") as checkpoints:
        step, found = checkpoints.restore()
    assert step == 2 and (found["weights"] == tree["weights"] + 2).all()


def test_a_server_that_replaces_objects_is_refused(url: str, proxy: FaultyProxy, is_ceph: bool) -> None:
    if is_ceph:
        pytest.skip("the signature covers the header that is hidden here")
    proxy.hides = {"if-none-match"}
    with pytest.raises(ps.Error, match=r"not safe for a store.*replaced") as caught:
        ps.Store(url)
    assert caught.value.code == "unsupported"


def test_objects_in_parts_are_refused_where_they_would_replace_others(
    url: str, proxy: FaultyProxy, is_ceph: bool
) -> None:
    if is_ceph:
        pytest.skip("the signature covers the header that is hidden here")
    ps.Store(url)
    with checkpointer(url) as checkpoints:
        proxy.hides = {"if-none-match"}
        with pytest.raises(ps.Error, match="by one in parts") as caught:
            checkpoints.save(1, {"weights": np.zeros(8 * MIB, np.uint8)}).wait("drained")
        assert caught.value.code == "unsupported"


def test_a_writer_that_died_in_parts_leaves_nothing_after_gc(url: str, bucket: str, server: str) -> None:
    import s3fs

    store = ps.Store(url)
    s3 = s3fs.S3FileSystem(**options_of(server))
    key = url.removeprefix(f"s3://{bucket}/") + "/data/dead"
    s3.call_s3("create_multipart_upload", Bucket=bucket, Key=key)
    listed = s3.call_s3("list_multipart_uploads", Bucket=bucket, Prefix=key)
    assert len(listed["Uploads"]) == 1
    store.gc(lease=0)
    assert not s3.call_s3("list_multipart_uploads", Bucket=bucket, Prefix=key).get("Uploads")


def test_errors_say_what_to_do(url: str, proxy: FaultyProxy, is_ceph: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ps.Error, match="no bucket not-there; create it") as caught:
        ps.Store("s3://not-there/run7")
    assert isinstance(caught.value, FileNotFoundError)
    with pytest.raises(ps.Error, match="no such store"):
        ps.Store(url, create=False)
    with pytest.raises(ps.Error, match="timeout_s=soon: expected a whole number"):
        ps.Store(f"{url}?timeout_s=soon")
    with pytest.raises(ps.Error, match="unknown parameter 'colour'"):
        ps.Store(f"{url}?colour=red")
    proxy.fault = lambda key, before: "slow_down"
    with pytest.raises(ps.Error, match=r"did not answer|503 SlowDown"):
        ps.Store(f"{url}?timeout_s=1")
    proxy.reset()
    if is_ceph:  # moto takes any secret
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
        with pytest.raises(ps.Error, match="403 SignatureDoesNotMatch; check the credentials"):
            ps.Store(url)
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("HOME", "/nonexistent")
    with pytest.raises(ps.Error, match="no credentials: set AWS_ACCESS_KEY_ID"):
        ps.Store(url)


def test_a_profile_and_the_command_line(
    url: str, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/credentials").write_text(
        f"[default]\naws_access_key_id = nobody\naws_secret_access_key = x\n"
        f"[lab]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n"
    )
    (tmp_path / ".aws/config").write_text(f"[profile lab]\nregion = default\nendpoint_url = {proxy.url}\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name)
    place = f"{url}?profile=lab"
    ps.Store(place).create("field", size=16).write([(5, b"penstock")])
    command = [sys.executable, "-m", "penstock"]
    done = subprocess.run(
        [*command, "store", "export", f"{url}/field?profile=lab", tmp_path / "field"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "field").read_bytes()[5:13] == b"penstock"
    done = subprocess.run([*command, "doctor", "--store", place], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_child_of_fork_has_its_own_connections(url: str) -> None:
    blob = ps.Store(url).create("field", size=8)
    versions = {blob.write([(0, b"parent..")])}
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        version = blob.write([(0, b"child...")])
        os.write(write_end, version.to_bytes(8, "little"))
        os._exit(0)
    versions |= {blob.write([(0, b"parent..")]) for _ in range(20)}
    assert os.waitpid(child, 0)[1] == 0
    versions.add(int.from_bytes(os.read(read_end, 8), "little"))
    assert len(versions) == 22
