"""The demo's work as it is usually done: one thread that reads ahead, blocking mpi4py collectives, MPI-IO in atomic
mode, checkpoints that rank 0 writes while everybody waits."""

from __future__ import annotations

import io
import os
import queue
import threading
from itertools import pairwise
from pathlib import Path

import field
import numpy as np
from clock import Clock
from mpi4py import MPI
from PIL import Image


class PlainWay:
    def __init__(self, directory: Path, images: list[Path], batch: int, size: int, clock: Clock) -> None:
        self.comm = MPI.COMM_WORLD
        self.rank, self.ranks = self.comm.rank, self.comm.size
        self.directory, self.clock = directory, clock
        self.skipped = 0
        self.checkpoint_stalls: list[float] = []
        self._input = _Reader(images, batch, size, self.rank, self.ranks)
        self._pending: list[np.ndarray] = []

        grid = field.grid_of(self.ranks)
        self._rows = [
            field.block_cyclic_indices(field.HEIGHT, field.BLOCK, grid[0], r // grid[1]) for r in range(self.ranks)
        ]
        self._columns = [
            field.block_cyclic_indices(field.WIDTH, field.BLOCK, grid[1], r % grid[1]) for r in range(self.ranks)
        ]
        self.field = field.local_part(self.rank, self.ranks)
        self._splits = field.tile_splits(self.ranks)
        self._open_file()

    def restore(self, network) -> int:
        return 0

    def next_batch(self) -> tuple[np.ndarray, np.ndarray]:
        images, ids, self.skipped = self._input.next()
        return images, ids

    def start_sum(self, array: np.ndarray) -> None:
        self._pending.append(array)

    def finish_sums(self) -> None:
        for array in self._pending:
            self.comm.Allreduce(MPI.IN_PLACE, array)
        self._pending.clear()

    def dump(self, step: int) -> None:
        with self.clock("redistribute"):
            tile = self._transposed_tile()
            haloed = field.with_neighbours(self.comm, tile, self.rank)
        with self.clock("write tiles"):
            self._file.Write_at_all(0, haloed)

    def poll(self) -> None:
        pass

    def save(self, step: int, network) -> None:
        with self.clock("checkpoint"):
            parts = self.comm.gather(self.field, root=0)
            if self.rank == 0:
                path = self.directory / f"step-{step}.npz"
                with open(path, "wb") as file:
                    arrays = {f"field{r}": part for r, part in enumerate(parts)}
                    np.savez(file, parameters=network.parameters, momentum=network.momentum, step=step, **arrays)
                    file.flush()
                    os.fsync(file.fileno())
                for old in sorted(self.directory.glob("step-*.npz"), key=lambda p: p.stat().st_mtime)[:-2]:
                    old.unlink()
            self.comm.Barrier()

    def finish(self) -> dict:
        self._input.stop()
        self._file.Close()
        return {}

    def _open_file(self) -> None:
        path = str(self.directory / "field.bin")
        self._file = MPI.File.Open(self.comm, path, MPI.MODE_RDWR | MPI.MODE_CREATE)
        self._file.Set_size(field.FILE_BYTES)
        self._file.Set_atomicity(True)
        first, last = field.with_halo(self._splits, self.rank)
        self._tile_type = MPI.FLOAT.Create_subarray(
            [field.WIDTH, field.HEIGHT], [field.WIDTH, last - first], [0, first]
        ).Commit()
        self._file.Set_view(0, MPI.FLOAT, self._tile_type)

    def _transposed_tile(self) -> np.ndarray:
        """This rank's strip of columns of the transposed field, by one Alltoallv of packed rows."""
        rows = self._rows[self.rank]
        pieces = [self.field[(rows >= a) & (rows < b)] for a, b in pairwise(self._splits)]
        first, last = self._splits[self.rank], self._splits[self.rank + 1]
        mine = [r[(r >= first) & (r < last)] for r in self._rows]
        counts = [len(m) * len(c) for m, c in zip(mine, self._columns, strict=True)]
        received = np.empty(sum(counts), np.float32)
        sent = np.concatenate([p.ravel() for p in pieces])
        self.comm.Alltoallv([sent, [p.size for p in pieces]], [received, counts])
        tile = np.empty((field.WIDTH, last - first), np.float32)
        offset = 0
        for indices, columns, count in zip(mine, self._columns, counts, strict=True):
            piece = received[offset : offset + count].reshape(len(indices), len(columns))
            tile[np.ix_(columns, indices - first)] = piece.T
            offset += count
        return tile


class _Reader:
    """Reads, decodes and batches ahead in one thread; corrupt images are left out."""

    def __init__(self, images: list[Path], batch: int, size: int, rank: int, ranks: int) -> None:
        self._images, self._batch, self._size, self._rank, self._ranks = images, batch, size, rank, ranks
        self._queue: queue.Queue = queue.Queue(maxsize=2)
        self._stopping = False
        threading.Thread(target=self._run, daemon=True).start()

    def next(self) -> tuple[np.ndarray, np.ndarray, int]:
        return self._queue.get()

    def stop(self) -> None:
        self._stopping = True

    def _run(self) -> None:
        epoch = skipped = 0
        while not self._stopping:
            order = np.random.default_rng((7, epoch)).permutation(len(self._images))
            for start in range(0, len(order), self._batch):
                whole = order[start : start + self._batch]
                part = whole[len(whole) * self._rank // self._ranks : len(whole) * (self._rank + 1) // self._ranks]
                images, ids = [], []
                for index in part:
                    try:
                        images.append(self._decode(self._images[index]))
                        ids.append(index)
                    except (OSError, SyntaxError):
                        skipped += 1
                stacked = np.stack(images) if images else np.empty((0, self._size, self._size, 3), np.uint8)
                self._queue.put((stacked, np.array(ids, np.int64), skipped))
            epoch += 1

    def _decode(self, path: Path) -> np.ndarray:
        with Image.open(io.BytesIO(path.read_bytes())) as image:
            image.draft("RGB", (self._size, self._size))
            return np.asarray(image.convert("RGB").resize((self._size, self._size), Image.Resampling.BILINEAR))
