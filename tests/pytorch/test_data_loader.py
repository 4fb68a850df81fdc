"""A dataset's batches as tensors."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
import penstock as ps
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


def loader(batch: int, rank: int = 0, ranks: int = 1) -> Any:
    from penstock.torch import DataLoader

    data = ps.Dataset.from_arrays({"x": np.arange(60, dtype=np.float32).reshape(30, 2), "y": np.arange(30)})
    data = data.map(lambda s: {**s, "name": str(s["y"])})
    return DataLoader(data.shuffle(seed=1).batch(batch).shard(rank, ranks))


def test_batches_are_tensors_that_share_their_memory() -> None:
    batches = loader(8)
    assert len(batches) == 4
    batch = next(iter(batches))
    assert batch["x"].dtype == torch.float32
    assert batch["x"].shape == (8, 2)
    assert batch["name"] == [str(y) for y in batch["y"].tolist()]

    from penstock.torch import DataLoader

    image = io.BytesIO()
    Image = pytest.importorskip("PIL.Image")
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(image, "JPEG")
    data = ps.Dataset.from_bytes([image.getvalue()] * 4, labels=range(4)).decode_jpeg((4, 4)).batch(4)
    (images, labels) = next(iter(DataLoader(data)))
    assert images.shape == (4, 4, 4, 3)
    assert labels.tolist() == [0, 1, 2, 3]
    array = np.from_dlpack(images)
    images[0, 0, 0, 0] = 77
    assert array[0, 0, 0, 0] == 77


def test_arrays_go_by_dlpack_without_a_copy() -> None:
    data = ps.Dataset.from_bytes([bytes(64)] * 2).decode_raw((64,)).batch(2)
    images, _ = next(iter(data))
    tensor = torch.from_dlpack(images)
    assert tensor.data_ptr() == images.ctypes.data


def test_a_state_continues_with_other_ranks() -> None:
    first = loader(8)
    seen = [y for _, batch in zip(range(2), first) for y in batch["y"].tolist()]
    state = json.loads(json.dumps(first.state_dict()))
    for rank in range(3):
        other = loader(5, rank, 3)
        other.load_state_dict(state)
        seen += [y for batch in other for y in batch["y"].tolist()]
    assert sorted(seen) == list(range(30))


def test_other_things_are_refused() -> None:
    from penstock.torch import DataLoader

    with pytest.raises(ps.Error, match=r"expected a penstock\.Dataset"):
        DataLoader([1, 2])  # type: ignore[arg-type]
