"""Benchmark: reading and decoding of JPEG files; the micro-benchmark of the training I/O paper, section IV."""

from __future__ import annotations

import importlib.util
import os
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from penstock.bench import ingest_images, runner
from penstock.bench.installation import Installation
from penstock.bench.runner import Jobs, Program, Report
from penstock.bench.worker import Cannot
from penstock.drawing import pyplot, save
from penstock.text_table import columns

SUMMARY = """Batches of JPEG files, read and decoded by Penstock and by other input pipelines.

Seeded images like photographs, near 112 KB (500 x 375 pixels) and near 12 KB (300 x 200), are read in batches of 64, and
with "decode" also decoded and scaled to 224 x 224 x 3 of uint8. All peers may decode at a reduced scale. Peers: Pillow and
OpenCV in a pool of threads, PyTorch's DataLoader with Pillow and as many workers as threads, tf.data, and Grain with
Pillow; those that are installed. "cold" drops the files from the page cache before every pass. The first pass of a job is discarded.
Times are seconds for one pass over all files; the table shows images per second.
"""

PEERS = ("pillow", "dataloader", "opencv", "tfdata", "grain")
OPTIONS = {
    "sizes": ([112, 12], [12], "sizes of the files, in KB"),
    "images": (2048, 128, "files of each size"),
    "batch": (64, 16, "images in a batch"),
    "threads": ([1, 2, 4, 8], [1, 2], "threads of the pipeline, or worker processes of DataLoader"),
    "work": (["read", "decode"], ["decode"], "what is done to a file"),
    "cache": (["warm", "cold"], ["warm"], "whether the files are in the page cache"),
    "passes": (5, 1, "timed passes over the files in one job"),
    "directory": ("", "", "where the files go; the system's temporary folder if left out"),
}
CHOICES = {"work": ["read", "decode"], "cache": ["warm", "cold"]}
RANKS = [1]
MINUTES = 30
SIDE = 224

_MODULES = {
    "pillow": ("PIL",),
    "dataloader": ("torch", "PIL"),
    "opencv": ("cv2",),
    "tfdata": ("tensorflow",),
    "grain": ("grain", "PIL"),
}


def missing(_: Installation) -> dict[str, str]:
    """Peer → what is not installed."""
    found = {
        name: f"{module} is not installed for the Python that runs the benchmark"
        for name, modules in _MODULES.items()
        for module in modules
        if importlib.util.find_spec(module) is None
    }
    if importlib.util.find_spec("PIL") is None:
        found["penstock"] = "Pillow, which makes the images, is not installed"
    return found


def programs(mpi: Installation) -> list[Program]:
    absent = missing(mpi)
    if "penstock" in absent:
        return []
    peers = [name for name in PEERS if name not in absent]
    return [*(Program(name, once=True) for name in peers), Program("penstock", tuple(peers), once=True)]


def prepare(parameters: dict[str, Any], jobs: Jobs) -> dict[str, Any]:
    """Make the files, once for all jobs."""
    place = Path(parameters["directory"] or Path(tempfile.gettempdir()) / f"penstock-bench-ingest-{os.getuid()}")
    for kilobytes in parameters["sizes"]:
        ingest_images.make(place, kilobytes, parameters["images"])
    return {**parameters, "directory": str(place)}


def measure(program: str, parameters: dict[str, Any]) -> runner.Measured:
    rows: runner.Measured = []
    for kilobytes in parameters["sizes"]:
        paths = ingest_images.paths(Path(parameters["directory"]), kilobytes, parameters["images"])
        for work in parameters["work"]:
            for threads in parameters["threads"]:
                for cache in parameters["cache"]:
                    setting = {"KB": kilobytes, "work": work, "cache": cache, "threads": threads, "images": len(paths)}
                    try:
                        seconds = _passes(program, paths, work == "decode", threads, cache == "cold", parameters)
                    except Cannot as error:
                        rows.append(({**setting, "cannot": str(error)}, []))
                        continue
                    rows.append((setting, seconds))
    return rows


def _passes(
    program: str, paths: list[str], decode: bool, threads: int, cold: bool, parameters: dict[str, Any]
) -> list[float]:
    begin_pass = _PIPELINES[program](paths, decode, threads, parameters["batch"])
    seconds = []
    for _ in range(parameters["passes"] + 1):
        if cold:
            _drop_from_cache(paths)
        begin = time.perf_counter()
        count = sum(begin_pass())
        seconds.append(time.perf_counter() - begin)
        if count != len(paths):
            raise RuntimeError(f"{program} gave {count} of {len(paths)} images")
    return seconds[1:]


def _drop_from_cache(paths: list[str]) -> None:
    for path in paths:
        file = os.open(path, os.O_RDONLY)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


#: A function that begins a pass: it yields the number of images of each batch.
Pass = Callable[[], Iterable[int]]


def _penstock(paths: list[str], decode: bool, threads: int, batch: int) -> Pass:
    import penstock as ps

    data = ps.Dataset.from_files(paths)
    # Without a decode stage, a batch is a list of files.
    data = (
        data.decode_jpeg((SIDE, SIDE), num_parallel_calls=threads) if decode else data.filter(lambda *_: True, threads)
    )
    data = data.batch(batch).prefetch(max(2, 2 * threads * 8 // batch))
    return lambda: (len(labels) for _, labels in data)


def pillow_image(path: str) -> Any:
    from PIL import Image

    with Image.open(path) as image:
        image.draft("RGB", (SIDE, SIDE))
        return np.asarray(image.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR))


class _Files:
    """For DataLoader and Grain, which pickle it."""

    def __init__(self, paths: list[str], decode: bool) -> None:
        self._paths, self._decode = paths, decode

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, index: Any) -> Any:
        path = self._paths[index]
        return pillow_image(path) if self._decode else Path(path).read_bytes()


