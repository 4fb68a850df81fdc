#!/usr/bin/env python3
# [--fix] [--tidy] : format of C++ and Python, ruff, the layer table, shell syntax; --fix mends, --tidy adds clang-tidy
"""Checks all files that git tracks or would add."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(os.environ["PENSTOCK_ROOT"])


def files(*patterns: str) -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def check(name: str, *commands: list[str]) -> bool:
    print(f"{name} … ", end="", flush=True)
    output, ok = "", True
    for command in commands:
        run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        ok &= run.returncode == 0
        if run.returncode:
            output += run.stdout + run.stderr
    print("ok" if ok else "FAILED")
    print("".join(f"    {line}\n" for line in output.splitlines()[:200]), end="", flush=True)
    return ok


def shell_files() -> list[str]:
    named = files("*.sh")
    for name in files("dev", ".ci/run"):
        if (ROOT / name).read_text(encoding="utf-8").startswith("#!/usr/bin/env bash"):
            named.append(name)
    return named


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev lint", description="Checks the sources.")
    parser.add_argument("--fix", action="store_true", help="reformat, and apply ruff's safe fixes")
    parser.add_argument("--tidy", action="store_true", help="also clang-tidy, with build/dev (slow)")
    arguments = parser.parse_args()

    cpp = files("*.cpp", "*.hpp", "*.c", "*.h")
    if arguments.fix:
        subprocess.run(["clang-format", "-i", *cpp], cwd=ROOT, check=True)
        subprocess.run(["ruff", "check", "--fix", "--quiet", "."], cwd=ROOT, check=False)
        subprocess.run(["ruff", "format", "--quiet", "."], cwd=ROOT, check=True)
    checks = [
        check("clang-format", ["clang-format", "--dry-run", "-Werror", *cpp]),
        check("ruff check", ["ruff", "check", "--output-format=concise", "."]),
        check("ruff format", ["ruff", "format", "--check", "--quiet", "."]),
        check("layers", [sys.executable, "tests/layers/check_layers.py", "--quiet"]),
        check("shell syntax", *[["bash", "-n", name] for name in shell_files()]),
    ]
    if shutil.which("shellcheck"):
        checks.append(check("shellcheck", ["shellcheck", "-x", "--severity=warning", *shell_files()]))
    if arguments.tidy:
        checks.append(tidy())
    return 0 if all(checks) else 1


def tidy() -> bool:
    if not shutil.which("clang-tidy"):
        print("clang-tidy … FAILED\n    it is not installed; run: apt-get install clang-tidy")
        return False
    if subprocess.run([ROOT / "dev", "build", "dev"], check=False).returncode:
        return False
    sources = files("src/*.cpp")
    return check("clang-tidy", *[["clang-tidy", "--quiet", "-p", "build/dev", name] for name in sources])


if __name__ == "__main__":
    sys.exit(main())
