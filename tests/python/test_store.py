"""penstock.Store from Python: one process, no MPI."""

from __future__ import annotations

import ctypes.util
import errno
import io
import json
import os
import pickle
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import penstock as ps
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from penstock.cli import main

HUNG_S = 600  # only a hang takes this long


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ps.Store:
    return ps.Store(f"{request.param}://{tmp_path}/store")


def read(source: ps.Blob | ps.Snapshot, offset: int, size: int) -> bytes:
    data = bytearray(size)
    source.read([(offset, data)])
    return bytes(data)


def test_a_path_is_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ps.Store(Path("run")).create("field", size=3).write([(0, b"abc")])
    assert ps.Store(f"file://{tmp_path}/run").open("field").read_bytes() == b"abc"


def test_reads_bytes_and_arrays(store: ps.Store) -> None:
    blob = store.create("field", size=100)
    numbers = np.arange(10, dtype="<f8")
    blob.write([(16, numbers)])
    blob.write([(16, b"\xff" * 80)])
    then = blob.snapshot(1)
    np.testing.assert_array_equal(then.read_array("<f8", offset=16, count=10), numbers)
    np.testing.assert_array_equal(blob.read_array("<f8", 16, 3, version=1), numbers[:3])
    assert then.read_array("<f8", offset=16).size == 10, "whole elements up to the end"
    assert blob.read_bytes(95) == b"\xff\0\0\0\0"
    assert blob.read_bytes(15, 2) == b"\0\xff"
    assert blob.read_bytes(98, 10) == b"\0\0"
    assert blob.read_bytes(100) == blob.read_bytes(1000, 1) == b""
    assert len(blob.read_bytes()) == 100
    for wrong in [{"offset": -1}, {"count": -1}, {"dtype": object}]:
        with pytest.raises(ps.Error, match="expected"):
            then.read_array(**wrong)


def test_a_version_is_a_file(store: ps.Store) -> None:
    blob = store.create("table.npy", size=1_000_128)
    content = io.BytesIO()
    np.save(content, np.arange(125_000, dtype="<i8"))
    blob.write([(0, content.getvalue())])
    with blob.snapshot().open() as file:
        blob.write([(0, b"later")])
        assert file.seekable()
        assert file.readable()
        assert not file.writable()
        np.testing.assert_array_equal(np.load(file), np.arange(125_000))
        assert file.read() == b""
        assert file.seek(-8, os.SEEK_END) == 1_000_120
        assert file.read(100) == (124_999).to_bytes(8, "little")
        assert file.seek(2_000_000) == 2_000_000
        assert file.read(1) == b""
        with pytest.raises(ps.Error, match="expected a place"):
            file.raw.seek(-1)
    with pytest.raises(ValueError, match="closed"):
        file.read()


def test_errors_are_pythons_own_too(store: ps.Store) -> None:
    store.create("field", size=10)
    with pytest.raises(FileExistsError) as exists:
        store.create("field", size=10)
    assert isinstance(exists.value, ps.Error)
    assert (exists.value.code, exists.value.errno) == ("exists", errno.EEXIST)
    with pytest.raises(FileNotFoundError, match="does not exist") as missing:
        store.open("other")
    assert (missing.value.code, missing.value.errno) == ("not_found", errno.ENOENT)
    with pytest.raises(ValueError, match="write of") as refused:
        store.open("field").write([(9, b"ab")])
    assert isinstance(refused.value, ps.Error)
    for error in (exists.value, missing.value, refused.value):
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error)
        assert str(again) == str(error)


def test_a_write_is_one_version(store: ps.Store) -> None:
    blob = store.create("field", size=1 << 20)
    field = np.arange(1000, dtype=np.float64)
    assert blob.write([(0, b"abc"), (5000, field), (100_000, memoryview(b"xyz"))]) == 1
    assert blob.write([(1, b"B")]) == blob.latest == 2
    back = np.empty_like(field)
    assert blob.read([(5000, back)], version=1) is None
    np.testing.assert_array_equal(back, field)
    assert read(blob, 0, 4) == b"aBc\0"
    assert read(blob.snapshot(1), 0, 3) == b"abc"
    assert read(blob.snapshot(0), 0, 3) == b"\0\0\0"
    assert blob.wait(2) is True
    assert blob.wait(3, timeout=0.01) is False
    first, second = blob.log()
    assert (first["version"], first["bytes"], first["regions"], first["kind"]) == (1, 8006, 3, "write")
    assert second["time"] >= first["time"]
    assert blob.log(first=2) == [second]


