"""Communicators of programs that a launcher with PMIx has started, and that never initialize MPI."""

from __future__ import annotations

import ctypes.util
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(os.environ.get("PENSTOCK_ROOT", Path(__file__).parents[2]))
PRTERUN = ROOT / "build/mpi/openmpi/bin/prterun"
TIMEOUT_S = 1200
Run = Callable[..., subprocess.CompletedProcess]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run a program on `ranks` ranks under the launcher of Open MPI's wheel."""
    if not PRTERUN.exists() or shutil.which("mpiexec") is None:
        pytest.skip("needs Open MPI's wheel, which has prterun and libpmix")

    def launch(program: str, ranks: int = 3, **environment: str) -> subprocess.CompletedProcess:
        path = tmp_path / "program.py"
        path.write_text(
            "import os, signal, sys\nimport numpy as np\nimport penstock as ps\n"
            "def say(text):\n"  # in one piece, unlike print
            "    sys.stdout.write(text + '\\n')\n"
            "    sys.stdout.flush()\n" + textwrap.dedent(program)
        )
        as_root = {"PRTE_ALLOW_RUN_AS_ROOT": "1", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        placing = ["--map-by", ":OVERSUBSCRIBE", "--bind-to", "none"]
        return subprocess.run(
            [ROOT / "dev", "exec", PRTERUN, *placing, "-n", str(ranks), sys.executable, str(path)],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
            env={**os.environ, "PENSTOCK_MPI": "openmpi", **as_root, **environment},
        )

    return launch


@pytest.mark.timeout(TIMEOUT_S)
def test_ranks_meet_through_pmix(run: Run) -> None:
    done = run("""
        for turn in range(2):
            comm = ps.Communicator.from_pmix(timeout=600)
            assert (comm.rank, comm.size) == (int(os.environ["PMIX_RANK"]), 3)
            comm.Allreduce(np.array([comm.rank + turn]), total := np.array([0]))
            assert total[0] == 3 + 3 * turn
            part = comm.split(comm.rank % 2)
            part.Allreduce(np.array([comm.rank]), total)
            assert total[0] == (2 if comm.rank % 2 == 0 else 1)
        assert "mpi4py" not in sys.modules
        assert "libmpi.so" not in open("/proc/self/maps").read()
        say("done")
    """)
    assert (done.returncode, done.stdout.split()) == (0, ["done"] * 3), done.stdout + done.stderr


@pytest.mark.timeout(TIMEOUT_S)
def test_a_failure_of_one_rank_is_told_to_all(run: Run) -> None:
    done = run("""
        from penstock import _penstock
        rank = int(os.environ["PMIX_RANK"])
        try:
            ps.Communicator.from_pmix(timeout=600, progress_cores=-2 if rank == 1 else 0)
            sys.exit("no error")
        except ps.Error as error:
            assert error.code == ("invalid_argument" if rank == 1 else "peer_failed"), error
            assert "progress_cores is -2" in str(error), error
            assert rank == 1 or error.rank == 1
        with ps.Communicator.from_pmix(timeout=600) as comm:     # the next one is made
            comm.Barrier()
        if rank == 1:
            _penstock.__version__ = "0.0.1"
        try:
            ps.Communicator.from_pmix(timeout=600)
            sys.exit("no error")
        except ps.Error as error:
            assert error.code == "peer_failed" and "install one version for all" in str(error), error
        say("done")
    """)
    assert (done.returncode, done.stdout.split()) == (0, ["done"] * 3), done.stdout + done.stderr


def ucx_libraries() -> list[str]:
    """The libucp of the system, if it has one, and of the MPI wheels: their versions differ."""
    wheels = sorted(str(path) for path in ROOT.glob("build/mpi/*/lib/*/libucp.so.0"))
    return wheels + ["libucp.so.0"] * (ctypes.util.find_library("ucp") is not None)


@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize("library", ucx_libraries())
def test_ucx_says_nothing(run: Run, library: str) -> None:
    done = run("ps.Communicator.from_pmix(timeout=600).Barrier()", 2, PENSTOCK_UCX_LIBRARY=library)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


@pytest.mark.timeout(TIMEOUT_S)
def test_no_pmix_is_a_clear_error(run: Run) -> None:
    program = """
        try:
            ps.Communicator.from_pmix()
        except ps.Error as error:
            say(f"{error.code}: {error}")
    """
    done = run(program, 1, PENSTOCK_PMIX_LIBRARY="/nowhere/libpmix.so.2")
    assert "unsupported: PENSTOCK_PMIX_LIBRARY is /nowhere/libpmix.so.2, which cannot be opened" in done.stdout, done
    alone = subprocess.run(
        [sys.executable, "-c", "import penstock as ps\nps.Communicator.from_pmix()"],
        capture_output=True,
        text=True,
        check=False,
        env={name: value for name, value in os.environ.items() if not name.startswith("PMIX_")},
    )
    assert alone.returncode != 0
    assert "was not started by a launcher with PMIx (PMIX_NAMESPACE is not set)" in alone.stderr
