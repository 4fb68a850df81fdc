"""Starts MPI programs natively and under `penstock run`."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
BUILD = Path(os.environ.get("PENSTOCK_BUILD", ROOT / "build/release"))
#: ABI → the MPI of build/mpi that has it.
MPIS = {"mpich": "mpich", "abi": "mpich", "openmpi": "openmpi"}
#: ABIs whose MPI calls a hook while it makes progress.
HOOKED = ("mpich", "openmpi")
ALL = os.environ.get("PENSTOCK_TEST_ALL") == "1"
#: A job that runs this long hangs. Ranks that poll may outnumber the cores.
HANGS_S = 1200.0


@dataclass
class Done:
    status: int
    out: str
    err: str
    report: dict[str, Any] | None

    def served(self, operation: str) -> int:
        """How many calls of an operation Penstock served."""
        assert self.report is not None, self.err
        return sum(row["served"] for row in self.report["operations"] if row["operation"] == operation)

    def native(self, operation: str) -> dict[str, int]:
        """The calls of an operation that were MPI's, by reason."""
        assert self.report is not None, self.err
        counts: dict[str, int] = {}
        for row in self.report["operations"]:
            if row["operation"] == operation and row["native"]:
                counts[row["why_native"]] = counts.get(row["why_native"], 0) + row["native"]
        return counts


def program(abi: str, name: str) -> Path:
    return BUILD / f"tests/preload/preload_{abi}_{name}"


def mpiexec(abi: str, ranks: int, *command: str | Path, timeout_s: float = HANGS_S, **environment: str) -> Done:
    """Run a command under the mpiexec of an ABI."""
    is_inside = os.environ.get("PENSTOCK_MPI") == MPIS[abi]
    words = [*([] if is_inside else [ROOT / "dev", "exec"]), "mpiexec", "-n", ranks, *command]
    done = subprocess.run(
        [str(word) for word in words],
        env={**os.environ, "PENSTOCK_MPI": MPIS[abi], **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
    )
    return Done(done.returncode, done.stdout, done.stderr, None)


def preloaded(
    abi: str,
    ranks: int,
    report: Path,
    *command: str | Path,
    tool: str | None = None,
    timeout_s: float = HANGS_S,
    **environment: str,
) -> Done:
    """Run a command under `penstock run`, on communicators that are served from their first synchronising call, by
    Penstock where it can. `tool`: the one of tests/preload/tools that is between it and MPI."""
    environment = {"PENSTOCK_PRELOAD_AFTER": "0", "PENSTOCK_PRELOAD_MEASURE": "off", **environment}
    tools = [] if tool is None else ["env", f"LD_PRELOAD={BUILD / f'tests/preload/libpreload_{abi}_tool_{tool}.so'}"]
    words = [*tools, "penstock", "run", "--mpi", abi, "--report", report, *command]
    done = mpiexec(abi, ranks, *words, timeout_s=timeout_s, **environment)
    if report.exists():
        done.report = json.loads(report.read_text())
    return done
