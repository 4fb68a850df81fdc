"""The input pipelines that `penstock bench ingest` compares, and the process that runs one of them.

`python -m penstock.bench.ingest_pipelines NAME` obeys lines of JSON: {"set_up": SETTING} makes a pipeline over the files of
SETTING, {"pass": 1} runs it over all of them once. Each is answered by a line of JSON.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from penstock.bench import processes

SIDE = 224  #: Rows and columns of a decoded image.


@dataclass(frozen=True)
class Setting:
    """What a pipeline does."""

    paths: list[str]
    decode: bool  #: Decode and scale. Otherwise only read.
    threads: int  #: Or worker processes.
    batch: int


#: A function that begins a pass: it yields the number of images of each batch.
Pass = Callable[[], Iterable[int]]


def _penstock(how: Setting) -> Pass:
    import penstock as ps

    data = ps.Dataset.from_files(how.paths)
    # Without a decode stage, a batch is a list of files.
    data = (
        data.decode_jpeg((SIDE, SIDE), num_parallel_calls=how.threads) if how.decode else data.budget(cpus=how.threads)
    )
    data = data.batch(how.batch).prefetch(max(2, 2 * how.threads * 8 // how.batch))
    return lambda: (len(labels) for _, labels in data)


def _bare(how: Setting) -> Pass:
    """Penstock's decoder in loops, one per thread, without a pipeline: what the pipeline could reach at most."""
    from penstock.dataset import decode_image

    pool = ThreadPoolExecutor(how.threads)

    def work(first: int) -> int:
        paths = how.paths[first :: how.threads]
        for path in paths:
            content = Path(path).read_bytes()
            if how.decode:
                decode_image(content, (SIDE, SIDE))
        return len(paths)

    return lambda: pool.map(work, range(how.threads))


def pillow_image(path: str) -> Any:
    from PIL import Image

    with Image.open(path) as image:
        image.draft("RGB", (SIDE, SIDE))
        return np.asarray(image.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR))


def torchvision_image(path: str) -> Any:
    import torchvision

    return _scaled(torchvision.io.decode_image(path, mode=torchvision.io.ImageReadMode.RGB))


def torchcodec_image(path: str) -> Any:
    from torchcodec.decoders import decode_jpeg

    return _scaled(decode_jpeg(path))


def _scaled(image: Any) -> Any:
    import torch

    return torch.nn.functional.interpolate(image[None], (SIDE, SIDE), mode="bilinear", antialias=True)[0]


class _Files:
    """For DataLoader and Grain, which pickle it."""

    def __init__(self, paths: list[str], image: Callable[[str], Any] | None) -> None:
        self._paths, self._image = paths, image

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, index: Any) -> Any:
        path = self._paths[index]
        return Path(path).read_bytes() if self._image is None else self._image(path)


def collated(samples: Any) -> Any:
    samples = list(samples)
    return samples if isinstance(samples[0], bytes) else np.stack(samples)


def tensors(samples: list[Any]) -> Any:
    import torch

    if isinstance(samples[0], bytes):
        return samples
    return torch.stack(samples) if isinstance(samples[0], torch.Tensor) else torch.from_numpy(np.stack(samples))


def _dataloader(how: Setting, image: Callable[[str], Any] = pillow_image) -> Pass:
    import torch

    torch.set_num_threads(1)
    loader: Any = torch.utils.data.DataLoader(
        _Files(how.paths, image if how.decode else None),
        batch_size=how.batch,
        num_workers=how.threads,
        collate_fn=tensors,
        persistent_workers=True,
        multiprocessing_context="fork",
    )
    return lambda: (len(images) for images in loader)


def _torchvision(how: Setting) -> Pass:
    return _dataloader(how, torchvision_image)


def _torchcodec(how: Setting) -> Pass:
    return _dataloader(how, torchcodec_image)


def _opencv(how: Setting) -> Pass:
    import cv2

    cv2.setNumThreads(1)

    def image(path: str) -> Any:
        # A reduced scale would be smaller than the result: a half of 500 x 375 is 250 x 188.
        full = cv2.imdecode(np.fromfile(path, np.uint8), cv2.IMREAD_COLOR)
        return cv2.cvtColor(cv2.resize(full, (SIDE, SIDE), interpolation=cv2.INTER_AREA), cv2.COLOR_BGR2RGB)

    return _pool(how, image)


def _pillow(how: Setting) -> Pass:
    return _pool(how, pillow_image)


def _pool(how: Setting, image: Callable[[str], Any]) -> Pass:
    """A pool of threads that works two batches ahead."""
    pool = ThreadPoolExecutor(how.threads)
    paths, batch = how.paths, how.batch

    def sample(path: str) -> Any:
        return image(path) if how.decode else Path(path).read_bytes()

    def begin() -> Iterable[int]:
        ahead = [pool.submit(sample, path) for path in paths[: 2 * batch]]
        for begin in range(0, len(paths), batch):
            ready = [future.result() for future in ahead[:batch]]
            del ahead[:batch]
            ahead += [pool.submit(sample, path) for path in paths[begin + 2 * batch : begin + 3 * batch]]
            yield len(collated(ready))

    return begin


