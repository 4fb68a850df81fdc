"""Trains on nothing: loads batches in all ways until its time is over, and prints what it holds after each round, as JSON.

python endless_ingest.py SECONDS
"""

from __future__ import annotations

import io
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import penstock as ps
from PIL import Image

#: So many rounds tell something, however slow the machine is.
MIN_ROUNDS = 16
FILES, BAD = 192, 4


class Texts:
    def __len__(self) -> int:
        return 600

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"tokens": np.arange(index % 97 + 1), "number": index}


def is_wanted(sample: dict[str, Any]) -> bool:
    return sample["number"] % 5 != 0


def halved(sample: dict[str, Any]) -> list[dict[str, Any]]:
    return [{**sample, "tokens": part} for part in np.array_split(sample["tokens"], 2)]


def drawn(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    if sample["number"] == 77:
        raise ValueError("a bad sample")
    return {**sample, "noise": rng.random(1000)}


def write_images(folder: Path) -> list[Path]:
    rng = np.random.default_rng(1)
    for i in range(FILES):
        coarse = Image.fromarray(rng.integers(0, 255, (20 + i % 17, 30, 3), np.uint8))
        encoded = io.BytesIO()
        coarse.resize((300 + i % 50, 200), Image.Resampling.BICUBIC).save(encoded, "JPEG", progressive=i % 3 == 0)
        content = encoded.getvalue()
        (folder / f"{i:03}.jpg").write_bytes(content[: len(content) // 2] if i < BAD else content)
    return sorted(folder.iterdir())


def held() -> dict[str, int]:
    """By this process and its workers."""
    children = [
        child
        for task in Path("/proc/self/task").iterdir()
        for child in (task / "children").read_text().split()
        if (Path("/proc") / child).exists()
    ]
    pages = sum(int(Path(f"/proc/{process}/statm").read_text().split()[1]) for process in ["self", *children])
    return {
        "bytes": pages * os.sysconf("SC_PAGE_SIZE"),
        "files": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        "workers": len(children),
    }


def main() -> None:
    end = time.monotonic() + float(sys.argv[1])
    with tempfile.TemporaryDirectory() as name:
        files = ps.Dataset.from_files(write_images(Path(name)), range(FILES)).shuffle(seed=1)
        images = files.decode((96, 96), "float32", random_resized_crop=True, flip=0.5, layout="NCHW").ignore_errors()
        images = images.batch(32).prefetch(4, max_bytes=8 << 20)
        cached = files.skip(64).decode((64, 64)).ignore_errors(replace=True).cache(max_bytes=1 << 20).batch(16)
        texts = ps.Dataset.from_source(Texts()).shuffle(seed=2)
        threads = texts.random_map(drawn).filter(is_wanted).flat_map(halved).ignore_errors().pad(multiple=8).batch(50)
        processes = texts.random_map(drawn, processes=1).ignore_errors().pad(multiple=8).batch(50)
        packed = texts.map(lambda sample: sample["tokens"]).pack(128).batch(100).prefetch(3, deterministic=False)
        rounds = 0
        while rounds < MIN_ROUNDS or time.monotonic() < end:
            rounds += 1
            seen = sum(len(labels) for _, labels in images)
            assert seen == FILES - BAD, seen
            for dataset in (cached, threads, processes, packed):
                last = list(dataset)[-2:]  # what a program may hold
                assert last
            for number, _ in enumerate(images):  # a loop that is left, and continued from its state
                if number == 2:
                    state = images.state_dict()
                    break
            images.load_state_dict(state)
            del last
            print(json.dumps({"round": rounds, **held()}), flush=True)
            for _ in images:
                pass


if __name__ == "__main__":
    main()
