"""./dev cluster: nodes are separate, links have the requested rate, and nothing stays behind. Needs root."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RATE_MBIT = 200

PROBE = """
import json, socket, time
import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
node = comm.Split_type(MPI.COMM_TYPE_SHARED)
last, message, answer = comm.size - 1, np.ones(2 << 20, np.uint8), np.empty(1, np.uint8)
seconds = []
for _ in range(4):
    comm.Barrier()
    start = time.perf_counter()
    if comm.rank == 0:
        comm.Send(message, last)
        comm.Recv(answer, last)
    elif comm.rank == last:
        comm.Recv(message, 0)
        comm.Send(answer, 0)
    seconds.append(time.perf_counter() - start)
facts = comm.gather((socket.gethostname(), node.size, node.rank))
if comm.rank == 0:
    print(json.dumps({"facts": facts, "mbit": message.nbytes * 8e-6 / sorted(seconds)[1]}))
"""


def cluster(*arguments: str, user: int | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(ROOT / "dev"), "cluster", *arguments], capture_output=True, text=True, check=False, user=user
    )


def is_alive(pid: int) -> bool:
    """The command line of a process; empty for one that has ended but is not reaped yet."""
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    except FileNotFoundError:
        return False


@pytest.fixture(scope="module")
def two_nodes():
    if os.geteuid() != 0:
        pytest.skip("emulated nodes need root")
    up = cluster("up", "2", f"{RATE_MBIT}mbit")
    assert up.returncode == 0, up.stderr
    yield
    assert cluster("down").returncode == 0


@pytest.mark.parametrize("mpi", ["mpich", "openmpi"])
def test_nodes_are_separate_and_links_are_shaped(two_nodes: None, mpi: str) -> None:
    run = cluster("run", "--ranks", "3,4", "--mpi", mpi, "python", "-c", PROBE)
    assert run.returncode == 0, run.stderr
    answer = json.loads(run.stdout.strip().splitlines()[-1])
    assert [host for host, _, _ in answer["facts"]] == ["node0"] * 3 + ["node1"] * 4
    assert [size for _, size, _ in answer["facts"]] == [3] * 3 + [4] * 4
    # Above the rate only by the shaper's burst (256 KiB of 2 MiB); below it by any amount on a busy machine.
    assert 0 < answer["mbit"] < 1.2 * RATE_MBIT


def test_links_have_the_rate_asked_for_in_both_directions(two_nodes: None) -> None:
    nodes = [int(path.read_text()) for path in sorted((ROOT / "build/cluster").glob("node*.pid"))]
    assert len(nodes) == 2
    for pid in (*nodes, int((ROOT / "build/cluster/switch.pid").read_text())):
        shown = subprocess.run(
            ["nsenter", "-t", str(pid), "-n", "tc", "qdisc", "show"], capture_output=True, text=True, check=True
        ).stdout
        rates = re.findall(r"qdisc tbf .*\brate (\w+)", shown)
        assert rates == [f"{RATE_MBIT}Mbit"] * (1 if pid in nodes else 2), shown


def test_up_again_replaces_the_nodes_and_down_leaves_nothing(two_nodes: None) -> None:
    pids = [int(path.read_text()) for path in (ROOT / "build/cluster").glob("*.pid")]
    assert len(pids) == 3
    assert cluster("up", "2", f"{RATE_MBIT}mbit").returncode == 0
    for pid in pids:
        assert not is_alive(pid)
    assert cluster("down").returncode == 0
    assert cluster("down").returncode == 0
    assert not (ROOT / "build/cluster").exists()
    gone = cluster("run", "true")
    assert gone.returncode == 1
    assert "./dev cluster up" in gone.stderr
    assert cluster("up", "2", f"{RATE_MBIT}mbit").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("up", "0", "1gbit"), "K is '0'"),
        (("up", "2", "fast"), "RATE is 'fast'"),
        (("run", "--ranks", "1,1,1", "true"), "3 nodes (1,1,1), but there are 2"),
        (("run", "--ranks", "0,0", "true"), "no ranks"),
        (("run", "--mpi", "pvm", "true"), "PENSTOCK_MPI is 'pvm'"),
        (("run",), "no command"),
        (("sideways",), "expected one of"),
    ],
)
def test_wrong_arguments_are_named(two_nodes: None, arguments: tuple[str, ...], expected: str) -> None:
    run = cluster(*arguments)
    assert run.returncode == 1
    assert expected in run.stderr


def test_without_root_it_says_so() -> None:
    nobody = 65534
    if (
        os.geteuid() == 0
        and subprocess.run(["ls", str(ROOT)], user=nobody, capture_output=True, check=False).returncode
    ):
        pytest.skip("this checkout cannot be read without root")
    run = cluster("up", "2", "1gbit", user=nobody if os.geteuid() == 0 else None)
    assert run.returncode == 1
    assert "need root" in run.stderr
