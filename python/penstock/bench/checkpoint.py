"""Benchmark: a training that saves checkpoints to slow and fast disks; the training I/O paper, section VI.C."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from penstock.bench import runner, slow_disks
from penstock.bench.checkpoint_peers import KEPT, PEERS, Compute, Order
from penstock.bench.installation import Installation
from penstock.bench.runner import Jobs, Program, Report
from penstock.bench.worker import Cannot
from penstock.drawing import pyplot, save
from penstock.error import Error
from penstock.text_table import columns

SUMMARY = """A training that saves its state, by Penstock and by other libraries, to disks of several speeds.

100 iterations compute and change a state as large as AlexNet's; a checkpoint is saved every 20. "hdd", "ssd" and
"optane" are held to the rates of the training I/O paper's disks, "burst-buffer" is optane before hdd. Penstock drains the
burst buffer itself; for the other peers a process copies each complete checkpoint, as in the paper. Emulated disks need root
and cgroups that limit disks (blkio of version 1, io of version 2); elsewhere name folders on real disks.

Peers, if installed: a .npy file for each array ("numpy"), safetensors, torch.save, torch.distributed.checkpoint ("dcp";
asynchronous by a thread and by a process), Orbax asynchronous. What they write is synced. "none" saves nothing. Each peer is
a process of its own. All restored states are verified. With --processes, each peer is a job of so many ranks, started by the
mpiexec in the PATH, and each rank has an equal share of the state: Penstock and torch.distributed.checkpoint (over gloo) save one
checkpoint of all, with the other peers each rank saves its share by itself. The slowest rank counts, and memory is summed up.

