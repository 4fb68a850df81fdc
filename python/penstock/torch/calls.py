"""Checks the arguments of torch.distributed's collectives, and turns them into Penstock's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from penstock.error import Error
from penstock.torch.elements import Gathered, apart, bytes_of, check, elements_of
from penstock.torch.elements import reduction as reduction_of


class Call:
    """A collective with arguments that have been checked."""

    __slots__ = ("blocks", "finish", "in_place", "input", "kind", "op", "output", "owned", "result", "root")

    def __init__(
        self,
        kind: str,
        input: Any,
        output: Any,
        owned: Any,
        result: list[Any],
        op: str = "sum",
        root: int = 0,
        in_place: bool = False,
        blocks: list[list[int] | None] | None = None,
        finish: Callable[[], None] | None = None,
    ) -> None:
        self.kind = kind
        self.input = input
        self.output = output
        self.owned = owned  # what `input` and `output` lie in
        self.result = result
        self.op = op
        self.root = root
        self.in_place = in_place
        self.blocks = blocks  # as _penstock.Comm.start takes them
        self.finish = finish

    def into(self, tensors: Sequence[Tensor], received: Gathered) -> Call:
        """The same call, which receives into `received` and then copies the result to `tensors`."""
        self.result = list(tensors)
        if received.is_copy:
            self.finish = received.land
        return self


class Calls:
    """Makes the calls of one rank. They raise Error for invalid arguments.

    `opts` are torch's options of the operation. A list for one device may lie in another list, as c10d passes them.
    """

    def __init__(self, rank: int, size: int) -> None:
        self._rank = rank
        self._size = size

    def broadcast(self, opts: Any, tensors: Any) -> Call:
        tensor = one(tensors, "tensor")
        return Call("bcast", None, bytes_of(tensor, "tensor", True), tensor, [tensor], root=opts.rootRank)

    def allreduce(self, opts: Any, tensors: Any) -> Call:
        tensor = one(tensors, "tensor")
        reduction = reduction_of(opts.reduceOp, tensor.dtype)
        memory = elements_of(tensor, "tensor", reduction.dtype, True)
        reduction.before(tensor, in_place=True)
        finish = (lambda: tensor.detach().div_(self._size)) if reduction.averages else None
        return Call("allreduce", None, memory, tensor, [tensor], reduction.op, in_place=True, finish=finish)

    def reduce(self, opts: Any, tensors: Any) -> Call:
        tensor = one(tensors, "tensor")
        reduction = reduction_of(opts.reduceOp, tensor.dtype)
        at_root = self._rank == opts.rootRank
        check(tensor, "tensor", True)
        mine = reduction.before(tensor, in_place=at_root)
        memory = elements_of(mine, "tensor", reduction.dtype, True)
        finish = (lambda: tensor.detach().div_(self._size)) if at_root and reduction.averages else None
        return Call(
            "reduce",
            None if at_root else memory,
            memory if at_root else None,
            mine,
            [tensor],
            reduction.op,
            opts.rootRank,
            at_root,
            finish=finish,
        )

    def allgather(self, opts: Any, outputs: Sequence[Tensor], inputs: Any) -> Call:
        tensor = one(inputs, "input_tensor")
        self._check_list(outputs, "output_tensors")
        gathered = Gathered(outputs, "output_tensors", sends=False)
        call = _move("allgather", tensor, gathered.memory, "input_tensor", "output_tensors")
        if not gathered.is_even:
            call.kind, call.blocks = "allgatherv", [None, None, gathered.counts_bytes, None]
        return call.into(outputs, gathered)

    def all_gather_single(self, opts: Any, output: Tensor, input: Tensor) -> Call:
        self._check_multiple(output, input, "output", "input")
        # As FSDP passes them.
        if input.nbytes and input.data_ptr() == output.data_ptr() + self._rank * input.nbytes:
            _check_types(input, output, "input", "output")
            return Call("allgather", None, bytes_of(output, "output"), output, [output], in_place=True)
        return _move("allgather", input, output, "input", "output")

    def gather(self, opts: Any, outputs: Any, inputs: Any) -> Call:
        tensor = one(inputs, "input_tensor")
        if self._rank != opts.rootRank:
            return Call("gather", bytes_of(tensor, "input_tensor"), None, tensor, [], root=opts.rootRank)
        outputs = one_list(outputs, "output_tensors")
        self._check_list(outputs, "output_tensors", tensor.numel())
        gathered = Gathered(outputs, "output_tensors", sends=False)
        call = _move("gather", tensor, gathered.memory, "input_tensor", "output_tensors", root=opts.rootRank)
        return call.into(outputs, gathered)

    def scatter(self, opts: Any, outputs: Any, inputs: Any) -> Call:
        tensor = one(outputs, "output_tensor")
        if self._rank != opts.rootRank:
            return Call("scatter", None, bytes_of(tensor, "output_tensor"), tensor, [tensor], root=opts.rootRank)
        inputs = one_list(inputs, "input_tensors")
        self._check_list(inputs, "input_tensors", tensor.numel())
        sent = Gathered(inputs, "input_tensors", sends=True)
        return _move("scatter", sent.memory, tensor, "input_tensors", "output_tensor", root=opts.rootRank)

    def reduce_scatter(self, opts: Any, outputs: Any, inputs: Sequence[Tensor]) -> Call:
        output = one(outputs, "output_tensor")
        self._check_list(inputs, "input_tensors")
        sent = Gathered(inputs, "input_tensors", sends=True)
        counts = None if sent.is_even else sent.counts
        if output.numel() != sent.counts[self._rank]:
            raise Error(
                f"output_tensor has {output.numel()} elements; expected {sent.counts[self._rank]}, as "
                f"input_tensors[{self._rank}] has"
            )
        return self._scattered_reduction(opts, output, sent.memory, counts)

    def reduce_scatter_single(self, opts: Any, output: Tensor, input: Tensor) -> Call:
        self._check_multiple(input, output, "input", "output")
        return self._scattered_reduction(opts, output, input, None)

    def _scattered_reduction(self, opts: Any, output: Tensor, input: Tensor, counts: list[int] | None) -> Call:
        reduction = reduction_of(opts.reduceOp, input.dtype)
        _check_types(input, output, "input", "output")
        check(input, "input")
        check(output, "output")
        mine = apart(reduction.before(input, in_place=False), output)
        return Call(
            "reduce_scatter_block" if counts is None else "reduce_scatter",
            elements_of(mine, "input", reduction.dtype),
            elements_of(output, "output", reduction.dtype),
            (mine, output),
            [output],
            reduction.op,
            blocks=None if counts is None else [None, None, counts, None],
            finish=(lambda: output.detach().div_(self._size)) if reduction.averages else None,
        )

    def alltoall(self, opts: Any, outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> Call:
        self._check_list(outputs, "output_tensors")
        self._check_list(inputs, "input_tensors")
        sent = Gathered(inputs, "input_tensors", sends=True)
        received = Gathered(outputs, "output_tensors", sends=False)
        blocks: list[list[int] | None] = [sent.counts_bytes, None, received.counts_bytes, None]
        call = _move("alltoallv", sent.memory, received.memory, "input_tensors", "output_tensors", blocks=blocks)
        return call.into(outputs, received)

    def all_to_all_single(
        self,
        opts: Any,
        output: Tensor,
        input: Tensor,
        output_split_sizes: Sequence[int] | None,
        input_split_sizes: Sequence[int] | None,
    ) -> Call:
        if not output_split_sizes and not input_split_sizes:
            if input.numel() != output.numel():
                raise Error(f"output has {output.numel()} elements; expected {input.numel()}, as input has")
            self._rows_bytes(input, None, "input")
            return _move("alltoall", input, output, "input", "output")
        counts = self._rows_bytes(input, input_split_sizes, "input")
        expected = self._rows_bytes(output, output_split_sizes, "output")
        blocks: list[list[int] | None] = [counts, None, expected, None]
        return _move("alltoallv", input, output, "input", "output", blocks=blocks)

    def _rows_bytes(self, tensor: Tensor, splits: Sequence[int] | None, argument: str) -> list[int]:
        """Bytes of each rank's rows."""
        rows = tensor.shape[0] if tensor.dim() else 1
        if not splits:
            if rows % self._size:
                raise Error(
                    f"{argument} has {rows} rows, which cannot be divided evenly among {self._size} ranks; give "
                    f"{argument}_split_sizes"
                )
            splits = [rows // self._size] * self._size
        if len(splits) != self._size or sum(splits) != rows or min(splits) < 0:
            raise Error(
                f"{argument}_split_sizes is {list(splits)}; expected {self._size} numbers whose sum is {rows}, the rows "
                f"of {argument}"
            )
        row_bytes = tensor.nbytes // rows if rows else 0
        return [split * row_bytes for split in splits]

    def check_rank(self, rank: int, argument: str) -> None:
        if not 0 <= rank < self._size:
            raise Error(f"{argument} is {rank}; expected a rank of the group, from 0 to {self._size - 1}")

    def _check_list(self, tensors: Any, argument: str, elements: int | None = None) -> None:
        if not isinstance(tensors, (list, tuple)) or len(tensors) != self._size:
            given = f"{len(tensors)} tensors" if isinstance(tensors, (list, tuple)) else f"a {type(tensors).__name__}"
            raise Error(f"{argument} holds {given}; expected a list of {self._size}, one for each rank")
        for i, tensor in enumerate(tensors):
            if elements is not None and tensor.numel() != elements:
                raise Error(f"{argument}[{i}] has {tensor.numel()} elements; expected {elements}, as on each rank")

    def _check_multiple(self, many: Tensor, one: Tensor, many_name: str, one_name: str) -> None:
        if many.numel() != self._size * one.numel():
            raise Error(
                f"{many_name} has {many.numel()} elements; expected {self._size * one.numel()}, {self._size} ranks times "
                f"the {one.numel()} of {one_name}"
            )


def one(tensors: Any, argument: str) -> Tensor:
    """The tensor of a call for one device; c10d passes it in a list."""
    if isinstance(tensors, Tensor):
        return tensors
    if isinstance(tensors, (list, tuple)) and len(tensors) == 1 and isinstance(tensors[0], Tensor):
        return tensors[0]
    raise Error(f"{argument} is {tensors!r:.80}; expected one tensor")


def one_list(lists: Any, argument: str) -> Any:
    """The list of a call for one device; c10d passes it in a list."""
    if isinstance(lists, (list, tuple)) and len(lists) == 1 and isinstance(lists[0], (list, tuple)):
        return lists[0]
    return lists


def _move(kind: str, sent: Tensor, received: Tensor, sent_name: str, received_name: str, **more: Any) -> Call:
    """A collective that computes nothing."""
    memory, into = bytes_of(sent, sent_name), bytes_of(received, received_name)
    _check_types(sent, received, sent_name, received_name)
    mine = apart(sent, received)
    if mine is not sent:
        memory = bytes_of(mine, sent_name)
    return Call(kind, memory, into, (mine, received), [received], **more)


def _check_types(sent: Tensor, received: Tensor, sent_name: str, received_name: str) -> None:
    if sent.dtype != received.dtype:
        raise Error(f"{sent_name} holds {sent.dtype} and {received_name} {received.dtype}; expected the same type")