def test_a_write_on_condition_that_nothing_changed(store: ps.Store) -> None:
    blob = store.create("field", size=100)
    assert blob.write([(0, b"one")], parent=0) == 1
    with pytest.raises(FileExistsError, match="version 1 was made by") as refused:
        blob.write([(0, b"two")], parent=0)
    assert isinstance(refused.value, ps.Error)
    assert refused.value.code == "exists"
    assert read(blob, 0, 3) == b"one"
    assert blob.write([(0, b"two")], parent=blob.latest) == 2
    with pytest.raises(ps.Error, match="the newest is 2"):
        blob.write([(0, b"new")], parent=3)


def test_growing_blobs(store: ps.Store) -> None:
    blob = store.create("log", grows=True)
    assert blob.append(b"one", b"two") == (1, 0)
    assert blob.append(np.zeros(3, np.uint8)) == (2, 6)
    assert blob.size == 9
    assert blob.resize(4) == 3
    assert read(blob, 0, 4) == b"onet"
    assert blob.snapshot(2).size == 9


def test_names(store: ps.Store) -> None:
    store.create("b", size=7)
    store.create("a", grows=True)
    assert "a" in store
    assert "c" not in store
    assert store.open("b").size == 7
    assert [(b["name"], b["size"], b["latest_version"], b["grows"]) for b in store.list()] == [
        ("a", 0, 0, True),
        ("b", 7, 0, False),
    ]


@pytest.mark.parametrize(
    ("action", "code"),
    [
        (lambda s, b: b.write([(95, b"too long")]), "invalid_argument"),
        (lambda s, b: b.write([(-1, b"x")]), "invalid_argument"),
        (lambda s, b: b.write([(1 << 70, b"x")]), "invalid_argument"),
        (lambda s, b: b.write([(0, b"abc"), (2, b"d")]), "invalid_argument"),
        (lambda s, b: b.write([b"abc"]), "invalid_argument"),
        (lambda s, b: b.write([(0, np.zeros((4, 4))[:, 1])]), "invalid_argument"),
        (lambda s, b: b.read([(0, b"read-only")]), "invalid_argument"),
        (lambda s, b: b.read([(99, bytearray(2))]), "invalid_argument"),
        (lambda s, b: b.read([(0, bytearray(2))], version=7), "not_found"),
        (lambda s, b: b.append(b"x"), "invalid_argument"),
        (lambda s, b: s.open("none"), "not_found"),
        (lambda s, b: s.create("field"), "exists"),
        (lambda s, b: s.create("no/such/name"), "invalid_argument"),
        (lambda s, b: s.gc(keep_last=0), "invalid_argument"),
        (lambda s, b: s.gc(keep_last=-1), "invalid_argument"),
        (lambda s, b: s.gc(keep_for=-1), "invalid_argument"),
        (lambda s, b: s.gc(lease=float("nan")), "invalid_argument"),
        (lambda s, b: b.snapshot(-1), "invalid_argument"),
        (lambda s, b: b.snapshot("1"), "invalid_argument"),
        (lambda s, b: b.snapshot(type("Mute", (), {"__repr__": lambda self: 1 / 0})()), "invalid_argument"),
        (lambda s, b: s.create("other", size=-1), "invalid_argument"),
        (lambda s, b: s.create("other", size=(1 << 63) + 1), "invalid_argument"),
    ],
)
def test_bad_input(store: ps.Store, action, code: str) -> None:
    blob = store.create("field", size=100)
    with pytest.raises(ps.Error) as caught:
        action(store, blob)
    assert caught.value.code == code
    assert blob.latest == 0


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("/scratch/run7", "invalid_argument"),
        ("ftp://host/x", "invalid_argument"),
        ("file:relative", "invalid_argument"),
        ("s3://bucket/run 7", "invalid_argument"),
        ("rados://pool", "invalid_argument"),
    ],
)
def test_bad_urls(url: str, code: str) -> None:
    with pytest.raises(ps.Error) as caught:
        ps.Store(url)
    assert caught.value.code == code


