"""The suites of ./dev test. A suite is a function that returns its counts. @suite registers it, in the order of their definition."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import captured
import ceph_cluster
import debian_source
import fortran_interfaces
import mpi4py_comparison
import slurm_cluster
from building import build, fixed_addresses
from testing import HUNG_S, LOGS, ROOT, Result, count_junit, count_ok_lines, ended, log_of, relative, run

# Algorithms depend on the number of ranks and their places, not on the MPI. So each number runs under one MPI, and some under both
# on one node or between nodes. --all runs all numbers under both.
RANKS = {"mpich": (1, 2, 4), "openmpi": (1, 3)}
ALL_RANKS = (1, 2, 3, 4, 7)
QUICK_RANKS = (2, 4)
#: Of two nodes.
NODE_RANKS = {"mpich": "3,4", "openmpi": "1,2"}
ALL_NODE_RANKS = "3,4"
#: Layers with more than one thread, or used by several threads.
TSAN_LAYERS = ("host", "engine", "comm", "arrays", "store", "dataset", "checkpoint")
#: Tests that only make, time or verify thousands of plans: little memory to check. With --all they run sanitized too, and so do
#: the programs of tests/conformance and tests/mpi.
ON_PAPER = (
    "Timed|BeyondTwo|MoreMembersOfABatch|IsDescribed|Mutation|AgreeWithTheSimulation"
    "|UpToALimitAreTheSameOrNone|IsThatOfAllCosts|ChoiceByCost.Estimates"
)
#: Seeds of the simulated network that add no setting to the others. The suite `c++` runs all.
MORE_SEEDS = "_seed_[135]_"
#: Settings of long tests that differ in what is stored, not in how. The suite `c++` runs all.
MORE_SETTINGS = r"BlobWithDeltas.*/(1|2|32)$"
#: Long tests of one thread.
ONE_THREAD = "FragmentsOfManySizes|TagSplit|CpuPlacement"
UNITS = sorted(f"unit_{folder.name}" for folder in (ROOT / "tests/unit").iterdir())
MPIS = tuple(RANKS)
#: Tests of ctest at a time. Most of their time they wait for other ranks or the disk.
PARALLEL = 2 * (os.cpu_count() or 1)


@dataclass
class Options:
    quick: bool
    all: bool
    with_ceph: bool = False
    with_slurm: bool = False
    sanitize: bool = False


@dataclass
class Suite:
    name: str
    what: str
    run: Callable[[Options], Result]
    quick: bool
    builds: Sequence[str] = ()
    alone: bool = False


SUITES: list[Suite] = []
#: What most suites run, built before any: the Python package and the libraries.
PROGRAMS = ("release", "penstock_programs", "penstock_stubs")
#: And the C++ tests, the programs of other suites, and what `cmake --install` installs.
EVERYTHING = ("release",)
WITHOUT_BUILD = ("layers", "tooling", "headers")


def suite(
    name: str, what: str, quick: bool = True, builds: Sequence[str] = (), alone: bool = False
) -> Callable[[Callable[[Options], Result]], Callable[[Options], Result]]:
    """Registers a suite. quick=False: `./dev test --quick` leaves it out. `builds`: a preset and its targets beyond PROGRAMS, built
    ahead of time. `alone`: no other suite runs at the same time, only builds."""

    def register(function: Callable[[Options], Result]) -> Callable[[Options], Result]:
        SUITES.append(Suite(name, what, function, quick, builds, alone))
        return function

    return register


def ctest(preset: str, log: Path, *options: str, **environment: str) -> Result:
    report = LOGS / f"{log.stem}.xml"
    report.unlink(missing_ok=True)
    command = [
        *fixed_addresses(preset),
        "ctest",
        "--test-dir",
        ROOT / "build" / preset,
        "-j",
        str(PARALLEL),
        "--output-on-failure",
    ]
    command += ["--no-tests=error", "--output-junit", report, *options]
    status, _ = run(command, log, **environment)
    return count_junit(report, status, log)


def pytest(log: Path, *arguments: str | Path, python: str | Path = sys.executable, **environment: str) -> Result:
    report = LOGS / f"{log.stem}.xml"
    report.unlink(missing_ok=True)
    command = [
        python,
        "-m",
        "pytest",
        "-v",  # names a test before it runs, so that a hanging test is the last line of the log
        "-rs",
        "-p",
        "no:cacheprovider",
        f"--timeout={HUNG_S:.0f}",
        f"--junitxml={report}",
    ]
    status, _ = run([*command, *arguments], log, **environment)
    return count_junit(report, status, log)


@suite("layers", "includes against the table in docs/architecture.md")
def layers(_: Options) -> Result:
    log = log_of("layers")
    status, output = run([sys.executable, ROOT / "tests/layers/check_layers.py"], log)
    result = count_ok_lines(output, status, log)
    result.add(pytest(log, ROOT / "tests/layers"))
    return result


@suite("tooling", "the test runner itself")
def tooling(_: Options) -> Result:
    return pytest(log_of("tooling"), ROOT / "tests/tooling")


@suite("headers", "each public header compiled alone")
def headers(_: Options) -> Result:
    log = log_of("headers")
    status, output = run([sys.executable, ROOT / "tests/headers/check_headers.py"], log)
    return count_ok_lines(output, status, log)


@suite("c++", "tests/unit, tests/conformance, tests/faults", builds=EVERYTHING)
def cpp(options: Options) -> Result:
    log = log_of("c++")
    if reason := build("release", log):
        return Result.failure(reason)
    return ctest(
        "release",
        log,
        PENSTOCK_TEST_KILLS="1000" if options.all else "64",
        PENSTOCK_TEST_DEATHS="20" if options.all else "2",
        PENSTOCK_TEST_FUZZ="100000" if options.all else "400",
    )


@suite("python", "tests/python")
def python(_: Options) -> Result:
    log = log_of("python")
    return pytest(log, ROOT / "tests/python")


def mpi_tests(
    name: str,
    launch: list[str | Path],
    tests: Sequence[Path] = (ROOT / "tests/mpi",),
    python: str | Path = "python",
    **environment: str,
) -> Result:
    """Collective tests under one launcher. A test passes if it passes on every rank."""
    log, prefix = log_of(name), LOGS / f"{name}.rank"
    for old in LOGS.glob(f"{name}.rank.*"):
        old.unlink()
    status, _ = run(
        [*launch, python, ROOT / "scripts/mpi_pytest.py", prefix, *tests],
        log,
        more_logs=lambda: sorted(LOGS.glob(f"{name}.rank.*.log")),
        PENSTOCK_TEST_HUNG_S=f"{HUNG_S:.0f}",
        **environment,
    )
    worst: dict[str, Result] = {}
    for report in sorted(LOGS.glob(f"{name}.rank.*.xml")):
        rank_log = report.with_suffix(".log")
        for case, outcome in cases_of(report).items():
            known = worst.setdefault(case, Result())
            if outcome == "failed" and not known.failed:
                worst[case] = Result(failed=1, notes=[f"{case}, see {relative(rank_log)}"])
            elif outcome == "skipped" and not known.failed:
                worst[case] = Result(skipped=1)
            elif outcome == "passed" and not known.failed and not known.skipped:
                worst[case] = Result(passed=1)
    result = Result()
    for outcome in worst.values():
        result.add(outcome)
    if status and not result.failed:
        result.add(Result.failure(f"{name} {ended(status, log)} and {relative(prefix)}.*.log"))
    if not worst and not status:
        result.add(Result.failure(f"{name} ran no test, see {relative(prefix)}.0.log"))
    return result


def cases_of(report: Path) -> dict[str, str]:
    outcomes = {}
    try:
        root = ElementTree.parse(report).getroot()
    except (OSError, ElementTree.ParseError):
        return {}
    for case in root.iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}"
        if case.find("failure") is not None or case.find("error") is not None:
            outcomes[name] = "failed"
        else:
            outcomes[name] = "skipped" if case.find("skipped") is not None else "passed"
    return outcomes


def mpi_suite(mpi: str) -> Callable[[Options], Result]:
    def all_ranks(options: Options) -> Result:
        result = Result()
        for ranks in QUICK_RANKS if options.quick else ALL_RANKS if options.all else RANKS[mpi]:
            launch: list[str | Path] = [ROOT / "dev", "exec", "mpiexec", "-n", str(ranks)]
            result.add(mpi_tests(f"mpi-{mpi}-{ranks}", launch, PENSTOCK_MPI=mpi))
        return result

    return all_ranks


for _mpi in MPIS:
    suite(f"mpi-{_mpi}", f"tests/mpi at {', '.join(map(str, RANKS[_mpi]))} ranks", alone=True)(mpi_suite(_mpi))


@suite(
    "nodes",
    f"tests/mpi over two emulated nodes, {NODE_RANKS['mpich']} ranks under MPICH, {NODE_RANKS['openmpi']} under Open MPI",
    quick=False,
    alone=True,
)
def nodes(options: Options) -> Result:
    log = log_of("nodes")
    status, output = run([ROOT / "dev", "cluster", "check"], log)
    if status:
        return Result.skip(output.strip().splitlines()[-1])
    status, _ = run([ROOT / "dev", "cluster", "up", "2", "1gbit"], log)
    if status:
        return Result.failure(f"./dev cluster up failed, see {relative(log)}")
    try:
        result = Result()
        for mpi in MPIS:
            ranks = ALL_NODE_RANKS if options.all else NODE_RANKS[mpi]
            launch: list[str | Path] = [ROOT / "dev", "cluster", "run", "--ranks", ranks, "--mpi", mpi]
            result.add(mpi_tests(f"nodes-{mpi}", launch, PENSTOCK_TEST_NODES="1"))
        result.add(pytest(log, ROOT / "tests/cluster"))
        return result
    finally:
        run([ROOT / "dev", "cluster", "down"], log)


ASAN_BUILD = ("asan", *UNITS, "faults")
TSAN_BUILD = ("tsan", *[f"unit_{layer}" for layer in TSAN_LAYERS])
#: Stacks of returned functions as small as they may be, since each thread makes and clears some. Ten frames tell where memory
#: was allocated.
ASAN_OPTIONS = "detect_stack_use_after_return=1 max_uar_stack_size_log=16 malloc_context_size=10"
NOT_SANITIZED = "the sanitizers' builds are only made with --sanitize or --all"


@suite(
    "asan",
    "tests/unit and tests/faults under AddressSanitizer and UndefinedBehaviorSanitizer (only with --sanitize or --all)",
    quick=False,
    builds=ASAN_BUILD,
)
def asan(options: Options) -> Result:
    if not options.sanitize:
        return Result.skip(NOT_SANITIZED)
    log = log_of("asan")
    if reason := build(ASAN_BUILD[0], log, *(() if options.all else ASAN_BUILD[1:])):
        return Result.failure(reason)
    left_out = f"{ON_PAPER}|{MORE_SEEDS}|{MORE_SETTINGS}"
    chosen = () if options.all else ("-R", f"^({'|'.join(ASAN_BUILD[1:])})\\.", "-E", left_out)
    return ctest("asan", log, *chosen, ASAN_OPTIONS=ASAN_OPTIONS, UBSAN_OPTIONS="print_stacktrace=1")


@suite(
    "tsan",
    f"the tests of {', '.join(TSAN_LAYERS)} under ThreadSanitizer (only with --sanitize or --all)",
    quick=False,
    builds=TSAN_BUILD,
)
def tsan(options: Options) -> Result:
    if not options.sanitize:
        return Result.skip(NOT_SANITIZED)
    log = log_of("tsan")
    if reason := build(TSAN_BUILD[0], log, *TSAN_BUILD[1:]):
        return Result.failure(reason)
    left_out = () if options.all else ("-E", f"{ONE_THREAD}|{MORE_SEEDS}|{MORE_SETTINGS}")
    return ctest(
        "tsan",
        log,
        "-R",
        f"^unit_({'|'.join(TSAN_LAYERS)})\\.",
        *left_out,
        TSAN_OPTIONS="second_deadlock_stack=1 die_after_fork=0",
    )


@suite("package", "find_package, pkg-config, pip install, the examples", quick=False, builds=EVERYTHING)
def package(options: Options) -> Result:
    log = log_of("package")
    if reason := build("release", log):
        return Result.failure(reason)
    return pytest(log, ROOT / "tests/package")


@suite("docs", "the documentation site: every link leads somewhere (only with --all)", quick=False)
def docs(options: Options) -> Result:
    if not options.all:
        return Result.skip("the generator of the site is only installed with --all")
    log = log_of("docs")
    status, _ = run([ROOT / "dev", "docs"], log)
    return Result.failure(f"./dev docs {ended(status, log)}") if status else Result(passed=1)


@suite("demo", "the demo's network, and its restart on 2, 3 and 5 ranks", quick=False, alone=True)
def demo(_: Options) -> Result:
    log = log_of("demo")
    return pytest(log, ROOT / "tests/demo")


@suite("intel", "tests/mpi under Intel MPI, which shares MPICH's ABI (only with --all)", quick=False)
def intel(options: Options) -> Result:
    if not options.all:
        return Result.skip("Intel MPI is only installed with --all")
    log = log_of("intel")
    status, _ = run([ROOT / "dev", "setup", "--with", "impi-rt"], log)
    if status:
        return Result.failure(f"Intel MPI could not be installed, see {relative(log)}")
    launch: list[str | Path] = [ROOT / "dev", "exec", "mpiexec", "-n", "4"]
    return mpi_tests("intel-4", launch, PENSTOCK_MPI="impi")


@suite("mpi4py", "mpi4py's own tests through Penstock against native, 1 to 4 ranks (only with --all)", quick=False)
def mpi4py(options: Options) -> Result:
    if not options.all:
        return Result.skip("mpi4py's tests are only fetched with --all")
    return mpi4py_comparison.mpi4py_suite(MPIS, log_of("mpi4py"))


#: So long that a leak of a hundred bytes per sample is more than the noise of the allocator.
SOAK_S = 600


@suite(
    "soak", "what an input pipeline holds in memory, files and threads over ten minutes (only with --all)", quick=False
)
def soak(options: Options) -> Result:
    if not options.all:
        return Result.skip("long runs are only made with --all")
    return pytest(log_of("soak"), ROOT / "tests/soak", PENSTOCK_TEST_SOAK_S=str(SOAK_S))


#: Of a virtual environment with what build/env has, and PyTorch.
TORCH_PYTHON = ROOT / "build/torch-env/bin/python"
TORCH_RANKS = {"mpich": (1, 2, 4), "openmpi": (3,)}


@suite(
    "torch",
    f"PyTorch's backend on {', '.join(map(str, sorted(sum(TORCH_RANKS.values(), ()))))} ranks, PyTorch's own tests, and JAX "
    "(they are only fetched with --all)",
    quick=False,
    alone=True,
)
def torch(options: Options) -> Result:
    log = log_of("torch")
    if options.all:
        run([ROOT / "dev", "setup", "--with", "torch"], log)
    if (
        not TORCH_PYTHON.exists()
        or subprocess.run([TORCH_PYTHON, "-c", "import torch"], capture_output=True).returncode
    ):
        return Result.skip(f"PyTorch is not in {relative(TORCH_PYTHON)}; --all installs it there")
    result = Result()
    for mpi, numbers in TORCH_RANKS.items():
        for ranks in numbers:
            launch: list[str | Path] = [ROOT / "dev", "exec", "mpiexec", "-n", str(ranks)]
            result.add(
                mpi_tests(f"torch-{mpi}-{ranks}", launch, (ROOT / "tests/pytorch",), TORCH_PYTHON, PENSTOCK_MPI=mpi)
            )
    result.add(pytest(log, ROOT / "tests/pytorch_programs"))
    # They also belong to the suite `python`, whose environment has no JAX.
    jax = [ROOT / "tests/python" / f"test_{name}.py" for name in ("dataset_jax", "jax_arrays", "jax_checkpoint")]
    result.add(pytest(log_of("jax"), *jax, python=TORCH_PYTHON))
    return result


@suite(
    "scalapack", "libpenstock_scalapack in ScaLAPACK's own test programs (Debian's; fetched with --all)", quick=False
)
def scalapack(options: Options) -> Result:
    log = log_of("scalapack")
    if options.all:
        run([ROOT / "dev", "setup", "--with", "scalapack-mpi-test"], log)
        if "PENSTOCK_SCALAPACK_SOURCE" not in os.environ:
            try:
                source = debian_source.fetch("scalapack", ROOT / "build/scalapack-source")
                os.environ["PENSTOCK_SCALAPACK_SOURCE"] = str(source)
            except captured.CommandError as reason:
                os.environ["PENSTOCK_SCALAPACK_NO_SOURCE"] = str(reason)
    return pytest(log, ROOT / "tests/scalapack")


#: Each with its Fortran.
DEBIAN_MPIS = ("mpich", "libmpich-dev", "openmpi-bin", "libopenmpi-dev")


@suite(
    "preload",
    "MPI programs natively and under penstock run, Fortran's by fetched interfaces (with --all: more ranks and communicators, and "
    "Debian's MPIs)",
    quick=False,
    builds=EVERYTHING,
)
def preload(options: Options) -> Result:
    log = log_of("preload")
    lacking = install(["gfortran", *DEBIAN_MPIS], log) if options.all else None
    try:
        fortran_interfaces.fetch(ROOT / "build/fortran")
    except captured.CommandError as reason:
        os.environ["PENSTOCK_NO_FORTRAN"] = str(reason)
    if reason := build("release", log):
        return Result.failure(reason)
    result = pytest(log, ROOT / "tests/preload")
    result.add(lacking or Result())
    return result


#: Of a virtual environment with what build/env has, s3fs and moto.
S3_PYTHON = ROOT / "build/s3-env/bin/python"


@suite(
    "s3",
    "datasets and stores in servers of S3 that are late, throttle and break off: moto's, and Ceph's gateway if it is installed "
    "(only fetched with --all; Ceph with --with-ceph)",
    quick=False,
    builds=EVERYTHING,
)
def s3(options: Options) -> Result:
    log = log_of("s3")
    if options.all or options.with_ceph:
        packages = ["s3fs"]
        if options.with_ceph and shutil.which("apt-get") and os.geteuid() == 0:
            packages += ceph_cluster.missing_packages(gateway=True)
        run([ROOT / "dev", "setup", "--with", *packages], log)
    has_s3fs = (
        S3_PYTHON.exists() and not subprocess.run([S3_PYTHON, "-c", "import s3fs"], capture_output=True).returncode
    )
    if not has_s3fs:
        return Result.skip(f"s3fs is not in {relative(S3_PYTHON)}; --all installs it there")
    if reason := build("release", log):
        return Result.failure(reason)
    return pytest(log, ROOT / "tests/s3", python=S3_PYTHON)


def install(packages: Sequence[str], log: Path) -> Result | None:
    """Debian's packages that a suite lacks. What to return if they cannot be had, else None."""
    if not packages:
        return None
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        return Result.skip(f"lacks {', '.join(packages)} (Debian's names), which take apt-get and root to install here")
    status, _ = run([ROOT / "dev", "setup", "--with", *packages], log)
    return Result.failure(f"{', '.join(packages)} could not be installed, see {relative(log)}") if status else None


