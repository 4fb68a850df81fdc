"""penstock info --machine under mpiexec, whose ranks have other environments and caches."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mpi4py")
pytestmark = pytest.mark.skipif(shutil.which("mpiexec") is None, reason="no mpiexec in PATH")

HANGS_S = 1200

#: Prints what each rank chooses at some lengths, and why.
CHOICES = """
import json
from mpi4py import MPI
import penstock as ps
comm = ps.Comm(MPI.COMM_WORLD, progress_cores=0)
for kind in ("bcast", "reduce", "allreduce", "allgather"):
    for size in (8, 5000, 200_000, 2_000_000):
        explained = json.loads(comm._open().explain(kind, size, "float64", "sum", 0, {}))
        mine = (explained["algorithm"], explained["reason"])
        assert MPI.COMM_WORLD.allgather(mine) == [mine] * MPI.COMM_WORLD.size, mine
        if MPI.COMM_WORLD.rank == 0:
            print(kind, size, *mine)
"""


def launch(environments: list[dict[str, str]], *arguments: str) -> str:
    """A job of ranks that are each a node of their own, and have these variables."""
    command = ["mpiexec"]
    for variables in environments:
        words = [f"{name}={value}" for name, value in {"PENSTOCK_SHARED_MEMORY": "off", **variables}.items()]
        command += [*([":"] if len(command) > 1 else []), "-n", "1", "env", *words, sys.executable, *arguments]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=HANGS_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def folder(path: Path) -> dict[str, str]:
    return {"PENSTOCK_MACHINE_FOLDER": str(path)}


def machine(environments: list[dict[str, str]], *options: str) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(launch(environments, "-m", "penstock", "info", "--machine", "--json", *options))
    return facts


def test_the_machine_is_measured_kept_and_printed(tmp_path: Path) -> None:
    ranks = [folder(tmp_path / "kept"), folder(Path("/proc/none"))]
    first = machine(ranks)
    assert first["source"] == "measured now" and first["measuring_seconds"] > 0
    assert first["network_measured"] and not first["node_measured"]
    assert all(value > 0 for part in ("network", "node") for value in first[part].values())
    (kept,) = (tmp_path / "kept").iterdir()
    second = machine(ranks)
    assert second["source"] == f"read from {kept}"
    assert (second["network"], second["node"]) == (first["network"], first["node"])
    assert machine(ranks, "--again")["source"] == "measured now"
    text = launch(ranks, "-m", "penstock", "info", "--machine")
    assert f"read from {kept}, 2 ranks" in text and "latency" in text and "Gbit/s" in text


def test_the_algorithms_of_a_node_are_measured_and_printed(tmp_path: Path) -> None:
    ranks = [{"PENSTOCK_SHARED_MEMORY": "on", **folder(tmp_path)}] * 2
    facts = machine(ranks)
    assert facts["node_measured"] and not facts["network_measured"]
    times = {(row["operation"], row["bytes"], row["algorithm"]): row["nanoseconds"] for row in facts["algorithms"]}
    # At most a second, which a busy machine may need for the first ones.
    assert times["bcast", 16 << 10, "staged"] > 0
    assert {operation for operation, *_ in times} >= {"bcast", "reduce", "allreduce", "allgather", "alltoall", "gather"}
    text = launch(ranks, "-m", "penstock", "info", "--machine")
    assert "algorithms by time" in text and "staged" in text


def test_ranks_with_other_environments_choose_the_same(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    machine([folder(kept)] * 3)
    (file,) = kept.iterdir()
    # As if each rank had a core of its own: otherwise nothing is chosen by cost.
    facts = {**json.loads(file.read_text()), "ranks_per_core": 10**18, "cores": 8}
    file.write_text(json.dumps(facts))
    others = [
        {"PENSTOCK_NETWORK": "tcp-1g", **folder(tmp_path / "other")},
        {"PENSTOCK_NETWORK": "off", "PENSTOCK_MACHINE_FOLDER": "none"},
    ]
    for network in ("measured", "rdma-100g"):
        text = launch([{"PENSTOCK_NETWORK": network, **folder(kept)}, *others], "-c", CHOICES)
        assert "least cost on this network" in text
    assert not (tmp_path / "other").exists()
