"""Collectives with one block per rank, with counts and displacements. Names and arguments are mpi4py's."""

# mpi4py's methods return mpi4py's requests; these return Penstock's.
# pyright: reportIncompatibleMethodOverride=false

from __future__ import annotations

import array
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from penstock import _penstock, mpi_abi
from penstock.call import OP_NUMBERS, Call, CollectiveOptions, is_in_place, or_fail_next
from penstock.message import item_count

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from penstock.request import Prequest, Request

if TYPE_CHECKING:
    from mpi4py import MPI

    _Base = MPI.Intracomm
else:
    _Base = object
    MPI = mpi_abi.import_mpi()
_ALLTOALL = _penstock.COLLECTIVES["alltoall"]
_REDUCE_SCATTER_BLOCK = _penstock.COLLECTIVES["reduce_scatter_block"]


class BlockCollectives(_Base):
    """The collectives of :class:`penstock.Comm` with one block per rank. See there."""

    if TYPE_CHECKING:
        _open: Callable[[], _penstock.Comm]
        _run: Callable[..., None]
        _run_on_arrays: Callable[..., bool | None]
        _start: Callable[..., Request]
        _start_arrays: Callable[..., Request]
        _init: Callable[..., Prequest]
        _init_arrays: Callable[..., Prequest]

    def _gatherv(self, sendbuf: Any, recvbuf: Any, root: int) -> Call:
        call = Call("gatherv", (), root)
        at_root = self.Get_rank() == root
        call.in_place = at_root and is_in_place(sendbuf)
        if not call.in_place:
            call.send(sendbuf)
        if at_root:
            call.receive_blocks(recvbuf, self.Get_size(), keep=call.in_place)
        return call

    def _scatterv(self, sendbuf: Any, recvbuf: Any, root: int) -> Call:
        call = Call("scatterv", (), root)
        at_root = self.Get_rank() == root
        call.in_place = at_root and is_in_place(recvbuf)
        if at_root:
            call.send_blocks(sendbuf, self.Get_size())
        if not call.in_place:
            call.receive(recvbuf)
        return call

    def _allgatherv(self, sendbuf: Any, recvbuf: Any) -> Call:
        call = Call("allgatherv", ())
        call.in_place = is_in_place(sendbuf)
        if not call.in_place:
            call.send(sendbuf)
        call.receive_blocks(recvbuf, self.Get_size(), keep=call.in_place)
        return call

    def _alltoall(self, sendbuf: Any, recvbuf: Any) -> Call:
        call = Call("alltoall", ())
        call.in_place = is_in_place(sendbuf)
        if not call.in_place:
            call.send(sendbuf, self.Get_size())
        call.receive(recvbuf, self.Get_size(), keep=call.in_place)
        return call

    def _alltoallv(self, sendbuf: Any, recvbuf: Any) -> Call:
        call = Call("alltoallv", ())
        call.in_place = is_in_place(sendbuf)
        if not call.in_place:
            call.send_blocks(sendbuf, self.Get_size())
        call.receive_blocks(recvbuf, self.Get_size(), keep=call.in_place)
        return call

    def _alltoallw(self, sendbuf: Any, recvbuf: Any) -> Call:
        call = Call("alltoallw", ())
        call.in_place = is_in_place(sendbuf)
        if not call.in_place:
            call.send_typed_blocks(sendbuf, self.Get_size())
        call.receive_typed_blocks(recvbuf, self.Get_size(), keep=call.in_place)
        return call

    def _reduce_scatter_block(self, sendbuf: Any, recvbuf: Any, op: Any) -> Call:
        call = Call("reduce_scatter_block", (sendbuf, recvbuf, op))
        call.in_place = is_in_place(sendbuf)
        ranks = self.Get_size()
        return call.reduce(op, sendbuf, recvbuf, blocks=(ranks, ranks if call.in_place else 1))

    def _reduce_scatter(self, sendbuf: Any, recvbuf: Any, recvcounts: Sequence[int] | None, op: Any) -> Call:
        if recvcounts is None:  # all ranks use MPI.IN_PLACE
            recvcounts = [item_count(recvbuf) // self.Get_size()] * self.Get_size()
        call = Call("reduce_scatter", (sendbuf, recvbuf, recvcounts, op))
        call.in_place = is_in_place(sendbuf)
        call.reduce(op, sendbuf, recvbuf)
        if call.op is not None:
            call.set_recvcounts(recvcounts, self.Get_size())
        return call

    def _recvcounts(self, sendbuf: Any, recvbuf: Any, given: Any) -> Any:
        """`given`, or if it is None the length of each rank's `recvbuf`, which the ranks then exchange."""
        if given is not None or is_in_place(sendbuf):
            return given
        core = self._open()
        own, counts = array.array("q", [0]), array.array("q", [0] * self.Get_size())
        with or_fail_next(core):
            own[0] = item_count(recvbuf)
        core.run("allgather", own, counts, "sum", 0, False, {})
        return list(counts)

    def Gatherv(self, sendbuf: Any, recvbuf: Any, root: int = 0, **options: Unpack[CollectiveOptions]) -> None:
        """Concatenate blocks of any sizes in the root's `recvbuf`: [array, counts, displacements, datatype]."""
        self._run(options, self._gatherv, sendbuf, recvbuf, root)

    def Igatherv(self, sendbuf: Any, recvbuf: Any, root: int = 0, **options: Unpack[CollectiveOptions]) -> Request:
        """Start a Gatherv."""
        return self._start(options, self._gatherv, sendbuf, recvbuf, root)

    def Gatherv_init(
        self, sendbuf: Any, recvbuf: Any, root: int = 0, info: Any = None, **options: Unpack[CollectiveOptions]
    ) -> Prequest:
        """Make a persistent Gatherv. Local."""
        return self._init(options, self._gatherv, sendbuf, recvbuf, root)

    def Scatterv(self, sendbuf: Any, recvbuf: Any, root: int = 0, **options: Unpack[CollectiveOptions]) -> None:
        """Send one block of the root's `sendbuf`, [array, counts, displacements, datatype], to each rank's `recvbuf`."""
        self._run(options, self._scatterv, sendbuf, recvbuf, root)

    def Iscatterv(self, sendbuf: Any, recvbuf: Any, root: int = 0, **options: Unpack[CollectiveOptions]) -> Request:
        """Start a Scatterv."""
        return self._start(options, self._scatterv, sendbuf, recvbuf, root)

    def Scatterv_init(
        self, sendbuf: Any, recvbuf: Any, root: int = 0, info: Any = None, **options: Unpack[CollectiveOptions]
    ) -> Prequest:
        """Make a persistent Scatterv. Local."""
        return self._init(options, self._scatterv, sendbuf, recvbuf, root)

    def Allgatherv(self, sendbuf: Any, recvbuf: Any, **options: Unpack[CollectiveOptions]) -> None:
        """Concatenate blocks of any sizes in every rank's `recvbuf`. The counts are equal on all ranks."""
        self._run(options, self._allgatherv, sendbuf, recvbuf)

    def Iallgatherv(self, sendbuf: Any, recvbuf: Any, **options: Unpack[CollectiveOptions]) -> Request:
        """Start an Allgatherv."""
        return self._start(options, self._allgatherv, sendbuf, recvbuf)

    def Allgatherv_init(
        self, sendbuf: Any, recvbuf: Any, info: Any = None, **options: Unpack[CollectiveOptions]
    ) -> Prequest:
        """Make a persistent Allgatherv. Local."""
        return self._init(options, self._allgatherv, sendbuf, recvbuf)

    def Alltoall(self, sendbuf: Any, recvbuf: Any, **options: Unpack[CollectiveOptions]) -> None:
        """Send block i of `sendbuf` to rank i; receive rank i's block as block i of `recvbuf`."""
        if not self._run_on_arrays(_ALLTOALL, -1, 0, sendbuf, recvbuf, options):
            self._run(options, self._alltoall, sendbuf, recvbuf)

    def Ialltoall(self, sendbuf: Any, recvbuf: Any, **options: Unpack[CollectiveOptions]) -> Request:
        """Start an Alltoall."""
        on_arrays = (_ALLTOALL, -1, 0, sendbuf, recvbuf)
        return self._start_arrays(options, on_arrays, self._alltoall, sendbuf, recvbuf)

    def Alltoall_init(
        self, sendbuf: Any, recvbuf: Any, info: Any = None, **options: Unpack[CollectiveOptions]
    ) -> Prequest:
        """Make a persistent Alltoall. Local."""
        on_arrays = (_ALLTOALL, -1, 0, sendbuf, recvbuf)
        return self._init_arrays(options, on_arrays, self._alltoall, sendbuf, recvbuf)

    def Alltoallv(self, sendbuf: Any, recvbuf: Any, **options: Unpack[CollectiveOptions]) -> None:
        """As Alltoall, with this rank's counts and displacements in both buffers."""
        self._run(options, self._alltoallv, sendbuf, recvbuf)

    def Ialltoallv(self, sendbuf: Any, recvbuf: Any, **options: Unpack[CollectiveOptions]) -> Request:
        """Start an Alltoallv."""
        return self._start(options, self._alltoallv, sendbuf, recvbuf)

    def Alltoallv_init(
        self, sendbuf: Any, recvbuf: Any, info: Any = None, **options: Unpack[CollectiveOptions]
    ) -> Prequest:
        """Make a persistent Alltoallv. Local."""
        return self._init(options, self._alltoallv, sendbuf, recvbuf)

    def Alltoallw(self, sendbuf: Any, recvbuf: Any, **options: Unpack[CollectiveOptions]) -> None:
        """As Alltoallv, with a datatype per rank: [array, counts, displacements in bytes, datatypes]."""
        self._run(options, self._alltoallw, sendbuf, recvbuf)

    def Ialltoallw(self, sendbuf: Any, recvbuf: Any, **options: Unpack[CollectiveOptions]) -> Request:
        """Start an Alltoallw."""
        return self._start(options, self._alltoallw, sendbuf, recvbuf)

    def Alltoallw_init(
        self, sendbuf: Any, recvbuf: Any, info: Any = None, **options: Unpack[CollectiveOptions]
    ) -> Prequest:
        """Make a persistent Alltoallw. Local."""
        return self._init(options, self._alltoallw, sendbuf, recvbuf)

    def Reduce_scatter_block(
        self, sendbuf: Any, recvbuf: Any, op: Any = MPI.SUM, **options: Unpack[CollectiveOptions]
    ) -> None:
        """Combine the `sendbuf` of all ranks, which has one block per rank; each rank receives its block."""
        if not self._run_on_arrays(_REDUCE_SCATTER_BLOCK, OP_NUMBERS.get(id(op), -1), 0, sendbuf, recvbuf, options):
            self._run(options, self._reduce_scatter_block, sendbuf, recvbuf, op)

    def Ireduce_scatter_block(
        self, sendbuf: Any, recvbuf: Any, op: Any = MPI.SUM, **options: Unpack[CollectiveOptions]
    ) -> Request:
        """Start a Reduce_scatter_block."""
        on_arrays = (_REDUCE_SCATTER_BLOCK, OP_NUMBERS.get(id(op), -1), 0, sendbuf, recvbuf)
        return self._start_arrays(options, on_arrays, self._reduce_scatter_block, sendbuf, recvbuf, op)

    def Reduce_scatter_block_init(
        self, sendbuf: Any, recvbuf: Any, op: Any = MPI.SUM, info: Any = None, **options: Unpack[CollectiveOptions]
    ) -> Prequest:
        """Make a persistent Reduce_scatter_block. Local."""
        on_arrays = (_REDUCE_SCATTER_BLOCK, OP_NUMBERS.get(id(op), -1), 0, sendbuf, recvbuf)
        return self._init_arrays(options, on_arrays, self._reduce_scatter_block, sendbuf, recvbuf, op)

    def Reduce_scatter(
        self,
        sendbuf: Any,
        recvbuf: Any,
        recvcounts: Any = None,
        op: Any = MPI.SUM,
        **options: Unpack[CollectiveOptions],
    ) -> None:
        """Combine the ranks' `sendbuf` and give rank i the next ``recvcounts[i]`` elements.

        Without `recvcounts` each rank gets as many as its `recvbuf` has: the ranks tell each other, one collective more.
        In place it is equally many.
        """
        self._run(options, self._reduce_scatter, sendbuf, recvbuf, self._recvcounts(sendbuf, recvbuf, recvcounts), op)

    def Ireduce_scatter(
        self,
        sendbuf: Any,
        recvbuf: Any,
        recvcounts: Any = None,
        op: Any = MPI.SUM,
        **options: Unpack[CollectiveOptions],
    ) -> Request:
        """Start a Reduce_scatter. Without `recvcounts` it blocks while the ranks exchange them."""
        return self._start(
            options, self._reduce_scatter, sendbuf, recvbuf, self._recvcounts(sendbuf, recvbuf, recvcounts), op
        )

    def Reduce_scatter_init(
        self,
        sendbuf: Any,
        recvbuf: Any,
        recvcounts: Any = None,
        op: Any = MPI.SUM,
        info: Any = None,
        **options: Unpack[CollectiveOptions],
    ) -> Prequest:
        """Make a persistent Reduce_scatter. Local; collective without `recvcounts`, which the ranks then exchange."""
        return self._init(
            options, self._reduce_scatter, sendbuf, recvbuf, self._recvcounts(sendbuf, recvbuf, recvcounts), op
        )
