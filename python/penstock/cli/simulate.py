"""penstock simulate: collectives with time on a SimGrid platform."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click

from penstock import progress, simulation
from penstock.cli.values import SIZE
from penstock.simulation import peers as smpi
from penstock.text_table import columns

_SIZES = "8,1K,64K,1M,16M"


class _Listed(click.ParamType):
    """Values of a type with commas between them."""

    def __init__(self, each: click.ParamType) -> None:
        self.each = each
        self.name = f"{each.name},…"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[Any]:
        if isinstance(value, list):
            return value
        words = [word for word in value.split(",") if word]
        if not words:
            self.fail(f"{value!r} names nothing", param, ctx)
        return [self.each.convert(word, param, ctx) for word in words]


@click.command()
@click.option(
    "--platform",
    required=True,
    help=f"A platform of SimGrid: a file, or one of {', '.join(simulation.platforms())}.",
)
@click.option("--operation", default="bcast", show_default=True, help="A collective from penstock plan list.")
@click.option(
    "--bytes",
    "nbytes",
    type=_Listed(SIZE),
    default=_SIZES,
    show_default=True,
    help="Lengths of the message, or of one block.",
)
@click.option("--nodes", type=click.IntRange(1), help="The first hosts of the platform. Default: all.")
@click.option("--ranks-per-node", type=click.IntRange(1), help="Default: one for each core of a host.")
@click.option(
    "--algorithm",
    type=_Listed(click.STRING),
    default=None,
    help="Names from penstock plan list. Default: what Penstock chooses by cost with the machine of the platform.",
)
@click.option("--root", type=click.IntRange(0), default=0, show_default=True, help="Root of a rooted collective.")
@click.option(
    "--peers",
    type=_Listed(click.Choice(smpi.SELECTORS)),
    default=None,
    help=f"Also the algorithms of other MPIs, by SMPI's selectors: {', '.join(smpi.SELECTORS)}.",
)
@click.option(
    "--charges",
    type=click.Choice(simulation.CHARGES),
    default="machine",
    show_default=True,
    help="What Penstock's messages are charged: what the platform says, or only what SMPI charges those of peers.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def simulate(
    platform: str,
    operation: str,
    nbytes: list[int],
    nodes: int | None,
    ranks_per_node: int | None,
    algorithm: list[str] | None,
    root: int,
    peers: list[str] | None,
    charges: str,
    as_json: bool,
) -> None:
    """Run the plans of all ranks with time on a platform of SimGrid, which must be installed.

    SimGrid simulates the network between nodes: latencies, and links that messages share. Steps inside a node cost what the
    platform's file says, or typical times. Nothing runs on a real machine, so judge times inside nodes by measurement.

    \b
    Examples:
      penstock simulate --platform shaheen2 --operation bcast --bytes 8,64K,16M
      penstock simulate --platform emulated --ranks-per-node 2 --operation allreduce --algorithm ring,hierarchical
      penstock simulate --platform my-cluster.xml --operation bcast --peers ompi,mpich
    """
    algorithms = algorithm or [""]
    total = len(nbytes) * (len(algorithms) + len(peers or []))
    team: simulation.Team | None = None
    results: list[simulation.Result] = []
    with progress.bar(f"simulating {operation}") as moved:
        moved(0, total)
        with contextlib.closing(
            simulation.simulate(
                platform,
                operation,
                nbytes,
                nodes=nodes or 0,
                ranks_per_node=ranks_per_node or 0,
                algorithms=algorithms,
                root=root,
                charges=charges,
            )
        ) as said:
            for each in said:
                if isinstance(each, simulation.Team):
                    team = each
                    continue
                results.append(each)
                moved(len(results), total)
        assert team is not None
        for peer in peers or []:
            with contextlib.closing(smpi.simulate(platform, team, operation, nbytes, peer, root)) as of_peer:
                for result in of_peer:
                    results.append(result)
                    moved(len(results), total)
    if as_json:
        facts = {
            "platform": platform,
            "nodes": len(team.hosts),
            "ranks_per_node": team.ranks_per_node,
            "machine": team.machine,
            "operation": operation,
            "charges": charges,
            "results": [asdict(each) for each in results],
        }
        click.echo(json.dumps(facts, indent=2))
        return
    click.echo(
        f"{operation} on {platform}, {len(team.hosts)} nodes x {team.ranks_per_node} ranks, simulated times in us"
    )
    click.echo()
    click.echo(columns(_table(results, peers or [])))


def _table(results: Sequence[simulation.Result], peers: Sequence[str]) -> list[list[str]]:
    lines = [["bytes", "algorithm", "penstock", *peers]]
    if peers:
        lines[0].append("best peer / penstock")
    by_peer = {(each.by, each.bytes): each.seconds for each in results if each.by != "penstock"}
    for each in results:
        if each.by != "penstock":
            continue
        times = [by_peer[peer, each.bytes] for peer in peers]
        line = [str(each.bytes), each.algorithm, *(f"{1e6 * seconds:.1f}" for seconds in [each.seconds, *times])]
        if peers:
            line.append(f"{min(times) / each.seconds:.2f}")
        lines.append(line)
    return lines
