"""The demo's work as it is usually done, with care: threads that read ahead, MPI's non-blocking sums of the gradients, MPI-IO in
atomic mode, and checkpoints that rank 0 writes under another name and then renames, while all ranks wait."""

from __future__ import annotations

import collections
import io
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import field
import numpy as np
from clock import Clock
from job import Job
from mpi4py import MPI
from PIL import Image


class PlainWay:
    def __init__(self, job: Job, clock: Clock) -> None:
        self.comm = MPI.COMM_WORLD.Dup()
        self.rank, self.ranks = self.comm.rank, self.comm.size
        self.job, self.clock = job, clock
        self.on_write: Callable[[int], None] = lambda step: None
        self._input = _Reader(job, self.rank, self.ranks)
        self._sums: list[MPI.Request] = []
        self._indices = [field.indices_of(r, self.ranks) for r in range(self.ranks)]
        self.field = field.local_part(self.rank, self.ranks)
        self._splits = field.tile_splits(self.ranks)
        self._sent_bytes = 0
        self._checkpoints = Path(job.slow) / "plain"
        self._checkpoints.mkdir(parents=True, exist_ok=True)
        self._open_file()

    @property
    def skipped(self) -> int:
        return self._input.skipped

    def restore(self, network) -> int:
        """Rank 0 reads the newest checkpoint and sends it to all ranks. Each takes its part of the field."""
        newest = max(self._checkpoints.glob("step-*.npz"), default=None, key=_step_of) if self.rank == 0 else None
        whole = np.empty((field.HEIGHT, field.WIDTH), np.float32)
        step = 0
        if newest is not None:
            with np.load(newest) as saved:
                step, ranks = int(saved["step"]), int(saved["ranks"])
                network.parameters[:], network.momentum[:] = saved["parameters"], saved["momentum"]
                for r in range(ranks):
                    whole[np.ix_(*field.indices_of(r, ranks))] = saved[f"field{r}"]
        step = self.comm.bcast(step, root=0)
        if step:
            for array in (network.parameters, network.momentum, whole):
                self.comm.Bcast(array, root=0)
            self.field[:] = whole[np.ix_(*self._indices[self.rank])]
        # The position in the order follows from the step, as long as the batch size stays the same.
        self._input.start(step)
        return step

    def next_batch(self) -> tuple[np.ndarray, np.ndarray]:
        return self._input.next()

    def start_sum(self, array: np.ndarray) -> None:
        self._sums.append(self.comm.Iallreduce(MPI.IN_PLACE, array))

    def finish_sums(self) -> None:
        MPI.Request.Waitall(self._sums)
        self._sums.clear()

    def dump(self, step: int) -> None:
        with self.clock("redistribute"):
            tile = self._transposed_tile()
            edges = np.empty((self.ranks, *field.edges(tile).shape), np.float32)
            self.comm.Allgather(field.edges(tile), edges)
            haloed = field.with_edges(tile, self.rank, edges)
        self.on_write(step)
        with self.clock("write tiles"):
            self._file.Write_at_all(0, haloed)

    def poll(self) -> None:
        pass

    def save(self, step: int, network) -> None:
        with self.clock("checkpoint"):
            parts = self.comm.gather(self.field, root=0)
            if self.rank == 0:
                path = self._checkpoints / f"step-{step}.npz"
                unfinished = path.with_suffix(".unfinished")
                arrays = {f"field{r}": part for r, part in enumerate(parts)}
                arrays |= {"step": step, "ranks": self.ranks}
                with open(unfinished, "wb") as file:
                    np.savez(file, parameters=network.parameters, momentum=network.momentum, **arrays)
                    file.flush()
                    os.fsync(file.fileno())
                unfinished.rename(path)
                for old in sorted(self._checkpoints.glob("step-*.npz"), key=_step_of)[:-2]:
                    old.unlink()
            self.comm.Barrier()

    def wait_saved(self) -> None:
        pass

    def settle(self) -> None:
        """Nothing to wait for: the dump and the checkpoint were complete when their calls returned."""

    def finish(self) -> dict:
        self._input.stop()
        self._file.Close()
        return {"bytes_redistributed": self.comm.allreduce(self._sent_bytes)}

    def _open_file(self) -> None:
        self._file = MPI.File.Open(self.comm, str(self.job.plain_file), MPI.MODE_RDWR | MPI.MODE_CREATE)
        self._file.Set_size(field.FILE_BYTES)
        self._file.Set_atomicity(True)
        first, last = field.with_halo(self._splits, self.rank)
        self._tile_type = MPI.FLOAT.Create_subarray(
            [field.WIDTH, field.HEIGHT], [field.WIDTH, last - first], [0, first]
        ).Commit()
        self._file.Set_view(0, MPI.FLOAT, self._tile_type)

    def _transposed_tile(self) -> np.ndarray:
        """This rank's strip of columns of the transposed field, by one Alltoallv of packed rows."""
        rows, _ = self._indices[self.rank]
        pieces = [self.field[(rows >= a) & (rows < b)] for a, b in pairwise(self._splits)]
        first, last = self._splits[self.rank], self._splits[self.rank + 1]
        mine = [r[(r >= first) & (r < last)] for r, _ in self._indices]
        counts = [len(m) * len(c) for m, (_, c) in zip(mine, self._indices, strict=True)]
        received = np.empty(sum(counts), np.float32)
        sent = np.concatenate([p.ravel() for p in pieces])
        self._sent_bytes = sent.nbytes - pieces[self.rank].nbytes
        self.comm.Alltoallv([sent, [p.size for p in pieces]], [received, counts])
        tile = np.empty((field.WIDTH, last - first), np.float32)
        offset = 0
        for indices, (_, columns), count in zip(mine, self._indices, counts, strict=True):
            piece = received[offset : offset + count].reshape(len(indices), len(columns))
            tile[np.ix_(columns, indices - first)] = piece.T
            offset += count
        return tile


