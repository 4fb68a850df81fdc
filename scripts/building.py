"""Builds for the suites of ./dev test, also ahead of time."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from testing import LOGS, ROOT, ended, log_of, relative, run

#: For builds ahead of time: they use only idle cores.
LOWEST_PRIORITY = 19


def build_command(preset: str, *targets: str) -> list[str]:
    """Locks the build tree: two ninjas would write the same files."""
    lock = LOGS / f"{preset}.building"
    return ["flock", str(lock), *fixed_addresses(preset), str(ROOT / "dev"), "build", preset, *targets]


def build(preset: str, log: Path, *targets: str) -> str:
    """Builds. Returns what went wrong, or ""."""
    if ahead:
        ahead.hurry()
    status, output = run(build_command(preset, *targets), log)
    if status == 0:
        return ""
    failed = [line for line in output.splitlines() if line.startswith("FAILED:") or " error: " in line]
    if not failed:
        return f"the build of build/{preset} {ended(status, log)}"
    return f"build/{preset} does not build ({failed[0]}), see {relative(log)}"


class Ahead:
    """Builds for later suites, with idle cores. The suite that needs a failed build repeats it, and reports the failure."""

    def __init__(self, builds: Sequence[Sequence[str]]) -> None:
        commands = [shlex.join(build_command(*arguments)) for arguments in builds]
        with log_of("ahead").open("wb") as out:
            self.process = subprocess.Popen(
                ["bash", "-c", "; ".join(["true", *commands])],
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                cwd=ROOT,
                start_new_session=True,
            )
        self.set_priority(LOWEST_PRIORITY)

    def set_priority(self, priority: int) -> None:
        """Sets it for the session too, since the kernel may first share cores among sessions."""
        with contextlib.suppress(PermissionError, ProcessLookupError):
            os.setpriority(os.PRIO_PGRP, self.process.pid, priority)
        with contextlib.suppress(OSError):
            Path(f"/proc/{self.process.pid}/autogroup").write_text(str(priority))

    def hurry(self) -> None:
        """Raises the priority when a suite waits for the build. Needs root."""
        self.set_priority(0)

    def end(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
        self.process.wait()


#: Builds ahead of time of this run, for all lanes.
ahead: Ahead | None = None


def fixed_addresses(preset: str) -> list[str]:
    """A command prefix to disable address space randomization: older ThreadSanitizers fail with newer kernels' addresses."""
    command = ["setarch", "-R"]
    if preset != "tsan" or subprocess.run([*command, "true"], capture_output=True, check=False).returncode:
        return []
    return command
