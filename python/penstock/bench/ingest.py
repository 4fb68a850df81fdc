"""Benchmark: reading and decoding of JPEG files; the micro-benchmark of the training I/O paper, section IV."""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from penstock.bench import ingest_images, runner, slow_disks
from penstock.bench.ingest_pipelines import PIPELINES
from penstock.bench.installation import Installation
from penstock.bench.runner import Jobs, Program, Report
from penstock.bench.worker import Cannot
from penstock.drawing import pyplot, save
from penstock.text_table import columns

SUMMARY = """Batches of JPEG files, read and decoded by Penstock and by other input pipelines.

Seeded images near 112 KB (500 x 375 pixels) and near 12 KB (300 x 200), are read in batches of 64, and
with "decode" also decoded and scaled to 224 x 224 x 3 of uint8. All peers may decode at a reduced scale. They are like
photographs, or crops of the real ones that come with scikit-image and scikit-learn.

Peers, if installed: Pillow and OpenCV in a pool of threads; PyTorch's DataLoader with Pillow, or with torchvision's or TorchCodec's
decoder, and as many workers as threads; DALI on processors; tf.data with so many threads, or tuning itself; Grain with Pillow in threads or in processes.
"bare" is Penstock's decoder in one loop per thread, without a pipeline. Each peer is a process without a launcher. The peers
take turns, one pass over all files each, and are stopped in between; the first passes are discarded. "cold" drops the files from the page cache
before every pass. "disk" is that of the directory, or an emulated one with the rates of the training I/O paper (root only), for
which the files are cold. The plot shows what disks read in each second, too.

Times are seconds for one pass. The table shows images per second, and then each peer at its best number of threads.
"""

OPTIONS = {
    "sizes": ([112, 12], [12], "sizes of the files, in KB"),
    "images": (2048, 128, "files of each size"),
    "batch": (64, 16, "images in a batch"),
    "threads": ([1, 2, 4, 8], [1, 2], "threads of the pipeline, or worker processes"),
    "work": (["read", "decode"], ["decode"], "what is done to a file"),
    "cache": (["warm", "cold"], ["warm"], "whether the files are in the page cache"),
    "disks": (["own"], ["own"], "disks: that of the directory (own), or emulated ones: hdd, ssd, optane"),
    "scenes": ("synthetic", "synthetic", "what is on the images: synthetic scenes, or photographs"),
    "passes": (5, 1, "timed passes over the files, after one that is discarded"),
    "directory": ("", "", "where the files go; the system's temporary folder if left out"),
}
CHOICES = {
    "work": ["read", "decode"],
    "cache": ["warm", "cold"],
    "disks": ["own", *slow_disks.RATES],
    "scenes": list(ingest_images.SCENES),
}
TELLS_PROGRESS = True
RANKS = [1]
MINUTES = 30
REPETITIONS = 1
_IMAGES = "penstock-bench-ingest-"  #: Prefix of the folders of emulated disks.

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
        ingest_images.make(place, kilobytes, parameters["images"], parameters["scenes"])
    return {**parameters, "directory": str(place)}


def measure(
    program: str, parameters: dict[str, Any], advance: Callable[[float], None] = lambda share: None
) -> runner.Measured:
    """`program`: the names of the peers that take turns, comma-separated."""
    rows: runner.Measured = []
    names = program.split(",")
    settings = [
        {"disk": disk, "KB": kilobytes, "work": work, "cache": cache, "threads": threads}
        for disk in parameters["disks"]
        for kilobytes in parameters["sizes"]
        for work in parameters["work"]
        for threads in parameters["threads"]
        for cache in (parameters["cache"] if disk == "own" else ["cold"])
    ]
    place = Path(parameters["directory"])
    for disk in parameters["disks"]:
        mine = [setting for setting in settings if setting["disk"] == disk]
        with contextlib.ExitStack() as stack:
            try:
                there = place if disk == "own" else stack.enter_context(_copied(disk, parameters))
            except Cannot as error:
                rows += [({"program": name, "disk": disk, "cannot": str(error)}, []) for name in names]
                continue
            device = _device(there) if disk != "own" else ""
            peers = stack.enter_context(_peers(names))
            for setting in mine:
                advance(settings.index(setting) / len(settings))
                folder = ingest_images.folder_name(setting["KB"], parameters["scenes"])
                paths = ingest_images.paths(there, folder, parameters["images"])
                rows += _in_turns(peers, paths, setting, parameters, device)
    return rows


