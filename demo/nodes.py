"""Two emulated nodes (network namespaces) with a link of a given rate between them, if the machine allows them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent
COUNT = 2


class EmulatedNodes:
    """``with EmulatedNodes(directory) as nodes:``. Leaves the machine's own network alone, and removes everything at the end."""

    def __init__(self, directory: Path) -> None:
        self._environment = {
            **os.environ,
            "PENSTOCK_ROOT": str(ROOT),
            "PENSTOCK_CLUSTER_STATE": str(directory / "nodes"),
        }
        self.rate_mbit = 0
        self.left_out = "they were not asked for"  #: Why there are none; empty if there are.

    def __enter__(self) -> EmulatedNodes:
        return self

    def __exit__(self, *error: object) -> None:
        if self.rate_mbit:
            self._cluster("down")

    def start(self, rate_mbit: int) -> None:
        for arguments in (["check"], ["up", str(COUNT), f"{rate_mbit}mbit"]):
            done = self._cluster(*arguments)
            if done.returncode:
                lines = done.stderr.strip().splitlines() or [f"cluster {arguments[0]} ended with {done.returncode}"]
                self.left_out = lines[-1].removeprefix("./dev: ").removeprefix("cluster: ")
                return
        self.rate_mbit, self.left_out = rate_mbit, ""

    def launcher(self, ranks: int) -> list[str]:
        """The launcher of a job; without emulated nodes, mpiexec."""
        if not self.rate_mbit:
            return ["mpiexec", "-n", str(ranks)]
        return ["bash", str(ROOT / "scripts" / "commands" / "cluster.sh"), "run", "-n", str(ranks)]

    @property
    def environment(self) -> dict[str, str]:
        return self._environment

    def _cluster(self, *arguments: str) -> subprocess.CompletedProcess:
        command = ["bash", str(ROOT / "scripts" / "commands" / "cluster.sh"), *arguments]
        return subprocess.run(
            command, env=self._environment, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        )
