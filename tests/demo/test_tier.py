"""The emulated slow tier takes at least its time, counts every byte, and changes no content."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import tier

WRITE = """
import os, sys, time
path, begin = sys.argv[1], time.monotonic()
descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
a, b = b"a" * 300_000, b"b" * 70_001
assert os.writev(descriptor, [a, b]) == 370_001
assert os.pwrite(descriptor, b, 100) == 70_001
assert os.pwritev(descriptor, [b, a], 1000) == 370_001
took = time.monotonic() - begin
expected = (a[:100] + b + a)[:1000] + b + a
assert os.pread(descriptor, 1 << 20, 0) == expected, "content"
os.close(descriptor)
print(took)
"""
WRITTEN, READ = 370_001 + 70_001 + 370_001, 1000 + 370_001
RATE = 4_000_000


@pytest.fixture
def slow(tmp_path):
    made = tier.make(tmp_path)
    assert made.has_library, made.left_out
    made.set_rate(RATE)
    return made


def run(slow: tier.SlowTier, path) -> float:
    environment = {**os.environ, **slow.environment}
    done = subprocess.run(
        [sys.executable, "-c", WRITE, str(path)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return float(done.stdout)


def test_paces_and_counts_what_is_below_its_folder(slow):
    assert run(slow, slow.folder / "file") >= WRITTEN / RATE
    assert slow.counts() == (READ, WRITTEN)


def test_leaves_the_rest_alone(slow, tmp_path):
    run(slow, tmp_path / "file")
    (tmp_path / "slow-tier-not").mkdir()
    run(slow, tmp_path / "slow-tier-not" / "file")
    assert slow.counts() == (0, 0)


def test_processes_share_one_device(slow):
    jobs = [
        subprocess.Popen(
            [sys.executable, "-c", WRITE, str(slow.folder / f"file{n}")],
            env={**os.environ, **slow.environment},
            stdout=subprocess.PIPE,
        )
        for n in range(2)
    ]
    assert all(job.wait() == 0 for job in jobs)
    assert slow.counts() == (2 * READ, 2 * WRITTEN)


def test_says_why_it_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    slow = tier.make(tmp_path)
    slow.set_rate(RATE)
    assert not slow.has_library and "no-such-compiler" in slow.left_out
    assert slow.environment == {}
