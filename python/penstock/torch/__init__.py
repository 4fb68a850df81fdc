"""``backend="penstock"`` for torch.distributed, in programs that torchrun or an MPI launcher starts.

>>> import torch.distributed as dist
>>> import penstock.torch
>>> dist.init_process_group("penstock")            # rank, size and store come from torchrun or MPI

Importing this module registers the backend. Under torchrun it runs over UCX, and MPI is not initialized; under mpiexec or
srun it runs over MPI, which the first ``init_process_group`` initializes. What it does, how it
is launched and how it differs from gloo is in docs/integrations/pytorch.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.error import Error

try:
    import torch.distributed as _dist
except ImportError as _error:
    raise Error(
        "penstock.torch needs PyTorch, which is not installed; install it (PyTorch's own "
        "instructions name the build for CPUs alone)",
        "unsupported",
        cause=str(_error),
    ) from _error

from penstock.dataset.torch import DataLoader
from penstock.torch.creation import Options, create
from penstock.torch.launch import register_rendezvous
from penstock.torch.monitored_barrier import allow_monitored_barrier
from penstock.torch.process_group import ProcessGroup

if TYPE_CHECKING:
    from penstock.torch.tensors import iredistribute, layout_for, layout_of, placements_of, redistribute

#: Loaded when used: DTensor takes longer to import than the rest.
_OF_TENSORS = ("iredistribute", "layout_for", "layout_of", "placements_of", "redistribute")

__all__ = [
    "DataLoader",
    "Options",
    "ProcessGroup",
    "iredistribute",
    "layout_for",
    "layout_of",
    "placements_of",
    "redistribute",
    "register",
]


def __getattr__(name: str) -> Any:
    if name not in _OF_TENSORS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from penstock.torch import tensors

    return getattr(tensors, name)


def register() -> None:
    """Make the backend known to torch.distributed; importing this module has done so."""
    if "PENSTOCK" in _dist.Backend._plugins:
        return
    if not _dist.is_available():
        raise Error("this PyTorch was built without torch.distributed; install one that has it", "unsupported")
    _dist.Backend.register_backend("penstock", create, extended_api=True, devices=["cpu"])
    register_rendezvous()
    allow_monitored_barrier()


register()
