"""Sums of sparse tensors, such as the gradients of an embedding."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._C import _distributed_c10d as c10d

from penstock.error import Error
from penstock.torch.elements import op_name


def is_sparse(tensors: Any) -> bool:
    first = tensors[0] if isinstance(tensors, (list, tuple)) and tensors else tensors
    return isinstance(first, Tensor) and first.layout is torch.sparse_coo


def check_sparse(opts: Any) -> None:
    if opts.reduceOp != c10d.ReduceOp.SUM:
        raise Error(f"{op_name(opts.reduceOp)} of sparse tensors is not defined; use SUM, or dense tensors")


def sum_sparse(group: Any, tensor: Tensor) -> None:
    """Replace the tensor by the sum of all ranks' tensors. Blocking: the ranks first exchange the numbers of elements.

    The elements of all ranks are gathered, so this pays if few of the rows are present.
    """
    mine = tensor.detach().coalesce()
    indices, values = mine.indices().contiguous(), mine.values().contiguous()
    counts = torch.empty(group.size(), dtype=torch.int64)
    group.all_gather_single(counts, torch.tensor([values.shape[0]])).wait()
    # Indices lie in columns: a row for each element is what ranks can send in one piece.
    everyone = [_gathered(group, part, counts) for part in (indices.t().contiguous(), values)]
    result = torch.sparse_coo_tensor(everyone[0].t(), everyone[1], tensor.shape).coalesce()
    with torch.no_grad():  # detach() would not share the indices
        tensor.copy_(result)


def _gathered(group: Any, mine: Tensor, counts: Tensor) -> Tensor:
    """The rows of all ranks."""
    whole = torch.empty((int(counts.sum()), *mine.shape[1:]), dtype=mine.dtype)
    group.allgather([list(whole.split(counts.tolist()))], [mine]).wait()
    return whole