"stall" is how long a save holds the training up, "copy" what one thread needs to copy the state into warm memory; "fast" and
"durable" are from the call until the checkpoint is durable in the burst buffer and on the slow disk; "of disk" is the rate
of the write to the slow disk, as a share of the disk's. "memory" is what a save takes besides the state.
"""

DISKS = tuple(slow_disks.RATES)
BURST_BUFFER = "burst-buffer"

OPTIONS = {
    "devices": ([*DISKS, BURST_BUFFER], ["hdd", BURST_BUFFER], "where checkpoints go"),
    "state_mb": (600, 4, "size of the state in MB"),
    "tensors": (0, 0, "number of its arrays, of equal sizes; 0: those of AlexNet"),
    "iterations": (100, 4, "iterations of the training"),
    "every": (20, 2, "iterations from one checkpoint to the next"),
    "iteration_ms": (100.0, 1.0, "milliseconds of computation in an iteration, besides the update of the state"),
    "processes": (1, 1, "ranks that train and save together, each an equal share of the state"),
    "directory": ("", "", "where emulated disks are stored; the system's temporary folder if left out"),
    "hdd": ("", "", "a folder on such a disk; emulated if left out"),
    "ssd": ("", "", "a folder on such a disk; emulated if left out"),
    "optane": ("", "", "a folder on such a disk; emulated if left out"),
}
CHOICES = {"devices": [*DISKS, BURST_BUFFER]}
RANKS = [1]
MINUTES = 60

#: Open MPI refuses root, and more ranks than cores, without these.
_SEVERAL = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}
_TIMEOUT_S = 900.0
_IMAGES = "penstock-bench-checkpoint-"  #: Prefix of the folders of emulated disks.
_SAMPLE_S = 0.25  #: Interval between samples of a disk's activity.


def missing(_: Installation) -> dict[str, str]:
    """Peer → what is not installed."""
    return {
        name: f"{module} is not installed for the Python that runs the benchmark"
        for name, peer in PEERS.items()
        if (module := peer.missing())
    }


def programs(mpi: Installation) -> list[Program]:
    absent = missing(mpi)
    names = ["none", *(name for name in PEERS if name not in absent)]
    return [
        Program(name, tuple(names[:-1]) if name == "penstock" else (), once=True, job="in turns", local=True)
        for name in names
    ]


def prepare(parameters: dict[str, Any], jobs: Jobs) -> dict[str, Any]:
    """Check the folders, and find how much computation takes `iteration_ms`: the same for all jobs."""
    for key in ("directory", *DISKS):
        place = Path(parameters[key] or tempfile.gettempdir())
        if not place.is_dir() or not os.access(place, os.W_OK):
            raise Error(f"--{key} is '{place}'; expected a directory that can be written to", "io")
    for key in ("state_mb", "iterations", "every", "processes"):
        if parameters[key] < 1:
            raise Error(f"--{key.replace('_', '-')} is {parameters[key]}; expected at least 1")
    if parameters["every"] > parameters["iterations"]:
        raise Error(
            f"--every is {parameters['every']} of {parameters['iterations']} iterations, so nothing would be saved; "
            "expected at most --iterations"
        )
    compute, samples = Compute(), []
    for _ in range(50):
        begin = time.perf_counter()
        compute.rounds(10)
        samples.append((time.perf_counter() - begin) / 10)
    # The least time: what others do on the machine must not make the training shorter.
    return {**parameters, "rounds": max(1, round(parameters["iteration_ms"] / 1e3 / min(samples)))}


def measure(program: str, parameters: dict[str, Any]) -> runner.Measured:
    """`program`: the names of the peers that take turns, comma-separated."""
    names = program.split(",")
    rows: runner.Measured = []
    for device in parameters["devices"]:
        setting = {"device": device, "MB": parameters["state_mb"]}
        if parameters["processes"] > 1:
            setting["processes"] = parameters["processes"]
        try:
            with _disks(device, parameters) as disks:
                for name in names:
                    rows.append(_row(name, setting, disks, parameters))
        except Cannot as error:
            measured = {setting["program"] for setting, _ in rows if setting["device"] == device}
            rows += [({"program": name, **setting, "cannot": str(error)}, []) for name in names if name not in measured]
    return rows


@contextlib.contextmanager
def _disks(device: str, parameters: dict[str, Any]) -> Iterator[dict[str, Path]]:
    """Disk → an empty folder on it. The slow one comes first."""
    wanted = ["hdd", "optane"] if device == BURST_BUFFER else [device]
    # All checkpoints, since a slow disk may have none yet when the last one is saved; what stays, and one for the room that
    # file systems want; journals.
    saves = parameters["iterations"] // parameters["every"]
    size_bytes = (max(KEPT, saves) + 3) * parameters["state_mb"] * 10**6 + (128 << 20)
    slow_disks.remove_abandoned(_IMAGES)
    with contextlib.ExitStack() as stack:
        images = stack.enter_context(tempfile.TemporaryDirectory(prefix=_IMAGES, dir=parameters["directory"] or None))
        found = {}
        for disk in wanted:
            place = parameters[disk] or stack.enter_context(slow_disks.emulated(disk, size_bytes, Path(images)))
            found[disk] = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=place)))
        yield found


def _row(
    name: str, setting: dict[str, Any], disks: dict[str, Path], parameters: dict[str, Any]
) -> tuple[dict[str, Any], list[float]]:
    own = {"program": name, **setting}
    try:
        found = _job(name, disks, parameters)
    except Cannot as error:
        return {**own, "cannot": str(error)}, []
    return {**own, "details": [found]}, [found["total_s"]]


def _job(name: str, disks: dict[str, Path], parameters: dict[str, Any]) -> dict[str, Any]:
    """What checkpoint_peers.train tells, and the activity of the disks meanwhile."""
    with contextlib.ExitStack() as stack:
        places = [
            stack.enter_context(tempfile.TemporaryDirectory(prefix=f"{name}-", dir=place)) for place in disks.values()
        ]
        answer = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-"))) / "answer.json"
        order = Order(
            name,
            places[0],
            places[1] if len(places) > 1 else "",
            parameters["state_mb"] * 10**6,
            parameters["tensors"],
            parameters["iterations"],
            parameters["every"],
            parameters["rounds"],
            parameters["processes"],
            str(answer),
        )
        errors = stack.enter_context(tempfile.TemporaryFile())
        process = subprocess.Popen(
            [
                *_launch(order.processes),
                sys.executable,
                "-m",
                "penstock.bench.checkpoint_peers",
                json.dumps(asdict(order)),
            ],
            stdin=subprocess.DEVNULL,
            stdout=errors,
            stderr=errors,
            env={**os.environ, **_SEVERAL} if order.processes > 1 else None,
            start_new_session=True,
        )
        try:
            samples = _watch(process, disks)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # with what it has started
            process.wait()
        text = answer.read_text() if answer.exists() else ""
        if not text:
            errors.seek(0)
            lines = errors.read().decode(errors="replace").strip().splitlines()
            raise Cannot(f"its process ended with status {process.returncode}" + (f": {lines[-1]}" if lines else ""))
        found: dict[str, Any] = json.loads(text)
        if "cannot" in found:
            raise Cannot(found["cannot"])
        begin_s = found.pop("begin_s")
        end_s = begin_s + found.get("all_drained_s", found["total_s"])
        found["activity"] = {
            disk: _rates([(at - begin_s, done) for at, done in marks if begin_s <= at <= end_s + _SAMPLE_S])
            for disk, marks in samples.items()
        }
        return found


def _launch(processes: int) -> list[str]:
    """The words before a program that so many ranks run."""
    if processes == 1:
        return []
    launcher = shutil.which("mpiexec")
    if launcher is None:
        raise Cannot("there is no mpiexec in the PATH; expected that of the MPI that mpi4py loads")
    return [launcher, "-n", str(processes)]


def _watch(process: subprocess.Popen, disks: dict[str, Path]) -> dict[str, list[tuple[float, tuple[int, int]]]]:
    """Wait for a process. Disk → (time, bytes read and written until then)."""
    samples: dict[str, list[tuple[float, tuple[int, int]]]] = {disk: [] for disk in disks}
    deadline = time.monotonic() + _TIMEOUT_S
    while process.poll() is None:
        if time.monotonic() > deadline:
            raise Cannot(f"it did not end within {_TIMEOUT_S:g} s")
        for disk, place in disks.items():
            if (done := _disk_bytes(place)) is not None:
                samples[disk].append((time.monotonic(), done))
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_SAMPLE_S)
    return samples


def _disk_bytes(place: Path) -> tuple[int, int] | None:
    """Bytes that the disk below a folder has read and written. None for file systems without one."""
    number = os.stat(place).st_dev
    try:
        words = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}/stat").read_text().split()
    except OSError:
        return None
    return 512 * int(words[2]), 512 * int(words[6])


def _rates(marks: list[tuple[float, tuple[int, int]]]) -> dict[str, list[float]]:
    """At the end of each interval: MB read and written per second in it."""
    found: dict[str, list[float]] = {"at_s": [], "read_MB_per_s": [], "written_MB_per_s": []}
    for (before_s, before), (at_s, done) in itertools.pairwise(marks):
        seconds = max(at_s - before_s, 1e-3)
        found["at_s"].append(at_s)
        found["read_MB_per_s"].append((done[0] - before[0]) / 1e6 / seconds)
        found["written_MB_per_s"].append((done[1] - before[1]) / 1e6 / seconds)
    return found


# -- what comes out --------------------------------------------------------------------------------------------------


def _figures(details: list[dict[str, Any]], none_s: float | None, rates: tuple[int, int] | None) -> dict[str, Any]:
    """Medians over all saves, or over all runs. `rates`: bytes per second that the slow disk reads and writes, if known."""
    saves = [one for run in details for one in run["saves"]]

    def over_saves(value: Callable[[dict[str, Any]], float]) -> float | None:
        return statistics.median(map(value, saves)) if saves else None

    def over_runs(key: str) -> float | None:
        return statistics.median(run[key] for run in details) if key in details[0] else None

    stall, copy, total = over_saves(lambda one: one["stall_s"]), over_runs("copy_s"), over_runs("total_s")
    assert total is not None
    written = over_saves(lambda one: one["drained_s"] - one.get("fast_s", 0.0))
    return {
        "total_s": total,
        "over_none_s": None if none_s is None or not saves else total - none_s,
        "stall_s": stall,
        "longest_stall_s": max((one["stall_s"] for one in saves), default=None),
        "stall_to_copy": stall / copy if stall is not None and copy else None,
        "fast_s": over_saves(lambda one: one["fast_s"]) if saves and "fast_s" in saves[0] else None,
        "drained_s": over_saves(lambda one: one["drained_s"]),
        "share_of_disk": details[0]["state_bytes"] / written / rates[1] if written and rates else None,
        "memory_bytes": over_runs("memory_bytes"),
        "restore_s": over_runs("restore_s"),
    }


def summarize(report: Report) -> dict[str, Any]:
    """The figures of each device and peer, and Penstock's against its aims."""
    by_device: dict[str, dict[str, dict[str, Any]]] = {}
    for row in report.rows:
        device = row.setting["device"]
        none = next((seconds for peer, seconds in row.seconds.items() if peer.startswith("none/")), None)
        disk = "hdd" if device == BURST_BUFFER else device
        rates = None if report.parameters[disk] else slow_disks.RATES[disk]
        by_device[device] = {
            peer.partition("/")[0]: _figures(row.details[peer], none, rates)
            for peer in report.peers
            if peer in row.details
        }
    return {"devices": by_device, "comparisons": _comparisons(by_device)}


