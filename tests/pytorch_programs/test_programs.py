"""Launching: what a user runs, and what goes wrong before and after the collectives."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from penstock.bench.installation import cores

Run = Callable[..., subprocess.CompletedProcess]
ROOT = Path(__file__).parents[2]
PYTHON = ROOT / "build/torch-env/bin/python"
EXAMPLE = ROOT / "examples/python/train_transformer.py"
LOSS = re.compile(r"^step (\d+): loss ([\d.]+)$", re.M)


def program(path: Path, text: str) -> Path:
    path.write_text("import torch\nimport torch.distributed as dist\nimport penstock.torch\n" + text)
    return path


def test_penstock_does_not_import_torch(run: Run) -> None:
    done = run(PYTHON, "-c", "import sys, penstock, penstock.cli; print('torch' in sys.modules)")
    assert done.stdout.strip() == "False", done.stderr


@pytest.mark.parametrize("mpi", ["mpich", "openmpi"])
def test_the_example_finds_the_losses_of_gloo(run: Run, mpi: str) -> None:
    found = []
    for backend in ("penstock", "gloo"):
        done = run(PYTHON, EXAMPLE, "--backend", backend, "--steps", "21", ranks=2, mpi=mpi)
        assert done.returncode == 0, done.stderr
        found.append([float(loss) for _, loss in LOSS.findall(done.stdout)])
    assert len(found[0]) == 3
    assert found[0] == pytest.approx(found[1], rel=1e-5)


def test_ranks_may_come_from_the_environment(run: Run, tmp_path: Path) -> None:
    """MASTER_ADDR and MASTER_PORT as for other backends; torch's ranks in another order than MPI's."""
    script = program(
        tmp_path / "program.py",
        "import os\n"
        "from mpi4py import MPI\n"
        "rank, size = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size\n"
        # torch's rank 0 listens already, and init_process_group finds its server: the port is never free in between.
        "first = size - 1\n"
        "listening = {'is_master': True, 'multi_tenant': True, 'wait_for_workers': False}\n"
        "store = dist.TCPStore('127.0.0.1', 0, **listening) if rank == first else None\n"
        "port = MPI.COMM_WORLD.bcast(store.port if store else None, first)\n"
        "os.environ |= {'MASTER_ADDR': '127.0.0.1', 'MASTER_PORT': str(port)}\n"
        "dist.init_process_group('penstock', rank=size - 1 - rank, world_size=size)\n"
        "everyone = [torch.empty(1) for _ in range(size)]\n"
        "dist.all_gather(everyone, torch.tensor([float(rank)]))\n"
        "assert [int(each) for each in everyone] == list(reversed(range(size))), everyone\n"
        "pair = dist.new_group([0, 2])\n"
        "if dist.get_rank() in (0, 2):\n"
        "    tensor = torch.tensor([float(rank)])\n"
        "    dist.broadcast(tensor, src=0, group=pair)\n"
        "    assert tensor.item() == size - 1\n"
        "dist.destroy_process_group()\n",
    )
    done = run(PYTHON, script, ranks=3)
    assert done.returncode == 0, done.stderr


def test_another_number_of_ranks_is_one_clear_error(run: Run, tmp_path: Path) -> None:
    script = program(tmp_path / "program.py", "dist.init_process_group('penstock', world_size=3, rank=0)\n")
    done = run(PYTHON, script, ranks=2)
    assert done.returncode != 0
    assert "all ranks that MPI has started, 2, but the default group is to have 3" in done.stderr
    assert "mpiexec -n 3 python" in done.stderr


def test_a_rank_that_raises_ends_the_others(run: Run, tmp_path: Path) -> None:
    script = program(
        tmp_path / "program.py",
        "dist.init_process_group('penstock')\n"
        "if dist.get_rank() == 1:\n"
        "    raise ValueError('the data are bad')\n"
        "dist.all_reduce(torch.ones(1000))\n",
    )
    done = run(PYTHON, script, ranks=3)
    assert done.returncode != 0
    assert "the data are bad" in done.stderr
    assert re.search(r"rank 1 has gone in operation 0 \(allreduce/\w+\)", done.stderr)


def test_a_program_may_end_without_destroying_groups(run: Run, tmp_path: Path) -> None:
    script = program(
        tmp_path / "program.py",
        "dist.init_process_group('penstock')\n"
        "dist.new_group([0])\n"
        "tensor = torch.ones(4)\n"
        "future = dist.all_reduce(tensor, async_op=True).get_future()\n"
        "future.wait()\n"
        "assert tensor[0] == 2\n"
        "print('done')\n",
    )
    done = run(PYTHON, script, ranks=2)
    # The launcher may put what the ranks print into one line.
    assert (done.returncode, done.stdout.count("done")) == (0, 2), done.stderr


def test_groups_can_be_made_again(run: Run, tmp_path: Path) -> None:
    script = program(
        tmp_path / "program.py",
        "for _ in range(3):\n"
        "    dist.init_process_group('penstock')\n"
        "    tensor = torch.ones(4)\n"
        "    dist.all_reduce(tensor)\n"
        "    assert tensor[0] == dist.get_world_size()\n"
        "    dist.destroy_process_group()\n",
    )
    done = run(PYTHON, script, ranks=2)
    assert done.returncode == 0, done.stderr


def test_the_benchmark_runs(run: Run) -> None:
    done = run(PYTHON, "-m", "penstock", "bench", "torch", "--quick", "--ranks", "2", "--mpi", "mpich", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert not report["left_out"]
    assert {row["setting"]["operation"] for row in report["rows"]} >= {
        "barrier",
        "shard_to_shard",
        "other_mesh",
        "ddp step",
    }
    assert all(set(row["seconds"]) == {"gloo/mpich", "penstock/mpich"} for row in report["rows"])
    assert all(0 <= facts["hidden_share"] <= 1 for facts in report["summary"]["hidden"])


@pytest.mark.skipif(len(cores()) < 2, reason="needs 2 cores")
def test_the_benchmark_binds_ranks(run: Run) -> None:
    def bench(cores_of_rank: int) -> subprocess.CompletedProcess[str]:
        options = ["--quick", "--ranks", "2", "--mpi", "mpich", "--ops", "ddp", "--json"]
        return run(PYTHON, "-m", "penstock", "bench", "torch", *options, "--compute-cores", str(cores_of_rank))

    done = bench(1)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["summary"]["hidden"]
    done = bench(len(cores()))
    assert f"the ranks of a node need {len(cores())} cores each, more than it has" in done.stderr + done.stdout


def test_the_benchmark_of_bootstrapping_runs(run: Run) -> None:
    done = run(PYTHON, "-m", "penstock", "bench", "bootstrap", "--quick", "--mpi", "mpich", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert not report["left_out"]
    (row,) = report["rows"]
    connections = {peer: details[0]["connections"] for peer, details in row["details"].items()}
    assert connections == {"gloo/mpich": 7, "penstock/mpich": 3}


def test_ranks_may_meet_through_pmix(run: Run, tmp_path: Path) -> None:
    script = program(
        tmp_path / "program.py",
        "import sys\n"
        "dist.init_process_group('penstock', init_method='pmix://')\n"
        "tensor = torch.ones(4)\n"
        "dist.all_reduce(tensor)\n"
        "assert tensor[0] == dist.get_world_size() == 3\n"
        "assert 'UCX 1.' in dist.group.WORLD.report(), dist.group.WORLD.report()\n"
        "assert 'mpi4py' not in sys.modules\n"
        "dist.destroy_process_group()\n"
        "sys.stdout.write('done\\n')\n",
    )
    done = run(PYTHON, script, ranks=3, mpi="openmpi")
    assert (done.returncode, done.stdout.split()) == (0, ["done"] * 3), done.stderr


def test_the_benchmark_of_jax_runs(run: Run) -> None:
    pytest.importorskip("jax")
    done = run(PYTHON, "-m", "penstock", "bench", "jax", "--quick", "--ranks", "2", "--mpi", "mpich", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert not report["left_out"]
    assert {row["setting"]["operation"] for row in report["rows"]} == {"allreduce", "rows_to_columns"}
    assert all(set(row["seconds"]) == {"jax/mpich", "penstock/mpich"} for row in report["rows"])
