"""Tests of mpi4py whose outcome through Penstock differs from the native one, with reasons. Keys match module.class.test."""

from __future__ import annotations

DIFFERENCES: dict[str, str] = {
    "test_errhandler.TestErrhandlerFile.testCreate": (
        "files are Penstock's, not MPI's: their errors are raised as penstock.Error, and no handler of the user is called"
    ),
    "test_comm.TestComm*.testPickle": (
        "pickles a plain MPI.Intracomm by its name in mpi4py.MPI, where the runner has put Penstock's; ps.Comm is pickled in "
        "test_as_mpi4py.py"
    ),
    "test_objmodel.TestObjModel.testReduce": "pickles mpi4py's FILE_NULL by its class's name, where the runner has put Penstock's",
    "test_objmodel.TestObjModel.testHandle": "fromhandle gives a communicator of mpi4py's: making Penstock's is collective",
    "test_objmodel.TestObjModel.testCAPI": "so does mpi4py's C API",
    "test_objmodel.TestObjModel.testSafeFreeConstant": "ps.Comm.free lets go of Penstock's part; the communicator of MPI stays",
    **dict.fromkeys(
        (
            "test_msgspec.TestMessageVector.testMessageBad",
            "test_msgspec.TestMessageVectorNumPy.testCountNumPy*",
        ),
        "asks for mpi4py's ValueError or TypeError of a wrong argument; Penstock raises penstock.Error of all of them, on all ranks",
    ),
    **dict.fromkeys(
        ("test_msgspec.TestMessageVectorCAIBuf.*", "test_msgspec.TestMessageVectorW.testMessageCAIBuf"),
        "memory that is said to lie on a GPU, which Penstock refuses",
    ),
    "test_handle.TestHandleFile.*": "takes MPI.FILE_NULL for an MPI.File, which is Penstock's class here",
}
