"""Dataset: images against Pillow, order and state as properties, bad files, lifetime of the arrays."""

from __future__ import annotations

import gc
import io
import json
import os
import subprocess
import sys
import threading
import time

import numpy as np
import penstock as ps
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

Image = pytest.importorskip("PIL.Image")


def photograph(height: int, width: int, seed: int = 0) -> np.ndarray:
    """Smooth colours with some texture, which suit JPEG."""
    random = np.random.default_rng(seed)
    coarse = random.integers(0, 256, (5, 6, 3), dtype=np.uint8)
    smooth = np.asarray(Image.fromarray(coarse).resize((width, height), Image.BICUBIC), np.int16)
    return np.clip(smooth + random.integers(-6, 7, smooth.shape), 0, 255).astype(np.uint8)


def encode(pixels: np.ndarray, mode: str = "RGB", **options) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(buffer, "JPEG", **{"quality": 92, **options})
    return buffer.getvalue()


def numbers(count: int) -> ps.Dataset:
    samples = [i.to_bytes(4, "little") for i in range(count)]
    return ps.Dataset.from_bytes(samples, np.arange(count) + 1000).decode_raw((1,), np.int32)


def values(dataset: ps.Dataset) -> list[int]:
    return [int(v) for images, _ in dataset for v in images[:, 0]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("images")
    for i in range(12):
        (root / f"{i}.jpg").write_bytes(encode(photograph(90 + 10 * i, 160 - 5 * i, i)))
    return root


@pytest.fixture(scope="module")
def paths(folder):
    return [folder / f"{i}.jpg" for i in range(12)]


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
@pytest.mark.parametrize(
    "options", [{}, {"progressive": True}, {"subsampling": 0}, {"subsampling": 2}, {"restart_marker_rows": 1}]
)
def test_odd_jpegs_decode_as_pillow_does(mode, options):
    data = encode(photograph(120, 171), mode, **options)
    [(images, labels)] = ps.Dataset.from_bytes([data], [7]).decode_jpeg().map(lambda a, _: a).batch(1)
    with Image.open(io.BytesIO(data)) as image:
        expected = np.asarray(image.convert("RGB"), np.int16)
    assert images.shape == (1, 120, 171, 3)
    assert images.dtype == np.uint8
    assert labels.tolist() == [7]
    # Pillow inverts CMYK with its own rounding, and may contain another libjpeg.
    assert np.abs(images[0] - expected).max() <= 3


@pytest.mark.parametrize("size", [(224, 224), (64, 64), (33, 50), (300, 310), (1, 1)])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_sizes_are_reached_as_by_pillow(size, dtype):
    data = encode(photograph(375, 500))
    [(images, _)] = ps.Dataset.from_bytes([data]).decode_jpeg(size, dtype=dtype).batch(1)
    with Image.open(io.BytesIO(data)) as image:
        expected = np.asarray(image.resize((size[1], size[0]), Image.BILINEAR), np.float32)
    assert images.shape == (1, *size, 3)
    assert images.dtype == dtype
    got = images[0].astype(np.float32) * (255 if dtype == "float32" else 1)
    assert np.abs(got - expected).mean() < 2.5


def test_the_example_of_the_documentation(paths):
    ds = ps.Dataset.from_files(paths, range(12)).shuffle(seed=1).decode_jpeg(size=(32, 24)).ignore_errors()
    ds = ds.batch(5).prefetch(2).shard((1, 2))
    sizes = [len(labels) for images, labels in ds if images.shape[1:] == (32, 24, 3)]
    assert sizes == [2, 2, 1]
    assert len(ds) == 3
    assert ds.samples == 12
    assert ds.skipped == []
    assert ds.epoch == 1
    assert ds.stats.samples == 5
    assert ds.stats.read_bytes > 0
    assert ds.stats.decode_s > 0


@given(
    count=st.integers(1, 60),
    seed=st.integers(0, 2**64 - 1),
    epoch=st.integers(0, 5),
)
def test_shuffle_is_a_permutation(count, seed, epoch):
    ds = ps.Dataset.from_bytes([b""] * count).shuffle(seed)
    assert sorted(ds.indices(epoch)) == list(range(count))


@settings(deadline=None, max_examples=40)
@given(
    count=st.integers(0, 40),
    batch=st.integers(1, 15),
    size=st.integers(1, 6),
    after=st.booleans(),
    drop=st.booleans(),
    prefetch=st.integers(0, 3),
)
def test_ranks_together_see_every_global_batch(count, batch, size, after, drop, prefetch):
    base = numbers(count).shuffle(3)
    order = base.indices(0).tolist()
    parts = []
    for rank in range(size):
        if after:
            ds = base.batch(batch, drop).shard(rank, size).prefetch(prefetch)
        else:
            ds = base.shard(rank, size).batch(batch, drop).prefetch(prefetch)
        parts.append([images[:, 0].tolist() for images, _ in ds])
        assert len(parts[-1]) == len(ds)
    whole = batch if after else batch * size
    begin = 0
    for step in zip(*parts):
        if after:
            seen = [v for part in step for v in part]
        else:
            seen = [part[i] for i in range(batch) for part in step if i < len(part)]
        assert seen == order[begin : begin + whole]
        assert max(map(len, step)) - min(map(len, step)) <= 1
        begin += whole
    assert (count - begin < whole) if drop else begin >= count


@settings(deadline=None, max_examples=40)
@given(
    count=st.integers(1, 40),
    batch=st.integers(1, 9),
    stop=st.integers(0, 12),
    prefetch=st.integers(0, 4),
    new_batch=st.integers(1, 9),
    new_size=st.integers(1, 5),
    threads=st.integers(1, 4),
)
def test_resuming_gives_exactly_the_rest(count, batch, stop, prefetch, new_batch, new_size, threads):
    base = numbers(count).shuffle(8)
    first = base.batch(batch).prefetch(prefetch)
    seen = [int(v) for (images, _), _ in zip(first, range(stop)) for v in images[:, 0]] if stop else []
    # zip requests one batch more than it uses, so only the state counts
    state = json.loads(json.dumps(first.state_dict()))
    order = [i for e in range(3) for i in base.indices(e).tolist()]
    consumed = state["epoch"] * count + state["position"]
    assert seen == order[: len(seen)]
    assert len(seen) <= consumed
    ranks = [
        base.map(lambda a, _: a, threads).batch(new_batch).shard(r, new_size).prefetch(1).repeat(2)
        for r in range(new_size)
    ]
    for rank in ranks:
        rank.load_state_dict(state)
    rest = []
    for step in zip(*ranks):
        rest += [int(v) for images, _ in step for v in images.ravel()]
    assert rest == order[consumed : 2 * count]
    assert all(rank.state_dict()["epoch"] == 2 for rank in ranks)


def test_epochs_follow_each_other_and_a_broken_loop_ends_its_own():
    ds = numbers(10).shuffle(2).batch(4).prefetch(2)
    assert values(ds) == ds.indices(0).tolist()
    assert values(ds) == ds.indices(1).tolist()
    for _ in ds:
        break
    state = ds.state_dict()
    assert (state["epoch"], state["position"]) == (2, 4)
    assert values(ds) == ds.indices(3).tolist()
    ds.load_state_dict(state)
    assert values(ds) == ds.indices(2, 4).tolist()
    assert ds.epoch == 3
    for _ in zip(range(len(ds)), ds):  # consumes every batch without reaching the end
        pass
    assert ds.epoch == 4
    assert values(ds) == ds.indices(4).tolist()


def test_leaving_a_repeated_iteration_ends_all_its_epochs():
    ds = numbers(10).batch(5).repeat(3)
    for _ in ds:
        break
    next(iter(ds))
    assert ds.epoch == 3
    endless = numbers(10).batch(5).repeat()
    next(iter(endless))
    next(iter(endless))
    assert (endless.epoch, endless.state_dict()["position"]) == (1, 5)


def test_a_new_iterator_closes_the_old_one():
    ds = numbers(10).batch(2)
    old = iter(ds)
    next(old)
    assert next(iter(ds))[0][0, 0] == 0
    with pytest.raises(ps.Error, match="closed"):
        next(old)


def test_states_of_other_data_are_refused():
    state = numbers(10).shuffle(1).batch(2).state_dict()
    for other in (numbers(11).shuffle(1).batch(2), numbers(10).shuffle(2).batch(2), numbers(10).batch(2)):
        with pytest.raises(ps.Error, match="order"):
            other.load_state_dict(state)
    other_samples = ps.Dataset.from_bytes([bytes(4)] * 10, np.arange(10) + 1000).shuffle(1).batch(2)
    other_labels = ps.Dataset.from_bytes([i.to_bytes(4, "little") for i in range(10)]).shuffle(1).batch(2)
    for other in (other_samples, other_labels):
        with pytest.raises(ps.Error, match="another list of samples"):
            other.load_state_dict(state)
    same = numbers(10).shuffle(1).batch(3)
    for bad in ({}, {**state, "version": 9}, {**state, "position": 11}, {**state, "epoch": "x"}, None):
        with pytest.raises(ps.Error):
            same.load_state_dict(bad)
    same.load_state_dict(state)
    old = {name: state[name] for name in ("seed", "epoch", "position", "order")}
    same.load_state_dict({**old, "version": 1, "position": 6})
    assert values(same) == same.indices(0, 6).tolist()


def test_a_list_of_files_keeps_its_digest_when_its_folder_moves(paths, tmp_path):
    for path in paths:
        (tmp_path / path.name).write_bytes(b"only the names count")
    state = ps.Dataset.from_files(paths).batch(2).state_dict()
    ps.Dataset.from_files([tmp_path / path.name for path in paths]).batch(2).load_state_dict(state)
    with pytest.raises(ps.Error, match="another list"):
        ps.Dataset.from_files(paths[::-1]).batch(2).load_state_dict(state)


def test_arrays_own_their_memory():
    ds = numbers(64).batch(4).prefetch(2)
    held = [images for images, _ in ds]
    assert [int(v) for images in held for v in images[:, 0]] == list(range(64))
    held[0][:] = -1  # writable, and not shared
    assert held[1][0, 0] == 4
    places = set()
    for images, labels in ds:
        places.add(images.__array_interface__["data"][0])
        del images, labels
    assert len(places) <= 5
    iterator = iter(ds)
    images, labels = next(iterator)
    del ds, iterator
    gc.collect()
    assert images[:, 0].tolist() == [0, 1, 2, 3]
    assert labels.tolist() == [1000, 1001, 1002, 1003]


def test_bad_files_are_skipped_and_recorded(paths, tmp_path):
    whole = paths[0].read_bytes()
    bad = {
        "missing.jpg": None,
        "truncated.jpg": whole[: len(whole) // 2],
        "empty.jpg": b"",
        "text.jpg": b"this is no image",
        "header.jpg": whole[:20],
    }
    for name, content in bad.items():
        if content is not None:
            (tmp_path / name).write_bytes(content)
    (tmp_path / "folder.jpg").mkdir()
    mixed = [*paths[:4], *(tmp_path / n for n in bad), tmp_path / "folder.jpg", "/proc/self/mem", *paths[4:]]
    ds = ps.Dataset.from_files(mixed, range(len(mixed))).decode_jpeg((16, 16)).ignore_errors().batch(4).prefetch(2)
    labels = [int(v) for _, labels in ds for v in labels]
    assert labels == [0, 1, 2, 3, *range(11, 19)]
    assert [s.index for s in ds.skipped] == list(range(4, 11))
    assert [os.path.basename(s.path) for s in ds.skipped] == [*bad, "folder.jpg", "mem"]
    assert ds.stats.skipped == 7
    reasons = {os.path.basename(s.path): s.reason for s in ds.skipped}
    assert "No such file" in reasons["missing.jpg"]
    assert "remature end" in reasons["truncated.jpg"]
    assert "Input/output error" in reasons["mem"]
    assert ds.skipped[0].position == 4
    assert ds.skipped[0].epoch == 0

    strict = ps.Dataset.from_files(mixed).decode_jpeg((16, 16)).batch(3)
    iterator = iter(strict)
    next(iterator)
    with pytest.raises(ps.Error, match=r"missing.jpg") as caught:
        next(iterator)
    assert caught.value.code == "not_found"
    assert strict.state_dict()["position"] == 3
    limited = ps.Dataset.from_files(mixed).decode_jpeg((16, 16)).ignore_errors(max=2).batch(3)
    with pytest.raises(ps.Error, match="more than the 2"):
        list(limited)


def test_map_runs_python_in_threads():
    threads = set()

    def halve(array, label):
        threads.add(threading.get_ident())
        return (array / 2).astype(np.float64)[::-1], -label

    ds = numbers(20).map(halve, num_parallel_calls=3).batch(6).prefetch(1)
    got = list(ds)
    assert np.concatenate([images for images, _ in got])[:, 0].tolist() == [i / 2 for i in range(20)]
    assert np.concatenate([labels for _, labels in got]).tolist() == [-1000 - i for i in range(20)]
    assert threads
    assert threading.get_ident() not in threads


def test_map_before_decode_gets_the_bytes():
    secret = [bytes(b ^ 0x5A for b in encode(photograph(40, 40, i))) for i in range(3)]
    ds = ps.Dataset.from_bytes(secret).map(lambda a, _: a ^ 0x5A).decode_jpeg((20, 20)).batch(3)
    [(images, _)] = ds
    assert images.shape == (3, 20, 20, 3)


def test_a_failing_map_says_where(paths):
    def fail(array, label):
        if label == 3:
            raise ValueError("three is not to be had")
        return array

    base = ps.Dataset.from_files(paths, range(12)).decode_jpeg((8, 8)).map(fail)
    with pytest.raises(ps.Error, match=r"3.jpg(.|\n)*three is not") as caught:
        list(base.batch(4))
    assert "fail" in caught.value.cause
    ds = base.ignore_errors().batch(4)
    assert sum(len(labels) for _, labels in ds) == 11
    assert "three" in ds.skipped[0].reason
    for returned in (None, (1, 2, 3), ("a", "b"), np.array(["x"]), {"a": {1}}):
        with pytest.raises(ps.Error):
            list(numbers(2).map(lambda a, _, r=returned: r).batch(2))
    with pytest.raises(ps.Error, match="in a batch of"):
        list(numbers(4).map(lambda a, label: np.zeros(label % 2 + 1)).batch(4))


def test_cache_reads_once(paths):
    calls = []
    ds = (
        ps.Dataset.from_files(paths)
        .shuffle(1)
        .decode_jpeg((8, 8))
        .map(lambda a, _: calls.append(1) or a)
        .cache()
        .batch(5)
    )
    first = {i: a for images, _, index in ds.with_indices() for i, a in zip(index.tolist(), images.copy())}
    again = ds.with_indices()
    again.load_state_dict({**again.state_dict(), "epoch": 1})
    second = {i: a for images, _, index in again for i, a in zip(index.tolist(), images.copy())}
    assert len(calls) == 12
    assert first.keys() == second.keys()
    assert all((first[i] == second[i]).all() for i in first)
    assert again.stats.read_bytes == 0


def test_interleave_take_skip_repeat():
    parts = [ps.Dataset.from_bytes([bytes([10 * k + i]) for i in range(n)]) for k, n in enumerate((4, 2, 3))]
    ds = parts[0].interleave(parts[1], parts[2].skip(1)).decode_raw((1,)).batch(3)
    assert values(ds) == [0, 10, 21, 1, 11, 22, 2, 3]
    ds = numbers(10).skip(2).take(5).batch(2).repeat(3).prefetch(2)
    assert values(ds) == [2, 3, 4, 5, 6] * 3
    assert len(ds) == 9
    assert ds.epoch == 3
    endless = numbers(3).batch(2).repeat()
    assert [len(images) for (images, _), _ in zip(endless, range(5))] == [2, 1, 2, 1, 2]
    with pytest.raises(ps.Error):
        len(endless)


def test_undecoded_files_come_as_they_are(paths):
    files = [file for images, _ in ps.Dataset.from_files(paths).batch(5) for file in images]
    assert [file.tobytes() for file in files] == [path.read_bytes() for path in paths]


def test_shard_takes_communicators():
    class Communicator:
        rank = 2
        size = 3

    assert values(numbers(9).batch(9).shard(Communicator())) == [6, 7, 8]
    assert values(numbers(9).shard((2, 3)).batch(9)) == [2, 5, 8]


@pytest.mark.parametrize(
    "build",
    [
        lambda d: iter(d),
        lambda d: d.batch(0),
        lambda d: d.batch(2.5),
        lambda d: d.batch(-1),
        lambda d: d.prefetch(1),
        lambda d: d.batch(2).shuffle(1),
        lambda d: d.batch(2).map(lambda a, _: a),
        lambda d: d.shard(0, 2).shuffle(),
        lambda d: d.shard(3, 2),
        lambda d: d.shard("comm"),
        lambda d: d.decode_jpeg(224),
        lambda d: d.decode_jpeg((0, 3)),
        lambda d: d.decode_jpeg((3, 3), dtype="int32"),
        lambda d: d.decode_jpeg((3, 3), dtype="nonsense"),
        lambda d: d.decode_jpeg((3, 3), num_parallel_calls=0),
        lambda d: d.decode(format="gif"),
        lambda d: d.decode_raw(()),
        lambda d: d.decode_jpeg().decode_jpeg(),
        lambda d: d.map(3),
        lambda d: d.shuffle("a"),
        lambda d: d.interleave(3),
        lambda d: d.batch(2).interleave(d),
        lambda d: d.batch(2).repeat(0),
        lambda d: ps.Dataset.from_files("one.jpg"),
        lambda d: ps.Dataset.from_files([3]),
        lambda d: ps.Dataset.from_files(["a"], [1, 2]),
        lambda d: ps.Dataset.from_files(["a"], [1.5]),
        lambda d: ps.Dataset(d),
    ],
)
def test_wrong_stages_are_refused_with_a_reason(build):
    with pytest.raises(ps.Error) as caught:
        build(ps.Dataset.from_bytes([b"abc"] * 4))
    assert len(str(caught.value)) > 20


def test_samples_without_batches_are_refused_for_that_reason():
    with pytest.raises(ps.Error, match=r"not in batches; add batch\(\)"):
        iter(ps.Dataset.from_bytes([b"abc"] * 4))


def test_waiting_lets_other_threads_run():
    mapping, ticked = threading.Event(), threading.Event()
    ticks = []

    def tick():
        mapping.wait()
        for _ in range(20):
            time.sleep(0.001)
            ticks.append(1)
        ticked.set()

    def map_one(a, _):
        mapping.set()
        ticked.wait()
        return a

    thread = threading.Thread(target=tick, daemon=True)
    thread.start()
    # The sample completes once the other thread has run. A wait that blocks that thread would never end.
    assert values(numbers(1).map(map_one).batch(1)) == [0]
    assert len(ticks) == 20


def test_leaving_at_any_time_is_clean():
    """Iterators destroyed in mid-epoch, with Python functions running, and at the interpreter's end."""
    program = """
import time, penstock as ps
def slow(a, label):
    time.sleep(0.002)
    return a
base = ps.Dataset.from_bytes([b"x"] * 400).map(slow, num_parallel_calls=3).batch(4).prefetch(3)
for n in range(8):
    for i, batch in enumerate(base):
        if i == n:
            break
iterator = iter(base)
next(iterator)
print("left")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stdout == "left\n"
    assert done.stderr == ""


def test_interrupts_are_heard_while_waiting():
    program = """
import os, signal, threading, penstock as ps
signal.signal(signal.SIGINT, signal.default_int_handler)  # shells ignore it in background jobs
mapping, heard = threading.Event(), threading.Event()
def map_one(a, _):
    mapping.set()
    heard.wait()
    return a
def interrupt():
    mapping.wait()  # so a thread is waiting for the batch
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt, daemon=True).start()
iterator = iter(ps.Dataset.from_bytes([b"x"]).map(map_one).batch(1))
try:
    next(iterator)
except KeyboardInterrupt:
    print("heard")
heard.set()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "heard\n", done.stderr


def test_no_mpi_is_loaded():
    program = (
        "import sys, penstock as ps; list(ps.Dataset.from_bytes([b'a']).batch(1)); assert 'mpi4py' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
