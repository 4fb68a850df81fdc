"""One rank of the demo's training run. main.py starts it under mpiexec.

usage: train.py WAY JOB_JSON

WAY is penstock, plain, both (in turn, segment by segment) or calibrate (one rank's compute alone). A run continues from the newest
checkpoint, if there is one. Records for main.py's comparison and checks go into <records>/<way>/.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import sys
import time
from itertools import chain
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # one core per rank; set before NumPy is loaded

import field
import job as jobs
import numpy as np
import penstock as ps
import tier
from clock import Clock
from job import Job
from mpi4py import MPI
from network import Network
from penstock import spmd
from penstock_way import PenstockWay
from plain_way import PlainWay

WAYS = {"penstock": PenstockWay, "plain": PlainWay}
COMPUTE = "compute"


class Run:
    """One way's training run: its own network, field, input and records."""

    def __init__(self, name: str, job: Job) -> None:
        self.name, self.job = name, job
        self.clock = Clock()
        self.way = WAYS[name](job, self.clock)
        self.rank = self.way.rank
        self.origins = np.array([image["label"] for image in job.images])
        self.network = Network(job.image_size, int(self.origins.max()) + 1, seed=1)
        begin = time.monotonic()
        self.first_step = self.step = self.way.restore(self.network)
        self.restore_s = time.monotonic() - begin
        self.field_restored = bool(
            (self.way.field == field.local_part(self.rank, self.way.ranks) + self.first_step).all()
        )
        self.segments: list[dict] = []
        self.records = Path(job.records) / name
        self.records.mkdir(parents=True, exist_ok=True)
        (self.records / f"pid-{self.rank}").write_text(str(os.getpid()))
        self.samples = Lines(self.records / f"samples-{self.rank}.jsonl")
        self.spans = Lines(self.records / f"spans-{self.rank}.jsonl")
        self.losses = Lines(self.records / "loss.jsonl") if self.rank == 0 else None
        self.way.on_write = self._write_begins

    def train(self, steps: int) -> None:
        """Trains one segment. It ends when everything that it started is complete."""
        way, clock = self.way, self.clock
        clock.clear()
        ps.trace.take()  # discard the other way's spans
        moved_before = tier.counts_of_this_process()
        way.comm.Barrier()
        begin_ns = ps.trace.now_ns()
        for _ in range(min(steps, self.job.steps - self.step)):
            self._one_step()
            self.step += 1
            write_spans(self.spans)
        with clock("settle"):
            way.settle()
            way.comm.Barrier()
        end_ns = ps.trace.now_ns()
        write_spans(self.spans)
        moved = [after - before for before, after in zip(moved_before, tier.counts_of_this_process(), strict=True)]
        self.segments.append(
            {"begin_ns": begin_ns, "end_ns": end_ns, "steps_done": self.step, "phases": clock.lengths()}
            | {"tier_read_bytes": moved[0], "tier_written_bytes": moved[1]}
        )

    def _one_step(self) -> None:
        way, clock, network, step = self.way, self.clock, self.network, self.step
        with clock("next batch"):
            batch, ids = way.next_batch()
        totals = np.zeros(2)
        with clock(COMPUTE):
            loss = network.forward(batch, self.origins[ids])
        totals[:] = loss, len(ids)
        for gradient in chain(backward(network, clock), [totals]):
            with clock("sum gradients"):
                way.start_sum(gradient)
        with clock(COMPUTE):
            way.field += 1
        with clock("sum gradients"):
            way.finish_sums()
        way.poll()
        with clock(COMPUTE):
            network.update(totals[1])
        if self.losses:
            self.losses.write([step, totals[0] / totals[1]])
        self.samples.write([step, ids.tolist()])
        if self.job.dumps(step + 1):
            if step + 1 == self.job.kill_step:
                way.wait_saved()
            way.dump(step + 1)
        if self.job.saves(step + 1):
            way.save(step + 1, network)

    def _write_begins(self, step: int) -> None:
        if self.rank == 0:
            path = self.records / f"writing-{step}"
            path.with_suffix(".new").write_text(str(tier.counts_of_this_process()[1]))
            path.with_suffix(".new").rename(path)

    def finish(self) -> None:
        extra = self.way.finish()
        result = {
            "rank": self.rank,
            "first_step": self.first_step,
            "restore_s": self.restore_s,
            "segments": self.segments,
            "skipped": self.way.skipped,
            "field_restored": self.field_restored,
            "checkpoint_bytes": self.network.parameters.nbytes + self.network.momentum.nbytes + field.FILE_BYTES,
            "gradient_bytes": self.network.gradients.nbytes,
            **extra,
        }
        (self.records / f"result-{self.rank}.json").write_text(json.dumps(result))


def main(way: str, job: Job) -> None:
    if way == "calibrate":
        calibrate(job)
        return
    ps.trace.start()
    runs = [Run(name, job) for name in (WAYS if way == "both" else [way])]
    length = job.segment_steps or job.steps
    for number in range(-(-(job.steps - runs[0].first_step) // length)):
        # In turn; each way goes first equally often.
        for run in runs if number % 2 == 0 else reversed(runs):
            run.train(length)
    if job.kill_step:
        signal.pause()  # wait for the kill
    for run in runs:
        run.finish()


def calibrate(job: Job) -> None:
    """Measures the computation of a step while all ranks compute and nothing is waited for."""
    comm = MPI.COMM_WORLD
    origins = np.array([image["label"] for image in job.images])
    network = Network(job.image_size, int(origins.max()) + 1, seed=1)
    share = -(-job.batch // comm.size)
    batch = np.random.default_rng(1).integers(0, 256, (share, job.image_size, job.image_size, 3), np.uint8)
    part = field.local_part(comm.rank, comm.size)
    seconds = []
    for _ in range(6):
        comm.Barrier()
        begin = time.monotonic()
        network.forward(batch, origins[:share])
        for _ in network.backward():
            pass
        network.update(job.batch)
        part += 1
        seconds.append(time.monotonic() - begin)
    slowest = max(comm.allgather(statistics.median(seconds[1:])))
    if comm.rank == 0:
        parameter_bytes = network.parameters.nbytes
        found = {
            "batch": job.batch,
            "compute_s": slowest,
            "gradient_bytes": parameter_bytes,
            "checkpoint_bytes": 2 * parameter_bytes + field.FILE_BYTES,
        }
        (Path(job.records) / "calibration.json").write_text(json.dumps(found))


def backward(network, clock):
    """The gradients layer by layer, last layer first. The clock runs only while they are computed."""
    layers = network.backward()
    while True:
        with clock(COMPUTE):
            gradient = next(layers, None)
        if gradient is None:
            return
        yield gradient


class Lines:
    """A file of JSON lines. Each line survives the process, however it ends."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)

    def write(self, *rows: list) -> None:
        os.write(self._descriptor, "".join(json.dumps(row) + "\n" for row in rows).encode())


def write_spans(spans: Lines) -> None:
    spans.write(*([event.name, event.lane, event.begin_ns, event.end_ns, event.thread] for event in ps.trace.take()))


if __name__ == "__main__":
    with spmd.program("demo"):  # a failed rank must not leave the others waiting
        main(sys.argv[1], jobs.read(sys.argv[2]))
