"""Tensors of PyTorch in the trees of a checkpoint. Imported only where PyTorch is."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch  # pyright: ignore[reportMissingImports]

from penstock import checkpoint_cuda
from penstock.error import Error
from penstock.layout import DistArray, Layout

if TYPE_CHECKING:
    from types import ModuleType

    from numpy.typing import NDArray

    from penstock.checkpoint_tree import Shares

#: By size in bytes, of types that NumPy does not know.
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Saved(NamedTuple):
    """What a rank saves of a tensor."""

    layout: Layout | None  #: None: all ranks have the same elements, and divide them
    elements: NDArray[Any]  #: or the bits of elements that NumPy does not know
    dtype: str  #: as torch calls it


def is_leaf(node: object) -> bool:
    return isinstance(node, torch.Tensor)


def saved(tensor: torch.Tensor, path: str, shares: Shares) -> Saved:
    """This rank's elements, without a copy if they are contiguous memory of the CPU."""
    if tensor.layout is not torch.strided:
        raise Error(f"'{path}' has the layout {tensor.layout}; expected a dense tensor: pass it as to_dense()")
    if tensor.is_meta:
        raise Error(f"'{path}' is on the device 'meta', which has no elements; expected a tensor with memory")
    if tensor.is_quantized:
        raise Error(f"'{path}' is quantized; expected a tensor of plain elements: pass its int_repr() and its scales")
    layout = None
    if (dtensors := _dtensors(tensor)) is not None:
        part = dtensors.saved(tensor, path, shares)
        layout, tensor = part if isinstance(part, tuple) else (None, part)
    return Saved(layout, _elements(tensor.detach(), shares), _name(tensor.dtype))


def _dtensors(tensor: torch.Tensor) -> ModuleType | None:
    """What knows this tensor, if it is a DTensor."""
    known = sys.modules.get("torch.distributed.tensor")
    if known is None or not isinstance(tensor, known.DTensor):
        return None
    import penstock.torch.checkpoint_leaves

    return penstock.torch.checkpoint_leaves


def from_device(node: Any) -> torch.Tensor:
    """A tensor in the memory of an array of another library, such as CuPy."""
    tensor: torch.Tensor = torch.from_dlpack(node)
    return tensor


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


@functools.lru_cache(maxsize=256)
def is_numpys(dtype: torch.dtype) -> bool:
    """Whether NumPy knows the type."""
    try:
        torch.empty(0, dtype=dtype).numpy()
    except TypeError:
        return False
    return True


def _elements(tensor: torch.Tensor, shares: Shares) -> NDArray[Any]:
    tensor = tensor.resolve_conj().resolve_neg()
    if checkpoint_cuda.is_on_device(tensor):
        if shares.device_copies is None:
            shares.device_copies = checkpoint_cuda.DeviceCopies()
        tensor = shares.device_copies.start(tensor)
    tensor = tensor.cpu().contiguous()
    if not is_numpys(tensor.dtype):
        tensor = tensor.view(_BITS[tensor.element_size()])
    elements: NDArray[Any] = tensor.numpy()
    return elements


def memory_of(optimizers: Iterable[Any]) -> Iterator[tuple[int, int]]:
    """The memory that steps of optimizers change: beginning and end of each storage."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                yield _storage(parameter)
        for state in optimizer.state.values():
            for tensor in state.values() if isinstance(state, dict) else ():
                if isinstance(tensor, torch.Tensor):
                    yield _storage(tensor)


def _storage(tensor: torch.Tensor) -> tuple[int, int]:
    tensor = tensor.detach()
    if _dtensors(tensor) is not None:
        tensor = tensor.to_local()
    if tensor.layout is not torch.strided or tensor.device.type != "cpu":
        return 0, 0
    storage = tensor.untyped_storage()
    begin = storage.data_ptr()
    return begin, begin + storage.nbytes()


def layout(like: torch.Tensor) -> Layout | None:
    """The layout in which a restore reads a tensor like this one; None: every rank the whole."""
    dtensors = _dtensors(like)
    return None if dtensors is None else dtensors.layout(like)


def made(like: torch.Tensor, value: NDArray[Any] | DistArray) -> torch.Tensor:
    """A tensor on the device of `like`, and distributed as that is. `value`: its elements, or their bits."""

    def tensor_of(elements: NDArray[Any]) -> torch.Tensor:
        found = torch.from_numpy(elements)
        found = found if found.dtype == like.dtype else found.view(like.dtype)
        return found if like.device.type in ("cpu", "meta") else found.to(like.device)

    dtensors = _dtensors(like)
    if dtensors is not None:
        made: torch.Tensor = dtensors.made(like, value, tensor_of)
        return made
    assert isinstance(value, np.ndarray)
    return tensor_of(value)