def _step_of(path: Path) -> int:
    return int(path.stem.split("-")[1])


class _Reader:
    """Reads, decodes and batches ahead, with as many threads and batches as the Penstock way. Skips corrupt images.

    Pillow decodes without the GIL. The order is that of the Penstock way, so both see the same samples.
    """

    def __init__(self, job: Job, rank: int, ranks: int) -> None:
        self._order, self._job, self._rank, self._ranks = job.samples().indices, job, rank, ranks
        self._pool = ThreadPoolExecutor(job.io_threads)
        self._ahead: collections.deque[list[tuple[int, Future]]] = collections.deque()
        self.skipped = 0

    def start(self, step: int) -> None:
        self._shares = self._shares_from(step)
        for _ in range(self._job.prefetch):
            self._read_ahead()

    def next(self) -> tuple[np.ndarray, np.ndarray]:
        samples = [(index, image.result()) for index, image in self._ahead.popleft()]
        self._read_ahead()
        kept = [(index, image) for index, image in samples if image is not None]
        self.skipped += len(samples) - len(kept)
        size = self._job.image_size
        images = np.stack([image for _, image in kept]) if kept else np.empty((0, size, size, 3), np.uint8)
        return images, np.array([index for index, _ in kept], np.int64)

    def stop(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    def _read_ahead(self) -> None:
        self._ahead.append([(index, self._pool.submit(self._decode, index)) for index in next(self._shares)])

    def _shares_from(self, step: int) -> Iterator[np.ndarray]:
        """Yields this rank's part of each batch."""
        batch, count = self._job.batch, len(self._job.paths)
        steps_per_epoch = -(-count // batch)
        while True:
            epoch, place = divmod(step, steps_per_epoch)
            whole = self._order(epoch, place * batch, min((place + 1) * batch, count))
            yield whole[len(whole) * self._rank // self._ranks : len(whole) * (self._rank + 1) // self._ranks]
            step += 1

    def _decode(self, index: int) -> np.ndarray | None:
        size = (self._job.image_size, self._job.image_size)
        try:
            with Image.open(io.BytesIO(Path(self._job.paths[index]).read_bytes())) as image:
                image.draft("RGB", size)
                return np.asarray(image.convert("RGB").resize(size, Image.Resampling.BILINEAR))
        except (OSError, SyntaxError):
            return None
