"""Output of commands that may fail or hang, for scripts that say why in one line."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

FETCH_TIMEOUT_S = 1200  # pip builds metadata, for which it may install build requirements


class CommandError(Exception):
    """Why there is no output, in one line."""


def output(
    name: str,
    command: Sequence[str | Path],
    *,
    timeout_s: float,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> str:
    """What a command prints to stdout. `name` begins the line of a CommandError. environment=None: that of this process."""
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired:
        raise CommandError(f"{name} is not over after {timeout_s:g} s") from None
    if done.returncode:
        said = [line.strip() for line in done.stderr.splitlines() if line.strip()] or ["nothing on stderr"]
        # What follows apt's or pip's first error is a consequence of it.
        why = next((line for line in said if line.startswith(("E: ", "ERROR: "))), said[-1])
        raise CommandError(f"{name} ended with status {done.returncode}: {why}")
    return done.stdout


def pip_download(requirement: str, folder: str | Path, *options: str) -> None:
    """Fetches a wheel, or a source archive, without what it depends on."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    output("pip download", [*command, *options, "--dest", folder, requirement], timeout_s=FETCH_TIMEOUT_S)
