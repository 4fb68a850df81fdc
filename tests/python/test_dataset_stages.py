"""Stages for sequences: buckets, packing, several samples of one, bounded caches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import penstock as ps
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from penstock.dataset.packing import placed

LENGTHS = np.random.default_rng(3).integers(1, 100, 500)


def sequences() -> ps.TreeDataset:
    return ps.Dataset.from_source([np.full(n, i, np.int32) for i, n in enumerate(LENGTHS.tolist())])


# Buckets.


def test_buckets_hold_samples_of_similar_length():
    data = sequences().shuffle(seed=1).bucket_by_length(LENGTHS, 16, window=8)
    order = data.indices(0)
    assert sorted(order) == list(range(500))
    spreads = [np.ptp(LENGTHS[order[begin : begin + 16]]) for begin in range(0, 384, 16)]
    assert np.mean(spreads) < 20  # all lengths: 99
    firsts = [LENGTHS[order[begin]] for begin in range(0, 128, 16)]
    assert firsts != sorted(firsts)
    assert not np.array_equal(order, data.indices(1))
    whole = sum(batch.size for batch in sequences().shuffle(seed=1).pad().batch(16))
    assert sum(batch.size for batch in data.pad().batch(16)) < 0.75 * whole


def test_buckets_resume_exactly_on_other_ranks():
    def made(rank: int, ranks: int) -> ps.TreeDataset:
        data = sequences().shuffle(seed=1).bucket_by_length(LENGTHS, 16, window=4)
        return data.map(lambda x: x[:1]).batch(16).shard(rank, ranks)

    first = made(0, 1)
    seen = [int(x[0]) for _, batch in zip(range(9), first) for x in batch]
    state = json.loads(json.dumps(first.state_dict()))
    for rank in range(3):
        data = made(rank, 3)
        data.load_state_dict(state)
        seen += [int(x[0]) for batch in data for x in batch]
    assert sorted(seen) == list(range(500))


@pytest.mark.parametrize("lengths", [[1, 2], [-1] * 500, [[1] * 500], ["x"] * 500])
def test_lengths_that_do_not_fit_are_refused(lengths: Any):
    with pytest.raises(ps.Error, match="lengths"):
        sequences().bucket_by_length(lengths, 4)


# Packing.


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 20), max_size=60))
def test_pieces_are_placed_once_and_fit(sizes: list[int]):
    rows = placed(sizes, 20)
    assert sorted(piece for row in rows for piece in row) == list(range(len(sizes)))
    assert all(sum(sizes[piece] for piece in row) <= 20 for row in rows)
    assert len(rows) <= 11 / 9 * max(1, -(-sum(sizes) // 20) * 2) + 1


def test_packed_rows_hold_every_sequence_once():
    found: dict[int, int] = {}
    used = total = 0
    for batch in sequences().shuffle(seed=2).pack(64).batch(100):
        assert batch["tokens"].shape == batch["segment_ids"].shape == batch["positions"].shape
        assert batch["tokens"].shape[1] == 64
        for tokens, segments, positions in zip(batch["tokens"], batch["segment_ids"], batch["positions"]):
            total += 64
            for segment in range(1, segments.max() + 1):
                here = segments == segment
                (sample,) = set(tokens[here].tolist())
                begin = positions[here][0]
                assert positions[here].tolist() == list(range(begin, begin + here.sum()))
                found[sample] = found.get(sample, 0) + int(here.sum())
                used += int(here.sum())
            assert not tokens[segments == 0].any()
    assert found == dict(enumerate(LENGTHS.tolist()))
    assert used > 0.9 * total


def test_packed_batches_have_one_shape_if_asked():
    columns = [{"t": np.arange(n), "mask": np.ones((n, 2), bool)} for n in (3, 5, 2)]
    data = ps.Dataset.from_source(columns)
    (batch,) = list(data.pack(8, rows=4, value=1).batch(3))
    assert batch["t"].shape == (4, 8)
    assert batch["mask"].shape == (4, 8, 2)
    assert batch["segment_ids"].max() == 2
    with pytest.raises(ps.Error, match="need 2 rows, more than 1"):
        list(data.pack(8, rows=1).batch(3))
    with pytest.raises(ps.Error, match="use split=True"):
        list(data.pack(4, split=False).batch(3))
    with pytest.raises(ps.Error, match="equally long"):
        list(ps.Dataset.from_source([{"a": np.zeros(2), "b": np.zeros(3)}]).pack(4).batch(1))


# Several samples of one.


def test_flat_map_makes_several_samples_or_none():
    data = ps.Dataset.from_arrays(np.arange(8)).flat_map(lambda x: [{"x": x, "k": k} for k in range(int(x) % 3)])
    data = data.map(lambda s: {**s, "y": s["x"] * 10 + s["k"]}).filter(lambda s: s["y"] != 20)
    batches = [batch and batch["y"].tolist() for batch in data.batch(1)]
    assert batches == [None, [10], [21], [], [40], [50, 51], [], [70]]
    assert next(iter(data.batch(8)))["y"].tolist() == [10, 21, 40, 50, 51, 70]


def test_flat_map_of_files_gets_the_label():
    data = ps.Dataset.from_bytes([b"ab", b"c"], labels=[5, 6]).flat_map(lambda x, label: [(int(v), label) for v in x])
    ((values, labels),) = list(data.batch(2))
    assert values.tolist() == [97, 98, 99]
    assert labels.tolist() == [5, 5, 6]


def test_flat_map_is_cached_and_copied():
    calls = []

    def halves(x: Any) -> list[Any]:
        calls.append(1)
        return [x[:2].copy(), x[2:].copy()]

    data = ps.Dataset.from_arrays(np.arange(12).reshape(3, 4)).flat_map(halves).cache().map(lambda x: x.__iadd__(1))
    data = data.batch(3)
    for _ in range(2):
        (batch,) = list(data)
        assert batch.tolist() == [[1, 2], [3, 4], [5, 6], [7, 8], [9, 10], [11, 12]]
    assert len(calls) == 3


# Bounded caches.


@pytest.mark.parametrize(("limit", "kept"), [(None, 10), (8000, 10), (4100, 5), (1, 0)])
@pytest.mark.parametrize("trees", [False, True])
def test_a_cache_keeps_what_fits(limit: int | None, kept: int, trees: bool):
    calls: list[int] = []

    def count(x: Any, label: int | None = None) -> Any:
        calls.append(1)
        return {"x": x.copy()} if trees else x

    source = ps.Dataset.from_bytes([bytes([i]) * 800 for i in range(10)])
    data = source.map(count, num_parallel_calls=1).cache(max_bytes=limit).batch(5)
    for _ in range(3):
        values = [batch["x"] if trees else batch[0] for batch in data]
        assert np.concatenate(values)[:, 799].tolist() == list(range(10))
    assert len(calls) == 10 + 2 * (10 - kept)


def test_batches_as_they_become_ready() -> None:
    import threading

    gate = threading.Event()

    def slow(sample: Any) -> Any:
        if sample == 1:
            gate.wait()
        return sample

    def make(batch: int, **how: Any) -> ps.TreeDataset:
        return ps.Dataset.from_arrays(np.arange(12)).map(slow, 3).batch(batch).prefetch(3, **how)

    data = make(2, deterministic=False)
    iterator = iter(data)
    early = [next(iterator) for _ in range(5)]
    assert sorted(np.concatenate(early).tolist()) == list(range(2, 12)), "all but the batch with the slow sample"
    state = json.loads(json.dumps(data.state_dict()))
    assert (state["version"], state["position"], state["given"]) == (3, 0, [[0, 2, 1, 10]])
    gate.set()
    assert [batch.tolist() for batch in iterator] == [[0, 1]]
    assert data.state_dict()["version"] == 2

    for other in (make(5), make(5, deterministic=False)):
        other.load_state_dict(state)
        assert sorted(np.concatenate(list(other)).tolist()) == [0, 1]
        assert sorted(np.concatenate(list(other)).tolist()) == list(range(12)), "the next epoch has all"


def test_states_of_ranks_merge() -> None:
    parts = [ps.Dataset.from_arrays(np.arange(20)).shuffle(seed=1).batch(4).shard(rank, 2) for rank in range(2)]
    seen = []
    for part, batches in zip(parts, (1, 3)):
        seen += [batch for _, batch in zip(range(batches), part)]
    state = parts[0].merge_states([part.state_dict() for part in parts])
    assert state["position"] == 4
    rest = ps.Dataset.from_arrays(np.arange(20)).shuffle(seed=1).batch(3)
    rest.load_state_dict(state)
    assert sorted(np.concatenate([*seen, *rest]).tolist()) == list(range(20))
    with pytest.raises(ps.Error, match="got 1 states; expected one of each of the 2 ranks"):
        parts[0].merge_states([parts[0].state_dict()])
    with pytest.raises(ps.Error, match="not the state of a dataset"):
        rest.load_state_dict({**state, "given": [[1, 2]]})


def test_the_state_of_one_rank_out_of_order_is_not_taken_for_that_of_all(tmp_path: Path) -> None:
    parts = [
        ps.Dataset.from_arrays(np.arange(20)).batch(4).shard(rank, 2).prefetch(2, deterministic=False)
        for rank in range(2)
    ]
    seen = [next(iter(part)) for part in parts]
    states = [part.state_dict() for part in parts]
    with pytest.raises(ps.Error, match="the state of one of 2 ranks"):
        parts[0].load_state_dict(states[0])
    with ps.Checkpointer(f"file://{tmp_path}/checkpoints") as checkpoints:
        with pytest.raises(ps.Error, match="another state on each rank"):
            checkpoints.save(1, {}, dataset=parts[0])
        checkpoints.save(2, {}, dataset=parts[0].merge_states(states)).wait("drained")
        rest = ps.Dataset.from_arrays(np.arange(20)).batch(5)
        checkpoints.restore(dataset=rest)
    assert sorted(np.concatenate([*seen, *rest]).tolist()) == list(range(20))
