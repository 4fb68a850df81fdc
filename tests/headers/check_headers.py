#!/usr/bin/env python3
"""Compiles each public header alone: .hpp as C++20, .h as C11 and as C++20, without warnings.

Headers that include mpi.h are compiled once per MPI in build/mpi. Prints "ok HEADER (…)", or "not ok HEADER (…)" with
the compiler's messages. The exit status is 1 if one fails.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[2].resolve()
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]


def compile_alone(header: Path, language: str, mpi: Path | None) -> tuple[str, str]:
    """Return the name of the check, and the compiler's messages if it failed."""
    name = f"{header.relative_to(ROOT)} ({language}{', ' + mpi.name if mpi else ''})"
    compiler = (
        [os.environ.get("CC", "cc"), "-std=c11"] if language == "C11" else [os.environ.get("CXX", "c++"), "-std=c++20"]
    )
    suffix = ".c" if language == "C11" else ".cpp"
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / f"alone{suffix}"
        # The second include tests the include guard. ISO C needs the declaration: it has no empty translation units.
        include = f"#include <penstock/{header.name}>\n"
        source.write_text(include + include + "int penstock_header_compiles;\n")
        mpi_flags = ["-isystem", str(mpi / "include"), "-DOMPI_SKIP_MPICXX", "-DMPICH_SKIP_MPICXX"] if mpi else []
        run = subprocess.run(
            [*compiler, *WARNINGS, "-fsyntax-only", f"-I{ROOT / 'include'}", *mpi_flags, str(source)],
            capture_output=True,
            text=True,
            check=False,
        )
    return name, run.stderr if run.returncode else ""


def main() -> int:
    mpis = sorted(path.parent.parent for path in (ROOT / "build" / "mpi").glob("*/include/mpi.h"))
    checks = []
    for header in sorted((ROOT / "include" / "penstock").iterdir()):
        if header.suffix not in {".h", ".hpp"}:
            continue
        speaks_mpi = "mpi.h>" in header.read_text(encoding="utf-8") or "PENSTOCK_MPI_HEADER" in header.read_text(
            encoding="utf-8"
        )
        for mpi in mpis if speaks_mpi else [None]:
            for language in ["C++20"] if header.suffix == ".hpp" else ["C11", "C++20"]:
                checks.append((header, language, mpi))
    failed = 0
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        for name, words in pool.map(lambda check: compile_alone(*check), checks):
            failed += bool(words)
            print("not ok" if words else "ok", name)
            print("".join(f"    {line}\n" for line in words.splitlines()), end="")
    if not checks:
        print("not ok include/penstock holds no header")
    return 1 if failed or not checks else 0


if __name__ == "__main__":
    sys.exit(main())
