#!/usr/bin/env python3
# [--ranks N,…] [--mpi mpich|intel] [--bytes N,…] [--rounds N] [--first] [--apart] [--no-barriers | --time-barriers] [--json FILE] : the Intel MPI Benchmarks natively and preloaded
"""Runs the unmodified collectives of the Intel MPI Benchmarks natively and with Penstock preloaded (`penstock env`), in turns,
and prints for each benchmark, number of ranks and message the ratio of the times: above 1 the preload library is faster. A time
is the median over the rounds of the slowest rank's. The programs come from the wheel of Intel MPI, under the Intel Simplified
Software License.

Where ranks outnumber the cores, both run with what lets ranks of that MPI take turns, and if this user may, scheduled before
all other programs, by which a rank that yields really stands back.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import captured
import imb_comparison
from captured import CommandError
from imb_comparison import Point
from testing import ROOT

JOB_TIMEOUT_S = 300
BYTES = "8,64,512,4096,32768,262144,1048576,4194304"
#: MPICH's collectives of shared memory poll without yielding; its others yield.
YIELDING_MPICH = {
    "MPIR_CVAR_POLLS_BEFORE_YIELD": "100",
    **{
        f"MPIR_CVAR_{name}_POSIX_INTRA_ALGORITHM": "mpir"
        for name in (
            "BCAST", "IBCAST", "REDUCE", "IREDUCE", "ALLREDUCE", "BARRIER", "ALLTOALL", "ALLGATHER", "ALLGATHERV"
        )
    },
}  # fmt: skip
FIRST = ["chrt", "--rr", "1"]
TOOL = ROOT / "build/release/tests/preload/libpreload_mpich_tool_barrier_timed.so"


def processor() -> str:
    found = re.search(r"^model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return f"{found[1] if found else 'unknown'}, {os.cpu_count()} cores"


def outnumber(ranks: int) -> bool:
    return ranks > (os.cpu_count() or 1)


def is_permitted(command: list[str]) -> bool:
    try:
        return subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def output(command: list[str], environment: dict[str, str]) -> str:
    """What a command prints in the environment of ./dev, with these variables added."""
    added = [f"{name}={value}" for name, value in environment.items()]
    return captured.output(
        command[0],
        [ROOT / "dev", "exec", "env", *added, *command],
        timeout_s=JOB_TIMEOUT_S,
        environment={**os.environ, "PENSTOCK_MPI": "mpich"},  # Intel MPI has MPICH's ABI
    )


class Mpi:
    """How the programs run under an MPI."""

    def __init__(self, name: str, folder: Path) -> None:
        root = imb_comparison.installation(folder)
        self.name = name
        self.programs = {suite: root / "bin" / f"IMB-{suite}" for suite in imb_comparison.SUITES}
        self._environment: dict[str, str] = {}
        self._launcher = "mpiexec"
        if name == "intel":
            self._launcher = str(root / "bin/mpiexec.hydra")
            self._environment = {
                "I_MPI_ROOT": str(root),
                "I_MPI_FABRICS": "shm",
                "LD_LIBRARY_PATH": str(root / "lib"),
            }
        lines = output(["penstock", "env", str(self.programs["MPI1"])], self._environment)
        settings = dict(re.findall(r"^export (\w+)=(.*)$", lines, re.MULTILINE))
        if "PENSTOCK_PRELOAD" not in settings:
            raise CommandError("`penstock env` names no library to preload")
        self._preloaded: str = settings["PENSTOCK_PRELOAD"]

    def run(self, program: list[str], ranks: int, *, preload: bool, first: bool, tools: list[str]) -> str:
        libraries = [*tools, *([self._preloaded] if preload else [])]
        rank = ["env", f"LD_PRELOAD={':'.join(libraries)}", *program]
        environment = dict(self._environment)
        if outnumber(ranks) and self.name == "mpich":
            environment |= YIELDING_MPICH
        if first:
            rank = [*FIRST, *rank]
        return output([self._launcher, "-n", str(ranks), *rank], environment)


def measured(
    options: argparse.Namespace, mpi: Mpi, suite: str, benchmarks: list[str], ranks: int, *, first: bool
) -> tuple[list[dict[str, object]], list[str]]:
    """Rows of what was measured in all jobs, and what was not, with the reason."""
    lengths = ROOT / "build/imb/lengths"
    lengths.parent.mkdir(parents=True, exist_ok=True)
    wanted = [int(word) for word in options.bytes.split(",")]
    lengths.write_text("".join(f"{count}\n" for count in wanted))
    arguments = ["-npmin", str(ranks), "-msglen", str(lengths), "-time", str(options.seconds)]
    arguments += ["-iter", str(options.calls)]
    if options.no_barriers:
        arguments += ["-sync", "0"]
    tools = [str(TOOL)] if options.time_barriers else []
    program = [str(mpi.programs[suite]), *benchmarks, *arguments]
    modes = ("native", "preload")
    times: dict[str, list[dict[Point, float]]] = {mode: [] for mode in modes}
    for turn in range(options.rounds):
        for mode in modes if turn % 2 == 0 else reversed(modes):
            try:
                said = mpi.run(program, ranks, preload=mode == "preload", first=first, tools=tools)
            except CommandError as reason:
                return [], [f"{', '.join(benchmarks)}, {ranks} ranks: {mode}: {reason}"]
            times[mode].append(imb_comparison.points(said))
    rows: list[dict[str, object]] = []
    lost: list[str] = []
    for point in (point for name in benchmarks for point in imb_comparison.expected(name, ranks, wanted)):
        if any(found.get(point, 0) <= 0 for mode in modes for found in times[mode]):
            lost.append(
                f"{point.benchmark}, {ranks} ranks, {point.message_bytes} B: IMB's limit of time in some job; see --seconds"
            )
            continue
        median = {mode: statistics.median(found[point] for found in times[mode]) for mode in modes}
        ratio = median["native"] / median["preload"]
        rows.append({"suite": suite, **point._asdict(), **{f"{m}_us": median[m] for m in modes}, "ratio": ratio})
        print(
            f"{point.benchmark:22} {point.ranks:3} ranks {point.message_bytes:9} B  native {median['native']:11.2f} us  "
            f"preload {median['preload']:11.2f} us  ratio {ratio:6.2f}",
            flush=True,
        )
    return rows, lost


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="./dev imb", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", default="2,4", help="(default: 2,4)")
    parser.add_argument(
        "--mpi", default="mpich", choices=["mpich", "intel"], help="an MPI with the ABI of the programs"
    )
    parser.add_argument("--bytes", default=BYTES, help=f"lengths of messages (default: {BYTES})")
    parser.add_argument("--only", default="", help="benchmarks, separated by commas (default: all collectives)")
    parser.add_argument("--rounds", type=int, default=5, help="(default: 5)")
    parser.add_argument("--calls", type=int, default=1000, help="most calls for each message (default: 1000)")
    parser.add_argument("--seconds", type=float, default=0.3, help="most for each message (default: 0.3)")
    parser.add_argument("--first", action="store_true", help="schedule the ranks before other programs in any case")
    parser.add_argument("--apart", action="store_true", help="a job for each benchmark, so that turns are shorter")
    barriers = parser.add_mutually_exclusive_group()
    barriers.add_argument(
        "--no-barriers",
        action="store_true",
        help="no barrier before each call: one that is served by Penstock moves waiting into the call that follows",
    )
    barriers.add_argument(
        "--time-barriers",
        action="store_true",
        help="time each call with the barrier before it; without benchmarks of barriers",
    )
    parser.add_argument("--json", metavar="FILE", help="also write all points")
    options = parser.parse_args()
    if options.time_barriers and not TOOL.exists():
        parser.error("--time-barriers needs a library of the tests: run ./dev build first")
    try:
        mpi = Mpi(options.mpi, ROOT / "build/imb")
    except CommandError as reason:
        print(f"./dev imb: {reason}", file=sys.stderr)
        return 1
    only = [name for name in options.only.split(",") if name]
    rows: list[dict[str, object]] = []
    dropped: list[str] = []
    for ranks in (int(word) for word in options.ranks.split(",")):
        first = options.first or outnumber(ranks)
        if first and not is_permitted(FIRST):
            print(f"{ranks} ranks: this user may not schedule them before other programs", flush=True)
            first = False
        for suite, benchmarks in imb_comparison.TIMED.items():
            chosen = [name for name in benchmarks if not only or name in only]
            if options.time_barriers:
                chosen = [name for name in chosen if "barrier" not in name.lower()]
            # One job for all: to start one for each takes longer than to measure.
            for together in [[name] for name in chosen] if options.apart else [chosen] * bool(chosen):
                found, lost = measured(options, mpi, suite, together, ranks, first=first)
                rows += found
                dropped += lost
    for line in dropped:
        print(f"not measured: {line}")
    if not rows:
        print("./dev imb: nothing was measured", file=sys.stderr)
        return 1
    ratios = [float(str(row["ratio"])) for row in rows]
    print(
        f"{processor()}: {len(rows)} points, median ratio {statistics.median(ratios):.2f}, least {min(ratios):.2f}, "
        f"{sum(ratio < 0.97 for ratio in ratios)} below 0.97, {len(dropped)} not measured"
    )
    if options.json:
        report = {
            "machine": processor(),
            "mpi": options.mpi,
            "rounds": options.rounds,
            "are_barriers_timed": options.time_barriers,
            "rows": rows,
            "not_measured": dropped,
        }
        Path(options.json).write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
