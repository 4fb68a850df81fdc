"""A process group of torch.distributed whose collectives are Penstock's."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C import _distributed_c10d as c10d
from torch.distributed import Work as _TorchWork

from penstock import _penstock
from penstock.error import Error
from penstock.torch.calls import Call, Calls, one, one_list
from penstock.torch.elements import bytes_of
from penstock.torch.point_to_point import Message, MessageWork, Transport
from penstock.torch.sparse import check_sparse, is_sparse, sum_sparse
from penstock.torch.work import All, Done, Incomplete, Work

_BARRIER = _penstock.COLLECTIVES["barrier"]
_AS_CHOSEN: dict[str, Any] = {}  # how a collective runs
_REDUCES = (c10d.ReduceOp, c10d.ReduceOp.RedOpType)

#: For the other ranks to say that they have called an operation that timed out.
_GRACE_S = 1.0

#: Of all groups of this process.
_incomplete = Incomplete()


class ProcessGroup(dist.ProcessGroup):
    """Backend "penstock": methods and arguments are those of torch.distributed.ProcessGroup.

    Wrong arguments of one rank raise penstock.Error there, and "peer_failed" or "mismatch" on the others.
    """

    def __init__(self, given: Any, messages: Transport, core: _penstock.Comm) -> None:
        """`given` is what torch says of the group; `messages` and the communicator `core` become the group's."""
        super().__init__(given.group_rank, given.group_size)
        self._rank, self._size = given.group_rank, given.group_size
        self._store, self._group_name, self._group_desc = given.store, given.group_id, ""
        self._messages = messages
        self._open_core: _penstock.Comm | None = core
        self._calls = Calls(self._rank, self._size)
        self._started = 0
        self._timeout_s = 0.0
        self.set_timeout(given.timeout)

    # -- what torch asks of a group ---------------------------------------------------------------------------------

    def name(self) -> str:
        return "penstock"

    getBackendName = _get_backend_name = name  # noqa: N815 (as C++ asks for it)

    def rank(self) -> int:
        return self._rank

    def size(self) -> int:
        return self._size

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device("cpu")]

    def _get_backend(self, device: Any) -> ProcessGroup:
        """On torch 2.13 a group that is written in Python is its own and only backend."""
        if torch.device(device).type != "cpu":
            raise RuntimeError(f'backend "penstock" has nothing for device "{device}"; expected "cpu"')
        return self

    supports_splitting = supports_coalescing = supports_time_estimate = False

    def get_group_store(self) -> Any:
        return self._store

    @property
    def group_name(self) -> str:
        return self._group_name

    def _set_group_name(self, name: str) -> None:
        self._group_name = name

    @property
    def group_desc(self) -> str:
        return self._group_desc

    def _set_group_desc(self, description: str) -> None:
        self._group_desc = description

    def set_timeout(self, timeout: timedelta) -> None:
        """An operation in which nothing moves for this long fails on all ranks, and says which ones are missing."""
        self._timeout_s = max(timeout.total_seconds(), 1e-3)  # 0 would be none
        self._core.set_timeout(self._timeout_s)

    _set_default_timeout = set_timeout

    def report(self) -> str:
        """What :meth:`penstock.Comm.report` says: transport, progress threads, and the plans that ran."""
        return self._core.report()

    def shutdown(self) -> None:
        """Complete the operations in flight and free the communicator. Collective; called by destroy_process_group."""
        if self._open_core is None:
            return
        _incomplete.wait_all()
        self._open_core = None
        self._messages.free()

    def abandon(self) -> None:
        """Free Penstock's part only: operations of the other ranks then fail instead of waiting for this rank."""
        self._open_core = None

    def _set_sequence_number_for_group(self) -> None:
        pass

    def _get_sequence_number_for_group(self) -> int:
        return self._started

    def _start_coalescing(self, device: Any) -> None:
        pass

    def _end_coalescing(self, device: Any) -> _TorchWork:
        """Operations start at once here; this one is complete when those before it are."""
        return Work(All(_incomplete.pending_of(self)), [])

    # -- running ----------------------------------------------------------------------------------------------------

    @property
    def _core(self) -> Any:
        if self._open_core is None:
            raise Error("this process group has been destroyed")
        return self._open_core

    def _refuse(self, error: Exception, operations: int = 1) -> NoReturn:
        """Raise the error in this rank's arguments, and fail the operations on the other ranks."""
        text = str(error)
        for _ in range(operations):
            self._core.fail_next(text)
        if isinstance(error, Error):
            raise error
        raise Error(text) from error

    def explained(self, error: Error) -> Error:
        """The failure of an operation. If it timed out, the text names the ranks that have not called it.

        A rank knows only for whom it waits, and that rank may wait for another one. So each rank that has called the
        operation says so in the store, under the number of the operation, which is equal on all ranks.
        """
        missing = self._missing(error)
        if not missing:
            return error
        names = f"rank{'s' * (len(missing) > 1)} {', '.join(map(str, missing))} of the group"
        return Error(
            f"{error.message}; {names} did not call it within the timeout of {self._timeout_s:g} s",
            error.code,
            error.rank,
        )

    def _missing(self, error: Error) -> list[int]:
        """The ranks that have not called the operation that timed out. Empty if that is not the error, or not known."""
        number = re.search(r"operation (\d+) .* timed out", error.message)
        if number is None:
            return []
        key = f"timed out in {number[1]}"
        try:
            self._store.append(key, f"{self._rank} ")
            deadline = time.monotonic() + _GRACE_S
            while True:
                missing = set(range(self._size)) - {int(rank) for rank in self._store.get(key).split()}
                if not missing or time.monotonic() > deadline:
                    return sorted(missing)
                time.sleep(0.05)
        except RuntimeError:  # a store without append, or whose rank has gone
            return []

    def _do(self, prepare: Callable[..., Call], opts: Any, *arguments: Any) -> _TorchWork:
        try:
            call = prepare(opts, *arguments)
        except Exception as error:
            self._refuse(error)
        core = self._core
        self._started += 1
        if opts.asyncOp:
            pending = core.start(
                call.kind, call.input, call.output, call.op, call.root, call.in_place, _AS_CHOSEN, call.blocks
            )
            work = Work(pending, call.result, call.finish, call.owned, call.kind, self)
            _incomplete.add(work)
            return work
        try:
            core.run(call.kind, call.input, call.output, call.op, call.root, call.in_place, _AS_CHOSEN, call.blocks)
        except Error as error:
            raise self.explained(error) from None
        if call.finish is not None:
            call.finish()
        return Done(call.result)

    def _do_each(self, prepare: Callable[..., Call], opts: Any, *lists: Sequence[Any]) -> _TorchWork:
        """One operation for each entry of the lists, in flight at once."""
        count = max(map(len, lists), default=0)
        try:
            if min(map(len, lists)) != count:
                raise Error(
                    f"lists of {' and '.join(str(len(one)) for one in lists)} tensors; expected as many in each"
                )
            calls = [prepare(opts, *arguments) for arguments in zip(*lists)]
        except Exception as error:
            self._refuse(error, count)
        core = self._core
        self._started += count
        pending = [
            core.start(call.kind, call.input, call.output, call.op, call.root, call.in_place, _AS_CHOSEN, call.blocks)
            for call in calls
        ]

        def finish() -> None:
            for call in calls:
                if call.finish is not None:
                    call.finish()

        result = [tensor for call in calls for tensor in call.result]
        work = Work(All(pending), result, finish, calls, calls[0].kind if calls else "", self)
        _incomplete.add(work)
        if not opts.asyncOp:
            work.wait()
        return work

    # -- one tensor on each rank ------------------------------------------------------------------------------------

    def broadcast(self, tensors: Any, opts: Any = None, *_: Any) -> _TorchWork:
        return self._do(self._calls.broadcast, _options(opts, c10d.BroadcastOptions), tensors)

    def allreduce(self, tensors: Any, opts: Any = None, *_: Any) -> _TorchWork:
        if is_sparse(tensors):
            tensor = one(tensors, "tensor")
            try:
                check_sparse(_options(opts, c10d.AllreduceOptions))
            except Error as error:
                self._refuse(error)
            sum_sparse(self, tensor)
            return Done([tensor])
        return self._do(self._calls.allreduce, _options(opts, c10d.AllreduceOptions), tensors)

    def allreduce_coalesced(self, tensors: Sequence[Tensor], opts: Any = None) -> _TorchWork:
        return self._do_each(self._calls.allreduce, _options(opts, c10d.AllreduceCoalescedOptions), tensors)

    def reduce(self, tensors: Any, opts: Any = None, *_: Any) -> _TorchWork:
        return self._do(self._calls.reduce, _options(opts, c10d.ReduceOptions), tensors)

    def barrier(self, opts: Any = None, *_: Any) -> _TorchWork:
        opts = _options(opts, c10d.BarrierOptions)
        if opts.asyncOp:
            return self._do(lambda _: Call("barrier", None, None, None, []), opts)
        core = self._core
        self._started += 1
        try:
            core.run_on_arrays(_BARRIER, -1, 0, None, None, _AS_CHOSEN)
        except Error as error:
            raise self.explained(error) from None
        return Done([])

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """A barrier with a timeout of its own, whose error names all ranks that have not called it, on all that have.

        Its words are also those of gloo, which programs look for.
        """
        usual = self._timeout_s
        self.set_timeout(timedelta(seconds=usual) if timeout is None else timeout)
        self._started += 1
        try:
            self._core.run_on_arrays(_BARRIER, -1, 0, None, None, _AS_CHOSEN)
        except Error as error:
            missing = self._missing(error)
            if not missing:
                raise
            names = f"Rank{'s' * (len(missing) > 1)} {', '.join(map(str, missing))}"
            here = (
                "Rank 0 timed out in monitoredBarrier"
                if self._rank == 0
                else f"Rank {self._rank} successfully reached monitoredBarrier, but received errors while waiting for "
                "send/recv from rank 0"
            )
            raise Error(
                f"{here}: {names} failed to pass monitoredBarrier in {self._timeout_s * 1e3:g} ms: not called there, or "
                "called after another operation",
                error.code,
                error.rank,
            ) from None
        finally:
            self.set_timeout(timedelta(seconds=usual))

    # -- a tensor of each rank for every rank -----------------------------------------------------------------------

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None, *_: Any) -> _TorchWork:
        return self._do(
            self._calls.allgather, _options(opts, c10d.AllgatherOptions), one_list(outputs, "output_tensors"), inputs
        )

    def allgather_coalesced(self, outputs: Sequence[Any], inputs: Sequence[Tensor], opts: Any = None) -> _TorchWork:
        # c10d gives a list for each rank, of a tensor for each input.
        by_input = [list(each) for each in zip(*outputs)]
        return self._do_each(self._calls.allgather, _options(opts, c10d.AllgatherOptions), by_input, inputs)

    def all_gather_single(self, output: Tensor, input: Tensor, opts: Any = None) -> _TorchWork:
        return self._do(self._calls.all_gather_single, _options(opts, c10d.AllgatherOptions), output, input)

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any = None
    ) -> _TorchWork:
        return self._do_each(self._calls.all_gather_single, _options(opts, c10d.AllgatherOptions), outputs, inputs)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def gather(self, outputs: Any, inputs: Any, opts: Any = None, *_: Any) -> _TorchWork:
        return self._do(self._calls.gather, _options(opts, c10d.GatherOptions), outputs, inputs)

    # -- a part for each rank ---------------------------------------------------------------------------------------

    def scatter(self, outputs: Any, inputs: Any, opts: Any = None, *_: Any) -> _TorchWork:
        return self._do(self._calls.scatter, _options(opts, c10d.ScatterOptions), outputs, inputs)

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None, *_: Any) -> _TorchWork:
        opts = _options(opts, c10d.ReduceScatterOptions)
        return self._do(self._calls.reduce_scatter, opts, outputs, one_list(inputs, "input_tensors"))

    def reduce_scatter_single(self, output: Tensor, input: Tensor, opts: Any = None) -> _TorchWork:
        return self._do(self._calls.reduce_scatter_single, _options(opts, c10d.ReduceScatterOptions), output, input)

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any = None
    ) -> _TorchWork:
        return self._do_each(
            self._calls.reduce_scatter_single, _options(opts, c10d.ReduceScatterOptions), outputs, inputs
        )

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def alltoall(self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any = None, *_: Any) -> _TorchWork:
        return self._do(self._calls.alltoall, _options(opts, c10d.AllToAllOptions), outputs, inputs)

    def all_to_all_single(
        self,
        output: Tensor,
        input: Tensor,
        output_split_sizes: Sequence[int] | None = None,
        input_split_sizes: Sequence[int] | None = None,
        opts: Any = None,
        *_: Any,
    ) -> _TorchWork:
        splits = (output_split_sizes, input_split_sizes)
        return self._do(self._calls.all_to_all_single, _options(opts, c10d.AllToAllOptions), output, input, *splits)

    alltoall_base = all_to_all_single

    # -- between two ranks ------------------------------------------------------------------------------------------

    def send(self, tensors: Any, dstRank: int, tag: int) -> _TorchWork:
        tensor = one(tensors, "tensor")
        self._calls.check_rank(dstRank, "dst")
        request = self._messages.send(bytes_of(tensor, "tensor", True), dstRank, tag)
        return self._message(request, tensor, f"send to rank {dstRank} (tag {tag})")

    def recv(self, tensors: Any, srcRank: int, tag: int) -> _TorchWork:
        self._calls.check_rank(srcRank, "src")
        return self._receive(tensors, srcRank, tag, f"recv from rank {srcRank} (tag {tag})")

    def recv_anysource(self, tensors: Any, tag: int) -> _TorchWork:
        return self._receive(tensors, None, tag, f"recv from any rank (tag {tag})")

    def _receive(self, tensors: Any, source: int | None, tag: int, what: str) -> _TorchWork:
        tensor = one(tensors, "tensor")
        request = self._messages.receive(bytes_of(tensor, "tensor", True), source, tag)
        return self._message(request, tensor, what, tensor.nbytes)

    def _message(self, request: Any, tensor: Tensor, what: str, expected_bytes: int | None = None) -> _TorchWork:
        message = Message(request, tensor, what, expected_bytes, self._timeout_s, _incomplete.make_progress)
        work = MessageWork(message, tensor, what)
        _incomplete.add(work)
        return work


def _options(given: Any, kind: Any) -> Any:
    """Options of `kind`. Callers of the group itself may give a reduction or a root instead, or nothing."""
    if isinstance(given, kind):
        return given
    options = kind()
    if isinstance(given, _REDUCES):
        options.reduceOp = given
    elif isinstance(given, int):
        options.rootRank = given
    return options