@contextlib.contextmanager
def _copied(disk: str, parameters: dict[str, Any]) -> Iterator[Path]:
    """An emulated disk with the files."""
    place = Path(parameters["directory"])
    files = [
        path
        for kilobytes in parameters["sizes"]
        for path in ingest_images.paths(
            place, ingest_images.folder_name(kilobytes, parameters["scenes"]), parameters["images"]
        )
    ]
    blocks = 1 << 12
    size_bytes = sum(-(-os.path.getsize(path) // blocks) * blocks + 512 for path in files)
    slow_disks.remove_abandoned(_IMAGES)
    with (
        tempfile.TemporaryDirectory(prefix=_IMAGES, dir=place) as images,
        slow_disks.emulated(disk, size_bytes * 5 // 4 + (128 << 20), Path(images)) as mount,
    ):
        for path in files:
            target = mount / os.path.relpath(path, place)
            target.parent.mkdir(exist_ok=True)
            shutil.copyfile(path, target)
        os.sync()  # dirty pages cannot be dropped from the cache
        yield mount


def _device(mount: Path) -> str:
    """The name of the block device that is mounted there."""
    for line in Path("/proc/mounts").read_text().splitlines():
        source, where = line.split()[:2]
        if where == str(mount):
            return Path(source).name
    return ""


def _in_turns(
    peers: Sequence[_Peer], paths: list[str], setting: dict[str, Any], parameters: dict[str, Any], device: str = ""
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
                with _Activity(device) as activity:
                    answer = peer.ask({"pass": 1})
                if answer["images"] != len(paths):
                    raise Cannot(f"it gave {answer['images']} of {len(paths)} images")
                answer["disk_read_bytes"] = activity.read_bytes
                answer["disk_bytes_by_second"] = activity.by_second
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


class _Activity:
    """What disks read meanwhile, in all and in each second, as dstat shows it."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.by_second: list[int] = []
        self.read_bytes = 0

    def __enter__(self) -> _Activity:
        self._first = self._last = _disk_read_bytes(self._device)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._note()
        self.read_bytes = self._last - self._first

    def _watch(self) -> None:
        while not self._over.wait(1):
            self._note()

    def _note(self) -> None:
        now = _disk_read_bytes(self._device)
        self.by_second.append(now - self._last)
        self._last = now


def _disk_read_bytes(device: str = "") -> int:
    """What a disk, or all disks, have read since the machine started."""
    total = 0
    with contextlib.suppress(OSError):
        for line in Path("/proc/diskstats").read_text().splitlines():
            fields = line.split()
            # Without partitions and what is made of disks: their parents count, too.
            counts = fields[2] == device if device else (Path("/sys/block") / fields[2] / "device").exists()
            if counts:
                total += 512 * int(fields[5])
    return total


#: What is compared over threads.
_GROUP = ("disk", "KB", "work", "cache")


def summarize(report: Report) -> dict[str, Any]:
    """For each size, work and state of the cache: every peer at its best number of threads."""
    found: dict[tuple[Any, ...], list[runner.Row]] = {}
    for row in report.rows:
        found.setdefault(tuple(row.setting[key] for key in _GROUP), []).append(row)
    best = []
    for group, rows in found.items():
        peers: dict[str, Any] = {}
        for peer in report.peers:
            known = [row for row in rows if peer in row.seconds]
            if known:
                peers[peer] = _figures(min(known, key=lambda row: row.seconds[peer]), peer)
        best.append({**dict(zip(_GROUP, group)), "peers": peers})
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
    lines = [[*_GROUP, "threads", *names]]
    for row in report.rows:
        lines.append(
            [str(row.setting[key]) for key in lines[0][:5]]
            + [f"{row.setting['images'] / row.seconds[peer]:,.0f}" if peer in row.seconds else "-" for peer in peers]
        )
    parts = ["images/s", columns(lines, keys=5)]
    own = next((peer for peer in peers if peer.startswith("penstock/")), None)
    lines = [[*_GROUP, "peer", "threads", "images/s", "MB/s", "CPU ms/image", "memory MB", "disk MB/s"]]
    lines[0] += ["penstock x", "CPU x"] if own else []
    for group in (report.summary or {}).get("best", []):
        for peer, figures in group["peers"].items():
            lines.append(
                [str(group[key]) for key in _GROUP]
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
    return "\n".join([*parts, "", "each peer at its best", columns(lines, keys=5), *runner.left_out(report)])


def plot(report: Report, path: str) -> None:
    """Images per second over threads, one panel for each disk, size, work and state of the cache, as the paper's Figures 4 to
    8; and what disks read in each second of a cold pass, for each peer at its best number of threads."""
    plt = pyplot()
    panels: dict[tuple[Any, ...], list[runner.Row]] = {}
    for row in report.rows:
        panels.setdefault(tuple(row.setting[key] for key in _GROUP), []).append(row)
    watched = {group: rows for group, rows in panels.items() if _cold_activity(rows, report.peers)}
    count = len(panels) + len(watched)
    across = min(2, max(1, count))
    down = -(-count // across)
    figure, axes = plt.subplots(down, across, figsize=(5 * across, 3.4 * down), squeeze=False, layout="constrained")
    colors = len(plt.rcParams["axes.prop_cycle"])
    styles = {
        peer: {"color": f"C{number}", "ls": "-" if number < colors else "--"}
        for number, peer in enumerate(report.peers)
    }
    for axis in axes.flat[count:]:
        axis.set_visible(False)
    for axis, ((disk, kilobytes, work, cache), rows) in zip(axes.flat, panels.items()):
        rows.sort(key=lambda row: row.setting["threads"])
        for peer, style in styles.items():
            known = [row for row in rows if peer in row.seconds]
            rates = [row.setting["images"] / row.seconds[peer] for row in known]
            threads = [row.setting["threads"] for row in known]
            axis.plot(threads, rates, marker="o", ms=3, label=peer.partition("/")[0], **style)
        axis.set(
            title=f"{_on(disk)}{kilobytes} KB, {work}, {cache}", xlabel="threads", ylabel="images/s", ylim=(0, None)
        )
        ticks = sorted({row.setting["threads"] for row in rows})
        axis.set_xscale("log", base=2)
        axis.set_xticks(ticks, [str(number) for number in ticks])
        axis.grid(alpha=0.3)
    for axis, ((disk, kilobytes, work, _), rows) in zip(axes.flat[len(panels) :], watched.items()):
        for peer, megabytes in _cold_activity(rows, report.peers).items():
            seconds = range(1, len(megabytes) + 1)
            axis.plot(seconds, megabytes, marker=".", ms=4, **styles[peer])
        title = f"{_on(disk)}{kilobytes} KB, {work}: read in each second"
        axis.set(title=title, xlabel="s", ylabel="MB", ylim=(0, None))
        axis.grid(alpha=0.3)
    figure.legend(*axes.flat[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8)
    figure.suptitle(f"penstock bench ingest, {report.machine['cores']} cores")
    save(figure, path)
    plt.close(figure)


def _on(disk: str) -> str:
    return "" if disk == "own" else f"{disk}, "


def _cold_activity(rows: list[runner.Row], peers: Sequence[str]) -> dict[str, list[float]]:
    """Peer → MB that disks read in each second of its first cold pass, at its best number of threads."""
    found = {}
    for peer in peers:
        known = [row for row in rows if row.setting["cache"] == "cold" and row.details.get(peer)]
        if known:
            best = min(known, key=lambda row: row.seconds.get(peer, math.inf))
            found[peer] = [bytes_read / 1e6 for bytes_read in best.details[peer][0].get("disk_bytes_by_second", [])]
    return found
