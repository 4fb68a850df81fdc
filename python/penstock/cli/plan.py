"""penstock plan: the algorithms of the collectives, and the plan of each rank."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any, Literal

import click

from penstock import plan as plans_of
from penstock.cli.values import COUNT, DIMENSIONS, INT, SIZE
from penstock.error import Error
from penstock.text_table import entry

# Plans are made, verified and printed for every rank.
_MOST_RANKS = 1 << 16


@click.group()
def plan() -> None:
    """Algorithms and plans of the collectives. Runs nothing."""


@plan.command("list")
@click.argument("collective", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def list_algorithms(collective: str | None, as_json: bool) -> None:
    """List the algorithms, of one COLLECTIVE or all, with their cost.

    \b
    Example:
      penstock plan list allreduce
    """
    rows = plans_of.algorithms(collective)
    if not rows:
        known = dict.fromkeys(row.collective for row in plans_of.algorithms())
        raise Error(f"there is no collective {collective!r}; expected one of {', '.join(known)}")
    if as_json:
        click.echo(json.dumps({"algorithms": [asdict(row) for row in rows]}, indent=2))
        return
    names = [f"{row.collective}/{row.name}" for row in rows]
    for name, row in zip(names, rows):
        click.echo(entry(name, row.cost, max(map(len, names))))


@plan.command("show")
@click.argument("collective")
@click.option(
    "--ranks", type=click.IntRange(1, _MOST_RANKS), default=4, show_default=True, help="Ranks of the communicator."
)
@click.option("--nodes", type=INT, default=1, show_default=True, help="Nodes that the ranks fill in contiguous blocks.")
@click.option("--count", type=COUNT, default=1024, show_default=True, help="Elements per rank.")
@click.option("--dtype", default="float32", show_default=True, help="Element type.")
@click.option("--root", type=INT, default=0, show_default=True, help="Root of a rooted collective.")
@click.option("--in-place", is_flag=True, help="The contribution lies in the receive buffer (MPI_IN_PLACE).")
@click.option("--algorithm", default="", help="A name from penstock plan list. Default: what a communicator chooses.")
@click.option("--segment-bytes", type=SIZE, default=0, help="Length of a pipeline segment, such as 64K.")
@click.option("--split", type=INT, help="Tree levels on application cores. Default: the split-tree model.")
@click.option(
    "--radix", type=INT, default=2, show_default=True, help="Of trees: a rank serves radix - 1 others per level."
)
@click.option("--reproducible", is_flag=True, help="Bit-identical reduction for any placement and order of ranks.")
@click.option("--progress-cores", type=INT, default=0, show_default=True, help="Communication cores per node.")
@click.option("--grid", type=DIMENSIONS, help="Of neighbourhood collectives: dimensions, such as 4x2. Default: a ring.")
@click.option(
    "--periodic/--open", default=True, show_default=True, help="Whether the dimensions of the grid are periodic."
)
@click.option("--rank", "only", type=INT, help="Show only this rank.")
@click.option(
    "--simulate",
    "network",
    metavar="NETWORK",
    help=f"Rank the algorithms by simulated time on a network instead: {', '.join(plans_of.networks())}.",
)
@click.option(
    "--network",
    "known_network",
    metavar="NETWORK",
    help="Choose as with PENSTOCK_NETWORK; with --why, rank the algorithms by cost. The same names.",
)
@click.option(
    "--why", is_flag=True, help="With --simulate or --network: what the time along the critical path is spent on."
)
@click.option("--dot", "as_dot", is_flag=True, help="Print a Graphviz graph of all ranks.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def show(
    collective: str,
    only: int | None,
    split: int | None,
    network: str | None,
    known_network: str | None,
    why: bool,
    as_dot: bool,
    as_json: bool,
    **request: Any,
) -> None:
    """Print every rank's plan for a COLLECTIVE, and verify the plans against each other.

    \b
    Examples:
      penstock plan show allreduce --ranks 8 --nodes 2 --count 1000000
      penstock plan show bcast --ranks 5 --algorithm binomial --rank 0
      penstock plan show bcast --ranks 4 --dot
      penstock plan show neighbor_alltoall --ranks 8 --nodes 2 --grid 4x2 --open
      penstock plan show allreduce --ranks 64 --nodes 16 --simulate rdma-100g --why
      penstock plan show allreduce --ranks 512 --nodes 128 --network rdma-100g --why
    """
    if network is not None and known_network is not None:
        raise Error("--simulate and --network both rank the algorithms; give one of them")
    if network is not None or (why and known_network is not None):
        if as_dot or only is not None or split is not None:
            raise Error("a ranking shows no plans; leave out --dot, --rank and --split")
        _show_ranking(collective, network, known_network, why, as_json, request)
        return
    if why:
        raise Error("--why explains times; add --simulate or --network with a network, such as --simulate rdma-100g")
    if as_dot and (as_json or only is not None):
        raise Error("--dot draws all ranks; leave out --json and --rank")
    plans = plans_of.collective(
        collective, split="auto" if split is None else split, network=known_network or "", **request
    )
    if only is not None and not 0 <= only < len(plans):
        raise Error(f"--rank is {only}; expected 0 to {len(plans) - 1}")
    shown = range(len(plans)) if only is None else [only]
    if as_dot:
        click.echo(plans.dot(), nl=False)
    elif as_json:
        facts = {
            "collective": collective,
            "algorithm": plans.algorithm,
            "reason": plans.reason,
            "nodes": plans.nodes,
            "findings": plans.findings,
            "plans": [plans[rank] for rank in shown],
        }
        click.echo(json.dumps(facts, indent=2))
    else:
        texts = [plans.text(rank) for rank in shown]
        click.echo(f"{collective}/{plans.algorithm} ({plans.reason}); {len(plans.findings)} findings of the verifier")
        for text in [*plans.findings, *texts]:
            click.echo()
            click.echo(text.rstrip())


def _show_ranking(
    collective: str, simulated: str | None, known: str | None, why: bool, as_json: bool, request: dict[str, Any]
) -> None:
    if request.pop("algorithm") or request.pop("progress_cores"):
        raise Error(
            "a ranking has all algorithms, without communication cores; leave out --algorithm, --progress-cores"
        )
    network = simulated or known or ""
    by: Literal["simulation", "cost"] = "cost" if simulated is None else "simulation"
    chosen = plans_of.collective(collective, network=network, **request)
    ranking = plans_of.rank(collective, network=network, by=by, **request)
    if as_json:
        facts = {"collective": collective, "network": network, "algorithm": chosen.algorithm, "reason": chosen.reason}
        click.echo(json.dumps({**facts, "by": by, "ranking": [asdict(row) for row in ranking]}, indent=2))
        return
    how = "by cost" if simulated is None else "simulated"
    click.echo(f"{collective} on {network}, {how}; chosen: {chosen.algorithm} ({chosen.reason})")
    width = max((len(row.name) for row in ranking), default=0)
    for row in ranking:
        click.echo(f"{row.name:{width}}  {row.seconds * 1e6:10.1f} us{_terms(row) if why else ''}")
    costed = {row.name for row in ranking}
    others = [row.name for row in plans_of.algorithms(collective) if row.name not in costed]
    if simulated is None and others:
        click.echo(f"without a cost here, or not for this team: {', '.join(others)}")


def _terms(row: plans_of.Ranked) -> str:
    """The terms, the longest first; what is less than a thousandth of the time is left out."""
    longest_first = sorted(row.terms.items(), key=lambda each: -each[1])
    shown = [f"{name} {seconds * 1e6:.1f}" for name, seconds in longest_first if seconds > row.seconds / 1000]
    return " = " + " + ".join(shown) if shown else ""
