"""The demo's work with Penstock: the next batch, the sums of the gradients, the redistribution of the field, its dump and
the checkpoint all move while the network computes."""

from __future__ import annotations

from pathlib import Path

import field
import numpy as np
import penstock as ps
from clock import Clock
from mpi4py import MPI


class PenstockWay:
    def __init__(self, directory: Path, images: list[Path], batch: int, size: int, clock: Clock) -> None:
        self.comm = ps.Comm(MPI.COMM_WORLD, progress_cores=MPI.COMM_WORLD.size)  # each rank moves its own part
        self.rank, self.ranks = self.comm.rank, self.comm.size
        self.clock = clock
        self.checkpoint_stalls: list[float] = []
        self._dataset = (
            ps.Dataset.from_files([str(p) for p in images], np.arange(len(images)))
            .shuffle(seed=7)
            .decode_jpeg(size=(size, size))
            .ignore_errors()
            .batch(batch)
            .prefetch(3)
            .shard(self.comm)
        )
        self._sums: list = []
        self._buffers: dict[int, np.ndarray] = {}

        grid = field.grid_of(self.ranks)
        self._layout = ps.Layout.block_cyclic((field.HEIGHT, field.WIDTH), block=(field.BLOCK, field.BLOCK), grid=grid)
        self.field = field.local_part(self.rank, self.ranks)
        tiles = ps.Layout.grid([0, field.WIDTH], field.tile_splits(self.ranks), list(range(self.ranks)))
        self._to_tiles = self.comm.plan_redistribute(self._layout, tiles, np.float32, op="T", relabel=True)
        self._position = list(self._to_tiles.permutation).index(self.rank)
        self._tile = np.empty(self._to_tiles.target.local_shape(self.rank), np.float32)
        self._snapshot = np.empty_like(self.field)  # what is redistributed while the field already changes
        self._moving = None
        self._writing = None

        store = f"file://{directory}/store"
        self._file = ps.File.Open(self.comm, f"{store}/field", MPI.MODE_RDWR | MPI.MODE_CREATE)
        self._file.Set_atomicity(True)
        first, last = field.with_halo(field.tile_splits(self.ranks), self._position)
        tile_type = MPI.FLOAT.Create_subarray([field.WIDTH, field.HEIGHT], [field.WIDTH, last - first], [0, first])
        self._file.Set_view(0, MPI.FLOAT, tile_type.Commit())

        self._checkpoints = ps.Checkpointer(
            f"file://{directory}/slow", burst_buffer=f"file://{directory}/fast", keep=2, comm=self.comm
        )
        self._saved = None

    @property
    def skipped(self) -> int:
        return len(self._dataset.skipped)

    def restore(self, network) -> int:
        """The step to go on with: 0 without a checkpoint. Weights, field and loader position are resharded."""
        if self._checkpoints.latest is None:
            self._batches = iter(self._dataset)
            return 0
        step, tree = self._checkpoints.restore({"field": self._layout}, dataset=self._dataset)
        network.parameters[:] = tree["parameters"]
        network.momentum[:] = tree["momentum"]
        self.field[:] = tree["field"].local.reshape(self.field.shape)
        self._batches = iter(self._dataset)
        return step

    def next_batch(self) -> tuple[np.ndarray, np.ndarray]:
        batch = next(self._batches, None)
        while batch is None:  # the epoch is over
            self._batches = iter(self._dataset)
            batch = next(self._batches, None)
        return batch

    def start_sum(self, array: np.ndarray) -> None:
        self._sums.append(self.comm.Iallreduce(MPI.IN_PLACE, array))

    def finish_sums(self) -> None:
        for request in self._sums:
            request.Wait()
        self._sums.clear()

    def dump(self, step: int) -> None:
        with self.clock("redistribute"):
            self._snapshot[:] = self.field
            self._moving = self._to_tiles.start(self._snapshot, self._tile)

    def poll(self) -> None:
        """Hands the tiles on once they have arrived; called a step after the dump was started."""
        if self._moving is not None:
            with self.clock("redistribute"):
                self._moving.Wait()
                self._moving = None
                haloed = field.with_neighbours(self.comm, self._tile, self._position)
            with self.clock("write tiles"):
                if self._writing is not None:
                    self._writing.Wait()
                self._writing = self._file.Iwrite_at_all(0, haloed)

    def save(self, step: int, network) -> None:
        # A replicated vector is saved as slices, one per rank, so each byte is written once.
        slices = ps.Layout.even((network.parameters.size,), self.ranks)
        first = sum(slices.local_shape(r)[0] for r in range(self.rank))
        mine = slice(first, first + slices.local_shape(self.rank)[0])
        with self.clock("checkpoint"):
            self._saved = self._checkpoints.save(
                step,
                {
                    "parameters": ps.DistArray(slices, network.parameters[mine], self.rank),
                    "momentum": ps.DistArray(slices, network.momentum[mine], self.rank),
                    "field": ps.DistArray(self._layout, self.field, self.rank),
                },
                dataset=self._dataset,
            )
        self.checkpoint_stalls.append(self._saved.stall_s)

    def finish(self) -> dict:
        self.poll()
        with self.clock("write tiles"):
            if self._writing is not None:
                self._writing.Wait()
            self._file.Close()
        with self.clock("checkpoint"):
            if self._saved is not None:
                self._saved.wait("drained")
        return {
            "bytes_before": self._to_tiles.bytes_before,
            "bytes_after": self._to_tiles.bytes_after,
            "report": self.comm.report(),
        }
