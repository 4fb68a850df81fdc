"""The demo's work with Penstock: the next batch, the sums of the gradients, the redistribution of the field, its dump and the
checkpoint all proceed while the network computes."""

from __future__ import annotations

from collections.abc import Callable

import field
import numpy as np
import penstock as ps
from clock import Clock
from job import Job
from layouts import layouts_of
from mpi4py import MPI


class PenstockWay:
    def __init__(self, job: Job, clock: Clock) -> None:
        # One communication core per rank, even if no core is spare: its thread sleeps while nothing is in flight.
        ranks_of_node = MPI.COMM_WORLD.Split_type(MPI.COMM_TYPE_SHARED).size
        self.comm = ps.Comm(MPI.COMM_WORLD, progress_cores=ranks_of_node)
        self.rank, self.ranks = self.comm.rank, self.comm.size
        self.clock = clock
        self.on_write: Callable[[int], None] = lambda step: None
        self._dataset = (
            job.samples()
            .decode_jpeg(size=(job.image_size, job.image_size), num_parallel_calls=job.io_threads)
            .ignore_errors()
            .batch(job.batch)
            .prefetch(job.prefetch)
            .shard(self.comm)
            .repeat()
        )
        self._sums: list = []

        self._layout, tiles = layouts_of(self.ranks)
        self.field = field.local_part(self.rank, self.ranks)
        self._to_tiles = self.comm.plan_redistribute(self._layout, tiles, np.float32, op="T", relabel=True)
        self._rank_of_tile = list(self._to_tiles.permutation)
        self._position = self._rank_of_tile.index(self.rank)
        self._tile = np.empty(self._to_tiles.target.local_shape(self.rank), np.float32)
        self._edges = np.empty((self.ranks, *field.edges(self._tile).shape), np.float32)
        self._snapshot = np.empty_like(self.field)  # redistributed while the field already changes
        self._moving = self._exchanging = self._writing = None
        self._dumped_step = 0

        self._file = ps.File.Open(self.comm, f"{job.store_url}/{job.blob}", MPI.MODE_RDWR | MPI.MODE_CREATE)
        self._file.Set_atomicity(True)
        first, last = field.with_halo(field.tile_splits(self.ranks), self._position)
        tile_type = MPI.FLOAT.Create_subarray([field.WIDTH, field.HEIGHT], [field.WIDTH, last - first], [0, first])
        self._file.Set_view(0, MPI.FLOAT, tile_type.Commit())

        self._checkpoints = ps.Checkpointer(
            f"file://{job.slow}/checkpoints", burst_buffer=f"file://{job.fast}/checkpoints", keep=2, comm=self.comm
        )
        self._saved = None

    @property
    def skipped(self) -> int:
        return len(self._dataset.skipped)

    def restore(self, network) -> int:
        """The step to continue with; 0 without a checkpoint. Weights, field and loader position are resharded."""
        step = 0
        if self._checkpoints.latest is not None:
            step, tree = self._checkpoints.restore({"field": self._layout}, dataset=self._dataset)
            network.parameters[:] = tree["parameters"]
            network.momentum[:] = tree["momentum"]
            self.field[:] = tree["field"].local.reshape(self.field.shape)
        self._batches = iter(self._dataset)
        return step

    def next_batch(self) -> tuple[np.ndarray, np.ndarray]:
        return next(self._batches)

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
            self._dumped_step = step

    def poll(self) -> None:
        """Starts the next stage of the dump. Called once per step, so all ranks do it in the same step."""
        if self._exchanging is not None:
            with self.clock("redistribute"):
                self._exchanging.Wait()
                self._exchanging = None
                haloed = field.with_edges(self._tile, self._position, self._edges[self._rank_of_tile])
            with self.clock("write tiles"):
                self._finish_writing()
                self._writing = self._file.Iwrite_at_all(0, haloed)
            self.on_write(self._dumped_step)
        if self._moving is not None:
            with self.clock("redistribute"):
                self._moving.Wait()
                self._moving = None
                self._exchanging = self.comm.Iallgather(field.edges(self._tile), self._edges)

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

    def wait_saved(self) -> None:
        """Waits until the last checkpoint is drained."""
        if self._saved is not None:
            self._saved.wait("drained")

    def settle(self) -> None:
        """Waits until everything started is in place: the dump in the file, the checkpoint in the slow tier."""
        while self._moving is not None or self._exchanging is not None:
            self.poll()
        self._finish_writing()
        if self._saved is not None:
            self._saved.wait("drained")

    def finish(self) -> dict:
        self._file.Close()
        return {
            "bytes_before_relabeling": self._to_tiles.bytes_before,
            "bytes_redistributed": self._to_tiles.bytes_after,
            "progress_cores": self.comm.report(),
        }

    def _finish_writing(self) -> None:
        if self._writing is not None:
            self._writing.Wait()
            self._writing = None
