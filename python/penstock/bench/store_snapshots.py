"""The single-process part of `penstock bench store`: reading snapshots, long histories, cold reads, publishing."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from penstock.bench.runner import Measured, Report
from penstock.store import Store

ROW_BYTES = 64 << 10
WRITERS = 8  #: Writers whose rows alternate in a snapshot that is read back.
TILE_BYTES, TILE_REGIONS, TILES = 64 << 10, 16, 10  #: Of each version in a long history.
PIECE_BYTES, PIECES_AT_ONCE = 128, 1 << 16  #: Of a version of many fragments.
MOST_METADATA_BYTES = 1 << 20
ROUNDS = 15


def penstock(url: str, parameters: dict[str, Any]) -> Measured:
    """A snapshot of scattered rows, read before and after compaction; the newest of many versions; cold reads; one small
    write."""
    store = Store(url, durable=False)
    rows = _reading_back(store, int(parameters["bytes"]))
    for count in parameters["versions"]:
        rows.append(_history(store, url, int(count)))
    for count in parameters["fragments"]:
        rows.append(_cold(store, url, int(count)))
    return [*rows, _publishing(store)]


def plain(folder: Path, parameters: dict[str, Any]) -> Measured:
    """The times of a plain file of equal size, once for each row of Penstock's that it is compared with."""
    size = _matrix_bytes(int(parameters["bytes"]))
    path = folder / "plain"
    path.write_bytes(_content(size).data)
    found = memory(size)

    def read() -> None:
        with path.open("rb", buffering=0) as file:
            file.readinto(found.data)

    seconds = _median(read)
    _verify(found, _content(size))
    return [(_setting("snapshot", size // ROW_BYTES, size, access), [seconds]) for access in ("read", "read compacted")]


def _reading_back(store: Store, total: int) -> Measured:
    size = _matrix_bytes(total)
    content = _content(size)
    rows = content.reshape(-1, WRITERS, ROW_BYTES)
    blob = store.create("snapshot", size=size)
    for writer in range(WRITERS):
        blob.write([((row * WRITERS + writer) * ROW_BYTES, rows[row, writer]) for row in range(len(rows))])
    measured: Measured = []
    for access in ("read", "read compacted"):
        if access == "read compacted":
            blob.compact()
        # Open the store anew: the writer's handle has the version map cached.
        reader = Store(store.url, create=False, durable=False).open("snapshot")
        found = memory(size)
        seconds = _median(lambda: reader.read([(0, found)]))  # noqa: B023
        _verify(found, content)
        measured.append((_setting("snapshot", size // ROW_BYTES, size, access), [seconds]))
    store.remove("snapshot")
    return measured


def _history(store: Store, url: str, count: int) -> tuple[dict[str, Any], list[float]]:
    name, size = f"history-{count}", TILES * TILE_BYTES
    blob = store.create(name, size=size)
    stretch = TILE_BYTES // TILE_REGIONS
    content = np.zeros(size, np.uint8)
    for version in range(count):
        # Each tile is spread over the blob, like a column of a matrix.
        first = version % TILES
        starts = [(region * TILES + first) * stretch for region in range(TILE_REGIONS)]
        tile = np.full(stretch, 1 + version % 255, np.uint8)
        blob.write([(start, tile) for start in starts])
        for start in starts:
            content[start : start + stretch] = tile
    found = memory(size)

    def read() -> None:
        Store(url, create=False, durable=False).open(name).read([(0, found)])

    seconds = _median(read, 3 * ROUNDS)
    _verify(found, content)
    store.remove(name)
    return _setting(f"{count} versions", TILE_REGIONS, size, "open and read"), [seconds]


def _cold(store: Store, url: str, fragments: int) -> tuple[dict[str, Any], list[float]]:
    """1 MiB from the middle of a version of many fragments, by a process that knows nothing of the store yet."""
    name = f"fragments-{fragments}"
    size = fragments * PIECE_BYTES
    blob = store.create(name, size=size)
    rng = np.random.default_rng(2)
    for first in range(0, fragments, 2 * PIECES_AT_ONCE):
        # Two versions, whose pieces alternate, so that neighbours do not join.
        for half in range(2):
            starts = range(first + half, min(first + 2 * PIECES_AT_ONCE, fragments), 2)
            pieces = rng.integers(0, 256, (len(starts), PIECE_BYTES), np.uint8)
            blob.write([(start * PIECE_BYTES, piece) for start, piece in zip(starts, pieces, strict=True)])
    read_bytes = min(1 << 20, size)
    found = memory(read_bytes)
    begin = (size - read_bytes) // 2
    version = blob.latest

    def read() -> None:
        Store(url, create=False, durable=False).open(name).snapshot(version).read([(begin, found)])

    before = _bytes_read()
    read()
    metadata = _bytes_read() - before - read_bytes
    if metadata > MOST_METADATA_BYTES:
        raise AssertionError(
            f"{metadata} bytes of metadata were read for {read_bytes}; expected {MOST_METADATA_BYTES} at most"
        )
    seconds = _median(read)
    expected = memory(read_bytes)
    blob.read([(begin, expected)])
    _verify(found, expected)
    store.remove(name)
    access = f"cold, {1 << max(10, (metadata - 1).bit_length()) >> 10} KiB of metadata at most"
    return _setting(f"{fragments} fragments", fragments, read_bytes, access), [seconds]


def _bytes_read() -> int:
    """What this process has read by system calls so far, from the page cache, too."""
    fields = Path("/proc/self/io").read_text().split()
    return int(fields[fields.index("rchar:") + 1])


def _publishing(store: Store) -> tuple[dict[str, Any], list[float]]:
    blob = store.create("publish", size=1 << 20)
    data = np.ones(1 << 10, np.uint8)
    before = blob.latest
    seconds = _median(lambda: blob.write([(0, data)]), 200)
    if blob.latest == before:
        raise AssertionError("nothing was published")
    store.remove("publish")
    return _setting("publish", 1, data.size, "write"), [seconds]


def memory(size: int) -> np.ndarray:
    """Page-aligned bytes.

    Some processors copy several times slower to addresses 16 bytes behind a page boundary, where NumPy's large arrays may
    start.
    """
    raw = np.empty(size + 4096, np.uint8)
    start = -raw.ctypes.data % 4096
    return raw[start : start + size]


def _setting(experiment: str, regions: int, size: int, access: str) -> dict[str, Any]:
    return {
        "experiment": experiment,
        "regions": regions,
        "bytes": size,
        "sync": "no",
        "access": access,
        "waiting": "asleep",
    }


def _matrix_bytes(total: int) -> int:
    return max(1, total // (WRITERS * ROW_BYTES)) * WRITERS * ROW_BYTES


def _content(size: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 256, size, np.uint8)


def _median(action: Callable[[], object], rounds: int = ROUNDS) -> float:
    samples = []
    for turn in range(3 + rounds):
        begin = time.perf_counter()
        action()
        if turn >= 3:
            samples.append(time.perf_counter() - begin)
    return statistics.median(samples)


def _verify(found: np.ndarray, expected: np.ndarray) -> None:
    if not np.array_equal(found, expected):
        raise AssertionError("what was read back is not what was written")


def summary(report: Report) -> list[str]:
    """Ratios between rows: the cost of regions, writers, versions and publishing."""
    lines = []
    for peer in (peer for peer in report.peers if peer.startswith("penstock/")):
        rows = [(row.setting, row.seconds[peer]) for row in report.rows if peer in row.seconds]

        def speeds(experiment: str, rows: Any = rows) -> dict[tuple[Any, ...], float]:
            return {
                (
                    setting["sync"],
                    setting["access"],
                    setting["waiting"],
                    setting["ranks"],
                    setting["regions"],
                ): setting["bytes"] / seconds
                for setting, seconds in rows
                if setting["experiment"] == experiment
            }

        regions = speeds("regions")
        for sync, access in sorted({key[:2] for key in regions}):
            found = {key[4]: speed for key, speed in regions.items() if key[:2] == (sync, access)}
            if len(found) > 1:
                lines.append(f"{peer}: {access}, sync {sync}, {min(found)} to {max(found)} regions: "
                             f"{found[max(found)] / found[min(found)]:.2f} of the speed")  # fmt: skip
        for experiment in dict.fromkeys(setting["experiment"] for setting, _ in rows):
            found_speeds = speeds(experiment)
            for (sync, access, waiting, ranks, count), speed in found_speeds.items():
                if ranks == 36 and (fewer := found_speeds.get((sync, access, waiting, 8, count))):
                    lines.append(f"{peer}: {experiment}, sync {sync}, {waiting}, 36 writers: "
                                 f"{speed / fewer:.2f} of 8 writers")  # fmt: skip
        histories = {int(s["experiment"].split()[0]): t for s, t in rows if s["experiment"].endswith(" versions")}
        if len(histories) > 1:
            few, many = min(histories), max(histories)
            lines.append(f"{peer}: reading the newest of {many} versions takes {histories[many] / histories[few]:.2f} "
                         f"times as long as of {few}")  # fmt: skip
        lines += [
            f"{peer}: {s['experiment']}: 1 MiB read cold in {t * 1e3:.2f} ms ({s['access'].split(', ')[1]})"
            for s, t in rows
            if s["access"].startswith("cold")
        ]
        lines += [
            f"{peer}: publishing a version takes {t * 1e3:.2f} ms" for s, t in rows if s["experiment"] == "publish"
        ]
    return lines
