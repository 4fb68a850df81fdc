"""Checks what ./dev installs for its commands: scripts/environment.sh and the requirements files."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

SCRIPTS = Path(__file__).parents[2] / "scripts"
REQUIREMENTS = sorted(SCRIPTS.glob("requirements*.txt"))


def bash(lines: str) -> str:
    """Return the output of lines after scripts/environment.sh, on a machine without any header or tool."""
    bare = "find_header() { return 1; }; find_python() { return 1; }; command() { return 1; }; env_dir=/nonexistent\n"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", f"source {SCRIPTS}/environment.sh\n{bare}{lines}"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PENSTOCK_ROOT": str(SCRIPTS.parent)},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_demo_needs_no_package_of_the_tests() -> None:
    demo = set(bash("missing_packages demo").split())
    assert {"g++", "python3-dev", "python3-venv", "libjpeg-dev", "libxxhash-dev", "nlohmann-json3-dev"} <= demo
    assert "libgtest-dev" not in demo
    assert "libgtest-dev" in set(bash("missing_packages all").split()) - demo


def test_each_requirement_is_pinned_in_one_file() -> None:
    found: dict[str, str] = {}
    for file in REQUIREMENTS:
        names = {re.split(r"[=>< ;]", line)[0] for line in file.read_text().splitlines() if re.match(r"\w", line)}
        assert names, f"{file.name} names no package"
        for name in names:
            assert name not in found, f"{name} is in {found[name]} and in {file.name}"
            found[name] = file.name


def test_set_up_reads_every_requirements_file() -> None:
    script = (SCRIPTS / "environment.sh").read_text()
    code = "\n".join(line for line in script.splitlines() if not line.lstrip().startswith("#"))
    for file in REQUIREMENTS:
        assert file.name in code, f"{file.name} is installed by nothing"
