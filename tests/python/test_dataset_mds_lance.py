"""MDS shards and Lance datasets as sources."""

from __future__ import annotations

import bz2
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import penstock as ps
import pytest


def write_shard(
    folder: Path, number: int, columns: dict[str, tuple[str, int | None]], rows: list[list[bytes]]
) -> dict[str, Any]:
    """A shard as the format's documentation says: offsets, the columns as JSON, and for each sample the sizes of its variable
    columns and then all values. Returns its entry of index.json."""
    header = json.dumps({"column_names": list(columns), "format": "mds"}).encode()
    samples = []
    for row in rows:
        variable = [np.uint32(len(value)).tobytes() for value, (_, size) in zip(row, columns.values()) if size is None]
        samples.append(b"".join([*variable, *row]))
    first = 4 + 4 * (len(rows) + 1) + len(header)
    offsets = np.cumsum([first, *map(len, samples)]).astype(np.uint32)
    content = b"".join([np.uint32(len(rows)).tobytes(), offsets.tobytes(), header, *samples])
    name = f"shard.{number:05}.mds"
    (folder / name).write_bytes(content)
    return {
        "column_encodings": [encoding for encoding, _ in columns.values()],
        "column_names": list(columns),
        "column_sizes": [size for _, size in columns.values()],
        "compression": None,
        "format": "mds",
        "hashes": [],
        "raw_data": {"basename": name, "bytes": len(content), "hashes": {}},
        "samples": len(rows),
        "size_limit": 1 << 26,
        "version": 2,
        "zip_data": None,
    }


COLUMNS: dict[str, tuple[str, int | None]] = {
    "any": ("ndarray", None),
    "bytes": ("bytes", None),
    "fixed": ("ndarray:int16:2,3", 12),
    "json": ("json", None),
    "number": ("int", 8),
    "scalar": ("float32", 4),
    "text": ("str", None),
    "typed": ("ndarray:float64", None),
}


def row(i: int) -> list[bytes]:
    return [
        bytes([33, (2 << 2) | 1])
        + np.array([i % 3 + 1, 2], np.uint16).tobytes()
        + np.full((i % 3 + 1, 2), i, np.int32).tobytes(),
        b"b" * i,
        np.full((2, 3), i, np.int16).tobytes(),
        json.dumps({"i": i}).encode(),
        np.int64(i).tobytes(),
        np.float32(i / 2).tobytes(),
        f"sämple {i}".encode(),
        bytes([1 << 2]) + bytes([2]) + np.array([i, -i], np.float64).tobytes(),
    ]


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """Shards of 7, 1 and 12 samples."""
    folder = tmp_path / "mds" / "train"
    folder.mkdir(parents=True)
    entries = []
    for number, (begin, end) in enumerate([(0, 7), (7, 8), (8, 20)]):
        entries.append(write_shard(folder, number, COLUMNS, [row(i) for i in range(begin, end)]))
    (folder / "index.json").write_text(json.dumps({"version": 2, "shards": entries}))
    return folder.parent


def check(sample: dict[str, Any], i: int) -> None:
    assert sample["any"].tolist() == np.full((i % 3 + 1, 2), i).tolist()
    assert sample["any"].dtype == np.int32
    assert sample["bytes"] == b"b" * i
    assert sample["fixed"].tolist() == np.full((2, 3), i).tolist()
    assert sample["json"] == {"i": i}
    assert (sample["number"], sample["scalar"], sample["text"]) == (i, i / 2, f"sämple {i}")
    assert sample["typed"].tolist() == [i, -i]


@pytest.mark.parametrize("block", [None, 5])
def test_mds_samples_are_what_was_written(shards: Path, block: int | None) -> None:
    checked = []

    def look(sample: dict[str, Any]) -> np.int64:
        check(sample, int(sample["number"]))
        checked.append(int(sample["number"]))
        return sample["number"]

    data = ps.Dataset.from_mds(shards, split="train").shuffle(seed=1, block=block, window=2).map(look).batch(4)
    assert np.concatenate(list(data)).tolist() == data.indices(0).tolist()
    assert sorted(checked) == list(range(20))


