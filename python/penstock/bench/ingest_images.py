"""JPEG files like photographs for `penstock bench ingest`: the same bytes for the same Pillow on every machine."""

from __future__ import annotations

import importlib.util
import io
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from penstock.error import Error

#: KB of a file → (width, height) of its image. Others get those of the nearest.
_SHAPES = {112: (500, 375), 12: (300, 200)}
_SCENES = 32  #: Different scenes of each size; files are crops of them, encoded at different sizes.
_SPREAD = 0.35  #: Of the logarithm of a file's size, which is normally distributed.


#: What may be on the images.
SCENES = ("synthetic", "photographs")


def folder_name(kilobytes: int, scenes: str = "synthetic") -> str:
    return f"{kilobytes}KB" + ("" if scenes == "synthetic" else f"-{scenes}")


def paths(place: Path, folder: str | int, images: int) -> list[str]:
    """``folder``: its name, or the KB of synthetic images."""
    name = folder_name(folder) if isinstance(folder, int) else folder
    return [str(place / name / f"{i:06}.jpg") for i in range(images)]


def make(place: Path, kilobytes: int, images: int, scenes: str = "synthetic") -> None:
    """Write the files, unless there are as many already."""
    folder = place / folder_name(kilobytes, scenes)
    done = folder / "made.json"
    if done.exists() and json.loads(done.read_text())["images"] >= images:
        return
    folder.mkdir(parents=True, exist_ok=True)
    width, height = _SHAPES[min(_SHAPES, key=lambda known: abs(known - kilobytes))]
    rng = np.random.default_rng(kilobytes)
    larger = width + width // 8, height + height // 8
    if scenes == "synthetic":
        made = [_scene(rng, *larger) for _ in range(_SCENES)]
    else:
        photographs = _photographs()
        made = [_cut(rng, photographs[i % len(photographs)], *larger) for i in range(_SCENES)]
    qualities = [_quality(scene, (width, height), 1000 * kilobytes) for scene in made]
    for i, path in enumerate(paths(place, folder.name, images)):
        scene = made[i % _SCENES]
        x, y = rng.integers(0, width // 8), rng.integers(0, height // 8)
        change = float(np.exp(_SPREAD * rng.standard_normal()))
        # Near a quality q a file grows about as 1 / (100 - q).
        quality = int(np.clip(round(100 - (100 - qualities[i % _SCENES]) / change), 20, 98))
        Path(path).write_bytes(_encoded(scene[y : y + height, x : x + width], quality))
    os.sync()  # dirty pages cannot be dropped from the cache
    done.write_text(json.dumps({"images": images}))


def _photographs() -> list[Any]:
    """The coloured ones that come with scikit-image and scikit-learn, without importing these."""
    from PIL import Image

    found = []
    for module, folder in (("skimage", "data"), ("sklearn", "datasets/images")):
        spec = importlib.util.find_spec(module)
        for place in (spec.submodule_search_locations if spec else None) or ():
            for path in sorted(Path(place, folder).glob("*")):
                if path.suffix in (".jpg", ".jpeg", ".png"):
                    with Image.open(path) as image:
                        if image.mode == "RGB" and min(image.size) >= 250:
                            found.append(image.copy())
    if not found:
        raise Error(
            "there are no photographs here: neither scikit-image nor scikit-learn is installed; pip install one of them, or "
            "leave out --scenes",
            "unsupported",
        )
    return found


def _cut(rng: np.random.Generator, photograph: Any, width: int, height: int) -> Any:
    """A crop of random size and place with these proportions, scaled to this size."""
    largest = min(photograph.width / width, photograph.height / height)
    scale = largest * rng.uniform(0.7, 1)
    x = rng.uniform(0, photograph.width - scale * width)
    y = rng.uniform(0, photograph.height - scale * height)
    box = (x, y, x + scale * width, y + scale * height)
    return np.asarray(photograph.resize((width, height), box=box, reducing_gap=3))


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
