#!/usr/bin/env python3
# [--ranks N,…] [--mpi mpich] [--bytes N,…] [--rounds N] [--no-barriers] [--json FILE] : the Intel MPI Benchmarks natively and under `penstock run`
"""Runs the unmodified collectives of the Intel MPI Benchmarks natively and under `penstock run`, in turns, and prints for each
benchmark, number of ranks and message the ratio of the times: above 1 the preload library is faster. A time is the median over the
rounds of the slowest rank's. The programs come from the wheel of Intel MPI, under the Intel Simplified Software License.
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
import imb_comparison
from imb_comparison import Point
from testing import ROOT

JOB_TIMEOUT_S = 600
BYTES = "8,64,512,4096,32768,262144,1048576,4194304"


def processor() -> str:
    found = re.search(r"^model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return f"{found[1] if found else 'unknown'}, {os.cpu_count()} cores"


def job(command: list[str], mpi: str) -> dict[Point, float]:
    environment = {**os.environ, "PENSTOCK_MPI": mpi}
    done = subprocess.run(
        [str(ROOT / "dev"), "exec", *command],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=JOB_TIMEOUT_S,
    )
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with status {done.returncode}:\n{done.stderr[-4000:]}")
    return imb_comparison.points(done.stdout)


def measured(
    options: argparse.Namespace, suite: str, program: Path, benchmark: str, ranks: int
) -> list[dict[str, object]]:
    launch = ["mpiexec", "-n", str(ranks)]
    lengths = ROOT / "build/imb/lengths"
    lengths.write_text(options.bytes.replace(",", "\n") + "\n")
    arguments = [str(program), benchmark, "-npmin", str(ranks), "-msglen", str(lengths), "-time", str(options.seconds)]
    if options.no_barriers:
        arguments += ["-sync", "0"]
    modes = {"native": [*launch, *arguments], "preload": [*launch, "penstock", "run", "--quiet", *arguments]}
    times: dict[str, list[dict[Point, float]]] = {mode: [] for mode in modes}
    for turn in range(options.rounds):
        for mode in list(modes) if turn % 2 == 0 else list(reversed(modes)):
            times[mode].append(job(modes[mode], options.mpi))
    rows: list[dict[str, object]] = []
    for point in times["native"][0]:
        if all(point in found for mode in modes for found in times[mode]):
            median = {mode: statistics.median(found[point] for found in times[mode]) for mode in modes}
            if median["preload"] > 0:
                ratio = median["native"] / median["preload"]
                rows.append(
                    {"suite": suite, **point._asdict(), **{f"{m}_us": median[m] for m in modes}, "ratio": ratio}
                )
                print(
                    f"{point.benchmark:22} {point.ranks:3} ranks {point.message_bytes:9} B  native {median['native']:11.2f} us  "
                    f"preload {median['preload']:11.2f} us  ratio {ratio:6.2f}",
                    flush=True,
                )
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev imb", description=__doc__)
    parser.add_argument("--ranks", default="2,4", help="(default: 2,4)")
    parser.add_argument("--mpi", default="mpich", choices=["mpich"], help="an MPI with the ABI of the programs")
    parser.add_argument("--bytes", default=BYTES, help=f"lengths of messages (default: {BYTES})")
    parser.add_argument("--only", default="", help="benchmarks, separated by commas (default: all collectives)")
    parser.add_argument("--rounds", type=int, default=5, help="(default: 5)")
    parser.add_argument("--seconds", type=float, default=0.3, help="most for each message (default: 0.3)")
    parser.add_argument(
        "--no-barriers",
        action="store_true",
        help="no barrier before each call: one that is served by Penstock moves waiting into the call that follows",
    )
    parser.add_argument("--json", metavar="FILE", help="also write all points")
    options = parser.parse_args()
    try:
        programs = imb_comparison.fetch(ROOT / "build/imb")
    except imb_comparison.NoProgramsError as reason:
        print(f"./dev imb: {reason}", file=sys.stderr)
        return 1
    only = [name for name in options.only.split(",") if name]
    rows = []
    for ranks in (int(word) for word in options.ranks.split(",")):
        for suite, benchmarks in imb_comparison.TIMED.items():
            for benchmark in benchmarks:
                if not only or benchmark in only:
                    rows += measured(options, suite, programs[suite], benchmark, ranks)
    if not rows:
        print("./dev imb: nothing was measured", file=sys.stderr)
        return 1
    ratios = [float(str(row["ratio"])) for row in rows]
    print(
        f"{processor()}: {len(rows)} points, median ratio {statistics.median(ratios):.2f}, least {min(ratios):.2f}, "
        f"{sum(ratio < 0.97 for ratio in ratios)} below 0.97"
    )
    if options.json:
        report = {"machine": processor(), "mpi": options.mpi, "rounds": options.rounds, "rows": rows}
        Path(options.json).write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
