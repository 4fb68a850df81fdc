"""The demo: a data-parallel training run that uses all five parts of Penstock, compared with the same work done the plain way.

1. Measures the compute time of a step, and derives from it the rates of the emulated tier and link: waiting is what is compared.
2. Runs both ways in one job, segment by segment in turn. A reader follows the shared field.
3. Runs Penstock on --ranks ranks, kills it with SIGKILL while it writes the shared field, restarts it on --restart-ranks ranks.
4. Does the same kill and restart the plain way.

Then it checks the results, prints a table, and writes a self-contained page.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import statistics
import time
from pathlib import Path

import checks
import click
import field
import images
import measure
import report
import tier
from layouts import relabelings
from measure import Measure
from nodes import EmulatedNodes
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from runner import Runner, SnapshotReader

HERE = Path(__file__).parent
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 2
SEGMENT_STEPS = 12
RESTART_STEPS = 36
KILL_STEP = 26  # the kill hits the dump of this step; the last checkpoint is that of step 17

BATCHES = (16, 32, 64, 128)
CALIBRATION_BATCH = 32
STEP_S = 0.05  # upper limit for the compute of a step, to keep the demo short

# Rates of the emulated tier and link: the plain way's data takes this many times the compute of a step.
CHECKPOINT_IN_STEPS = 3.0
GRADIENTS_IN_STEPS = 0.4


class Demo:
    """The jobs, in sequence. Each adds its results to `found`, which becomes the JSON and the page."""

    def __init__(self, runner: Runner, ranks: int, restart_ranks: int, pairs: int, progress: Progress) -> None:
        self.runner, self.ranks, self.restart_ranks, self.pairs = runner, ranks, restart_ranks, pairs
        self.progress = progress
        # One rank per core: with more, both ways would wait for cores.
        self.compared_ranks = max(2, min(ranks, CORES))
        self.load = os.getloadavg()[0]
        self.found: dict = {}

    def run(self) -> None:
        begin = time.monotonic()
        self.calibrate()
        self.compare()
        self.kill_and_restart()
        self.found["wall_s"] = time.monotonic() - begin

    def calibrate(self) -> None:
        job = self.runner.job("calibration", steps=0, batch=CALIBRATION_BATCH)
        with self._task("measuring the compute of a step", 1) as advance:
            self.runner.run("calibrate", job, self.compared_ranks)
            advance(1)
        found = json.loads((Path(job.records) / "calibration.json").read_text())
        # The compute of a step grows with the batch. Choose the largest batch that keeps the demo short.
        self.batch = max(
            (b for b in BATCHES if b / CALIBRATION_BATCH * found["compute_s"] <= STEP_S), default=BATCHES[0]
        )
        compute_s = found["compute_s"] * self.batch / CALIBRATION_BATCH
        rate = measure.round_rate(found["checkpoint_bytes"] / (CHECKPOINT_IN_STEPS * compute_s) / 1e6, 1)
        link = measure.round_rate(8 * found["gradient_bytes"] / (GRADIENTS_IN_STEPS * compute_s) / 1e6, 10)
        slow, nodes = self.runner.tier, self.runner.nodes
        bare = tier.measured_bytes_per_s(slow, found["checkpoint_bytes"])
        if slow.has_library:
            slow.set_rate(rate * 1_000_000)
        nodes.start(link)
        self.found |= {
            "calibration": {**found, "batch": self.batch, "compute_s": compute_s, "ranks": self.compared_ranks},
            "tier": {
                "emulated": slow.has_library,
                "left_out": slow.left_out,
                "rate_mb_s": rate if slow.has_library else None,
                "measured_mb_s": tier.measured_bytes_per_s(slow, found["checkpoint_bytes"]) / 1e6,
                "disk_mb_s": bare / 1e6,
            },
            "settings": {
                "segment_steps": SEGMENT_STEPS,
                "segment_dumps": measure.dumps_of_segment(SEGMENT_STEPS, job),
                "kill_step": KILL_STEP,
                "checkpoint_in_steps": CHECKPOINT_IN_STEPS,
                "gradients_in_steps": GRADIENTS_IN_STEPS,
                "io_threads": job.io_threads,
                "prefetch": job.prefetch,
            },
            "link": {
                "emulated": not nodes.left_out,
                "left_out": nodes.left_out,
                "rate_mbit_s": nodes.rate_mbit or None,
            },
        }

    def compare(self) -> None:
        steps = (self.pairs + measure.WARM_UP) * SEGMENT_STEPS
        job = self.runner.job("comparison", steps=steps, segment_steps=SEGMENT_STEPS, batch=self.batch)
        with (
            self._task(f"both ways in turn, {self.compared_ranks} ranks", 2 * steps) as advance,
            SnapshotReader("plain", job) as plain_reader,
            SnapshotReader("penstock", job) as reader,
        ):
            records = self.runner.run("both", job, self.compared_ranks, on_nodes=True, progress=advance)
            self.found["snapshots"] = {"plain": plain_reader.result(), "penstock": reader.result()}
        self.reference = records["penstock"]
        found = measure.measures(records, job)
        drained = measure.drained_s(records["penstock"])
        result, plain_result = records["penstock"].results[0], records["plain"].results[0]
        self.found |= {
            "measures": {key: m.as_json() for key, m in found.items()},
            "drained_ms": {"median": 1e3 * statistics.median(drained)} if drained else None,
            "bytes": {
                "checkpoint": result["checkpoint_bytes"],
                "gradients": result["gradient_bytes"],
                "field": field.FILE_BYTES,
                "redistributed": result["bytes_redistributed"],
                "redistributed_without_relabeling": result["bytes_before_relabeling"],
                "redistributed_plain": plain_result["bytes_redistributed"],
                "tier_written_per_segment": {
                    way: measure.tier_bytes(records[way], "written") for way in ("plain", "penstock")
                },
            },
            "loss": {"penstock": _curve(records["penstock"].losses()), "plain": _curve(records["plain"].losses())},
            "loss_difference_plain": checks.farthest(records["plain"].losses(), self.reference.losses()),
        }
        self.found["relabeling"] = relabelings((2, 4, 8, 16))
        self.measures, self.timeline = found, measure.timeline(records)

    def kill_and_restart(self) -> None:
        kills = {}
        for way in ("penstock", "plain"):
            job = self.runner.job(f"{way}-killed", steps=RESTART_STEPS, batch=self.batch, kill_step=KILL_STEP)
            with self._task(f"{way}, {self.ranks} ranks, to be killed", KILL_STEP) as advance:
                killed = self.runner.run(way, job, self.ranks, progress=advance)[way]
            left = checks.what_is_left(job) if way == "penstock" else checks.what_is_left_plain(job.plain_file)
            again = self.runner.job(f"{way}-killed", steps=RESTART_STEPS, batch=self.batch)
            done = max(killed.losses()) + 1
            with self._task(f"{way}, restarted on {self.restart_ranks} ranks", RESTART_STEPS) as advance:
                restarted = self.runner.run(way, again, self.restart_ranks, progress=advance)[way]
            kills[way] = {
                "killed_in_step": done,
                "restarted_from_step": restarted.first_step,
                "steps_done_twice": done - restarted.first_step,
                "restore_ms": 1e3 * max(r["restore_s"] for r in restarted.results),
                "field_restored": all(r["field_restored"] for r in restarted.results),
                "left_in_file": left,
            }
            if way == "penstock":
                snapshots = self.found["snapshots"]["penstock"]
                self.found["checks"] = checks.verify(job, killed, restarted, self.reference, snapshots, left)
                self.found["loss"]["killed, then restarted"] = _curve({**killed.losses(), **restarted.losses()})
            else:
                kills[way]["samples_as_without_kill"] = restarted.samples() == {
                    s: ids for s, ids in self.reference.samples().items() if restarted.first_step <= s < RESTART_STEPS
                }
        self.found["kill"] = {"ranks": self.ranks, "restart_ranks": self.restart_ranks, **kills}

    def _task(self, what: str, total: int):
        return _Task(self.progress, what, total)


class _Task:
    """A line of the progress display. Call it with the amount done."""

    def __init__(self, progress: Progress, what: str, total: int) -> None:
        self._progress, self._what, self._total = progress, what, total

    def __enter__(self) -> _Task:
        self._id = self._progress.add_task(self._what, total=self._total)
        return self

    def __call__(self, done: int) -> None:
        self._progress.update(self._id, completed=min(done, self._total))

    def __exit__(self, kind: object, *error: object) -> None:
        if kind is None:
            self._progress.update(self._id, completed=self._total)
        self._progress.stop_task(self._id)


def _curve(losses: dict[int, float]) -> list[list[float]]:
    return [[step, value] for step, value in sorted(losses.items())]


def machine(demo: Demo) -> dict:
    return {
        "cores": CORES,
        "load_at_start": demo.load,
        "architecture": platform.machine(),
        "mpi": os.environ.get("PENSTOCK_MPI", "the MPI of PATH"),
        "ranks_compared": demo.compared_ranks,
        "nodes": 2 if demo.runner.nodes.rate_mbit else 1,
        "pairs": demo.pairs,
        "date": time.strftime("%Y-%m-%d %H:%M"),
    }


def print_tables(console: Console, measures: dict[str, Measure], found: dict) -> None:
    title = "Milliseconds that the training waits or computes: median (shortest–longest)"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("")
    for way in ("plain", "Penstock"):
        table.add_column(way, justify="right", no_wrap=True)
    table.add_column("")
    for m in measures.values():
        values = []
        for way in measure.WAYS:
            low, high = m.spread(way)
            values.append(f"{report.number(m.median(way))} ({report.number(low)}–{report.number(high)})")
        table.add_row(m.name, *values, m.verdict)
    console.print(table)
    for check in found["checks"]:
        mark = "[green]ok[/]  " if check["ok"] else "[red]FAIL[/]"
        console.print(f"{mark} {check['what']}: {check['detail']}", highlight=False)


@click.command()
@click.option(
    "--ranks", default=4, show_default=True, help="Ranks of the killed run; the comparison uses at most one per core."
)
@click.option("--restart-ranks", default=3, show_default=True, help="Ranks of the restarted run.")
@click.option("--pairs", default=5, show_default=True, type=click.IntRange(1), help="Measured segments of each way.")
@click.option("--report", "report_path", default="demo-report.html", show_default=True, type=click.Path(path_type=Path))
@click.option(
    "--directory",
    default=HERE.parent / "build" / "demo",
    type=click.Path(path_type=Path),
    help="Folder for the images and the runs' files. Default: build/demo.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the measurements as JSON.")
def main(ranks: int, restart_ranks: int, pairs: int, report_path: Path, directory: Path, as_json: bool) -> None:
    """Trains a small network with all five parts of Penstock and the plain way, kills both and restarts them."""
    if ranks < 1 or restart_ranks < 1:
        raise click.ClickException(f"--ranks is {ranks} and --restart-ranks {restart_ranks}; expected 1 or more")
    console = Console(stderr=as_json)
    directory = directory.absolute()
    runs = directory / "runs"
    shutil.rmtree(runs, ignore_errors=True)
    runs.mkdir(parents=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress, EmulatedNodes(directory) as nodes:
        with _Task(progress, "images, made once", images.COUNT) as advance:
            images_json = images.make(directory / "images", lambda done, of: advance(done))
        runner = Runner(runs, images_json, tier.make(runs), nodes)
        demo = Demo(runner, ranks, restart_ranks, pairs, progress)
        demo.run()
    found = {"machine": machine(demo), **demo.found}
    print_tables(console, demo.measures, found)
    report.write(report_path, found, demo.measures, demo.timeline)
    console.print(f"{report_path}: what was measured, how, and what it does not show", highlight=False)
    if as_json:
        click.echo(json.dumps(found))
    if not all(check["ok"] for check in found["checks"]):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