def test_mds_columns_can_be_chosen_and_states_know_them(shards: Path) -> None:
    data = ps.Dataset.from_mds(shards / "train", columns=["text", "number"]).batch(20)
    (batch,) = data
    assert set(batch) == {"text", "number"}
    with pytest.raises(ps.Error, match="another list of samples"):
        ps.Dataset.from_mds(shards / "train").batch(20).load_state_dict(data.state_dict())
    with pytest.raises(ps.Error, match="no column 'other', only any, bytes"):
        ps.Dataset.from_mds(shards / "train", columns=["other"])


def test_mds_through_fsspec(shards: Path) -> None:
    pytest.importorskip("fsspec", reason="needs fsspec")
    (batch,) = ps.Dataset.from_mds(f"file://{shards}", split="train", columns=["number"]).batch(20)
    assert batch["number"].tolist() == list(range(20))


def changed(shards: Path, **entries: Any) -> Path:
    path = shards / "train/index.json"
    index = json.loads(path.read_text())
    index["shards"][1].update(entries)
    path.write_text(json.dumps(index))
    return shards / "train"


def test_what_is_not_read_of_mds_is_refused(shards: Path) -> None:
    encodings = ["pkl", *[encoding for encoding, _ in COLUMNS.values()][1:]]
    with pytest.raises(ps.Error, match=r"'any' is encoded as 'pkl'.*run code"):
        ps.Dataset.from_mds(changed(shards, column_encodings=encodings))
    ps.Dataset.from_mds(shards / "train", columns=["text"])
    changed(shards, column_encodings=[encoding for encoding, _ in COLUMNS.values()])
    with pytest.raises(ps.Error, match="does not begin with the offsets of 2 samples"):
        ps.Dataset.from_mds(changed(shards, samples=2))
    none = {"basename": "none.mds", "bytes": 1, "hashes": {}}
    changed(shards, samples=1, compression="lzma", raw_data=none)
    with pytest.raises(ps.Error, match=r"none.mds is compressed by 'lzma'; Penstock reads gz, bz2"):
        ps.Dataset.from_mds(shards / "train")
    changed(shards, compression="gz")
    with pytest.raises(ps.Error, match="does not say where the compressed"):
        ps.Dataset.from_mds(shards / "train")
    (shards / "train/index.json").write_text("[]")
    with pytest.raises(ps.Error, match="no index of MDS shards"):
        ps.Dataset.from_mds(shards / "train")


def compressed(shards: Path, codec: str) -> Path:
    """All shards but the first, whose name has a level as streaming writes it."""
    pack = {"gz": gzip.compress, "bz2": bz2.compress}.get(codec)
    if pack is None:
        pyarrow = pytest.importorskip("pyarrow", reason="needs pyarrow")
        name = {"br": "brotli"}.get(codec, codec)
        pack = lambda content: pyarrow.compress(content, name, asbytes=True)  # noqa: E731
    path = shards / "train/index.json"
    index = json.loads(path.read_text())
    for entry in index["shards"][1:]:
        raw = shards / "train" / entry["raw_data"]["basename"]
        zipped = raw.with_suffix(f".mds.{codec}")
        zipped.write_bytes(pack(raw.read_bytes()))
        raw.unlink()
        size = zipped.stat().st_size
        entry.update(compression=f"{codec}:3", zip_data={"basename": zipped.name, "bytes": size, "hashes": {}})
    path.write_text(json.dumps(index))
    return shards / "train"


@pytest.mark.parametrize("codec", ["gz", "bz2", "zstd", "br", "snappy"])
def test_compressed_mds_shards_hold_the_same_samples(shards: Path, codec: str) -> None:
    state = ps.Dataset.from_mds(shards / "train").shuffle(seed=1).batch(4).state_dict()
    folder = compressed(shards, codec)
    checked = []

    def look(sample: dict[str, Any]) -> np.int64:
        check(sample, int(sample["number"]))
        checked.append(int(sample["number"]))
        return sample["number"]

    for place in (folder, f"file://{folder}"):
        if "://" in str(place):
            pytest.importorskip("fsspec", reason="needs fsspec")
        data = ps.Dataset.from_mds(place).shuffle(seed=1).map(look).batch(4)
        data.load_state_dict(state)
        assert np.concatenate(list(data)).tolist() == data.indices(0).tolist()
    assert sorted(checked[:20]) == list(range(20))


