"""Launches the peers of a benchmark interleaved, and summarizes their measurements."""

from __future__ import annotations

import importlib
import json
import math
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from penstock.bench.installation import Installation, Placement, cores
from penstock.drawing import pyplot, save
from penstock.error import Error
from penstock.text_table import columns

JOB_TIMEOUT_S = 600

#: The measurements of one job: (setting, seconds of the slowest rank).
Measured = list[tuple[dict[str, Any], list[float]]]


@dataclass(frozen=True)
class Program:
    """A program that a job runs: Penstock or a peer."""

    name: str  #: The name that the case's measure() knows.
    baselines: tuple[str, ...] = ()  #: Programs of the same MPI to compare with.
    environment: Mapping[str, str] = field(default_factory=dict)  #: Of its jobs.
    #: Whether each rank is bound to a core, if there are enough. None leaves it to the launcher.
    bound: bool | None = None
    once: bool = False  #: Run under the first MPI only.
    threads_per_rank: int = (
        1  #: Busy threads while nothing is computed. With more threads than cores, waiting ranks yield.
    )
    #: Programs with the same job name run in turns in one job, on the same memory and beside the same other load.
    #: measure() then gets their names comma-separated. Its settings name the program in "program"; a setting without
    #: samples says in "cannot" why it cannot be measured.
    job: str = ""
    #: The case's measure() is called in this process, without a launcher. For programs with a job name only. A setting may
    #: then hold more about each sample in "details". If the case says TELLS_PROGRESS, measure() gets a third argument: a
    #: function to call with the share of its work that is done.
    local: bool = False
    #: A command of penstock that starts each rank, such as ("run", "--strict").
    under: tuple[str, ...] = ()


@dataclass
class Row:
    """One measured setting. Seconds of the slowest rank; the median over all repetitions of a peer."""

    setting: dict[str, Any]
    seconds: dict[str, float] = field(default_factory=dict)
    samples: dict[str, list[float]] = field(default_factory=dict)
    #: "penstock/mpich : native/mpich" → speed of the first relative to the second.
    speedup: dict[str, float] = field(default_factory=dict)
    details: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  #: What a local job tells about its samples.


@dataclass
class Report:
    """The rows that a benchmark measured, and what it left out."""

    benchmark: str
    machine: dict[str, Any]
    parameters: dict[str, Any]
    peers: list[str]
    rows: list[Row]
    #: Peer → why it could not be measured; for a single setting of a peer, "penstock/mpich (split 2)".
    left_out: dict[str, str]
    summary: Any = None  #: Result of the case's summarize(report).


