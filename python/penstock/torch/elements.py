"""Tensors as the memory that Penstock's collectives take, and torch's element types and operations in its terms."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributed import ReduceOp

from penstock.error import Error

_NAMES = {
    torch.float32: "float32",
    torch.float64: "float64",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.int8: "int8",
    torch.int16: "int16",
    torch.int32: "int32",
    torch.int64: "int64",
    torch.uint8: "uint8",
    torch.uint16: "uint16",
    torch.uint32: "uint32",
    torch.uint64: "uint64",
    torch.complex64: "complex64",
    torch.complex128: "complex128",
    torch.bool: "bool8",
}
_SUM, _AVG, _PREMUL_SUM = (int(op) for op in (ReduceOp.SUM, ReduceOp.AVG, ReduceOp.PREMUL_SUM))
_OPS = {
    _SUM: "sum",
    _AVG: "sum",
    _PREMUL_SUM: "sum",
    int(ReduceOp.PRODUCT): "prod",
    int(ReduceOp.MIN): "min",
    int(ReduceOp.MAX): "max",
    int(ReduceOp.BAND): "band",
    int(ReduceOp.BOR): "bor",
    int(ReduceOp.BXOR): "bxor",
}
#: Truth values count as true or false, as in torch itself.
_OPS_OF_BOOL = {
    "sum": "lor",
    "max": "lor",
    "bor": "lor",
    "prod": "land",
    "min": "land",
    "band": "land",
    "bxor": "lxor",
}

#: ctypes makes a class for each size, which takes ten times as long as the rest of a view.
_views: dict[int, Any] = {}
_MOST_VIEWS = 4096


def check(tensor: Tensor, argument: str, any_order: bool = False) -> None:
    """Raise Error for a tensor that is not dense memory of this process; `any_order` allows channels_last, too."""
    if not isinstance(tensor, Tensor):
        raise Error(f"{argument} is a {type(tensor).__name__}; expected a tensor")
    if not tensor.is_cpu:
        raise Error(
            f'{argument} is on device "{tensor.device}"; backend "penstock" moves memory of the CPU: pass '
            f"{argument}.cpu(), or use a group of the device's own backend"
        )
    if tensor.layout is not torch.strided:
        raise Error(f"{argument} has the layout {tensor.layout}; expected a dense tensor: pass {argument}.to_dense()")
    if not (tensor.is_contiguous() or (any_order and _is_channels_last(tensor))):
        raise Error(
            f"{argument} is not contiguous: its shape is {tuple(tensor.shape)}, its strides are {tensor.stride()}; pass "
            f"{argument}.contiguous(), and copy back what that receives"
        )
    if tensor.is_conj() or tensor.is_neg():
        raise Error(f"{argument} is a conjugate or negative view; pass {argument}.resolve_conj().resolve_neg()")


def _is_channels_last(tensor: Tensor) -> bool:
    if tensor.dim() == 4:
        return tensor.is_contiguous(memory_format=torch.channels_last)
    return tensor.dim() == 5 and tensor.is_contiguous(memory_format=torch.channels_last_3d)


def view(tensor: Tensor) -> Any:
    """The bytes of a checked tensor. The view does not keep it alive."""
    size = tensor.nbytes
    kind = _views.get(size)
    if kind is None:
        if len(_views) >= _MOST_VIEWS:
            _views.clear()
        kind = _views[size] = ctypes.c_char * size
    return kind.from_address(tensor.data_ptr())


def bytes_of(tensor: Tensor, argument: str, any_order: bool = False) -> Any:
    """The memory of a tensor that is only moved, for the extension."""
    if not (tensor.is_cpu and tensor.is_contiguous()) or tensor.is_conj() or tensor.is_neg():
        check(tensor, argument, any_order)
    return view(tensor)


def elements_of(tensor: Tensor, argument: str, name: str, any_order: bool = False) -> Any:
    """The memory of a tensor that takes part in arithmetic as elements of type `name`, for the extension."""
    return bytes_of(tensor, argument, any_order), 0, -1, name


def apart(sent: Tensor, received: Tensor) -> Tensor:
    """The memory to send, or a copy if it lies in the memory to receive into."""
    begin, other = sent.data_ptr(), received.data_ptr()
    if begin < other + received.nbytes and other < begin + sent.nbytes:
        return sent.detach().clone()
    return sent


class Reduction:
    """A reduction of torch.distributed as one of Penstock's. An average is a sum that the caller divides."""

    __slots__ = ("_factor", "averages", "dtype", "op")

    def __init__(self, given: Any, dtype: torch.dtype) -> None:
        kind = hash(given)  # of an operation: its number, in a tenth of the time that its property takes
        self._factor = given.factor if kind == _PREMUL_SUM else None
        name, op = _NAMES.get(dtype), _OPS.get(kind)
        if op is None:
            raise Error(f"the reduction {op_name(given)} is unknown; expected one of torch.distributed.ReduceOp")
        if name is None:
            raise Error(
                f"there is no arithmetic for {dtype}; reduce in one of "
                f"{', '.join(str(known).removeprefix('torch.') for known in _NAMES)}"
            )
        if kind in (_AVG, _PREMUL_SUM) and not (dtype.is_floating_point or dtype.is_complex):
            raise Error(
                f"{op_name(given)} of {dtype} is not defined; reduce floating-point elements, or use SUM and divide"
            )
        self.averages: bool = kind == _AVG
        self.dtype: str = name
        self.op: str = _OPS_OF_BOOL[op] if name == "bool8" else op

    def before(self, tensor: Tensor, in_place: bool) -> Tensor:
        """What this rank contributes, which with `in_place` lies in `tensor` itself."""
        if self._factor is None:
            return tensor
        return tensor.detach().mul_(self._factor) if in_place else tensor.detach() * self._factor


