"""penstock bench store: its patterns, and its detection of writes that are not atomic."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
from penstock.bench import store
from penstock.bench.installation import installations

OPTIONS = {"bytes": 4096, "regions": [1, 4], "row_bytes": [512], "element_bytes": [64]}


def written(pattern, order, turn=2):
    matrix = np.zeros(pattern.shape, np.uint8)
    for rank in order:
        matrix[pattern.rectangle(rank)] = store._value(rank, turn)
    return matrix


def test_patterns_follow_the_paper():
    one, four = store.patterns(1, OPTIONS)
    assert (one.shape, one.tile) == ((1, 8192), (1, 4096))
    assert (four.shape, four.tile) == ((4, 2048), (4, 1024))
    (row,) = store.patterns(3, OPTIONS)
    assert (row.shape, row.tile, row.starts) == ((8, 3 * 448 + 64), (8, 512), [(0, 0), (0, 448), (0, 896)])
    row, square = store.patterns(4, OPTIONS)
    assert (square.tile, square.starts) == ((8, 512), [(0, 0), (0, 448), (7, 0), (7, 448)])
    assert square.shape == (15, 15 * 64)
    assert {row.setting["bytes"], square.setting["bytes"]} == {4 * 4096}


@pytest.mark.parametrize("size", [1, 3, 4, 9])
def test_every_order_of_whole_writes_is_right(size):
    for pattern in store.patterns(size, OPTIONS):
        for order in (range(size), reversed(range(size)), np.random.default_rng(size).permutation(size)):
            store.check_matrix(written(pattern, order), pattern, 2)


def test_torn_stale_and_stray_writes_are_noticed():
    (row,) = store.patterns(3, OPTIONS)
    torn = written(row, [0, 1, 2])
    torn[5] = written(row, [1, 0, 2])[5]
    with pytest.raises(AssertionError, match="ranks 0 and 1 are mixed"):
        store.check_matrix(torn, row, 2)
    stale = written(row, [0, 1, 2])
    stale[3, 100] = store._value(0, 1)
    with pytest.raises(AssertionError, match="earlier write"):
        store.check_matrix(stale, row, 2)
    (_, four) = store.patterns(1, OPTIONS)
    stray = written(four, [0])
    stray[1, 1500] = 9
    with pytest.raises(AssertionError, match="between the tiles"):
        store.check_matrix(stray, four, 2)


@pytest.mark.skipif(shutil.which("mpiexec") is None, reason="no mpiexec")
def test_squares_and_single_writers_run():
    found = installations()
    for ranks, experiments in (
        ("1", {"regions", "snapshot", "10 versions", "40 versions", "10000 fragments", "publish"}),
        ("4", {"row of 4 KiB", "square of 1 KiB", "readers"}),
    ):
        arguments = ["store", "--ranks", ranks, "--mpi", found[0].name, "--bytes", "128K", "--sync", "yes", "--quick"]
        done = subprocess.run(
            [sys.executable, "-m", "penstock", "bench", *arguments, "--budget-s", "0.05", "--json"],
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        assert not report["left_out"], report["left_out"]
        assert {row["setting"]["experiment"] for row in report["rows"]} == experiments
        assert any(f"preloaded/{found[0].name}" in row["seconds"] for row in report["rows"])
        if ranks == "1":
            assert any("newest of 40 versions" in line for line in report["summary"])
            assert any("10000 fragments: 1 MiB read cold" in line for line in report["summary"])
            read = [row for row in report["rows"] if row["setting"]["experiment"] == "snapshot"]
            assert all(any("plain" in pair for pair in row["speedup"]) for row in read)
