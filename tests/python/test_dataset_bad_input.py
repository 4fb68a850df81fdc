"""Bad samples never end a run that ignores errors, and nothing hangs: odd files, limits, functions that fail or hang,
forks."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import threading
import time

import numpy as np
import penstock as ps
import pytest

Image = pytest.importorskip("PIL.Image")


def encoded(mode: str = "RGB", kind: str = "JPEG", size: tuple[int, int] = (64, 48), **options) -> bytes:
    pixels = np.linspace(0, 255, size[0] * size[1] * 3).astype(np.uint8).reshape(size[1], size[0], 3)
    buffer = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(buffer, kind, **options)
    return buffer.getvalue()


def patched(data: bytes, marker: int, offset: int, value: bytes) -> bytes:
    """With other bytes in the first segment of that marker."""
    place = data.index(bytes([0xFF, marker])) + 4 + offset
    return data[:place] + value + data[place + len(value) :]


def animation() -> bytes:
    buffer = io.BytesIO()
    frames = [Image.new("P", (8, 8), i) for i in range(3)]
    frames[0].save(buffer, "GIF", save_all=True, append_images=frames[1:])
    return buffer.getvalue()


GOOD = encoded(quality=90)
PROGRESSIVE = encoded(quality=90, progressive=True)
SCAN = PROGRESSIVE[PROGRESSIVE.rindex(b"\xff\xda") : -2]
ODD = {
    "truncated": GOOD[:-200],
    "zero bytes": b"",
    "12 bits": patched(GOOD, 0xC0, 0, b"\x0c"),
    "a header that lies about the height": patched(GOOD, 0xC0, 1, (48000).to_bytes(2, "big")),
    "a header that lies about the size": patched(GOOD, 0xC0, 1, b"\xff\xdc\xff\xdc"),
    "no size": patched(GOOD, 0xC0, 1, bytes(4)),
    "a progressive bomb": PROGRESSIVE[:-2] + SCAN * 2000 + PROGRESSIVE[-2:],
    "an animation": animation(),
    "text": b"GET / HTTP/1.1\r\n\r\n",
    "only a marker": b"\xff\xd8\xff",
    "noise": np.random.default_rng(1).bytes(4096),
}


@pytest.mark.parametrize("kind", ODD)
def test_odd_files_are_errors_of_their_sample(kind):
    samples = [GOOD, ODD[kind], GOOD]
    ds = ps.Dataset.from_bytes(samples, [0, 1, 2]).decode((8, 8)).batch(3)
    with pytest.raises(ps.Error, match="sample 1 in memory"):
        list(ds)
    ds = ps.Dataset.from_bytes(samples, [0, 1, 2]).decode((8, 8)).ignore_errors().batch(3)
    [(_, labels)] = ds
    assert labels.tolist() == [0, 2]
    assert [one.index for one in ds.skipped] == [1]


def test_a_cmyk_image_is_no_bad_input():
    ds = ps.Dataset.from_bytes([encoded("CMYK")]).decode((8, 8)).batch(1)
    assert [images.shape for images, _ in ds] == [(1, 8, 8, 3)]


def test_paths_that_are_no_files_are_errors_of_their_sample(tmp_path):
    (tmp_path / "good").write_bytes(GOOD)
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("nothing")
    with open(tmp_path / "sparse", "wb") as file:
        for size in (1 << 61, 1 << 42):  # as much as the file system can
            try:
                file.truncate(size)
                break
            except OSError:
                continue
    names = ["good", "fifo", "folder", "loop", "dangling", "missing", "good/below", "sparse", "good"]
    ds = ps.Dataset.from_files([tmp_path / name for name in names], range(len(names)))
    ds = ds.decode((8, 8), num_parallel_calls=2).ignore_errors().batch(4)
    assert [int(label) for _, labels in ds for label in labels] == [0, 8]
    reasons = {os.path.basename(one.path): one.reason for one in ds.skipped}
    assert reasons.keys() == {*names[1:6], "below", "sparse"}
    assert "regular file" in reasons["fifo"]
    assert "limit of 1073741824 bytes" in reasons["sparse"]


@pytest.mark.parametrize("source", ["from_tar", "from_tfrecord", "from_mds", "from_parquet", "from_arrow"])
def test_missing_shards_are_named(tmp_path, source):
    if source in ("from_parquet", "from_arrow"):
        pytest.importorskip("pyarrow")
    missing = tmp_path / "missing"
    given = missing if source == "from_mds" else [missing]
    with pytest.raises(ps.Error, match=re.escape(str(missing))) as caught:
        getattr(ps.Dataset, source)(given)
    assert caught.value.code == "not_found"
    assert isinstance(caught.value, FileNotFoundError)


@pytest.mark.parametrize("source", ["from_tar", "from_tfrecord", "from_mds"])
def test_shards_that_cannot_be_read_are_named(tmp_path, source):
    folder = tmp_path / "index.json" if source == "from_mds" else tmp_path / "shard"
    folder.mkdir()
    given = tmp_path if source == "from_mds" else [folder]
    with pytest.raises(ps.Error, match=re.escape(str(folder))) as caught:
        getattr(ps.Dataset, source)(given)
    assert caught.value.code == "io"


@pytest.mark.parametrize("source", ["from_parquet", "from_arrow"])
def test_files_without_a_table_are_named(tmp_path, source):
    pytest.importorskip("pyarrow")
    (tmp_path / "text").write_text("no table " * 100)
    with pytest.raises(ps.Error, match=re.escape(str(tmp_path / "text"))) as caught:
        getattr(ps.Dataset, source)([tmp_path / "text"])
    assert caught.value.code == "corrupt"


def test_a_missing_folder_has_no_index(tmp_path):
    with pytest.raises(ps.Error, match=re.escape(str(tmp_path / "missing"))) as caught:
        ps.dataset.build_index([tmp_path / "missing"], tmp_path / "index")
    assert caught.value.code == "not_found"


def test_a_folder_without_permission_is_an_error_of_its_samples(tmp_path):
    if os.geteuid() == 0:
        pytest.skip("nothing is unreadable for root")
    (tmp_path / "closed").mkdir()
    (tmp_path / "closed" / "a").write_bytes(GOOD)
    (tmp_path / "closed").chmod(0)
    try:
        ds = ps.Dataset.from_files([tmp_path / "closed" / "a"]).decode((8, 8)).ignore_errors().batch(1)
        assert [len(labels) for _, labels in ds] == [0]
        assert "ermission" in ds.skipped[0].reason
    finally:
        (tmp_path / "closed").chmod(0o700)


def test_limits_are_those_of_the_dataset(tmp_path):
    (tmp_path / "large").write_bytes(bytes(5000))
    base = ps.Dataset.from_files([tmp_path / "large"]).decode_raw((5000,))
    assert len(list(base.limits(max_bytes=5000).batch(1))) == 1
    with pytest.raises(ps.Error, match=r"large holds 5000 bytes, more than the limit of 4999 bytes"):
        list(base.limits(max_bytes=4999).batch(1))
    images = ps.Dataset.from_bytes([GOOD]).decode((8, 8))
    assert len(list(images.limits(max_pixels=64 * 48).batch(1))) == 1
    with pytest.raises(ps.Error, match=r"sample 0 in memory(.|\n)*64 x 48 pixels, more than the limit of 3071"):
        list(images.limits(max_pixels=64 * 48 - 1).batch(1))
    ignoring = images.limits(max_pixels=100).ignore_errors().batch(1)
    assert [len(labels) for _, labels in ignoring] == [0]
    both = base.limits(max_pixels=7).limits(max_bytes=4999).batch(1)
    with pytest.raises(ps.Error, match="4999"):
        list(both)
    for wrong in ({"max_bytes": 0}, {"max_pixels": -1}, {"max_seconds": 0}, {"max_seconds": "1"}):
        with pytest.raises(ps.Error):
            base.limits(**wrong)


def numbers(count: int) -> ps.Dataset:
    return ps.Dataset.from_bytes([i.to_bytes(4, "little") for i in range(count)], range(count)).decode_raw((1,), "i4")


def failing(bad: set[int]):
    def fail(array, label):
        if label in bad:
            raise ValueError(f"{label} is bad")
        return array

    return fail


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("batch", [4, 7])
def test_replaced_samples_keep_batches_whole_and_are_the_same_everywhere(ranks, batch):
    bad = {3, 4, 5, 11}
    base = numbers(20).shuffle(5).map(failing(bad)).ignore_errors(replace=True)
    seen = []
    parts = [base.batch(batch).shard(rank, ranks).with_indices() for rank in range(ranks)]
    for step in zip(*parts):
        seen += [int(label) for _, labels, indices in step for label in labels if (labels == indices).all()]
    whole = [int(label) for _, labels in base.batch(20) for label in labels]
    assert seen == whole
    assert len(seen) == 20
    assert not bad & set(seen)
    order = base.indices(0).tolist()
    assert [got for got, planned in zip(seen, order) if planned not in bad] == [i for i in order if i not in bad]
    assert {one.index for part in parts for one in part.skipped} == bad


def test_replacements_run_out_when_all_samples_are_bad():
    ds = numbers(6).map(failing(set(range(6)))).ignore_errors(replace=True).batch(3)
    assert [len(labels) for _, labels in ds] == [0, 0]
    assert sorted(one.index for one in ds.skipped) == list(range(6))


def test_the_list_of_skipped_samples_is_bounded_and_their_count_is_exact(tmp_path):
    log = tmp_path / "skipped.jsonl"

    def fail(number):
        raise ValueError(f"not {number}")

    ds = ps.Dataset.from_source(range(2500)).map(fail).ignore_errors(log=log).batch(100)
    for _ in range(2):
        list(ds)
    assert ds.stats.skipped == ds.skipped.total == ds.state_dict()["skipped"] == 5000
    assert len(log.read_text().splitlines()) == 5000
    assert [one.index for one in ds.skipped] == list(range(1500, 2500))
    assert "and 4000 earlier ones, which are only counted" in repr(ds.skipped)
    assert "earlier" not in repr(ps.Dataset.from_source(range(3)).batch(1).skipped)
    wide = ps.Dataset.from_source(range(2500)).map(fail).ignore_errors(log=tmp_path / "wide").batch(2500)
    list(wide)
    assert len((tmp_path / "wide").read_text().splitlines()) == 2500  # also those of one batch


def test_skipped_samples_are_counted_in_the_state_and_logged(tmp_path):
    logged = []
    base = numbers(12).map(failing({1, 6, 7}))
    ds = base.ignore_errors(max=3, log=logged.append).batch(4)
    iterator = iter(ds)
    next(iterator)
    next(iterator)
    assert logged == ds.skipped
    state = json.loads(json.dumps(ds.state_dict()))
    assert (state["skipped"], state["skipped_in_iteration"]) == (3, 3)
    # The maximum holds for the whole iteration, however often it is resumed.
    worse = numbers(12).map(failing({9})).ignore_errors(max=3).batch(4)
    worse.load_state_dict(state)
    with pytest.raises(ps.Error, match="4 samples cannot be used"):
        list(worse)
    next(iterator)
    state = ds.state_dict()
    assert (state["skipped"], state["skipped_in_iteration"]) == (3, 0)
    log = tmp_path / "skipped.jsonl"
    list(base.ignore_errors(log=log).batch(4))
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["index"] for line in lines] == [1, 6, 7]
    assert "6 is bad" in lines[1]["reason"]


@pytest.mark.parametrize("kind", ["python", "blocked"])
def test_a_sample_that_hangs_is_given_up_and_shows_its_stack(kind):
    released, here = threading.Event(), threading.Semaphore(0)

    def hang_here(array, label):
        if label in (2, 5):
            here.release()
            if kind == "blocked":
                released.wait()  # an interrupt does not reach it
            else:
                while not released.is_set():
                    pass
        return array

    def begun(data):
        """Two samples hang, and those before them are made. Only who waits for a batch gives a sample up."""
        iterator = iter(data)
        here.acquire()
        here.acquire()
        return iterator

    base = numbers(9).map(hang_here, num_parallel_calls=2).limits(max_seconds=0.3)
    try:
        iterator = begun(base.batch(3).prefetch(3))
        with pytest.raises(ps.Error, match=r"sample 2 in memory(.|\n)*limit of 300 ms(.|\n)*hang_here"):
            list(iterator)
        ds = base.ignore_errors().batch(3).prefetch(3)
        delivered = [int(label) for _, labels in begun(ds) for label in labels]
        skipped = {one.index: one.reason for one in ds.skipped}
        assert sorted([*delivered, *skipped]) == list(range(9))  # on a slow machine others are given up, too
        assert "hang_here" in skipped[2] and "hang_here" in skipped[5]
        replacing = base.ignore_errors(replace=True).batch(3)
        assert [len(labels) for _, labels in replacing] == [3, 3, 3]
    finally:
        released.set()


def loader_threads() -> int:
    names = (path / "comm" for path in pathlib.Path("/proc/self/task").iterdir())
    with contextlib.suppress(OSError):  # threads end meanwhile
        return sum(name.read_text() == "penstock-loader\n" for name in names)
    return -1


def test_no_function_runs_for_a_sample_that_was_given_up():
    class Survivor:
        """Reads that go on when they are interrupted: what comes after them would be interrupted no more."""

        def __len__(self) -> int:
            return 6

        def __getitem__(self, index: int) -> np.ndarray:
            if index == 3:
                with contextlib.suppress(BaseException):
                    while True:
                        time.sleep(0.01)
            return np.array([index])

    seen = []

    def note(sample: np.ndarray) -> np.ndarray:
        seen.append(int(sample[0]))
        return sample

    ds = ps.Dataset.from_source(Survivor(), digest="six").map(note).limits(max_seconds=0.5).ignore_errors().batch(2)
    delivered = [int(value) for batch in ds for value in batch[:, 0]]  # on a slow machine others are given up, too
    ds.close()
    while loader_threads() != 0:  # that of the sample, too
        time.sleep(0.01)
    assert 3 not in delivered and 3 not in seen
    assert set(delivered) <= set(seen)


def test_close_returns_though_a_function_hangs():
    program = """
