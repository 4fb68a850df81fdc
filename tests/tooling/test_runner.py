"""The test runner must not report a crash, a hang or an empty run as a success."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
os.environ.setdefault("PENSTOCK_ROOT", str(ROOT))
sys.path.insert(0, str(ROOT / "scripts"))
_spec = importlib.util.spec_from_file_location("dev_test", ROOT / "scripts/commands/test.py")
dev_test = importlib.util.module_from_spec(_spec)
sys.modules["dev_test"] = dev_test
_spec.loader.exec_module(dev_test)
import building  # noqa: E402
import suites  # noqa: E402
import testing  # noqa: E402


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for module in (suites, testing):
        monkeypatch.setattr(module, "LOGS", tmp_path)
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
    log = tmp_path / "log"
    status, output = testing.run(["sleep", "1000000"], log, silent_s=0.5)
    assert status == 124
    assert "hung: nothing was written for 0.5 s" in output
    assert output.rstrip().endswith("log: $ sleep 1000000"), output
    assert "hung" in testing.count_junit(tmp_path / "none.xml", status, log).notes[0]


def test_what_other_logs_say_last_is_quoted_of_a_command_that_hangs(tmp_path: Path) -> None:
    rank = tmp_path / "rank.0.log"
    rank.write_text("test_x PASSED\ntest_y ")
    _, output = testing.run(["sleep", "1000000"], tmp_path / "log", silent_s=0.5, more_logs=lambda: [rank])
    assert output.rstrip().endswith("rank.0.log: test_y"), output


def test_the_logs_of_a_failure_are_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(testing, "ROOT", tmp_path)
    logs = tmp_path / "build/test-logs"
    logs.mkdir(parents=True)
    monkeypatch.setattr(testing, "LOGS", logs)
    (logs / "nodes.log").write_text("$ run\n" + "noise\n" * 100 + "exit code 1\n")
    (logs / "nodes.rank.0.log").write_text("test_a PASSED\ntest_b \n")
    (logs / "nodes.rank.1.log").write_text(
        f'  File "{tmp_path}/tests/mpi/test_b.py", line 7, in test_b\n' + "noise\n" * 100 + "E   assert 1 == 2\nend\n"
    )
    (logs / "other.log").write_text("E   not this one\n")
    notes = [
        "nodes ended with status 1, see build/test-logs/nodes.log and build/test-logs/nodes.rank.*.log",
        "skipped: x",
    ]
    suite = suites.Suite("nodes", "", lambda _: testing.Result(), True)
    assert dev_test.report([(suite, testing.Result(failed=1, notes=notes))], 1.0) == 1
    said = capsys.readouterr().out
    assert "exit code 1" in said and "test_b" in said and "line 7, in test_b" in said and "E   assert 1 == 2" in said
    assert "not this one" not in said
    assert said.count("noise") <= 8


class Clock:
    """A clock that only tests advance."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


