"""penstock bench: a job of each benchmark, and how repetitions become a report."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest
from penstock.bench import CASES, runner
from penstock.bench.installation import Installation, installations
from penstock.error import Error

MPI = Installation("mpich", "/nowhere")
needs_mpi = pytest.mark.skipif(shutil.which("mpiexec") is None, reason="no mpiexec")


class Case:
    """Penstock is twice as fast as the other, which cannot run at all on 4 ranks."""

    @staticmethod
    def programs(_mpi):
        return [runner.Program("other"), runner.Program("penstock", baselines=("other",))]


def test_repetitions_are_interleaved_and_summed_up(monkeypatch):
    jobs = []

    def launch(_case, mpi, program, _parameters, ranks):
        jobs.append((program.name, ranks))
        seconds = {"other": 4.0, "penstock": 2.0}[program.name] + len(jobs) / 100
        return [({"bytes": 8}, [seconds])]

    monkeypatch.setattr(runner, "_launch", launch)
    report = runner.run("case", Case, {}, ranks=[2], mpis=[MPI], repetitions=3)
    assert [name for name, _ in jobs] == ["other", "penstock", "penstock", "other", "other", "penstock"]
    (row,) = report.rows
    assert row.setting == {"ranks": 2, "bytes": 8}
    assert row.samples["other/mpich"] == [4.01, 4.04, 4.05]
    assert row.seconds == {"other/mpich": 4.04, "penstock/mpich": 2.03}
    assert row.speedup == {"penstock/mpich : other/mpich": pytest.approx(4.04 / 2.03)}
    assert "1.99" in runner.table(report)
    assert json.loads(runner.as_json(report))["rows"][0]["speedup"]


def test_what_cannot_run_is_left_out_and_said(monkeypatch):
    def launch(_case, _mpi, program, _parameters, _ranks):
        return "no such library" if program.name == "other" else [({"bytes": 8}, [1.0])]

    monkeypatch.setattr(runner, "_launch", launch)
    report = runner.run("case", Case, {}, ranks=[2, 4], mpis=[MPI], repetitions=2)
    assert report.left_out == {"other/mpich": "no such library"}
    assert all(list(row.seconds) == ["penstock/mpich"] and not row.speedup for row in report.rows)
    assert "other/mpich left out: no such library" in runner.table(report)


def test_plot(monkeypatch, tmp_path):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(
        runner, "_launch", lambda *_: [({"op": "x", "bytes": n}, [n * 1e-6, n * 2e-6]) for n in (8, 64)]
    )
    report = runner.run("case", Case, {}, ranks=[2, 3], mpis=[MPI], repetitions=1)
    runner.plot(report, str(tmp_path / "plot.svg"))
    assert "<svg" in (tmp_path / "plot.svg").read_text()


@needs_mpi
@pytest.mark.parametrize("name", CASES)
def test_each_benchmark_runs(name, tmp_path):
    mpi = installations()[0]
    quick = {
        "collectives": ["--operations", "bcast,allreduce", "--sizes", "8,1000"],
        "redistribute": ["--orders", "200"],
    }
    command = [sys.executable, "-m", "penstock", "bench", name, "--quick", "--ranks", "2", "--mpi", mpi.name, "--json"]
    done = subprocess.run([*command, *quick[name]], check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["benchmark"] == name
    assert not report["left_out"], report["left_out"]
    for row in report["rows"]:
        assert row["setting"]["ranks"] == 2
        assert set(row["seconds"]) == set(report["peers"])
        assert all(seconds > 0 for seconds in row["seconds"].values())
        assert row["speedup"]


@needs_mpi
def test_wrong_arguments():
    with pytest.raises(Error, match="no MPI 'fastmpi' was found"):
        installations(["fastmpi"])
    command = [
        sys.executable,
        "-m",
        "penstock",
        "bench",
        "collectives",
        "--operations",
        "sort",
        "--ranks",
        "1",
        "--quick",
    ]
    mpi = installations()[0].name
    done = subprocess.run([*command, "--mpi", mpi], check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode != 0
    assert "unknown operation 'sort'" in done.stderr
