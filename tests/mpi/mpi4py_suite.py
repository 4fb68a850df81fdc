"""Runs mpi4py's own tests on one rank of a job: natively, or with Penstock's communicators and files in place of MPI's.

mpiexec -n N python tests/mpi/mpi4py_suite.py native|penstock FOLDER_OF_TESTS RESULTS [MODULE…]

Appends a line to RESULTS.<rank> for each test that starts and one when it ends, and goes on behind what is there already: a
test that hangs or crashes ends the job, and the next job is without it.
"""

from __future__ import annotations

import atexit
import faulthandler
import importlib
import os
import sys
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any

#: A test takes milliseconds, unless its ranks wait for each other without a core each.
HANG_S = float(os.environ.get("PENSTOCK_MPI4PY_TEST_S", "600"))

#: Modules without collectives or files: they start programs, or check mpi4py's sources, packaging or conversion of datatypes.
LEFT_OUT = {
    "test_spawn",
    "test_dynproc",
    "test_package",
    "test_doc",
    "test_mpiapi",
    "test_toplevel",
    "test_ulfm",
    "test_util_dtlib",
    "test_util_pool",
}
#: It expects that a message of another rank has come by the end of a barrier. MPI does not promise that, and where it
#: has not come, all ranks wait in this test for ever. Its windows are MPI's own.
LEFT_OUT_TEST = "testStartCompletePostTest"


def substitute() -> None:
    """Replaces MPI.COMM_WORLD, MPI.COMM_SELF and MPI.File by Penstock's, and so communicators derived from them."""
    import penstock as ps
    from mpi4py import MPI

    mpi_file = MPI.File

    class File(ps.File):
        """Tests name files by paths, Penstock by URLs of blobs."""

        @classmethod
        def Open(cls, comm: Any, filename: Any, amode: int = MPI.MODE_RDONLY, info: Any = MPI.INFO_NULL) -> Any:
            if Path(os.fsdecode(filename)).is_char_device():  # /dev/null
                return mpi_file.Open(comm, filename, amode, info)
            return super().Open(comm, url_of(filename), amode, info)

        @classmethod
        def Delete(cls, filename: Any, info: Any = MPI.INFO_NULL) -> None:
            super().Delete(url_of(filename), info)

    def url_of(filename: Any) -> str:
        return f"file://{Path(os.fsdecode(filename)).absolute()}.store/blob"

    MPI.COMM_WORLD, MPI.COMM_SELF, MPI.File = ps.Comm(MPI.COMM_WORLD), ps.Comm(MPI.COMM_SELF), File
    # A test calls free() on MPI's own communicators, which survive it. Penstock's would be lost for later tests.
    opened = (MPI.COMM_WORLD, MPI.COMM_SELF)
    for comm in opened:
        comm.free = lambda: None

    def may_be_freed() -> None:
        for comm in opened:
            del comm.free

    atexit.register(may_be_freed)  # runs before Penstock's own handler, which was registered earlier


def leave_out_devices() -> None:
    """Arrays that claim to be on a GPU, as mpi4py's tests pretend. Penstock rejects such memory."""
    import arrayimpl

    arrayimpl.ArrayBackends[:] = [backend for backend in arrayimpl.ArrayBackends if "GPU" not in backend.__name__]


def tests_of(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from tests_of(test)
        else:
            yield test


class Recorder(unittest.TestResult):
    """Records the start and the outcome of each test, readable after the job has died."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._outcome = ""

    def write(self, word: str, test: unittest.TestCase, why: str = "") -> None:
        with self._path.open("a", encoding="utf-8") as out:
            out.write(f"{word} {test.id()} {why}".rstrip() + "\n")

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self._outcome, self._why = "passed", ""
        faulthandler.dump_traceback_later(HANG_S, exit=True)
        self.write("start", test)

    def stopTest(self, test: unittest.TestCase) -> None:
        faulthandler.cancel_dump_traceback_later()
        self.write(self._outcome, test, self._why)
        super().stopTest(test)

    def _set(self, outcome: str, error: Any) -> None:
        if self._outcome != "failed":
            self._outcome = outcome
            self._why = f"{error[0].__name__}: {error[1]}".replace("\n", " ")[:300] if error else ""

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        super().addError(test, err)
        self._set("failed", err)

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        super().addFailure(test, err)
        self._set("failed", err)

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        super().addSkip(test, reason)
        self._set("skipped", None)

    def addSubTest(self, test: unittest.TestCase, subtest: Any, err: Any) -> None:
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._set("failed", err)


def main() -> None:
    mode, folder, results, *modules = sys.argv[1:]
    sys.path.insert(0, folder)
    from mpi4py import MPI

    comm = MPI.COMM_WORLD.Dup()
    path = Path(f"{results}.{comm.rank}")
    # All ranks have finished what any rank started.
    known = {line.split()[1] for line in path.read_text(encoding="utf-8").splitlines()} if path.exists() else set()
    known = set().union(*comm.allgather(known))
    leave_out_devices()
    if mode == "penstock":
        substitute()
    recorder = Recorder(path)
    for file in sorted(Path(folder).glob("test_*.py")):
        if file.stem in LEFT_OUT or (modules and file.stem not in modules):
            continue
        # Some modules open communicators and files on import.
        faulthandler.dump_traceback_later(HANG_S, exit=True)
        suite = unittest.defaultTestLoader.loadTestsFromModule(importlib.import_module(file.stem))
        faulthandler.cancel_dump_traceback_later()
        for test in tests_of(suite):
            if test.id() in known or test.id().endswith(LEFT_OUT_TEST):
                continue
            comm.Barrier()
            test(recorder)
    path.open("a", encoding="utf-8").write("end end\n")
    comm.Barrier()
    comm.Free()


if __name__ == "__main__":
    main()
