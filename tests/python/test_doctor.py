"""penstock doctor: each thing that can be wrong on a machine is found, and its finding says what to do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from penstock import doctor

#: That a machine is busy is nothing that is wrong with it.
PATIENT = """
import sys
from penstock import cli, doctor
doctor.JOB_S = 1200.0
cli.main(["doctor", *sys.argv[1:]], prog_name="penstock")
"""


def run(*words: str, **environment: str) -> tuple[int, dict[str, dict[str, str]]]:
    """(exit status, findings by check) of a process of its own, in which nothing is loaded yet."""
    done = subprocess.run(
        [sys.executable, "-c", PATIENT, "--json", *words],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
    return done.returncode, {each["check"]: each for each in json.loads(done.stdout)["findings"]}


@pytest.fixture
def launcher(tmp_path: Path) -> Path:
    """A folder for a mpiexec that a test writes, first in PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    return folder


def write_launcher(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "mpiexec"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def test_a_machine_that_runs_these_tests_has_no_problem(tmp_path: Path) -> None:
    status, found = run("--store", str(tmp_path))
    assert [each for each in found.values() if each["state"] == "problem"] == []
    assert status == 0
    assert found["collectives"]["found"].startswith("Allreduce on 2 ranks")
    assert "ABI" in found["MPI"]["found"]
    assert str(tmp_path) in found["store"]["found"]
    assert list(tmp_path.iterdir()) == []  # the probe is gone
    for each in found.values():
        assert bool(each["mend"]) == (each["state"] != "ok"), each


def test_without_mpi4py_the_rest_works(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['mpi4py'] = None\n")
    status, found = run(PYTHONPATH=os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    assert status == 1, "mpi4py is installed, but cannot be imported"
    assert found["MPI"]["state"] == "problem"
    assert found["store"]["state"] in ("ok", "note")
    assert "collectives" not in found


def test_an_mpi_that_cannot_be_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MPI4PY_MPIABI", raising=False)
    monkeypatch.setenv("MPI4PY_LIBMPI", "/nonexistent/libmpi.so")
    (finding,) = doctor._mpi()
    assert finding.state == "problem"
    assert "pip install mpich" in finding.mend


def test_a_launcher_of_another_mpi(launcher: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_launcher(launcher, 'shift 2; "$@"; "$@"', monkeypatch)
    (finding,) = doctor._jobs()
    assert (finding.check, finding.state) == ("launcher", "problem")
    assert "belongs to another MPI" in finding.found


def test_a_launcher_that_fails_is_quoted(launcher: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_launcher(launcher, "echo there are not enough slots >&2; exit 7", monkeypatch)
    (finding,) = doctor._jobs()
    assert finding.state == "problem"
    assert finding.found.endswith("ended with status 7: there are not enough slots")


def test_a_job_that_hangs_is_ended(launcher: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "JOB_S", 1.0)
    write_launcher(launcher, "sleep 100 & wait", monkeypatch)
    (finding,) = doctor._jobs()
    assert (finding.state, finding.found) == ("problem", "a job of 2 was still running after 1 s")


def test_in_a_step_of_slurm_the_job_asks_for_no_other_step(launcher: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would wait for the cores of this one."""
    write_launcher(launcher, 'echo "in the job <$SLURM_JOB_ID>"; exit 3', monkeypatch)
    _, found = run(SLURM_JOB_ID="17", SLURM_STEP_NUM_TASKS="1")
    assert "ended with status 3: in the job <>" in found["collectives"]["found"]


def test_srun_without_mpi() -> None:
    status, found = run(SLURM_STEP_NUM_TASKS="4")
    assert status == 1
    assert "srun has started 4 tasks that do not know each other" in found["launcher"]["found"]
    assert "srun --mpi=pmi2" in found["launcher"]["mend"]


def test_no_launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = {each.check: each for each in doctor._jobs()}
    assert "no mpiexec" in found["launcher"].found
    assert found["collectives"].found.startswith("Allreduce on 1 rank of")


def test_a_misspelt_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_PROGRESS_CORE", "2")
    monkeypatch.setenv("PENSTOCK_SITE_NAME", "somewhere")
    monkeypatch.setenv("PENSTOCK_ROOT", "/somewhere")  # of another program, though it resembles PENSTOCK_REPORT
    first, last = doctor._options()
    assert first.state == "problem"
    assert "nothing reads the variable PENSTOCK_PROGRESS_CORE" in first.found
    assert "write PENSTOCK_PROGRESS_CORES" in first.mend
    assert last.state == "ok"


def test_an_option_with_a_wrong_value() -> None:
    code = "from penstock import doctor; print(doctor._guarded(doctor._options))"
    environment = {**os.environ, "PENSTOCK_EAGER_BYTES": "many"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert "state='problem'" in done.stdout, done.stderr
    assert "cannot be 'many'" in done.stdout


@pytest.mark.parametrize(
    ("content", "state", "text"),
    [
        (None, "problem", "No such file"),
        ("{}", "problem", "is not a tuning table"),
        ('{"tables": [{"mpi": "MPICH 5", "nodes": 4}]}', "ok", "for MPICH 5 on 4 nodes"),
    ],
)
def test_tuning_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None, state: str, text: str
) -> None:
    path = tmp_path / "table.json"
    if content is not None:
        path.write_text(content)
    monkeypatch.setenv("PENSTOCK_TUNING", str(path))
    (finding,) = doctor._tuning()
    assert finding.state == state
    assert text in finding.found


def test_places_that_cannot_hold_a_store(tmp_path: Path) -> None:
    finding = doctor._store(str(tmp_path / "absent"))
    assert (finding.state, "is not a directory" in finding.found) == ("problem", True)
    (finding,) = doctor._guarded(lambda: iter((doctor._store("nonsense://x"),)), "store")
    assert (finding.check, finding.state) == ("store", "problem")


def test_little_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    class Facts:
        f_frsize, f_blocks, f_bavail = 4096, (64 << 20) // 4096, (1 << 20) // 4096

    monkeypatch.setattr(doctor.os, "statvfs", lambda path: Facts)
    (finding,) = doctor._shared_memory()
    assert finding.state == "problem"
    assert "--shm-size" in finding.mend


def test_under_a_launcher_one_rank_answers() -> None:
    done = subprocess.run(
        ["mpiexec", "-n", "2", sys.executable, "-m", "penstock", "doctor"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("problems") == 1
    assert "this process was started by one" in done.stdout