def collated(samples: list[Any]) -> Any:
    return samples if isinstance(samples[0], bytes) else np.stack(samples)


def _dataloader(paths: list[str], decode: bool, threads: int, batch: int) -> Pass:
    import torch

    torch.set_num_threads(1)

    def tensors(samples: list[Any]) -> Any:
        return samples if isinstance(samples[0], bytes) else torch.from_numpy(np.stack(samples))

    loader: Any = torch.utils.data.DataLoader(
        _Files(paths, decode),
        batch_size=batch,
        num_workers=threads,
        collate_fn=tensors,
        persistent_workers=True,
        multiprocessing_context="fork",
    )
    return lambda: (len(images) for images in loader)


def _opencv(paths: list[str], decode: bool, threads: int, batch: int) -> Pass:
    import cv2

    cv2.setNumThreads(1)

    def image(path: str) -> Any:
        # A reduced scale would be smaller than the result: a half of 500 x 375 is 250 x 188.
        full = cv2.imdecode(np.fromfile(path, np.uint8), cv2.IMREAD_COLOR)
        return cv2.cvtColor(cv2.resize(full, (SIDE, SIDE), interpolation=cv2.INTER_AREA), cv2.COLOR_BGR2RGB)

    return _pool(paths, image if decode else lambda path: Path(path).read_bytes(), threads, batch)


def _pillow(paths: list[str], decode: bool, threads: int, batch: int) -> Pass:
    return _pool(paths, pillow_image if decode else lambda path: Path(path).read_bytes(), threads, batch)


def _pool(paths: list[str], sample: Callable[[str], Any], threads: int, batch: int) -> Pass:
    """A pool of threads that works two batches ahead."""
    pool = ThreadPoolExecutor(threads)

    def begin() -> Iterable[int]:
        ahead = [pool.submit(sample, path) for path in paths[: 2 * batch]]
        for begin in range(0, len(paths), batch):
            ready = [future.result() for future in ahead[:batch]]
            del ahead[:batch]
            ahead += [pool.submit(sample, path) for path in paths[begin + 2 * batch : begin + 3 * batch]]
            yield len(collated(ready))

    return begin


def _tfdata(paths: list[str], decode: bool, threads: int, batch: int) -> Pass:
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
    import tensorflow as tf

    def image(path: Any) -> Any:
        data = tf.io.read_file(path)
        if not decode:
            return data
        full = tf.io.decode_jpeg(data, channels=3, dct_method="INTEGER_FAST")
        return tf.cast(tf.image.resize(full, (SIDE, SIDE)), tf.uint8)

    options = tf.data.Options()
    options.threading.private_threadpool_size = threads
    data = tf.data.Dataset.from_tensor_slices(paths).map(image, num_parallel_calls=threads)
    data = data.batch(batch).prefetch(2).with_options(options)
    return lambda: (int(images.shape[0]) for images in data)


def _grain(paths: list[str], decode: bool, threads: int, batch: int) -> Pass:
    import grain

    data = grain.MapDataset.source(_Files(paths, decode)).to_iter_dataset(
        grain.ReadOptions(num_threads=threads, prefetch_buffer_size=2 * batch)
    )
    data = data.batch(batch, batch_fn=collated)
    return lambda: (len(images) for images in data)


_PIPELINES: dict[str, Callable[[list[str], bool, int, int], Pass]] = {
    "penstock": _penstock,
    "pillow": _pillow,
    "dataloader": _dataloader,
    "opencv": _opencv,
    "tfdata": _tfdata,
    "grain": _grain,
}


def table(report: Report) -> str:
    """Images per second, and how many times as fast Penstock is."""
    peers = [peer for peer in report.peers if any(peer in row.seconds for row in report.rows)]
    pairs = list(dict.fromkeys(pair for row in report.rows for pair in row.speedup))
    lines = [["KB", "work", "cache", "threads", *peers, *(pair.replace(" : ", " x ") for pair in pairs)]]
    for row in report.rows:
        lines.append(
            [str(row.setting[key]) for key in lines[0][:4]]
            + [f"{row.setting['images'] / row.seconds[peer]:,.0f}" if peer in row.seconds else "-" for peer in peers]
            + [f"{row.speedup[pair]:.2f}" if pair in row.speedup else "-" for pair in pairs]
        )
    return "\n".join([columns(lines, keys=4), *runner.left_out(report)])


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
                [row.setting["threads"] for row in known], rates, marker="o", ms=3, color=f"C{number}", label=peer
            )
        axis.set(title=f"{kilobytes} KB, {work}, {cache}", xlabel="threads", ylabel="images/s", ylim=(0, None))
        axis.grid(alpha=0.3)
    axes.flat[0].legend(fontsize=8)
    figure.suptitle(f"penstock bench ingest, {report.machine['cores']} cores")
    figure.tight_layout()
    save(figure, path)
    plt.close(figure)
