"""What decode() does to images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from penstock import _penstock
from penstock.dataset.arguments import count, dtype_name, floats
from penstock.error import Error


def decode_image(
    encoded: Any,
    size: tuple[int, int] | None = None,
    dtype: Any = np.uint8,
    *,
    center_crop: float | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    layout: Literal["NHWC", "NCHW"] = "NHWC",
    orient: bool = False,
    max_pixels: int = 1 << 28,
) -> NDArray[Any]:
    """One image, for a map function of trees that hold encoded images; the options are those of :meth:`Dataset.decode`.

    It works without the GIL.
    """
    image = image_options(layout, orient, False, center_crop, 0.0, mean, std, 0)
    shape = image_shape(size, layout)
    return _penstock.dataset.decode_image(encoded, shape, dtype_name(dtype), image, count(max_pixels, "max_pixels"))


def decoder_names() -> list[str]:
    """The formats that decode() accepts."""
    return _penstock.dataset.decoder_names()


def image_shape(size: Any, layout: str) -> tuple[int, ...]:
    if layout not in ("NHWC", "NCHW"):
        raise Error(f"layout is {layout!r}; expected 'NHWC' or 'NCHW'")
    if size is None:
        return ()
    try:
        height, width = size
    except (TypeError, ValueError):
        raise Error(f"size is {size!r}; expected (height, width)") from None
    height, width = count(height, "the height"), count(width, "the width")
    return (3, height, width) if layout == "NCHW" else (height, width, 3)


def image_options(
    layout: str, orient: bool, crop: Any, center_crop: Any, flip: Any, mean: Any, std: Any, seed: Any
) -> tuple[Any, ...]:
    bounds = None
    if crop is not False and crop is not None:
        usual = (0.08, 1.0, 3 / 4, 4 / 3)
        given = () if crop is True else floats(crop, "random_resized_crop", (2, 4))
        bounds = (*given, *usual[len(given) :])
    return (
        layout == "NCHW",
        bool(orient),
        bounds,
        0.0 if center_crop is None else floats([center_crop], "center_crop", (1,))[0],
        floats([flip], "flip", (1,))[0],
        (0.0, 0.0, 0.0) if mean is None else floats(mean, "mean", (3,)),
        (1.0, 1.0, 1.0) if std is None else floats(std, "std", (3,)),
        count(seed or 0, "seed") & 0xFFFF_FFFF_FFFF_FFFF,
    )
