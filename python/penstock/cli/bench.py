"""penstock bench: measure Penstock side by side with the peers that are installed."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any

import click

from penstock.bench import CASES, runner
from penstock.bench.installation import cores, installations
from penstock.error import Error


@click.group()
def bench() -> None:
    """Benchmarks side by side with each installed MPI and other peers.

    Peers run as jobs of their own, in turns; times are medians of the slowest rank. Machines are shared and differ: quote
    the ratios of one run, not its seconds.
    """


def _value(default: Any, text: str) -> Any:
    """`text` as a value of the type of `default`; whole numbers may end in K, M or G."""
    if isinstance(default, list):
        return [_value(default[0], word) for word in text.split(",") if word]
    if isinstance(default, int) and text[-1:].upper() in ("K", "M", "G"):
        return int(text[:-1]) << {"K": 10, "M": 20, "G": 30}[text[-1].upper()]
    return type(default)(text)


def _require_choice(key: str, value: Any, choices: Sequence[str] | None) -> None:
    """Before any job is started, which would have to fail first."""
    for word in value if isinstance(value, list) else [value]:
        if choices is not None and word not in choices:
            raise click.BadParameter(f"'{word}' is none of {', '.join(choices)}", param_hint=key)


def _ranks(case: Any, text: str | None, quick: bool) -> list[int]:
    """Given ones, else those of the case, which may depend on the cores; --quick takes the first."""
    if text and text != "auto":
        return _value([1], text)
    ranks = list(case.RANKS(len(cores())) if callable(case.RANKS) else case.RANKS)
    return ranks[:1] if quick else ranks


def _use_cores(wanted: int) -> None:
    """This process and the jobs that it launches run on `wanted` cores."""
    usable = cores()
    if wanted > len(usable):
        raise click.BadParameter(f"{wanted}, but there are {len(usable)}", param_hint="cores")
    os.sched_setaffinity(0, [cpu for core in usable[:wanted] for cpu in core])


def _reasons(left_out: dict[str, str]) -> str:
    """Each reason once, with the peers that have it."""
    peers: dict[str, list[str]] = {}
    for peer, reason in left_out.items():
        peers.setdefault(reason, []).append(peer)
    return "; ".join(f"{', '.join(names)}: {reason}" for reason, names in peers.items())


#: The rank, as the launchers of MPICH, Intel MPI and Open MPI tell it.
_RANK = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK")


def _require_no_launcher() -> None:
    """Jobs cannot be started from each rank of a job; the first one says so for all."""
    ranks = [os.environ[name] for name in _RANK if name in os.environ]
    if not ranks:
        return
    if ranks[0] != "0":
        raise SystemExit(1)
    raise Error(
        "penstock bench was started by mpiexec, but it starts its own jobs; run it without "
        "(over emulated nodes: ./dev cluster bench ...; the numbers of ranks are --ranks)"
    )


def _command(name: str) -> click.Command:
    case = runner.load(name)
    limit = getattr(case, "MINUTES", math.inf)

    def body(
        ranks: str | None,
        cores_to_use: int | None,
        repetitions: int | None,
        minutes: float | None,
        mpi: str,
        peers: str,
        quick: bool,
        as_json: bool,
        plot: str | None,
        **given: str | None,
    ) -> None:
        _require_no_launcher()
        if cores_to_use:
            _use_cores(cores_to_use)
        parameters = {}
        for key, (default, for_quick, _) in case.OPTIONS.items():
            text = given[key]
            try:
                parameters[key] = (for_quick if quick else default) if text is None else _value(default, text)
            except ValueError as error:
                raise click.BadParameter(str(error), param_hint=key) from error
            _require_choice(key, parameters[key], getattr(case, "CHOICES", {}).get(key))
        report = runner.run(
            name,
            case,
            parameters,
            ranks=_ranks(case, ranks, quick),
            mpis=installations([word for word in mpi.split(",") if word]),
            repetitions=repetitions or (1 if quick else 3),
            programs=[word for word in peers.split(",") if word],
            minutes=minutes or (math.inf if repetitions else limit),
            tell=lambda text: click.echo(text, err=True),
        )
        if not report.rows:
            raise Error("nothing could be measured: " + _reasons(report.left_out))
        click.echo(runner.as_json(report) if as_json else getattr(case, "table", runner.table)(report))
        if plot:
            getattr(case, "plot", runner.plot)(report, plot)

    options = [
        click.Option(["--ranks"], help=f"Numbers of ranks, with commas. [default: {_shown(case.RANKS)}]"),
        click.Option(["--cores", "cores_to_use"], type=click.IntRange(1), help="Cores to use. [default: all]"),
        click.Option(["--repetitions"], type=click.IntRange(1), help="Jobs of each peer. [default: 3]"),
        click.Option(
            ["--minutes"],
            type=click.FloatRange(0, min_open=True),
            help="Do not repeat jobs for longer. [default: "
            + ("no limit" if limit == math.inf else f"{limit:g}, no limit with --repetitions")
            + "]",
        ),
        click.Option(["--mpi"], default="", help="MPIs to use, with commas. [default: all that are found]"),
        click.Option(
            ["--peers"],
            default="",
            help="What to measure, with commas, such as penstock,plain for the peers penstock/… and plain/…. [default: all]",
        ),
        click.Option(["--quick"], is_flag=True, help="Little of everything: does it run?"),
        click.Option(["--json", "as_json"], is_flag=True, help="Print one JSON object."),
        click.Option(
            ["--plot"], type=click.Path(dir_okay=False, writable=True), help="Write a plot (PNG, SVG or PDF)."
        ),
    ]
    for key, (default, _, text) in case.OPTIONS.items():
        options.append(
            click.Option([f"--{key.replace('_', '-')}", key], help=f"{text}. [default: {_shown(default)}]".capitalize())
        )
    return click.Command(name, callback=body, params=options, help=case.SUMMARY)


def _shown(value: Any) -> str:
    if callable(value):
        return "auto, by the cores"
    return ",".join(str(item) for item in value) if isinstance(value, list) else str(value)


for _name in CASES:
    bench.add_command(_command(_name))
