"""Image stages: formats against Pillow, crops, flips, layouts and types against NumPy, and the error of scaled decoding."""

from __future__ import annotations

import io

import numpy as np
import penstock as ps
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

Image = pytest.importorskip("PIL.Image")
ImageOps = pytest.importorskip("PIL.ImageOps")

HEIGHT, WIDTH = 60, 80
RAMP = np.stack(
    np.broadcast_arrays(
        np.linspace(0, 255, HEIGHT)[:, None], np.linspace(0, 255, WIDTH)[None, :], np.full((1, 1), 77.0)
    ),
    axis=2,
).astype(np.uint8)


def saved(pixels: np.ndarray, kind: str, mode: str = "RGB", **options) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(buffer, kind, **options)
    return buffer.getvalue()


def needs(kind: str) -> None:
    try:
        ps.dataset.decode_image(saved(RAMP, kind))
    except ps.Error as error:
        if error.code != "unsupported":
            raise
        pytest.skip(f"built without {kind}")


def decoded(data: bytes, **options) -> np.ndarray:
    [(images, _)] = ps.Dataset.from_bytes([data]).decode(**options).batch(1)
    return images[0]


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "LA", "P", "1"])
@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
def test_lossless_formats_are_decoded_as_by_pillow(kind, mode):
    needs(kind)
    data = saved(RAMP, kind, mode if kind == "PNG" or mode == "RGBA" else "RGB", lossless=True)
    expected = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
    assert np.array_equal(ps.dataset.decode_image(data), expected)
    assert decoded(data, size=(HEIGHT, WIDTH)).shape == RAMP.shape
    assert np.array_equal(decoded(data, size=(HEIGHT, WIDTH)), expected)
    small = np.asarray(Image.fromarray(expected).resize((20, 15), Image.BILINEAR), np.int16)
    assert np.abs(decoded(data, size=(15, 20)) - small).max() <= 1


def test_sixteen_bits_and_interlacing():
    needs("PNG")
    deep = io.BytesIO()
    Image.fromarray(np.arange(HEIGHT * WIDTH, dtype=np.uint16).reshape(HEIGHT, WIDTH) * 13).save(deep, "PNG")
    got = ps.dataset.decode_image(deep.getvalue())
    assert np.abs(got[:, :, 0] - np.arange(HEIGHT * WIDTH).reshape(HEIGHT, WIDTH) * 13 / 257).max() <= 1