class Jobs:
    """The peers of a benchmark, and the jobs that measure them."""

    def __init__(
        self,
        case_name: str,
        case: Any,
        mpis: Sequence[Installation],
        tell: Callable[[str], None],
        programs: Sequence[str] = (),
    ) -> None:
        """`programs`: the names of those to measure. Empty: all."""
        known = dict.fromkeys(program.name for mpi in mpis for program in case.programs(mpi))
        missing = {
            (name, mpi.name): reason
            for mpi in mpis
            for name, reason in (case.missing(mpi) if hasattr(case, "missing") else {}).items()
        }
        if unknown := [name for name in programs if name not in known]:
            why = next((f" ({reason})" for (name, _), reason in missing.items() if name == unknown[0]), "")
            raise Error(
                f"penstock bench {case_name} has no peer '{unknown[0]}' here{why}; there are {', '.join(known)}",
                "invalid_argument",
            )
        self.peers: dict[str, tuple[Installation, Program]] = {
            f"{program.name}/{mpi.name}": (mpi, program)
            for mpi in mpis
            for program in case.programs(mpi)
            if (mpi is mpis[0] or not program.once) and (not programs or program.name in programs)
        }
        self.left_out = {
            f"{name}/{mpi}": reason for (name, mpi), reason in missing.items() if not programs or name in programs
        }
        self._case_name = case_name
        self._case = case
        self._tell = tell

    def groups(self) -> list[list[str]]:
        """The peers, grouped by job."""
        together: dict[tuple[str, str], list[str]] = {}
        for peer, (mpi, program) in self.peers.items():
            together.setdefault((mpi.name, f"job {program.job}" if program.job else program.name), []).append(peer)
        return list(together.values())

    def measure_group(
        self,
        peers: Sequence[str],
        parameters: dict[str, Any],
        ranks: int,
        what: str = "",
        advance: Callable[[float], None] = lambda share: None,
    ) -> dict[str, Measured]:
        """Run one job of one of groups()."""
        peers = [peer for peer in peers if peer not in self.left_out]
        if not peers or not self.peers[peers[0]][1].job:
            return {peer: self.measure(peer, parameters, ranks, what) for peer in peers}
        mpi, program = self.peers[peers[0]]
        self._tell(f"{self._case_name}: {', '.join(peers)}, {_started(program, parameters, ranks)}{what}")
        names = ",".join(self.peers[peer][1].name for peer in peers)
        measured = (
            self._case.measure(names, parameters, *([advance] if getattr(self._case, "TELLS_PROGRESS", False) else []))
            if program.local
            else _launch(self._case_name, mpi, replace(program, name=names), parameters, ranks)
        )
        if isinstance(measured, str):
            measured = [({"program": name, "cannot": measured}, []) for name in names.split(",")]
        by_peer: dict[str, Measured] = {}
        for setting, samples in measured:
            peer = f"{setting.pop('program')}/{mpi.name}"
            if "cannot" in setting:
                what = ", ".join(f"{key} {value}" for key, value in setting.items() if key != "cannot")
                self._leave_out(
                    f"{peer} ({what})" if program.local and what else peer, f"{_on(ranks)}: {setting['cannot']}"
                )
            else:
                by_peer.setdefault(peer, []).append((setting, samples))
        return by_peer

    def measure(self, peer: str, parameters: dict[str, Any], ranks: int, what: str = "") -> Measured:
        """Run one job. If it cannot run, `left_out` gets the reason, and it is not tried again."""
        if peer in self.left_out:
            return []
        self._tell(f"{self._case_name}: {peer}, {_started(self.peers[peer][1], parameters, ranks)}{what}")
        measured = _launch(self._case_name, *self.peers[peer], parameters, ranks)
        if isinstance(measured, str):
            self._leave_out(peer, f"{_on(ranks)}: {measured}")
            return []
        for setting, _ in measured:
            if "cannot" in setting:
                what = ", ".join(f"{key} {value}" for key, value in setting.items() if key != "cannot")
                self._leave_out(f"{peer} ({what})", f"{_on(ranks)}: {setting['cannot']}")
        return [(setting, samples) for setting, samples in measured if "cannot" not in setting]

    def _leave_out(self, what: str, reason: str) -> None:
        if what not in self.left_out:
            self.left_out[what] = reason
            self._tell(f"{what} left out: {reason}")


