"""What comes between a program and its collectives: a rank that ends, signals, other jobs, sessions."""

from __future__ import annotations

from pathlib import Path

import pytest
from preload.launch import MPIS, mpiexec, preloaded, program


@pytest.mark.parametrize("abi", MPIS)
@pytest.mark.parametrize("how", ["abort", "exit", "kill"])
def test_a_rank_ends_while_others_wait_for_it(abi: str, how: str, tmp_path: Path) -> None:
    done = preloaded(abi, 3, tmp_path / "report.json", program(abi, "ends"), how)
    assert done.status != 0
    assert "has succeeded without" not in done.out
    if how == "abort" and abi != "openmpi":
        assert done.status == 7, done.err


@pytest.mark.parametrize("abi", MPIS)
def test_signals(abi: str, tmp_path: Path) -> None:
    done = preloaded(abi, 3, tmp_path / "report.json", program(abi, "signals"))
    assert (done.status, done.out.strip()) == (0, "signals: ok"), done.err
    assert done.served("allreduce") > 0


@pytest.mark.parametrize("abi", MPIS)
@pytest.mark.parametrize("child_is_preloaded", [False, True])
def test_a_job_that_the_program_starts(abi: str, child_is_preloaded: bool, tmp_path: Path) -> None:
    child: list[str | Path] = [program(abi, "spawns")]
    if child_is_preloaded:
        child = ["penstock", "run", "--mpi", abi, "--report", tmp_path / "child.json", *child]
    done = preloaded(abi, 2, tmp_path / "report.json", program(abi, "spawns"), *child)
    assert done.status == 0, done.err
    assert "spawns: ok" in done.out
    assert (tmp_path / "child.json").exists() == child_is_preloaded
    assert done.served("allreduce") >= 39  # of MPI_COMM_WORLD
    assert done.native("allreduce").keys() == {"an inter-communicator", "processes of several jobs"}


@pytest.mark.parametrize("abi", MPIS)
@pytest.mark.parametrize("has_world", [False, True])
def test_a_session(abi: str, has_world: bool, tmp_path: Path) -> None:
    done = preloaded(abi, 3, tmp_path / "report.json", program(abi, "sessions"), *(["world"] if has_world else []))
    assert (done.status, done.out.strip()) == (0, "sessions: ok"), done.err


@pytest.mark.parametrize("abi", MPIS)
@pytest.mark.parametrize("name", ["signals", "spawns", "sessions"])
def test_natively(abi: str, name: str) -> None:
    arguments = [program(abi, name)] if name == "spawns" else []
    done = mpiexec(abi, 2, program(abi, name), *arguments)
    assert done.status == 0, done.err
    assert f"{name}: ok" in done.out
