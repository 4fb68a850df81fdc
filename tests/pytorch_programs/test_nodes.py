"""Programs on several nodes, which are emulated; they have no name service."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(os.environ.get("PENSTOCK_ROOT", Path(__file__).parents[2]))
PYTHON = ROOT / "build/torch-env/bin/python"

PROGRAM = """
import torch
import torch.distributed as dist
import penstock.torch
for backend in ("penstock", "gloo"):
    dist.init_process_group(backend)
    tensor = torch.full((100_000,), float(dist.get_rank()))
    dist.all_reduce(tensor)
    size = dist.get_world_size()
    assert (tensor == size * (size - 1) / 2).all(), tensor
    if dist.get_rank() == 0:
        print(backend, "on", size)
    dist.destroy_process_group()
"""

UNREACHABLE = """
import torch.distributed as dist
import penstock.torch
from penstock.torch import launch
launch.addresses_of_this_node = lambda: ["127.0.0.2"]  # each node's own
try:
    dist.init_process_group("penstock")
except penstock.Error as error:
    print(f"{error}\\n", end="")  # in one piece, so that no rank writes into it
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of jobs on two nodes."""
    environment = {**os.environ, "PENSTOCK_CLUSTER_STATE": str(tmp_path / "cluster")}

    def call(*words: str) -> subprocess.CompletedProcess:
        return subprocess.run([ROOT / "dev", "cluster", *words], env=environment, capture_output=True, text=True)

    if (checked := call("check")).returncode:
        pytest.skip(checked.stderr.strip())
    made = call("up", "2", "none")
    assert made.returncode == 0, made.stderr
    yield environment
    call("down")


def run(cluster: dict[str, str], mpi: str, text: str) -> subprocess.CompletedProcess:
    job = [ROOT / "dev", "cluster", "run", "--ranks", "1,2", "--mpi", mpi, PYTHON, "-c", text]
    return subprocess.run(job, env=cluster, cwd=ROOT, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("mpi", ["mpich", "openmpi"])
def test_ranks_find_the_store_of_another_node(cluster: dict[str, str], mpi: str) -> None:
    done = run(cluster, mpi, PROGRAM)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["penstock on 3", "gloo on 3"], done.stderr


def test_a_store_that_cannot_be_reached_is_an_error_on_all_ranks(cluster: dict[str, str]) -> None:
    done = run(cluster, "mpich", UNREACHABLE)
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert len(said) == 3, done.stdout + done.stderr
    for line in said:
        assert line.startswith("rank 1 cannot connect to the store"), said
        assert "127.0.0.2" in line and "MASTER_ADDR" in line, said
