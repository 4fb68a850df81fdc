"""penstock bench: benchmarks of Penstock and of the installed peers, side by side."""

from __future__ import annotations

import importlib.util
import math
import os
from collections.abc import Sequence
from typing import Any

import click

from penstock import progress, spmd
from penstock.bench import CASES, runner
from penstock.bench.installation import cores, installations
from penstock.drawing import NEEDS_MATPLOTLIB, check_path
from penstock.error import Error


@click.group()
def bench() -> None:
    """Benchmarks side by side with each installed MPI and other peers.

    Peers run as separate jobs, in turns. Times are medians of the slowest rank. Machines are shared and differ: quote
    ratios of one run, not its seconds.

    \b
    Examples:
      penstock bench collectives --quick
      penstock bench store --ranks 2,4 --json
    """


_SUFFIXES = {"K": 10, "M": 20, "G": 30}


def _value(default: Any, text: str) -> Any:
    """`text` as a value of the type of `default`. Integers may end in K, M or G. Raises ValueError."""
    if isinstance(default, list):
        values = [_value(default[0], word) for word in text.split(",") if word]
        if not values:
            raise ValueError(f"{text!r} names nothing; expected values with commas between them")
        return values
    if isinstance(default, str):
        return text
    expected = "a whole number such as 8, 64K or 2M" if isinstance(default, int) else "a number such as 0.5"
    try:
        suffix = _SUFFIXES.get(text[-1:].upper()) if isinstance(default, int) else None
        value = type(default)(text) if suffix is None else int(text[:-1]) << suffix
    except ValueError:
        raise ValueError(f"{text!r} is not {expected}") from None
    if not 0 <= value < math.inf:
        raise ValueError(f"{text!r} is out of range; expected {expected}")
    return value


def _require_choice(key: str, value: Any, choices: Sequence[str] | None) -> None:
    """Reject an invalid choice before any job starts."""
    for word in value if isinstance(value, list) else [value]:
        if choices is not None and word not in choices:
            raise click.BadParameter(f"'{word}' is not one of {', '.join(choices)}", param_hint=_flag(key))


def _ranks(case: Any, text: str | None, quick: bool) -> list[int]:
    """The given numbers of ranks, else those of the case, which may depend on the cores. --quick keeps the first."""
    if text and text != "auto":
        try:
            given = _value([1], text)
            if min(given) < 1:
                raise ValueError(f"{text!r} is out of range; expected at least 1 rank")
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--ranks") from error
        return given
    ranks = list(case.RANKS(len(cores())) if callable(case.RANKS) else case.RANKS)
    return ranks[:1] if quick else ranks


def _use_cores(wanted: int) -> None:
    """Restrict this process and the jobs that it launches to `wanted` cores."""
    usable = cores()
    if wanted > len(usable):
        raise click.BadParameter(f"{wanted}, but there are {len(usable)}", param_hint="--cores")
    os.sched_setaffinity(0, [cpu for core in usable[:wanted] for cpu in core])


def _reasons(left_out: dict[str, str]) -> str:
    """Each reason once, with the peers it applies to."""
    return "; ".join(f"{', '.join(names)}: {reason}" for reason, names in runner.by_reason(left_out).items())


def _require_no_launcher() -> None:
    """Reject a start under mpiexec: this command launches jobs itself. Rank 0 reports it for all ranks."""
    rank = spmd.launched_rank()
    if rank is None:
        return
    if rank != 0:
        raise SystemExit(1)
    raise Error(
        "penstock bench was started by mpiexec, but it starts its own jobs; run it without "
        "(over emulated nodes: ./dev cluster bench ...; the numbers of ranks are --ranks)"
    )


def _require_mpi4py() -> None:
    """Check once for mpi4py, which every job needs."""
    if importlib.util.find_spec("mpi4py") is None:
        raise Error(
            "penstock bench needs mpi4py, which is not installed; pip install 'penstock[mpi]', or pip install mpi4py",
            "unsupported",
        )