def test_a_ceph_that_is_not_there_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ps.Error) as caught:
        ps.Store(f"rados://pool/space?conf={tmp_path}/none")
    if ctypes.util.find_library("rados") is None:
        assert (caught.value.code, "install" in str(caught.value)) == ("unsupported", True)
    else:
        assert (caught.value.code, "CEPH_CONF" in str(caught.value)) == ("not_found", True)


def test_a_directory_that_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ps.Error, match="not a store") as caught:
        ps.Store(f"file://{tmp_path}")
    assert caught.value.code == "invalid_argument"
    with pytest.raises(ps.Error) as caught:
        ps.Store(f"file://{tmp_path}/none", create=False)
    assert caught.value.code == "not_found"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize(
    "text", ["", "garbage", '{"penstock": "checkpoint", "format": 1}\n', '{"penstock": "store"}\n']
)
def test_a_directory_of_something_else(tmp_path: Path, text: str) -> None:
    (tmp_path / "PENSTOCK").write_text(text)
    with pytest.raises(ps.Error, match="no format of a store") as caught:
        ps.Store(f"file://{tmp_path}")
    assert caught.value.code == "corrupt"
    assert os.listdir(tmp_path) == ["PENSTOCK"]


def test_a_store_of_a_newer_format(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store"
    ps.Store(url).create("field", size=10)
    (tmp_path / "store" / "PENSTOCK").write_text('{"penstock": "store", "format": 2}\n')
    before = sorted(tmp_path.rglob("*"))
    for create in (True, False):
        with pytest.raises(ps.Error, match="newer") as caught:
            ps.Store(url, create=create)
        assert caught.value.code == "unsupported"
    assert sorted(tmp_path.rglob("*")) == before


def test_what_is_refused_writes_nothing(tmp_path: Path) -> None:
    blob = ps.Store(f"file://{tmp_path}/store", durable=False).create("field", grows=True)
    before = sorted(tmp_path.rglob("*"))
    large = bytes(5000)  # larger than a record can hold inline
    for regions in ([(-1, large)], [(0, large), (4999, large)], [((1 << 63) - 1, large)], [(1 << 64, large)]):
        with pytest.raises(ps.Error) as caught:
            blob.write(regions)
        assert caught.value.code == "invalid_argument"
    full = ps.Store(f"file://{tmp_path}/store", durable=False).create("full", size=1 << 63, grows=True)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ps.Error) as caught:
        full.append(large)
    assert caught.value.code == "invalid_argument"
    for version in (1, 1 << 62):
        with pytest.raises(ps.Error) as caught:
            blob.read([(0, bytearray(1))], version=version)
        assert caught.value.code == "not_found"
    assert sorted(tmp_path.rglob("*")) == before


def test_a_child_of_fork_is_another_writer(tmp_path: Path) -> None:
    """Though both have the same handle and count their writes alike."""
    url = f"file://{tmp_path}/store"
    script = """
import os, sys, penstock as ps
blob = ps.Store(sys.argv[1], durable=False).open("field")
child = os.fork()
mine = 1 + (child == 0)
for _ in range(30):
    blob.append(bytes([mine]) * 10_000)
if child == 0:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""
    blob = ps.Store(url, durable=False).create("field", grows=True)
    assert subprocess.run([sys.executable, "-c", script, url], check=False).returncode == 0
    assert (blob.latest, blob.size) == (60, 600_000)
    found = np.empty((60, 10_000), np.uint8)
    blob.read([(0, found)])
    assert (found == found[:, :1]).all()
    assert np.bincount(found[:, 0]).tolist() == [0, 30, 30]
    assert ps.Store(url).check()["problems"] == []
    assert len({entry["writer"] for entry in blob.log()}) == 2
    objects = [path.name.split("-") for path in tmp_path.rglob("data/*")]
    assert len(objects) == 60
    assert len({number for _, _, number, _ in objects}) == 2


@pytest.mark.parametrize(("versions", "regions", "places"), [(30, 16, 30), (1200, 1, 8), (1200, 1, 1200)])
def test_metadata_is_small(tmp_path: Path, versions: int, regions: int, places: int) -> None:
    """Less than 1 % of the data, for regions of 64 KiB, however many versions exist and can be read."""
    size = 64 << 10
    blob = ps.Store(f"file://{tmp_path}/store", durable=False).create("field", size=places * regions * size)
    for version in range(versions):
        data = bytes([version % 255 + 1]) * size
        blob.write([((region * places + version % places) * size, data) for region in range(regions)])
    written = versions * regions * size
    stored = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert 0 < stored - written < 0.009 * written
    shutil.rmtree(tmp_path / "store")


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.tuples(st.integers(0, 60), st.binary(max_size=20)), max_size=4), max_size=12))
def test_histories_agree_with_a_bytearray(history: list[list[tuple[int, bytes]]]) -> None:
    blob = ps.Store("memory:").create("field", grows=True)
    models = [b""]
    for write in history:
        model, regions, end = bytearray(models[-1]), [], 0
        for offset, data in sorted(write):
            if offset < end:
                continue
            end = offset + len(data)
            regions.append((offset, data))
            if data:
                model.extend(bytes(max(0, end - len(model))))
                model[offset:end] = data
        assert blob.write(regions) == len(models)
        models.append(bytes(model))
    for version, model in enumerate(models):
        snapshot = blob.snapshot(version)
        assert snapshot.size == len(model)
        assert read(snapshot, 0, len(model)) == model


def test_writers_in_other_processes(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store"
    blob = ps.Store(url, durable=False).create("field", size=40_000)
    script = """
