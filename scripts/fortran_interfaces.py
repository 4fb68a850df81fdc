"""Fortran's interfaces for the MPIs of build/mpi, which have none: include files, modules and libraries of Debian's packages."""

from __future__ import annotations

import shutil
from pathlib import Path

import debian_source

#: The first with persistent collectives in both. Their libraries work with any later MPI of the same ABI.
RELEASE = "trixie"
PACKAGES = ("libmpich12", "libmpich-dev", "libopenmpi40", "libopenmpi-dev")
LIBRARIES = {
    "mpich": ("libmpichfort.so.12",),
    "openmpi": ("libmpi_usempif08.so.40", "libmpi_usempi_ignore_tkr.so.40", "libmpi_mpifh.so.40"),
}
#: Debian's name of MPICH's library, and that of all others, padded to its length.
RENAMED = (b"\0libmpich.so.12\0", b"\0libmpi.so.12\0\0\0")


def fetch(folder: Path) -> None:
    """Makes folder/<mpi>/include and folder/<mpi>/lib."""
    if folder.exists():
        return
    partial = folder.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    packages = partial / "packages"
    (files,) = (debian_source.unpack(PACKAGES, RELEASE, packages) / "usr/lib").iterdir()
    for mpi, libraries in LIBRARIES.items():
        include = partial / mpi / "include"
        shutil.copytree(files / mpi / "include", include)
        (modules,) = files.glob(f"fortran/gfortran-mod-*/{mpi}")
        shutil.copytree(modules, include, dirs_exist_ok=True)
        (partial / mpi / "lib").mkdir()
        for library in libraries:
            (partial / mpi / "lib" / library).write_bytes((files / library).read_bytes().replace(*RENAMED))
    shutil.rmtree(packages)
    partial.rename(folder)
