"""Programs that run for long hold no more at their end than after they have warmed up."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("PIL.Image")

SECONDS = float(os.environ.get("PENSTOCK_TEST_SOAK_S", "20"))
#: The allocator's own: the threads of each iteration find other arenas.
NOISE_BYTES = 24 << 20


def test_an_endless_loader_holds_the_same_memory_files_and_threads() -> None:
    program = Path(__file__).with_name("endless_ingest.py")
    done = subprocess.run([sys.executable, program, str(SECONDS)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rounds = [json.loads(line) for line in done.stdout.splitlines()]
    quarter = len(rounds) // 4
    early, late = rounds[quarter : 2 * quarter], rounds[-quarter:]
    for what in ("files", "threads", "workers"):
        most = [max(one[what] for one in part) for part in (early, late)]
        assert most[1] <= most[0], f"{most[1]} {what} after {len(rounds)} rounds, {most[0]} after {2 * quarter}"
    before, after = (statistics.median(one["bytes"] for one in part) for part in (early, late))
    assert after <= before + NOISE_BYTES, (
        f"{after / 1e6:.1f} MB after {len(rounds)} rounds, {before / 1e6:.1f} MB after {2 * quarter}"
    )