import sys, penstock as ps
blob = ps.Store(sys.argv[1], durable=False).open("field")
for i in range(10):
    tile = bytes([int(sys.argv[2]) * 10 + i + 1]) * 1000
    blob.write([(2000 * row + 300 * int(sys.argv[2]), tile) for row in range(20)])
"""
    writers = [subprocess.Popen([sys.executable, "-c", script, url, str(i)]) for i in range(3)]
    assert blob.wait(30, timeout=HUNG_S)
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    for version in range(1, 31):
        rows = np.empty((20, 2000), np.uint8)
        blob.read([(0, rows)], version=version)
        assert (rows == rows[0]).all(), f"version {version} is torn"


def test_waiting_lets_other_threads_run(store: ps.Store) -> None:
    blob = store.create("field", size=1)
    writer = threading.Timer(0.05, lambda: blob.write([(0, b"x")]))
    writer.start()
    assert blob.wait(1)
    writer.join()


def run(*arguments: str) -> dict:
    result = CliRunner().invoke(main, ["store", *arguments, "--json"], catch_exceptions=False)
    return {"exit": result.exit_code, **json.loads(result.stdout)}


def test_command_line(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store"
    store = ps.Store(url)
    blob = store.create("field", size=20_000)
    for value in range(1, 6):
        blob.write([(0, bytes([value]) * 10_000)])
    assert run("ls", url)["blobs"] == store.list()
    assert [row["version"] for row in run("log", f"{url}/field", "--first", "4")["versions"]] == [4, 5]
    assert run("read", f"{url}/field", "--offset", "9998", "--size", "4", "--version", "2")["hex"] == "02020000"
    plain = tmp_path / "plain"
    assert run("export", f"{url}/field", str(plain))["version"] == 5
    assert plain.read_bytes() == b"\5" * 10_000 + bytes(10_000)
    assert run("check", url)["problems"] == []
    assert run("gc", url, "--keep-last", "2")["versions_removed"] == 3
    assert run("ls", url)["blobs"][0]["first_version"] == 4
    for command in ("ls", "check", "gc"):
        assert CliRunner().invoke(main, ["store", command, url]).exit_code == 0
    assert "append" not in CliRunner().invoke(main, ["store", "log", f"{url}/field"]).output
    raw = CliRunner().invoke(main, ["store", "read", f"{url}/field", "--size", "3"])
    assert raw.stdout_bytes == b"\5\5\5"

    victim = max((tmp_path / "store").glob("places/*/data/*"))
    data = bytearray(victim.read_bytes())
    data[17] ^= 1
    victim.write_bytes(data)
    found = run("check", url)
    assert found["exit"] == 1
    assert victim.name in found["problems"][0]
    failed = CliRunner().invoke(main, ["store", "ls", f"file://{tmp_path}/none"])
    assert failed.exit_code == 1
    assert "not_found" in failed.output


def test_damage_is_said_and_repaired(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store"
    blob = ps.Store(url).create("field", size=100)
    for value in (1, 2, 3):
        blob.write([(0, bytes([value]) * 50)])
    (record,) = (tmp_path / "store").glob("places/*/versions/*2")
    record.write_bytes(record.read_bytes()[:-1])
    program = f"""
