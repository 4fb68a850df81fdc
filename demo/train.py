"""One rank of the demo's training run; main.py starts it under mpiexec.

usage: train.py WAY DIRECTORY IMAGES_JSON STEPS

WAY is penstock or plain. The run goes on from the newest checkpoint in DIRECTORY where there is one. Everything that main.py
needs to compare and to verify goes into DIRECTORY/run-<first step>/.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # a rank is one core; set before NumPy is loaded

import field
import numpy as np
import penstock as ps
from clock import Clock
from network import Network
from penstock_way import PenstockWay
from plain_way import PlainWay

BATCH = 64
IMAGE_SIZE = 64
DUMP_EVERY = 8
SAVE_EVERY = 12
WAYS = {"penstock": PenstockWay, "plain": PlainWay}


def main(way_name: str, directory: Path, images_json: Path, steps: int) -> None:
    images = json.loads(images_json.read_text())
    origins = np.array([image["label"] for image in images])
    clock = Clock()
    way = WAYS[way_name](directory, [Path(image["path"]) for image in images], BATCH, IMAGE_SIZE, clock)
    network = Network(IMAGE_SIZE, int(origins.max()) + 1, seed=1)
    first_step = way.restore(network)
    field_restored = bool((way.field == field.local_part(way.rank, way.ranks) + first_step).all())

    records = Path(directory) / f"run-{first_step:04d}"
    records.mkdir(parents=True, exist_ok=True)
    (records / f"pid-{way.rank}").write_text(str(os.getpid()))
    samples = Lines(records / f"samples-{way.rank}.jsonl")
    spans = Lines(records / f"spans-{way.rank}.jsonl")
    losses = Lines(records / "loss.jsonl") if way.rank == 0 else None

    ps.trace.start()
    way.comm.Barrier()
    begin = time.monotonic()
    clock.seconds.clear()
    for step in range(first_step, steps):
        with clock("next batch"):
            batch, ids = way.next_batch()
        totals = np.zeros(2)
        with clock("compute"):
            loss = network.forward(batch, origins[ids])
        for gradient in backward(network, clock):
            way.start_sum(gradient)
        totals[:] = loss, len(ids)
        way.start_sum(totals)
        with clock("compute"):
            way.field += 1
        with clock("sum gradients"):
            way.finish_sums()
        way.poll()
        with clock("compute"):
            network.update(totals[1])
        if losses:
            losses.write([step, totals[0] / totals[1]])
        samples.write([step, ids.tolist()])
        if (step + 1) % DUMP_EVERY == 0:
            way.dump(step + 1)
        if (step + 1) % SAVE_EVERY == 0:
            way.save(step + 1, network)
        write_spans(spans)
    extra = way.finish()
    way.comm.Barrier()
    total_s = time.monotonic() - begin
    ps.trace.stop()
    write_spans(spans)
    if way.rank == 0:
        np.save(records / "parameters.npy", network.parameters)
    result = {
        "rank": way.rank,
        "first_step": first_step,
        "total_s": total_s,
        "phases": clock.seconds,
        "skipped": way.skipped,
        "checkpoint_stalls_s": way.checkpoint_stalls,
        "field_restored": field_restored,
        **extra,
    }
    (records / f"result-{way.rank}.json").write_text(json.dumps(result))


def backward(network, clock):
    """The gradients layer by layer, last layer first, with the clock running only while they are computed."""
    layers = network.backward()
    while True:
        with clock("compute"):
            gradient = next(layers, None)
        if gradient is None:
            return
        yield gradient


class Lines:
    """A file of JSON lines; what was written survives the process, however it ends."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)

    def write(self, *rows: list) -> None:
        os.write(self._descriptor, "".join(json.dumps(row) + "\n" for row in rows).encode())


def write_spans(spans: Lines) -> None:
    spans.write(*([event.name, event.lane, event.begin_ns, event.end_ns, event.thread] for event in ps.trace.take()))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
