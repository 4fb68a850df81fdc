"""Fortran programs by each of MPI's interfaces."""

from __future__ import annotations

from pathlib import Path

import pytest
from preload.fortran import INTERFACES, LIBRARIES, MPIS, compiled, run
from preload.launch import ALL

BLOCKING = {
    "bcast": 2,
    "allgather": 2,
    "alltoall": 1,
    "gather": 2,
    "scatter": 2,
    "allgatherv": 1,
    "gatherv": 1,
    "scatterv": 1,
    "alltoallv": 1,
    "alltoallw": 1,
    "allreduce": 2,
    "reduce": 1,
    "scan": 1,
    "exscan": 1,
    "reduce_scatter_block": 1,
    "reduce_scatter": 1,
    "neighbor_alltoall": 1,
    "neighbor_allgather": 1,
}
NONBLOCKING = {"iallreduce": 2, "ibcast": 1}
NO_HOOK = "this MPI has no hook for progress"
WRITES = "Open MPI's Fortran interface writes into its request"


@pytest.mark.parametrize("ranks", [1, 2, 3, 4] if ALL else [3])
@pytest.mark.parametrize("mpi", MPIS)
@pytest.mark.parametrize("interface", INTERFACES)
def test_fortran(mpi: str, interface: str, ranks: int, tmp_path: Path) -> None:
    made = compiled(mpi, "fortran", interface, tmp_path)
    assert made.returncode == 0, made.stderr
    done = run(mpi, ranks, tmp_path, tmp_path / "report.json")
    assert done.status == 0, done.err
    assert "fortran: ok" in done.out
    if ranks == 1:
        return
    assert {operation: done.served(operation) for operation in BLOCKING} == BLOCKING, done.err
    for operation, calls in NONBLOCKING.items():
        served, native = (0, {NO_HOOK: calls}) if mpi == "debian-mpich" else (calls, {})
        assert (done.served(operation), done.native(operation)) == (served, native), (operation, done.err)
    assert done.native("allreduce") == {"a datatype without a reduction in Penstock": 1}  # of logicals


@pytest.mark.parametrize("ranks", [3, 4] if ALL else [3])  # Open MPI itself mixes up the blocks on rings of 2
@pytest.mark.parametrize("mpi", MPIS)
@pytest.mark.parametrize("interface", LIBRARIES)
def test_completions(mpi: str, interface: str, ranks: int, tmp_path: Path) -> None:
    """Each collective that does not block, in each call that completes requests."""
    made = compiled(mpi, "completions", interface, tmp_path, "-DHAVE_PERSISTENT")
    has_persistent = mpi != "debian-openmpi" or made.returncode == 0  # Open MPI 4 has none
    if not has_persistent:
        made = compiled(mpi, "completions", interface, tmp_path)
    assert made.returncode == 0, made.stderr
    done = run(mpi, ranks, tmp_path, tmp_path / "report.json")
    assert done.status == 0, done.out + done.err
    (line,) = (line for line in done.out.splitlines() if line.startswith("completions: ok "))
    nonblocking, persistent = (int(word) for word in line.split()[2:])
    assert nonblocking >= 3 * 6
    assert persistent >= (3 * 10 if mpi in ("mpich", "openmpi") else 0)
    for operation in ["barrier", *BLOCKING, "neighbor_allgatherv", "neighbor_alltoallv", "neighbor_alltoallw"]:
        if operation == "neighbor_alltoallw" and interface == "USE_MPI_F08" and "mpich" in mpi:
            continue
        why = None
        if mpi == "debian-mpich":
            why = NO_HOOK
        elif mpi != "mpich" and has_persistent and operation.endswith(("v", "w", "reduce_scatter")):
            why = WRITES
        for form, starts in ((f"i{operation}", nonblocking), (f"{operation}_init", persistent)):
            expected = (starts, {}) if why is None or starts == 0 else (0, {why: starts})
            assert (done.served(form), done.native(form)) == expected, (form, done.err)