import warnings
import penstock as ps
blob = ps.Store({url!r}).open("field")
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    data = bytearray(1)
    blob.read([(0, data)])
    snapshot = blob.snapshot()
print(data[0], snapshot.version, len(caught), caught[0].category.__name__, "repair" in snapshot.damage)
try:
    blob.write([(0, b"x")])
except ps.Error as error:
    print(error.code)
"""
    # This process knows the versions as they were before.
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "1", "2", "DamageWarning", "True", "corrupt"]
    assert run("check", url)["exit"] == 1
    plan = run("repair", url)
    assert (plan["exit"], plan["applied"], len(plan["actions"]), plan["remaining"]) == (1, False, 1, [])
    assert plan["actions"][0]["object"].endswith("00002")
    assert run("repair", url, "--apply")["exit"] == 0
    assert run("repair", url)["exit"] == 0
    assert run("check", url)["exit"] == 0
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode != 0, "a warning without damage"
    blob = ps.Store(url).open("field")
    assert blob.write([(0, b"x")]) == 4
    assert [row["kind"] for row in blob.log()] == ["write", "lost", "write", "write"]


def test_snapshots_from_the_command_line(tmp_path: Path) -> None:
    place = f"file://{tmp_path}/store"
    url = f"{place}/field"
    store = ps.Store(place)
    blob = store.create("field", size=20_000)
    for value in range(1, 6):
        blob.write([(value * 1_000, bytes([value]) * 5_000)])
    assert run("tag", url)["tags"] == {}
    assert run("tag", url, "third", "--version", "3")["tags"] == {"third": 3}
    assert run("tag", url, "now")["tags"] == {"third": 3, "now": 5} == blob.tags
    assert run("diff", url, "third")["regions"] == [{"offset": 4_000, "bytes": 6_000}]
    assert run("diff", url, "3", "4")["regions"] == [{"offset": 4_000, "bytes": 5_000}]
    assert run("compact", url, "--version", "third")["version"] == 3
    assert run("clone", url, "branch", "--version", "third")["bytes"] == 20_000
    assert run("gc", place, "--keep-last", "1")["versions_removed"] == 4
    assert run("check", place)["problems"] == []
    expected = run("read", url, "--version", "third")["hex"]
    assert expected == (bytes(1_000) + b"\1" * 1_000 + b"\2" * 1_000 + b"\3" * 5_000 + bytes(12_000)).hex()
    assert run("read", f"{place}/branch")["hex"] == expected
    assert run("tag", url, "third", "--delete")["tags"] == {"now": 5}
    assert run("rm", url)["bytes_freed"] > 5_000
    assert [row["name"] for row in run("ls", place)["blobs"]] == ["branch"]
    assert run("read", f"{place}/branch")["hex"] == expected
    branch = f"{place}/branch"
    for arguments in (("tag", branch, "x"), ("tag", branch), ("diff", branch, "x"), ("compact", branch)):
        done = CliRunner().invoke(main, ["store", *arguments])
        assert done.exit_code == 0, done.output
    assert "x" in CliRunner().invoke(main, ["store", "tag", branch]).output
    missing = CliRunner().invoke(main, ["store", "read", branch, "--version", "nothing"])
    assert missing.exit_code == 1
    assert "has no tag 'nothing'; it has x" in missing.output
    assert CliRunner().invoke(main, ["store", "clone", branch, "twig"]).exit_code == 0
    assert CliRunner().invoke(main, ["store", "rm", f"{place}/twig"]).exit_code == 0
    assert CliRunner().invoke(main, ["store", "tag", branch, "--delete"]).exit_code == 2


def test_blobs_are_made_and_written_from_the_command_line(tmp_path: Path) -> None:
    place = f"file://{tmp_path}/store"
    part, big = tmp_path / "part", tmp_path / "big"
    part.write_bytes(b"part")
    big.write_bytes(os.urandom(10_000))
    assert run("create", place, "field", "--size", "4K") == {
        "exit": 0, "url": place, "name": "field", "bytes": 4096, "grows": False,
    }  # fmt: skip
    assert run("create", f"{place}/log", "--grows")["grows"] is True
    assert run("write", f"{place}/field", str(part), "--offset", "1K")["version"] == 1
    assert run("read", f"{place}/field", "--offset", "1020", "--size", "8")["hex"] == (b"\0\0\0\0part").hex()
    piped = CliRunner().invoke(main, ["store", "append", f"{place}/log"], input=b"one ")
    assert (piped.exit_code, piped.output) == (0, f"{place}/log: version 1, 4 bytes at 0\n")
    assert run("append", f"{place}/log", str(part))["offset"] == 4
    assert bytes.fromhex(run("read", f"{place}/log")["hex"]) == b"one part"
    assert run("resize", f"{place}/log", "3")["version"] == 3
    assert bytes.fromhex(run("read", f"{place}/log")["hex"]) == b"one"
    assert run("import", f"{place}/copy", str(big))["bytes"] == 10_000
    assert run("export", f"{place}/copy", str(tmp_path / "back"))["bytes"] == 10_000
    assert (tmp_path / "back").read_bytes() == big.read_bytes()
    assert [row["name"] for row in ps.Store(place).list()] == ["copy", "field", "log"]
    for arguments in (
        ("create", place, "x", "--size", "1"),
        ("import", f"{place}/y", str(part)),
        ("resize", f"{place}/log", "1"),
    ):
        assert CliRunner().invoke(main, ["store", *arguments]).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (("create", "{place}", "x"), 2, "give its --size, or --grows"),
        (("create", "{place}", "field", "--size", "1"), 1, "exists already"),
        (("create", "{place}", "x", "--size", "1Q"), 2, "'1Q' is not a size; expected bytes such as 4096, 64K"),
        (("create", "{place}", "x", "--size", "-1"), 2, "is not a size"),
        (("write", "{place}/field", "{empty}"), 2, "give a file with data"),
        (("write", "{place}/field", "{place}"), 2, "does not exist"),
        (("write", "{place}/field", "{part}", "--offset", "8"), 2, "expected it within [0, 8)"),
        (("write", "{place}/none", "{part}"), 1, "does not exist"),
        (("append", "{place}/field", "{part}"), 2, "does not grow"),
        (("import", "{place}/x", "{empty}"), 2, "is empty"),
        (("read", "{place}/field", "--offset", "9"), 2, "from 9 on were asked for, but version 0 has 8"),
        (("read", "{place}/field", "--size", "999999999999999", "--json"), 2, "were asked for"),
        (("log", "{place}"), 2, "is a store; give one of its blobs as {place}/NAME; it has field"),
        (("ls", "nonsense"), 2, "is not a store URL: expected one of memory:, file:"),
        (("mount", "nonsense", "{folder}"), 2, "is not a store URL"),
    ],
)
def test_mistakes_on_the_command_line_are_one_line(
    tmp_path: Path, arguments: tuple[str, ...], status: int, text: str
) -> None:
    if arguments[0] == "mount":
        pytest.importorskip("mfusepy")
    names = {"place": f"file://{tmp_path}/store", "empty": str(tmp_path / "empty"), "part": str(tmp_path / "part")}
    names["folder"] = str(tmp_path / "folder")
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty").touch()
    (tmp_path / "part").write_bytes(b"part")
    ps.Store(names["place"]).create("field", size=8)
    result = CliRunner().invoke(main, ["store", *(word.format(**names) for word in arguments)])
    assert result.exit_code == status, result.output
    (line,) = result.output.splitlines()
    assert line.startswith(f"penstock store {arguments[0]}: ")
    assert text.format(**names) in line


def test_clones_share_the_data(tmp_path: Path) -> None:
    store = ps.Store(f"file://{tmp_path}/store")
    blob = store.create("field", size=1 << 20)
    blob.write([(0, bytes(1 << 20))])
    (original,) = (tmp_path / "store").glob("places/*/data/*")
    clone = store.clone("field", "branch")
    assert original.stat().st_nlink == 2
    clone.write([(0, b"x" * 5_000)])
    assert blob.latest == 1
    store.remove("field")
    data = bytearray(6_000)
    store.open("branch").read([(0, data)])
    assert data == b"x" * 5_000 + bytes(1_000)
