"""Caches in files: used only for the same samples, whole, within their bound, by several processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import penstock as ps
import pytest
from penstock.dataset.identity import identity


class Calls:
    """A stage that counts how often it runs."""

    def __init__(self, function: Callable[[Any], Any] = lambda sample: sample) -> None:
        self.count = 0
        self.function = function

    def __call__(self, sample: Any) -> Any:
        self.count += 1
        return self.function(sample)


def trees(path: Path, calls: Calls, **how: Any) -> ps.TreeDataset:
    source = ps.Dataset.from_arrays({"x": np.arange(60).reshape(20, 3), "n": np.arange(20)}).shuffle(seed=1)
    return source.map(calls).cache(path, **{"version": "1", **how}).batch(4)


def contents(data: ps.Dataset) -> list[tuple[int, list[int]]]:
    return [(int(n), x.tolist()) for batch in data for n, x in zip(batch["n"], batch["x"])]


EXPECTED = [(n, [3 * n, 3 * n + 1, 3 * n + 2]) for n in range(20)]


def test_later_epochs_and_runs_make_no_sample_again(tmp_path: Path) -> None:
    calls = Calls()
    data = trees(tmp_path / "a/cache", calls)
    for _ in range(3):
        assert sorted(contents(data)) == EXPECTED
    assert calls.count == 20
    again = Calls()
    assert sorted(contents(trees(tmp_path / "a/cache", again))) == EXPECTED
    assert again.count == 0


def test_arrays_and_labels_are_kept(tmp_path: Path) -> None:
    samples = [np.full((2, 3), i, np.float32).tobytes() for i in range(10)]
    for _ in range(2):
        data = ps.Dataset.from_bytes(samples, range(100, 110)).decode_raw((2, 3), np.float32).cache(tmp_path / "cache")
        ((arrays, labels),) = data.batch(10)
        assert arrays.tolist() == [np.full((2, 3), i).tolist() for i in range(10)]
        assert labels.tolist() == list(range(100, 110))
    assert len(list((tmp_path / "cache").glob("samples-*"))) == 1, "the second run had nothing to add"


def test_what_a_dead_writer_left_is_not_used(tmp_path: Path) -> None:
    """The file is cut at every place, and every byte is changed once."""
    sorted(contents(trees(tmp_path, Calls())))
    (file,) = tmp_path.glob("samples-*")
    whole = file.read_bytes()
    record = len(whole) // 20
    for cut in [*range(0, 2 * record, 7), len(whole) - 1]:
        file.write_bytes(whole[:cut])
        calls = Calls()
        assert sorted(contents(trees(tmp_path, calls))) == EXPECTED
        assert calls.count == 20 - cut // record
        for other in tmp_path.glob("samples-*"):
            if other != file:
                other.unlink()
    for at in range(0, record, 5):
        changed = bytearray(whole)
        changed[at] ^= 0x10
        file.write_bytes(changed)
        calls = Calls()
        assert sorted(contents(trees(tmp_path, calls))) == EXPECTED
        assert calls.count >= 1
        for other in tmp_path.glob("samples-*"):
            if other != file:
                other.unlink()


def test_the_bound_is_that_of_all_files(tmp_path: Path) -> None:
    sorted(contents(trees(tmp_path / "whole", Calls())))
    (file,) = (tmp_path / "whole").glob("samples-*")
    record = file.stat().st_size // 20
    bound = 5 * record + record // 2
    for run in range(3):
        calls = Calls()
        data = trees(tmp_path / "cache", calls, max_bytes=bound)
        assert sorted(contents(data)) == EXPECTED
        assert calls.count == (20 if run == 0 else 15)
        files = list((tmp_path / "cache").glob("samples-*"))
        assert sum(one.stat().st_size for one in files) <= bound
        assert len(files) == 1, "a run that adds nothing leaves no file"


def test_another_source_or_stage_is_refused(tmp_path: Path) -> None:
    list(trees(tmp_path, Calls()))
    with pytest.raises(ps.Error, match="holds other samples") as raised:
        list(trees(tmp_path, Calls(), version="2"))
    assert str(tmp_path) in str(raised.value)
    with pytest.raises(ps.Error, match="holds other samples"):
        list(ps.Dataset.from_arrays(np.arange(20)).map(Calls()).cache(tmp_path, version="1").batch(4))
    with pytest.raises(ps.Error, match="holds other samples"):
        list(ps.Dataset.from_arrays(np.arange(3)).cache(tmp_path).batch(1))
    with pytest.raises(ps.Error, match="version without a path"):
        ps.Dataset.from_arrays(np.arange(3)).cache(version="1")
    (tmp_path / "file").write_text("")
    with pytest.raises(ps.Error, match=r"the cache .*file"):
        list(ps.Dataset.from_arrays(np.arange(3)).cache(tmp_path / "file").batch(1))


def test_functions_count_by_what_they_do() -> None:
    def made(number: int, default: int = 1) -> Callable[[int], int]:
        def function(sample: int, by: int = default) -> int:
            return sample * number + by

        return function

    assert identity(made(2)) == identity(made(2))
    different = [made(2), made(3), made(2, 5), lambda sample: sample, lambda sample: sample + 1, np.square, len, Calls]
    assert len({identity(function) for function in different}) == len(different)
    with pytest.raises(ps.Error, match="by version="):
        ps.Dataset.from_arrays(np.arange(3)).map(Calls()).cache("unused")
    program = """
from penstock.dataset.identity import identity
def function(sample): return sample in {"a", "b", "c"}
print(identity(function))
"""
    said = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in range(3)
    }
    assert len(said) == 1, "the same in every run"


def test_ranks_share_a_folder(tmp_path: Path) -> None:
    counts = [Calls(), Calls()]
    for epoch in range(2):
        found: list[Any] = []
        for rank, calls in enumerate(counts):
            source = ps.Dataset.from_arrays({"x": np.arange(60).reshape(20, 3), "n": np.arange(20)}).shuffle(seed=1)
            data = source.map(calls).cache(tmp_path, version="1").batch(4).shard(rank, 2)
            data.load_state_dict({**data.state_dict(), "epoch": epoch})
            found += contents(data)
        assert sorted(found) == EXPECTED
    assert counts[0].count + counts[1].count == 20, "what one has made, the other reads in the next epoch"


def test_a_forked_child_adds_samples_of_its_own(tmp_path: Path) -> None:
    data = trees(tmp_path, Calls())
    iterator = iter(data)
    first = next(iterator)
    data.close()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if sorted(contents(trees(tmp_path, Calls()))) == EXPECTED else 2
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert len(first["n"]) == 4
    calls = Calls()
    assert sorted(contents(trees(tmp_path, calls))) == EXPECTED
    assert calls.count == 0
