#!/usr/bin/env python3
# [--quick] [--sanitize] [--all] [--with-ceph] [--with-slurm] [SUITE…] : build and run every test, print a table; `./dev test --list` names the suites
"""The test runner: runs the suites of scripts/suites.py, some at the same time, and prints a table."""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import building
from building import Ahead, build
from suites import ASAN_BUILD, EVERYTHING, PROGRAMS, SUITES, TSAN_BUILD, WITHOUT_BUILD, Options, Suite
from testing import LOGS, Result, Timed, excerpt, log_of, named_logs, relative

#: Suites that run at the same time: most leave a core idle at times. Suites whose processes wait for each other run alone: beside
#: another suite they take about five times as long.
LANES = 2
MOST_LOGS = 20  #: Logs quoted after a failure.


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev test", description="Builds and runs the tests.")
    parser.add_argument("suites", nargs="*", metavar="SUITE", help="run these alone")
    parser.add_argument(
        "--quick", action="store_true", help="no sanitizers, no emulated nodes, no packages, fewer rank counts"
    )
    parser.add_argument(
        "--sanitize", action="store_true", help="also C++ tests under AddressSanitizer and ThreadSanitizer, as .ci/run"
    )
    parser.add_argument(
        "--all",
        action="store_true",
        help="also the sanitizers, what needs large downloads, 1,000 kills, more numbers of ranks",
    )
    parser.add_argument("--with-ceph", action="store_true", help="start a Ceph of three OSDs and test stores in it")
    parser.add_argument(
        "--with-slurm", action="store_true", help="start a Slurm of two emulated nodes and run jobs in it"
    )
    parser.add_argument("--list", action="store_true", help="name the suites")
    arguments = parser.parse_args()
    if arguments.list:
        with contextlib.suppress(BrokenPipeError):  # of `| head`
            print("".join(f"  {known.name:14} {known.what}\n" for known in SUITES), end="", flush=True)
        return 0
    names = {known.name for known in SUITES}
    if unknown := [name for name in arguments.suites if name not in names]:
        parser.error(f"there is no suite {', '.join(unknown)}; known: {', '.join(sorted(names))}")

    options = Options(
        quick=arguments.quick,
        all=arguments.all,
        with_ceph=arguments.with_ceph,
        with_slurm=arguments.with_slurm,
        sanitize=arguments.sanitize
        or arguments.all
        or any(known.builds in (ASAN_BUILD, TSAN_BUILD) for known in SUITES if known.name in arguments.suites),
    )
    chosen = [known for known in SUITES if known.name in arguments.suites or not arguments.suites]
    if options.quick and not arguments.suites:
        chosen = [known for known in chosen if known.quick]
    os.environ["PENSTOCK_TEST_ALL"] = "1" if options.all else "0"  # of all suites
    LOGS.mkdir(parents=True, exist_ok=True)
    with Timed() as clock:
        if any(known.name not in WITHOUT_BUILD for known in chosen):
            print("build: release … ", end="", flush=True)
            preset, *targets = PROGRAMS
            reason = build(preset, log_of("build"), *targets)
            print(reason or "ok", flush=True)
            if reason:
                return 1
        results = run_suites(chosen, options)
    return report(results, clock.seconds)


def next_of(waiting: Iterable[Suite], running: Iterable[Suite]) -> Suite | None:
    """The first suite that may run beside the running ones."""
    beside = list(running)
    if any(known.alone for known in beside):
        return None
    return next((known for known in waiting if not (known.alone and beside)), None)


def builds_of(chosen: Sequence[Suite], options: Options) -> list[Sequence[str]]:
    """The builds that the suites need, each once."""
    needed = [known.builds for known in chosen if known.builds]
    return [build for build in dict.fromkeys(needed) if build == EVERYTHING or options.sanitize]


def run_suites(chosen: Sequence[Suite], options: Options) -> list[tuple[Suite, Result]]:
    """Runs as many suites at a time as there are lanes. A lane is a process, so a suite's resources are those of its children."""
    waiting, running, results = list(chosen), {}, {}
    lanes = ProcessPoolExecutor(LANES, mp_context=multiprocessing.get_context("fork"))
    builds = builds_of(chosen, options)
    # Suites that need builds run last, in the order of these; suites that run alone leave most of the cores to the builds.
    waiting.sort(key=lambda known: (builds.index(known.builds) + 1 if known.builds in builds else 0, not known.alone))
    building.ahead = Ahead(builds) if builds and len(chosen) > 1 else None
    try:
        while waiting or running:
            while len(running) < LANES and (known := next_of(waiting, running.values())):
                waiting.remove(known)
                running[lanes.submit(run_suite, known.name, options)] = known
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                known = running.pop(future)
                try:
                    result = future.result()
                except Exception as error:  # an error of the runner itself
                    result = Result.failure(f"{known.name} could not be run: {error!r}")
                results[known.name] = result
                said = "FAILED" if result.failed else "ok"
                print(
                    f"[{len(results)}/{len(chosen)}] {known.name}: {known.what} … {said} ({result.seconds:.0f} s)",
                    flush=True,
                )
    finally:
        if building.ahead:
            building.ahead.end()
        lanes.shutdown(cancel_futures=True)
    return [(known, results[known.name]) for known in chosen]


def run_suite(name: str, options: Options) -> Result:
    log_of(name).unlink(missing_ok=True)
    known = next(known for known in SUITES if known.name == name)
    with Timed() as clock:
        result = known.run(options)
    result.seconds, result.cpu_seconds = clock.seconds, clock.cpu_seconds
    return result


def report(results: list[tuple[Suite, Result]], seconds: float) -> int:
    total = Result()
    print(f"\n{'suite':14} {'passed':>8} {'failed':>8} {'skipped':>8} {'seconds':>8} {'core s':>8}")
    for known, result in results:
        print(
            f"{known.name:14} {result.passed:8} {result.failed:8} {result.skipped:8} {result.seconds:8.0f} {result.cpu_seconds:8.0f}"
        )
        for note in result.notes:
            print(f"    {note}")
        total.add(result)
        total.cpu_seconds += result.cpu_seconds
    print(f"{'all':14} {total.passed:8} {total.failed:8} {total.skipped:8} {seconds:8.0f} {total.cpu_seconds:8.0f}\n")
    if total.failed:
        show_logs(total.notes)
    print(f"{total.passed} passed, {total.failed} failed, {total.skipped} skipped", flush=True)
    return 1 if total.failed else 0


def show_logs(notes: Sequence[str]) -> None:
    """Prints the ends of the logs, for those who only have this output."""
    for log in named_logs(notes)[:MOST_LOGS]:
        print(f"{relative(log)}:")
        for line in excerpt(log):
            print(f"    {line}")
        print()


if __name__ == "__main__":
    sys.exit(main())