def _dali(how: Setting) -> Pass:
    """On processors: no operator has a device."""
    from nvidia.dali import fn, pipeline_def

    def operators() -> Any:
        data, labels = fn.readers.file(files=how.paths)
        return (fn.resize(fn.decoders.image(data), size=(SIDE, SIDE)) if how.decode else data), labels

    pipeline: Any = pipeline_def(operators, batch_size=how.batch, num_threads=how.threads, device_id=None)()
    pipeline.build()

    def begin() -> Iterator[int]:
        left = len(how.paths)
        while left > 0:
            size = len(pipeline.run()[0])
            left -= size
            yield size + min(left, 0)  # batches go past the end of the list

    return begin


def _tfdata(how: Setting, auto: bool = False) -> Pass:
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
    import tensorflow as tf

    def image(path: Any) -> Any:
        data = tf.io.read_file(path)
        if not how.decode:
            return data
        full = tf.io.decode_jpeg(data, channels=3, dct_method="INTEGER_FAST")
        return tf.cast(tf.image.resize(full, (SIDE, SIDE)), tf.uint8)

    options = tf.data.Options()
    options.deterministic = False
    if not auto:
        options.threading.private_threadpool_size = how.threads
    calls = tf.data.AUTOTUNE if auto else how.threads
    data = tf.data.Dataset.from_tensor_slices(how.paths).map(image, num_parallel_calls=calls)
    data = data.batch(how.batch, num_parallel_calls=calls if auto else None)
    data = data.prefetch(tf.data.AUTOTUNE if auto else 2).with_options(options)
    return lambda: (int(images.shape[0]) for images in data)


def _tfdata_auto(how: Setting) -> Pass:
    return _tfdata(how, auto=True)


def _grain(how: Setting) -> Pass:
    import grain

    files = _Files(how.paths, pillow_image if how.decode else None)
    data = grain.MapDataset.source(files).to_iter_dataset(
        grain.ReadOptions(num_threads=how.threads, prefetch_buffer_size=2 * how.batch)
    )
    data = data.batch(how.batch, batch_fn=collated)
    return lambda: (len(images) for images in data)


def _grain_processes(how: Setting) -> Pass:
    """Grain starts its processes anew for each iterator. So there is one iterator, and a pass takes the next batches."""
    import grain

    files = _Files(how.paths, pillow_image if how.decode else None)
    data = grain.MapDataset.source(files).repeat().batch(how.batch, batch_fn=collated)
    rest = iter(
        data.to_iter_dataset(grain.ReadOptions(num_threads=1, prefetch_buffer_size=2)).mp_prefetch(
            grain.MultiprocessingOptions(num_workers=how.threads, per_worker_buffer_size=2)
        )
    )

    def begin() -> Iterator[int]:
        left = len(how.paths)
        while left > 0:
            size = len(next(rest))
            left -= size
            yield size + min(left, 0)  # batches go past the end of the list

    return begin


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of the package that it is in
        return False


@dataclass(frozen=True)
class Pipeline:
    begin: Callable[[Setting], Pass]
    modules: tuple[str, ...]  #: What it imports.
    any_threads: bool = False  #: It chooses their number itself.

    def missing(self) -> str:
        """The first module that is not installed, or nothing."""
        return next((module for module in self.modules if not _is_installed(module)), "")


PIPELINES = {
    "pillow": Pipeline(_pillow, ("PIL",)),
    "opencv": Pipeline(_opencv, ("cv2",)),
    "dataloader": Pipeline(_dataloader, ("torch", "PIL")),
    "torchvision": Pipeline(_torchvision, ("torch", "torchvision")),
    "torchcodec": Pipeline(_torchcodec, ("torch", "torchcodec")),
    "dali": Pipeline(_dali, ("nvidia.dali",)),
    "tfdata": Pipeline(_tfdata, ("tensorflow",)),
    "tfdata-auto": Pipeline(_tfdata_auto, ("tensorflow",), any_threads=True),
    "grain": Pipeline(_grain, ("grain", "PIL")),
    "grain-processes": Pipeline(_grain_processes, ("grain", "PIL")),
    "bare": Pipeline(_bare, ()),
    "penstock": Pipeline(_penstock, ()),
}


def _run(begin_pass: Pass) -> dict[str, Any]:
    cpu_s = processes.cpu_s()
    begin = time.perf_counter()
    images = sum(begin_pass())
    seconds = time.perf_counter() - begin
    return {
        "images": images,
        "seconds": seconds,
        "cpu_s": processes.cpu_s() - cpu_s,
        "memory_bytes": processes.memory_bytes(),
    }


def main() -> None:
    pipeline = PIPELINES[sys.argv[1]]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries print to it
    begin_pass: Pass | None = None
    for line in iter(sys.stdin.readline, ""):
        order = json.loads(line)
        answer: dict[str, Any] = {}
        try:
            if "set_up" in order:
                begin_pass = None  # ends the threads and processes of the one before
                begin_pass = pipeline.begin(Setting(**order["set_up"]))
            elif begin_pass is not None:
                answer = _run(begin_pass)
        except Exception as error:
            traceback.print_exc()
            answer = {"cannot": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)
    answers.flush()
    os._exit(0)  # without waiting for threads and processes of libraries


if __name__ == "__main__":
    main()
