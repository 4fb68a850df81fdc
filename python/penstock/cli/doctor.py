"""penstock doctor: what works on this machine, and what to do about the rest."""

from __future__ import annotations

import json
import sys

import click

from penstock import spmd
from penstock.text_table import entry

_COLOURS = {"ok": "green", "note": "yellow", "problem": "red"}


@click.command()
@click.option(
    "--store",
    "places",
    multiple=True,
    metavar="PLACE",
    help="A directory, or the URL of a store, to try. May be repeated. [default: the current directory]",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def doctor(places: tuple[str, ...], as_json: bool) -> None:
    """Check what works on this machine, and say what to do about the rest.

    Looks at MPI and its launcher, threads, cores, shared memory, single copies, image formats, extras, the tuning table
    and the file system. It starts a job of two ranks, and works without MPI. The exit status is 1 if there is a problem.
    Under mpiexec rank 0 alone checks its node.

    \b
    Examples:
      penstock doctor
      penstock doctor --store /scratch --store rados://pool/run7
      penstock doctor --json
    """
    if spmd.launched_rank():
        return
    from penstock import doctor as examination

    findings = examination.examine(places or (".",))
    if as_json:
        click.echo(json.dumps(examination.as_dict(findings), indent=2))
        sys.exit(examination.status(findings))
    width = max(len(finding.check) for finding in findings)
    for finding in findings:
        mark = click.style(finding.state.ljust(7), fg=_COLOURS[finding.state])
        click.echo(f"{mark}  {entry(finding.check, finding.found, width)}")
        if finding.mend:
            click.echo(f"{'':9}{'':{width}}  → {finding.mend}")
    counts = examination.as_dict(findings)["counts"]
    click.echo(f"{counts['ok']} ok, {counts['note']} notes, {counts['problem']} problems")
    sys.exit(examination.status(findings))