@suite(
    "ceph", "stores in a Ceph that is started here, one of whose OSDs is killed (only with --with-ceph)", quick=False
)
def ceph(options: Options) -> Result:
    if not options.with_ceph:
        return Result.skip("Ceph is only started with --with-ceph")
    log = log_of("ceph")
    return install(ceph_cluster.missing_packages(), log) or pytest(log, ROOT / "tests/ceph")


@suite(
    "slurm",
    "jobs in a Slurm of two emulated nodes that is started here (only with --with-slurm)",
    quick=False,
    builds=EVERYTHING,
)
def slurm(options: Options) -> Result:
    if not options.with_slurm:
        return Result.skip("Slurm is only started with --with-slurm")
    log = log_of("slurm")
    if os.geteuid() != 0:
        return Result.skip("emulated nodes need root")
    if lacking := install(slurm_cluster.missing_packages(), log):
        return lacking
    if reason := build("release", log):
        return Result.failure(reason)
    return pytest(log, ROOT / "tests/slurm")


@suite(
    "simgrid",
    "penstock simulate on SimGrid (Debian's libsimgrid-dev; fetched with --all)",
    quick=False,
    builds=EVERYTHING,
)
def simgrid(options: Options) -> Result:
    log = log_of("simgrid")
    if options.all and (lacking := install(["libsimgrid-dev"], log)):
        return lacking
    if reason := build("release", log):
        return Result.failure(reason)
    return pytest(log, ROOT / "tests/simgrid")


def plain_suite(folder: Path) -> None:
    """Makes a suite of a folder of Python tests that no suite above covers."""

    @suite(folder.name, f"tests/{folder.name}", quick=False, builds=EVERYTHING)
    def folder_suite(_: Options) -> Result:
        log = log_of(folder.name)
        if reason := build("release", log):
            return Result.failure(reason)
        return pytest(log, folder)


KNOWN_FOLDERS = {
    "unit",
    "conformance",
    "faults",
    "mpi",
    "python",
    "layers",
    "headers",
    "cluster",
    "package",
    "tooling",
    "demo",
    "scalapack",
    "preload",
    "ceph",
    "slurm",
    "pytorch",
    "pytorch_programs",
    "s3",
    "simgrid",
    "soak",
}
for _folder in sorted({path.parent for path in (ROOT / "tests").glob("*/test_*.py")}):
    if _folder.name not in KNOWN_FOLDERS:
        plain_suite(_folder)
