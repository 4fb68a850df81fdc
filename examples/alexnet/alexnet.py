"""AlexNet, trained from JPEG files: the mini-application of Chien et al., "Characterizing Deep-Learning I/O Workloads in
TensorFlow" (section III.B and III.C), with Penstock's input pipeline, checkpoints through a burst buffer, and allreduce.

python alexnet.py images --make 2048                                     # writes images first, if there are none
python alexnet.py images --threads 4 --prefetch 0                        # Figure 6: what prefetching hides
python alexnet.py images --save slow --burst-buffer /dev/shm/fast        # Figure 9: what checkpoints cost
mpiexec -n 4 python alexnet.py images --batch 256                        # data-parallel; the batch is that of all ranks
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import penstock as ps
import torch
import torch.distributed as dist
from torch import nn

CLASSES = 102  # of Caltech 101, which the paper uses: 9,144 images of 12 KB


class AlexNet(nn.Module):
    """Five convolutions, three poolings and three full layers. ``width`` scales the number of channels."""

    def __init__(self, width: float = 1.0) -> None:
        super().__init__()
        a, b, c, d, full = (max(8, int(width * channels)) for channels in (64, 192, 384, 256, 4096))
        self.features = nn.Sequential(
            *(nn.Conv2d(3, a, 11, stride=4, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2)),
            *(nn.Conv2d(a, b, 5, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2)),
            *(nn.Conv2d(b, c, 3, padding=1), nn.ReLU()),
            *(nn.Conv2d(c, d, 3, padding=1), nn.ReLU()),
            *(nn.Conv2d(d, d, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, 2)),
            nn.AdaptiveAvgPool2d(6),
        )
        self.classifier = nn.Sequential(
            *(nn.Dropout(), nn.Linear(36 * d, full), nn.ReLU()),
            *(nn.Dropout(), nn.Linear(full, full), nn.ReLU()),
            nn.Linear(full, CLASSES),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.features(images).flatten(1))


def make_images(folder: Path, count: int, kilobytes: float) -> None:
    """JPEG files with the look of photographs, as large as is asked, in a folder for each class."""
    from PIL import Image

    rng = np.random.default_rng(1)
    side = int(300 * (kilobytes / 21) ** 0.5)
    for i in range(count):
        path = folder / f"{i % CLASSES:03}" / f"{i:06}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        coarse = Image.fromarray(rng.integers(0, 256, (side // 16, side // 16, 3), np.uint8))
        fine = rng.normal(0, 6, (side, side, 1))
        smooth = np.asarray(coarse.resize((side, side), Image.Resampling.BICUBIC), np.float32)
        Image.fromarray((smooth + fine).clip(0, 255).astype(np.uint8)).save(path, quality=80)


def input_pipeline(arguments: argparse.Namespace, rank: int, ranks: int) -> ps.Dataset:
    paths = sorted(Path(arguments.images).glob("*/*.jpg"))
    names = sorted({path.parent.name for path in paths})
    labels = [names.index(path.parent.name) for path in paths]
    data = ps.Dataset.from_files(paths, labels).shuffle(seed=1)
    size = (arguments.size, arguments.size)
    data = data.decode(size, "float32", layout="NCHW", num_parallel_calls=arguments.threads).ignore_errors()
    if arguments.in_memory:
        data = data.cache()
        for _ in data.batch(arguments.batch):  # the caches of all that is made of a dataset are one
            pass
    data = data.batch(arguments.batch, drop_remainder=True).shard(rank, ranks).repeat()
    return data.prefetch(arguments.prefetch)


def tree_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    return {"model": dict(model.state_dict()), "optimizer": optimizer.state_dict()}


def tensors(node: Any) -> Any:
    """What a checkpoint gives, with tensors in place of arrays."""
    if isinstance(node, dict):
        return {key: tensors(child) for key, child in node.items()}
    if isinstance(node, list):
        return [tensors(child) for child in node]
    return torch.as_tensor(node) if isinstance(node, (np.ndarray, np.generic)) else node


def train(arguments: argparse.Namespace, rank: int, ranks: int) -> dict[str, Any]:
    """The numbers of the paper's Figures 6, 7 and 9, of this rank."""
    torch.manual_seed(0)  # the same weights on all ranks
    network = AlexNet(arguments.width)
    model: nn.Module = nn.parallel.DistributedDataParallel(network) if ranks > 1 else network
    optimizer = torch.optim.Adam(model.parameters(), lr=arguments.rate)
    data = input_pipeline(arguments, rank, ranks)
    checkpoints, begin_step = None, 0
    if arguments.save:
        fast = arguments.burst_buffer and f"file://{Path(arguments.burst_buffer).resolve()}"
        checkpoints = ps.Checkpointer(f"file://{Path(arguments.save).resolve()}", burst_buffer=fast, keep=2)
        found = checkpoints.restore(default=None, dataset=data)
        if found is not None:
            begin_step, tree = found
            network.load_state_dict(tensors(tree["model"]))
            optimizer.load_state_dict(tensors(tree["optimizer"]))

    losses, waits, steps, saves, handles = [], [], [], [], []
    batches = iter(data)
    begin = time.perf_counter()
    for step in range(begin_step + 1, begin_step + arguments.steps + 1):
        asked = time.perf_counter()
        images, labels = next(batches)
        got = time.perf_counter()
        torch.manual_seed(1000 * step + rank)  # of dropout, so that a resumed run draws the same
        loss = nn.functional.cross_entropy(model(torch.from_numpy(images)), torch.from_numpy(labels))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        computed = time.perf_counter()
        if checkpoints and step % arguments.save_every == 0:
            handles.append(checkpoints.save(step, tree_of(network, optimizer), dataset=data))
            saves.append(time.perf_counter() - computed)
        losses.append(loss.item())
        waits.append(got - asked)
        steps.append(computed - got)
    elapsed = time.perf_counter() - begin
    drained = time.perf_counter()
    for handle in handles:
        handle.wait("drained")
    drained = time.perf_counter() - drained
    data.close()
    if checkpoints:
        checkpoints.close()
    return {
        "ranks": ranks,
        "batch": arguments.batch,
        "threads": arguments.threads,
        "prefetch": arguments.prefetch,
        "first_step": begin_step + 1,
        "elapsed_s": elapsed,
        "images_per_s": arguments.batch * arguments.steps / elapsed,
        "input_stall_per_step_ms": 1e3 * statistics.median(waits),
        "input_stall_total_s": sum(waits),
        "compute_per_step_ms": 1e3 * statistics.median(steps),
        "checkpoints": len(saves),
        "checkpoint_stall_ms": 1e3 * statistics.median(saves) if saves else 0.0,
        "drained_after_s": drained,
        "losses": losses,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("images", help="a folder with a folder of JPEG files for each class")
    parser.add_argument("--make", type=int, default=0, metavar="N", help="write N images there, if it is empty")
    parser.add_argument("--kilobytes", type=float, default=12, help="about the size of those: 12 or 112 in the paper")
    parser.add_argument("--batch", type=int, default=64, help="of all ranks")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--threads", type=int, help="of the input pipeline; default: the option io_threads")
    parser.add_argument("--prefetch", type=int, default=1, help="batches; 0: the paper's case without prefetcher")
    parser.add_argument(
        "--in-memory", action="store_true", help="keep decoded images in memory: the bound for any input"
    )
    parser.add_argument("--save", metavar="FOLDER", help="checkpoints on the slow tier; continues from the newest")
    parser.add_argument("--burst-buffer", metavar="FOLDER", help="the fast tier")
    parser.add_argument("--save-every", type=int, default=20, help="steps")
    parser.add_argument("--size", type=int, default=224, help="of the images that the network sees")
    parser.add_argument("--width", type=float, default=1.0, help="of the network")
    parser.add_argument("--rate", type=float, default=1e-4)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.make and not any(Path(arguments.images).glob("*/*.jpg")):
        make_images(Path(arguments.images), arguments.make, arguments.kilobytes)

    rank, ranks = 0, 1
    if {"PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK"} & set(os.environ):  # started by mpiexec
        import penstock.torch  # noqa: F401  # registers the backend

        dist.init_process_group("penstock")
        rank, ranks = dist.get_rank(), dist.get_world_size()
        torch.set_num_threads(1)  # of each rank
    result = train(arguments, rank, ranks)
    if rank == 0:
        print(json.dumps(result) if arguments.json else described(result))
    if dist.is_initialized():
        dist.destroy_process_group()


def described(result: dict[str, Any]) -> str:
    text = (
        f"{result['images_per_s']:.1f} images/s in batches of {result['batch']} on {result['ranks']} ranks. "
        f"A step waits {result['input_stall_per_step_ms']:.1f} ms for its images and computes for "
        f"{result['compute_per_step_ms']:.1f} ms (medians)."
    )
    if result["checkpoints"]:
        text += (
            f" {result['checkpoints']} checkpoints held up training for {result['checkpoint_stall_ms']:.1f} ms each; all were "
            f"on the slow tier {result['drained_after_s']:.2f} s after the last step."
        )
    return text


if __name__ == "__main__":
    main()
