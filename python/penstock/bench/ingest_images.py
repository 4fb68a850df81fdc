"""JPEG files like photographs for `penstock bench ingest`: the same bytes for the same Pillow on every machine."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

#: KB of a file → (width, height) of its image. Others get those of the nearest.
_SHAPES = {112: (500, 375), 12: (300, 200)}
_SCENES = 32  #: Different scenes of each size; files are crops of them, encoded at different sizes.
_SPREAD = 0.35  #: Of the logarithm of a file's size, which is normally distributed.


def paths(place: Path, kilobytes: int, images: int) -> list[str]:
    return [str(place / f"{kilobytes}KB" / f"{i:06}.jpg") for i in range(images)]


def make(place: Path, kilobytes: int, images: int) -> None:
    """Write the files, unless there are as many already."""
    folder = place / f"{kilobytes}KB"
    done = folder / "made.json"
    if done.exists() and json.loads(done.read_text())["images"] >= images:
        return
    folder.mkdir(parents=True, exist_ok=True)
    width, height = _SHAPES[min(_SHAPES, key=lambda known: abs(known - kilobytes))]
    rng = np.random.default_rng(kilobytes)
    scenes = [_scene(rng, width + width // 8, height + height // 8) for _ in range(_SCENES)]
    qualities = [_quality(scene, (width, height), 1000 * kilobytes) for scene in scenes]
    for i, path in enumerate(paths(place, kilobytes, images)):
        scene = scenes[i % _SCENES]
        x, y = rng.integers(0, width // 8), rng.integers(0, height // 8)
        change = float(np.exp(_SPREAD * rng.standard_normal()))
        # Near a quality q a file grows about as 1 / (100 - q).
        quality = int(np.clip(round(100 - (100 - qualities[i % _SCENES]) / change), 20, 98))
        Path(path).write_bytes(_encoded(scene[y : y + height, x : x + width], quality))
    os.sync()  # dirty pages cannot be dropped from the cache
    done.write_text(json.dumps({"images": images}))


def _scene(rng: np.random.Generator, width: int, height: int) -> Any:
    """Power falls with the square of the frequency, as in photographs (Field, J. Opt. Soc. Am. A 1987), with some edges."""
    frequency = np.hypot(*np.meshgrid(np.fft.fftfreq(height), np.fft.rfftfreq(width), indexing="ij"))
    frequency[0, 0] = 1
    layers = []
    for _ in range(3):
        phase = rng.standard_normal(frequency.shape) + 1j * rng.standard_normal(frequency.shape)
        layers.append(np.fft.irfft2(phase / frequency, (height, width)))
    luma, *chroma = ((layer - layer.mean()) / layer.std() for layer in layers)
    rows, across = np.mgrid[:height, :width]
    for _ in range(12):
        angle, place = rng.uniform(0, np.pi), rng.uniform(0.1, 0.9)
        side = (rows / height - place) * np.sin(angle) + (across / width - place) * np.cos(angle) > 0
        luma = luma + rng.normal(0, 0.4) * side
    grey = 128 + 42 * luma
    return np.clip(np.stack([grey + 18 * chroma[0], grey, grey + 18 * chroma[1]], -1), 0, 255).astype(np.uint8)


def _quality(scene: Any, size: tuple[int, int], wanted_bytes: int) -> int:
    width, height = size
    low, high = 10, 98
    while low < high:
        middle = (low + high) // 2
        if len(_encoded(scene[:height, :width], middle)) < wanted_bytes:
            low = middle + 1
        else:
            high = middle
    return low


def _encoded(pixels: Any, quality: int) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(file, "JPEG", quality=quality)
    return file.getvalue()
