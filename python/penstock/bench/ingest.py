"""Benchmark: reading and decoding of JPEG files; the micro-benchmark of the training I/O paper, section IV."""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from penstock.bench import ingest_images, runner
from penstock.bench.ingest_pipelines import PIPELINES
from penstock.bench.installation import Installation
from penstock.bench.runner import Jobs, Program, Report
from penstock.bench.worker import Cannot
from penstock.drawing import pyplot, save
from penstock.text_table import columns

SUMMARY = """Batches of JPEG files, read and decoded by Penstock and by other input pipelines.

Seeded images like photographs, near 112 KB (500 x 375 pixels) and near 12 KB (300 x 200), are read in batches of 64, and
with "decode" also decoded and scaled to 224 x 224 x 3 of uint8. All peers may decode at a reduced scale.

Peers, if installed: Pillow and OpenCV in a pool of threads; PyTorch's DataLoader with Pillow, or with torchvision's decoder,
and as many workers as threads; tf.data with so many threads, or tuning itself; Grain with Pillow in threads or in processes.
"bare" is Penstock's decoder in one loop per thread, without a pipeline. Each peer is a process without a launcher. The peers
take turns, one pass over all files each, and are stopped in between; the first passes are discarded. "cold" drops the files from the page cache
before every pass.

Times are seconds for one pass. The table shows images per second, and then each peer at its best number of threads.
"""

OPTIONS = {
    "sizes": ([112, 12], [12], "sizes of the files, in KB"),
    "images": (2048, 128, "files of each size"),
    "batch": (64, 16, "images in a batch"),
    "threads": ([1, 2, 4, 8], [1, 2], "threads of the pipeline, or worker processes"),
    "work": (["read", "decode"], ["decode"], "what is done to a file"),
    "cache": (["warm", "cold"], ["warm"], "whether the files are in the page cache"),
    "passes": (5, 1, "timed passes over the files, after one that is discarded"),
    "directory": ("", "", "where the files go; the system's temporary folder if left out"),
}
CHOICES = {"work": ["read", "decode"], "cache": ["warm", "cold"]}
RANKS = [1]
MINUTES = 30
REPETITIONS = 1

_PASS_TIMEOUT_S = 600.0


def missing(_: Installation) -> dict[str, str]:
    """Peer → what is not installed."""
    found = {
        name: f"{module} is not installed for the Python that runs the benchmark"
        for name, pipeline in PIPELINES.items()
        if (module := pipeline.missing())
    }
    if "pillow" in found:
        found["penstock"] = found["bare"] = "Pillow, which makes the images, is not installed"
    return found


def programs(mpi: Installation) -> list[Program]:
    absent = missing(mpi)
    if "penstock" in absent:
        return []
    names = [name for name in PIPELINES if name not in absent]
    return [
        Program(name, tuple(names[:-1]) if name == "penstock" else (), once=True, job="in turns", local=True)
        for name in names
    ]


def prepare(parameters: dict[str, Any], jobs: Jobs) -> dict[str, Any]:
    """Make the files, once for all jobs."""
    place = Path(parameters["directory"] or Path(tempfile.gettempdir()) / f"penstock-bench-ingest-{os.getuid()}")
    for kilobytes in parameters["sizes"]:
        ingest_images.make(place, kilobytes, parameters["images"])
    return {**parameters, "directory": str(place)}


def measure(program: str, parameters: dict[str, Any]) -> runner.Measured:
    """`program`: the names of the peers that take turns, comma-separated."""
    rows: runner.Measured = []
    with _peers(program.split(",")) as peers:
        for kilobytes in parameters["sizes"]:
            paths = ingest_images.paths(Path(parameters["directory"]), kilobytes, parameters["images"])
            for work in parameters["work"]:
                for threads in parameters["threads"]:
                    for cache in parameters["cache"]:
                        setting = {"KB": kilobytes, "work": work, "cache": cache, "threads": threads}
                        rows += _in_turns(peers, paths, setting, parameters)
    return rows


