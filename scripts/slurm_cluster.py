"""A small Slurm of plain processes: its controller, and a slurmd on each of some emulated nodes (./dev cluster), which are also
its hosts for jobs. Needs root. All of it ends with this process, however it ends.

with Slurm(Path("/tmp/slurm"), nodes=2) as slurm:
    slurm.run("srun", "-n", "4", "hostname")
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from daemons import DaemonError, Daemons

ROOT = Path(__file__).parents[1]
PROGRAMS = {"slurmctld": "slurmctld", "slurmd": "slurmd", "srun": "slurm-client", "munged": "munge"}
#: Slurm's plugin opens PMIx by the name that is for compiling.
PMIX = "pmix2/lib/libpmix.so"
SEARCH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])


def missing_packages() -> list[str]:
    """Debian packages that are missing on this machine."""
    missing = [package for program, package in PROGRAMS.items() if shutil.which(program, path=SEARCH) is None]
    return missing if list(Path("/usr/lib").glob(f"*/{PMIX}")) else [*missing, "libpmix-dev"]


class Slurm:
    """Nodes named node0, node1, …; each has the cores of this machine, which they share. node0 is also where users log in."""

    def __init__(self, directory: Path, nodes: int = 2) -> None:
        self.directory = directory
        self.conf = directory / "slurm.conf"
        self._count = nodes
        self._environment = {
            **os.environ,
            "PATH": SEARCH,
            "SLURM_CONF": str(self.conf),
            "PENSTOCK_CLUSTER_STATE": str(directory / "nodes"),
        }
        # A job must not see what the project's environment sets for its MPI and its Python, but what its user sets.
        project = ("LD_LIBRARY_PATH", "PYTHONPATH")
        of_daemons = {key: value for key, value in self._environment.items() if key not in project}
        self._daemons = Daemons("Slurm", directory, of_daemons)

    def __enter__(self) -> Slurm:
        try:
            self.directory.mkdir(parents=True)
            self._dev_cluster("up", str(self._count), "none")
            lines = (self.directory / "nodes/hosts").read_text().splitlines()
            self._nodes = [(address, int(pid)) for address, pid in (line.split() for line in lines)]
            self._configure()
            self._daemons.start("munged", ["munged", "-F", *self._munge_files()])
            self._wait("munged", (self.directory / "munge.socket").exists)
            self._daemons.start("slurmctld", [*self._enter(0), "slurmctld", "-D", "-f", str(self.conf)])
            for node in range(self._count):
                self._daemons.start(f"slurmd.{node}", [*self._enter(node), "slurmd", "-D", "-f", str(self.conf)])
            self._wait("the nodes", lambda: self._idle() == self._count)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, *words: object, environment: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """Starts a user's command on node0, such as srun. Its errors go to its output."""
        return subprocess.Popen(
            [*self._enter(0), *map(str, words)],
            env={**self._environment, **(environment or {})},
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(
        self, *words: object, environment: Mapping[str, str] | None = None, timeout_s: float = 600
    ) -> subprocess.CompletedProcess[str]:
        """Runs a user's command on node0 until it ends."""
        with self.start(*words, environment=environment) as process:
            try:
                said, _ = process.communicate(timeout=timeout_s)
            except subprocess.TimeoutExpired:
                process.terminate()
                said, _ = process.communicate()
                said += f"\nended after {timeout_s:g} s"
        return subprocess.CompletedProcess(process.args, process.returncode, said)

    def stop(self) -> None:
        self._daemons.end_all(lambda _: signal.SIGTERM)
        # Ends the processes of jobs, too.
        with contextlib.suppress(DaemonError):
            self._dev_cluster("down")
        shutil.rmtree(self.directory, ignore_errors=True)

    def _configure(self) -> None:
        (self.directory / "munge.key").write_bytes(os.urandom(1024))
        (self.directory / "munge.key").chmod(0o400)
        found = subprocess.run(
            ["slurmd", "-C"], env={"PATH": SEARCH}, capture_output=True, text=True, check=True
        ).stdout
        hardware = " ".join(
            re.findall(r"\b(?:CPUs|Boards|SocketsPerBoard|CoresPerSocket|ThreadsPerCore|RealMemory)=\d+", found)
        )
        settings = {
            "ClusterName": "penstock",
            "SlurmctldHost": f"node0({self._nodes[0][0]})",
            "SlurmUser": "root",
            "SlurmdUser": "root",
            "AuthInfo": f"socket={self.directory / 'munge.socket'}",
            "StateSaveLocation": str(self.directory / "state"),
            "SlurmdSpoolDir": str(self.directory / "spool.%n"),
            "TmpFS": str(self.directory / "tmp.%n"),  # the nodes share /tmp, and PMIx's servers would meet there
            "SlurmctldPidFile": str(self.directory / "slurmctld.pid"),
            "SlurmdPidFile": str(self.directory / "slurmd.%n.pid"),
            "SlurmctldLogFile": str(self.directory / "slurmctld.log"),
            "SlurmdLogFile": str(self.directory / "slurmd.%n.log"),
            "MpiDefault": "none",
            # Neither needs the machine's control groups.
            "ProctrackType": "proctrack/linuxproc",
            "TaskPlugin": "task/affinity",
            "SelectType": "select/cons_tres",
            "SelectTypeParameters": "CR_CPU",
            "ReturnToService": "2",
            "KillWait": "30",
        }
        lines = [f"{key}={value}" for key, value in settings.items()]
        lines += [f"NodeName=node{number} NodeAddr={node[0]} {hardware}" for number, node in enumerate(self._nodes)]
        lines.append("PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP")
        self.conf.write_text("\n".join(lines) + "\n")
        (self.directory / "hosts").write_text(
            "127.0.0.1 localhost\n" + "".join(f"{node[0]} node{number}\n" for number, node in enumerate(self._nodes))
        )
        for number in range(self._count):
            (self.directory / f"tmp.node{number}").mkdir()
            bound = ["mount", "--bind", str(self.directory / "hosts"), "/etc/hosts"]
            subprocess.run([*self._enter(number), *bound], env=self._environment, check=True)

    def _munge_files(self) -> Sequence[str]:
        files = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        return ["--force", *(f"--{option}={self.directory}/munge.{name}" for option, name in files.items())]

    def _enter(self, node: int) -> Sequence[str]:
        return ["nsenter", "-t", str(self._nodes[node][1]), "-n", "-u", "-i", "-m", "-r", "-w"]

    def _dev_cluster(self, *words: str) -> None:
        done = subprocess.run(
            [ROOT / "dev", "cluster", *words], env=self._environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise DaemonError(f"./dev cluster {' '.join(words)}: {done.stderr.strip()}")

    def _idle(self) -> int:
        return self.run("sinfo", "-h", "-N", "-t", "idle", "-o", "%N").stdout.count("node")

    def _wait(self, what: str, ready: Callable[[], bool]) -> None:
        self._daemons.wait(what, ready, lambda _: self.directory.glob("*.log"))