_reductions: dict[tuple[int, torch.dtype], Reduction] = {}


def reduction(given: Any, dtype: torch.dtype) -> Reduction:
    """The reduction that torch's `given` asks for; those without a factor are made once."""
    key = (hash(given), dtype)
    found = _reductions.get(key)
    if found is None:
        found = Reduction(given, dtype)
        if key[0] != _PREMUL_SUM:
            _reductions[key] = found
    return found


def op_name(given: Any) -> str:
    """Of an operation of torch, for people."""
    return next((name for name in dir(ReduceOp) if name.isupper() and hash(given) == int(getattr(ReduceOp, name))), "?")


class Gathered:
    """Several tensors of one element type as one piece of memory: their own if they are adjacent, else a copy."""

    def __init__(self, tensors: Sequence[Tensor], argument: str, *, sends: bool) -> None:
        if not tensors:
            raise Error(f"{argument} is empty; expected a tensor for each rank")
        for i, tensor in enumerate(tensors):
            check(tensor, f"{argument}[{i}]")
        kinds = {tensor.dtype for tensor in tensors}
        if len(kinds) > 1:
            raise Error(f"{argument} holds {' and '.join(sorted(map(str, kinds)))}; expected tensors of one type")
        self._tensors = tensors
        self._counts = [tensor.numel() for tensor in tensors]
        one = _joined(tensors)
        self.is_copy: bool = one is None
        if one is not None:
            self.memory: Tensor = one
        elif sends:
            self.memory = torch.cat([tensor.detach().reshape(-1) for tensor in tensors])
        else:
            self.memory = torch.empty(sum(self._counts), dtype=tensors[0].dtype)

    @property
    def counts(self) -> list[int]:
        """Elements of each tensor."""
        return self._counts

    @property
    def counts_bytes(self) -> list[int]:
        size = self.memory.element_size()
        return [count * size for count in self._counts]

    @property
    def is_even(self) -> bool:
        return min(self._counts) == max(self._counts)

    def land(self) -> None:
        """Copy the received elements to the tensors."""
        if self.is_copy:
            for piece, tensor in zip(self.memory.split(self._counts), self._tensors):
                tensor.detach().copy_(piece.view(tensor.shape))


def _joined(tensors: Sequence[Tensor]) -> Tensor | None:
    begin = end = None
    for tensor in tensors:
        size = tensor.nbytes
        if size == 0:
            continue
        address = tensor.data_ptr()
        if end is None:
            begin = tensor
        elif address != end:
            return None
        end = address + size
    if begin is None:
        return torch.empty(0, dtype=tensors[0].dtype)
    storage = begin.untyped_storage()
    if end is None or end > storage.data_ptr() + storage.nbytes():
        return None  # neighbours by chance, of different allocations
    count = sum(tensor.numel() for tensor in tensors)
    return torch.empty(0, dtype=begin.dtype).set_(storage, begin.storage_offset(), (count,))
