"""Communicators of processes that no MPI launcher has started."""

from __future__ import annotations

import array
import atexit
import os
import time
import weakref
from typing import TYPE_CHECKING, Any, NoReturn

from penstock import _penstock, pmix, rendezvous
from penstock.error import Error

if TYPE_CHECKING:
    from typing_extensions import Self

    from penstock.rendezvous import KeyValueStore

_ANY_RANK = -1
_SPINS = 200
#: At the end of the process, for messages that UCX still has.
_PATIENCE_S = 5.0
_AS_CHOSEN: dict[str, object] = {}


class Work:
    """A collective or message that has been started. Keeps its buffers, which belong to it until it is complete."""

    def __init__(self, pending: _penstock.Request | _penstock.UcxMessage, timeout_s: float = 0.0) -> None:
        self._pending = pending
        self._timeout_s = timeout_s

    def test(self) -> bool:
        """Make progress. Return whether it is complete. Raises its failure."""
        return self._pending.test()

    def wait(self) -> None:
        """Wait until it is complete. Raises its failure."""
        if isinstance(self._pending, _penstock.Request):
            return self._pending.wait()
        for _ in range(_SPINS):
            if self.test():
                return None
            time.sleep(0)
        started, pause = time.monotonic(), 20e-6
        while not self.test():
            if self._timeout_s and time.monotonic() - started > self._timeout_s:
                raise Error(f"a message did not complete within {self._timeout_s:g} s", "timed_out")
            time.sleep(pause)
            pause = min(2 * pause, 5e-4)
        return None

    @property
    def source(self) -> int:
        """The rank whose message has been received; of a complete receive."""
        if isinstance(self._pending, _penstock.Request):
            raise Error("this is a collective; only a receive has a source")
        return self._pending.source

    @property
    def size_bytes(self) -> int:
        """The length of the message in bytes; of a complete send or receive."""
        if isinstance(self._pending, _penstock.Request):
            raise Error("this is a collective; only a message has a length")
        return self._pending.size_bytes


_open: weakref.WeakSet[Communicator] = weakref.WeakSet()


