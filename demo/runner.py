"""Starts the demo's jobs under mpiexec, follows them, and kills those with a kill_step."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click
import field
from job import Job
from nodes import EmulatedNodes
from tier import SlowTier

HERE = Path(__file__).parent
STUCK_S = 300  # a job fails if it does not finish a step in this time


@dataclass
class Records:
    """The records of one way in one finished or killed job."""

    path: Path
    results: list[dict]
    killed: bool = False

    def losses(self) -> dict[int, float]:
        return dict(map(json.loads, _whole_lines(self.path / "loss.jsonl")))

    def samples(self) -> dict[int, list[int]]:
        """Step → the samples of all ranks, sorted."""
        steps: dict[int, list[int]] = {}
        for path in self.path.glob("samples-*.jsonl"):
            for step, ids in map(json.loads, _whole_lines(path)):
                steps.setdefault(step, []).extend(ids)
        return {step: sorted(ids) for step, ids in steps.items()}

    def spans(self) -> dict[int, list[tuple[str, str, int, int]]]:
        """Rank → [(name, lane, begin, end)], in nanoseconds."""
        return {
            int(path.stem.split("-")[1]): [tuple(json.loads(line)[:4]) for line in _whole_lines(path)]
            for path in sorted(self.path.glob("spans-*.jsonl"))
        }

    @property
    def first_step(self) -> int:
        return self.results[0]["first_step"]


def _whole_lines(path: Path) -> list[str]:
    """Complete lines only: a killed process may have torn its last line."""
    text = path.read_text() if path.exists() else ""
    return text[: text.rfind("\n") + 1].splitlines()


class Runner:
    def __init__(self, directory: Path, images_json: Path, tier: SlowTier, nodes: EmulatedNodes) -> None:
        self.directory, self.images_json, self.tier, self.nodes = directory, images_json, tier, nodes
        self._starts = 0

    def job(self, name: str, **options: object) -> Job:
        """A job. Jobs with the same name share checkpoints and files."""
        self._starts += 1
        folders = {
            "records": self.directory / f"{self._starts}-{name}",
            "slow": self.tier.folder / name,
            "fast": self.directory / "fast" / name,
        }
        for folder in folders.values():
            folder.mkdir(parents=True, exist_ok=True)
        return Job(images_json=str(self.images_json), **{k: str(v) for k, v in folders.items()}, **options)

    def run(
        self,
        way: str,
        job: Job,
        ranks: int,
        on_nodes: bool = False,
        progress: Callable[[int], None] = lambda steps: None,
    ) -> dict[str, Records]:
        """Runs train.py. Returns the records of each way. A job with a kill_step is killed when a third of that dump is written."""
        records = Path(job.records)
        launcher = self.nodes.launcher(ranks) if on_nodes else ["mpiexec", "-n", str(ranks)]
        command = [*launcher, sys.executable, str(HERE / "train.py"), way, str(job.write(records / "job.json"))]
        environment = {**(self.nodes.environment if on_nodes else os.environ), **self.tier.environment}
        output = records / "output.txt"
        with open(output, "wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment)
        killed = False
        try:
            killed = self._follow(process, job, records, progress)
        finally:
            if process.poll() is None:
                kill_ranks(records)
                process.terminate()
                process.wait()
        if killed != bool(job.kill_step) or (process.returncode != 0 and not killed):
            tail = output.read_text(errors="replace")[-3000:]
            raise click.ClickException(f"the {way} run on {ranks} ranks failed ({process.returncode}):\n{tail}")
        found = {}
        for path in sorted(p.parent for p in records.glob("*/pid-0")):
            results = [json.loads(p.read_text()) for p in sorted(path.glob("result-*.json"))]
            found[path.name] = Records(path, results, killed)
        return found

    def _follow(self, process: subprocess.Popen, job: Job, records: Path, progress: Callable[[int], None]) -> bool:
        """Waits until the job has ended. Returns whether it was killed here."""
        steps, last_progress = -1, time.monotonic()
        while process.poll() is None:
            time.sleep(0.005 if job.kill_step else 0.05)
            if job.kill_step and self._is_third_written(next(records.glob(f"*/writing-{job.kill_step}"), None)):
                kill_ranks(records)
                process.wait()
                return True
            now = sum(path.read_bytes().count(b"\n") for path in records.glob("*/loss.jsonl"))
            if now != steps:
                steps, last_progress = now, time.monotonic()
                progress(steps)
            elif time.monotonic() - last_progress > STUCK_S:
                raise click.ClickException(f"no step was done in {STUCK_S} s; see {records / 'output.txt'}")
        return False

    def _is_third_written(self, begun: Path | None) -> bool:
        if begun is None:
            return False
        counted_by_tier = bool(self.tier.environment)
        return not counted_by_tier or self.tier.counts()[1] - int(begun.read_text()) >= field.FILE_BYTES // 3


def kill_ranks(records: Path) -> None:
    for path in records.glob("*/pid-*"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(path.read_text()), signal.SIGKILL)


class SnapshotReader:
    """Runs reader.py beside a job. result() stops it."""

    def __init__(self, way: str, job: Job) -> None:
        records = Path(job.records)
        self._stop, self._result = records / f"{way}-reader-stop", records / f"{way}-reader.json"
        place = [job.store_url, job.blob] if way == "penstock" else [str(job.plain_file), "-"]
        command = [sys.executable, str(HERE / "reader.py"), way, *place, str(self._stop), str(self._result)]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL)

    def result(self) -> dict:
        self._stop.touch()
        if self._process.wait(timeout=STUCK_S) != 0:
            raise click.ClickException(
                f"the reader of the snapshots ended with status {self._process.returncode}; its output is above"
            )
        return json.loads(self._result.read_text())

    def __enter__(self) -> SnapshotReader:
        return self

    def __exit__(self, *error: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