def _in_turns(
    peers: Sequence[_Peer], paths: list[str], setting: dict[str, Any], parameters: dict[str, Any]
) -> runner.Measured:
    how = {
        "paths": paths,
        "decode": setting["work"] == "decode",
        "threads": setting["threads"],
        "batch": parameters["batch"],
    }
    passes: dict[str, list[dict[str, Any]]] = {peer.name: [] for peer in peers}
    reasons: dict[str, str] = {}
    for number in range(parameters["passes"] + 1):
        # The other way round each time: what the peer before leaves in the caches is not always the same.
        for peer in peers if number % 2 == 0 else reversed(peers):
            if peer.name in reasons:
                continue
            try:
                if number == 0:
                    peer.ask({"set_up": how})
                if setting["cache"] == "cold":
                    _drop_from_cache(paths)
                read_bytes = _disk_read_bytes()
                answer = peer.ask({"pass": 1})
                if answer["images"] != len(paths):
                    raise Cannot(f"it gave {answer['images']} of {len(paths)} images")
                answer["disk_read_bytes"] = _disk_read_bytes() - read_bytes
                passes[peer.name].append(answer)
            except Cannot as error:
                reasons[peer.name] = str(error)
    rows: runner.Measured = []
    for peer in peers:
        own = {"program": peer.name, **setting, "images": len(paths)}
        if peer.name in reasons:
            rows.append(({**own, "cannot": reasons[peer.name]}, []))
        else:
            rows.append(({**own, "details": passes[peer.name][1:]}, [one["seconds"] for one in passes[peer.name][1:]]))
    return rows


