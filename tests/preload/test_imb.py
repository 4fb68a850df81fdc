"""The Intel MPI Benchmarks, unmodified, run to their end under `penstock run` as natively, and their results are MPI's."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from preload.launch import ALL, ROOT, mpiexec, preloaded

os.environ.setdefault("PENSTOCK_ROOT", str(ROOT))
sys.path.insert(0, str(ROOT / "scripts"))
import imb_comparison
from captured import CommandError

pytestmark = pytest.mark.skipif(not ALL, reason="with --all, which fetches the benchmarks")

#: Lengths of messages of all kinds.
BYTES = (0, 4, 8, 1000, 70000)


def short(folder: Path) -> list[str]:
    """A few repetitions. They take as long as they take: processes outnumber cores."""
    lengths = folder / "lengths"
    lengths.write_text("".join(f"{count}\n" for count in BYTES))
    return ["-iter", "5,1000000,5", "-iter_policy", "off", "-msglen", str(lengths), "-time", "600"]


@pytest.fixture(scope="module")
def programs() -> dict[str, Path]:
    try:
        return imb_comparison.fetch(ROOT / "build/imb")
    except CommandError as reason:
        pytest.skip(str(reason))


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("suite", imb_comparison.SUITES)
@pytest.mark.parametrize("ranks", [2, 4])
def test_all_benchmarks_run_to_their_end(suite: str, ranks: int, programs: dict[str, Path], tmp_path: Path) -> None:
    command = [programs[suite], *short(tmp_path)]
    natively = mpiexec("mpich", ranks, *command, timeout_s=1500)
    assert natively.status == 0, natively.err
    done = preloaded("mpich", ranks, tmp_path / "report.json", *command, timeout_s=1500)
    assert done.status == 0, done.err
    points = imb_comparison.points(done.out)
    assert points.keys() == imb_comparison.points(natively.out).keys()
    assert "time-out" not in done.out
    for benchmark in imb_comparison.TIMED[suite]:
        name = benchmark.removesuffix("_pure")
        assert name in {point.benchmark for point in points}
        assert done.served(name.lower()) > 10, done.err


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("ranks", [2, 4])
def test_their_results_are_mpis(ranks: int, programs: dict[str, Path], tmp_path: Path) -> None:
    command = [programs["MPI1"], *imb_comparison.COLLECTIVES, *short(tmp_path)]
    done = preloaded("mpich", ranks, tmp_path / "report.json", *command, timeout_s=1500, PENSTOCK_VERIFY="on")
    assert done.status == 0, done.err
    assert done.report is not None
    served = [row for row in done.report["operations"] if row["served"] > 0]
    assert {row["operation"] for row in served} >= {name.lower() for name in imb_comparison.COLLECTIVES}
    assert all(row["verified"] == row["served"] for row in served)
    assert all(row["differed"] == 0 for row in served), done.err
