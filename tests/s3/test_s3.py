"""Datasets of objects in S3 that answer late, throttle, break off, are missing or are forbidden."""

from __future__ import annotations

import io
import re
import tarfile
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import penstock as ps
import pytest
from conftest import options_of
from faulty_proxy import FaultyProxy

COUNT = 48
VALUES = 64


@pytest.fixture(scope="session")
def bucket(server: str) -> str:
    """Object i holds VALUES times the number i; two shards hold the same."""
    import s3fs

    name = f"samples-{uuid.uuid4().hex[:8]}"
    s3 = s3fs.S3FileSystem(**options_of(server))
    s3.mkdir(name)
    for i in range(COUNT):
        s3.pipe_file(f"{name}/{i}", np.full(VALUES, i, np.uint32).tobytes())
    for shard in range(2):
        memory = io.BytesIO()
        with tarfile.open(fileobj=memory, mode="w") as tar:
            for i in range(shard * COUNT // 2, (shard + 1) * COUNT // 2):
                data = np.full(VALUES, i, np.uint32).tobytes()
                member = tarfile.TarInfo(f"{i:04}.raw")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
        s3.pipe_file(f"{name}/{shard}.tar", memory.getvalue())
    return name


def urls_of(bucket: str) -> list[str]:
    return [f"s3://{bucket}/{i}" for i in range(COUNT)]


def numbers(data: ps.Dataset) -> list[int]:
    found = []
    for values, _ in data:
        assert values.shape[1:] == (VALUES,) and (values == values[:, :1]).all()
        found += values[:, 0].tolist()
    return found


def dataset(bucket: str, options: dict[str, Any], **how: Any) -> ps.Dataset:
    return ps.Dataset.from_files(urls_of(bucket), storage_options=options, **how).decode_raw((VALUES,), np.uint32)


def test_many_requests_are_under_way(bucket: str, proxy: FaultyProxy, options: dict[str, Any]) -> None:
    proxy.latency_s, proxy.hold = 0.05, 5
    assert numbers(dataset(bucket, options, requests=16).batch(16).prefetch(3)) == list(range(COUNT))
    assert proxy.methods == {"GET": COUNT}, "each object takes one request"
    assert 4 < proxy.most_at_once <= 16


def test_the_client_has_a_connection_for_each_request(bucket: str, proxy: FaultyProxy, options: dict[str, Any]) -> None:
    proxy.latency_s, proxy.hold = 0.05, 20
    assert numbers(dataset(bucket, options, requests=24).batch(48)) == list(range(COUNT))
    assert 20 <= proxy.most_at_once <= 24


def faulty(key: str, before: int) -> str:
    """Each object fails once or twice, in all ways."""
    ways = ["slow_down", "internal", "cut", "reset"]
    number = int(key.rsplit("/", 1)[1].split(".")[0])
    return ways[(number + before) % 4] if before <= number % 2 else ""


def test_what_fails_is_read_again(bucket: str, proxy: FaultyProxy, options: dict[str, Any]) -> None:
    proxy.fault = faulty
    data = dataset(bucket, options).shuffle(seed=5).batch(8)
    assert sorted(numbers(data)) == list(range(COUNT)) and len(data.skipped) == 0
    assert min(proxy.reads.values()) >= 2


def test_shards_and_their_index_survive_failures(
    bucket: str, proxy: FaultyProxy, options: dict[str, Any], tmp_path: Path
) -> None:
    shards = [f"s3://{bucket}/{i}.tar" for i in range(2)]
    ps.dataset.build_index(shards, tmp_path / "index", field="raw", storage_options=options)
    proxy.fault = lambda key, before: ["slow_down", "reset", ""][before % 3]
    data = ps.Dataset.from_index(tmp_path / "index", storage_options=options).decode_raw((VALUES,), np.uint32)
    assert numbers(data.batch(8)) == list(range(COUNT))


def test_a_run_continues_exactly_through_failures(bucket: str, proxy: FaultyProxy, options: dict[str, Any]) -> None:
    expected = numbers(dataset(bucket, options).shuffle(seed=7).batch(6))
    proxy.reset()
    proxy.fault = faulty
    data = dataset(bucket, options).shuffle(seed=7).batch(6)
    begun = iter(data)
    first = [int(values[0]) for _ in range(3) for values in next(begun)[0]]
    again = dataset(bucket, options).shuffle(seed=7).batch(4)
    again.load_state_dict(data.state_dict())
    assert first + numbers(again) == expected


def test_an_object_that_stays_broken_is_an_error_of_its_sample(
    bucket: str, proxy: FaultyProxy, options: dict[str, Any]
) -> None:
    proxy.fault = lambda key, before: "slow_down" if key.endswith("/3") else ""
    data = dataset(bucket, options, deadline_s=0.5).ignore_errors().batch(8)
    assert numbers(data) == [i for i in range(COUNT) if i != 3]
    assert [skipped.index for skipped in data.skipped] == [3]
    # The client may repeat a request for longer than that, too.
    assert re.search(r"times in 0\.5 s|longer than the deadline of 0\.5 s", data.skipped[0].reason)


def test_a_missing_object_is_not_read_again(bucket: str, proxy: FaultyProxy, options: dict[str, Any]) -> None:
    urls = [f"s3://{bucket}/0", f"s3://{bucket}/none", f"s3://{bucket}/1"]
    data = ps.Dataset.from_files(urls, storage_options=options).decode_raw((VALUES,), np.uint32)
    assert numbers(data.ignore_errors().batch(2)) == [0, 1]
    assert proxy.reads[f"{bucket}/none"] <= 1
    with pytest.raises(ps.Error, match="none"):
        numbers(data.batch(2))


def test_objects_that_are_too_large_or_empty(bucket: str, server: str, options: dict[str, Any]) -> None:
    import s3fs

    s3 = s3fs.S3FileSystem(**options_of(server))
    s3.pipe_file(f"{bucket}/empty", b"")
    s3.pipe_file(f"{bucket}/large", bytes(5000))
    urls = [f"s3://{bucket}/{name}" for name in ("empty", "large", "1")]
    data = ps.Dataset.from_files(urls, storage_options=options).limits(max_bytes=4 * VALUES).ignore_errors().batch(3)
    [(contents, _)] = data
    assert [len(content) for content in contents] == [0, 4 * VALUES]
    assert "more than the limit of 256 bytes" in data.skipped[0].reason