class _Peer:
    """The processes of a peer. They are stopped while it is another's turn, since some pipelines read on into buffers."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._errors = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "penstock.bench.ingest_pipelines", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
        )

    def ask(self, order: dict[str, Any]) -> dict[str, Any]:
        self._signal(signal.SIGCONT)
        try:
            return self._ask(order)
        finally:
            self._signal(signal.SIGSTOP)

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def _ask(self, order: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise Cannot(self._last_words()) from None
        ready, _, _ = select.select([self._process.stdout], [], [], _PASS_TIMEOUT_S)
        if not ready:
            self.end()
            raise Cannot(f"it did not answer within {_PASS_TIMEOUT_S:g} s")
        line = self._process.stdout.readline()
        if not line:
            raise Cannot(self._last_words())
        answer: dict[str, Any] = json.loads(line)
        if "cannot" in answer:
            raise Cannot(answer["cannot"])
        return answer

    def end(self) -> None:
        """With all processes that it has started."""
        self._signal(signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def _last_words(self) -> str:
        status = self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return f"its process ended with status {status}" + (f": {lines[-1]}" if lines else "")


@contextlib.contextmanager
def _peers(names: Sequence[str]) -> Iterator[list[_Peer]]:
    peers: list[_Peer] = []
    try:
        peers += [_Peer(name) for name in names]
        yield peers
    finally:
        for peer in peers:
            peer.end()


def _drop_from_cache(paths: list[str]) -> None:
    for path in paths:
        file = os.open(path, os.O_RDONLY)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


def _disk_read_bytes() -> int:
    """What all disks have read since the machine started."""
    total = 0
    with contextlib.suppress(OSError):
        for line in Path("/proc/diskstats").read_text().splitlines():
            fields = line.split()
            # Without partitions and what is made of disks: their parents count, too.
            if (Path("/sys/block") / fields[2] / "device").exists():
                total += 512 * int(fields[5])
    return total


def summarize(report: Report) -> dict[str, Any]:
    """For each size, work and state of the cache: every peer at its best number of threads."""
    found: dict[tuple[Any, ...], list[runner.Row]] = {}
    for row in report.rows:
        found.setdefault(tuple(row.setting[key] for key in ("KB", "work", "cache")), []).append(row)
    best = []
    for (kilobytes, work, cache), rows in found.items():
        peers: dict[str, Any] = {}
        for peer in report.peers:
            known = [row for row in rows if peer in row.seconds]
            if known:
                peers[peer] = _figures(min(known, key=lambda row: row.seconds[peer]), peer)
        best.append({"KB": kilobytes, "work": work, "cache": cache, "peers": peers})
    return {"best": best}


def _figures(row: runner.Row, peer: str) -> dict[str, Any]:
    images, seconds = row.setting["images"], row.seconds[peer]
    details = row.details.get(peer, [])

    def median(key: str) -> float:
        return statistics.median(one[key] for one in details) if details else math.nan

    return {
        "threads": row.setting["threads"],
        "images_per_s": images / seconds,
        "MB_per_s": images * row.setting["KB"] / 1e3 / seconds,
        "cpu_ms_per_image": 1e3 * median("cpu_s") / images,
        "memory_MB": median("memory_bytes") / 1e6,
        "disk_MB_per_s": median("disk_read_bytes") / 1e6 / seconds,
    }


def table(report: Report) -> str:
    """Images per second over threads; then each peer at its best."""
    peers = [peer for peer in report.peers if any(peer in row.seconds for row in report.rows)]
    names = [peer.partition("/")[0] for peer in peers]
    lines = [["KB", "work", "cache", "threads", *names]]
    for row in report.rows:
        lines.append(
            [str(row.setting[key]) for key in lines[0][:4]]
            + [f"{row.setting['images'] / row.seconds[peer]:,.0f}" if peer in row.seconds else "-" for peer in peers]
        )
    parts = ["images/s", columns(lines, keys=4)]
    own = next((peer for peer in peers if peer.startswith("penstock/")), None)
    lines = [["KB", "work", "cache", "peer", "threads", "images/s", "MB/s", "CPU ms/image", "memory MB", "disk MB/s"]]
    lines[0] += ["penstock x", "CPU x"] if own else []
    for group in (report.summary or {}).get("best", []):
        for peer, figures in group["peers"].items():
            lines.append(
                [str(group[key]) for key in lines[0][:3]]
                + [peer.partition("/")[0], str(figures["threads"]), f"{figures['images_per_s']:,.0f}"]
                + [f"{figures['MB_per_s']:,.0f}", f"{figures['cpu_ms_per_image']:.2f}"]
                + [f"{figures['memory_MB']:,.0f}", f"{figures['disk_MB_per_s']:,.0f}"]
            )
            if own in group["peers"]:
                mine = group["peers"][own]
                lines[-1] += [
                    f"{mine['images_per_s'] / figures['images_per_s']:.2f}",
                    f"{figures['cpu_ms_per_image'] / mine['cpu_ms_per_image']:.2f}"
                    if mine["cpu_ms_per_image"]
                    else "-",
                ]
            elif own:
                lines[-1] += ["-", "-"]
    return "\n".join([*parts, "", "each peer at its best", columns(lines, keys=4), *runner.left_out(report)])


def plot(report: Report, path: str) -> None:
    """Images per second over threads, one panel for each size, work and state of the cache; as the paper's Figures 4 to 8."""
    plt = pyplot()
    panels: dict[tuple[Any, ...], list[runner.Row]] = {}
    for row in report.rows:
        panels.setdefault(tuple(row.setting[key] for key in ("KB", "work", "cache")), []).append(row)
    across = min(2, max(1, len(panels)))
    figure, axes = plt.subplots(
        -(-len(panels) // across), across, figsize=(5 * across, 3.4 * -(-len(panels) // across)), squeeze=False
    )
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    for axis, ((kilobytes, work, cache), rows) in zip(axes.flat, panels.items()):
        rows.sort(key=lambda row: row.setting["threads"])
        for number, peer in enumerate(report.peers):
            known = [row for row in rows if peer in row.seconds]
            rates = [row.setting["images"] / row.seconds[peer] for row in known]
            axis.plot(
                [row.setting["threads"] for row in known],
                rates,
                marker="o",
                ms=3,
                color=f"C{number}",
                label=peer.partition("/")[0],
            )
        axis.set(title=f"{kilobytes} KB, {work}, {cache}", xlabel="threads", ylabel="images/s", ylim=(0, None))
        axis.grid(alpha=0.3)
    axes.flat[0].legend(fontsize=8)
    figure.suptitle(f"penstock bench ingest, {report.machine['cores']} cores")
    figure.tight_layout()
    save(figure, path)
    plt.close(figure)
