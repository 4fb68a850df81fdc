"""Jobs in a Slurm of two nodes, started in each way that docs/integrations/slurm.md names."""

from __future__ import annotations

import re
import subprocess
import textwrap
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from slurm_cluster import Slurm

ROOT = Path(__file__).parents[2]
TORCH_PYTHON = ROOT / "build/torch-env/bin/python"
PMI_OF = {"mpich": "pmi2", "openmpi": "pmix"}
#: What Slurm 22.05 says if it reads a long request of MPICH in two pieces, which happens on a busy machine.
SLURM_READ_IN_PIECES = "mpi/pmi2: value not properly terminated"
TRIES = 5
RANKS = ("--nodes", 2, "--ntasks", 4)

ALLREDUCE = """
    import os, socket, sys
    import numpy as np
    import penstock as ps
    from mpi4py import MPI
    comm = ps.Comm(MPI.COMM_WORLD)
    total = np.zeros(1)
    comm.Allreduce(np.array([comm.rank + 1.0]), total)
    sys.stdout.write(f"{comm.rank} of {comm.size} on {socket.gethostname()}: {total[0]:g}\\n")
"""
#: On two ranks of each node.
SUMS = {f"{rank} of 4 on node{rank // 2}: 10" for rank in range(4)}


def run(
    slurm: Slurm, *words: object, mpi: str = "openmpi", environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a user's command, with this checkout's Penstock and the MPI in its environment."""
    for _ in range(TRIES):
        done = slurm.run(ROOT / "dev", "exec", *words, environment={"PENSTOCK_MPI": mpi, **(environment or {})})
        if SLURM_READ_IN_PIECES not in done.stdout:
            break
    return done


def written(folder: Path, program: str) -> Path:
    path = folder / "program.py"
    path.write_text(textwrap.dedent(program))
    return path


def lines(done: subprocess.CompletedProcess[str], pattern: str) -> set[str]:
    return set(re.findall(pattern, done.stdout, re.MULTILINE))


@pytest.mark.parametrize("mpi", ["mpich", "openmpi"])
def test_srun_starts_ranks(slurm: Slurm, tmp_path: Path, mpi: str) -> None:
    done = run(slurm, "srun", f"--mpi={PMI_OF[mpi]}", *RANKS, "python", written(tmp_path, ALLREDUCE), mpi=mpi)
    assert (done.returncode, lines(done, r"^\d of .*")) == (0, SUMS), done.stdout


@pytest.mark.parametrize("mpi", ["mpich", "openmpi"])
def test_mpiexec_in_an_allocation(slurm: Slurm, tmp_path: Path, mpi: str) -> None:
    program = written(tmp_path, ALLREDUCE)
    done = run(slurm, "salloc", *RANKS, "mpiexec", "-n", 4, "python", program, mpi=mpi)
    assert (done.returncode, lines(done, r"^\d of .*")) == (0, SUMS), done.stdout


@pytest.mark.parametrize("mpi", ["mpich", "openmpi"])
@pytest.mark.parametrize("launcher", ["srun", "mpiexec"])
def test_a_program_that_knows_nothing_of_penstock(slurm: Slurm, tmp_path: Path, launcher: str, mpi: str) -> None:
    program = written(
        tmp_path,
        """
        import numpy as np
        from mpi4py import MPI
        total = np.zeros(1000)
        for _ in range(100):
            MPI.COMM_WORLD.Allreduce(np.full(1000, float(MPI.COMM_WORLD.rank)), total)
        assert total[0] == 6
        """,
    )
    start = (
        ["salloc", *RANKS, "mpiexec", "-n", 4] if launcher == "mpiexec" else ["srun", f"--mpi={PMI_OF[mpi]}", *RANKS]
    )
    done = run(slurm, *start, "penstock", "run", "--mpi", mpi, "python", program, mpi=mpi)
    served = re.search(r"penstock: (\d+) collective calls served by Penstock", done.stdout)
    assert done.returncode == 0 and served and int(served[1]) > 0, done.stdout


def test_ranks_without_mpi_meet_through_pmix(slurm: Slurm, tmp_path: Path) -> None:
    program = written(
        tmp_path,
        """
        import socket, sys
        import numpy as np
        import penstock as ps
        with ps.Communicator.from_pmix(timeout=300) as comm:
            total = np.zeros(1)
            comm.Allreduce(np.array([comm.rank + 1.0]), total)
            sys.stdout.write(f"{comm.rank} of {comm.size} on {socket.gethostname()}: {total[0]:g}\\n")
        """,
    )
    done = run(slurm, "srun", "--mpi=pmix", *RANKS, "python", program)
    assert (done.returncode, lines(done, r"^\d of .*")) == (0, SUMS), done.stdout


def test_a_progress_thread_takes_the_free_core_of_a_node(slurm: Slurm, tmp_path: Path) -> None:
    """Of an exclusive node; of a shared one the job has only the cores that it asked for."""
    program = written(
        tmp_path,
        """
        import os, sys
        import penstock as ps
        from mpi4py import MPI
        assert len(os.sched_getaffinity(0)) == 1
        comm = ps.Comm(MPI.COMM_WORLD)
        comm.Barrier()
        if comm.rank == 0:
            print(comm.report())
        """,
    )
    cores = int(run(slurm, "sinfo", "-h", "-N", "-n", "node0", "-o", "%c").stdout.split()[0])
    if cores < 2:
        pytest.skip("a single core")
    step = ["srun", "--mpi=pmix", "--cpu-bind=cores", "-n", 2, "python", program]
    whole = run(slurm, "salloc", "--exclusive", "--nodes", 2, "--ntasks-per-node", 1, *step)
    assert "to which no rank is bound" in whole.stdout, whole.stdout
    part = run(slurm, "salloc", "--nodes", 2, "--ntasks-per-node", 1, *step)
    assert "since no core is free: 1 rank on 1 usable core" in part.stdout, part.stdout


def test_doctor_in_a_step(slurm: Slurm, tmp_path: Path) -> None:
    done = run(slurm, "srun", "-n", 1, "penstock", "doctor", "--store", tmp_path)
    assert done.returncode == 0 and "Allreduce on 2 ranks" in done.stdout, done.stdout
    done = run(slurm, "srun", "--mpi=none", "-n", 2, "penstock", "doctor")
    assert "srun has started 2 tasks that do not know each other" in done.stdout, done.stdout


def test_a_job_that_slurm_ends_saves_and_goes_on(slurm: Slurm, tmp_path: Path) -> None:
    """As `#SBATCH --signal=TERM@60` does a minute before the time limit; `scancel --signal` does so at once."""
    program = written(
        tmp_path,
        """
        import signal, sys
        from pathlib import Path
        import numpy as np
        import penstock as ps
        from mpi4py import MPI
        folder = Path(sys.argv[1])
        first, weights = 0, np.zeros(1000)
        with ps.Checkpointer(
            f"file://{folder}/slow", burst_buffer=f"file://{folder}/fast", comm=MPI.COMM_WORLD, save_on_signal=(signal.SIGTERM,)
        ) as checkpoints:
            if (folder / "began").exists():
                last, tree = checkpoints.restore()
                assert last > 0 and tree["weights"][0] == last + 1
                sys.stdout.write(f"rank {MPI.COMM_WORLD.rank} goes on\\n")
                sys.exit()
            step = 0
            while signal.SIGTERM not in checkpoints.signals:
                weights += 1
                if checkpoints.due(step):
                    checkpoints.save(step, {"weights": weights})
                if step == 10 and MPI.COMM_WORLD.rank == 0:
                    print("began", flush=True)
                step += 1
            if MPI.COMM_WORLD.rank == 0:
                (folder / "began").touch()
        """,
    )
    for name in ("slow", "fast"):
        (tmp_path / name).mkdir()
    start = ["srun", "--mpi=pmix", *RANKS, "--job-name", "training", "python", program, tmp_path]
    environment = {"PENSTOCK_MPI": "openmpi"}
    with slurm.start(ROOT / "dev", "exec", *start, environment=environment) as job:
        assert job.stdout is not None
        said = next((line for line in job.stdout if "began" in line), "")
        # Slurm does not deliver a signal to a step that it still starts.
        while not (tmp_path / "began").exists() and job.poll() is None:
            slurm.run("scancel", "--signal=TERM", "--name", "training")
            time.sleep(1)
        rest, _ = job.communicate()
    assert said and job.returncode == 0, said + rest
    done = run(slurm, *start)
    assert (done.returncode, lines(done, r"^rank \d goes on")) == (0, {f"rank {i} goes on" for i in range(4)}), (
        done.stdout
    )


@pytest.mark.parametrize("way", ["torchrun", "pmix", "mpi"])
def test_pytorch(slurm: Slurm, tmp_path: Path, way: str) -> None:
    if not TORCH_PYTHON.exists():
        pytest.skip("PyTorch is not in build/torch-env; ./dev setup --with torch installs it")
    program = written(
        tmp_path,
        """
        import socket, sys
        import torch, torch.distributed as dist
        import penstock.torch
        dist.init_process_group("penstock", init_method=sys.argv[1])
        rank, total = dist.get_rank(), torch.tensor([dist.get_rank() + 1.0])
        dist.all_reduce(total)
        sys.stdout.write(f"{rank} of {dist.get_world_size()} on {socket.gethostname()}: {total.item():g}\\n")
        dist.destroy_process_group()
        """,
    )
    if way == "torchrun":
        agent = [
            TORCH_PYTHON,
            "-m",
            "torch.distributed.run",
            "--nnodes",
            2,
            "--nproc-per-node",
            2,
            "--rdzv-backend",
            "c10d",
        ]
        each = ["--nodes", 2, "--ntasks-per-node", 1, "--cpus-per-task", 1]
        done = run(slurm, "srun", *each, *agent, "--rdzv-endpoint", "node0:29500", program, "env://")
        sums = {
            re.sub(" on .*:", ":", line) for line in lines(done, r"^\d of .*")
        }  # torchrun numbers the nodes as they come
        assert (done.returncode, sums) == (0, {f"{rank} of 4: 10" for rank in range(4)}), done.stdout
    else:
        done = run(slurm, "srun", "--mpi=pmix", *RANKS, TORCH_PYTHON, program, f"{way}://")
        assert (done.returncode, lines(done, r"^\d of .*")) == (0, SUMS), done.stdout