class Endless:
    """A process that ends after `turns` waits of a minute each, and writes output every `writes` waits."""

    def __init__(self, clock: Clock, turns: int, writes: int) -> None:
        self.clock, self.turns, self.writes, self.turn = clock, turns, writes, 0

    def wait(self, _: float) -> None:
        self.turn += 1
        self.clock.now += 60
        if self.turn < self.turns:
            raise subprocess.TimeoutExpired("endless", 0)

    def progress(self) -> list[int]:
        return [self.turn // self.writes]


@pytest.mark.parametrize(("turns", "writes", "ends"), [(10_000, 10, True), (10, 1000, True), (10_000, 1000, False)])
def test_a_slow_command_is_not_ended_while_it_writes(
    monkeypatch: pytest.MonkeyPatch, turns: int, writes: int, ends: bool
) -> None:
    clock = Clock()
    monkeypatch.setattr(testing, "time", clock)
    process = Endless(clock, turns, writes)
    assert testing.wait(process, 1000, process.progress) is ends
    if not ends:
        assert 1000 < clock.now < 1200


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
    result = suites.mpi_tests("case", launch, [test], PENSTOCK_MPI=mpi, PENSTOCK_BUILD=str(ROOT / "build/release"))
    assert counts(result) == expected, result.notes


def test_help_has_each_command_with_its_arguments_and_what_it_does() -> None:
    commands = ROOT / "scripts/commands"
    (commands / "__pycache__").mkdir(exist_ok=True)  # where Python may keep bytecode
    run = subprocess.run([ROOT / "dev", "help"], capture_output=True, text=True, check=True)
    lines = [line for line in run.stdout.splitlines()[1:] if line.startswith("  ")]
    for file in sorted(path for path in commands.iterdir() if path.is_file()):
        head = file.read_text().splitlines()[1].removeprefix("#").strip()
        arguments, what = head.removeprefix(": ").split(" : ", 1) if " : " in head else ("", head.removeprefix(": "))
        command = f"  {file.stem} {arguments}".rstrip()
        (at,) = [number for number, line in enumerate(lines) if line == command or line.startswith(f"{command}  ")]
        said = lines[at] + (lines[at + 1] if lines[at] == command else "")
        assert said.endswith(f" {what}"), said


def test_an_unknown_suite_is_refused() -> None:
    run = subprocess.run([ROOT / "dev", "test", "nonsense"], capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert "no suite nonsense" in run.stderr


def fake_dev(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    dev = tmp_path / "dev"
    dev.write_text(f"#!/bin/sh\n{script}\n")
    dev.chmod(0o755)
    monkeypatch.setattr(building, "ROOT", tmp_path)
    for module in (building, testing):
        monkeypatch.setattr(module, "LOGS", tmp_path)


def await_file(file: Path) -> None:
    while not file.exists():
        time.sleep(0.01)


def test_builds_ahead_are_made_in_turn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_dev(tmp_path, monkeypatch, f'echo "$@" >> {tmp_path}/built')
    ahead = building.Ahead([("asan",), ("tsan", "unit_engine", "unit_comm")])
    assert ahead.process.wait() == 0
    assert (tmp_path / "built").read_text().splitlines() == ["build asan", "build tsan unit_engine unit_comm"]


def test_builds_ahead_end_with_the_runner(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_dev(tmp_path, monkeypatch, "exec sleep 1000")
    ahead = building.Ahead([("asan",)])
    ahead.end()
    assert ahead.process.returncode < 0


@pytest.mark.skipif(os.geteuid() != 0, reason="takes root")
def test_builds_ahead_hurry_once_somebody_waits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    began, go = tmp_path / "began", tmp_path / "go"
    fake_dev(tmp_path, monkeypatch, f"touch {began}; while [ ! -e {go} ]; do sleep 0.01; done; nice > {tmp_path}/nice")
    ahead = building.Ahead([("asan",)])
    monkeypatch.setattr(building, "ahead", ahead)
    try:
        await_file(began)
        ahead.hurry()
        go.touch()
        assert ahead.process.wait() == 0
        assert (tmp_path / "nice").read_text().strip() == "0"
    finally:
        ahead.end()


def test_two_builds_of_a_tree_are_made_one_after_the_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    began = tmp_path / "began"
    fake_dev(
        tmp_path,
        monkeypatch,
        f"echo begins >> {began}; while [ ! -e {tmp_path}/go ]; do sleep 0.01; done; echo ends >> {began}",
    )
    builds = [subprocess.Popen(building.build_command("asan")) for _ in range(2)]
    await_file(began)  # the other build waits, or has begun too
    (tmp_path / "go").touch()
    assert [build.wait() for build in builds] == [0, 0]
    assert began.read_text().split() == ["begins", "ends"] * 2


def some_suites(*alone: bool) -> list[object]:
    return [
        suites.Suite(f"suite{number}", "", lambda _: testing.Result(), True, (), is_alone)
        for number, is_alone in enumerate(alone)
    ]


def test_nothing_runs_beside_a_suite_that_is_alone() -> None:
    first, second, third = some_suites(True, False, False)
    assert dev_test.next_of([first, second, third], []) is first
    assert dev_test.next_of([second, third], [first]) is None
    assert dev_test.next_of([first, third], [second]) is third
    assert dev_test.next_of([first], [second]) is None


def test_suites_wait_for_their_builds_only() -> None:
    options = suites.Options(quick=False, all=False)
    names = [known.name for known in suites.SUITES if known.builds == suites.EVERYTHING]
    assert "c++" in names and "python" not in names
    assert dev_test.builds_of(suites.SUITES, options) == [suites.EVERYTHING]
    options.sanitize = True
    assert [preset for preset, *_ in dev_test.builds_of(suites.SUITES, options)] == ["release", "asan", "tsan"]


def test_every_suite_is_run_and_reported_in_its_order(
    monkeypatch: pytest.MonkeyPatch, logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    del logs
    known = some_suites(False, True, True, False, False)
    known[3].run = lambda _: testing.Result.failure("it fails")
    known[4].run = lambda _: 1 // 0
    known[2].run = lambda _: testing.Result(passed=7)
    monkeypatch.setattr(dev_test, "SUITES", known)
    results = dev_test.run_suites(known, suites.Options(quick=False, all=False))
    assert [suite.name for suite, _ in results] == [f"suite{number}" for number in range(5)]
    assert [counts(result) for _, result in results] == [(0, 0, 0), (0, 0, 0), (7, 0, 0), (0, 1, 0), (0, 1, 0)]
    assert dev_test.report(results, 1.0) == 1
    said = capsys.readouterr().out
    assert "it fails" in said and "ZeroDivisionError" in said and "7 passed, 2 failed" in said