def _comparisons(by_device: dict[str, dict[str, dict[str, Any]]]) -> dict[str, float]:
    """What the paper and Penstock's aims compare. The names say how to read a figure."""
    found: dict[str, float] = {}
    buffered, direct = by_device.get(BURST_BUFFER, {}), by_device.get("hdd", {})
    own = buffered.get("penstock")
    if own and "none" in buffered:
        found["burst-buffer: total of penstock / total of none"] = own["total_s"] / buffered["none"]["total_s"]
    overheads = {name: one["over_none_s"] for name, one in direct.items() if one["over_none_s"] and name != "penstock"}
    if own and overheads and (over := own["over_none_s"]) and over > 0:
        best = min(overheads, key=lambda name: overheads[name])
        found[f"time over none: of {best}, the best peer, on hdd / of penstock with the burst buffer"] = (
            overheads[best] / over
        )
    for device, peers in by_device.items():
        if mine := peers.get("penstock"):
            found[f"{device}: stall of penstock / copy"] = mine["stall_to_copy"]
            others = {name: one["stall_s"] for name, one in peers.items() if one["stall_s"] and name != "penstock"}
            if others:
                best = min(others, key=lambda name: others[name])
                found[f"{device}: stall of {best}, the best peer / stall of penstock"] = others[best] / mine["stall_s"]
    return found


