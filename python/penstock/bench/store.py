"""Benchmark: atomic writes of overlapping, non-contiguous regions; versioning paper, section 6."""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from penstock import preload, text_table
from penstock.bench import runner, store_readers, store_snapshots
from penstock.bench.installation import Installation
from penstock.bench.runner import Jobs, Measured, Program, Report
from penstock.error import Error

SUMMARY = """Atomic writes of overlapping regions, against the MPIs' atomic mode and against plain files.

One rank: the same bytes in more and more regions, written and read back; a snapshot of scattered rows, read before and
after compaction; opening a store and reading the newest of few and of many versions, and 1 MiB of a version of few and of
many fragments; one small write. Several ranks: tiles in a row, each overlapping its neighbours by an eighth, with short and with long rows. Square numbers of ranks:
mpi-tile-io's squares, with small and with large elements; and all ranks read one version at once, each another part. Peers: the atomic mode of MPI.File (ROMIO, OMPIO), a new plain
file per process and write ("plain"), the same file overwritten ("overwritten"), and MPI.File in atomic mode under `penstock
run`, which keeps its file in a store ("preloaded"). With more ranks than cores, ranks that
poll as MPI does take the cores from ranks that still write or hold a lock. So each setting is measured twice: with
polling ranks (the time of the slowest), and with ranks that start together and sleep when done (the time until the last
is done). Tiles are also written by a non-blocking write and its wait ("iwrite"), but not to plain files. Every result is
verified: where tiles overlap, one of them must have won everywhere.
"""

OPTIONS = {
    "bytes": (16 << 20, 1 << 20, "bytes that each rank writes at once"),
    "regions": ([1, 4, 16, 64, 256, 1024], [1, 64], "numbers of regions, for one rank"),
    "versions": ([10, 1000], [10, 40], "lengths of histories of which the newest version is read, for one rank"),
    "fragments": ([10_000, 10_000_000], [10_000], "fragments of versions that are read cold, for one rank"),
    "row_bytes": ([4 << 10, 256 << 10], [4 << 10], "bytes of a tile's row, for tiles in a row"),
    "element_bytes": ([1 << 10, 1 << 20], [1 << 10], "bytes of an element, for tiles in a square"),
    "sync": (["no", "yes"], ["no"], "whether a write is on the device when it returns"),
    "waiting": (
        ["polling", "asleep"],
        ["asleep"],
        "how ranks that have written wait for the others, whatever the peer",
    ),
    "budget_s": (2.0, 0.2, "seconds for one setting in one job"),
    "directory": ("", "", "where files go; the system's temporary folder if left out"),
    "store": ("", "", "URL below which Penstock's stores go, such as rados://pool/bench; in `directory` if left out"),
}
CHOICES = {"sync": ["no", "yes"], "waiting": ["polling", "asleep"]}
RANKS = [1, 4, 8, 16, 36]
MINUTES = 12
POLL_S = 5e-3  #: Interval between polls of a rank that waits asleep.
SETTLE_S = 0.02  #: Time for all ranks to fall asleep before they start together, or to find cores.
# Memory that the machine has not used for a while is slow at first. Every peer warms up its own memory.
WARM_UP_ROUNDS, MIN_ROUNDS, MAX_ROUNDS = 6, 5, 40


def programs(mpi: Installation) -> list[Program]:
    return [
        Program("atomic"),
        Program("plain", once=True),
        Program("overwritten", once=True),
        Program("penstock", baselines=("atomic", "plain", "overwritten")),
        *([] if missing(mpi) else [Program("preloaded", ("penstock",), under=("run", "--quiet", "--strict"))]),
    ]


def missing(mpi: Installation) -> dict[str, str]:
    try:
        preload.library(mpi.abi)
    except Error as error:
        return {"preloaded": str(error)}
    return {}