class Communicator:
    """Penstock's collectives between processes that find each other without MPI, over UCX. Making one is collective.

    Buffers are contiguous arrays: objects with the buffer protocol or DLPack. Reductions take "sum", "prod", "min", "max",
    "band", "bor", "bxor", "land", "lor" and "lxor", equal on all ranks. ``sendbuf=None`` means in place, as MPI's
    IN_PLACE. All ranks call the collectives of one communicator in the same order, from one thread at a time. Invalid
    arguments raise ``penstock.Error`` on this rank, and "peer_failed" or "mismatch" on the others. If a rank's process ends,
    all others get "peer_failed", with its rank. No rank hangs.

    The ranks of a node share memory; messages between nodes use what UCX finds: InfiniBand, RoCE or TCP. UCX 1.13 or later
    is found at run time: the option ``ucx_library``, the system's, or one that an MPI's wheel has brought.

    Parameters
    ----------
    store : str, os.PathLike or store
        Where the ranks find each other: a folder that all of them see, new or empty for each run, or an object with
        ``set``, ``get``, ``add`` and ``wait``, such as the stores of torch.distributed.
    rank, size : int
        This rank, from 0, and how many there are.
    timeout : float
        Seconds. Making the communicator fails if a rank does not come for so long, and an operation in which nothing moves
        for so long fails on all ranks. 0: operations never fail so, and making the communicator fails after 5 minutes.
    progress_cores : "auto" or int
        Communication cores per node, as for :class:`penstock.Comm`.
    """

    def __init__(
        self,
        store: str | os.PathLike[str] | KeyValueStore,
        rank: int,
        size: int,
        *,
        timeout: float = 300.0,
        progress_cores: str | int = "auto",
    ) -> None:
        if isinstance(store, (str, os.PathLike)):
            store = rendezvous.FileStore(store)
        self._enter(rendezvous.meet(store, rank, size, timeout, progress_cores), timeout, progress_cores)

    @classmethod
    def from_pmix(cls, *, timeout: float = 300.0, progress_cores: str | int = "auto") -> Self:
        """A communicator of all processes of a job that srun --mpi=pmix, prterun or Open MPI's mpiexec has started.

        Rank and size come from the launcher, and the ranks find each other through PMIx: no MPI is initialized, and no
        folder is needed. Collective over all ranks of the job. libpmix 3 or later is found at run time:
        ``PENSTOCK_PMIX_LIBRARY``, the system's libpmix.so.2, or the one that Open MPI's wheel has brought. A rank that has
        none, or that no such launcher has started, raises "unsupported" alone, and the launcher ends the job with it. Other
        failures of one rank, such as no UCX there, raise on all. Whether a rank that does not come ends the wait after
        `timeout` is up to the launcher.
        """
        group = pmix.meet(timeout or rendezvous.LONGEST_START_S, lambda: rendezvous.open_network(progress_cores))
        return cls._of(group, timeout, progress_cores)

    @classmethod
    def _of(cls, group: rendezvous.Group, timeout: float, progress_cores: str | int) -> Self:
        made = cls.__new__(cls)
        made._enter(group, timeout, progress_cores)
        return made

    def _enter(self, group: rendezvous.Group, timeout: float, progress_cores: str | int) -> None:
        self._core: _penstock.Comm | None
        self._messages: _penstock.UcxMessages | None
        self._core, self._messages = rendezvous.join(group, timeout, progress_cores)
        self._rank, self._size = group.rank, group.size
        self._timeout_s, self._progress_cores = timeout, progress_cores
        if timeout:
            self._core.set_timeout(timeout)
        _open.add(self)

    @property
    def rank(self) -> int:
        return self._rank

    @property
    def size(self) -> int:
        return self._size

    def free(self) -> None:
        """Free its resources. Collective, but waits for no rank. May be called twice."""
        self._core = self._messages = None

    def __enter__(self) -> Communicator:
        return self

    def __exit__(self, *error: object) -> None:
        self.free()

    def split(self, color: int | None, key: int = 0) -> Communicator | None:
        """Make a communicator of the ranks with the same color, ordered by key and rank. Collective.

        Returns None on ranks whose color is None.
        """
        address = _penstock.ucx_open([])
        longest = array.array("q", [len(address)])
        self.Allreduce(None, longest, "max")
        mine = array.array("q", [color is not None, color or 0, key, rendezvous.random_nonce(), len(address)])
        everyone = array.array("q", bytes(mine.itemsize * len(mine) * self._size))
        self.Allgather(mine, everyone)
        addresses = bytearray(longest[0] * self._size)
        self.Allgather(bytearray(address.ljust(longest[0], b"\0")), addresses)
        if color is None:
            return None
        of_rank = [everyone[len(mine) * rank : len(mine) * (rank + 1)] for rank in range(self._size)]
        members = sorted(
            (its_key, rank) for rank, (has, its, its_key, *_) in enumerate(of_rank) if has and its == color
        )
        peers = {}
        rank, size = members.index((key, self._rank)), len(members)
        for peer in _penstock.ucx_first_peers(rank, size):
            begin = longest[0] * members[peer][1]
            peers[peer] = bytes(addresses[begin : begin + of_rank[members[peer][1]][-1]])
        nonce = of_rank[members[0][1]][3]
        return self._of(rendezvous.Group(rank, size, nonce, peers), self._timeout_s, self._progress_cores)

    def report(self) -> str:
        """Transport, shared memory, progress threads, and what is disabled and why. One fact per line. Local."""
        return self._opened.report()

    # -- collectives ------------------------------------------------------------------------------------------------

    def Barrier(self) -> None:
        """Wait until all ranks have called it."""
        self._run("barrier", None, None)

    def Ibarrier(self) -> Work:
        """Start :meth:`Barrier`."""
        return self._start("barrier", None, None)

    def Bcast(self, buf: Any, root: int = 0) -> None:
        """Send root's buffer to all ranks."""
        self._run("bcast", None, buf, root=root)

    def Ibcast(self, buf: Any, root: int = 0) -> Work:
        """Start :meth:`Bcast`."""
        return self._start("bcast", None, buf, root=root)

    def Reduce(self, sendbuf: Any, recvbuf: Any, op: str = "sum", root: int = 0) -> None:
        """Combine the ranks' arrays at root. Only root's recvbuf counts; in place only there."""
        self._run("reduce", sendbuf, recvbuf, op, root)

    def Ireduce(self, sendbuf: Any, recvbuf: Any, op: str = "sum", root: int = 0) -> Work:
        """Start :meth:`Reduce`."""
        return self._start("reduce", sendbuf, recvbuf, op, root)

    def Allreduce(self, sendbuf: Any, recvbuf: Any, op: str = "sum") -> None:
        """Combine the ranks' arrays on all ranks."""
        self._run("allreduce", sendbuf, recvbuf, op)

    def Iallreduce(self, sendbuf: Any, recvbuf: Any, op: str = "sum") -> Work:
        """Start :meth:`Allreduce`."""
        return self._start("allreduce", sendbuf, recvbuf, op)

    def Reduce_scatter_block(self, sendbuf: Any, recvbuf: Any, op: str = "sum") -> None:
        """Combine the ranks' arrays, of one block for each rank, and give each rank its block."""
        self._run("reduce_scatter_block", sendbuf, recvbuf, op)

    def Ireduce_scatter_block(self, sendbuf: Any, recvbuf: Any, op: str = "sum") -> Work:
        """Start :meth:`Reduce_scatter_block`."""
        return self._start("reduce_scatter_block", sendbuf, recvbuf, op)

    def Scan(self, sendbuf: Any, recvbuf: Any, op: str = "sum") -> None:
        """Combine the arrays of the ranks up to this one."""
        self._run("scan", sendbuf, recvbuf, op)

    def Iscan(self, sendbuf: Any, recvbuf: Any, op: str = "sum") -> Work:
        """Start :meth:`Scan`."""
        return self._start("scan", sendbuf, recvbuf, op)

    def Exscan(self, sendbuf: Any, recvbuf: Any, op: str = "sum") -> None:
        """Combine the arrays of the ranks before this one. Rank 0 receives nothing."""
        self._run("exscan", sendbuf, recvbuf, op)

    def Iexscan(self, sendbuf: Any, recvbuf: Any, op: str = "sum") -> Work:
        """Start :meth:`Exscan`."""
        return self._start("exscan", sendbuf, recvbuf, op)

    def Gather(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        """Collect a block of each rank at root. Only root's recvbuf counts."""
        self._run("gather", sendbuf, recvbuf, root=root)

    def Igather(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> Work:
        """Start :meth:`Gather`."""
        return self._start("gather", sendbuf, recvbuf, root=root)

    def Scatter(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        """Give each rank its block of root's array. Only root's sendbuf counts; ``recvbuf=None`` there is in place."""
        self._run("scatter", sendbuf, recvbuf, root=root)

    def Iscatter(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> Work:
        """Start :meth:`Scatter`."""
        return self._start("scatter", sendbuf, recvbuf, root=root)

    def Allgather(self, sendbuf: Any, recvbuf: Any) -> None:
        """Collect a block of each rank on all ranks."""
        self._run("allgather", sendbuf, recvbuf)

    def Iallgather(self, sendbuf: Any, recvbuf: Any) -> Work:
        """Start :meth:`Allgather`."""
        return self._start("allgather", sendbuf, recvbuf)

    def Alltoall(self, sendbuf: Any, recvbuf: Any) -> None:
        """Send a block to each rank, and receive one from each."""
        self._run("alltoall", sendbuf, recvbuf)

    def Ialltoall(self, sendbuf: Any, recvbuf: Any) -> Work:
        """Start :meth:`Alltoall`."""
        return self._start("alltoall", sendbuf, recvbuf)

    # -- messages ---------------------------------------------------------------------------------------------------

    def Isend(self, buf: Any, dest: int, tag: int = 0) -> Work:
        """Start to send an array. Messages of one rank under one tag match in order."""
        return Work(self._opened_messages.send(buf, dest, tag), self._timeout_s)

    def Send(self, buf: Any, dest: int, tag: int = 0) -> None:
        """Send an array. Returns when the buffer may be used again."""
        self.Isend(buf, dest, tag).wait()

    def Irecv(self, buf: Any, source: int | None = None, tag: int = 0) -> Work:
        """Start to receive into an array, which may be longer than the message; from any rank if `source` is None."""
        return Work(self._opened_messages.receive(buf, _ANY_RANK if source is None else source, tag), self._timeout_s)

    def Recv(self, buf: Any, source: int | None = None, tag: int = 0) -> Work:
        """Receive into an array. Returns the complete receive, with its ``source`` and ``size_bytes``."""
        work = self.Irecv(buf, source, tag)
        work.wait()
        return work

    # -- running ----------------------------------------------------------------------------------------------------

    @property
    def _opened(self) -> _penstock.Comm:
        if self._core is None:
            raise Error("this communicator has been freed")
        return self._core

    @property
    def _opened_messages(self) -> _penstock.UcxMessages:
        if self._messages is None:
            raise Error("this communicator has been freed")
        return self._messages

    def _in_place(self, kind: str, sendbuf: Any, recvbuf: Any, root: int) -> bool:
        if kind in ("barrier", "bcast"):
            return False
        if kind == "scatter":
            return recvbuf is None and self._rank == root
        return sendbuf is None and (self._rank == root or kind not in ("reduce", "gather"))

    def _run(self, kind: str, sendbuf: Any, recvbuf: Any, op: str = "sum", root: int = 0) -> None:
        core, in_place = self._opened, self._in_place(kind, sendbuf, recvbuf, root)
        if not core.run(kind, sendbuf, recvbuf, op, root, in_place, _AS_CHOSEN):
            self._refuse(core, kind)

    def _start(self, kind: str, sendbuf: Any, recvbuf: Any, op: str = "sum", root: int = 0) -> Work:
        core, in_place = self._opened, self._in_place(kind, sendbuf, recvbuf, root)
        pending = core.start(kind, sendbuf, recvbuf, op, root, in_place, _AS_CHOSEN)
        if pending is None:
            self._refuse(core, kind)
        return Work(pending)

    def _refuse(self, core: _penstock.Comm, kind: str) -> NoReturn:
        """Nothing has been started, so the other ranks would wait."""
        why = f"{kind}: Penstock does not compute with elements of this type; give an array of numbers"
        core.fail_next(why)
        raise Error(why)


@atexit.register
def _leave() -> None:
    """Ranks that still wait for this one get an error, and messages that UCX still has are sent."""
    for communicator in list(_open):
        communicator.free()
    _penstock.ucx_flush(_PATIENCE_S)