@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
def test_animations_and_damage_are_errors_of_their_sample(kind):
    needs(kind)
    frames = [Image.fromarray(RAMP + i) for i in range(3)]
    moving = io.BytesIO()
    frames[0].save(moving, kind, save_all=True, append_images=frames[1:], lossless=True)
    whole = saved(RAMP, kind)
    samples = [whole, whole[: len(whole) // 2], whole[:30], whole]
    ds = ps.Dataset.from_bytes([*samples, moving.getvalue()]).decode((8, 8)).ignore_errors().batch(5).with_indices()
    [(_, _, indices)] = ds
    # Viewers that know no animated PNG show its first image.
    assert indices.tolist() == ([0, 3, 4] if kind == "PNG" else [0, 3])
    assert all(kind.lower() in one.reason.lower() for one in ds.skipped)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("size", [None, (30, 40)])
def test_images_are_turned_as_their_exif_data_says(orientation, size):
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = saved(RAMP, "JPEG", quality=95, subsampling=0, exif=exif)
    shown = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    expected = np.asarray(shown.resize(size[::-1], Image.BILINEAR) if size else shown, np.int16)
    got = ps.dataset.decode_image(data, size, orient=True)
    assert got.shape == expected.shape
    assert np.abs(got - expected).mean() < 1.5
    flipped = decoded(data, size=expected.shape[:2], orient=True, flip=1.0)
    assert np.abs(flipped[:, ::-1] - expected).mean() < 1.5
    if orientation > 1 and size is None:
        assert ps.dataset.decode_image(data).shape == RAMP.shape


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_values_are_normalised_and_laid_out(dtype, layout):
    data = saved(RAMP, "JPEG", quality=95)
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    plain = decoded(data, size=(24, 32), dtype="float32")
    got = decoded(data, size=(24, 32), dtype=dtype, layout=layout, mean=mean, std=std)
    assert got.dtype == dtype
    expected = (plain - np.array(mean, np.float32)) / np.array(std, np.float32)
    if layout == "NCHW":
        expected = expected.transpose(2, 0, 1)
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, atol=2e-3 if dtype == "float16" else 2e-5)
    bytes_ = decoded(data, size=(24, 32))
    assert np.array_equal(decoded(data, size=(24, 32), layout="NCHW"), bytes_.transpose(2, 0, 1))
    assert np.array_equal(decoded(data, size=(24, 32), flip=1.0), bytes_[:, ::-1])


def test_every_half_is_rounded_as_by_numpy():
    grey = np.repeat(np.arange(256, dtype=np.uint8)[None, :, None], 3, axis=2)
    data = saved(grey, "PNG")
    needs("PNG")
    for mean, std in ((0, 1), (0.5, 0.25), (0.1, 1e-5), (0, 3e6)):
        exact = decoded(data, size=(1, 256), dtype="float32", mean=[mean] * 3, std=[std] * 3)
        with np.errstate(over="ignore"):
            expected = exact.astype(np.float16)
        assert np.array_equal(decoded(data, size=(1, 256), dtype="float16", mean=[mean] * 3, std=[std] * 3), expected)


def test_a_central_crop_is_that_part_of_the_image():
    data = saved(RAMP, "JPEG", quality=98, subsampling=0)
    whole = ps.dataset.decode_image(data)
    got = decoded(data, size=(30, 30), center_crop=0.5)
    expected = np.asarray(Image.fromarray(whole[15:45, 25:55]), np.int16)
    assert np.abs(got - expected).mean() < 1


# The ramps say where a crop comes from: rows by red, columns by green.
def box_of(image: np.ndarray) -> tuple[float, float, float, float]:
    red, green = image[:, :, 0].mean(1) / 255 * (HEIGHT - 1), image[:, :, 1].mean(0) / 255 * (WIDTH - 1)
    return red[0], green[0], red[-1] - red[0], green[-1] - green[0]


def test_random_crops_have_the_areas_and_aspects_that_were_asked_for():
    data = saved(RAMP, "JPEG", quality=98, subsampling=0)
    ds = (
        ps.Dataset.from_bytes([data] * 300)
        .decode((32, 32), random_resized_crop=(0.2, 0.6), flip=0.5, seed=4)
        .batch(300)
    )
    [(images, _)] = ds
    boxes = np.array([box_of(image.astype(float)) for image in images])
    flipped = boxes[:, 3] < 0
    assert 100 < flipped.sum() < 200
    # From the first to the last sample of 32 is 31/32 of a box.
    heights, widths = boxes[:, 2] * 32 / 31, np.abs(boxes[:, 3]) * 32 / 31
    areas, aspects = heights * widths / (HEIGHT * WIDTH), widths / heights
    assert areas.min() > 0.17
    assert areas.max() < 0.64
    assert 0.35 < areas.mean() < 0.45
    assert aspects.min() > 0.68
    assert aspects.max() < 1.46
    assert boxes[:, 0].std() > 3
    [(again, _)] = (
        ps.Dataset.from_bytes([data] * 300)
        .decode((32, 32), random_resized_crop=(0.2, 0.6), flip=0.5, seed=5)
        .batch(300)
    )
    assert (again != images).any(axis=(1, 2, 3)).mean() > 0.95


@settings(deadline=None, max_examples=15)
@given(batch=st.integers(1, 9), ranks=st.integers(1, 3), threads=st.integers(1, 3), stop=st.integers(0, 4))
def test_random_stages_resume_exactly(batch, ranks, threads, stop):
    data = saved(RAMP, "JPEG", quality=90)

    def loader(batch, rank=0, size=1, threads=1):
        ds = ps.Dataset.from_bytes([data] * 16).shuffle(7)
        ds = ds.decode((12, 16), random_resized_crop=True, flip=0.5, num_parallel_calls=threads)
        return ds.batch(batch).shard(rank, size).repeat(2)

    straight = np.concatenate([images for images, _ in loader(16)])
    first = loader(5)
    seen = [images for _, (images, _) in zip(range(stop), first)]
    parts = [loader(batch, rank, ranks, threads) for rank in range(ranks)]
    for part in parts:
        part.load_state_dict(first.state_dict())
    rest = [images for step in zip(*parts) for images, _ in step]
    assert np.array_equal(np.concatenate([*seen, *rest]), straight)
    assert not np.array_equal(straight[:16], straight[16:])


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
@pytest.mark.parametrize("options", [{"subsampling": 0}, {"subsampling": 1}, {"subsampling": 2}, {"progressive": True}])
def test_parts_of_a_jpeg_are_those_of_the_whole_image(mode, options):
    needs("PNG")
    jpeg = saved(photograph(1)[:333, :451], "JPEG", mode, quality=90, **options)
    png = saved(ps.dataset.decode_image(jpeg), "PNG")

    def crops(data):
        base = ps.Dataset.from_bytes([data] * 60)
        # No crop is twice as large, so none is decoded at a smaller scale.
        [(images, _)] = base.decode((260, 240), random_resized_crop=(0.01, 1.0), flip=0.5, seed=3).batch(60)
        return images.astype(np.int16)

    difference = np.abs(crops(jpeg) - crops(png))
    assert difference.max() <= 1, "as much as the rounding of coordinates may change"
    assert difference.mean() < 1e-3


def test_what_lies_below_a_part_is_not_read():
    whole = saved(photograph(2), "JPEG", quality=90)

    def crops(data):
        base = ps.Dataset.from_bytes([data] * 40).decode((64, 64), random_resized_crop=(0.02, 0.1), seed=3)
        [(images, _, indices)] = base.ignore_errors().with_indices().batch(40)
        return dict(zip(indices.tolist(), images))

    expected, found = crops(whole), crops(whole[: len(whole) * 3 // 5])
    assert len(expected) == 40
    assert 5 < len(found) < 35
    assert all(np.array_equal(image, expected[index]) for index, image in found.items())


def photograph(seed: int) -> np.ndarray:
    """Shapes, edges and texture, as photographs have them."""
    random = np.random.default_rng(seed)
    y, x = np.mgrid[0:480, 0:640]
    pixels = np.zeros((480, 640, 3))
    for _ in range(30):
        cy, cx, size = random.uniform(0, 480), random.uniform(0, 640), random.uniform(20, 160)
        inside = (y - cy) ** 2 + (x - cx) ** 2 < size**2
        pixels[inside] = random.uniform(0, 255, 3) + 20 * np.sin(x[inside] / random.uniform(2, 20))[:, None]
    return np.clip(pixels + random.normal(0, 4, pixels.shape), 0, 255).astype(np.uint8)


@pytest.mark.parametrize("size", [(224, 224), (112, 112), (64, 48), (300, 400)])
def test_scaled_decoding_stays_within_its_stated_error(size):
    for seed in range(3):
        data = saved(photograph(seed), "JPEG", quality=90)
        full = Image.open(io.BytesIO(data))
        expected = np.asarray(full.resize(size[::-1], Image.BILINEAR), np.int16)
        error = np.abs(ps.dataset.decode_image(data, size) - expected)
        assert error.mean() < 2
        assert np.quantile(error, 0.99) < 16


@pytest.mark.parametrize(
    "options",
    [
        {"random_resized_crop": True},
        {"center_crop": 0.5},
        {"size": (8, 8), "random_resized_crop": True, "center_crop": 0.5},
        {"size": (8, 8), "random_resized_crop": (0.5, 0.2)},
        {"size": (8, 8), "random_resized_crop": (0.0, 0.2)},
        {"size": (8, 8), "random_resized_crop": (0.1, 0.2, 3)},
        {"size": (8, 8), "center_crop": 1.5},
        {"flip": 2},
        {"flip": float("nan")},
        {"mean": (0.5, 0.5, 0.5)},
        {"dtype": "float32", "mean": (0.5,)},
        {"dtype": "float32", "std": (1, 1, 0)},
        {"layout": "CHWN"},
        {"dtype": "float64"},
    ],
)
def test_wrong_options_are_refused(options):
    with pytest.raises(ps.Error):
        ps.Dataset.from_bytes([b""]).decode(**options)


def test_decode_image_serves_maps_of_trees():
    samples = [{"jpg": saved(RAMP, "JPEG"), "id": i} for i in range(4)]

    def decode(sample):
        return {"image": ps.dataset.decode_image(sample["jpg"], (8, 8)), "id": sample["id"]}

    [batch] = ps.Dataset.from_source(samples).map(decode).batch(4)
    assert batch["image"].shape == (4, 8, 8, 3)
    with pytest.raises(ps.Error, match="the image"):
        ps.dataset.decode_image(b"GIF89a")
    with pytest.raises(ps.Error, match="limit of 10 pixels"):
        ps.dataset.decode_image(samples[0]["jpg"], max_pixels=10)
