"""The test runner counts what happened: it must not call a crash, a hang or an empty run a success."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
os.environ.setdefault("PENSTOCK_ROOT", str(ROOT))
sys.path.insert(0, str(ROOT / "scripts"))
_spec = importlib.util.spec_from_file_location("dev_test", ROOT / "scripts/commands/test.py")
dev_test = importlib.util.module_from_spec(_spec)
sys.modules["dev_test"] = dev_test
_spec.loader.exec_module(dev_test)
import testing  # noqa: E402


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(dev_test, "LOGS", tmp_path)
    return tmp_path


def counts(result: testing.Result) -> tuple[int, int, int]:
    return result.passed, result.failed, result.skipped


def test_a_report_is_counted_case_by_case(tmp_path: Path) -> None:
    report = tmp_path / "r.xml"
    report.write_text(
        "<testsuites><testsuite><testcase name='a'/><testcase name='b'><failure/></testcase>"
        "<testcase name='c'><skipped/></testcase><testcase name='d' status='fail'/></testsuite></testsuites>"
    )
    assert counts(testing.count_junit(report, 1, tmp_path / "log")) == (1, 2, 1)


def test_a_missing_or_torn_report_is_a_failure(tmp_path: Path) -> None:
    assert counts(testing.count_junit(tmp_path / "none.xml", 0, tmp_path / "log")) == (0, 1, 0)
    (tmp_path / "torn.xml").write_text("<testsuites><testsuite><testcase name='a'/>")
    assert counts(testing.count_junit(tmp_path / "torn.xml", 0, tmp_path / "log")) == (0, 1, 0)


def test_a_bad_exit_status_fails_a_run_whose_cases_all_passed(tmp_path: Path) -> None:
    report = tmp_path / "r.xml"
    report.write_text("<testsuites><testsuite><testcase name='a'/></testsuite></testsuites>")
    assert counts(testing.count_junit(report, 139, tmp_path / "log")) == (1, 1, 0)
    assert counts(testing.count_ok_lines("ok a\nnot ok b\nokay\n", 1, tmp_path / "log")) == (1, 1, 0)
    assert counts(testing.count_ok_lines("ok a\n", 2, tmp_path / "log")) == (1, 1, 0)


def test_a_command_that_hangs_is_ended(tmp_path: Path) -> None:
    status, output = testing.run(["sleep", "60"], tmp_path / "log", 0.5)
    assert status == 124
    assert "ran longer than" in output


CASES = {
    "passes": ("assert MPI.COMM_WORLD.allreduce(1) == MPI.COMM_WORLD.size", (1, 0, 0)),
    # Rank 1 fails while the others wait for it in a collective.
    "fails_on_one_rank": ("assert MPI.COMM_WORLD.rank != 1\n    MPI.COMM_WORLD.Barrier()", (0, 1, 0)),
    "crashes_on_one_rank": (
        "if MPI.COMM_WORLD.rank == 1:\n        os.kill(os.getpid(), 9)\n    MPI.COMM_WORLD.Barrier()",
        (0, 1, 0),
    ),
    "skips": ("pytest.skip('no reason')", (0, 0, 1)),
}


@pytest.mark.parametrize(
    ("case", "mpi"),
    [*((case, "mpich") for case in CASES), ("fails_on_one_rank", "openmpi"), ("crashes_on_one_rank", "openmpi")],
)
def test_mpi_runs_are_counted_over_all_ranks(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str, mpi: str
) -> None:
    body, expected = CASES[case]
    test = tmp_path / "test_case.py"
    test.write_text(f"import os\nimport pytest\nfrom mpi4py import MPI\n\ndef test_case():\n    {body}\n")
    monkeypatch.setenv("PENSTOCK_MPI_PYTEST_GRACE_S", "2")
    launch = [ROOT / "dev", "exec", "mpiexec", "-n", "2"]
    result = dev_test.mpi_tests("case", launch, [test], PENSTOCK_MPI=mpi, PENSTOCK_BUILD=str(ROOT / "build/release"))
    assert counts(result) == expected, result.notes


def test_an_unknown_suite_is_refused() -> None:
    run = subprocess.run([ROOT / "dev", "test", "nonsense"], capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert "no suite nonsense" in run.stderr
