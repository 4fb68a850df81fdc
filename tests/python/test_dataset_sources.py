"""Sources of samples: shards, indexes, tables, stores and URLs; and the shuffle in two levels."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import struct
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import penstock as ps
import pytest


def tables() -> list[int]:
    values = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        values.append(crc)
    return values


TABLE = tables()


def masked_crc(data: bytes) -> bytes:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 255]
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def framed(content: bytes) -> bytes:
    length = struct.pack("<Q", len(content))
    return length + masked_crc(length) + content + masked_crc(content)


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def message(*fields: tuple[int, bytes]) -> bytes:
    return b"".join(varint(number << 3 | 2) + varint(len(value)) + value for number, value in fields)


def example(number: int) -> bytes:
    features = {
        "bytes": message((1, message((1, b"sample %d" % number)))),
        "several": message((1, message((1, b"a"), (1, b"")))),
        "floats": message((2, message((1, struct.pack("<2f", number, 0.5))))),
        "ints": message((3, message((1, varint(number) + varint(-5) + varint(1 << 62))))),
        "unpacked": message((3, varint(1 << 3) + varint(9) + varint(1 << 3) + varint(-9))),
        "none": message((3, message((1, b"")))),
    }
    entries = [(1, message((1, name.encode()), (2, value))) for name, value in features.items()]
    return message((1, message(*entries)))


def write_tars(folder: Path, shards: int, samples: int, *, long_names: bool = False) -> list[Path]:
    paths = []
    for shard in range(shards):
        paths.append(folder / f"shard-{shard}.tar")
        with tarfile.open(paths[-1], "w", format=tarfile.PAX_FORMAT) as tar:
            for i in range(samples):
                number = shard * samples + i
                stem = f"part/{'x' * 150 if long_names else ''}{number:05}"
                for name, content in ((f"{stem}.raw", struct.pack("<I", number) * 3), (f"{stem}.cls", b"%d" % -number)):
                    entry = tarfile.TarInfo(name)
                    entry.size = len(content)
                    tar.addfile(entry, io.BytesIO(content))
    return paths


def numbers(batches: Any) -> list[int]:
    """Of samples from write_tars(), by any of the ways to read them."""
    found = []
    for batch in batches:
        if isinstance(batch, dict):
            found += [struct.unpack("<I", raw[:4])[0] for raw in batch["raw"]]
        else:
            found += [int(sample[0]) for sample in batch[0]]
    return found


# Tar files.


@pytest.mark.parametrize("long_names", [False, True])
def test_samples_of_tar_files_are_files_with_one_stem(tmp_path: Path, long_names: bool):
    shards = write_tars(tmp_path, 3, 5, long_names=long_names)
    data = ps.Dataset.from_tar(shards)
    assert data.samples == 15
    batches = list(data.batch(4))
    assert numbers(batches) == list(range(15))
    assert set(batches[0]) == {"__key__", "raw", "cls"}
    assert batches[0]["__key__"][2].endswith("00002")
    assert batches[0]["cls"] == [b"0", b"-1", b"-2", b"-3"]


def test_a_field_of_tar_files_is_decoded_as_files_are(tmp_path: Path):
    shards = write_tars(tmp_path, 2, 4)
    data = ps.Dataset.from_tar(shards, field="raw", label_field="cls").decode_raw((3,), np.uint32)
    found = [
        (int(row[0]), int(label)) for rows, labels in data.shuffle(seed=3).batch(3) for row, label in zip(rows, labels)
    ]
    assert sorted(found) == [(i, -i) for i in range(8)]


@pytest.mark.parametrize(
    ("content", "options", "expected"),
    [
        (b"no tar file at all", {}, "no uncompressed tar file"),
        (None, {"field": "jpg"}, "has no file .jpg"),
        (None, {"field": "raw", "label_field": "txt"}, "has no file .txt"),
        (None, {"field": "cls", "label_field": "raw"}, "expected an integer label"),
    ],
)
def test_tar_files_that_are_something_else_say_so(tmp_path: Path, content: bytes | None, options: Any, expected: str):
    (shard,) = write_tars(tmp_path, 1, 2)
    if content is not None:
        shard.write_bytes(content)
    with pytest.raises(ps.Error, match=expected):
        ps.Dataset.from_tar([shard], **options)


def test_a_shard_that_shrinks_fails_its_samples_alone(tmp_path: Path):
    (shard,) = write_tars(tmp_path, 1, 6)
    for options in ({}, {"field": "raw"}):
        whole = shard.read_bytes()
        data = ps.Dataset.from_tar([shard], **options)
        if options:
            data = data.decode_raw((3,), np.uint32)
        shard.write_bytes(whole[: 2 * 2048 + 100])
        data = data.ignore_errors().batch(3)
        assert numbers(data) == [0, 1]
        assert len(data.skipped) == 4
        shard.write_bytes(whole)


# TFRecord.


def test_examples_of_tfrecord_files(tmp_path: Path):
    path = tmp_path / "a.tfrecord"
    path.write_bytes(b"".join(framed(example(i)) for i in range(10)))
    data = ps.Dataset.from_tfrecord([path])
    assert data.samples == 10
    sample = next(iter(data.skip(3).batch(1)))
    assert sample["bytes"] == [b"sample 3"]
    assert sample["several"] == ([b"a"], [b""])
    assert sample["floats"].tolist() == [[3, 0.5]]
    assert sample["floats"].dtype == np.float32
    assert sample["ints"].tolist() == [[3, -5, 1 << 62]]
    assert sample["unpacked"].tolist() == [[9, -9]]
    assert sample["none"].shape == (1, 0)


def test_the_checksum_is_crc_32c():
    assert masked_crc(b"123456789") == struct.pack(
        "<I", ((0xE3069283 >> 15 | 0xE3069283 << 17) + 0xA282EAD8) & 0xFFFFFFFF
    )
    for size in (0, 1, 7, 8, 9, 63, 64, 1000):
        content = bytes(i * 7 & 255 for i in range(size))
        assert ps._penstock.dataset.tfrecord(framed(content)) == content


def test_damaged_records_are_found(tmp_path: Path):
    path = tmp_path / "a.tfrecord"
    whole = b"".join(framed(b"record %d" % i) for i in range(3))
    frame = len(framed(b"record 0"))
    path.write_bytes(whole[:-1])
    with pytest.raises(ps.Error, match=f"cut off in its record at {2 * frame}"):
        ps.Dataset.from_tfrecord([path])
    path.write_bytes(whole[:frame] + b"\1" + whole[frame + 1 :])
    with pytest.raises(ps.Error, match=f"at {frame} .*checksum of its length"):
        ps.Dataset.from_tfrecord([path])
    path.write_bytes(whole[: frame + 13] + b"!" + whole[frame + 14 :])
    data = ps.Dataset.from_tfrecord([path], parse=bytes).ignore_errors().batch(3)
    assert list(data) == [[b"record 0", b"record 2"]]
    assert "checksum of its content" in data.skipped[0].reason


@pytest.mark.parametrize("cut", [1, 5, 20, 60])
def test_examples_that_are_cut_off_are_errors_of_their_sample(tmp_path: Path, cut: int):
    path = tmp_path / "a.tfrecord"
    path.write_bytes(framed(example(1)[:-cut]) + framed(example(2)))
    data = ps.Dataset.from_tfrecord([path]).ignore_errors().batch(2)
    assert [batch["bytes"] for batch in data] == [[b"sample 2"]]
    assert "cut off" in data.skipped[0].reason


# Indexes.


def test_an_index_of_files_moves_with_its_folder(tmp_path: Path):
    place = tmp_path / "here"
    for name in ("b/1.bin", "a/0.bin", "a/2.bin", "a/no.txt"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(struct.pack("<I", ord(name[2])))
    made = ps.dataset.build_index([place], place / "x.index", label_folders=True, extensions=[".bin"])
    assert made[:4] == ("files", 3, 12, 2)
    place.rename(tmp_path / "there")
    data = ps.Dataset.from_index(tmp_path / "there/x.index").decode_raw((1,), np.uint32)
    ((values, labels),) = list(data.batch(3))
    assert values.ravel().tolist() == [ord("0"), ord("2"), ord("1")]
    assert labels.tolist() == [0, 0, 1]
    assert data.state_dict()["samples"] == made.digest


def test_an_index_of_shards_gives_what_the_shards_give(tmp_path: Path):
    shards = write_tars(tmp_path, 2, 3)
    ps.dataset.build_index(shards, tmp_path / "whole.index")
    ps.dataset.build_index(shards, tmp_path / "field.index", field="raw", label_field="cls")
    (tmp_path / "r.tfrecords").write_bytes(framed(example(4)))
    ps.dataset.build_index([tmp_path / "r.tfrecords"], tmp_path / "r.index")
    assert numbers(ps.Dataset.from_index(tmp_path / "whole.index").batch(4)) == list(range(6))
    labelled = ps.Dataset.from_index(tmp_path / "field.index").decode_raw((3,), np.uint32).batch(6)
    assert next(iter(labelled))[1].tolist() == [0, -1, -2, -3, -4, -5]
    assert next(iter(ps.Dataset.from_index(tmp_path / "r.index").batch(1)))["bytes"] == [b"sample 4"]


def test_a_file_that_changed_its_size_is_an_error_of_its_sample(tmp_path: Path):
    for i in range(3):
        (tmp_path / f"{i}.bin").write_bytes(bytes([i] * 4))
    ps.dataset.build_index([tmp_path], tmp_path.parent / "y.index")
    (tmp_path / "1.bin").write_bytes(b"ab")
    data = ps.Dataset.from_index(tmp_path.parent / "y.index").decode_raw((4,)).ignore_errors().batch(3)
    assert [values[:, 0].tolist() for values, _ in data] == [[0, 2]]
    assert "the index expects" in data.skipped[0].reason


@pytest.mark.parametrize("place", [0, 8, 20, -1, None])
def test_a_damaged_index_is_refused(tmp_path: Path, place: int | None):
    (tmp_path / "0.bin").write_bytes(b"abcd")
    out = tmp_path / "z.index"
    ps.dataset.build_index([tmp_path / "0.bin"], out)
    content = bytearray(out.read_bytes())
    if place is None:
        content = bytearray(b"short")
    elif place == -1:
        content = content[:-1]
    else:
        content[place] ^= 255
    out.write_bytes(content)
    with pytest.raises(ps.Error, match=r"index .* (is|has)"):
        ps.Dataset.from_index(out)


def test_a_failed_index_leaves_nothing(tmp_path: Path):
    (tmp_path / "0.tar").write_bytes(b"no tar")
    with pytest.raises(ps.Error):
        ps.dataset.build_index([tmp_path / "0.tar"], tmp_path / "out.index")
    assert sorted(os.listdir(tmp_path)) == ["0.tar"]
    with pytest.raises(ps.Error, match="one kind in an index"):
        ps.dataset.build_index([tmp_path / "0.tar", tmp_path / "1.jpg"], tmp_path / "out.index")


def test_the_command_makes_an_index(tmp_path: Path):
    write_tars(tmp_path, 1, 4)
    command = [sys.executable, "-m", "penstock", "dataset", "index", "--out", str(tmp_path / "i.index"), "--json"]
    command += ["--field", "raw", "--label-field", "cls", str(tmp_path / "shard-0.tar")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["samples"] == 4
    done = subprocess.run([*command[:-1], str(tmp_path / "none.tar")], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "No such file" in done.stderr


# The shuffle in two levels.


def test_shuffling_in_blocks_mixes_a_window_of_blocks():
    data = ps.Dataset.from_arrays(np.arange(1000)).shuffle(seed=1, block=10, window=5)
    order = data.indices(0)
    assert sorted(order) == list(range(1000))
    blocks = order // 10
    for begin in range(0, 1000, 50):
        assert len(set(blocks[begin : begin + 50])) == 5
    assert not np.array_equal(order, data.indices(1))
    # The documented statistic: how often two samples of one window are from one block.
    batches = order.reshape(-1, 10) // 10
    same = [(a == b) for batch in batches for i, a in enumerate(batch) for b in batch[:i]]
    assert np.mean(same) == pytest.approx(9 / 49, rel=0.15)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_shuffled_blocks_of_shards_resume_on_other_numbers_of_ranks(tmp_path: Path, size: int):
    shards = write_tars(tmp_path, 3, 21)

    def made(rank: int, ranks: int, batch: int) -> ps.Dataset:
        data = ps.Dataset.from_tar(shards).shuffle(seed=9, block=8, window=2)
        return data.batch(batch).shard(rank, ranks)

    first = [made(rank, 2, 10) for rank in range(2)]
    seen: list[int] = []
    for _ in range(2):  # epochs
        seen = [i for data in first for i in numbers(batch for _, batch in zip(range(3), data))]
        state = first[0].state_dict()
        assert state["position"] == 30
        resumed = []
        for rank in range(size):
            data = made(rank, size, 7)
            data.load_state_dict(json.loads(json.dumps(state)))
            resumed += numbers(data)
        assert sorted(seen + resumed) == list(range(63))


def test_blocks_are_read_once_by_few_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from penstock.dataset.reader import Reader

    shards = write_tars(tmp_path, 2, 64)
    reads: list[int] = []
    get = Reader._get
    monkeypatch.setattr(Reader, "_get", lambda self, *where: reads.append(where[2]) or get(self, *where))
    data = ps.Dataset.from_tar(shards).shuffle(seed=2, block=16, window=2).batch(8)
    assert sorted(numbers(data)) == list(range(128))
    assert len(reads) == 8
    reads.clear()
    assert sorted(numbers(ps.Dataset.from_tar(shards).shuffle(seed=2).batch(8))) == list(range(128))
    assert len(reads) == 128


# Stores and tables.


def test_blobs_of_a_store_at_the_version_of_the_beginning():
    store = ps.Store("memory:dataset-source")
    for i in range(4):
        store.create(f"b{i}", size=4).write([(0, struct.pack("<I", i))])
    data = ps.Dataset.from_store(store, labels=[3, 2, 1, 0]).decode_raw((1,), np.uint32).batch(4)
    store.open("b2").write([(0, struct.pack("<I", 99))])
    ((values, labels),) = list(data)
    assert values.ravel().tolist() == [0, 1, 2, 3]
    assert labels.tolist() == [3, 2, 1, 0]
    with pytest.raises(ps.Error, match="another list of samples"):
        ps.Dataset.from_store(store).decode_raw((1,), np.uint32).load_state_dict(data.state_dict())


def table(rows: int) -> Any:
    pa = pytest.importorskip("pyarrow", reason="needs pyarrow")
    return pa.table(
        {
            "id": pa.array(range(rows), pa.int64()),
            "tokens": pa.array([list(range(i % 5)) for i in range(rows)], pa.list_(pa.int32())),
            "text": [f"row {i}" for i in range(rows)],
            "maybe": pa.array([None if i % 2 else i for i in range(rows)], pa.int64()),
        }
    )


def check_rows(data: ps.TreeDataset, rows: int) -> None:
    found = {}
    for batch in data.map(lambda row: {**row, "maybe": str(row["maybe"])}).pad(-1, length=5).batch(7):
        for place, identifier in enumerate(batch["id"].tolist()):
            found[identifier] = (batch["tokens"][place].tolist(), batch["text"][place], batch["maybe"][place])
    expected = {i: ([*range(i % 5)] + [-1] * (5 - i % 5), f"row {i}", "None" if i % 2 else str(i)) for i in range(rows)}
    assert found == expected


def test_rows_of_parquet_files(tmp_path: Path):
    rows = table(100)
    import pyarrow.parquet as pq

    for part in range(2):
        pq.write_table(rows.slice(50 * part, 50), tmp_path / f"{part}.parquet", row_group_size=16)
    paths = [tmp_path / f"{part}.parquet" for part in range(2)]
    check_rows(ps.Dataset.from_parquet(paths), 100)
    check_rows(ps.Dataset.from_parquet(paths).shuffle(seed=1, block=16, window=3), 100)
    few = ps.Dataset.from_parquet(paths, columns=["id"])
    assert next(iter(few.batch(3)))["id"].tolist() == [0, 1, 2]
    assert few.state_dict()["samples"] != ps.Dataset.from_parquet(paths).state_dict()["samples"]


def test_rows_of_arrow_tables_and_files(tmp_path: Path):
    rows = table(30)
    import pyarrow as pa

    check_rows(ps.Dataset.from_arrow(rows), 30)
    with pa.OSFile(str(tmp_path / "a.arrow"), "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
        for batch in rows.to_batches(max_chunksize=8):
            writer.write_batch(batch)
    with pa.OSFile(str(tmp_path / "b.arrow"), "wb") as file, pa.ipc.new_stream(file, rows.schema) as writer:
        writer.write_table(rows)
    check_rows(ps.Dataset.from_arrow([tmp_path / "a.arrow"]).shuffle(seed=4), 30)
    check_rows(ps.Dataset.from_arrow([tmp_path / "b.arrow"]), 30)


# URLs.


def test_objects_of_any_file_system_of_fsspec():
    fsspec = pytest.importorskip("fsspec", reason="needs fsspec")
    memory = fsspec.filesystem("memory")
    for i in range(20):
        memory.pipe_file(f"/penstock/{i}", struct.pack("<I", i))
    urls = [f"memory://penstock/{i}" for i in range(20)]
    data = ps.Dataset.from_files(urls, labels=range(20)).shuffle(seed=1).decode_raw((1,), np.uint32).batch(6)
    found = [(int(value[0]), int(label)) for values, labels in data for value, label in zip(values, labels)]
    assert sorted(found) == [(i, i) for i in range(20)]
    memory.rm_file("/penstock/7")
    data = ps.Dataset.from_files(urls).decode_raw((1,), np.uint32).ignore_errors().batch(20)
    assert len(next(iter(data))[0]) == 19
    assert data.skipped[0].path == "memory://penstock/7"
    assert "FileNotFoundError" in data.skipped[0].reason
    limited = ps.Dataset.from_files(urls[:1]).limits(max_bytes=3).batch(1)
    with pytest.raises(ps.Error, match="more than the limit of 3 bytes"):
        next(iter(limited))


def test_an_index_of_objects_is_read_where_it_is_used(tmp_path: Path):
    fsspec = pytest.importorskip("fsspec", reason="needs fsspec")
    for i in range(9):
        fsspec.filesystem("memory").pipe_file(f"/indexed/{i}", struct.pack("<I", i))
    urls = [f"memory://indexed/{i}" for i in range(9)]
    ps.dataset.build_index(urls, tmp_path / "urls.index", labels=[-i for i in range(9)])
    data = ps.Dataset.from_index(tmp_path / "urls.index").shuffle(seed=1).decode_raw((1,), np.uint32).batch(4)
    found = [(int(value[0]), int(label)) for values, labels in data for value, label in zip(values, labels)]
    assert sorted(found) == [(i, -i) for i in range(9)]
    content = bytearray((tmp_path / "urls.index").read_bytes())
    record_bytes = 32
    content[-5 * record_bytes : -4 * record_bytes - 24] = b"\xff" * 8  # which path sample 4 has
    (tmp_path / "urls.index").write_bytes(content)
    data = ps.Dataset.from_index(tmp_path / "urls.index").decode_raw((1,), np.uint32).ignore_errors().batch(9)
    assert [values.ravel().tolist() for values, _ in data] == [[0, 1, 2, 3, 5, 6, 7, 8]]
    assert "is damaged at sample 4" in data.skipped[0].reason


def test_objects_of_any_size_are_errors_of_their_sample(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    fsspec = pytest.importorskip("fsspec", reason="needs fsspec")
    asked = []

    class Endless(fsspec.AbstractFileSystem):
        """Object 1 has more bytes than any memory. Objects 2 and 6 have none, and no range of them is satisfiable."""

        protocol = "endless"

        def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
            asked.append((path, start, end))
            if path.endswith("2") and end is not None:
                raise OSError("416: the requested range is not satisfiable")
            if path.endswith("6") and end is not None:  # as s3fs says what Ceph says
                raise OSError(errno.EINVAL, "None") from RuntimeError("An error occurred (InvalidRange)")
            if path.endswith("1"):
                return bytes((1 << 61 if end is None else end) - (start or 0))
            return b"" if path.endswith(("2", "6")) else b"four"

        def size(self, path: str) -> int:
            return 0

    fsspec.register_implementation("endless", Endless, clobber=True)
    with open(tmp_path / "sparse", "wb") as file:
        file.truncate(1 << 42)
    os.mkfifo(tmp_path / "fifo")
    paths = ["endless://0", "endless://1", "endless://2", tmp_path / "sparse", tmp_path / "fifo"]
    paths += ["endless://5", "endless://6"]
    data = ps.Dataset.from_files(paths, labels=range(7), deadline_s=5).limits(max_bytes=1000)
    expected = [(0, b"four"), (2, b""), (5, b"four"), (6, b"")]
    for blocks in ({}, {"block": 2}):
        ignoring = data.shuffle(seed=0, **blocks).ignore_errors().batch(7)
        [(contents, labels)] = ignoring
        assert sorted((int(label), bytes(content)) for content, label in zip(contents, labels)) == expected
        reasons = {one.index: one.reason for one in ignoring.skipped}
        assert reasons.keys() == {1, 3, 4}
        assert "more than the limit of 1000 bytes" in reasons[1]
        assert "more than the limit of 1000 bytes" in reasons[3]
        assert "not a regular file" in reasons[4]
    assert all(end is not None for _, _, end in asked)


class Flaky(BaseHTTPRequestHandler):
    """Numbers as objects. Every first request of /flaky/ fails, /broken/ always does; it counts requests in flight."""

    protocol_version = "HTTP/1.1"
    lock = threading.Lock()
    seen: ClassVar[set[str]] = set()
    now = most = 0
    meet: threading.Barrier | None = None

    def do_GET(self) -> None:
        with Flaky.lock:
            Flaky.now += 1
            Flaky.most = max(Flaky.most, Flaky.now)
            first = self.path not in Flaky.seen
            Flaky.seen.add(self.path)
        if Flaky.meet is not None:
            with contextlib.suppress(threading.BrokenBarrierError):
                Flaky.meet.wait(10)
        failing = self.path.startswith("/broken/") or (first and self.path.startswith("/flaky/"))
        content = b"" if failing else struct.pack("<I", int(self.path.rpartition("/")[2]))
        with Flaky.lock:
            Flaky.now -= 1
        self.send_response(503 if failing else 200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    pytest.importorskip("aiohttp", reason="needs fsspec and aiohttp")
    Flaky.seen, Flaky.most, Flaky.now, Flaky.meet = set(), 0, 0, None
    running = ThreadingHTTPServer(("127.0.0.1", 0), Flaky)
    thread = threading.Thread(target=running.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{running.server_port}"
    running.shutdown()
    thread.join()
    running.server_close()


def test_failed_requests_are_repeated(server: str):
    urls = [f"{server}/flaky/{i}" for i in range(8)]
    data = ps.Dataset.from_files(urls).decode_raw((1,), np.uint32).batch(4)
    assert [int(v[0]) for values, _ in data for v in values] == list(range(8))


def test_more_requests_are_in_flight_than_threads_decode(server: str):
    Flaky.meet = threading.Barrier(6)
    urls = [f"{server}/{i}" for i in range(6)]
    data = ps.Dataset.from_files(urls).decode_raw((1,), np.uint32, num_parallel_calls=1).batch(6)
    assert len(next(iter(data))[0]) == 6
    assert Flaky.most == 6


def test_what_fails_until_the_deadline_is_an_error_of_its_sample(server: str):
    urls = [f"{server}/0", f"{server}/broken/1", f"{server}/2"]
    data = ps.Dataset.from_files(urls, deadline_s=0.3).decode_raw((1,), np.uint32).ignore_errors().batch(3)
    assert [int(v[0]) for values, _ in data for v in values] == [0, 2]
    assert data.skipped[0].index == 1
    assert "times in 0.3 s" in data.skipped[0].reason


def test_objects_and_shards_in_s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    s3fs = pytest.importorskip("s3fs", reason="needs s3fs")
    moto = pytest.importorskip("moto.server", reason="needs moto[server], whose S3 server it starts")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    running = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    running.start()
    try:
        host, port = running.get_host_and_port()
        options = {"endpoint_url": f"http://{host}:{port}", "client_kwargs": {"region_name": "eu-west-1"}}
        s3 = s3fs.S3FileSystem(**options)
        s3.mkdir("bucket")
        for i in range(12):
            s3.pipe_file(f"bucket/{i}", struct.pack("<I", i))
        urls = [f"s3://bucket/{i}" for i in range(12)]
        data = ps.Dataset.from_files(urls, storage_options=options).shuffle(seed=1).decode_raw((1,), np.uint32)
        assert sorted(int(v[0]) for values, _ in data.batch(5) for v in values) == list(range(12))
        shards = write_tars(tmp_path, 2, 20)
        for shard in shards:
            s3.put_file(str(shard), f"bucket/{shard.name}")
        remote = [f"s3://bucket/{shard.name}" for shard in shards]
        data = ps.Dataset.from_tar(remote, storage_options=options).shuffle(seed=1, block=10, window=2)
        assert sorted(numbers(data.batch(8))) == list(range(40))
        ps.dataset.build_index(remote, tmp_path / "s3.index", field="raw", storage_options=options)
        indexed = ps.Dataset.from_index(tmp_path / "s3.index", storage_options=options).decode_raw((3,), np.uint32)
        assert numbers(indexed.batch(8)) == list(range(40))
    finally:
        running.stop()


def test_a_url_without_fsspec_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(ps.Error, match="needs fsspec"):
        next(iter(ps.Dataset.from_files(["s3://bucket/key"]).batch(1)))