def table(report: Report) -> str:
    """A line for each device and peer, then the comparisons."""
    seconds = runner.seconds_text
    lines = [
        [
            "device",
            "peer",
            "total",
            "over none",
            "stall",
            "/ copy",
            "fast",
            "durable",
            "of disk",
            "memory MB",
            "restore",
        ]
    ]

    def cell(value: float | None, text: Callable[[float], str]) -> str:
        return "-" if value is None else text(value)

    for device, peers in report.summary["devices"].items():
        for peer, one in peers.items():
            none_s = one["total_s"] - (one["over_none_s"] or 0.0)
            lines.append(
                [
                    device,
                    peer,
                    seconds(one["total_s"]),
                    cell(one["over_none_s"], lambda over: f"{100 * over / none_s:+.1f} %"),  # noqa: B023
                    cell(one["stall_s"], seconds),
                    cell(one["stall_to_copy"], "{:.2f}".format),
                    cell(one["fast_s"], seconds),
                    cell(one["drained_s"], seconds),
                    cell(one["share_of_disk"], "{:.2f}".format),
                    cell(one["memory_bytes"], lambda count: f"{count / 1e6:,.0f}"),
                    cell(one["restore_s"], seconds),
                ]
            )
    told = [f"{text}: {value:.2f}" for text, value in report.summary["comparisons"].items()]
    return "\n".join([columns(lines, keys=2), *([""] if told else []), *told, *runner.left_out(report)])


def plot(report: Report, path: str) -> None:
    """Total times over devices, and Penstock's activity of the disks over time: as the paper's Figures 9 and 10."""
    plt = pyplot()
    devices = report.summary["devices"]
    traced = {
        row.setting["device"]: runs[0]
        for row in report.rows
        if row.setting["device"] in ("hdd", BURST_BUFFER) and (runs := _own(row))
    }
    figure, axes = plt.subplots(1 + len(traced), 1, figsize=(9, 3.2 * (1 + len(traced))), squeeze=False)
    axis = axes[0, 0]
    names = [peer.partition("/")[0] for peer in report.peers if not peer.startswith("none/")]
    width = 0.8 / max(1, len(names))
    for number, name in enumerate(names):
        places = [index for index, peers in enumerate(devices.values()) if name in peers]
        heights = [peers[name]["total_s"] for peers in devices.values() if name in peers]
        axis.bar([place + (number - (len(names) - 1) / 2) * width for place in places], heights, width, label=name)
    for index, peers in enumerate(devices.values()):
        if "none" in peers:
            axis.hlines(peers["none"]["total_s"], index - 0.45, index + 0.45, color="gray", lw=2, zorder=3)
    axis.set(xticks=range(len(devices)), xticklabels=list(devices), ylabel="seconds", title="training (gray: no saves)")
    axis.legend(fontsize=7, ncols=4)
    for axis, (device, run) in zip(axes[1:, 0], traced.items()):
        for disk, rates in run["activity"].items():
            axis.plot(rates["at_s"], rates["written_MB_per_s"], label=f"{disk}, written")
        axis.axvline(run["total_s"], ls=":", color="black", label="end of the training")
        axis.set(title=f"penstock, {device}", xlabel="seconds", ylabel="MB/s", ylim=(0, None))
        axis.legend(fontsize=7)
    figure.suptitle(f"penstock bench checkpoint, {report.machine['cores']} cores")
    figure.tight_layout()
    save(figure, path)
    plt.close(figure)


def _own(row: runner.Row) -> list[dict[str, Any]]:
    return next((details for peer, details in row.details.items() if peer.startswith("penstock/")), [])
