"""The checks of the demo. If one fails, the demo ends with an error."""

from __future__ import annotations

from pathlib import Path

import field
import numpy as np
import penstock as ps
from job import Job
from runner import Records


def verify(
    job: Job, killed: Records, restarted: Records, reference: Records, snapshots: dict, left: dict
) -> list[dict]:
    """`job` is the killed job; `reference` ran without a kill; `left` is the result of what_is_left() after the kill."""
    checks = []

    def check(key: str, what: str, ok: bool, detail: str) -> None:
        checks.append({"key": key, "what": what, "ok": bool(ok), "detail": detail})

    first, reached = restarted.first_step, max(killed.losses())
    check(
        "restarted",
        "The run goes on from a checkpoint",
        0 < first <= reached + 1,
        f"killed in step {reached + 1}, went on from step {first}",
    )
    check(
        "snapshots",
        "Every version that the reader saw is one whole time step",
        snapshots["reads"] > 0 and not snapshots["mixed"],
        f"{snapshots['reads']} versions, {snapshots['read_live']} of them read while the run wrote others",
    )
    check(
        "file_after_kill",
        "The kill left a whole time step in the shared file",
        left["step"] is not None,
        f"version {left['version']}, of step {left['step']}",
    )
    before, after, undisturbed = killed.samples(), restarted.samples(), reference.samples()
    joined = {**{s: ids for s, ids in before.items() if s < first}, **after}
    check(
        "samples",
        "No sample was repeated or lost by the restart",
        joined == {s: undisturbed[s] for s in range(job.steps)}
        and all(before[s] == undisturbed[s] for s in before if s < reached),
        f"{sum(map(len, joined.values()))} samples in {len(joined)} steps: step by step those of the run without a kill",
    )
    corrupt = {i for i, image in enumerate(job.images) if image["corrupt"]}
    steps_per_epoch = -(-len(job.images) // job.batch)
    epoch = {**undisturbed, **joined}  # the killed run may end before its first epoch is complete
    seen = [i for s in range(steps_per_epoch) for i in epoch.get(s, [])]
    expected = set(range(len(job.images))) - corrupt
    check(
        "epoch",
        "An epoch is every image once, but the corrupt ones",
        len(seen) == len(set(seen)) and (len(epoch) < steps_per_epoch or set(seen) == expected),
        f"{len(seen)} of {len(job.images)} images in {min(len(epoch), steps_per_epoch)} of {steps_per_epoch} steps; "
        f"{len(corrupt)} corrupt ones are skipped",
    )
    joined_loss = {**killed.losses(), **restarted.losses()}
    error = largest_difference(joined_loss, reference.losses())
    check(
        "loss",
        "The loss goes on where it was",
        error < 2e-2,
        f"largest relative difference from the run without a kill: {error:.1e}",
    )
    again = largest_difference(killed.losses(), restarted.losses())
    check(
        "steps_twice",
        "Steps that were done twice gave the same loss",
        again < 1e-3,
        f"{len(set(killed.losses()) & set(restarted.losses()))} steps, relative difference {again:.1e}",
    )
    check(
        "field",
        "The field came back exactly, on another number of ranks",
        all(r["field_restored"] for r in restarted.results),
        f"{len(restarted.results)} ranks compared every element",
    )
    return checks


def farthest(curve: dict[int, float], other: dict[int, float]) -> float:
    """The largest difference of two curves."""
    return max((abs(curve[s] - other[s]) for s in set(curve) & set(other)), default=0.0)


def largest_difference(curve: dict[int, float], other: dict[int, float]) -> float:
    """The largest relative difference, over the steps that both have."""
    both = set(curve) & set(other)
    return max((abs(curve[s] - other[s]) / max(abs(other[s]), 1e-3) for s in both), default=0.0)


def what_is_left(job: Job) -> dict:
    """The shared field after a kill, with Penstock: the latest version and its step (None if it mixes several steps)."""
    blob = ps.Store(job.store_url).open(job.blob)
    buffer = np.empty(field.FILE_BYTES, np.uint8)
    version = blob.latest
    blob.read([(0, buffer)], version=version)
    return {"version": version, "step": field.step_of(buffer.view(np.float32))}


def what_is_left_plain(path: Path) -> dict:
    """The shared file after a kill, the plain way: the number of bytes from each step."""
    content = np.fromfile(path, np.float32).reshape(field.WIDTH, field.HEIGHT)
    start = field.initial(np.arange(field.WIDTH), np.arange(field.HEIGHT)).T
    steps, counts = np.unique(np.where(content == 0, 0, content - start), return_counts=True)
    return {"bytes_of_step": {int(s): int(c) * content.itemsize for s, c in zip(steps, counts, strict=True)}}
