"""Commands under mpiexec of which one rank fails: the job ends by itself, and one line says why.

The limits of time here only end a job that hangs; nothing is measured.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("mpi4py")
pytestmark = pytest.mark.skipif(shutil.which("mpiexec") is None, reason="no mpiexec in PATH")

RANKS = 2
HANGS_S = 1200

#: Runs the command line with an injected fault on one rank; the first argument names fault and rank.
FAULTY = """
import errno, os, resource, sys
from pathlib import Path
from penstock import output_file, spmd

fault, wanted = sys.argv[1].split("@")
if spmd.launched_rank() == int(wanted):
    if fault.startswith("lacks-"):
        sys.modules[fault.removeprefix("lacks-")] = None
    elif fault.startswith("full-"):
        write = output_file.write
        def full(path, text):
            if path.name.endswith(fault.removeprefix("full-")):
                resource.setrlimit(resource.RLIMIT_FSIZE, (10, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
            write(path, text)
        output_file.write = full
    elif fault == "raises":
        from mpi4py import MPI
        from penstock.tuning import measure
        rounds = measure.Meter.round
        def round(meter, actions):
            meter.rounds_done = getattr(meter, "rounds_done", 0) + 1
            return rounds(meter, actions) if meter.rounds_done < 3 else 1 // 0
        measure.Meter.round = round
    elif fault == "pid":
        os.write(1, f"pid {os.getpid()}\\n".encode())
from penstock.cli import main
main(sys.argv[2:], prog_name="penstock")
"""


def launch(*arguments: str, script: str = FAULTY) -> subprocess.Popen:
    return started(["mpiexec", "-n", str(RANKS), sys.executable, "-c", script, *arguments])


def launch_module(module: str, *arguments: str) -> subprocess.Popen:
    return started(["mpiexec", "-n", str(RANKS), sys.executable, "-m", module, *arguments])


def started(command: list[str]) -> subprocess.Popen:
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def end_of(job: subprocess.Popen) -> tuple[int, str, str]:
    """(status, output) of a job, which must end by itself."""
    try:
        out, err = job.communicate(timeout=HANGS_S)
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGKILL)
        pytest.fail(f"the job hangs; it said {job.communicate()}")
    return job.returncode, out, err


def said(err: str, name: str = "penstock tune") -> list[str]:
    """Penstock's lines; launchers add their own."""
    return [line.removeprefix(f"{name}: ") for line in err.splitlines() if line.startswith(f"{name}: ")]


def tune(table: Path, *more: str, fault: str = "none@0") -> subprocess.Popen:
    sizes = ["--operations", "bcast", "--from", "8", "--to", "8", "--minutes", "60"]
    return launch(fault, "tune", "-o", str(table), *sizes, *more)


def test_outputs_are_checked_first(tmp_path: Path) -> None:
    status, out, err = end_of(tune(Path("/nonexist/t.json")))
    assert status == 1, err
    assert out == ""
    (line,) = said(err)
    assert line == (
        "the directory of the output '/nonexist/t.json' does not exist; make it, or give another name (not_found)"
    )
    status, _, err = end_of(tune(tmp_path))
    assert status == 1, err
    assert said(err) == [f"the output '{tmp_path}' is a directory; give the name of a file (io)"]
    status, _, err = end_of(tune(tmp_path / "t.json", "--report", str(tmp_path / "none" / "r.html")))
    assert status == 1, err
    assert [line for line in said(err) if "none/r.html' does not exist" in line] == said(err) != []
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_table_is_left_alone(tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("mine")
    status, _, err = end_of(tune(notes))
    assert status == 1, err
    assert said(err) == [
        f"'{notes}' is not a tuning table, so it was not overwritten; give another name, or remove the file (exists)"
    ]
    notes.write_text(json.dumps({"format": "penstock-tuning", "version": 99, "tables": []}))
    status, _, err = end_of(tune(notes))
    assert status == 1, err
    assert [line for line in said(err) if "has version 99; expected 1 to" in line] == said(err) != []


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("full-t.json@0", "t.json' cannot be used"),
        ("full-t.json.progress@0", "t.json.progress' cannot be used"),
        ("lacks-numpy@1", "No module named 'numpy'|import of numpy halted"),
        ("lacks-numpy@0", "No module named 'numpy'|import of numpy halted"),
        ("lacks-mpi4py@1", "it needs mpi4py and an MPI library"),
        ("lacks-click@1", "install Penstock's requirements on every node"),
        ("raises@1", "ZeroDivisionError: integer division or modulo by zero"),
    ],
)
def test_one_rank_fails(tmp_path: Path, fault: str, reason: str) -> None:
    status, out, err = end_of(tune(tmp_path / "t.json", fault=fault))
    assert status != 0, err
    assert "PENSTOCK_TUNING" not in out  # no table was written; launchers add their own lines
    lines = said(err, "penstock" if "click" in fault else "penstock tune")
    assert len(lines) == 1, err
    assert any(text in lines[0] for text in reason.split("|")), lines
    if fault.endswith("@1"):
        assert "[rank 1]" in lines[0], lines
    assert not (tmp_path / "t.json").exists()
    assert not list(tmp_path.glob("*.new"))


def test_a_rank_that_is_interrupted_ends_the_job(tmp_path: Path) -> None:
    job = tune(tmp_path / "t.json", "--to", "16M", fault="pid@1")
    pid = int(job.stdout.readline().split()[1])
    while not (tmp_path / "t.json.progress").exists():  # wait until it measures
        assert job.poll() is None, job.communicate()
        time.sleep(0.05)
    os.kill(pid, signal.SIGINT)
    status, _, err = end_of(job)
    assert status != 0
    assert [line for line in said(err) if line.startswith("interrupted")] == said(err) != [], err


def test_a_job_that_is_interrupted_ends(tmp_path: Path) -> None:
    job = tune(tmp_path / "t.json", "--to", "16M")
    while not (tmp_path / "t.json.progress").exists():
        assert job.poll() is None, job.communicate()
        time.sleep(0.05)
    os.kill(job.pid, signal.SIGINT)
    status, _, _ = end_of(job)
    assert status != 0


@pytest.mark.parametrize("arguments", [["--nonsense"], ["--from", "many"]])
def test_wrong_arguments_are_said_once(tmp_path: Path, arguments: list[str]) -> None:
    status, out, err = end_of(tune(tmp_path / "t.json", *arguments))
    assert status == 2, err
    assert out == ""
    assert err.count("nonsense") + err.count("'many'") == 1, err


def test_help_is_printed_once() -> None:
    status, out, _ = end_of(launch("none@0", "tune", "--help"))
    assert status == 0
    assert out.count("Usage:") == 1


#: A user's program, without the tuner.
PROGRAM = """
import sys
from penstock import spmd
from penstock.error import Error
with spmd.program("program") as world:
    exec(sys.argv[1])
"""


@pytest.mark.parametrize(
    ("body", "status", "lines"),
    [
        ("pass", 0, []),
        ("raise SystemExit(0)", 0, []),
        ("if world.rank == 1: raise SystemExit(7)", 7, ["7 [rank 1]"]),
        ("raise Error('all of us')", 1, ["all of us (invalid_argument)"]),
        ("if world.rank == 1: raise Error('in the end')", 1, ["in the end (invalid_argument)"]),
        ("spmd.agreed(world, lambda: 1 // world.rank)", 1, None),
        ("assert spmd.agreed(world, lambda: world.rank) == world.rank", 0, []),
        ("assert spmd.from_root(world, lambda: world.rank + 3, root=1) == 4", 0, []),
        ("spmd.from_root(world, lambda: open('/nonexist/x'), root=1)", 1, ["'/nonexist/x' cannot be used: No such file or directory (io)"]),
        # Each rank hears of the other's failure; one of them reports its own.
        ("raise Error('of rank 1', 'peer_failed') if world.rank == 0 else Error('mine')", 1, ["mine (invalid_argument)"]),
    ],
)  # fmt: skip
def test_all_ranks_exit_alike(body: str, status: int, lines: list[str] | None) -> None:
    found, _, err = end_of(launch(body, script=PROGRAM))
    assert found == status, err
    if lines is None:
        (line,) = said(err, "program")
        assert "ZeroDivisionError" in line
        assert "[rank 0]" in line
    else:
        assert said(err, "program") == lines, err


def test_a_rank_that_fails_alone_aborts_the_job() -> None:
    status, _, err = end_of(launch("world.Barrier(); 1 // world.rank; world.Barrier()", script=PROGRAM))
    assert status == 1, err
    (line,) = said(err, "program")
    assert line.startswith("ZeroDivisionError: integer division or modulo by zero"), line
    assert line.endswith("[rank 0]; the other ranks wait for this one, so the job is aborted"), line


def test_a_worker_of_a_benchmark_says_why(tmp_path: Path) -> None:
    """A failure of one rank in the middle of a measurement."""
    broken = (
        "import sys, runpy\n"
        "from mpi4py import MPI\n"
        "from penstock.bench import collectives\n"
        "def measure(program, parameters):\n"
        "    MPI.COMM_WORLD.Barrier()\n"
        "    if MPI.COMM_WORLD.rank == 1: raise ValueError('here')\n"
        "    MPI.COMM_WORLD.Barrier()\n"
        "collectives.measure = measure\n"
        "runpy.run_module('penstock.bench.worker', run_name='__main__', alter_sys=False)\n"
    )
    status, _, err = end_of(launch("collectives", "native", "{}", str(tmp_path / "result.json"), script=broken))
    assert status == 1, err
    (line,) = said(err, "penstock bench collectives")
    assert line.startswith("ValueError: here")
    assert not (tmp_path / "result.json").exists()


EXAMPLE = """
import sys
from pathlib import Path
from mpi4py import MPI
source = Path(sys.argv[1]).read_text()
if MPI.COMM_WORLD.rank == 1:
    source = source.replace("request.Wait()", "1 // 0")
exec(compile(source, sys.argv[1], "exec"))
"""


def test_an_example_ends_if_one_rank_fails(tmp_path: Path) -> None:
    """Runs it as its first line says, with mpi4py's own runner."""
    example = Path(__file__).parents[2] / "examples/python/overlap.py"
    assert "python -m mpi4py examples/python/overlap.py" in example.read_text()
    broken = tmp_path / "broken.py"
    broken.write_text(EXAMPLE)
    status, _, err = end_of(launch_module("mpi4py", str(broken), str(example)))
    assert status != 0
    assert "ZeroDivisionError" in err


def test_the_training_of_the_demo_ends_if_its_ranks_fail() -> None:
    train = Path(__file__).parents[2] / "demo/train.py"
    command = ["mpiexec", "-n", str(RANKS), sys.executable, str(train), "penstock", "/nonexist.json"]
    status, _, err = end_of(started(command))
    assert status == 1, err
    assert said(err, "demo") == ["'/nonexist.json' cannot be used [rank 0]: No such file or directory (io)"]
