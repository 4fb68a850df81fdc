"""Finds the preload library for a program: which MPI it uses, and whether Penstock has been built for that MPI."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sysconfig
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from penstock import _penstock
from penstock.error import Error

#: The name of an MPI's library → its ABI. Debian has its own name for MPICH's.
_ABIS = {
    "libmpi.so.12": "mpich",
    "libmpich.so.12": "mpich",
    "libmpi.so.40": "openmpi",
    "libmpi_abi.so.1": "abi",
    "libmpi_abi.so.0": "abi",
}
#: The name that the preload library needs it by, where that differs.
_NEEDED = {"libmpich.so.12": "libmpi.so.12"}
#: Variables that a launcher sets for each process → the ABI of its MPI.
_LAUNCHERS = {"OMPI_COMM_WORLD_RANK": "openmpi", "PMI_RANK": "mpich"}
#: What starts the processes of a job on a node.
_LAUNCHER_PROGRAMS = ("hydra_pmi_proxy", "mpiexec", "mpirun", "orted", "orterun", "prted", "prterun")
ABIS = tuple(dict.fromkeys(_ABIS.values()))


def rank(environment: Mapping[str, str] = os.environ) -> int:
    """The rank of this process, as the launcher says; 0 without one."""
    for name in ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"):
        if environment.get(name, "").isdigit():
            return int(environment[name])
    return 0


def library(abi: str) -> Path:
    """The preload library for an ABI. Raises Error("unsupported") if it has not been built."""
    folder = Path(_penstock.library_directory())
    path = folder / f"libpenstock_preload_{abi}.so"
    if path.exists():
        return path
    built = sorted(p.name[len("libpenstock_preload_") : -len(".so")] for p in folder.glob("libpenstock_preload_*.so"))
    raise Error(
        f"this Penstock has no preload library for the {abi} ABI, only for {', '.join(built) or 'no MPI at all'}; build it "
        "with that MPI in PENSTOCK_MPI_ROOTS",
        "unsupported",
    )


def _loaded_by(program: Path) -> list[str]:
    """The shared libraries that a program loads at its start, as ldd prints them. Empty for a script."""
    with program.open("rb") as file:
        if file.read(4) != b"\x7fELF":
            return []
    done = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False)
    if done.returncode != 0 or "statically linked" in done.stdout:
        raise Error(
            f"{program} is linked statically, so nothing can be preloaded; link it to a shared MPI", "unsupported"
        )
    return [line.strip() for line in done.stdout.splitlines()]


class Mpi(NamedTuple):
    """The MPI that a program uses."""

    abi: str
    #: Of the library that the program is linked to, or else of the launcher's MPI; None if neither is known.
    path: Path | None


def mpi_of(program: str | None, abi: str | None = None, environment: Mapping[str, str] = os.environ) -> Mpi:
    """The MPI that a program uses. `abi`: what the user says; otherwise it is the one that the program is linked to, or
    the launcher's for scripts and for programs that load MPI later, such as Python. Raises Error("unsupported") if it is
    none that Penstock knows, or if the process would have two."""
    linked = None if program is None else _linked_to(program)
    if linked is not None and abi not in (None, linked.abi):
        raise Error(
            f"{program} is linked to an MPI of the {linked.abi} ABI, so it cannot use the library for {abi}; leave out --mpi",
            "unsupported",
        )
    if linked is not None:
        return linked
    of_launcher = next((_LAUNCHERS[name] for name in _LAUNCHERS if name in environment), None)
    found = abi or of_launcher
    if found is None:
        raise Error(
            f"{program} is not linked to an MPI, and no mpiexec has started it; if it loads MPI later, start it by mpiexec "
            "or name the ABI with --mpi",
            "unsupported",
        )
    return Mpi(found, _installed(found, environment))


def _installed(abi: str, environment: Mapping[str, str]) -> Path | None:
    """The library of the MPI whose launcher has started this process, or else of the one on PATH. None if neither has that
    ABI."""
    try:
        parent = Path(f"/proc/{os.getppid()}/exe").readlink()
    except OSError:
        parent = Path()
    launcher: Path | None = parent
    if not parent.name.startswith(_LAUNCHER_PROGRAMS):
        on_path = shutil.which("mpiexec", path=environment.get("PATH"))
        launcher = Path(on_path).resolve() if on_path else None
    if launcher is None:
        return None
    folders = ["lib", "lib64", f"lib/{sysconfig.get_config_var('MULTIARCH')}"]
    names = [name for name in _ABIS if _ABIS[name] == abi]
    places = [launcher.parents[1] / folder / name for folder in folders for name in names]
    return next((place for place in places if place.exists()), None)


def _linked_to(program: str) -> Mpi | None:
    """The MPI that a program is linked to, itself or through its libraries; None if it is linked to none."""
    path = shutil.which(program)
    if path is None:
        raise Error(f"there is no program {program!r}; expected a path, or a name on PATH")
    found: dict[str, Mpi] = {}
    for line in _loaded_by(Path(path)):
        name = Path(line.split(" ")[0]).name
        if name not in _ABIS:
            continue
        if "not found" in line:
            raise Error(
                f"{program} needs {name}, which is not found here; set LD_LIBRARY_PATH to its MPI", "unsupported"
            )
        where = line.partition(" => ")[2].split(" (")[0]
        found.setdefault(name, Mpi(_ABIS[name], Path(where) if where else None))
    if len({mpi.abi for mpi in found.values()}) > 1:
        raise Error(
            f"{program} loads {' and '.join(found)}, two MPIs, and calls of both have the same names; link it and its "
            "libraries to one of them",
            "unsupported",
        )
    return next(iter(found.values()), None)


def _folder_of_names() -> Path:
    """A folder of this user in which an MPI has the name that the preload library needs it by."""
    folder = Path(tempfile.gettempdir()) / f"penstock-mpi-names-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    facts = folder.lstat()
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid() or facts.st_mode & 0o022:
        raise Error(f"{folder} is not this user's alone, so no library is loaded from it; remove it", "unsupported")
    return folder


def _link(name: Path, target: Path) -> None:
    """Let `name` lead to `target`; other processes may do so at the same time."""
    if name.is_symlink() and name.readlink() == target:
        return
    new = name.with_name(f"{name.name}.{os.getpid()}")
    new.unlink(missing_ok=True)
    new.symlink_to(target)
    new.replace(name)


def preloaded(mpi: Mpi, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment variables by which the loader finds Penstock's library, and beside it the program's own MPI: the
    library may know another installation with the same ABI, and one process must not have two. Libraries that were to be
    preloaded stay between both: a tool that comes behind MPI would never be called."""
    before = environment.get("LD_PRELOAD", "")
    parts = [str(library(mpi.abi)), *([before] if before else [])]
    added: dict[str, str] = {}
    if mpi.path is not None:
        needed = _NEEDED.get(mpi.path.name)
        if needed is None:
            parts.append(str(mpi.path))
        else:
            folder = _folder_of_names()
            _link(folder / needed, mpi.path.resolve())
            paths = environment.get("LD_LIBRARY_PATH", "")
            added["LD_LIBRARY_PATH"] = f"{folder}{':' + paths if paths else ''}"
    added["LD_PRELOAD"] = ":".join(parts)
    return added


def settings(
    mpi: Mpi, report: str, files: Sequence[str] = (), environment: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """The environment variables that preload Penstock. `files`: globs of the MPI files that go to a store."""
    added = {**preloaded(mpi, environment), "PENSTOCK_PRELOAD_REPORT": report}
    if files:
        added["PENSTOCK_FILES"] = ":".join(files)
    return added