def run(
    case_name: str,
    case: Any,
    parameters: dict[str, Any],
    *,
    ranks: Sequence[int],
    mpis: Sequence[Installation],
    repetitions: int,
    minutes: float = math.inf,
    programs: Sequence[str] = (),
    tell: Callable[[str], None] = lambda text: None,
    advance: Callable[[int, int], None] = lambda done, total: None,
) -> Report:
    """Run every job `repetitions` times, interleaved, so that a slow phase of the machine slows all of them.

    `programs` restricts the case's programs by name. Each job runs at least once. No repetition starts if it would exceed
    `minutes` in total, or after an interrupt. `advance(done, total)` is told how many groups of jobs are done.
    """
    begin = time.monotonic()
    jobs = Jobs(case_name, case, mpis, tell, programs)
    if hasattr(case, "prepare"):
        parameters = case.prepare(parameters, jobs)
    rows: dict[str, Row] = {}
    done, groups_done = 0, [0]

    def repeat() -> None:
        for size in ranks:
            # A different order each time: the first job after a pause finds the machine in another state.
            order = jobs.groups()
            for group in order if done % 2 == 0 else reversed(order):
                before, total = groups_done[0], repetitions * len(ranks) * len(order)
                advance(before, total)
                groups_done[0] += 1

                def share_done(share: float, before: int = before, total: int = total) -> None:
                    # In thousandths, which a bar of whole steps can show.
                    advance(round(1000 * (before + share)), 1000 * total)

                turn = f", repetition {done + 1} of {repetitions}"
                for peer, measured in jobs.measure_group(group, parameters, size, turn, share_done).items():
                    for setting, samples in measured:
                        details = setting.pop("details", [])
                        setting = {"ranks": size, **setting}
                        row = rows.setdefault(json.dumps(setting, sort_keys=True), Row(setting))
                        row.samples.setdefault(peer, []).extend(samples)
                        if details:
                            row.details.setdefault(peer, []).extend(details)

    try:
        while done == 0 or (done < repetitions and (time.monotonic() - begin) * (done + 1) / done < 60 * minutes):
            repeat()
            done += 1
    except KeyboardInterrupt:
        if done == 0:
            raise
        tell(f"ended in repetition {done + 1} of {repetitions}; what was measured until then:")
    for row in rows.values():
        row.seconds = {peer: statistics.median(samples) for peer, samples in row.samples.items()}
        for peer, (mpi, program) in jobs.peers.items():
            for baseline in (f"{name}/{mpi.name}" for name in program.baselines):
                if row.seconds.get(peer) and baseline in row.seconds:
                    row.speedup[f"{peer} : {baseline}"] = row.seconds[baseline] / row.seconds[peer]
    report = Report(
        benchmark=case_name,
        machine={"cores": len(cores()), "cpus": len(os.sched_getaffinity(0)), "platform": platform.platform()},
        parameters={**parameters, "ranks": list(ranks), "repetitions": done, "repetitions_wanted": repetitions},
        peers=list(jobs.peers),
        rows=list(rows.values()),
        left_out=jobs.left_out,
    )
    if hasattr(case, "summarize"):
        report.summary = case.summarize(report)
    return report


