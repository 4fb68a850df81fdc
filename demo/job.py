"""The description of a job, which main.py writes as JSON and every rank reads."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import penstock as ps


@dataclass
class Job:
    records: str  # folder for the records of this start of the run
    slow: str  # folder in the slow tier; a restart uses the same one
    fast: str  # folder of the burst buffer
    images_json: str
    steps: int
    batch: int
    segment_steps: int = 0  # steps that each way runs in turn; 0: all at once
    # The steps with a dump and with a checkpoint, as (first, every).
    dump_steps: tuple[int, int] = (2, 6)
    save_steps: tuple[int, int] = (5, 12)
    kill_step: int = 0  # the run is killed while it writes the dump of this step; 0: it is not killed
    image_size: int = 64
    io_threads: int = 2  # per rank, for both ways
    prefetch: int = 3  # batches, for both ways
    blob: str = "field"

    @property
    def store_url(self) -> str:
        return f"file://{self.slow}/store"

    @property
    def plain_file(self) -> Path:
        return Path(self.slow) / "field.bin"

    @cached_property
    def images(self) -> list[dict]:
        return json.loads(Path(self.images_json).read_text())

    @property
    def paths(self) -> list[str]:
        return [image["path"] for image in self.images]

    def samples(self) -> ps.Dataset:
        """The images in order. Both ways read them in the same order, so that their losses can be compared."""
        return ps.Dataset.from_files(self.paths, range(len(self.paths))).shuffle(seed=7)

    def dumps(self, steps_done: int) -> bool:
        return _is_due(steps_done, *self.dump_steps)

    def saves(self, steps_done: int) -> bool:
        return _is_due(steps_done, *self.save_steps)

    def write(self, path: Path) -> Path:
        path.write_text(json.dumps(asdict(self)))
        return path


def _is_due(steps_done: int, first: int, every: int) -> bool:
    return steps_done >= first and (steps_done - first) % every == 0


def read(path: str) -> Job:
    return Job(**json.loads(Path(path).read_text()))
