"""Compares mpi4py's own tests, run natively and through Penstock by tests/mpi/mpi4py_suite.py."""

from __future__ import annotations

import fnmatch
import os
import re
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path

from captured import CommandError, pip_download
from testing import LOGS, ROOT, Result, relative, run

sys.path.insert(0, str(ROOT / "tests/mpi"))
from mpi4py_differences import DIFFERENCES

#: A hang or crash ends a job; the next job continues after that test.
MOST_JOBS = 30
RANKS = (1, 2, 3, 4)
WORST_FIRST = ("hung", "failed", "skipped", "passed")


def fetch(folder: Path) -> Path:
    """The folder with the tests of the mpi4py version that scripts/requirements*.txt pin. Cached in `folder`."""
    pins = "".join(path.read_text() for path in sorted((ROOT / "scripts").glob("requirements*.txt")))
    requirement = re.search(r"^mpi4py==\S+", pins, re.MULTILINE)
    if requirement is None:
        raise CommandError("no scripts/requirements*.txt pins mpi4py")
    tests = folder / requirement[0] / "test"
    if tests.exists():
        return tests
    with tempfile.TemporaryDirectory(prefix="penstock-mpi4py-") as fetched:
        pip_download(requirement[0], fetched, "--no-binary", "mpi4py")
        with tarfile.open(next(Path(fetched).glob("mpi4py-*.tar.gz"))) as archive:
            archive.extractall(fetched, filter="data")
        tests.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(next(Path(fetched).glob("mpi4py-*/test")), tests)
    return tests


def outcomes(results: Path, ranks: int) -> dict[str, tuple[str, str]]:
    """Test → (worst outcome over all ranks, reason)."""
    worst: dict[str, tuple[str, str]] = {}
    for rank in range(ranks):
        of_rank: dict[str, tuple[str, str]] = {}
        path = Path(f"{results}.{rank}")
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
            word, test, why = (line + "  ").split(" ", 2)
            of_rank[test] = ("hung" if word == "start" else word, why.strip())
        for test, outcome in of_rank.items():
            if test != "end" and (
                test not in worst or WORST_FIRST.index(outcome[0]) < WORST_FIRST.index(worst[test][0])
            ):
                worst[test] = outcome
    return worst


def has_ended(results: Path, ranks: int) -> bool:
    paths = [Path(f"{results}.{rank}") for rank in range(ranks)]
    return all(path.exists() and path.read_text(encoding="utf-8").endswith("end end\n") for path in paths)


#: How the tests run → what starts each rank, and the mode of tests/mpi/mpi4py_suite.py.
MODES = {
    "native": ((), "native"),
    "penstock": ((), "penstock"),
    "preload": (("penstock", "run", "--quiet", "--strict"), "native"),
}


def run_tests(mode: str, mpi: str, ranks: int, tests: Path, log: Path, *modules: str) -> dict[str, tuple[str, str]]:
    launcher, suite_mode = MODES[mode]
    with tempfile.TemporaryDirectory(prefix="penstock-mpi4py-", ignore_cleanup_errors=True) as scratch:
        results = Path(scratch) / "results"
        command = [
            ROOT / "dev",
            "exec",
            "mpiexec",
            "-n",
            str(ranks),
            *launcher,
            "python",
            ROOT / "tests/mpi/mpi4py_suite.py",
        ]
        for _ in range(MOST_JOBS):
            environment = {"PENSTOCK_MPI": mpi, "TMPDIR": scratch, "PYTHONDONTWRITEBYTECODE": "1"}
            if mode == "preload":
                environment["PENSTOCK_PRELOAD_AFTER"] = "0"
                environment["PENSTOCK_PRELOAD_MEASURE"] = "off"
            run(
                [*command, suite_mode, tests, results, *modules],
                log,
                more_logs=lambda: [Path(f"{results}.{rank}") for rank in range(ranks)],
                **environment,
            )
            if has_ended(results, ranks):
                break
        else:
            raise RuntimeError(f"{mode} under {mpi} on {ranks} ranks did not end in {MOST_JOBS} jobs")
        return outcomes(results, ranks)


def expected_difference(test: str) -> str | None:
    return next((pattern for pattern in DIFFERENCES if fnmatch.fnmatchcase(test, pattern)), None)


def compare(mpis: tuple[str, ...], tests: Path, log: Path) -> Result:
    """A test passes if its outcome equals the native one, or if its difference is listed."""
    result, used = Result(), set()
    differences = LOGS / f"{log.stem}.differences"
    differences.write_text("")
    for mpi in mpis:
        for ranks in RANKS:
            try:
                native, ours = (run_tests(mode, mpi, ranks, tests, log) for mode in ("native", "penstock"))
            except RuntimeError as error:
                result.add(Result.failure(f"{error}, see {relative(log)}"))
                continue
            for test in sorted(native.keys() | ours.keys()):
                was, why_was = native.get(test, ("not there", ""))
                now, why = ours.get(test, ("not there", ""))
                if was == now:
                    result.passed += 1
                    continue
                line = f"{mpi} {ranks} {test}: natively {was} {why_was}, through Penstock {now} {why}"
                with differences.open("a", encoding="utf-8") as out:
                    out.write(line + "\n")
                pattern = expected_difference(test)
                if pattern is not None:
                    used.add(pattern)
                    result.skipped += 1
                else:
                    result.add(Result.failure(line))
    for pattern in DIFFERENCES.keys() - used:
        result.add(
            Result.failure(f"{pattern} ends as natively everywhere; take it out of tests/mpi/mpi4py_differences.py")
        )
    return result


def mpi4py_suite(mpis: tuple[str, ...], log: Path) -> Result:
    folder = Path(os.environ.get("PENSTOCK_MPI4PY_SOURCE", ROOT / "build/mpi4py-source"))
    try:
        return compare(mpis, fetch(folder), log)
    except CommandError as reason:
        return Result.skip(str(reason))