def prepare(parameters: dict[str, Any], jobs: Jobs) -> dict[str, Any]:
    """Touch as much memory as the largest job needs. The hypervisor may hold pages that were unused for long; getting one
    back takes ten times as long as a copy, which would slow down the first peer."""
    place = Path(parameters["directory"] or tempfile.gettempdir())
    if not place.is_dir() or not os.access(place, os.W_OK):
        raise Error(f"--directory is '{place}'; expected a directory that can be written to", "io")
    available_bytes = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    np.ones(min(512 * int(parameters["bytes"]), available_bytes // 2), np.uint8)
    return parameters


@dataclass(frozen=True)
class Pattern:
    """The regions that each rank writes: rectangles of equal size in a matrix of bytes."""

    setting: dict[str, Any]
    shape: tuple[int, int]
    tile: tuple[int, int]
    starts: list[tuple[int, int]]  #: Upper left corner, by rank.
    spread: bool = False  #: The matrix has one column of regions; behind each is a gap of the same size.

    def rectangle(self, rank: int) -> tuple[slice, slice]:
        (row, column), (rows, columns) = self.starts[rank], self.tile
        return slice(row, row + rows), slice(column, column + columns)


def patterns(size: int, parameters: dict[str, Any]) -> list[Pattern]:
    total = int(parameters["bytes"])
    if size == 1:
        return [
            Pattern({"experiment": "regions", "regions": n, "bytes": total}, (n, 2 * (total // n)), (n, total // n), [(0, 0)])
            for n in parameters["regions"]
        ]  # fmt: skip
    found = []
    for width in parameters["row_bytes"]:
        rows, step = max(1, total // width), width - width // 8
        found.append(
            Pattern(
                {"experiment": f"row of {runner_size(width)}", "regions": rows, "bytes": size * rows * width},
                (rows, (size - 1) * step + width),
                (rows, width),
                [(0, rank * step) for rank in range(size)],
            )
        )
    side = round(size**0.5)
    for element in parameters["element_bytes"] if side * side == size else []:
        n = max(2, round((total / element) ** 0.5))
        step = n - max(1, n // 8)
        found.append(
            Pattern(
                {"experiment": f"square of {runner_size(element)}", "regions": n, "bytes": size * n * n * element},
                ((side - 1) * step + n, ((side - 1) * step + n) * element),
                (n, n * element),
                [(rank // side * step, rank % side * step * element) for rank in range(size)],
            )
        )
    return found


def runner_size(count: int) -> str:
    return f"{count >> 20} MiB" if count >= 1 << 20 else f"{count >> 10} KiB"


def measure(program: str, parameters: dict[str, Any]) -> Measured:
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    rows: Measured = []
    for pattern in patterns(world.size, parameters):
        for sync in parameters["sync"]:
            setting = {**pattern.setting, "sync": sync}
            with _folder(world, parameters) as folder:
                target: Any
                if program in STORES:
                    target = STORES[program](world, _store_url(folder, parameters), pattern, sync == "yes")
                else:
                    target = TARGETS[program](world, folder, pattern, sync == "yes")
                waits = parameters["waiting"] if world.size > 1 else ["asleep"]
                for access, waiting, seconds in _times(world, target, pattern, waits, parameters["budget_s"]):
                    rows.append(({**setting, "access": access, "waiting": waiting}, seconds))
                target.close()
    if world.size > 1 and program == "penstock":
        with _folder(world, parameters) as folder:
            place = _store_url(folder, parameters)
            rows += store_readers.penstock(world, place, int(parameters["bytes"]), CLOCKS["asleep"])
    if world.size == 1 and program in ("penstock", "plain"):
        with _folder(world, parameters) as folder:
            if program == "penstock":
                rows += store_snapshots.penstock(_store_url(folder, parameters), parameters)
            else:
                rows += store_snapshots.plain(folder, parameters)
    return rows


@contextlib.contextmanager
def _folder(world: Any, parameters: dict[str, Any]) -> Iterator[Path]:
    """Collective: a new folder that all ranks see, removed at the end."""
    made = None
    if world.rank == 0:
        made = tempfile.mkdtemp(prefix="penstock-bench-store-", dir=parameters["directory"] or None)
    folder = Path(world.bcast(made))
    try:
        yield folder
    finally:
        world.Barrier()
        if world.rank == 0:
            shutil.rmtree(folder, ignore_errors=True)


def _store_url(folder: Path, parameters: dict[str, Any]) -> str:
    """Of a new store; with the option `store` outside of the folder."""
    return f"{parameters['store']}/{folder.name}" if parameters["store"] else f"file://{folder}/store"


def _times(
    world: Any, target: Any, pattern: Pattern, waits: list[str], budget_s: float
) -> list[tuple[str, str, list[float]]]:
    """Medians. Filling buffers, cleaning up and verifying are not timed. The ways of waiting take turns."""
    data = store_snapshots.memory(int(np.prod(pattern.tile))).reshape(pattern.tile)
    accesses = {"write": target.write}
    if isinstance(target, _File):
        accesses["iwrite"] = target.iwrite
    if world.size == 1:
        accesses["read"] = target.read
    samples: dict[tuple[str, str], list[float]] = {(name, how): [] for how in waits for name in accesses}
    begin = time.perf_counter()
    turn = 0
    for turn in range(WARM_UP_ROUNDS + MAX_ROUNDS * len(waits)):
        data.fill(_value(world.rank, turn))
        how = waits[turn % len(waits)]
        for name, access in accesses.items():
            seconds = CLOCKS[how](world, lambda: access(data))  # noqa: B023
            if turn < WARM_UP_ROUNDS:
                begin = time.perf_counter()
            else:
                samples[name, how].append(seconds)
        if not (data == _value(world.rank, turn)).all():
            raise AssertionError("what was read back is not what was written")
        rounds = (turn + 1 - WARM_UP_ROUNDS) // len(waits)
        enough = rounds >= MIN_ROUNDS and time.perf_counter() - begin > budget_s * len(waits)
        if world.bcast(enough or rounds == MAX_ROUNDS):
            break
        target.tidy()
    failure = None
    try:
        target.verify(turn)
    except AssertionError as error:
        failure = str(error)
    _sleeping_barrier(world)
    # If one rank finds an error, the others must not go on and wait for it.
    if failures := [found for found in world.allgather(failure) if found]:
        raise AssertionError(failures[0])
    return [(name, how, [statistics.median(values)]) for (name, how), values in samples.items()]


def _sleeping_barrier(world: Any) -> None:
    """Wait for all ranks, asleep: a barrier that does not poll."""
    arrived = world.Ibarrier()
    while not arrived.Test():
        time.sleep(POLL_S)


def _polling(world: Any, action: Callable[[], None]) -> float:
    """Seconds of the slowest rank, while the others poll as MPI does."""
    from mpi4py import MPI

    _sleeping_barrier(world)
    # Ranks that have slept may share a core while another one is idle. In a barrier that never yields they separate, in
    # Penstock's they do not, so whose barrier it is would decide the time.
    settled = time.monotonic() + SETTLE_S
    while time.monotonic() < settled:
        pass
    world.Barrier()
    begin = time.perf_counter()
    action()
    return world.allreduce(time.perf_counter() - begin, MPI.MAX)


def _asleep(world: Any, action: Callable[[], None]) -> float:
    """Seconds from the common start until the last rank is done; on several hosts, of the slowest rank."""
    from mpi4py import MPI

    _sleeping_barrier(world)
    host = world.Split_type(MPI.COMM_TYPE_SHARED)
    if 1 < host.size == world.size:  # all ranks share one clock
        begin = world.bcast(time.monotonic() + SETTLE_S)
    else:
        world.Barrier()
        begin = time.monotonic()
    host.Free()
    time.sleep(max(0.0, begin - time.monotonic()))
    action()
    end = time.monotonic()
    _sleeping_barrier(world)
    return world.allreduce(end - begin, MPI.MAX)


CLOCKS = {"polling": _polling, "asleep": _asleep}


def _value(rank: int, turn: int) -> int:
    return 1 + rank + 63 * (turn % 4)


def check_matrix(found: np.ndarray, pattern: Pattern, turn: int, gaps: bool = True) -> None:
    """Check that every byte comes from the last turn, that of two overlapping tiles one won everywhere, and `gaps` are 0."""
    expected = np.zeros(pattern.shape, bool)
    for rank in range(len(pattern.starts)):
        expected[pattern.rectangle(rank)] = True
        tile = found[pattern.rectangle(rank)]
        for other in range(rank):
            (rows, columns), (other_rows, other_columns) = pattern.rectangle(rank), pattern.rectangle(other)
            both = found[
                max(rows.start, other_rows.start) : min(rows.stop, other_rows.stop),
                max(columns.start, other_columns.start) : min(columns.stop, other_columns.stop),
            ]
            if (both == _value(rank, turn)).any() and (both == _value(other, turn)).any():
                raise AssertionError(f"the writes of ranks {other} and {rank} are mixed")
        # Much faster than np.unique, which sorts.
        values = np.flatnonzero(np.bincount(tile.reshape(-1), minlength=256))
        if not np.isin(values, [_value(r, turn) for r in range(len(pattern.starts))]).all():
            raise AssertionError(f"in the tile of rank {rank} there is data of an earlier write, or none")
    if gaps and found[~expected].any():
        raise AssertionError("something was written between the tiles")


class _File:
    """A file with MPI's interface: MPI's own in atomic mode, or Penstock's."""

    zeros_in_gaps = True

    def __init__(self, world: Any, pattern: Pattern, file: Any) -> None:
        from mpi4py import MPI

        self._world, self._pattern, self._file = world, pattern, file
        self._whole = MPI.BYTE
        view = MPI.BYTE.Create_subarray(pattern.shape, pattern.tile, pattern.starts[world.rank])
        view.Commit()
        file.Set_view(0, MPI.BYTE, view)

    def write(self, data: np.ndarray) -> None:
        self._file.Write_at(0, data)
        self._end_write()

    def iwrite(self, data: np.ndarray) -> None:
        self._file.Iwrite_at(0, data).Wait()
        self._end_write()

    def _end_write(self) -> None:
        return

    def read(self, data: np.ndarray) -> None:
        self._file.Read_at(0, data)

    def tidy(self) -> None:
        return

    def verify(self, turn: int) -> None:
        from mpi4py import MPI

        self._file.Sync()
        self._file.Set_view(0, MPI.BYTE, MPI.BYTE)
        if self._world.rank == 0:
            # A view ends with its last tile, so bytes behind it may not exist.
            found = np.zeros(self._pattern.shape, np.uint8)
            self._file.Read_at(0, found.reshape(-1)[: min(found.size, self._file.Get_size())])
            check_matrix(found, self._pattern, turn, self.zeros_in_gaps)

    def close(self) -> None:
        self._file.Close()


class _Atomic(_File):
    zeros_in_gaps = False  # MPI leaves unwritten bytes undefined; ROMIO writes old contents of its buffer there

    def __init__(self, world: Any, folder: Path, pattern: Pattern, sync: bool) -> None:
        from mpi4py import MPI

        file = MPI.File.Open(world, str(folder / "file"), MPI.MODE_CREATE | MPI.MODE_RDWR)
        file.Set_atomicity(True)
        self._sync, self._path = sync, str(folder / "file")
        super().__init__(world, pattern, file)

    def _end_write(self) -> None:
        if self._sync:
            self._file.Sync()


class _Penstock(_File):
    def __init__(self, world: Any, url: str, pattern: Pattern, sync: bool) -> None:
        self._url, self._sync = url, sync
        super().__init__(world, pattern, self._open(world, f"{url}/field"))

    def _open(self, world: Any, url: str) -> Any:
        from mpi4py import MPI

        from penstock.file import File

        info = {"penstock_durable": "true" if self._sync else "false"}
        return File.Open(world, url, MPI.MODE_CREATE | MPI.MODE_RDWR, info)

    def tidy(self) -> None:
        """Remove earlier versions, since a disk is finite."""
        from penstock.store import Store

        if self._world.rank == 0:
            Store(self._url, create=False, durable=False).gc(keep_last=1)
        _sleeping_barrier(self._world)

    def close(self) -> None:
        from penstock.store import Store

        super().close()
        if self._world.rank == 0:
            Store(self._url, create=False).remove("field")


class _Preloaded(_Penstock):
    """MPI's file in atomic mode, which the preload library keeps in a store."""

    def _open(self, world: Any, url: str) -> Any:
        from mpi4py import MPI

        file = MPI.File.Open(world, f"penstock:{url}", MPI.MODE_CREATE | MPI.MODE_RDWR)
        file.Set_atomicity(True)
        return file

    def _end_write(self) -> None:
        if self._sync:
            self._file.Sync()


class _Plain:
    """A file per process, seen by no other process: the upper limit of the file system."""

    def __init__(self, world: Any, folder: Path, pattern: Pattern, sync: bool) -> None:
        self._world, self._folder, self._sync, self._pattern = world, folder, sync, pattern
        self._number = 0

    @property
    def _path(self) -> str:
        return str(self._folder / f"{self._world.rank}-{self._number}")

    def write(self, data: np.ndarray) -> None:
        self._number += 1
        self._put(data, os.O_CREAT | os.O_EXCL)

    def _put(self, data: np.ndarray, how: int) -> None:
        rest = data.data.cast("B")
        file = os.open(self._path, os.O_WRONLY | how, 0o644)
        while rest:
            rest = rest[os.write(file, rest) :]
        if self._sync:
            os.fsync(file)
        os.close(file)

    def read(self, data: np.ndarray) -> None:
        with open(self._path, "rb", buffering=0) as file:
            file.readinto(data.data.cast("B"))

    def tidy(self) -> None:
        """Keep the last file while the next is written, as Penstock does: recently used memory is fast."""
        if self._number > 1:
            os.unlink(self._folder / f"{self._world.rank}-{self._number - 1}")

    def verify(self, turn: int) -> None:
        found = np.fromfile(self._path, np.uint8)
        if found.size != np.prod(self._pattern.tile) or not (found == _value(self._world.rank, turn)).all():
            raise AssertionError("the plain file holds something else")

    def close(self) -> None:
        return


class _Overwritten(_Plain):
    def write(self, data: np.ndarray) -> None:
        self._put(data, os.O_CREAT)

    def tidy(self) -> None:
        return


#: Those whose bytes are in a store.
STORES: dict[str, type[_Penstock]] = {"penstock": _Penstock, "preloaded": _Preloaded}
TARGETS = {"atomic": _Atomic, "plain": _Plain, "overwritten": _Overwritten}


def summarize(report: Report) -> list[str]:
    """Ratios between rows, one per line."""
    return store_snapshots.summary(report)


def table(report: Report) -> str:
    """Settings down; MB/s of all ranks across, then the relative speed of Penstock."""
    settings = [key for key in report.rows[0].setting if key != "bytes"]
    peers = [peer for peer in report.peers if any(peer in row.seconds for row in report.rows)]
    pairs = list(dict.fromkeys(pair for row in report.rows for pair in row.speedup))
    lines = [[*settings, *(f"{peer} MB/s" for peer in peers), *(pair.replace(" : ", " x ") for pair in pairs)]]
    for row in report.rows:
        lines.append(
            [str(row.setting[key]) for key in settings]
            + [f"{row.setting['bytes'] / row.seconds[peer] / 1e6:,.0f}" if peer in row.seconds else "-" for peer in peers]
            + [f"{row.speedup[pair]:.2f}" if pair in row.speedup else "-" for pair in pairs]
        )  # fmt: skip
    return "\n".join([text_table.columns(lines, keys=len(settings)), *report.summary, *runner.left_out(report)])
