"""penstock tune, run under mpiexec: measures algorithms on this machine and writes the table that communicators read."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import cast

import click

from penstock import output_file, spmd
from penstock.cli.collective import CollectiveCommand
from penstock.placement import ORDERS

_OPERATIONS = "bcast,reduce,allreduce,gather,scatter,allgather,alltoall,reduce_scatter_block,barrier"


def _size(text: str) -> int:
    try:
        if text[-1:].upper() in ("K", "M", "G"):
            return int(text[:-1]) << {"K": 10, "M": 20, "G": 30}[text[-1].upper()]
        return int(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r}; expected a size such as 4096, 64K or 16M") from error


@click.command(cls=CollectiveCommand)
@click.option(
    "--output", "-o", default="penstock-tuning.json", show_default=True, help="The table. An existing one is extended."
)
@click.option("--operations", default=_OPERATIONS, show_default=True, help="Collectives to tune.")
@click.option("--from", "smallest", default="8", show_default=True, help="Smallest contribution of a rank, in bytes.")
@click.option("--to", "largest", default="16M", show_default=True, help="Largest one.")
@click.option("--minutes", default=10.0, show_default=True, help="Time limit. What was not measured is interpolated.")
@click.option(
    "--heuristics/--no-heuristics",
    default=True,
    show_default=True,
    help="Race only candidates that may win by earlier measurements; off: all candidates at every size.",
)
@click.option(
    "--exhaustive", is_flag=True, help="Also measure every algorithm and segment length at every size, and compare."
)
@click.option("--again", is_flag=True, help="Start over instead of resuming an interrupted run.")
@click.option(
    "--order",
    type=click.Choice(ORDERS),
    default="launched",
    show_default=True,
    help="Order of the ranks: as launched, or round-robin over the nodes.",
)
@click.option(
    "--report",
    "html",
    help="Write an HTML report: choices and reasons, noise, predictions and measurements, cost of the search.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def tune(
    output: str,
    operations: str,
    smallest: str,
    largest: str,
    minutes: float,
    heuristics: bool,
    exhaustive: bool,
    again: bool,
    order: str,
    html: str | None,
    as_json: bool,
) -> None:
    """Find the fastest algorithm for every operation and size, and write a table.

    Run it under mpiexec with the placement of the application. Programs use the table with PENSTOCK_TUNING=FILE.

    \b
    Example:
      mpiexec -n 64 penstock tune --minutes 10 --output cluster.json

    It measures tasks, the stages of hierarchical collectives, and predicts from their costs the time of whole
    collectives of any size. At each size the candidates that may be the fastest, by that prediction and by smaller sizes,
    race against MPI's own collective.
    """
    from mpi4py import MPI

    from penstock import tuning

    if html is not None:
        spmd.from_root(MPI.COMM_WORLD, lambda: output_file.require_writable(Path(html)))
    wanted = [word for word in operations.split(",") if word]
    request = tuning.TuningRequest(
        operations=wanted,
        sizes=tuning.sizes_between(_size(smallest), _size(largest)),
        minutes=minutes,
        heuristics=heuristics,
        exhaustive=exhaustive,
        order=order,
    )
    found = tuning.run(request, Path(output), again=again, bar=sys.stderr.isatty())
    if html is not None:
        from penstock.tuning import report

        # Only rank 0 has the outcome.
        spmd.from_root(MPI.COMM_WORLD, lambda: report.write(cast(tuning.Outcome, found), Path(html)))
    if found is not None:  # rank 0 prints
        click.echo(found.as_json() if as_json else found.summary())
