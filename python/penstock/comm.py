"""Communicators: mpi4py's Intracomm with Penstock's collectives."""

# mpi4py's methods return mpi4py's requests; these return Penstock's.
# pyright: reportIncompatibleMethodOverride=false

from __future__ import annotations

import atexit
import collections
import json
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast, overload

from penstock import _penstock, mpi_abi
from penstock.block_collectives import BlockCollectives
from penstock.call import OP_NUMBERS, Call, CollectiveOptions, is_in_place, or_fail_next
from penstock.error import Error
from penstock.native import Natives
from penstock.neighbor_collectives import NeighborCollectives
from penstock.plan import algorithms
from penstock.redistribute import redistribute
from penstock.request import Prequest, Request

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from penstock.layout import DistArray, Layout
    from penstock.redistribute import Redistribution, RedistributionBatch

if TYPE_CHECKING:
    from mpi4py import MPI
else:
    MPI = mpi_abi.import_mpi()

_PLANNED = {algorithm.collective for algorithm in algorithms()}
_KINDS: dict[str, int] = _penstock.COLLECTIVES


def _needs_general_path(kind: int, op: int, root: int, sends: Any, receives: Any, options: CollectiveOptions) -> None:
    return None


# By id: communicators of mpi4py are not hashable.
_open_comms: weakref.WeakValueDictionary[int, Comm] = weakref.WeakValueDictionary()


