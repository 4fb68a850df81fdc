"""Programs that torchrun starts: no MPI, but UCX."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess]
ROOT = Path(__file__).parents[2]
PYTHON = ROOT / "build/torch-env/bin/python"
EXAMPLE = ROOT / "examples/python/train_transformer.py"
RANKS = 3
ALL = os.environ.get("PENSTOCK_TEST_ALL") == "1"


def torchrun(run: Run, *arguments: object, ranks: int = RANKS, **environment: str) -> subprocess.CompletedProcess:
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", ranks)
    return run(PYTHON, *launcher, *arguments, **environment)


def program(path: Path, text: str) -> Path:
    path.write_text(
        "import os, signal, sys, time\n"
        "from datetime import timedelta\n"
        "import torch\nimport torch.distributed as dist\nimport penstock.torch\n"
        "def say(text):\n"  # in one piece, unlike print
        "    sys.stdout.write(text + '\\n')\n" + text
    )
    return path


@pytest.mark.parametrize("ranks", [1, 2, 3] if ALL else [RANKS])
def test_the_tests_of_the_backend_pass(run: Run, ranks: int) -> None:
    done = torchrun(run, "-m", "pytest", "-q", "-p", "no:cacheprovider", ROOT / "tests/pytorch", ranks=ranks)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    assert len(re.findall(r"^\d+ passed", done.stdout, re.M)) == ranks


def test_mpi_is_not_touched(run: Run, tmp_path: Path) -> None:
    script = program(
        tmp_path / "program.py",
        "dist.init_process_group('penstock')\n"
        "tensor = torch.ones(4)\n"
        "dist.all_reduce(tensor)\n"
        "assert tensor[0] == dist.get_world_size()\n"
        "assert 'mpi4py' not in sys.modules\n"
        "assert 'UCX 1.' in dist.group.WORLD.report(), dist.group.WORLD.report()\n"
        "dist.destroy_process_group()\n",
    )
    done = torchrun(run, script)
    assert done.returncode == 0, done.stderr


def test_the_example_finds_the_losses_of_gloo(run: Run) -> None:
    losses = re.compile(r"^step (\d+): loss ([\d.]+)$", re.M)
    found = []
    for backend in ("penstock", "gloo"):
        done = torchrun(run, EXAMPLE, "--backend", backend, "--steps", "21", ranks=2)
        assert done.returncode == 0, done.stderr
        found.append([float(loss) for _, loss in losses.findall(done.stdout)])
    assert len(found[0]) == 3
    assert found[0] == pytest.approx(found[1], rel=1e-5)


def test_groups_and_the_default_group_can_be_made_again(run: Run, tmp_path: Path) -> None:
    script = program(
        tmp_path / "program.py",
        "for _ in range(3):\n"
        "    dist.init_process_group('penstock')\n"
        "    rank = dist.get_rank()\n"
        "    for members in ([0, 2], [1, 2], [0, 1, 2], [1]):\n"
        "        group = dist.new_group(members)\n"
        "        if rank in members:\n"
        "            tensor = torch.tensor([float(rank)])\n"
        "            dist.all_reduce(tensor, group=group)\n"
        "            assert tensor.item() == sum(members)\n"
        "    dist.destroy_process_group()\n",
    )
    done = torchrun(run, script)
    assert done.returncode == 0, done.stderr


def test_a_killed_rank_is_named_on_all_others(run: Run, tmp_path: Path) -> None:
    """torchrun ends the others when a rank ends, so they write what they were told at once."""
    script = program(
        tmp_path / "program.py",
        "dist.init_process_group('penstock')\n"
        "rank = dist.get_rank()\n"
        "dist.barrier()\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "if rank == 1:\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "def told(name, call):\n"
        "    try:\n"
        "        call()\n"
        "    except penstock.Error as error:\n"
        f"        with open({str(tmp_path)!r} + f'/{{rank}} {{name}}', 'w') as file:\n"
        "            file.write(f'{error.code} {error.rank}')\n"
        "def reduce_until_told():\n"
        "    while True:\n"
        "        dist.all_reduce(torch.ones(1000))\n"
        "told('reduction', reduce_until_told)\n"
        "told('next', lambda: dist.all_reduce(torch.ones(1000)))\n"
        "told('message', lambda: dist.recv(torch.empty(1), 1))\n"
        "sys.exit(1)\n",
    )
    done = torchrun(run, script)
    assert done.returncode != 0
    expected = {f"{rank} {name}": "peer_failed 1" for rank in (0, 2) for name in ("reduction", "next", "message")}
    assert {path.name: path.read_text() for path in tmp_path.glob("[0-9] *")} == expected, done.stderr


def test_a_late_rank_is_named_after_the_timeout(run: Run, tmp_path: Path) -> None:
    script = program(
        tmp_path / "program.py",
        "rank = int(os.environ['RANK'])\n"
        "dist.init_process_group('gloo')\n"
        "if rank != 1:\n"
        "    try:\n"
        "        dist.new_group(backend='penstock', timeout=timedelta(seconds=2))\n"
        "    except penstock.Error as error:\n"
        "        say(f'rank {rank}: {error.code}: {error.message}')\n"
        "dist.barrier()\n",
    )
    done = torchrun(run, script)
    assert done.returncode == 0, done.stderr
    for rank in (0, 2):
        assert f"rank {rank}: timed_out: a communicator cannot be made: rank 1 of 3 did not come" in done.stdout


def test_a_default_group_of_another_backend(run: Run, tmp_path: Path) -> None:
    """Over MPI the ranks of its members are not known."""
    script = program(
        tmp_path / "program.py",
        "dist.init_process_group('gloo')\n"
        "try:\n"
        "    group = dist.new_group(backend='penstock')\n"
        "    tensor = torch.ones(4)\n"
        "    dist.all_reduce(tensor, group=group)\n"
        "    say(f'sum {int(tensor[0])}')\n"
        "except penstock.Error as error:\n"
        "    say(error.code + ' ' + str('the default group has another backend' in error.message))\n",
    )
    assert torchrun(run, script, ranks=2).stdout.split("\n")[:2] == ["sum 2", "sum 2"]
    assert run(PYTHON, script, ranks=2).stdout.split("\n")[:2] == ["unsupported True", "unsupported True"]


def test_no_ucx_on_one_rank_is_an_error_on_all(run: Run, tmp_path: Path) -> None:
    script = program(
        tmp_path / "program.py",
        "rank = int(os.environ['RANK'])\n"
        "if rank == 2:\n"
        "    os.environ['PENSTOCK_UCX_LIBRARY'] = '/nowhere/libucp.so.0'\n"
        "try:\n"
        "    dist.init_process_group('penstock')\n"
        "except penstock.Error as error:\n"
        "    say(f'rank {rank}: {error.code} {error.rank}: {error.message}')\n",
    )
    script.write_text(
        script.read_text().replace("import penstock.torch\n", "", 1).replace("try:", "import penstock.torch\ntry:")
    )
    done = torchrun(run, script)
    assert done.returncode == 0, done.stderr
    for rank in (0, 1):
        assert (
            f"rank {rank}: peer_failed 2: a communicator cannot be made: rank 2: PENSTOCK_UCX_LIBRARY is" in done.stdout
        )
    assert "rank 2: unsupported -1: PENSTOCK_UCX_LIBRARY is /nowhere/libucp.so.0, which cannot be opened" in done.stdout


def test_ucx_can_be_chosen_under_mpiexec(run: Run, tmp_path: Path) -> None:
    script = program(
        tmp_path / "program.py",
        "dist.init_process_group('penstock', pg_options=penstock.torch.Options(transport='ucx'))\n"
        "tensor = torch.ones(4)\n"
        "dist.all_reduce(tensor)\n"
        "assert tensor[0] == 2\n"
        "assert 'UCX 1.' in dist.group.WORLD.report(), dist.group.WORLD.report()\n"
        "dist.destroy_process_group()\n",
    )
    done = run(PYTHON, script, ranks=2)
    assert done.returncode == 0, done.stderr


#: Each rank's group of the attempt, and a sum over it; the ranks' numbers and that of the attempt are written to a file.
RESTARTED = (
    "dist.init_process_group('penstock', timeout=timedelta(seconds=300))\n"
    "rank, size, attempt = dist.get_rank(), dist.get_world_size(), int(os.environ['TORCHELASTIC_RESTART_COUNT'])\n"
    "for _ in range(3):\n"
    "    tensor = torch.tensor([float(rank)])\n"
    "    dist.all_reduce(tensor)\n"
    "    assert tensor.item() == size * (size - 1) / 2, tensor\n"
    "pair = dist.new_group([0, size - 1])\n"
    "if rank in (0, size - 1):\n"
    "    dist.barrier(pair)\n"
)


def arrival(folder: Path) -> str:
    """The end of such a program: a file says that this rank has come so far."""
    return f"open({str(folder)!r} + f'/{{attempt}} {{rank}} of {{size}}', 'w').close()\ndist.destroy_process_group()\n"


def succeeds_after(run: Run, script: Path, restarts: int) -> None:
    """All ranks arrive in the last attempt, and none does before."""
    launcher = ("--standalone", "--nproc-per-node", RANKS, "--max-restarts", restarts)
    done = run(PYTHON, "-m", "torch.distributed.run", *launcher, script)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in script.parent.glob("* of *")} == {
        f"{restarts} {rank} of {RANKS}" for rank in range(RANKS)
    }


def test_a_group_is_made_again_after_a_rank_was_killed(run: Run, tmp_path: Path) -> None:
    """torchrun starts all ranks again, with the same store: old addresses in it lead nowhere."""
    script = program(
        tmp_path / "program.py",
        RESTARTED + "if attempt < 2 and rank == attempt:\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "dist.barrier()\n"  # fails in the first two attempts
         + arrival(tmp_path),
    )
    succeeds_after(run, script, restarts=2)


def test_a_rank_that_dies_while_the_group_is_made_leaves_nothing_behind(run: Run, tmp_path: Path) -> None:
    """Its arrival is in the store, and its address."""
    script = program(
        tmp_path / "program.py",
        "if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0' and os.environ['RANK'] == '1':\n"
        "    from penstock import rendezvous\n"
        "    rendezvous._await_start = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        + RESTARTED
        + f"open({str(tmp_path)!r} + f'/{{attempt}} {{rank}} of {{size}}', 'w').close()\n"
        "dist.destroy_process_group()\n",
    )
    succeeds_after(run, script, restarts=1)


def test_jobs_of_other_sizes_follow_at_one_endpoint(run: Run, tmp_path: Path) -> None:
    """The store of the rendezvous lives on; a rank of the first job dies."""
    script = program(
        tmp_path / "program.py",
        RESTARTED + f"open({str(tmp_path)!r} + f'/{{sys.argv[1]}} {{rank}} of {{size}}', 'w').close()\n"
        "dist.barrier()\n"
        "if sys.argv[1] == '0' and rank == 1:\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "dist.destroy_process_group()\n",
    )
    holder = program(
        tmp_path / "holder.py",
        "import subprocess\n"
        "store = dist.TCPStore('127.0.0.1', 0, is_master=True, wait_for_workers=False)\n"
        "for number, ranks in enumerate((3, 2, 3)):\n"
        "    job = [sys.executable, '-m', 'torch.distributed.run', '--nnodes', '1', '--nproc-per-node', str(ranks),\n"
        "           '--rdzv-backend', 'c10d', '--rdzv-id', str(number), '--rdzv-conf', 'is_host=0',\n"
        "           '--rdzv-endpoint', f'127.0.0.1:{store.port}', sys.argv[1], str(number)]\n"
        "    assert (subprocess.run(job).returncode != 0) == (number == 0)\n",
    )
    done = run(PYTHON, holder, script)
    assert done.returncode == 0, done.stderr
    expected = {f"{number} {rank} of {ranks}" for number, ranks in enumerate((3, 2, 3)) for rank in range(ranks)}
    assert {path.name for path in tmp_path.glob("* of *")} == expected


@pytest.mark.parametrize("killed", [0, 1], ids=["first", "second"])
def test_a_group_shrinks_when_an_agent_was_killed(run: Run, tmp_path: Path, killed: int) -> None:
    """With its ranks, as when a node fails. The rendezvous' store is of neither agent, or none would survive the death of its
    host, whatever the backend."""
    script = program(
        tmp_path / "program.py",
        RESTARTED + f"folder = {str(tmp_path)!r}\n"
        "if size == 2 and os.path.exists(folder + '/killed'):\n"
        "    dist.barrier()\n"
        "    open(f'{folder}/went on {rank}', 'w').close()\n"
        "    dist.destroy_process_group()\n"
        "    sys.exit()\n"
        "if size == 4:\n"
        "    with open(f'{folder}/new {rank}', 'w') as file:\n"
        "        file.write(f'{os.getppid()} {os.getpid()}')\n"
        "    os.rename(f'{folder}/new {rank}', f'{folder}/rank {rank}')\n"
        "while True:\n"  # until another rank ends, or the agent starts all again for one more node
        "    dist.all_reduce(torch.ones(1))\n"
        "    time.sleep(0.02)\n",
    )
    script.write_text("import time\n" + script.read_text())
    holder = program(
        tmp_path / "holder.py",
        "import subprocess, time\n"
        "from pathlib import Path\n"
        "store = dist.TCPStore('127.0.0.1', 0, is_master=True, wait_for_workers=False)\n"
        "agent = [sys.executable, '-m', 'torch.distributed.run', '--nnodes', '1:2', '--nproc-per-node', '2',\n"
        "         '--max-restarts', '3', '--rdzv-backend', 'c10d', '--rdzv-conf', 'is_host=0,last_call_timeout=5',\n"
        "         '--rdzv-endpoint', f'127.0.0.1:{store.port}', '--local-addr', '127.0.0.1', sys.argv[1]]\n"
        "agents = [subprocess.Popen(agent, start_new_session=True) for _ in range(2)]\n"
        "folder = Path(sys.argv[1]).parent\n"
        "while len(list(folder.glob('rank *'))) < 4:\n"
        "    assert all(agent.poll() is None for agent in agents)\n"
        "    time.sleep(0.1)\n"
        "parents = dict(tuple(map(int, (folder / f'rank {rank}').read_text().split()))[::-1] for rank in range(4))\n"
        "first = int((folder / 'rank 0').read_text().split()[0])\n"
        "victim = next(agent for agent in agents if (agent.pid == first) == (sys.argv[2] == '0'))\n"
        "(folder / 'killed').touch()\n"
        "for process in (victim.pid, *(worker for worker, parent in parents.items() if parent == victim.pid)):\n"
        "    os.kill(process, signal.SIGKILL)\n"
        "victim.wait()\n"
        "sys.exit(next(agent for agent in agents if agent is not victim).wait())\n",
    )
    done = run(PYTHON, holder, script, killed)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in tmp_path.glob("went on *")} == {"went on 0", "went on 1"}
