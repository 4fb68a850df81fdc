"""`penstock run --verify` finds planted differences, and tools of MPI's profiling interface stay between it and MPI."""

from __future__ import annotations

from pathlib import Path

import pytest
from preload.launch import ALL, MPIS, Done, preloaded, program

#: What verified.c calls, and how many of these calls the tool spoils.
OPERATIONS = {
    "allreduce": (4, 2),
    "bcast": (2, 1),
    "reduce": (2, 1),
    "reduce_scatter_block": (2, 1),
    "reduce_scatter": (2, 1),
    "scan": (2, 1),
    "exscan": (2, 1),
    "gather": (2, 1),
    "scatter": (2, 1),
    "allgather": (2, 1),
    "alltoall": (2, 1),
    "alltoallv": (2, 1),
}


def with_tool(abi: str, ranks: int, report: Path, **environment: str) -> Done:
    return preloaded(abi, ranks, report, program(abi, "verified"), tool="wrong_results", **environment)


@pytest.mark.parametrize("abi", MPIS)
@pytest.mark.parametrize("ranks", [2, 3, 4] if ALL else [3])
def test_planted_differences_are_found(abi: str, ranks: int, tmp_path: Path) -> None:
    done = with_tool(abi, ranks, tmp_path / "report.json", PENSTOCK_VERIFY="on")
    assert done.status == 0, done.err
    assert done.report is not None, done.err
    found = {row["operation"]: (row["verified"], row["differed"]) for row in done.report["operations"]}
    assert found == OPERATIONS
    for operation in OPERATIONS:
        assert f"rank 1 of {ranks}: the result of {operation} differs from MPI's" in done.err
    assert "26 calls were compared with MPI's, 13 results of their ranks differed" in done.err
    # The program goes on with what MPI gave: the tool has spoiled it.
    assert done.out.startswith("off by ")
    assert done.out.endswith(" and 1.0e-09\n")


def test_without_verification_penstock_serves_them(tmp_path: Path) -> None:
    done = with_tool("mpich", 3, tmp_path / "report.json")
    assert done.status == 0, done.err
    assert "differ" not in done.err
    assert all(done.served(operation) == calls for operation, (calls, _) in OPERATIONS.items())
    assert "e-09" not in done.out


def test_a_tool_that_is_preloaded_serves_what_stays_mpis(tmp_path: Path) -> None:
    done = with_tool("mpich", 2, tmp_path / "report.json", PENSTOCK_PRELOAD_AFTER="1000")
    assert done.status == 0, done.err
    assert done.out.endswith(" and 1.0e-09\n")
