"""What the suites of ./dev test share: running a command into a log, and counting what it reports."""

from __future__ import annotations

import os
import re
import subprocess
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(os.environ["PENSTOCK_ROOT"])
LOGS = ROOT / "build" / "test-logs"


@dataclass
class Result:
    """Counts of one suite. A suite that could not run counts as one failure, one that had no reason to run as one skip."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

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


def run(command: Sequence[str | Path], log: Path, timeout_s: float, **environment: str) -> tuple[int, str]:
    """Exit status (124 after timeout_s) and output of a command; the output is also appended to the log."""
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
            env={**os.environ, **environment},
        )
        try:
            status = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            # SIGTERM first: launchers pass it on to their ranks.
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            out.write(f"ran longer than {timeout_s:.0f} s\n")
            status = 124
    with log.open("rb") as written:
        written.seek(start)
        return status, written.read().decode("utf-8", "replace")


def relative(path: Path) -> str:
    return os.path.relpath(path, ROOT)


def count_junit(path: Path, status: int, log: Path) -> Result:
    """The counts in a JUnit file; a run that failed without naming a test counts as one failure."""
    result = Result()
    try:
        root = ElementTree.parse(path).getroot()
    except (OSError, ElementTree.ParseError):
        return Result.failure(f"ended with status {status} and no report, see {relative(log)}")
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
        result.add(Result.failure(f"ended with status {status}, see {relative(log)}"))
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
        result.add(Result.failure(f"ended with status {status}, see {relative(log)}"))
    return result


class Timed:
    """with Timed(result): sets result.seconds."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __enter__(self) -> Timed:
        self.start = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.monotonic() - self.start
