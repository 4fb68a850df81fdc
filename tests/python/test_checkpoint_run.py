"""Checkpoints in a store: what the store's own means see of them, and what a save writes."""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import pathlib
import subprocess
import sys
import textwrap
import warnings

import numpy as np
import penstock as ps
import pytest
from click.testing import CliRunner
from penstock.cli import main

MIB = 1 << 20


@pytest.fixture
def url(tmp_path: pathlib.Path) -> str:
    return f"file://{tmp_path}/store"


def run_command(*words: str) -> str:
    result = CliRunner().invoke(main, list(words))
    assert result.exit_code == 0, result.output
    return result.output


def written_bytes(url: str) -> list[int]:
    return [entry["bytes"] for entry in ps.Store(url).open("one").log()]


def test_a_save_writes_what_has_changed(url):
    """5% changed contiguously, in 256 chunks: at most 6% is written."""
    state = np.random.default_rng(1).integers(0, 255, 32 * MIB, np.uint8)
    twentieth = len(state) // 20
    with ps.Checkpointer(url, run="one", chunk_bytes=MIB // 8) as ck:
        ck.save(0, {"a": state}).wait()
        for step in (1, 2, 3):
            begin = step * 17 * MIB // 4 + 12_345
            state[begin : begin + twentieth] ^= 1
            ck.save(step, {"a": state}).wait()
        step, tree = ck.restore()
        assert step == 3
        assert np.array_equal(tree["a"], state)
    _, whole, *others = written_bytes(url)
    assert whole >= len(state)
    for nbytes in others:
        assert twentieth <= nbytes <= 0.06 * len(state)
    # Another job goes on from there.
    with ps.Checkpointer(url, run="one", chunk_bytes=MIB // 8) as ck:
        ck.save(4, {"a": state}).wait()
        assert np.array_equal(ck.restore()[1]["a"], state)
    assert written_bytes(url)[-1] < 0.001 * len(state)


def test_compressed_checkpoints(url, tmp_path):
    """Through a burst buffer, which is not compressed; restored by a job that does not ask for compression."""
    state = np.random.default_rng(1).integers(0, 4, 8 * MIB, np.int64)
    with ps.Checkpointer(url, run="one", burst_buffer=f"file://{tmp_path}/fast", compress_level=3) as ck:
        ck.save(1, {"a": state}).wait()
        state[5] = 7
        ck.save(2, {"a": state}).wait()
    stored = sum(path.stat().st_size for path in (tmp_path / "store").rglob("data/*"))
    assert state.nbytes / 100 < stored < state.nbytes / 8
    with ps.Checkpointer(url, run="one") as ck:
        assert np.array_equal(ck.restore()[1]["a"], state)
        assert ck.restore(step=1)[1]["a"][5] != 7
    assert "no problem" in run_command("checkpoint", "verify", url, "--run", "one")
    assert "0 problems" in run_command("store", "check", url) or "no problem" in run_command("store", "check", url)
    with pytest.raises(ps.Error, match="without a run"):
        ps.Checkpointer(f"file://{tmp_path}/folder", compress_level=3)
    with pytest.raises(ps.Error, match="a level of zstd, 1 to 22"):
        ps.Checkpointer(url, run="one", compress_level=40)


def test_a_compressed_store_is_smaller_and_reads_alike(url, tmp_path):
    blob = ps.Store(url, compress_level=1).create("b", size=MIB)
    blob.write([(0, np.zeros(MIB, np.uint8))])
    assert ps.Store(url).open("b").read_bytes() == bytes(MIB)
    assert sum(path.stat().st_size for path in (tmp_path / "store").rglob("data/*")) < MIB // 100


def test_a_compressed_write_of_any_size_takes_little_memory(tmp_path):
    program = """
        import sys
        import numpy as np
        import penstock as ps

        def memory(key):
            return next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith(key))

        store = ps.Store(sys.argv[1], compress_level=1, durable=False)
        data = np.random.default_rng(0).integers(0, 16, 160_000_000, np.uint8)
        blob = store.create("a", data.nbytes)
        blob.write([(0, data[:100])])
        before = memory("VmRSS")
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")  # the peak begins anew
        blob.write([(0, data[:70_000_001]), (70_000_001, data[70_000_001:])])
        print(memory("VmHWM") - before)
        assert blob.log()[-1]["regions"] == 6
        assert (blob.read_array() == data).all()
        """
    try:
        open("/proc/self/clear_refs", "w").close()
    except OSError:
        pytest.skip("the peak of the memory cannot be begun anew here")
    words = [sys.executable, "-c", textwrap.dedent(program), f"file://{tmp_path}/store"]
    beside = int(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    assert beside <= 64 << 20, f"{beside} bytes"


def cached_share(path: pathlib.Path) -> float:
    """Which part of a file is in the page cache."""
    libc = ctypes.CDLL(None, use_errno=True)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ) as mapped:
        view = np.frombuffer(mapped, np.uint8)
        pages = np.zeros(-(-len(mapped) // mmap.PAGESIZE), np.uint8)
        address = ctypes.c_void_p(view.ctypes.data)
        done = libc.mincore(address, ctypes.c_size_t(len(mapped)), pages.ctypes.data_as(ctypes.c_char_p))
        assert done == 0, os.strerror(ctypes.get_errno())
        del view
    return float((pages & 1).mean())


@pytest.mark.parametrize("burst_buffer", [False, True])
def test_what_is_saved_does_not_stay_in_the_page_cache(url, tmp_path, burst_buffer):
    """It would take the place of what the program reads."""
    with (tmp_path / "plain").open("wb") as plain:
        plain.write(bytes(MIB))
        plain.flush()
        os.fsync(plain.fileno())
        os.posix_fadvise(plain.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if cached_share(tmp_path / "plain") > 0.1:
        pytest.skip("this file system keeps all files in memory")
    fast = f"file://{tmp_path}/fast" if burst_buffer else None
    state = np.random.default_rng(0).integers(0, 256, 32 * MIB, np.uint8)
    with ps.Checkpointer(url, run="one", burst_buffer=fast) as ck:
        ck.save(1, {"a": state}).wait()
        large = [path for path in (tmp_path / "store").rglob("data/*") if path.stat().st_size >= MIB]
        assert sum(path.stat().st_size for path in large) >= 32 * MIB
        # The kernel may keep a few pages that are on their way to its lists.
        assert [path for path in large if cached_share(path) > 0.1] == []
        assert np.array_equal(ck.restore()[1]["a"], state)


def test_the_store_sees_the_checkpoints(url):
    with ps.Checkpointer(url, run="one", keep=2) as ck:
        for step in (1, 2, 3):
            ck.save(step, {"a": np.full(100_000, step), "b": np.arange(100_000)})
    blob = ps.Store(url).open("one")
    assert sorted(blob.tags) == ["step-2.1-1", "step-3.1-2"]
    assert "step-3.1-2" in run_command("store", "tag", f"{url}/one")
    # The place of "b" is in no range that differs, but for what shares a chunk with "a".
    changed = sum(size for _, size in blob.diff(blob.tags["step-2.1-1"], blob.tags["step-3.1-2"]))
    assert 800_000 < changed < 1_200_000
    header = json.loads(blob.snapshot(blob.tags["step-2.1-1"]).read_bytes(0, 1024))
    assert (header["step"], header["job"], header["complete"]) == (2, 1, 1)
    text = blob.snapshot(blob.tags["step-2.1-1"]).read_bytes(header["manifest_place_bytes"], header["manifest_bytes"])
    assert [array["name"] for array in json.loads(text)["arrays"]] == ["a", "b"]
    assert ps.Store(url).check()["problems"] == []
    # A collector keeps what has a tag.
    ps.Store(url).gc(keep_last=1)
    with ps.Checkpointer(url, run="one") as ck:
        assert ck.steps() == [2, 3]
        assert (ck.restore(step=2)[1]["a"] == 2).all()


def test_a_flipped_bit_is_found_and_the_step_before_restored(url, tmp_path):
    for step in (1, 2):
        with ps.Checkpointer(url, run="one") as ck:
            ck.save(step, {"a": np.full(100_000, step)})
    newest = max(
        (tmp_path / "store").glob("places/*/data/*"), key=lambda path: (path.stat().st_size > 800_000, path.name)
    )
    data = bytearray(newest.read_bytes())
    data[300_000] ^= 1
    os.chmod(newest, 0o600)
    newest.write_bytes(data)
    assert len(ps.Store(url).check()["problems"]) == 1
    result = CliRunner().invoke(main, ["checkpoint", "verify", url, "--run", "one"])
    assert result.exit_code == 1
    assert "step 2: " in result.output
    with ps.Checkpointer(url, run="one") as ck, pytest.warns(RuntimeWarning, match="checkpoint of step 2"):
        step, tree = ck.restore()
    assert step == 1
    assert (tree["a"] == 1).all()


def test_a_clone_is_a_branch(url):
    with ps.Checkpointer(url, run="one") as ck:
        for step in (1, 2):
            ck.save(step, {"a": np.full(1000, step)})
    run_command("store", "clone", f"{url}/one", "other", "--version", "step-1.1-0")
    with ps.Checkpointer(url, run="other") as ck, warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ck.restore()[0] == 1
        ck.save(2, {"a": np.full(1000, 7)}).wait()
        assert (ck.restore()[1]["a"] == 7).all()
    with ps.Checkpointer(url, run="one") as ck:
        assert (ck.restore()[1]["a"] == 2).all()


def test_commands(url):
    with ps.Checkpointer(url, run="one") as ck:
        for step in (10, 20, 15):
            ck.save(step, {"a": np.full(1000, step)})
    rows = json.loads(run_command("checkpoint", "list", url, "--run", "one", "--json"))["checkpoints"]
    assert [(row["step"], row["superseded"], row["drained"]) for row in rows] == [
        (10, False, True),
        (20, True, True),
        (15, False, True),
    ]
    assert "step 15: 1 arrays" in run_command("checkpoint", "inspect", url, "--run", "one")
    assert "no problems" in run_command("checkpoint", "verify", url, "--run", "one")
    assert "removed step 15" in run_command("checkpoint", "remove", url, "15", "--run", "one")
    with ps.Checkpointer(url, run="one") as ck:
        # Step 20 is superseded no more.
        assert ck.steps() == [10, 20]
        assert ck.restore()[0] == 20
    result = CliRunner().invoke(main, ["checkpoint", "list", url])
    assert "no complete checkpoint" in result.output


def test_names_that_cannot_be(url):
    with pytest.raises(ps.Error, match="run is ''"):
        ps.Checkpointer(url, run="")
    with pytest.raises(ps.Error, match="without '/'"):
        ps.Checkpointer(url, run="a/b")
    ps.Store(url).create("field", size=100).write([(0, b"x" * 100)])
    with ps.Checkpointer(url, run="field") as ck, pytest.raises(ps.Error, match="give the run another name"):
        ck.restore(default=None)