def _command(name: str) -> click.Command:
    case = runner.load(name)
    limit = getattr(case, "MINUTES", math.inf)
    usual_repetitions = getattr(case, "REPETITIONS", 3)

    def body(
        ranks: str | None,
        cores_to_use: int | None,
        repetitions: int | None,
        minutes: float | None,
        mpi: str,
        peers: str,
        quick: bool,
        quiet: bool,
        as_json: bool,
        plot: str | None,
        **given: str | None,
    ) -> None:
        _require_no_launcher()
        _require_mpi4py()
        if plot:
            check_path(plot)
        if cores_to_use:
            _use_cores(cores_to_use)
        parameters = {}
        for key, (default, for_quick, _) in case.OPTIONS.items():
            text = given[key]
            try:
                parameters[key] = (for_quick if quick else default) if text is None else _value(default, text)
            except ValueError as error:
                raise click.BadParameter(str(error), param_hint=_flag(key)) from error
            _require_choice(key, parameters[key], getattr(case, "CHOICES", {}).get(key))
        with progress.bar(f"bench {name}", shown=not (quiet or as_json)) as advance:
            report = runner.run(
                name,
                case,
                parameters,
                ranks=_ranks(case, ranks, quick),
                mpis=installations([word for word in mpi.split(",") if word]),
                repetitions=repetitions or (1 if quick else usual_repetitions),
                programs=[word for word in peers.split(",") if word],
                minutes=minutes or (math.inf if repetitions else limit),
                tell=lambda text: None if quiet else click.echo(text, err=True),
                advance=advance,
            )
        if not report.rows:
            raise Error("nothing could be measured: " + _reasons(report.left_out), "unsupported")
        click.echo(runner.as_json(report) if as_json else getattr(case, "table", runner.table)(report))
        if plot:
            getattr(case, "plot", runner.plot)(report, plot)

    options: list[click.Parameter] = [
        click.Option(["--ranks"], help=f"Numbers of ranks, comma-separated. [default: {_shown(case.RANKS)}]"),
        click.Option(["--cores", "cores_to_use"], type=click.IntRange(1), help="Cores to use. [default: all]"),
        click.Option(["--repetitions"], type=click.IntRange(1), help=f"Jobs per peer. [default: {usual_repetitions}]"),
        click.Option(
            ["--minutes"],
            type=click.FloatRange(0, min_open=True),
            help="Start no further repetition after this time. [default: "
            + ("no limit" if limit == math.inf else f"{limit:g}, no limit with --repetitions")
            + "]",
        ),
        click.Option(["--mpi"], default="", help="MPIs to use, comma-separated. [default: all that are found]"),
        click.Option(
            ["--peers"],
            default="",
            help="What to measure, comma-separated, such as penstock,plain for the peers penstock/… and plain/…. [default: all]",
        ),
        click.Option(["--quick"], is_flag=True, help="Few and small settings, to check that it runs."),
        click.Option(["--quiet"], is_flag=True, help="Say nothing of the progress."),
        click.Option(["--json", "as_json"], is_flag=True, help="Print one JSON object."),
        click.Option(
            ["--plot"],
            type=click.Path(dir_okay=False, writable=True),
            metavar="FILE",
            help=f"Draw the times. {NEEDS_MATPLOTLIB}",
        ),
    ]
    for key, (default, _, text) in case.OPTIONS.items():
        options.append(click.Option([_flag(key), key], help=f"{text}. [default: {_shown(default)}]".capitalize()))
    example = f"Examples:\n  penstock bench {name} --quick\n  penstock bench {name} --ranks 2,4 --json"
    return click.Command(name, callback=body, params=options, help=f"{case.SUMMARY.strip()}\n\n\b\n{example}")


def _flag(key: str) -> str:
    return f"--{key.replace('_', '-')}"


def _shown(value: Any) -> str:
    if callable(value):
        return "auto, by the cores"
    return ",".join(str(item) for item in value) if isinstance(value, list) else str(value)


for _name in CASES:
    bench.add_command(_command(_name))
