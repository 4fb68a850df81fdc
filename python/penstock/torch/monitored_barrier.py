"""``dist.monitored_barrier``, which PyTorch allows for gloo alone, for groups of Penstock, too."""

from __future__ import annotations

import functools
import importlib
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from penstock.torch.process_group import ProcessGroup


def allow_monitored_barrier() -> None:
    """Let ``dist.monitored_barrier`` take groups of this backend; with others it does what it did."""
    of_torch = dist.monitored_barrier

    @functools.wraps(of_torch)
    def monitored_barrier(group: Any = None, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        asked = dist.group.WORLD if group is None else group
        if not isinstance(asked, ProcessGroup):
            of_torch(group, timeout, wait_all_ranks)
            return
        if isinstance(timeout, (int, float)):
            timeout = timedelta(seconds=timeout)
        asked.monitored_barrier(timeout, wait_all_ranks)

    for module in ("torch.distributed", "torch.distributed.distributed_c10d"):
        importlib.import_module(module).__dict__["monitored_barrier"] = monitored_barrier
