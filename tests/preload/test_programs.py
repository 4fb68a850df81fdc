"""Programs that know nothing of Penstock give the same results under `penstock run`, and it serves their collectives."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from preload.launch import ALL, BUILD, HOOKED, MPIS, mpiexec, preloaded, program

BLOCKING = [
    "barrier",
    "bcast",
    "reduce",
    "allreduce",
    "gather",
    "gatherv",
    "scatter",
    "scatterv",
    "allgather",
    "allgatherv",
    "alltoall",
    "alltoallv",
    "alltoallw",
    "reduce_scatter",
    "reduce_scatter_block",
    "scan",
    "exscan",
]
NEIGHBORHOODS = [
    "neighbor_allgather",
    "neighbor_allgatherv",
    "neighbor_alltoall",
    "neighbor_alltoallv",
    "neighbor_alltoallw",
]


@pytest.mark.parametrize("abi", MPIS)
@pytest.mark.parametrize("ranks", [2, 3, 4] if ALL else [3])
def test_collectives(abi: str, ranks: int, tmp_path: Path) -> None:
    done = preloaded(abi, ranks, tmp_path / "report.json", program(abi, "collectives"))
    assert done.status == 0, done.err
    assert "collectives: ok" in done.out
    for operation in BLOCKING:
        assert done.served(operation) > 0, (operation, done.err)
        for form in (f"i{operation}", f"{operation}_init"):
            if abi in HOOKED:
                assert done.served(form) > 0, (form, done.err)
            else:
                assert "this MPI has no hook for progress" in done.native(form)
    assert done.native("allreduce") == {"an operation of the program": 1}


@pytest.mark.parametrize("abi", MPIS)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5] if ALL else [4])
def test_neighbors(abi: str, ranks: int, tmp_path: Path) -> None:
    done = preloaded(abi, ranks, tmp_path / "report.json", program(abi, "neighbors"))
    assert done.status == 0, done.err
    assert "neighbors: ok" in done.out
    if ranks == 1:
        return
    for operation in NEIGHBORHOODS:
        assert done.served(operation) > 0, (operation, done.err)
        for form in (f"i{operation}", f"{operation}_init"):
            if abi in HOOKED:
                assert done.served(form) > 0, (form, done.err)
            else:
                assert "this MPI has no hook for progress" in done.native(form)
    if abi in HOOKED:
        # On two grids, two starts each of the form with int, and of the one with large counts where MPI has it; then on
        # the chain.
        large = 2 if abi == "mpich" else 0
        assert done.served("neighbor_alltoall_init") == 2 * (2 + large) + 2 * 2
        assert done.served("neighbor_alltoallw_init") == 2 * (2 + large) + 2
        assert done.served("allreduce_init") == 2 * large
    assert not any(done.native(operation) for operation in NEIGHBORHOODS), done.err


@pytest.mark.parametrize("abi", MPIS)
@pytest.mark.parametrize("threads", [(), ("multiple",)] if ALL else [()])
@pytest.mark.parametrize("ranks", [2, 3, 4] if ALL else [2])
def test_completions(abi: str, threads: tuple[str, ...], ranks: int, tmp_path: Path) -> None:
    """Each collective that does not block, in each call that completes requests."""
    hooked = abi in HOOKED
    words = [*threads, *([] if hooked else ["native"]), *(["3", "5000"] if ALL else ["300"])]
    done = preloaded(abi, ranks, tmp_path / "report.json", program(abi, "completions"), *words)
    assert done.status == 0, done.err
    (line,) = (line for line in done.out.splitlines() if line.startswith("completions: ok "))
    nonblocking, persistent = (int(word) for word in line.split()[2:])
    assert nonblocking >= 3 * 10
    for operation in BLOCKING + NEIGHBORHOODS:
        for form, starts in ((f"i{operation}", nonblocking), (f"{operation}_init", persistent)):
            if hooked:
                assert (done.served(form), done.native(form)) == (starts, {}), (form, done.err)
            else:
                assert done.native(form) == {"this MPI has no hook for progress": starts}, (form, done.err)


@pytest.mark.parametrize("abi", HOOKED)
@pytest.mark.parametrize("ranks", [2, 3, 4] if ALL else [2])
def test_progress(abi: str, ranks: int, tmp_path: Path) -> None:
    done = preloaded(abi, ranks, tmp_path / "report.json", program(abi, "progress"))
    assert done.status == 0, done.err
    assert "progress: ok" in done.out
    assert (done.served("ibcast"), done.served("iallreduce")) == (1, 1)


@pytest.mark.parametrize("abi", HOOKED)
def test_cancel_is_refused_and_the_operation_completes(abi: str, tmp_path: Path) -> None:
    done = preloaded(abi, 2, tmp_path / "report.json", program(abi, "cancels"))
    assert done.status == 0, done.err
    assert "cancels: ok" in done.out
    assert (done.served("iallreduce"), done.served("allreduce_init")) == (3, 3)


@pytest.mark.parametrize("abi", HOOKED)
@pytest.mark.parametrize("threads", [(), ("multiple",)])
@pytest.mark.parametrize("ranks", [2, 3, 4] if ALL else [3])
def test_persistent(abi: str, threads: tuple[str, ...], ranks: int, tmp_path: Path) -> None:
    done = preloaded(abi, ranks, tmp_path / "report.json", program(abi, "persistent"), *threads)
    assert done.status == 0, done.err
    assert "persistent: ok" in done.out
    # 4 at once in 5 orders; freed_early: 2; lives: 100 x 3
    assert done.served("allreduce_init") == 4 * 5 + 2 + 100 * 3
    assert done.served("bcast_init") == 3 * 64
    assert sum(done.native("bcast_init").values()) == 3 * 6


@pytest.mark.parametrize("abi", HOOKED)
def test_persistent_that_fails(abi: str, tmp_path: Path) -> None:
    done = preloaded(abi, 2, tmp_path / "report.json", program(abi, "persistent_error"))
    assert done.status == 0, done.err
    assert "persistent_error: ok" in done.out
    # Once on each rank, since not all that completes requests gives the text.
    assert done.err.count("penstock: a persistent collective failed: ") == 2, done.err


@pytest.mark.parametrize("abi", MPIS)
@pytest.mark.parametrize("name", ["collectives", "completions", "neighbors", "progress"])
@pytest.mark.skipif(not ALL, reason="with --all")
def test_natively(abi: str, name: str) -> None:
    if (abi, name) == ("openmpi", "neighbors"):
        pytest.skip("Open MPI's own MPI_Ineighbor_alltoall mixes up blocks in a periodic dimension of one rank")
    done = mpiexec(abi, 3, program(abi, name), *(["native", "3"] if name == "completions" else []))
    assert done.status == 0, done.err
    assert f"{name}: ok" in done.out


@pytest.mark.parametrize("abi", MPIS)
@pytest.mark.parametrize("ranks", [2, 3, 4] if ALL else [3])
def test_repeated_calls_differ_in_one_argument(abi: str, ranks: int, tmp_path: Path) -> None:
    done = preloaded(abi, ranks, tmp_path / "report.json", program(abi, "repeated"))
    assert done.status == 0, done.err
    (line,) = (line for line in done.out.splitlines() if line.startswith("repeated: ok "))
    calls, moved_bytes, by_own_operation, gathered_bytes = (int(word) for word in line.split()[2:])
    assert done.served("allreduce") == calls
    assert done.native("allreduce") == {"an operation of the program": by_own_operation}
    assert done.report is not None
    for operation, bytes_ in (("allreduce", moved_bytes), ("neighbor_allgather", gathered_bytes)):
        (row,) = (row for row in done.report["operations"] if row["operation"] == operation)
        assert row["served_bytes"] == bytes_


@pytest.mark.parametrize("abi", MPIS)
def test_collectives_of_no_bytes_are_mpis(abi: str, tmp_path: Path) -> None:
    done = preloaded(abi, 3, tmp_path / "report.json", program(abi, "empty"))
    assert done.status == 0, done.err
    assert "empty: ok" in done.out
    why = "nothing to move or to reduce"
    for operation in ("bcast", "gather", "scatter", "allgather", "alltoall"):
        assert done.native(operation) == {why: 2}
        assert done.served(operation) == 0
    assert done.native("reduce") == {why: 1}
    assert done.native("allreduce") == {why: 1}
    assert done.served("allreduce") == 1
    if abi in HOOKED:
        assert done.native("ibcast") == {why: 2}


@pytest.mark.parametrize("abi", HOOKED)
def test_what_interception_costs_can_be_measured(abi: str, tmp_path: Path) -> None:
    done = preloaded(abi, 2, tmp_path / "report.json", program(abi, "overheads"), "2")
    assert done.status == 0, done.err
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert len(rows) == 4
    assert all(row["direct_ns"] > 0 for row in rows)


@pytest.mark.parametrize("abi", HOOKED)
def test_calls_after_a_barrier_can_be_measured(abi: str, tmp_path: Path) -> None:
    done = preloaded(abi, 2, tmp_path / "report.json", program(abi, "after_barrier"), "1")
    assert done.status == 0, done.err
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert len(rows) == 5 * 3 * 4
    assert all(0 < row["call_us"] <= row["both_us"] for row in rows)


@pytest.mark.parametrize("abi", HOOKED)
def test_calls_among_neighbours_can_be_timed(abi: str, tmp_path: Path) -> None:
    done = preloaded(abi, 2, tmp_path / "report.json", program(abi, "neighbor_times"), "1")
    assert done.status == 0, done.err
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert len(rows) == 4 * 6
    assert all(row["intercepted_us"] > 0 and row["native_us"] > 0 for row in rows)


@pytest.mark.parametrize("abi", MPIS if ALL else ["mpich"])
def test_communicators_leave_nothing(abi: str, tmp_path: Path) -> None:
    lives = 10_000 if ALL else 20
    done = preloaded(abi, 2, tmp_path / "report.json", program(abi, "lives"), str(lives))
    assert done.status == 0, done.err
    assert "lives: ok" in done.out
    assert done.served("allreduce") == lives + 20


@pytest.mark.parametrize("abi", MPIS if ALL else ["mpich"])
@pytest.mark.parametrize(("name", "operations"), [("collectives", BLOCKING), ("neighbors", NEIGHBORHOODS)])
def test_verification_finds_no_difference(abi: str, name: str, operations: list[str], tmp_path: Path) -> None:
    done = preloaded(abi, 3, tmp_path / "report.json", program(abi, name), PENSTOCK_VERIFY="on")
    assert done.status == 0, done.err
    assert done.report is not None
    rows = [row for row in done.report["operations"] if row["served"] > 0]
    assert {row["operation"] for row in rows} == {*operations, "barrier"}
    assert all(row["verified"] == row["served"] for row in rows)
    assert all(row["differed"] == 0 for row in rows), done.err


@pytest.mark.parametrize("abi", MPIS)
def test_own_calls_of_mpi_are_not_intercepted(abi: str) -> None:
    library = BUILD / f"python/penstock/libpenstock_preload_{abi}.so"
    symbols = subprocess.run(["nm", "-D", "--undefined-only", library], capture_output=True, text=True, check=True)
    assert re.findall(r"\bPMPI_\w+", symbols.stdout)
    assert re.findall(r"\bMPI_[A-Z][a-z]\w*", symbols.stdout) == []
