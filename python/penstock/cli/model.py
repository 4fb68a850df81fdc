"""penstock model: what the analytic models say, without MPI and without running anything."""

from __future__ import annotations

import json
import re

import click

import penstock as ps

_LAYOUT = re.compile(r"(?P<block>\d+(?:,\d+)*)@(?P<grid>\d+(?:x\d+)*)(?::(?P<order>row|col|column))?")


@click.group()
def model() -> None:
    """Analytic models, computed in this process."""


@model.command()
@click.option("--shape", required=True, metavar="ROWS,COLUMNS", help="Shape of the source.")
@click.option("--from", "source", required=True, metavar="BLOCK@GRID:ORDER", help="1000,1000@10x10:row, for example.")
@click.option("--to", "target", required=True, metavar="BLOCK@GRID:ORDER", help="The same for the target.")
@click.option(
    "--op", type=click.Choice(["N", "T", "C"]), default="N", show_default=True, help="What happens on the way."
)
@click.option("--dtype", default="float64", show_default=True, help="Type of the elements.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def relabel(shape: str, source: str, target: str, op: str, dtype: str, as_json: bool) -> None:
    """Bytes between ranks of a redistribution of block-cyclic layouts, before and after relabeling the target.

    A layout is the lengths of a block, the process grid, and how ranks are numbered over it: row or col.
    """
    lengths = [int(length) for length in shape.split(",")] if re.fullmatch(r"\d+(,\d+)*", shape) else None
    if lengths is None:
        raise ps.Error(f"--shape is {shape!r}; expected lengths like 100000,100000")
    turned = lengths if op == "N" else lengths[::-1]
    found = ps.relabel(_layout("--from", source, lengths), _layout("--to", target, turned), dtype, op)
    if as_json:
        facts = {
            "bytes_before": found.bytes_before,
            "bytes_after": found.bytes_after,
            "reduction_pct": found.reduction_pct,
            "permutation": found.permutation,
        }
        click.echo(json.dumps(facts))
        return
    click.echo(f"bytes between ranks   {found.bytes_before:,}")
    click.echo(f"after relabeling      {found.bytes_after:,}   ({found.reduction_pct:.1f}% less)")
    moved = sum(rank != new for rank, new in enumerate(found.permutation))
    click.echo(f"ranks relabeled       {moved} of {len(found.permutation)}   (--json prints the permutation)")


def _layout(option: str, text: str, shape: list[int]) -> ps.Layout:
    match = _LAYOUT.fullmatch(text)
    if match is None:
        raise ps.Error(f"{option} is {text!r}; expected BLOCK@GRID:ORDER, for example 1000,1000@10x10:row")
    block = [int(length) for length in match["block"].split(",")]
    grid = [int(count) for count in match["grid"].split("x")]
    return ps.Layout.block_cyclic(shape, block, grid, match["order"] or "row")
