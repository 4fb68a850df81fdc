"""The demo: a data-parallel training run that needs all five parts of Penstock, killed and restarted, and the same work the
plain way beside it. Prints a table and writes one self-contained page.

It runs four jobs one after another, on the same images and with the same seed:

1. Penstock on --ranks ranks, killed with SIGKILL in mid-run;
2. the same run, restarted from its checkpoint on --restart-ranks ranks;
3. Penstock on --ranks ranks without interruption, which the first two are compared with;
4. the plain way on --ranks ranks: blocking mpi4py, MPI-IO in atomic mode, checkpoints written by rank 0, one thread that reads.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import click
import images
import report
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
JOB_TIMEOUT_S = 300

# The phases of the application thread: name in the trace, what it is (and so its colour), what the table says.
PHASES = [
    ("compute", "compute", "compute", "forward, backward, update, the field's own step"),
    ("next batch", "input", "wait for the next batch", "plain: one thread reads and decodes ahead"),
    ("sum gradients", "communicate", "wait for the gradients' sums", "plain: blocking Allreduce per layer"),
    ("redistribute", "communicate", "redistribute the field", "transposed, into tiles; plain: Alltoallv"),
    ("write tiles", "store", "write overlapping tiles", "plain: MPI-IO in atomic mode"),
    ("checkpoint", "checkpoint", "checkpoint", "plain: gathered and written by rank 0, with fsync"),
]


@dataclass
class Job:
    """One finished (or killed) run of train.py."""

    records: Path
    results: list[dict]
    killed_ns: int | None = None  # CLOCK_MONOTONIC, as in the spans

    def losses(self) -> dict[int, float]:
        return dict(map(json.loads, (self.records / "loss.jsonl").read_text().splitlines()))

    def samples(self) -> dict[int, list[int]]:
        """Step → the samples of all ranks, sorted. A killed run may have torn its last line off."""
        steps: dict[int, list[int]] = {}
        for path in self.records.glob("samples-*.jsonl"):
            for line in path.read_text().splitlines():
                if line.endswith("]]"):
                    step, ids = json.loads(line)
                    steps.setdefault(step, []).extend(ids)
        return {step: sorted(ids) for step, ids in steps.items()}

    def mean(self, phase: str) -> float:
        return sum(r["phases"].get(phase, 0.0) for r in self.results) / len(self.results)

    def total_s(self) -> float:
        return max(r["total_s"] for r in self.results)


class Demo:
    def __init__(self, directory: Path, steps: int, console: Console) -> None:
        self.directory, self.steps, self.console = directory, steps, console
        self.images_json = images.make(directory.parent / "images")
        self.images = json.loads(self.images_json.read_text())

    def run(self, way: str, where: str, ranks: int, kill_at: int | None = None) -> Job:
        """Runs train.py under mpiexec; with `kill_at`, kills every rank once that step's loss is written."""
        directory = self.directory / where
        directory.mkdir(parents=True, exist_ok=True)
        before = set(directory.glob("run-*"))
        command = ["mpiexec", "-n", str(ranks), sys.executable, str(HERE / "train.py"), way]
        command += [str(directory), str(self.images_json), str(self.steps)]
        with open(directory / "output.txt", "ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        try:
            killed = self._follow(process, directory, before, kill_at)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        records = max(set(directory.glob("run-*")) - before, default=None)
        if records is None or (process.returncode != 0 and killed is None):
            tail = (directory / "output.txt").read_text(errors="replace")[-3000:]
            raise click.ClickException(f"the {way} run on {ranks} ranks failed ({process.returncode}):\n{tail}")
        results = [json.loads(p.read_text()) for p in sorted(records.glob("result-*.json"))]
        return Job(records, results, killed)

    def _follow(self, process: subprocess.Popen, directory: Path, before: set[Path], kill_at: int | None) -> int | None:
        """Shows the progress until the job ends; the time at which it was killed, if it was."""
        deadline = time.monotonic() + JOB_TIMEOUT_S
        with self.console.status("") as status:
            while process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.05)
                records = max(set(directory.glob("run-*")) - before, default=None)
                if records is None or not (records / "loss.jsonl").exists():
                    continue
                lines = (records / "loss.jsonl").read_bytes().splitlines()
                if not lines:
                    continue
                step = int(lines[-1].strip(b"[").split(b",")[0])
                status.update(f"step {step + 1} of {self.steps}")
                if kill_at is not None and step >= kill_at:
                    killed_ns = time.monotonic_ns()
                    for path in records.glob("pid-*"):
                        os.kill(int(path.read_text()), signal.SIGKILL)
                    process.wait()
                    return killed_ns
        return None

    def follow_snapshots(self, where: str) -> SnapshotReader:
        return SnapshotReader(self.directory / where)


