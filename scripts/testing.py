"""Shared by the suites of ./dev test: running a command into a log, and counting its results."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import subprocess
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(os.environ["PENSTOCK_ROOT"])
LOGS = ROOT / "build" / "test-logs"
#: What tests measure, under the load of others, is not for the jobs of the user.
MACHINES = ROOT / "build/machines"

#: A test that runs longer, or a command that writes nothing for this long, hangs. Even a slow machine needs less. Suites and
#: builds as a whole have no limit.
HUNG_S = float(os.environ.get("PENSTOCK_TEST_HUNG_S", "1800"))
#: A test is ended before the command that runs it, since the test shows where it hangs.
SILENT_S = 1.2 * HUNG_S


@dataclass
class Result:
    """Counts of one suite. A suite that could not run is one failure; a suite that need not run is one skip."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    cpu_seconds: float = 0.0

    def add(self, other: Result) -> None:
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.notes += other.notes

    @staticmethod
    def failure(reason: str) -> Result:
        return Result(failed=1, notes=[reason])

    @staticmethod
    def skip(reason: str) -> Result:
        return Result(skipped=1, notes=[f"skipped: {reason}"])


def log_of(name: str) -> Path:
    return LOGS / f"{name}.log"


def sizes(files: Iterable[Path]) -> list[int]:
    """Sizes of the files that exist."""
    found = []
    for file in files:
        with contextlib.suppress(FileNotFoundError):
            found.append(file.stat().st_size)
    return found


def last_line(log: Path) -> str:
    with log.open("rb") as written:
        written.seek(-min(4096, written.seek(0, os.SEEK_END)), os.SEEK_END)
        lines = written.read().decode("utf-8", "replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


#: Lines in the logs of pytest, GoogleTest and compilers that tell what failed, and where in the project's own code.
TELLING = re.compile(
    r'^E  |: Failure$|^C\+\+ exception |\[  FAILED  \]|\berror: |^Fatal |^\s+File ".*/(tests|scripts|penstock)/'
)


def excerpt(log: Path, telling: int = 12, last: int = 3) -> list[str]:
    """The last lines of a log that tell of a failure, and its very last lines."""
    lines = [line.rstrip() for line in log.read_text("utf-8", "replace").splitlines() if line.strip()]
    chosen = [i for i, line in enumerate(lines) if TELLING.search(line)][-telling:]
    chosen += range(max(0, len(lines) - last), len(lines))
    return [lines[i][:300] for i in sorted(set(chosen))]


def named_logs(notes: Iterable[str]) -> list[Path]:
    """The logs that notes on failures refer to. A note may contain a pattern."""
    words = [word.rstrip(",.") for note in notes for word in note.split()]
    patterns = dict.fromkeys(word for word in words if word.startswith(f"{relative(LOGS)}/"))
    return list(dict.fromkeys(log for pattern in patterns for log in sorted(ROOT.glob(pattern)) if log.is_file()))


def wait(process: subprocess.Popen[bytes], silent_s: float, progress: Callable[[], list[int]]) -> bool:
    """Waits until the process ends (True), or until its progress has not changed for silent_s (False)."""
    before, since = progress(), time.monotonic()
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(min(1.0, silent_s / 4))
            return True
        if (now := progress()) != before:
            before, since = now, time.monotonic()
        elif time.monotonic() - since > silent_s:
            return False


def run(
    command: Sequence[str | Path],
    log: Path,
    *,
    silent_s: float = SILENT_S,
    more_logs: Callable[[], Iterable[Path]] = tuple,
    **environment: str,
) -> tuple[int, str]:
    """(exit status, output) of a command. The output is also appended to the log.

    A command that writes nothing for silent_s, neither to the log nor to the files of `more_logs`, is ended with status 124
    and a line with its last output.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    words = [str(word) for word in command]
    start = log.stat().st_size if log.exists() else 0
    with log.open("a", encoding="utf-8") as out:
        shown = " ".join([f"{key}={value}" for key, value in environment.items()] + words)
        out.write(f"$ {shown}\n")
        out.flush()
        process = subprocess.Popen(
            words,
            stdout=out,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            cwd=ROOT,
            # Measured again and again, since processes of tests share cores: that takes longer than most tests.
            env={
                "PENSTOCK_MACHINE_FOLDER": str(MACHINES),
                "PENSTOCK_MEASURE_ALGORITHMS": "0",
                **os.environ,
                **environment,
            },
        )
        if wait(process, silent_s, lambda: sizes([log, *more_logs()])):
            status = process.returncode
        else:
            said = "".join(f"\n  {relative(file)}: {last_line(file)}" for file in [log, *more_logs()])
            # SIGTERM first: launchers forward it to their ranks.
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            out.write(f"\nhung: nothing was written for {silent_s:g} s; the last lines were:{said}\n")
            status = 124
    with log.open("rb") as written:
        written.seek(start)
        return status, written.read().decode("utf-8", "replace")


def relative(path: Path) -> str:
    return os.path.relpath(path, ROOT)


def ended(status: int, log: Path) -> str:
    """Describes the end of a command that named no failure."""
    hung = f"hung (nothing was written for {SILENT_S:.0f} s)"
    return f"{hung if status == 124 else f'ended with status {status}'}, see {relative(log)}"


def count_junit(path: Path, status: int, log: Path) -> Result:
    """The counts in a JUnit file. A failed run that names no test is one failure."""
    result = Result()
    try:
        root = ElementTree.parse(path).getroot()
    except (OSError, ElementTree.ParseError):
        return Result.failure(f"left no report and {ended(status, log)}")
    for case in root.iter("testcase"):
        name = f"{case.get('classname') or ''}.{case.get('name')}".lstrip(".")
        if case.find("failure") is not None or case.find("error") is not None or case.get("status") == "fail":
            result.failed += 1
            result.notes.append(f"{name}, see {relative(log)}")
        elif case.find("skipped") is not None or case.get("status") in ("notrun", "disabled"):
            result.skipped += 1
        else:
            result.passed += 1
    if status and not result.failed:
        result.add(Result.failure(ended(status, log)))
    return result


def count_ok_lines(output: str, status: int, log: Path) -> Result:
    """The counts of a check that prints "ok …" or "not ok …" per case."""
    result = Result()
    for line in output.splitlines():
        if re.match(r"ok\b", line):
            result.passed += 1
        elif match := re.match(r"not ok\s*(.*)", line):
            result.failed += 1
            result.notes.append(f"{match[1]}, see {relative(log)}")
    if status and not result.failed:
        result.add(Result.failure(ended(status, log)))
    return result


class Timed:
    """Wall-clock seconds of a context, and core seconds of the processes that ended in it."""

    def __init__(self) -> None:
        self.seconds = self.cpu_seconds = 0.0

    @staticmethod
    def _cpu() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    def __enter__(self) -> Timed:
        self.start, self.cpu_start = time.monotonic(), self._cpu()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds, self.cpu_seconds = time.monotonic() - self.start, self._cpu() - self.cpu_start
