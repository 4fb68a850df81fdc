"""The library for integers of another length than those of the process's BLACS."""

from __future__ import annotations

import ctypes
import os

import numpy as np
import pytest

MPI = pytest.importorskip("mpi4py.MPI")
if MPI.COMM_WORLD.size == 1 and "PENSTOCK_SCALAPACK_JOB" not in os.environ:
    pytest.skip("runs inside of an MPI job, see test_programs.py", allow_module_level=True)

from scalapack.library import OURS, OURS_ILP64, Library, Matrix  # noqa: E402


def test_moves_nothing_and_names_the_right_library(theirs: Library, capfd: pytest.CaptureFixture) -> None:
    path, integer, words = (
        (OURS, ctypes.c_int, "64 bits (ILP64); use libpenstock_scalapack_ilp64_<abi>")
        if os.environ.get("PENSTOCK_SCALAPACK_ILP64")
        else (OURS_ILP64, ctypes.c_int64, "32 bits (LP64); use libpenstock_scalapack_<abi>")
    )
    line = theirs.line(MPI.COMM_WORLD.size)
    matrix = Matrix(line, (9, 9), (2, 2))
    result = matrix.local(np.zeros(matrix.shape))
    call = ((0, 0), matrix.descriptor(), result, (0, 0), matrix.descriptor(), line.context)
    Library(path, ctypes.RTLD_LOCAL, integer).gemr2d("d", (9, 9), matrix.local(np.ones(matrix.shape)), *call)
    assert words in capfd.readouterr().err
    assert not result[: len(matrix.mine()[0])].any(), "something was moved"
