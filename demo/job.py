"""What main.py tells the processes of a run: written as JSON, read by every rank."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import penstock as ps


@dataclass
class Job:
    records: str  # folder for what this start of the run did
    slow: str  # folder in the slow tier; a restart uses the same one
    fast: str  # folder of the burst buffer
    images_json: str
    steps: int
    batch: int
    segment_steps: int = 0  # each way runs so many in turn; 0: all of them at once
    # The steps after which there is a dump and a checkpoint, as (first, every).
    dump_steps: tuple[int, int] = (2, 6)
    save_steps: tuple[int, int] = (5, 12)
    kill_step: int = 0  # the dump whose writing the run is killed in; 0: it ends by itself
    image_size: int = 64
    io_threads: int = 2  # per rank, both ways
    prefetch: int = 3  # batches, both ways
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
        """The images in their order. Both ways read them in the same one, so that their losses can be compared."""
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
