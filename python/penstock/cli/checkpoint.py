"""`penstock checkpoint`: list, inspect, diff, verify, drain, export, import and remove checkpoints."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import click

from penstock import progress
from penstock.cli.values import SIZE
from penstock.text_table import columns as aligned

_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_URL = click.argument("url")
_RUN = click.option("--run", default="", metavar="NAME", help="URL is a store, which has the run in the blob NAME.")
_BURST_BUFFER = click.option("--burst-buffer", default="", metavar="URL", help="The fast tier, as this node sees it.")


#: Short name → command.
_SHORT = {"ls": "list", "show": "inspect", "check": "verify", "rm": "remove"}


class _ShortNames(click.Group):
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, _SHORT.get(cmd_name, cmd_name))


@click.group(cls=_ShortNames)
def checkpoint() -> None:
    """Checkpoints of a place: list, inspect, diff, verify, drain, export, import and remove.

    Short names: ls, show (inspect), check (verify), rm (remove).

    URL is the slow tier: file:///a/directory, rados://pool/name or s3://bucket/name. If the program saves with run=NAME,
    give --run NAME. Jobs may save and restore meanwhile.
    """


def _place(row: dict[str, Any]) -> str:
    return " and ".join(tier for tier, here in (("slow tier", row["drained"]), ("burst buffer", row["fast"])) if here)


def _saved_at(row: dict[str, Any]) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(row["saved_at_s"])) if row["saved_at_s"] else "-"


def _note(row: dict[str, Any]) -> str:
    return row["damage"] or ("superseded" if row["superseded"] else "")


@checkpoint.command(name="list")
@_URL
@_RUN
@_BURST_BUFFER
@_JSON
def list_all(url: str, burst_buffer: str, run: str, as_json: bool) -> None:
    """List the complete checkpoints at URL in the order of their saves; the last one is what restore() reads.

    Each metric that they were saved with has a column. "Superseded" is one whose step a later save has gone back behind. It is
    restored by its step alone, or if no other is intact.

    The state is "fast" (durable in the burst buffer alone), "draining" (parts of it are in the slow tier, too), "drained"
    (durable in the slow tier), or "evictable" (and its copy in the burst buffer may go). If no job drains it now, the next
    one that saves does, or `penstock checkpoint drain`.

    \b
    Examples:
      penstock checkpoint list file:///scratch/run7
      penstock checkpoint list file:///scratch/run7 --burst-buffer file:///dev/shm/run7 --json
      penstock checkpoint list file:///scratch/store --run llama
    """
    from penstock import _penstock

    rows = _penstock.list_checkpoints(url, burst_buffer, run)
    if as_json:
        click.echo(json.dumps({"url": url, "checkpoints": rows}))
        return
    if not rows:
        click.echo("no complete checkpoint")
        return
    metrics = sorted({name for row in rows for name in row["metrics"]})
    lines = [
        [str(row["step"]), str(row["generation"]), str(row["ranks"]), f"{row['bytes']:,}"]
        + [f"{row['metrics'][name]:.6g}" if name in row["metrics"] else "-" for name in metrics]
        + [_saved_at(row), row["state"], _place(row), _note(row)]
        for row in rows
    ]
    click.echo(aligned([["step", "job", "ranks", "bytes", *metrics, "saved", "state", "in", ""], *lines]))


@checkpoint.command()
@_URL
@_RUN
@_BURST_BUFFER
@click.option("--step", type=click.IntRange(min=0), help="Default: the newest.")
@_JSON
def inspect(url: str, burst_buffer: str, run: str, step: int | None, as_json: bool) -> None:
    """Say what the newest checkpoint at URL holds: names, types and shapes of its arrays, plain values. Reads no array.

    \b
    Examples:
      penstock checkpoint inspect file:///scratch/run7
      penstock checkpoint inspect file:///scratch/run7 --step 300
    """
    from penstock import _penstock
    from penstock.checkpoint import info_of
    from penstock.checkpoint_diff import plain_values

    info = info_of(*_penstock.inspect_checkpoint(url, burst_buffer, run, step))
    values = dict(plain_values(info.tree))
    if as_json:
        arrays = {
            name: {"dtype": array.dtype, "shape": array.shape, "bytes": array.nbytes}
            for name, array in info.arrays.items()
        }
        click.echo(
            json.dumps(
                {
                    "url": url,
                    "step": info.step,
                    "bytes": info.nbytes,
                    "metrics": info.metrics,
                    "saved_at_s": info.saved_at_s,
                    "arrays": arrays,
                    "values": values,
                }
            )
        )
        return
    click.echo(f"step {info.step}: {len(info.arrays):,} arrays, {info.nbytes:,} bytes")
    rows = [[name, array.dtype, str(array.shape), f"{array.nbytes:,}"] for name, array in info.arrays.items()]
    rows += [[name, "value", "", value] for name, value in values.items()]
    rows += [[name, "metric", "", f"{value:.6g}"] for name, value in info.metrics.items()]
    if rows:
        click.echo(aligned([["name", "type", "shape", "bytes"], *rows]))


@checkpoint.command()
@_URL
@click.argument("old", type=click.IntRange(min=0))
@click.argument("new", type=click.IntRange(min=0))
@_RUN
@_BURST_BUFFER
@_JSON
def diff(url: str, old: int, new: int, burst_buffer: str, run: str, as_json: bool) -> None:
    """Say what differs between the checkpoints of steps OLD and NEW at URL: values, shapes and types, elements.

    Elements count as different if their bits are. Reads the arrays that both have, one after another.

    \b
    Examples:
      penstock checkpoint diff file:///scratch/run7 200 300
      penstock checkpoint diff file:///scratch/store 200 300 --run llama --json
    """
    from penstock import _penstock
    from penstock.checkpoint import Checkpointer
    from penstock.checkpoint_diff import differences

    _penstock.inspect_checkpoint(url, burst_buffer, run, old)  # makes no place that does not exist
    with progress.working(f"comparing steps {old} and {new}"):
        with Checkpointer(url, burst_buffer or None, run=run or None) as checkpointer:
            found = list(differences(checkpointer, old, new))
    if as_json:
        rows = [row._asdict() for row in found]
        click.echo(json.dumps({"url": url, "old": old, "new": new, "differences": rows}))
        return
    if not found:
        click.echo("no difference")
        return
    lines = []
    for row in found:
        what = f"{row.old} → {row.new}" if row.kind in ("type", "value") else row.old or row.new
        share = f"{row.elements:,} of {row.of_elements:,}" if row.kind == "elements" else ""
        largest = "" if row.largest is None else f"{row.largest:.3g}"
        lines.append([row.name, row.kind, what, share, largest])
    click.echo(aligned([["name", "differs in", "", "elements", "by at most"], *lines]))


@checkpoint.command()
@_URL
@_RUN
@_BURST_BUFFER
@click.option("--step", type=click.IntRange(min=0), help="Default: all.")
@_JSON
def verify(url: str, burst_buffer: str, run: str, step: int | None, as_json: bool) -> None:
    """Read the checkpoints at URL and verify every checksum. The exit status is 1 if anything is damaged.

    A burst buffer that is local to nodes is verified as far as this node holds it.

    \b
    Examples:
      penstock checkpoint verify file:///scratch/run7
      penstock checkpoint verify file:///scratch/run7 --burst-buffer file:///dev/shm/run7 --step 300
    """
    from penstock import _penstock

    with progress.working(f"verifying {url}"):
        rows = _penstock.verify_checkpoints(url, burst_buffer, run, step)
    found = sum(len(row["problems"]) for row in rows)
    if as_json:
        click.echo(json.dumps({"url": url, "checkpoints": rows}))
    else:
        for row in rows:
            for problem in row["problems"]:
                click.echo(f"step {row['step']}: {problem}", err=True)
        elsewhere = sum(row["objects_elsewhere"] for row in rows)
        click.echo(
            f"{len({(row['step'], row['generation']) for row in rows}):,} checkpoints, "
            f"{sum(row['bytes'] for row in rows):,} bytes read"
            + (f", {elsewhere:,} objects not in this burst buffer" if elsewhere else "")
            + f"; {found or 'no'} problem{'s' * (found != 1)}"
        )
    if found:
        raise SystemExit(1)


@checkpoint.command()
@_URL
@_RUN
@click.option("--burst-buffer", required=True, metavar="URL", help="The fast tier, as this node sees it.")
@_JSON
def drain(url: str, burst_buffer: str, run: str, as_json: bool) -> None:
    """Copy to URL what jobs that have ended left in the burst buffer. The exit status is 1 if something is left.

    A job that still saves to URL is fenced: its next save fails. Of a burst buffer that is local to nodes, this node's is
    drained; for a checkpoint whose parts are on several nodes, call `Checkpointer.resume_drains()` on all of them.

    \b
    Example:
      penstock checkpoint drain file:///scratch/run7 --burst-buffer file:///nvme/run7
    """
    from penstock import _penstock
    from penstock.checkpoint import Checkpointer

    def undrained() -> dict[tuple[int, int], int]:
        rows = _penstock.list_checkpoints(url, burst_buffer, run)
        return {(row["generation"], row["sequence"]): row["step"] for row in rows if not row["drained"]}

    before = undrained()  # makes no place that does not exist
    warnings: list[str] = []
    if before:
        with progress.working(f"draining {burst_buffer}"), Checkpointer(url, burst_buffer, run=run or None) as job:
            job.resume_drains()
            job.finish()
            warnings = job.warnings
    left = undrained()
    drained = [step for save, step in before.items() if save not in left]
    if as_json:
        told = {"drained": drained, "left": list(left.values()), "warnings": warnings}
        click.echo(json.dumps({"url": url, **told}))
    else:
        for warning in warnings:
            click.echo(warning, err=True)
        steps = ", ".join(map(str, drained))
        click.echo(f"drained step{'s' * (len(drained) != 1)} {steps}" if drained else "nothing was drained")
    if left:
        raise SystemExit(1)


@checkpoint.command()
@_URL
@click.argument("output", type=click.Path(path_type=Path))
@_RUN
@_BURST_BUFFER
@click.option("--step", type=click.IntRange(min=0), help="Default: the newest.")
@click.option(
    "--format",
    "folder",
    type=click.Choice(["safetensors", "npy"]),
    default="safetensors",
    show_default=True,
    help="Of a folder: shards of safetensors with an index, or a .npy file for each array.",
)
@click.option("--shard-bytes", type=SIZE, default="5G", show_default=True, help="Size of a shard in a folder.")
@_JSON
def export(
    url: str, output: Path, burst_buffer: str, run: str, step: int | None, folder: str, shard_bytes: int, as_json: bool
) -> None:
    """Write the newest checkpoint at URL to OUTPUT, for other libraries: NAME.safetensors, NAME.npz, or a folder.

    Arrays have the names of their leaves. Containers, plain values and element types that the format does not know are
    stored beside them, for `import`; arrays of such types are bytes with one more dimension. OUTPUT must not exist. Takes
    memory for 256 MiB, or for the largest array.

    \b
    Examples:
      penstock checkpoint export file:///scratch/run7 model.safetensors
      penstock checkpoint export file:///scratch/run7 model --step 300 --shard-bytes 2G
      penstock checkpoint export file:///scratch/store arrays --run llama --format npy
    """
    from penstock import checkpoint_files

    with progress.working(f"exporting {url}"):
        done = checkpoint_files.export((url, burst_buffer, run), output, step, folder, shard_bytes)
    if as_json:
        told = {"step": done.step, "arrays": done.arrays, "bytes": done.nbytes, "files": done.files}
        click.echo(json.dumps({"url": url, "output": str(output), **told}))
        return
    files = len(done.files)
    click.echo(f"step {done.step}: {done.arrays:,} arrays, {done.nbytes:,} bytes in {files:,} file{'s' * (files != 1)}")


@checkpoint.command(name="import")
@click.argument("files", type=click.Path(exists=True, path_type=Path))
@_URL
@_RUN
@_BURST_BUFFER
@click.option("--step", type=click.IntRange(min=0), help="Default: that of the export.")
@_JSON
def import_files(files: Path, url: str, burst_buffer: str, run: str, step: int | None, as_json: bool) -> None:
    """Save what FILES hold as a checkpoint at URL: a .safetensors or .npz file, or a folder of .safetensors or .npy files.

    What `export` wrote is restored as it was saved. Other files give a dictionary of their arrays, and need --step. The
    checkpoint is the newest then, as if a job had saved it: another job that still saves to URL fails with "fenced". Takes
    memory for all arrays, and for those of a .npz file twice.

    \b
    Examples:
      penstock checkpoint import model.safetensors file:///scratch/run8 --step 0
      penstock checkpoint import model file:///scratch/store --run llama
    """
    from penstock import checkpoint_files

    with progress.working(f"importing {files}"):
        done = checkpoint_files.import_files(files, (url, burst_buffer, run), step)
    if as_json:
        click.echo(json.dumps({"url": url, "step": done.step, "arrays": done.arrays, "bytes": done.nbytes}))
    else:
        click.echo(f"step {done.step}: {done.arrays:,} arrays, {done.nbytes:,} bytes")


@checkpoint.command()
@_URL
@click.argument("step", type=click.IntRange(min=0))
@_RUN
@_BURST_BUFFER
@_JSON
def remove(url: str, step: int, burst_buffer: str, run: str, as_json: bool) -> None:
    """Remove the checkpoints of STEP at URL, superseded ones of that step too, from the tiers that are given.

    Copies in burst buffers of other nodes count for nothing from then on. The next job there frees their space.

    \b
    Example:
      penstock checkpoint remove file:///scratch/run7 300
    """
    from penstock import _penstock

    rows = _penstock.remove_checkpoint(url, burst_buffer, run, step)
    if as_json:
        click.echo(json.dumps({"url": url, "removed": rows}))
    else:
        for row in rows:
            click.echo(f"removed step {row['step']} ({row['bytes']:,} bytes) from {_place(row)}")
