"""JPEG files for the demo, made from real photographs, and cached.

The photographs are files of scikit-image, which is not imported (pip install --no-deps suffices). Each JPEG file is a random
crop, scaled and encoded anew: sizes (log-normal, median near 12 KB), qualities, chroma subsampling and progressive scans vary as
in a real data set. The label is the photograph. A few files are corrupt.
"""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from PIL import Image

COUNT = 1024
MEDIAN_BYTES = 12_000
CORRUPT = {137: "truncated", 389: "text", 611: "zeros", 777: "truncated"}
PHOTOGRAPHS = [
    "astronaut.png",
    "chelsea.png",
    "coffee.png",
    "rocket.jpg",
    "motorcycle_left.png",
    "hubble_deep_field.jpg",
    "retina.jpg",
    "ihc.png",
]


def make(directory: Path, progress: Callable[[int, int], None] = lambda done, of: None) -> Path:
    """Make the files, if they do not exist. Returns a JSON list of {"path", "label", "corrupt"}."""
    index = directory / "images.json"
    if index.exists():
        return index
    _photographs()  # raises if they are missing, before anything is removed
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    with ProcessPoolExecutor() as pool:
        images = []
        for image in pool.map(_make_one, range(COUNT), [directory] * COUNT, chunksize=16):
            images.append(image)
            progress(len(images), COUNT)
    # Write the index last: without it, the next run starts over.
    unfinished = directory / "images.json.unfinished"
    unfinished.write_text(json.dumps(images))
    unfinished.rename(index)
    return index


@cache
def _photographs() -> Path:
    """The folder of the photographs. Finding a package does not import it."""
    spec = find_spec("skimage")
    folders = [Path(place) / "data" for place in (spec.submodule_search_locations or [])] if spec else []
    for folder in folders:
        if all((folder / name).is_file() for name in PHOTOGRAPHS):
            return folder
    raise FileNotFoundError(
        f"the photographs {', '.join(PHOTOGRAPHS)} of scikit-image were looked for in "
        f"{', '.join(map(str, folders)) or 'no place: it is not installed'}; run: pip install --no-deps scikit-image"
    )


@cache
def _photograph(number: int) -> Image.Image:
    with Image.open(_photographs() / PHOTOGRAPHS[number]) as image:
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
    trial_pixels = 160
    trial_bytes = len(_encode(crop, trial_pixels, options))
    pixels = int(np.clip(trial_pixels * (wanted_bytes / trial_bytes) ** 0.55, 72, 900))
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
