"""Every rank runs every test at the same time, as in tests/mpi; what PyTorch's gloo does is the reference.

The ranks are started by mpiexec, and by torchrun in tests/pytorch_programs/test_torchrun.py.
"""

from __future__ import annotations

import importlib.util
import pathlib
import shutil
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import penstock as ps
import pytest

HAS_TORCH = importlib.util.find_spec("torch") is not None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not HAS_TORCH:
        for item in items:
            item.add_marker(pytest.mark.skip(reason="PyTorch is not installed"))


@pytest.fixture(scope="session")
def group() -> Iterator[Any]:
    """The default group, of backend "penstock"; rank, size and store come from the launcher."""
    import penstock.torch  # noqa: F401
    import torch.distributed as dist

    dist.init_process_group("penstock", timeout=timedelta(minutes=10))
    yield dist.group.WORLD
    dist.destroy_process_group()


@pytest.fixture(scope="session")
def gloo(group: Any) -> Any:
    """The same ranks on gloo."""
    import torch.distributed as dist

    return dist.new_group(backend="gloo")


@pytest.fixture(autouse=True)
def _together(gloo: Any) -> None:
    """Each test begins on all ranks at once."""
    import torch.distributed as dist

    dist.barrier(gloo)


@pytest.fixture
def checkpoints(group: Any) -> Iterator[ps.Checkpointer]:
    MPI = pytest.importorskip("mpi4py.MPI", reason="the ranks were not started by MPI")
    world = MPI.COMM_WORLD
    if world.size != group.size():
        pytest.skip("the ranks were not started by MPI")
    folder = pathlib.Path(world.bcast(tempfile.mkdtemp(prefix="penstock-test-") if world.rank == 0 else None))
    with ps.Checkpointer(f"file://{folder}/slow", burst_buffer=f"file://{folder}/fast", comm=world) as opened:
        yield opened
    world.Barrier()
    if world.rank == 0:
        shutil.rmtree(folder)
