"""penstock.Comm in one process. tests/mpi tests it on several ranks."""

from __future__ import annotations

import pickle
import subprocess
import sys
import textwrap

import numpy as np
import penstock as ps
import pytest
from penstock import _penstock


def run(program: str) -> str:
    """Run `program` in a new interpreter. Returns its output."""
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_no_mpi_needed_to_import() -> None:
    """Without mpi4py the package imports, and penstock.Comm says what it needs."""
    said = run(
        """
        import sys
        class NoMpi4py:
            def find_spec(self, name, path=None, target=None):
                if name.split(".")[0] == "mpi4py":
                    raise ImportError("there is no mpi4py")
        sys.meta_path.insert(0, NoMpi4py())
        import penstock as ps
        assert "Comm" in dir(ps)
        try:
            ps.Comm
        except ps.Error as error:
            print(error.code, error)
        """
    )
    assert said.startswith("unsupported ")
    assert "pip install mpi4py" in said


def test_importing_does_not_start_mpi() -> None:
    assert run("import sys, penstock; print('mpi4py' in sys.modules)").strip() == "False"


def test_every_public_name_exists() -> None:
    pytest.importorskip("mpi4py")
    for name in ps.__all__:
        assert getattr(ps, name) is not None, name
    with pytest.raises(AttributeError, match="nonsense"):
        _ = ps.nonsense


def test_error() -> None:
    error = ps.Error("the disk is full", "no_space", 3, "ENOSPC")
    assert isinstance(error, RuntimeError)
    assert str(error) == "the disk is full [rank 3]: ENOSPC"
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.code, copy.rank, copy.cause, str(copy)) == ("no_space", 3, "ENOSPC", str(error))
    assert ps.Error("x").code == "invalid_argument"


def test_missing_library(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    """If the installation lacks a library for the MPI in use, the error names that MPI."""
    mpi = pytest.importorskip("mpi4py.MPI")
    from penstock import mpi_abi

    monkeypatch.setattr(_penstock, "library_directory", lambda: str(tmp_path))
    with pytest.raises(ps.Error, match="no MPI at all") as caught:
        mpi_abi.entry_point(mpi, "penstock_comm_from_address")
    assert caught.value.code == "unsupported"
    assert mpi_abi.name(mpi) in str(caught.value)


def test_one_rank() -> None:
    """Without mpiexec, too; and with each kind of invalid buffer."""
    mpi = pytest.importorskip("mpi4py.MPI")
    with ps.Comm(mpi.COMM_SELF) as comm:
        x, y = np.arange(5.0), np.zeros(5)
        comm.Allreduce(x, y)
        np.testing.assert_array_equal(x, y)
        for wrong, says in (
            (np.zeros((5, 2))[:, 0], "contiguous"),
            (b"12345678" * 5, "read-only"),
            (7, "int"),
            (np.zeros(5, ">f8"), "float64"),
        ):
            with pytest.raises(ps.Error, match=says):
                comm.Allreduce(x, wrong)
        comm.Allreduce(x, y)


class Tensor:
    """An array that supports DLPack only."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **options: object) -> object:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


def test_dlpack() -> None:
    mpi = pytest.importorskip("mpi4py.MPI")
    with ps.Comm(mpi.COMM_SELF) as comm:
        x, y = np.arange(6, dtype="f4").reshape(2, 3), np.zeros((2, 3), "f4")
        comm.Allreduce(Tensor(x), Tensor(y))
        np.testing.assert_array_equal(x, y)
        with pytest.raises(ps.Error, match="contiguous"):
            comm.Allreduce(Tensor(np.zeros((4, 4), "f4")[:, ::2]), Tensor(np.zeros(8, "f4")))
