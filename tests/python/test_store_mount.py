"""penstock store mount: versions as plain files, and a mount that is always removed."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import penstock as ps
import pytest

COMMAND = [sys.executable, "-m", "penstock", "store", "mount"]
needs_fuse = pytest.mark.skipif(
    not os.access("/dev/fuse", os.R_OK | os.W_OK) or shutil.which("fusermount3") is None,
    reason="needs /dev/fuse and fusermount3",
)


@pytest.fixture
def store(tmp_path: Path) -> ps.Store:
    return ps.Store(f"file://{tmp_path}/store", durable=False)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    made = tmp_path / "mounted"
    made.mkdir()
    yield made
    if os.path.ismount(made):
        subprocess.run(["fusermount3", "-u", str(made)], check=True)


def mount(store: ps.Store, place: Path) -> None:
    done = subprocess.run([*COMMAND, store.url, str(place)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@needs_fuse
def test_versions_are_files(store: ps.Store, place: Path) -> None:
    rng = np.random.default_rng(1)
    first, second = (rng.integers(0, 256, 5_000_003, np.uint8) for _ in range(2))
    blob = store.create("field", grows=True)
    blob.write([(0, first)])
    blob.write([(100, second), (9_000_000, second[:7])])
    blob.tag("good", 1)
    store.create("empty", size=10)
    mount(store, place)
    assert sorted(os.listdir(place)) == ["empty", "field"]
    assert sorted(os.listdir(place / "field")) == ["latest", "tags", "versions"]
    assert os.listdir(place / "field/versions") == ["0", "1", "2"]
    assert os.listdir(place / "field/tags") == ["good"]
    assert (place / "field/tags/good").read_bytes() == first.tobytes()
    assert (place / "empty/latest").read_bytes() == bytes(10)
    expected = np.zeros(9_000_007, np.uint8)
    expected[: first.size], expected[100 : 100 + second.size], expected[9_000_000:] = first, second, second[:7]
    assert (np.fromfile(place / "field/latest", np.uint8) == expected).all()
    assert (np.memmap(place / "field/versions/2", np.uint8, "r")[4_999_000:] == expected[4_999_000:]).all()
    with (place / "field/versions/2").open("rb", buffering=0) as file:
        for offset in (8_999_990, 3, 5_000_000, 4_999_999, 0, 9_000_006, 9_000_007, 10_000_000):
            assert os.pread(file.fileno(), 100, offset) == expected[offset : offset + 100].tobytes()
    found = (place / "field/versions/1").stat()
    written = {row["version"]: row["time"] for row in blob.log()}
    assert found.st_size == first.size and found.st_mtime == pytest.approx(written[1], abs=0.01)
    # An open file keeps its version. New versions appear without another mount.
    with (place / "field/latest").open("rb") as old:
        blob.write([(0, b"new")])
        blob.tag("newer")
        assert old.read(3) == expected[:3].tobytes()
    assert (place / "field/latest").read_bytes()[:3] == b"new"
    assert os.readlink(place / "field/tags/newer") == "../versions/3"


@needs_fuse
def test_what_is_not_there_and_what_cannot_be_done(store: ps.Store, place: Path) -> None:
    blob = store.create("field", size=100)
    blob.write([(0, b"x")])
    mount(store, place)
    for name in ("none", "field/none", "field/versions/2", "field/versions/01", "field/versions/x", "field/tags/none"):
        with pytest.raises(FileNotFoundError):
            (place / name).stat()
    for action in (
        lambda: (place / "field/versions/1").write_bytes(b"x"),
        lambda: (place / "new").mkdir(),
        lambda: (place / "field/versions/1").unlink(),
    ):
        with pytest.raises(OSError, match=r"Read-only|denied|permitted") as caught:
            action()
        assert caught.value.errno in (errno.EROFS, errno.EACCES)
    again = subprocess.run([*COMMAND, store.url, str(place)], capture_output=True, text=True, check=False)
    assert again.returncode == 1 and "mounted already" in again.stderr
    store.remove("field")
    assert os.listdir(place) == []


@needs_fuse
def test_a_damaged_version_is_an_error_of_the_reader(store: ps.Store, place: Path, tmp_path: Path) -> None:
    blob = store.create("field", size=1 << 20)
    blob.write([(0, np.ones(1 << 20, np.uint8))])
    blob.write([(0, np.full(1 << 19, 2, np.uint8))])
    mount(store, place)
    objects = sorted((tmp_path / "store").glob("places/*/data/*"), key=lambda path: path.stat().st_size)
    with objects[-1].open("r+b") as file:
        file.seek(700_000)
        file.write(b"?")
    with pytest.raises(OSError, match="Input/output") as caught:
        (place / "field/versions/1").read_bytes()
    assert caught.value.errno == errno.EIO
    assert (place / "field/versions/2").open("rb").read(1000) == b"\2" * 1000


@needs_fuse
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_unmounts(store: ps.Store, place: Path, number: signal.Signals) -> None:
    store.create("field", size=10).write([(0, b"x")])
    server = subprocess.Popen([*COMMAND, store.url, str(place), "--foreground"])
    while not os.path.ismount(place):
        assert server.poll() is None, "it ended before it had mounted"
        time.sleep(0.02)
    assert (place / "field/latest").read_bytes() == b"x" + bytes(9)
    server.send_signal(number)
    assert server.wait() == 0
    assert not os.path.ismount(place)
    assert os.listdir(place) == []


@needs_fuse
@pytest.mark.parametrize("foreground", [[], ["--foreground"]])
def test_a_store_that_is_not_there(place: Path, tmp_path: Path, foreground: list[str]) -> None:
    done = subprocess.run(
        [*COMMAND, f"file://{tmp_path}/none", str(place), *foreground],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1 and "no such directory" in done.stderr
    assert not os.path.ismount(place)


def test_a_directory_that_cannot_be_mounted_on(store: ps.Store, tmp_path: Path) -> None:
    done = subprocess.run([*COMMAND, store.url, str(tmp_path / "none")], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "is not a directory" in done.stderr
