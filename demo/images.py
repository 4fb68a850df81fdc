"""JPEG files for the demo, made once out of real photographs and then cached.

The photographs ship inside scikit-image and scikit-learn. Each file is a random crop of one of them, scaled and encoded anew, so
that sizes (log-normal, median near 12 KB), qualities, chroma subsampling and progressive scans vary as in a real data set.
The label is the photograph. A few files are corrupt.
"""

from __future__ import annotations

import io
import json
import shutil
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from importlib.resources import files
from pathlib import Path

import numpy as np
from PIL import Image

COUNT = 2000
MEDIAN_BYTES = 12_000
CORRUPT = {137: "truncated", 611: "text", 1024: "zeros", 1777: "truncated"}
PHOTOGRAPHS = [
    ("skimage", "data/astronaut.png"),
    ("skimage", "data/chelsea.png"),
    ("skimage", "data/coffee.png"),
    ("skimage", "data/rocket.jpg"),
    ("skimage", "data/motorcycle_left.png"),
    ("skimage", "data/hubble_deep_field.jpg"),
    ("sklearn", "datasets/images/china.jpg"),
    ("sklearn", "datasets/images/flower.jpg"),
]


def make(directory: Path) -> Path:
    """A JSON list of {"path", "label", "corrupt"}; makes the files where they are not there yet."""
    index = directory / "images.json"
    if index.exists():
        return index
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    with ProcessPoolExecutor() as pool:
        images = list(pool.map(_make_one, range(COUNT), [directory] * COUNT, chunksize=50))
    # The index comes last: without it the next run starts anew.
    unfinished = directory / "images.json.unfinished"
    unfinished.write_text(json.dumps(images))
    unfinished.rename(index)
    return index


@cache
def _photograph(number: int) -> Image.Image:
    package, path = PHOTOGRAPHS[number]
    with Image.open(io.BytesIO(files(package).joinpath(path).read_bytes())) as image:
        return image.convert("RGB")


def _make_one(number: int, directory: Path) -> dict:
    rng = np.random.default_rng(number)
    label = number % len(PHOTOGRAPHS)
    photograph = _photograph(label)
    side = int(min(photograph.size) * rng.uniform(0.35, 0.9))
    left = rng.integers(0, photograph.width - side + 1)
    top = rng.integers(0, photograph.height - side + 1)
    crop = photograph.crop((left, top, left + side, top + side))
    if rng.random() < 0.5:
        crop = crop.transpose(Image.Transpose.FLIP_LEFT_RIGHT)

    options = {
        "quality": int(rng.integers(75, 96)),
        "subsampling": "4:2:0" if rng.random() < 0.7 else "4:4:4",
        "progressive": bool(rng.random() < 0.15),
    }
    wanted_bytes = MEDIAN_BYTES * rng.lognormal(0, 0.45)
    pixels = 200
    for _ in range(2):
        encoded = _encode(crop, pixels, options)
        pixels = int(np.clip(pixels * (wanted_bytes / len(encoded)) ** 0.55, 72, 900))
    encoded = _encode(crop, pixels, options)

    kind = CORRUPT.get(number)
    if kind == "truncated":
        encoded = encoded[:120]
    elif kind == "text":
        encoded = b"This is no image.\n"
    elif kind == "zeros":
        encoded = bytes(len(encoded))
    path = directory / f"{number:04d}.jpg"
    path.write_bytes(encoded)
    return {"path": str(path), "label": label, "corrupt": kind is not None}


def _encode(crop: Image.Image, pixels: int, options: dict) -> bytes:
    out = io.BytesIO()
    crop.resize((pixels, pixels), Image.Resampling.BICUBIC).save(out, "JPEG", **options)
    return out.getvalue()
