"""Requests in flight: a reader that fetches from storage which the test answers for."""

from __future__ import annotations

import threading
import time
from typing import Any

import penstock as ps
import pytest
from penstock.dataset.reader import Reader, Request

SECONDS = 300.0  # a test that waits this long hangs


class Samples:
    """Objects of 100 bytes."""

    def __init__(self, count: int, known: bool = True) -> None:
        self.count, self.known = count, known

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, at: int, /) -> tuple[bytes, int, int, int]:
        return f"test://{at}".encode(), 0, 100 if self.known else -1, 0


class Answered(Reader):
    """Each request waits until the test lets it go."""

    def __init__(self, samples: Any, how: Request) -> None:
        super().__init__(samples, how)
        self.changed = threading.Condition()
        self.asked: list[str] = []
        self.allowed = 0

    def _get(self, path: str, begin: int, size: int) -> bytes:
        with self.changed:
            mine = len(self.asked)
            self.asked.append(path)
            self.changed.notify_all()
            assert self.changed.wait_for(lambda: self.allowed > mine, SECONDS)
        return path.encode().ljust(100)

    def allow(self, more: int) -> None:
        with self.changed:
            self.allowed += more
            self.changed.notify_all()

    def wait_for(self, asked: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.asked) >= asked, SECONDS), self.asked

    def stays_at(self, asked: int) -> None:
        self.wait_for(asked)
        time.sleep(0.05)
        assert len(self.asked) == asked


@pytest.mark.parametrize(("how", "first"), [(Request(), 10), (Request(requests=3), 3), (Request(requests=20), 20)])
@pytest.mark.parametrize("known", [True, False])
def test_requests_in_flight(how: Request, first: int, known: bool):
    reader = Answered(Samples(100, known), how)
    reader.prepare(None, 1 << 30)
    reader.announce(range(100))
    reader.stays_at(first)
    reader.allow(1)
    reader.stays_at(first + 1)
    reader.allow(1000)
    for at in range(100):
        assert reader.read(at).startswith(b"test://%d" % at)
    assert sorted(reader.asked) == sorted(f"test://{at}" for at in range(100))
    assert reader.wants_more()


def test_a_link_with_latency_gets_more_requests():
    class Slow(Reader):
        now = most = 0
        lock = threading.Lock()

        def _get(self, path: str, begin: int, size: int) -> bytes:
            with self.lock:
                self.now += 1
                self.most = max(self.most, self.now)
            time.sleep(0.2)  # far longer than a busy machine takes for 20 requests
            with self.lock:
                self.now -= 1
            return bytes(100)

    reader = Slow(Samples(2000), Request())
    reader.prepare(None, 1 << 30)
    reader.announce(range(2000))
    for at in range(2000):
        reader.read(at)
        if reader.most > 20:
            break
    assert reader.most > 20  # there is no rate that it could not reach, so the window grows
    reader.forget()


def test_what_is_fetched_ahead_stays_in_the_budget():
    reader = Answered(Samples(100), Request(requests=50))
    reader.prepare(None, 1 << 30, ram_bytes=550)
    reader.announce(range(100))
    reader.stays_at(5)
    reader.allow(1000)
    reader.stays_at(5)  # they are fetched, and nobody has taken them
    assert not reader.wants_more()
    for at in (70, 99, 0, 1, *range(2, 70), *range(71, 99)):  # those who are asked for come first
        assert reader.read(at).startswith(b"test://%d" % at)


def test_a_new_iteration_forgets_what_was_announced():
    reader = Answered(Samples(100), Request(requests=4))
    reader.prepare(None, 1 << 30, ram_bytes=1000)
    reader.announce(range(50))
    reader.wait_for(4)
    reader.prepare(None, 1 << 30, ram_bytes=1000)
    reader.announce([60, 61])
    reader.allow(1000)
    assert reader.read(60).startswith(b"test://60")
    assert reader.read(61).startswith(b"test://61")
    assert set(reader.asked) <= {*(f"test://{at}" for at in range(4)), "test://60", "test://61"}


def test_prefetching_goes_on_until_the_window_is_full():
    from penstock.dataset.arguments import labels_array
    from penstock.dataset.pipeline import _from_reader

    reader = Answered(Samples(200), Request(requests=40))
    data = _from_reader(reader, 200, labels_array(None), "test").batch(2)
    seen: list[int] = []
    consumer = threading.Thread(target=lambda: seen.extend(len(labels) for _, labels in data))
    consumer.start()
    reader.wait_for(2)
    reader.allow(2)  # the first batch: nobody knew its size
    reader.stays_at(42)  # two batches of two are the beginning
    reader.allow(1000)
    consumer.join()
    assert seen == [2] * 100
    assert data.stats.prefetch >= 20
    assert "prepared ahead" in data.report()


def test_the_number_of_requests_is_checked():
    with pytest.raises(ps.Error, match="requests"):
        ps.Dataset.from_files(["s3://a/b"], requests=0)