import threading, warnings, penstock as ps
begun = threading.Event()
def hang_here(array, label):
    begun.set()
    threading.Event().wait()
ds = ps.Dataset.from_bytes([b"x"] * 4).map(hang_here).limits(max_seconds=0.2).batch(1)
iterator = iter(ds)
begun.wait()
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    ds.close()
print("closed", "hang_here" in str(told[0].message))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "closed True\n", done.stderr
    assert done.returncode == 0


def test_an_interpreter_ends_though_a_python_function_hangs():
    program = """
import threading, penstock as ps
begun = threading.Event()
def hang_here(array, label):
    begun.set()
    while True:
        pass
iterator = iter(ps.Dataset.from_bytes([b"x"] * 4).map(hang_here).limits(max_seconds=0.2).batch(1))
begun.wait()
print("ends")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.stderr, done.returncode) == ("ends\n", "", 0)


def test_a_forked_child_gets_a_clear_error_and_ends_cleanly():
    program = """
import os, sys, penstock as ps
def work(array, label):
    return array
ds = (ps.Dataset.from_bytes([bytes([i]) for i in range(64)]).decode_raw((1,)).map(work, num_parallel_calls=2)
        .cache().batch(4).prefetch(3))
iterator = iter(ds)
held = next(iterator)
child = os.fork()
if child == 0:
    try:
        next(iterator)
    except ps.Error as error:
        print("child:", error.code, "forked" in str(error), flush=True)
    del held
    print("child:", [int(v) for images, _ in ds for v in images[:, 0]] == list(range(64)), flush=True)
    sys.exit(0)  # runs everything that an end runs
_, status = os.waitpid(child, 0)
print("parent:", status, sum(len(labels) for _, labels in iterator))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "child: unsupported True\nchild: True\nparent: 0 60\n", done.stderr
    assert done.returncode == 0


def test_a_map_that_forks_does_no_harm():
    def fork(array, label):
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        return array

    assert [int(v) for images, _ in numbers(6).map(fork).batch(2) for v in images[:, 0]] == list(range(6))