class Comm(BlockCollectives, NeighborCollectives, MPI.Intracomm):
    """An mpi4py communicator whose collectives are Penstock's. Making one is collective.

    Penstock runs Barrier, Bcast, Reduce, Allreduce, Reduce_scatter_block, Reduce_scatter, Scan, Exscan, Gather, Gatherv,
    Scatter, Scatterv, Allgather, Allgatherv, Alltoall, Alltoallv and Alltoallw, on a private duplicate of `comm`. Each has a
    blocking, a non-blocking (``Iallreduce``) and a persistent (``Allreduce_init``) form. If `comm` has a Cartesian, graph or
    distributed graph topology, so do Neighbor_allgather, Neighbor_allgatherv, Neighbor_alltoall, Neighbor_alltoallv and
    Neighbor_alltoallw, whose blocks have the order of its neighbours. Everything else is MPI's, on `comm` itself.

    Buffers are those of mpi4py; derived datatypes are packed. All collectives take the keywords of
    :class:`CollectiveOptions`, such as ``split``.

    Reductions take MPI's predefined operations, those of ``MPI.Op.Create``, and callables. A callable gets two arrays, of
    lower and of higher ranks, and returns the combined one, or changes the second in place. Operations that do not commute,
    callables among them, are combined in rank order.

    If Penstock has no kernel for an operation or element type, it combines with MPI's ``Reduce_local``, on any thread. If
    MPI forbids that, or if a datatype reaches beyond its extent, MPI runs the reduction; ``report()`` counts these. MPI
    then runs it on a thread of its own once all ranks have called; without MPI_THREAD_MULTIPLE, inside any call of
    Penstock that waits or tests.

    All ranks call the collectives of one communicator in the same order, from one thread at a time. Invalid arguments raise
    ``penstock.Error`` on this rank, and "peer_failed" or "mismatch" on the others. No rank hangs.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        The caller keeps it. It must outlive this communicator.
    progress_cores : "auto" or int
        Communication cores per node: cores for progress threads, which advance operations while the application computes.
        The threads are spread over the processes of the node. "auto" uses the job's cores that no rank of the node needs,
        at most one per rank. 0 disables them. A number is used even if the ranks need the cores. ``report()`` lists them.
    """

    _core: _penstock.Comm | None
    _natives: Natives
    _native_runs: collections.Counter[str]
    _progress_cores: str | int
    #: Run or start a call on whole arrays without further Python. False or None if the call needs the general path.
    _run_on_arrays: Callable[..., bool | None] = staticmethod(_needs_general_path)
    _start_on_arrays: Callable[..., _penstock.Request | None] = staticmethod(_needs_general_path)

    def __new__(cls, comm: Any = None, progress_cores: str | int = "auto") -> Comm:
        if comm is not None and (isinstance(comm, MPI.Intercomm) or not isinstance(comm, MPI.Comm)):
            raise Error(f"comm is a {type(comm).__name__}; expected an intra-communicator of mpi4py")
        self = super().__new__(cls, comm)
        self._core = None
        self._progress_cores = progress_cores
        self._native_runs = collections.Counter()
        if comm is None:  # mpi4py makes an empty communicator and fills it
            return self
        cores = -1 if progress_cores == "auto" else progress_cores
        # The library rejects an invalid value (-2) on all ranks.
        asked = cores if isinstance(cores, int) and cores >= -1 else -2
        try:
            self._core = _penstock.comm_from_address(
                mpi_abi.entry_point(MPI, "penstock_comm_from_address"), MPI._addressof(comm), asked
            )
        except Error as error:
            if asked != -2 or error.code != "invalid_argument":
                raise
            raise Error(
                f'progress_cores is {progress_cores!r}; expected "auto", 0, or a number of cores per node'
            ) from error
        try:
            self._natives = Natives(self._plain(), self._core.any_thread)
        except Error:
            self._core = None
            raise
        self._run_on_arrays = self._core.run_on_arrays
        self._start_on_arrays = self._core.start_on_arrays
        _open_comms[id(self)] = self
        return self

    # -- life ---------------------------------------------------------------------------------------------------

    def free(self) -> None:
        """Free Penstock's resources. The communicator it was made from stays open. May be called twice.

        Collective, but waits for no rank.
        """
        if self._core is not None:
            self._core = None
            del self._run_on_arrays, self._start_on_arrays
            self._natives.free()

    def Free(self) -> None:
        """Free Penstock's resources and the MPI communicator, as mpi4py's ``Free``. Collective."""
        self.free()
        super().Free()

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Pickles MPI's own communicators, as mpi4py does. The unpickling process must have made the same one."""
        for name in ("COMM_WORLD", "COMM_SELF"):
            if self == getattr(MPI, name):
                return (_open_on, (type(self), name))
        return (type(self), ()) if self == MPI.COMM_NULL else super().__reduce__()  # raises

    def __enter__(self) -> Comm:
        return self

    def __exit__(self, *error: object) -> None:
        self.free()

    def _adopt(self, native: MPI.Comm) -> Comm:
        if native == MPI.COMM_NULL:
            return cast("Comm", native)  # mpi4py, too, types COMM_NULL as a communicator
        return type(self)(native, progress_cores=self._progress_cores)

    def _plain(self) -> MPI.Intracomm:
        return MPI.Intracomm(self)

    def Dup(self, info: Any = None) -> Comm:
        """Duplicate. The result is a Penstock communicator that owns its MPI communicator. Collective."""
        return self._adopt(self._plain().Dup(info))

    def Clone(self) -> Comm:
        """Duplicate, as ``Dup``."""
        return self._adopt(self._plain().Clone())

    def Split(self, color: int = 0, key: int = 0) -> Comm:
        """Split by color and key into Penstock communicators; COMM_NULL if color is UNDEFINED. Collective."""
        return self._adopt(self._plain().Split(color, key))

    def Split_type(self, split_type: int, key: int = 0, info: Any = MPI.INFO_NULL) -> Comm:
        """Split by type into Penstock communicators. Collective."""
        return self._adopt(self._plain().Split_type(split_type, key, info))

    def Create(self, group: Any) -> Comm:
        """Make a Penstock communicator of a group; COMM_NULL outside of the group. Collective."""
        return self._adopt(self._plain().Create(group))

    def Create_group(self, group: Any, tag: int = 0) -> Comm:
        """Make a Penstock communicator of a group. Collective over the group."""
        return self._adopt(self._plain().Create_group(group, tag))

    # -- redistribution -----------------------------------------------------------------------------------------

    @overload
    def plan_redistribute(
        self, source: Layout, target: Layout, dtype: Any, op: str = "N", relabel: bool | str = False, **part: Any
    ) -> Redistribution: ...

    @overload
    def plan_redistribute(
        self,
        source: Sequence[Layout],
        target: Sequence[Layout],
        dtype: Any,
        op: str = "N",
        relabel: bool | str = False,
        **part: Any,
    ) -> RedistributionBatch: ...

    def plan_redistribute(
        self, source: Any, target: Any, dtype: Any, op: str = "N", relabel: bool | str = False, **part: Any
    ) -> Any:
        """Plan target = alpha * op(source) + beta * target; see :func:`penstock.redistribute.plan_redistribute`.

        Lists of sources and targets make a batch: :func:`penstock.redistribute.plan_batch`.
        """
        from penstock.redistribute import plan_batch, plan_redistribute

        plan: Callable[..., Any] = plan_batch if isinstance(source, (list, tuple)) else plan_redistribute
        return plan(self, source, target, dtype, op=op, relabel=relabel, **part)

    def redistribute(
        self,
        source: DistArray,
        target: DistArray,
        op: str = "N",
        alpha: complex = 1,
        beta: complex = 0,
        workspace: Any = None,
    ) -> None:
        """Compute target = alpha * op(source) + beta * target with a cached plan. Collective and blocking.

        See :func:`penstock.redistribute.redistribute`.
        """
        redistribute(self, source, target, op, alpha, beta, workspace).Wait()

    def iredistribute(
        self,
        source: DistArray,
        target: DistArray,
        op: str = "N",
        alpha: complex = 1,
        beta: complex = 0,
        workspace: Any = None,
    ) -> Request:
        """Start :meth:`redistribute`. If a plan is cached, the call does not block. The memory belongs to the request."""
        return redistribute(self, source, target, op, alpha, beta, workspace)

    # -- what would run, what has run ---------------------------------------------------------------------------

    def explain(
        self,
        operation: str,
        nbytes: int = 0,
        *,
        dtype: str = "uint8",
        op: str = "sum",
        root: int = 0,
        **options: Unpack[CollectiveOptions],
    ) -> dict[str, Any]:
        """The plan that would run, and why. Local.

        Parameters
        ----------
        operation : str
            "allreduce", "bcast", …
        nbytes : int
            Size of one rank's contribution in bytes; for bcast, gather, scatter and allgather, of one rank's block.
        dtype, op : str
            Element type and operation of a reduction.
        root : int
            Root of a rooted operation.
        **options
            Keywords of the operation; see :class:`CollectiveOptions`.

        Returns
        -------
        dict
            "operation", "algorithm" ("native" if MPI would run it) and "reason". If there is a plan, also "cost", "steps",
            "messages", "sent_bytes" and others, for this rank.
        """
        if operation not in _PLANNED:
            reason = "Penstock has no plan for this operation; MPI's own runs"
            return {"operation": operation, "algorithm": "native", "reason": reason}
        facts: dict[str, Any] = json.loads(self._open().explain(operation, nbytes, dtype, op, root, options))
        return facts

    def report(self) -> str:
        """Transport, shared memory, progress threads, and what is disabled and why. One fact per line. Local."""
        text = self._open().report()
        for reason, times in sorted(self._native_runs.items()):
            text += f"native: {reason} ({times} times)\n"
        return text

    # -- running ------------------------------------------------------------------------------------------------

    def _open(self) -> _penstock.Comm:
        if self._core is None:
            raise Error("this communicator has been freed, or was not made by penstock.Comm(comm)")
        return self._core

    def _run(self, options: CollectiveOptions, prepare: Callable[..., Call], *arguments: Any) -> None:
        core = self._open()
        call = self._prepared(core, prepare, arguments)
        if call.op is not None and core.run(
            call.kind, call.input, call.output, call.op, call.root, call.in_place, options, call.blocks, call.user
        ):
            if call.finish is not None:
                call.finish()
            return
        self._start_native(core, call, options, waits=True).Wait()

    def _start(self, options: CollectiveOptions, prepare: Callable[..., Call], *arguments: Any) -> Request:
        core = self._open()
        call = self._prepared(core, prepare, arguments)
        if call.op is not None:
            pending = core.start(
                call.kind, call.input, call.output, call.op, call.root, call.in_place, options, call.blocks, call.user
            )
            if pending is not None:
                return Request(pending, call.finish)
        return self._start_native(core, call, options, waits=False)

    def _start_arrays(
        self,
        options: CollectiveOptions,
        on_arrays: tuple[int, int, int, Any, Any],
        prepare: Callable[..., Call],
        *arguments: Any,
    ) -> Request:
        """As _start, first by the arguments of _start_on_arrays."""
        pending = self._start_on_arrays(*on_arrays, options)
        return self._start(options, prepare, *arguments) if pending is None else Request(pending)

    def _init_arrays(
        self,
        options: CollectiveOptions,
        on_arrays: tuple[int, int, int, Any, Any],
        prepare: Callable[..., Call],
        *arguments: Any,
    ) -> Prequest:
        self._open()
        return Prequest(lambda: self._start_arrays(options, on_arrays, prepare, *arguments))

    def _init(self, options: CollectiveOptions, prepare: Callable[..., Call], *arguments: Any) -> Prequest:
        self._open()
        return Prequest(lambda: self._start(options, prepare, *arguments))

    def _prepared(self, core: _penstock.Comm, prepare: Callable[..., Call], arguments: tuple[Any, ...]) -> Call:
        with or_fail_next(core):
            call = prepare(*arguments)
            if call.calls_mpi and not core.any_thread:
                call.op = None
            if call.op is None:
                call.check_for_mpi(self.Get_rank(), self.Get_size())
            return call

    def _start_native(self, core: _penstock.Comm, call: Call, options: CollectiveOptions, *, waits: bool) -> Request:
        """Only reductions are native. MPI requires equal operations and types on all ranks, so all ranks decide alike."""
        if options.get("reproducible"):
            why = (
                f"{call.kind}: MPI itself reduces by this operation or elements of this type, which is not reproducible"
            )
            core.fail_next(why)
            raise Error(why + "; give an operation and a type that Penstock computes with")
        self._native_runs[f"{call.kind}: its operation or element type has no plan"] += 1
        return Request(self._natives.start(core, call.kind, call.native, waits=waits))

    # -- the collectives ----------------------------------------------------------------------------------------

    def _barrier(self) -> Call:
        return Call("barrier", ())

    def _bcast(self, buf: Any, root: int) -> Call:
        call = Call("bcast", (buf, root), root)
        call.receive(buf, keep=self.Get_rank() == root)
        return call

    def _reduce(self, sendbuf: Any, recvbuf: Any, op: Any, root: int) -> Call:
        call = Call("reduce", (sendbuf, recvbuf, op, root), root)
        at_root = self.Get_rank() == root
        call.in_place = at_root and is_in_place(sendbuf)
        return call.reduce(op, sendbuf, recvbuf, receives=at_root)

    def _allreduce(self, sendbuf: Any, recvbuf: Any, op: Any) -> Call:
        call = Call("allreduce", (sendbuf, recvbuf, op))
        call.in_place = is_in_place(sendbuf)
        return call.reduce(op, sendbuf, recvbuf)

    def _scan(self, kind: str, sendbuf: Any, recvbuf: Any, op: Any) -> Call:
        call = Call(kind, (sendbuf, recvbuf, op))
        call.in_place = is_in_place(sendbuf)
        return call.reduce(op, sendbuf, recvbuf, receives=call.in_place or kind == "scan" or self.Get_rank() > 0)

    def _gather(self, sendbuf: Any, recvbuf: Any, root: int) -> Call:
        call = Call("gather", (), root)
        at_root = self.Get_rank() == root
        call.in_place = at_root and is_in_place(sendbuf)
        if not call.in_place:
            call.send(sendbuf)
        if at_root:
            call.receive(recvbuf, self.Get_size(), keep=call.in_place)
        return call

    def _scatter(self, sendbuf: Any, recvbuf: Any, root: int) -> Call:
        call = Call("scatter", (), root)
        at_root = self.Get_rank() == root
        call.in_place = at_root and is_in_place(recvbuf)
        if at_root:
            call.send(sendbuf, self.Get_size())
        if not call.in_place:
            call.receive(recvbuf)
        return call

    def _allgather(self, sendbuf: Any, recvbuf: Any) -> Call:
        call = Call("allgather", ())
        call.in_place = is_in_place(sendbuf)
        if not call.in_place:
            call.send(sendbuf)
        call.receive(recvbuf, self.Get_size(), keep=call.in_place)
        return call

    def Barrier(self, **options: Unpack[CollectiveOptions]) -> None:
        """Wait until all ranks have called it."""
        if not self._run_on_arrays(_KINDS["barrier"], -1, 0, None, None, options):
            self._run(options, self._barrier)

    def Ibarrier(self, **options: Unpack[CollectiveOptions]) -> Request:
        """Start a barrier; the request is complete when all ranks have started theirs."""
        on_arrays = (_KINDS["barrier"], -1, 0, None, None)
        return self._start_arrays(options, on_arrays, self._barrier)

    def Barrier_init(self, info: Any = None, **options: Unpack[CollectiveOptions]) -> Prequest:
        """Make a persistent barrier. Local."""
        on_arrays = (_KINDS["barrier"], -1, 0, None, None)
        return self._init_arrays(options, on_arrays, self._barrier)

    def Bcast(self, buf: Any, root: int = 0, **options: Unpack[CollectiveOptions]) -> None:
        """Copy the root's `buf` to all ranks."""
        if not self._run_on_arrays(_KINDS["bcast"], -1, root, None, buf, options):
            self._run(options, self._bcast, buf, root)

    def Ibcast(self, buf: Any, root: int = 0, **options: Unpack[CollectiveOptions]) -> Request:
        """Start a Bcast."""
        on_arrays = (_KINDS["bcast"], -1, root, None, buf)
        return self._start_arrays(options, on_arrays, self._bcast, buf, root)

    def Bcast_init(self, buf: Any, root: int = 0, info: Any = None, **options: Unpack[CollectiveOptions]) -> Prequest:
        """Make a persistent Bcast. Local."""
        on_arrays = (_KINDS["bcast"], -1, root, None, buf)
        return self._init_arrays(options, on_arrays, self._bcast, buf, root)

    def Reduce(
        self, sendbuf: Any, recvbuf: Any, op: Any = MPI.SUM, root: int = 0, **options: Unpack[CollectiveOptions]
    ) -> None:
        """Combine the `sendbuf` of all ranks, element by element, into the root's `recvbuf`."""
        if not self._run_on_arrays(_KINDS["reduce"], OP_NUMBERS.get(id(op), -1), root, sendbuf, recvbuf, options):
            self._run(options, self._reduce, sendbuf, recvbuf, op, root)

    def Ireduce(
        self, sendbuf: Any, recvbuf: Any, op: Any = MPI.SUM, root: int = 0, **options: Unpack[CollectiveOptions]
    ) -> Request:
        """Start a Reduce."""
        on_arrays = (_KINDS["reduce"], OP_NUMBERS.get(id(op), -1), root, sendbuf, recvbuf)
        return self._start_arrays(options, on_arrays, self._reduce, sendbuf, recvbuf, op, root)

    def Reduce_init(
        self,
        sendbuf: Any,
        recvbuf: Any,
        op: Any = MPI.SUM,
        root: int = 0,
        info: Any = None,
        **options: Unpack[CollectiveOptions],
    ) -> Prequest:
        """Make a persistent Reduce. Local."""
        on_arrays = (_KINDS["reduce"], OP_NUMBERS.get(id(op), -1), root, sendbuf, recvbuf)
        return self._init_arrays(options, on_arrays, self._reduce, sendbuf, recvbuf, op, root)

    def Allreduce(self, sendbuf: Any, recvbuf: Any, op: Any = MPI.SUM, **options: Unpack[CollectiveOptions]) -> None:
        """Combine the `sendbuf` of all ranks, element by element, into every rank's `recvbuf`."""
        if not self._run_on_arrays(_KINDS["allreduce"], OP_NUMBERS.get(id(op), -1), 0, sendbuf, recvbuf, options):
            self._run(options, self._allreduce, sendbuf, recvbuf, op)

    def Iallreduce(
        self, sendbuf: Any, recvbuf: Any, op: Any = MPI.SUM, **options: Unpack[CollectiveOptions]
    ) -> Request:
        """Start an Allreduce."""
        on_arrays = (_KINDS["allreduce"], OP_NUMBERS.get(id(op), -1), 0, sendbuf, recvbuf)
        return self._start_arrays(options, on_arrays, self._allreduce, sendbuf, recvbuf, op)

    def Allreduce_init(
        self, sendbuf: Any, recvbuf: Any, op: Any = MPI.SUM, info: Any = None, **options: Unpack[CollectiveOptions]
    ) -> Prequest:
        """Make a persistent Allreduce. Local."""
        on_arrays = (_KINDS["allreduce"], OP_NUMBERS.get(id(op), -1), 0, sendbuf, recvbuf)
        return self._init_arrays(options, on_arrays, self._allreduce, sendbuf, recvbuf, op)

    def Scan(self, sendbuf: Any, recvbuf: Any, op: Any = MPI.SUM, **options: Unpack[CollectiveOptions]) -> None:
        """Combine the `sendbuf` of the ranks up to this one, element by element, into `recvbuf`."""
        if not self._run_on_arrays(_KINDS["scan"], OP_NUMBERS.get(id(op), -1), 0, sendbuf, recvbuf, options):
            self._run(options, self._scan, "scan", sendbuf, recvbuf, op)

    def Iscan(self, sendbuf: Any, recvbuf: Any, op: Any = MPI.SUM, **options: Unpack[CollectiveOptions]) -> Request:
        """Start a Scan."""
        on_arrays = (_KINDS["scan"], OP_NUMBERS.get(id(op), -1), 0, sendbuf, recvbuf)
        return self._start_arrays(options, on_arrays, self._scan, "scan", sendbuf, recvbuf, op)

    def Scan_init(
        self, sendbuf: Any, recvbuf: Any, op: Any = MPI.SUM, info: Any = None, **options: Unpack[CollectiveOptions]
    ) -> Prequest:
        """Make a persistent Scan. Local."""
        on_arrays = (_KINDS["scan"], OP_NUMBERS.get(id(op), -1), 0, sendbuf, recvbuf)
        return self._init_arrays(options, on_arrays, self._scan, "scan", sendbuf, recvbuf, op)

    def Exscan(self, sendbuf: Any, recvbuf: Any, op: Any = MPI.SUM, **options: Unpack[CollectiveOptions]) -> None:
        """Combine the `sendbuf` of the ranks before this one into `recvbuf`. On rank 0 `recvbuf` keeps its values."""
        if not self._run_on_arrays(_KINDS["exscan"], OP_NUMBERS.get(id(op), -1), 0, sendbuf, recvbuf, options):
            self._run(options, self._scan, "exscan", sendbuf, recvbuf, op)

    def Iexscan(self, sendbuf: Any, recvbuf: Any, op: Any = MPI.SUM, **options: Unpack[CollectiveOptions]) -> Request:
        """Start an Exscan."""
        on_arrays = (_KINDS["exscan"], OP_NUMBERS.get(id(op), -1), 0, sendbuf, recvbuf)
        return self._start_arrays(options, on_arrays, self._scan, "exscan", sendbuf, recvbuf, op)

    def Exscan_init(
        self, sendbuf: Any, recvbuf: Any, op: Any = MPI.SUM, info: Any = None, **options: Unpack[CollectiveOptions]
    ) -> Prequest:
        """Make a persistent Exscan. Local."""
        on_arrays = (_KINDS["exscan"], OP_NUMBERS.get(id(op), -1), 0, sendbuf, recvbuf)
        return self._init_arrays(options, on_arrays, self._scan, "exscan", sendbuf, recvbuf, op)

    def Gather(self, sendbuf: Any, recvbuf: Any, root: int = 0, **options: Unpack[CollectiveOptions]) -> None:
        """Concatenate the `sendbuf` of all ranks, in rank order, in the root's `recvbuf`."""
        if not self._run_on_arrays(_KINDS["gather"], -1, root, sendbuf, recvbuf, options):
            self._run(options, self._gather, sendbuf, recvbuf, root)

    def Igather(self, sendbuf: Any, recvbuf: Any, root: int = 0, **options: Unpack[CollectiveOptions]) -> Request:
        """Start a Gather."""
        on_arrays = (_KINDS["gather"], -1, root, sendbuf, recvbuf)
        return self._start_arrays(options, on_arrays, self._gather, sendbuf, recvbuf, root)

    def Gather_init(
        self, sendbuf: Any, recvbuf: Any, root: int = 0, info: Any = None, **options: Unpack[CollectiveOptions]
    ) -> Prequest:
        """Make a persistent Gather. Local."""
        on_arrays = (_KINDS["gather"], -1, root, sendbuf, recvbuf)
        return self._init_arrays(options, on_arrays, self._gather, sendbuf, recvbuf, root)

    def Scatter(self, sendbuf: Any, recvbuf: Any, root: int = 0, **options: Unpack[CollectiveOptions]) -> None:
        """Send one block of the root's `sendbuf` to each rank's `recvbuf`, in rank order."""
        if not self._run_on_arrays(_KINDS["scatter"], -1, root, sendbuf, recvbuf, options):
            self._run(options, self._scatter, sendbuf, recvbuf, root)

    def Iscatter(self, sendbuf: Any, recvbuf: Any, root: int = 0, **options: Unpack[CollectiveOptions]) -> Request:
        """Start a Scatter."""
        on_arrays = (_KINDS["scatter"], -1, root, sendbuf, recvbuf)
        return self._start_arrays(options, on_arrays, self._scatter, sendbuf, recvbuf, root)

    def Scatter_init(
        self, sendbuf: Any, recvbuf: Any, root: int = 0, info: Any = None, **options: Unpack[CollectiveOptions]
    ) -> Prequest:
        """Make a persistent Scatter. Local."""
        on_arrays = (_KINDS["scatter"], -1, root, sendbuf, recvbuf)
        return self._init_arrays(options, on_arrays, self._scatter, sendbuf, recvbuf, root)

    def Allgather(self, sendbuf: Any, recvbuf: Any, **options: Unpack[CollectiveOptions]) -> None:
        """Concatenate the `sendbuf` of all ranks, in rank order, in every rank's `recvbuf`."""
        if not self._run_on_arrays(_KINDS["allgather"], -1, 0, sendbuf, recvbuf, options):
            self._run(options, self._allgather, sendbuf, recvbuf)

    def Iallgather(self, sendbuf: Any, recvbuf: Any, **options: Unpack[CollectiveOptions]) -> Request:
        """Start an Allgather."""
        on_arrays = (_KINDS["allgather"], -1, 0, sendbuf, recvbuf)
        return self._start_arrays(options, on_arrays, self._allgather, sendbuf, recvbuf)

    def Allgather_init(
        self, sendbuf: Any, recvbuf: Any, info: Any = None, **options: Unpack[CollectiveOptions]
    ) -> Prequest:
        """Make a persistent Allgather. Local."""
        on_arrays = (_KINDS["allgather"], -1, 0, sendbuf, recvbuf)
        return self._init_arrays(options, on_arrays, self._allgather, sendbuf, recvbuf)


def _open_on(cls: type[Comm], name: str) -> Comm:
    """The open communicator on one of MPI's own: unpickling cannot be collective."""
    native = getattr(MPI, name)
    for known in _open_comms.values():
        if type(known) is cls and known == native and known._core is not None:
            return known
    if native == MPI.COMM_SELF:
        return cls(native)
    raise Error(
        f"a penstock.{cls.__name__} on MPI.{name} was pickled, and this process has none; make one on all ranks "
        "before unpickling"
    )


@atexit.register
def _free_all() -> None:
    """Frees all communicators. Runs before mpi4py's MPI_Finalize."""
    for comm in list(_open_comms.values()):
        comm.free()
