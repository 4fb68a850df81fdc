"""Collectives with time on SimGrid platforms: Penstock's plans (``penstock-simgrid``), and the selectors of other MPIs
(:mod:`penstock.simulation.peers`)."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from penstock.error import Error

__all__ = ["CHARGES", "Result", "Team", "platform_file", "platforms", "simulate"]

#: What messages of Penstock are charged.
CHARGES = ("machine", "equal")

_PROGRAM = "penstock-simgrid"
_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Team:
    """The ranks of a simulation: ``ranks_per_node`` on each host."""

    hosts: list[str]  #: In the order in which ranks fill them.
    ranks_per_node: int
    machine: dict[str, dict[str, float]]  #: Network and node of the platform, see ``Machine`` in cost_model.hpp.

    @property
    def ranks(self) -> int:
        return len(self.hosts) * self.ranks_per_node


@dataclass(frozen=True)
class Result:
    """The simulated time of a collective, from a common start to the end of its last rank."""

    by: str  #: "penstock", or the selector of a peer.
    bytes: int
    seconds: float
    algorithm: str = ""
    reason: str = ""


def platforms() -> dict[str, Path]:
    """The platforms that come with Penstock."""
    return {path.stem: path for path in sorted((_HERE / "platforms").glob("*.xml"))}


def platform_file(platform: str) -> Path:
    """The file of a platform of Penstock, by its name, or of another one, by its path."""
    known = platforms()
    if platform in known:
        return known[platform]
    path = Path(platform)
    if not path.is_file():
        raise Error(f"platform is {platform!r}; expected a file of SimGrid, or one of {', '.join(known)}")
    return path.resolve()


def _program() -> str:
    beside = _HERE.parent / _PROGRAM
    found = str(beside) if beside.is_file() else shutil.which(_PROGRAM)
    if found is None:
        raise Error(
            f"there is no {_PROGRAM}: Penstock was built without SimGrid. Install SimGrid 3.32 or later (Debian: "
            "libsimgrid-dev), build Penstock with CMake again, and put the folder of the program into PATH",
            "unsupported",
        )
    return found


def simulate(
    platform: str,
    operation: str,
    nbytes: Sequence[int],
    *,
    nodes: int = 0,
    ranks_per_node: int = 0,
    algorithms: Sequence[str] = ("",),
    root: int = 0,
    charges: str = "machine",
) -> Generator[Team | Result, None, None]:
    """Yields the team, and then each result as it is known: for each length, of each algorithm.

    Parameters
    ----------
    platform : str
        A name from :func:`platforms`, or the path of a platform of SimGrid.
    nbytes : sequence of int
        The lengths of the message; for gather, scatter, allgather, alltoall and reduce_scatter_block, of one block.
    nodes, ranks_per_node : int
        The first hosts of the platform, and ranks on each. Default: all hosts, and as many ranks as they have cores.
    algorithms : sequence of str
        Rows of the algorithms table. "": what Penstock chooses by cost with the machine of the platform.
    charges : str
        "machine": messages are charged what the platform says. "equal": what SMPI charges peers.
    """
    path = platform_file(platform)
    request = {
        "platform": str(path),
        "nodes": nodes,
        "ranks_per_node": ranks_per_node,
        "operation": operation,
        "bytes": list(nbytes),
        "algorithms": list(algorithms),
        "root": root,
        "charges": charges,
    }
    with tempfile.TemporaryFile("w+") as errors:
        with running([_program()], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors) as process:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(json.dumps(request))
            process.stdin.close()
            for line in process.stdout:
                yield _said(json.loads(line))
            status = process.wait()
        if status:
            raise Error(f"SimGrid could not simulate on {path}", cause=last_words(errors) or f"status {status}")


def _said(line: dict[str, Any]) -> Team | Result:
    if "error" in line:
        raise Error(line["error"], line["code"])
    if "hosts" in line:
        return Team(line["hosts"], line["ranks_per_node"], line["machine"])
    return Result("penstock", line["bytes"], line["seconds"], line["algorithm"], line["reason"])


@contextlib.contextmanager
def running(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A process that, with all that it starts, ends with this block."""
    with subprocess.Popen(command, text=True, start_new_session=True, **options) as process:
        try:
            yield process
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise


def last_words(errors: IO[str]) -> str:
    """What SimGrid says of an error, without the times and categories of its log."""
    errors.seek(0)
    said = [line.strip() for line in errors if line.strip() and not line.lstrip().startswith(("->", "Backtrace"))]
    critical = [line.partition("] ")[2].partition("] ")[2] for line in said if "/CRITICAL]" in line]
    return " ".join(critical or said[-3:])
