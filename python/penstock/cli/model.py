"""penstock model: analytic models of the split-tree and of relabeling. Local; needs no MPI."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from typing import Any

import click

import penstock as ps
from penstock.cli.values import SIZE
from penstock.drawing import NEEDS_MATPLOTLIB, check_path
from penstock.relabel_model import CASES, sweep
from penstock.relabel_model import facts as sweep_facts
from penstock.text_table import columns

_LAYOUT = re.compile(r"(?P<block>\d+(?:,\d+)*)@(?P<grid>\d+(?:x\d+)*)(?::(?P<order>row|col|column))?")
_TREE_OPS = ["bcast", "reduce", "gather", "scatter", "allreduce"]


@click.group()
def model() -> None:
    """Analytic models, computed locally."""


@model.command()
@click.option("--shape", metavar="ROWS,COLUMNS", help="Shape of the source.")
@click.option("--from", "source", metavar="BLOCK@GRID:ORDER", help="1000,1000@10x10:row, for example.")
@click.option("--to", "target", metavar="BLOCK@GRID:ORDER", help="The layout of the target, in the same form.")
@click.option(
    "--op",
    type=click.Choice(["N", "T", "C"]),
    default="N",
    show_default=True,
    help="N: none, T: transpose, C: conjugate transpose.",
)
@click.option("--dtype", default="float64", show_default=True, help="Element type.")
@click.option("--case", type=click.Choice(list(CASES)), help="A figure of the paper, instead of the options above.")
@click.option("--plot", metavar="FILE", help=f"Draw the case. {NEEDS_MATPLOTLIB}")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def relabel(
    shape: str | None,
    source: str | None,
    target: str | None,
    op: str,
    dtype: str,
    case: str | None,
    plot: str | None,
    as_json: bool,
) -> None:
    """Bytes that a redistribution moves between ranks, before and after relabeling the target. Block-cyclic layouts.

    A layout is the shape of a block, the process grid, and the numbering of ranks over the grid: row or col. The cases are
    COSTA's: figure-2 (32x32 to 128x128 blocks, 100 to 200,000 rows), figure-3 (100,000 x 100,000, source blocks of 1 to
    10,000) and figure-6 (the matrices of an RPA simulation between ScaLAPACK's and COSMA's layouts).

    \b
    Examples:
      penstock model relabel --shape 100000,100000 --from 1000,1000@10x10:row --to 10000,10000@10x10:col
      penstock model relabel --case figure-3 --plot figure-3.png
    """
    if case is not None:
        if shape or source or target:
            raise ps.Error("--case has its own layouts; leave out --shape, --from and --to")
        _sweep(case, plot, as_json)
        return
    if plot is not None:
        raise ps.Error("--plot draws a --case; give --case, or leave out --plot")
    if shape is None or source is None or target is None:
        missing = "--shape" if shape is None else "--from" if source is None else "--to"
        raise ps.Error(f"{missing} is missing; give --shape, --from and --to, or a --case")
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


def _sweep(case: str, plot: str | None, as_json: bool) -> None:
    if plot is not None:
        check_path(plot)
    found = sweep(case)
    if plot is not None:
        found.plot(plot)
    if as_json:
        click.echo(json.dumps(sweep_facts(found)))
        return
    click.echo(f"{found.title}; bytes of float64 between ranks")
    lines = [[*found.points[0].setting, "before", "relabeled", "less", "messages"]]
    for point in found.points:
        numbers = (
            f"{point.bytes_before:,}",
            f"{point.bytes_after:,}",
            f"{point.reduction_pct:.1f}%",
            f"{point.messages:,}",
        )
        lines.append([*(str(value) for value in point.setting.values()), *numbers])
    click.echo(columns(lines, keys=len(found.points[0].setting)))


@model.command()
@click.option("--cores", required=True, type=int, help="Cores of the node, for ranks and communication together.")
@click.option("--op", type=click.Choice(_TREE_OPS), default="reduce", show_default=True, help="The collective.")
@click.option("--bytes", "nbytes", type=SIZE, help="Bytes per rank; for gather and scatter, of one block.")
@click.option(
    "--ratio", default=1.0, show_default=True, help="Computation / blocking collective, if both had all cores."
)
@click.option("--radix", default=2, show_default=True, help="Radix of the tree; 2 is binomial.")
@click.option("--costs", metavar="FILE", help="Measured costs of a step, JSON; times are then in seconds.")
@click.option("--waiting-helps", is_flag=True, help="Application cores take over remaining levels after computing.")
@click.option("--plot", metavar="FILE", help=f"Draw the paper's figures. {NEEDS_MATPLOTLIB}")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def split(plot: str | None, as_json: bool, **request: Any) -> None:
    """Time of a collective whose last S tree levels run on application cores, and the others on communication cores.

    Prints the best S for every number of ranks, and the time of computation and collective together. Without --costs, times
    are in transfers of one buffer. The model is the paper's; with --waiting-helps, that of Penstock's engine.

    \b
    Examples:
      penstock model split --cores 64 --op reduce --ratio 1
      penstock model split --cores 64 --op gather --plot split.png
    """
    if plot is not None:
        check_path(plot)
    advice = ps.model.split(**request)
    if plot is not None:
        advice.plot(plot)
    if as_json:
        click.echo(json.dumps(_split_facts(advice)))
        return
    factor, unit = (1e3, "ms") if advice.unit == "s" else (1, "transfers of one buffer")

    def time(value: float) -> str:
        return f"{factor * value:.4g}"

    click.echo(f"{advice.op} on {advice.cores} cores, computation x {advice.ratio:g}; times in {unit}")
    click.echo()
    click.echo("    ranks   best S   time of the first and the last")
    for first, last in advice.ranges():
        ends = [first] if first is last else [first, last]
        ranks = " … ".join(str(point.n) for point in ends)
        level = first.best_s if first.progress_cores else "all"
        click.echo(f"{ranks:>9}   {level:>6}   {' … '.join(time(point.best_t) for point in ends)}")
    best, divided, all_cores = advice.best, advice.best_divided, advice.points[-1]
    click.echo()
    click.echo(f"best      {time(best.best_t)} with {best.n} ranks and S = {best.best_s}")
    click.echo(f"divided   {time(divided.t_divided)} with {divided.n} ranks, in segments instead of levels")
    click.echo(f"blocking  {time(all_cores.best_t)} with {all_cores.n} ranks, after the computation")


def _split_facts(advice: ps.model.SplitAdvice) -> dict[str, object]:
    best, divided = advice.best, advice.best_divided
    return {
        "cores": advice.cores,
        "op": advice.op,
        "ratio": advice.ratio,
        "radix": advice.radix,
        "bytes": advice.nbytes,
        "waiting_helps": advice.waiting_helps,
        "unit": advice.unit,
        "points": [asdict(point) for point in advice.points],
        "best": {"n": best.n, "s": best.best_s, "t": best.best_t},
        "best_divided": {"n": divided.n, "t": divided.t_divided},
    }


def _layout(option: str, text: str, shape: list[int]) -> ps.Layout:
    match = _LAYOUT.fullmatch(text)
    if match is None:
        raise ps.Error(f"{option} is {text!r}; expected BLOCK@GRID:ORDER, for example 1000,1000@10x10:row")
    block = [int(length) for length in match["block"].split(",")]
    grid = [int(count) for count in match["grid"].split("x")]
    return ps.Layout.block_cyclic(shape, block, grid, match["order"] or "row")