class SnapshotReader:
    """Starts reader.py beside a job; result() stops it."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._stop, self._result = directory / "reader-stop", directory / "reader.json"
        self._stop.unlink(missing_ok=True)
        command = [sys.executable, str(HERE / "reader.py"), f"file://{directory}/store", "field"]
        self._process = subprocess.Popen([*command, str(self._stop), str(self._result)], stdin=subprocess.DEVNULL)

    def result(self) -> dict:
        self._stop.touch()
        if self._process.wait(timeout=120) != 0:
            raise click.ClickException("the reader of the snapshots failed")
        return json.loads(self._result.read_text())


def verify(demo: Demo, killed: Job, restarted: Job, whole: Job, snapshots: dict) -> list[dict]:
    first = restarted.results[0]["first_step"]
    checks = []

    def check(what: str, ok: bool, detail: str) -> None:
        checks.append({"what": what, "ok": bool(ok), "detail": detail})

    reached = max(killed.losses())
    check(
        "restarted from a checkpoint",
        0 < first <= reached + 1,
        f"killed after step {reached + 1}, restarted at {first}",
    )
    check(
        "every snapshot that the reader saw is one whole time step",
        snapshots["versions"] > 0 and not snapshots["inconsistent"],
        f"{snapshots['versions']} versions, {snapshots['followed_live']} of them read while being written",
    )
    before, after, reference = killed.samples(), restarted.samples(), whole.samples()
    joined = {**{s: ids for s, ids in before.items() if s < first}, **after}
    check(
        "no sample was repeated or lost by the restart",
        joined == reference and all(before[s] == reference[s] for s in before if s < reached),
        f"{sum(map(len, joined.values()))} samples in {len(joined)} steps, step by step those of the undisturbed run",
    )
    corrupt = {i for i, image in enumerate(demo.images) if image["corrupt"]}
    epoch = -(-len(demo.images) // 64)
    seen = [i for s in range(min(epoch, demo.steps)) for i in joined[s]]
    check(
        "an epoch is every image once, but the corrupt ones",
        len(seen) == len(set(seen)) and (demo.steps < epoch or set(seen) == set(range(len(demo.images))) - corrupt),
        f"{len(seen)} of {len(demo.images)} images; {len(corrupt)} corrupt ones skipped and counted",
    )
    overlap = sorted(set(killed.losses()) & set(restarted.losses()))
    joined_loss = {**killed.losses(), **restarted.losses()}
    error = max(abs(joined_loss[s] - v) / max(v, 1e-3) for s, v in whole.losses().items())
    check(
        "the loss continues where it was",
        error < 2e-2,
        f"largest relative difference from the undisturbed run {error:.1e}",
    )
    if overlap:
        again = max(abs(killed.losses()[s] - restarted.losses()[s]) / max(killed.losses()[s], 1e-3) for s in overlap)
        check(
            "steps done twice gave the same loss",
            again < 1e-3,
            f"{len(overlap)} steps, relative difference {again:.1e}",
        )
    check(
        "the field came back exactly, on other ranks",
        all(r["field_restored"] for r in restarted.results),
        f"{len(restarted.results)} ranks compared every cell",
    )
    return checks


# What moves in the background: the spans that show it (lane, and how the name begins), and the phases that wait for it.
HIDDEN = [
    ("summing gradients", [("operation", "allreduce")], ["sum gradients"]),
    ("reading and decoding", [("loader", "")], ["next batch"]),
    (
        "redistributing and writing the field",
        [("operation", "redistribute"), ("store", "")],
        ["redistribute", "write tiles"],
    ),
    ("checkpoints", [("checkpoint", "write"), ("checkpoint", "drain")], ["checkpoint"]),
]


def hidden(job: Job) -> list[dict]:
    """Per kind of work: seconds in which it was under way, and seconds that the application stood still for it."""
    rows = []
    for what, background, phases in HIDDEN:
        under_way = waited = 0.0
        for path in job.records.glob("spans-*.jsonl"):
            spans = [json.loads(line) for line in path.read_text().splitlines()]
            waits = [(s[2], s[3]) for s in spans if s[1] == "application" and s[0] in phases]
            moves = [(s[2], s[3]) for s in spans if any(s[1] == lane and s[0].startswith(n) for lane, n in background)]
            under_way += union_s(moves + waits) / len(job.results)
            waited += union_s(waits) / len(job.results)
        share = 100 * (1 - waited / under_way) if under_way else 0.0
        rows.append({"what": what, "busy_s": under_way, "stall_s": waited, "hidden_pct": share})
    return rows


def union_s(intervals: list[tuple[int, int]]) -> float:
    """Length in seconds of the union of intervals in nanoseconds."""
    total, end = 0, 0
    for a, b in sorted(intervals):
        total += max(0, b - max(a, end))
        end = max(end, b)
    return total * 1e-9


def timeline(jobs: list[tuple[str, Job]]) -> dict:
    """Lanes, events and marks of several jobs on one axis of microseconds."""
    kind_of_phase = {trace: kind for trace, kind, _, _ in PHASES}
    kind_of_phase |= {"sum gradients": "wait", "next batch": "wait"}
    lane_kinds = {"operation": "communicate", "progress": "communicate", "loader": "input"}
    lane_kinds |= {"store": "store", "checkpoint": "checkpoint"}
    lanes: dict[tuple[int, str], int] = {}
    names: dict[tuple[str, str], int] = {}
    raw = []
    for _, job in jobs:
        for path in sorted(job.records.glob("spans-*.jsonl")):
            rank = int(path.stem.split("-")[1])
            for line in path.read_text().splitlines():
                name, lane, begin, end, _ = json.loads(line)
                kind = kind_of_phase.get(name) if lane == "application" else lane_kinds.get(lane)
                if kind is not None:
                    raw.append((rank, lane, name, kind, begin, end))
    order = ["application", *lane_kinds]
    for key in sorted({(r[0], r[1]) for r in raw}, key=lambda k: (k[0], order.index(k[1]))):
        lanes[key] = len(lanes)
    zero = min(r[4] for r in raw)
    events = []
    for rank, lane, name, kind, begin, end in sorted(raw, key=lambda r: (r[0], r[1], r[4])):
        index = names.setdefault((name, kind), len(names))
        row, start, length = lanes[rank, lane], (begin - zero) // 1000, max(1, (end - begin) // 1000)
        # Neighbouring spans of one kind are drawn as one where nobody could see a gap.
        if events and events[-1][:2] == [row, index] and start - (events[-1][2] + events[-1][3]) < 200:
            events[-1][3] = max(events[-1][3], start + length - events[-1][2])
        else:
            events.append([row, index, start, length])
    marks = []
    for label, job in jobs:
        marks.append([(min(first_ns(job)) - zero) // 1000, label])
        if job.killed_ns is not None:
            marks.append([(job.killed_ns - zero) // 1000, "SIGKILL"])
    return {
        "lanes": [{"group": rank, "name": f"rank {rank} {lane}"} for rank, lane in lanes],
        "names": [list(key) for key in names],
        "events": events,
        "marks": marks,
    }


def first_ns(job: Job) -> list[int]:
    return [json.loads(p.open().readline())[2] for p in job.records.glob("spans-*.jsonl")]


def print_table(
    console: Console, phases: list[dict], totals: dict, hidden_rows: list[dict], checks: list[dict]
) -> None:
    table = Table(title="Seconds per rank, the same steps both ways", title_justify="left")
    table.add_column("phase")
    table.add_column("plain", justify="right")
    table.add_column("Penstock", justify="right")
    for phase in phases:
        table.add_row(phase["name"], f"{phase['plain_s']:.2f}", f"{phase['penstock_s']:.2f}")
    table.add_section()
    table.add_row("whole run", f"{totals['plain']:.2f}", f"{totals['penstock']:.2f}")
    console.print(table)
    table = Table(title="Hidden behind computation", title_justify="left")
    for column in ("", "under way", "waited for", "hidden"):
        table.add_column(column, justify="left" if not column else "right")
    for row in hidden_rows:
        table.add_row(row["what"], f"{row['busy_s']:.2f} s", f"{row['stall_s']:.2f} s", f"{row['hidden_pct']:.0f} %")
    console.print(table)
    for check in checks:
        mark = "[green]ok[/]  " if check["ok"] else "[red]FAIL[/]"
        console.print(f"{mark} {check['what']}: {check['detail']}", highlight=False)


@click.command()
@click.option("--ranks", default=4, show_default=True, help="Ranks of the runs.")
@click.option("--restart-ranks", default=3, show_default=True, help="Ranks after the kill.")
@click.option("--steps", default=64, show_default=True, help="Training steps of every run.")
@click.option("--report", "report_path", default="demo-report.html", show_default=True, type=click.Path(path_type=Path))
@click.option(
    "--directory",
    default=HERE.parent / "build" / "demo",
    type=click.Path(path_type=Path),
    help="Where the images and the runs' files are kept; build/demo by default.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the measurements as JSON.")
def main(ranks: int, restart_ranks: int, steps: int, report_path: Path, directory: Path, as_json: bool) -> None:
    """Trains a small network with all five parts of Penstock, kills it, restarts it on other ranks, and compares."""
    console = Console(stderr=as_json)
    runs = directory.absolute() / "runs"
    shutil.rmtree(runs, ignore_errors=True)
    runs.mkdir(parents=True)
    console.print("images: made once, then cached")
    demo = Demo(runs, steps, console)
    kill_at = steps * 6 // 10

    reader = demo.follow_snapshots("penstock")
    console.print(f"1. Penstock on {ranks} ranks, to be killed after step {kill_at + 1}")
    killed = demo.run("penstock", "penstock", ranks, kill_at)
    console.print(f"2. restarted on {restart_ranks} ranks")
    restarted = demo.run("penstock", "penstock", restart_ranks)
    snapshots = reader.result()
    console.print(f"3. Penstock on {ranks} ranks, undisturbed")
    whole = demo.run("penstock", "undisturbed", ranks)
    console.print(f"4. the plain way on {ranks} ranks")
    plain = demo.run("plain", "plain", ranks)

    checks = verify(demo, killed, restarted, whole, snapshots)
    phases = [
        {"name": name, "kind": kind, "note": note, "plain_s": plain.mean(key), "penstock_s": whole.mean(key)}
        for key, kind, name, note in PHASES
    ]
    totals = {"plain": plain.total_s(), "penstock": whole.total_s()}
    hidden_rows = hidden(whole)
    moved = whole.results[0]
    saves = len(moved["checkpoint_stalls_s"])
    stall = {"penstock": sum(moved["checkpoint_stalls_s"]) / saves, "plain": plain.mean("checkpoint") / saves}
    facts = [
        {"value": f"{totals['plain'] / totals['penstock']:.2f} ×", "what": "plain time over Penstock's time"},
        {
            "value": f"{stall['penstock'] * 1e3:.1f} ms",
            "what": f"stall per checkpoint; plain {stall['plain'] * 1e3:.0f} ms",
        },
        {
            "value": f"{moved['bytes_after'] / 1e6:.2f} MB",
            "what": f"moved per redistribution after relabeling; {moved['bytes_before'] / 1e6:.2f} MB before",
        },
        {"value": f"{snapshots['versions']}", "what": "versions of the shared file, each verified by the reader"},
        {"value": f"{ranks} → {restart_ranks}", "what": f"ranks before and after SIGKILL at step {kill_at + 1}"},
    ]
    run = {
        "title": "Penstock: one training run, five kinds of waiting",
        "machine": f"{ranks} ranks on {os.cpu_count()} cores, {platform.machine()}, {steps} steps of batch 64",
        "total_s": totals,
        "checks": checks,
        "phases": phases,
        "hidden": hidden_rows,
        "facts": facts,
        "stall_per_checkpoint_s": stall,
        "bytes_before": moved["bytes_before"],
        "bytes_after": moved["bytes_after"],
        "loss": {
            "undisturbed": sorted(whole.losses().items()),
            "killed, then restarted": sorted({**killed.losses(), **restarted.losses()}.items()),
            "plain": sorted(plain.losses().items()),
        },
    }
    print_table(console, phases, totals, hidden_rows, checks)
    report.write(report_path, {**run, "timeline": timeline([("start", killed), ("restart", restarted)])})
    console.print(f"report: {report_path}")
    if as_json:
        click.echo(json.dumps(run))
    if not all(check["ok"] for check in checks):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