def _launch(
    case_name: str, mpi: Installation, program: Program, parameters: dict[str, Any], ranks: int
) -> Measured | str:
    """The measurements of one job, or why it failed."""
    placement = None
    if program.bound is not None:
        free = len(cores()) - ranks * program.threads_per_rank
        placement = Placement(bound=program.bound and ranks <= len(cores()), yielding=free < 0)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        result = Path(folder) / "result.json"
        arguments = [case_name, program.name, json.dumps(parameters), str(result)]
        under = [sys.executable, "-m", "penstock", *program.under] if program.under else []
        try:
            done = subprocess.run(
                [*mpi.launcher(ranks, placement), *under, sys.executable, "-m", "penstock.bench.worker", *arguments],
                env={**mpi.environment(placement), **program.environment},
                capture_output=True,
                text=True,
                timeout=JOB_TIMEOUT_S,
                check=False,
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired:
            return f"the job did not end within {JOB_TIMEOUT_S} s"
        if done.returncode != 0 or not result.exists():
            return _reason(case_name, done.stderr + done.stdout, done.returncode)
        content = json.loads(result.read_text())
    return [(row["setting"], row["seconds"]) for row in content["rows"]]


#: Patterns of the most informative line of a failed job, best first: a Python exception, then a launcher's report of a signal.
_TELLING = (r"\b(?:[\w.]*Error|Exception)\b.*", r"(?:exited on|EXIT STRING:|KILLED BY|Caught) .*")


def _reason(case_name: str, output: str, status: int) -> str:
    """Why a job failed, in one line; the line that its ranks ended with (penstock.spmd), if there is one."""
    lines = [line.strip() for line in output.splitlines() if line.strip(" =-|")]
    own = f"penstock bench {case_name}: "
    if said := [line.removeprefix(own) for line in lines if line.startswith(own)]:
        return said[0]
    for pattern in _TELLING:
        if telling := [line for line in lines if re.search(pattern, line)]:
            return telling[-1].strip("= ")
    return f"the job ended with status {status}" + (f": {lines[-1]}" if lines else "")


def load(case_name: str) -> Any:
    from penstock.bench import CASES

    return importlib.import_module(CASES[case_name])


def as_json(report: Report) -> str:
    return json.dumps(asdict(report), indent=2)


def seconds_text(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"


def table(report: Report) -> str:
    """Settings down, peers across, then relative speeds."""
    settings = list(report.rows[0].setting) if report.rows else []
    peers = [peer for peer in report.peers if any(peer in row.seconds for row in report.rows)]
    pairs = list(dict.fromkeys(pair for row in report.rows for pair in row.speedup))
    lines = [[*settings, *peers, *(pair.replace(" : ", " x ") for pair in pairs)]]
    for row in report.rows:
        lines.append(
            [str(row.setting[key]) for key in settings]
            + [seconds_text(row.seconds[peer]) if peer in row.seconds else "-" for peer in peers]
            + [f"{row.speedup[pair]:.2f}" if pair in row.speedup else "-" for pair in pairs]
        )
    return "\n".join([columns(lines, keys=len(settings)), *left_out(report)])


def left_out(report: Report) -> list[str]:
    """What was not measured, each reason once; and how many repetitions there was time for."""
    lines = [f"{', '.join(peers)} left out: {reason}" for reason, peers in by_reason(report.left_out).items()]
    wanted, done = (report.parameters.get(key, 0) for key in ("repetitions_wanted", "repetitions"))
    if done < wanted:
        lines.append(f"{done} of {wanted} repetitions were made (--minutes allows more)")
    return lines


def _started(program: Program, parameters: Mapping[str, Any], ranks: int) -> str:
    """How many processes compute; a local program says it by itself."""
    count = parameters.get("processes", ranks) if program.local else ranks
    return f"{count} rank{'s' * (count != 1)}"


def _on(ranks: int) -> str:
    return f"on {ranks} rank{'s' * (ranks != 1)}"


def by_reason(left_out: Mapping[str, str]) -> dict[str, list[str]]:
    peers: dict[str, list[str]] = {}
    for peer, reason in left_out.items():
        peers.setdefault(reason, []).append(peer)
    return peers


def plot(report: Report, path: str) -> None:
    """Time over size, one panel per other setting; each peer's times with the range of its samples."""
    plt = pyplot()
    panels: dict[str, list[Row]] = {}
    for row in report.rows:
        label = ", ".join(f"{key} {value}" if key == "ranks" else str(value)
                          for key, value in row.setting.items() if key != "bytes")  # fmt: skip
        panels.setdefault(label, []).append(row)
    columns = min(3, max(1, len(panels)))
    lines = -(-len(panels) // columns)
    figure, axes = plt.subplots(lines, columns, figsize=(5 * columns, 3.6 * lines), squeeze=False, layout="constrained")
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    for axis, (label, rows) in zip(axes.flat, panels.items()):
        rows.sort(key=lambda row: row.setting.get("bytes", 0))
        for number, peer in enumerate(report.peers):
            known = [row for row in rows if peer in row.seconds]
            sizes = [row.setting.get("bytes", 1) for row in known]
            color = f"C{number % 10}"
            axis.plot(sizes, [row.seconds[peer] for row in known], marker="o", ms=3, color=color, label=peer)
            low = [min(row.samples[peer]) for row in known]
            axis.fill_between(sizes, low, [max(row.samples[peer]) for row in known], color=color, alpha=0.15, lw=0)
        axis.set(xscale="log", yscale="log", title=label, xlabel="bytes", ylabel="seconds")
        axis.grid(alpha=0.3)
    axes.flat[0].legend(fontsize=8)
    figure.suptitle(f"penstock bench {report.benchmark}, {report.machine['cores']} cores")
    save(figure, path)
    plt.close(figure)
