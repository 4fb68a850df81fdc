"""Trees of arrays from any source: what batches look like, and order, state and random maps as properties."""

from __future__ import annotations

import dataclasses
import io
import json
import sys
import threading
from typing import Any, NamedTuple

import numpy as np
import penstock as ps
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from penstock.dataset.statistics import report


class Numbers:
    """The source of a torch user: no base class, just len and []."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, Any]:
        if not 0 <= index < self.count:
            raise IndexError(index)
        return {"x": np.full(2, index, np.float32), "id": index}


class Pair(NamedTuple):
    image: np.ndarray
    label: int


@dataclasses.dataclass(frozen=True)
class Record:
    text: str
    inner: Pair
    blob: bytes


def ids(batches) -> list[int]:
    return [int(i) for batch in batches for i in batch["id"]]


def test_a_batch_has_the_containers_of_a_sample():
    samples = [Record(f"text {i}", Pair(np.full((2, 3), i, np.int16), i), bytes([i])) for i in range(5)]
    batches = list(ps.Dataset.from_source(samples).batch(2))
    assert [type(batch) for batch in batches] == [Record] * 3
    first, last = batches[0], batches[-1]
    assert first.text == ["text 0", "text 1"]
    assert first.blob == [b"\0", b"\1"]
    assert isinstance(first.inner, Pair)
    assert first.inner.image.dtype == np.int16
    assert first.inner.image.shape == (2, 2, 3)
    assert first.inner.label.tolist() == [0, 1]
    assert last.inner.image.tolist() == np.full((1, 2, 3), 4).tolist()


@pytest.mark.parametrize(
    ("sample", "expected"),
    [
        (3, np.array([3, 3])),
        (2.5, np.array([2.5, 2.5])),
        (True, np.array([True, True])),
        (1j, np.array([1j, 1j])),
        (np.float16(3), np.array([3, 3], np.float16)),
        ([1, 2], np.array([[1, 2], [1, 2]])),
        ((1, "a"), (np.array([1, 1]), ["a", "a"])),
        ({"none": None}, {"none": [None, None]}),
        (np.array(["ab"]), np.array([["ab"], ["ab"]])),
    ],
)
def test_every_kind_of_leaf(sample, expected):
    [batch] = ps.Dataset.from_source([sample, sample]).batch(2)

    def same(a, b):
        if isinstance(b, dict):
            return a.keys() == b.keys() and all(same(a[k], b[k]) for k in b)
        if isinstance(b, tuple):
            return type(a) is tuple and all(map(same, a, b))
        return a == b if isinstance(b, list) else a.dtype == b.dtype and np.array_equal(a, b)

    assert same(batch, expected)


def test_arrays_are_a_source_and_stay_unchanged():
    arrays = {"x": np.arange(12).reshape(6, 2), "pair": (np.arange(6) * 10, ["a", "b", "c", "d", "e", "f"])}
    arrays["pair"] = (arrays["pair"][0], np.array(arrays["pair"][1]))
    [batch] = ps.Dataset.from_arrays(arrays).shuffle(3).batch(6)
    order = ps.Dataset.from_arrays(arrays).shuffle(3).indices(0)
    assert (batch["x"] == arrays["x"][order]).all()
    assert batch["pair"][0].tolist() == (order * 10).tolist()
    assert batch["pair"][1] == [arrays["pair"][1][i] for i in order]

    def spoil(sample):
        sample["x"][:] = 0
        return sample

    with pytest.raises(ps.Error, match="read-only"):
        list(ps.Dataset.from_arrays(arrays).map(spoil).batch(6))
    for wrong in ({"x": np.zeros(2), "y": np.zeros(3)}, {}, {"x": 3}, {"x": np.array([{}])}):
        with pytest.raises(ps.Error):
            ps.Dataset.from_arrays(wrong)


def test_files_become_trees_in_a_map():
    ds = ps.Dataset.from_bytes([bytes([i]) for i in range(4)], range(4)).decode_raw((1,))
    ds = ds.map(lambda array, label: {"value": array, "id": label}).map(lambda s: {**s, "double": s["value"] * 2})
    [batch] = ds.batch(4)
    assert batch["double"][:, 0].tolist() == [0, 2, 4, 6]
    assert batch["id"].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("samples", "reason"),
    [
        ([{"a": 1}, {"b": 1}], "a dict of b in a batch of a dict of a"),
        ([{"a": 1}, {"a": "x"}], r"sample\['a'\]"),
        ([np.zeros(2), np.zeros(3)], r"shape \(3,\) in a batch of \(2,\)"),
        ([np.zeros(2, "f4"), np.zeros(2, "f8")], "float64 in a batch of float32"),
        ([{"a": {1}}, {"a": {1}}], "'a'.*a set"),
        (["x", None], "NoneType in a batch of a str"),
    ],
)
def test_samples_that_do_not_fit_together_say_which_part(samples, reason):
    with pytest.raises(ps.Error, match=f"(?s){reason}"):
        list(ps.Dataset.from_source(samples).batch(2))


def test_a_source_that_fails_is_an_error_of_its_sample():
    class Bad(Numbers):
        def __getitem__(self, index):
            if index == 3:
                raise RuntimeError("no three")
            return super().__getitem__(index)

    with pytest.raises(ps.Error, match=r"(?s)sample 3 of Bad.*no three"):
        list(ps.Dataset.from_source(Bad(5)).batch(5))
    ds = ps.Dataset.from_source(Bad(5)).ignore_errors().batch(5)
    assert ids(ds) == [0, 1, 2, 4]
    assert ds.skipped[0].path == "sample 3 of Bad"
    for wrong in (3, iter([1]), {1, 2}):
        with pytest.raises(ps.Error):
            ps.Dataset.from_source(wrong)
    with pytest.raises(ps.Error, match="map"):
        ps.Dataset.from_source(Bad(5)).decode_jpeg()


def test_empty_parts_have_arrays_of_length_zero():
    ds = ps.Dataset.from_source(Numbers(5)).filter(lambda s: s["id"] < 2).batch(2)
    batches = list(ds)
    assert [len(batch["id"]) for batch in batches] == [2, 0, 0]
    assert batches[1]["x"].shape == (0, 2)
    assert batches[1]["x"].dtype == np.float32
    none_yet = ps.Dataset.from_source(Numbers(1)).batch(1).shard(1, 2)
    assert list(none_yet) == [None]


def test_filter_keeps_the_place_of_what_it_leaves_out():
    base = ps.Dataset.from_source(Numbers(20)).shuffle(1)
    ds = base.filter(lambda s: s["id"] % 3 == 0).batch(5)
    order = base.indices(0).tolist()
    assert [b["id"].tolist() for b in ds] == [[i for i in order[p : p + 5] if i % 3 == 0] for p in range(0, 20, 5)]
    assert len(ds) == 4
    assert ds.skipped == []
    arrays = ps.Dataset.from_bytes([bytes([i]) for i in range(9)], range(9)).decode_raw((1,))
    kept = [(a.ravel().tolist(), labels.tolist()) for a, labels in arrays.filter(lambda a, label: label > 5).batch(4)]
    assert kept == [([], []), ([6, 7], [6, 7]), ([8], [8])]


def test_pad_makes_lengths_alike():
    samples = [{"t": np.arange(n), "n": n} for n in (3, 1, 4)]
    [batch] = ps.Dataset.from_source(samples).pad(-1).batch(3)
    assert batch["t"].tolist() == [[0, 1, 2, -1], [0, -1, -1, -1], [0, 1, 2, 3]]
    [batch] = ps.Dataset.from_source(samples).pad(multiple=8).batch(3)
    assert batch["t"].shape == (3, 8)
    [batch] = ps.Dataset.from_source(samples).pad(length=5).batch(3)
    assert batch["t"].shape == (3, 5)
    with pytest.raises(ps.Error, match="more than the 2"):
        list(ps.Dataset.from_source(samples).pad(length=2).batch(3))


def test_what_a_cache_holds_is_not_changed_by_later_stages():
    calls = []

    def count(sample):
        calls.append(sample["id"])
        return sample

    def spoil(sample):
        sample["x"] += 100
        return sample

    ds = ps.Dataset.from_source(Numbers(6)).map(count).cache().map(spoil).batch(3)
    for _ in range(3):
        assert [x for batch in ds for x in batch["x"][:, 0].tolist()] == [100 + i for i in range(6)]
    assert sorted(calls) == list(range(6))


def test_mix_holds_its_weights_and_names_its_samples():
    a, b = (ps.Dataset.from_source([{"id": i} for i in range(k, k + n)]) for k, n in ((0, 30), (100, 200)))
    ds = ps.Dataset.mix([a.shuffle(1), b.shuffle(2)], [1, 3])
    seen = ids(ds.batch(8))
    assert len(seen) == len(set(seen)) == ds.samples
    for begin in range(0, len(seen), 20):
        assert 4 <= sum(i < 100 for i in seen[begin : begin + 20]) <= 6 or begin + 20 > len(seen)
    longer = ps.Dataset.mix([a, b], [0.5, 0.5], samples=100)
    assert sorted(i for i in ids(longer.batch(10)) if i < 100) == sorted([*range(30), *range(20)])
    for weights in ([1], [1, 0], [1, -1], [1, float("nan")]):
        with pytest.raises(ps.Error):
            ps.Dataset.mix([a, b], weights)
    with pytest.raises(ps.Error):
        ps.Dataset.mix([a, ps.Dataset.from_bytes([b"x"])], [1, 1])


def test_with_indices_and_len_and_report():
    ds = ps.Dataset.from_source(Numbers(10)).batch(4, drop_remainder=True).with_indices()
    assert len(ds) == 2
    assert [indices.tolist() for _, indices in ds] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert ds.samples == 10
    text = ds.report()
    assert "2 batches of 8 samples" in text
    assert "bottleneck" in text
    assert "No batch" in ps.Dataset.from_source(Numbers(1)).batch(1).report()


@pytest.mark.parametrize(
    ("stats", "expected"),
    [
        ({"wait_s": 0.01}, "program is the bottleneck"),
        ({"wait_s": 0.9, "read_s": 0.1}, "window is the bottleneck"),
        ({"wait_s": 0.9, "read_s": 1.5, "decode_s": 0.2}, "bottleneck is reading"),
        ({"wait_s": 0.9, "read_s": 0.2, "decode_s": 1.5}, "bottleneck is decoding"),
        ({"wait_s": 0.9, "map_s": 1.5}, "bottleneck is map functions"),
        ({"wait_s": 0.9, "collate_s": 1.5}, "bottleneck is laying batches together"),
    ],
)
def test_the_report_names_the_bottleneck(stats, expected):
    made = ps.Stats(elapsed_s=1.0, threads=2, batches=1, samples=4, **stats)
    assert expected in report(made)


def noisy(base: ps.Dataset) -> ps.Dataset:
    def add(sample, rng):
        return {**sample, "noise": rng.standard_normal(3), "more": rng.integers(0, 1 << 40)}

    return base.random_map(add)


@settings(deadline=None, max_examples=30)
@given(
    count=st.integers(1, 40),
    batch=st.integers(1, 9),
    stop=st.integers(0, 6),
    new_batch=st.integers(1, 9),
    new_ranks=st.integers(1, 4),
    threads=st.integers(1, 4),
    seed=st.integers(0, 2**64 - 1),
)
def test_random_maps_resume_exactly_on_other_ranks_threads_and_batches(
    count, batch, stop, new_batch, new_ranks, threads, seed
):
    base = noisy(ps.Dataset.from_source(Numbers(count)).shuffle(seed))

    def rows(batches):
        return [
            (int(i), x.tolist(), n.tolist(), int(m))
            for b in batches
            if b is not None
            for i, x, n, m in zip(b["id"], b["x"], b["noise"], b["more"])
        ]

    straight = rows(base.batch(count).repeat(2))
    first = base.batch(batch).repeat(2)
    iterator = iter(first)
    seen = rows(b for _, b in zip(range(stop), iterator))
    state = json.loads(json.dumps(first.state_dict()))
    ranks = [
        base.map(lambda s: s, threads).batch(new_batch).shard(rank, new_ranks).repeat(2) for rank in range(new_ranks)
    ]
    for rank in ranks:
        rank.load_state_dict(state)
    rest = [row for step in zip(*ranks) for row in rows(step)] if state["epoch"] < 2 else []
    assert seen + rest == straight


def test_random_generators_differ_between_epochs_samples_stages_and_seeds():
    base = ps.Dataset.from_source(Numbers(8))

    def draws(ds):
        return [float(x) for b in ds.batch(8) for x in b["noise"][:, 0]]

    ds = noisy(base).batch(8).repeat(2)
    both = [float(x) for b in ds for x in b["noise"][:, 0]]
    assert len(set(both)) == 16
    twice = noisy(base).random_map(lambda s, rng: {**s, "again": rng.standard_normal()})
    [batch] = twice.batch(8)
    assert not set(batch["again"]) & set(batch["noise"][:, 0])
    assert draws(noisy(base.shuffle(1))) != draws(noisy(base.shuffle(2)))
    assert sorted(draws(noisy(base))) == sorted(draws(noisy(base)))


def test_states_of_other_sources_are_refused():
    state = ps.Dataset.from_source(Numbers(10)).batch(2).state_dict()
    ps.Dataset.from_source(Numbers(10)).batch(5).load_state_dict(state)
    named = ps.Dataset.from_source(Numbers(10), digest="version 2").batch(2)
    other = ps.Dataset.from_source([{"id": i} for i in range(10)]).batch(2)
    for dataset in (named, other):
        with pytest.raises(ps.Error, match="another list of samples"):
            dataset.load_state_dict(state)
    arrays = np.arange(1000.0)
    state = ps.Dataset.from_arrays(arrays).batch(2).state_dict()
    ps.Dataset.from_arrays(arrays.copy()).batch(2).load_state_dict(state)
    with pytest.raises(ps.Error, match="another list of samples"):
        ps.Dataset.from_arrays(arrays + 1).batch(2).load_state_dict(state)


def test_map_calls_are_bounded_and_in_order():
    now, most, lock = 0, 0, threading.Lock()
    together = threading.Barrier(2)

    def work(sample):
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        together.wait()
        with lock:
            now -= 1
        return sample

    ds = ps.Dataset.from_source(Numbers(32)).map(lambda s: s, 4).map(work, 2).batch(4)
    assert ids(ds) == list(range(32))
    assert most == 2


def test_a_trace_has_lanes_for_the_loader_and_for_the_program():
    ds = ps.Dataset.from_bytes([b"abcd"] * 8).decode_raw((4,)).map(lambda array, label: array).batch(4)
    ps.trace.start()
    try:
        list(ds)
        ds.close()
    finally:
        ps.trace.stop()
    spans = ps.trace.take()
    loader = {span.name: span.thread for span in spans if span.lane == "loader"}
    assert loader.keys() == {"read", "decode", "map", "collate"}
    waits = [span for span in spans if span.name == "wait for batch"]
    assert len(waits) >= 2
    assert all(span.lane == "application" and span.thread not in loader.values() for span in waits)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_counts_batches_from_where_the_dataset_stands(monkeypatch):
    ds = ps.Dataset.from_source(range(10)).batch(2).repeat(2)
    for stream in (Terminal(), io.StringIO()):
        monkeypatch.setattr(sys, "stderr", stream)
        assert np.concatenate(list(ds.progress("training"))).tolist() == [*range(10)] * 2
        shown = stream.getvalue()
        assert ("training" in shown, "10/10" in shown) == (stream.isatty(),) * 2
    iterator = iter(ds)
    for _ in range(7):
        next(iterator)
    resumed = ps.Dataset.from_source(range(10)).batch(2).repeat(2)
    resumed.load_state_dict(ds.state_dict())
    monkeypatch.setattr(sys, "stderr", Terminal())
    batches = resumed.progress()
    assert next(batches).tolist() == [4, 5]
    batches.close()
    assert "8/10" in sys.stderr.getvalue()
    assert "9/10" not in sys.stderr.getvalue()
    endless = ps.Dataset.from_source(range(4)).batch(2).repeat().progress("endless")
    assert [next(endless).tolist() for _ in range(3)] == [[0, 1], [2, 3], [0, 1]]
    endless.close()
