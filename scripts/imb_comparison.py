"""The Intel MPI Benchmarks, unmodified: where their programs come from, and what they print."""

from __future__ import annotations

import re
import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import NamedTuple

from captured import pip_download
from testing import ROOT

WHEEL = "impi-rt==2021.19.0"  # as in scripts/environment.sh
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


class Point(NamedTuple):
    benchmark: str
    ranks: int
    message_bytes: int


def installation(folder: Path) -> Path:
    """The root of an Intel MPI: the installed one, or else that of its wheel, cached in `folder`."""
    for place in (ROOT / "build/mpi/impi", folder / "impi"):
        if all((place / "bin" / f"IMB-{suite}").exists() for suite in SUITES):
            return place
    with tempfile.TemporaryDirectory(prefix="penstock-imb-") as fetched:
        pip_download(WHEEL, fetched)
        with zipfile.ZipFile(next(Path(fetched).glob("*.whl"))) as wheel:
            wheel.extractall(fetched)
        (data,) = Path(fetched).glob("*.data/data")
        for program in (data / "bin").iterdir():
            program.chmod(0o755)
        folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(folder / "impi", ignore_errors=True)
        shutil.move(data, folder / "impi")
    return folder / "impi"


def fetch(folder: Path) -> dict[str, Path]:
    """Suite → its program."""
    root = installation(folder)
    return {suite: root / "bin" / f"IMB-{suite}" for suite in SUITES}


def expected(benchmark: str, ranks: int, message_bytes: list[int]) -> list[Point]:
    """The points of a benchmark of TIMED."""
    if "barrier" in benchmark.lower():
        message_bytes = [0]
    return [Point(benchmark, ranks, count) for count in message_bytes]


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
