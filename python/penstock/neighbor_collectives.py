"""Collectives among neighbours, with mpi4py's names and arguments."""

# mpi4py's methods return mpi4py's requests; these return Penstock's.
# pyright: reportIncompatibleMethodOverride=false

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock import _penstock, mpi_abi
from penstock.call import Call, CollectiveOptions
from penstock.error import Error

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from penstock.request import Prequest, Request

if TYPE_CHECKING:
    from mpi4py import MPI

    _Base = MPI.Intracomm
else:
    _Base = object
    MPI = mpi_abi.import_mpi()
_ALLGATHER = _penstock.COLLECTIVES["neighbor_allgather"]
_ALLTOALL = _penstock.COLLECTIVES["neighbor_alltoall"]


def _call(kind: str, sendbuf: Any) -> Call:
    if sendbuf is MPI.IN_PLACE:
        raise Error(f"{kind}: MPI.IN_PLACE has no meaning in a neighbourhood; give a send buffer")
    return Call(kind, ())


class NeighborCollectives(_Base):
    """The collectives of :class:`penstock.Comm` among the neighbours of each rank. See there."""

    if TYPE_CHECKING:
        _open: Callable[[], _penstock.Comm]
        _run: Callable[..., None]
        _run_on_arrays: Callable[..., bool | None]
        _start: Callable[..., Request]
        _start_arrays: Callable[..., Request]
        _init: Callable[..., Prequest]
        _init_arrays: Callable[..., Prequest]

    # Receive buffers are kept, since blocks of neighbours that do not exist must stay as they are.

    @property
    def degrees(self) -> tuple[int, int]:
        """The numbers of this rank's sources and destinations, places without a neighbour included. Local."""
        return self._open().degrees

    def _neighbor_allgather(self, sendbuf: Any, recvbuf: Any) -> Call:
        call = _call("neighbor_allgather", sendbuf)
        call.send(sendbuf)
        call.receive(recvbuf, self.degrees[0], keep=True)
        return call

    def _neighbor_allgatherv(self, sendbuf: Any, recvbuf: Any) -> Call:
        call = _call("neighbor_allgatherv", sendbuf)
        call.send(sendbuf)
        call.receive_blocks(recvbuf, self.degrees[0], keep=True)
        return call

    def _neighbor_alltoall(self, sendbuf: Any, recvbuf: Any) -> Call:
        call = _call("neighbor_alltoall", sendbuf)
        sources, destinations = self.degrees
        call.send(sendbuf, destinations)
        call.receive(recvbuf, sources, keep=True)
        return call

    def _neighbor_alltoallv(self, sendbuf: Any, recvbuf: Any) -> Call:
        call = _call("neighbor_alltoallv", sendbuf)
        sources, destinations = self.degrees
        call.send_blocks(sendbuf, destinations)
        call.receive_blocks(recvbuf, sources, keep=True)
        return call

    def _neighbor_alltoallw(self, sendbuf: Any, recvbuf: Any) -> Call:
        call = _call("neighbor_alltoallw", sendbuf)
        sources, destinations = self.degrees
        call.send_typed_blocks(sendbuf, destinations)
        call.receive_typed_blocks(recvbuf, sources, keep=True)
        return call

    def Neighbor_allgather(self, sendbuf: Any, recvbuf: Any, **options: Unpack[CollectiveOptions]) -> None:
        """Concatenate the `sendbuf` of all sources in `recvbuf`, in their order."""
        if not self._run_on_arrays(_ALLGATHER, -1, 0, sendbuf, recvbuf, options):
            self._run(options, self._neighbor_allgather, sendbuf, recvbuf)

    def Ineighbor_allgather(self, sendbuf: Any, recvbuf: Any, **options: Unpack[CollectiveOptions]) -> Request:
        """Start a Neighbor_allgather."""
        on_arrays = (_ALLGATHER, -1, 0, sendbuf, recvbuf)
        return self._start_arrays(options, on_arrays, self._neighbor_allgather, sendbuf, recvbuf)

    def Neighbor_allgather_init(
        self, sendbuf: Any, recvbuf: Any, info: Any = None, **options: Unpack[CollectiveOptions]
    ) -> Prequest:
        """Make a persistent Neighbor_allgather. Local."""
        on_arrays = (_ALLGATHER, -1, 0, sendbuf, recvbuf)
        return self._init_arrays(options, on_arrays, self._neighbor_allgather, sendbuf, recvbuf)

    def Neighbor_allgatherv(self, sendbuf: Any, recvbuf: Any, **options: Unpack[CollectiveOptions]) -> None:
        """As Neighbor_allgather, with blocks of any sizes: `recvbuf` is [array, counts, displacements, datatype]."""
        self._run(options, self._neighbor_allgatherv, sendbuf, recvbuf)

    def Ineighbor_allgatherv(self, sendbuf: Any, recvbuf: Any, **options: Unpack[CollectiveOptions]) -> Request:
        """Start a Neighbor_allgatherv."""
        return self._start(options, self._neighbor_allgatherv, sendbuf, recvbuf)

    def Neighbor_allgatherv_init(
        self, sendbuf: Any, recvbuf: Any, info: Any = None, **options: Unpack[CollectiveOptions]
    ) -> Prequest:
        """Make a persistent Neighbor_allgatherv. Local."""
        return self._init(options, self._neighbor_allgatherv, sendbuf, recvbuf)

    def Neighbor_alltoall(self, sendbuf: Any, recvbuf: Any, **options: Unpack[CollectiveOptions]) -> None:
        """Send block i of `sendbuf` to destination i; receive the block of source i as block i of `recvbuf`."""
        if not self._run_on_arrays(_ALLTOALL, -1, 0, sendbuf, recvbuf, options):
            self._run(options, self._neighbor_alltoall, sendbuf, recvbuf)

    def Ineighbor_alltoall(self, sendbuf: Any, recvbuf: Any, **options: Unpack[CollectiveOptions]) -> Request:
        """Start a Neighbor_alltoall."""
        on_arrays = (_ALLTOALL, -1, 0, sendbuf, recvbuf)
        return self._start_arrays(options, on_arrays, self._neighbor_alltoall, sendbuf, recvbuf)

    def Neighbor_alltoall_init(
        self, sendbuf: Any, recvbuf: Any, info: Any = None, **options: Unpack[CollectiveOptions]
    ) -> Prequest:
        """Make a persistent Neighbor_alltoall. Local."""
        on_arrays = (_ALLTOALL, -1, 0, sendbuf, recvbuf)
        return self._init_arrays(options, on_arrays, self._neighbor_alltoall, sendbuf, recvbuf)

    def Neighbor_alltoallv(self, sendbuf: Any, recvbuf: Any, **options: Unpack[CollectiveOptions]) -> None:
        """As Neighbor_alltoall, with counts and displacements in both buffers."""
        self._run(options, self._neighbor_alltoallv, sendbuf, recvbuf)

    def Ineighbor_alltoallv(self, sendbuf: Any, recvbuf: Any, **options: Unpack[CollectiveOptions]) -> Request:
        """Start a Neighbor_alltoallv."""
        return self._start(options, self._neighbor_alltoallv, sendbuf, recvbuf)

    def Neighbor_alltoallv_init(
        self, sendbuf: Any, recvbuf: Any, info: Any = None, **options: Unpack[CollectiveOptions]
    ) -> Prequest:
        """Make a persistent Neighbor_alltoallv. Local."""
        return self._init(options, self._neighbor_alltoallv, sendbuf, recvbuf)

    def Neighbor_alltoallw(self, sendbuf: Any, recvbuf: Any, **options: Unpack[CollectiveOptions]) -> None:
        """As Neighbor_alltoallv, with a datatype per neighbour: [array, counts, displacements in bytes, datatypes]."""
        self._run(options, self._neighbor_alltoallw, sendbuf, recvbuf)

    def Ineighbor_alltoallw(self, sendbuf: Any, recvbuf: Any, **options: Unpack[CollectiveOptions]) -> Request:
        """Start a Neighbor_alltoallw."""
        return self._start(options, self._neighbor_alltoallw, sendbuf, recvbuf)

    def Neighbor_alltoallw_init(
        self, sendbuf: Any, recvbuf: Any, info: Any = None, **options: Unpack[CollectiveOptions]
    ) -> Prequest:
        """Make a persistent Neighbor_alltoallw. Local."""
        return self._init(options, self._neighbor_alltoallw, sendbuf, recvbuf)