def test_a_damaged_compressed_shard_is_an_error_of_its_samples(shards: Path) -> None:
    folder = compressed(shards, "gz")
    path = folder / "shard.00001.mds.gz"
    whole = path.read_bytes()
    for damage, reason in (
        (whole[:-9], "cannot be decompressed"),
        (gzip.compress(bytes(1 << 24)), "its index promises"),
        (gzip.compress(bytes(len(gzip.decompress(whole)))), "does not begin with the offsets"),
    ):
        path.write_bytes(damage)
        data = ps.Dataset.from_mds(folder).map(lambda sample: sample["number"]).ignore_errors().batch(20)
        (batch,) = data
        assert batch.tolist() == [i for i in range(20) if i != 7]
        assert reason in data.skipped[0].reason
        assert "shard.00001.mds.gz sample 0" in data.skipped[0].path


def test_a_damaged_mds_sample_is_an_error_of_its_own(shards: Path) -> None:
    path = shards / "train/shard.00002.mds"
    content = bytearray(path.read_bytes())
    begin = int(np.frombuffer(content[4 + 4 * 3 : 8 + 4 * 3], np.uint32)[0])
    content[begin : begin + 4] = np.uint32(1 << 20).tobytes()
    path.write_bytes(content)
    data = ps.Dataset.from_mds(shards / "train").map(lambda sample: sample["number"]).ignore_errors().batch(20)
    (batch,) = data
    assert batch.tolist() == [i for i in range(20) if i != 11]
    assert "its columns" in data.skipped[0].reason


@pytest.fixture
def table(tmp_path: Path) -> str:
    """A Lance dataset of two fragments, which was changed after its second version."""
    lance = pytest.importorskip("lance", reason="needs pylance")
    pa = pytest.importorskip("pyarrow", reason="needs pyarrow")
    url = str(tmp_path / "rows.lance")
    for begin, end in ((0, 30), (30, 50)):
        rows = range(begin, end)
        columns = {"x": [[float(i), 2.0 * i] for i in rows], "n": list(rows), "t": [f"row {i}" for i in rows]}
        lance.write_dataset(pa.table(columns), url, mode="append" if begin else "create")
    lance.write_dataset(pa.table({"x": [[0.0]], "n": [99], "t": ["late"]}), url, mode="append")
    return url


def test_lance_rows(table: str) -> None:
    data = ps.Dataset.from_lance(table, version=2).shuffle(seed=4).batch(8)
    for epoch in range(2):
        batches = list(data)
        assert np.concatenate([batch["n"] for batch in batches]).tolist() == data.indices(epoch).tolist()
        for batch in batches:
            assert batch["x"].tolist() == [[float(n), 2.0 * n] for n in batch["n"]]
            assert batch["t"] == [f"row {n}" for n in batch["n"]]


def test_lance_versions_and_columns(table: str) -> None:
    latest = ps.Dataset.from_lance(table, columns=["n"]).batch(64)
    (batch,) = latest
    assert batch["n"].tolist() == [*range(50), 99]
    with pytest.raises(ps.Error, match=r"this one has|another list of samples"):
        ps.Dataset.from_lance(table, version=2).batch(4).load_state_dict(latest.state_dict())
    with pytest.raises(ps.Error, match="no column 'y', only x, n, t"):
        ps.Dataset.from_lance(table, columns=["y"])
    with pytest.raises(ps.Error, match="cannot be opened by Lance"):
        ps.Dataset.from_lance(table + "s")


def test_lance_resumes_with_ranks(table: str) -> None:
    first = ps.Dataset.from_lance(table, version=2, columns=["n"]).shuffle(seed=4).batch(8)
    seen = [batch["n"] for _, batch in zip(range(2), first)]
    for rank in range(3):
        rest = ps.Dataset.from_lance(table, version=2, columns=["n"]).shuffle(seed=4).batch(9).shard(rank, 3)
        rest.load_state_dict(first.state_dict())
        seen += [batch["n"] for batch in rest]
    assert sorted(np.concatenate(seen).tolist()) == list(range(50))
