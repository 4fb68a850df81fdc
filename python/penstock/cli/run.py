"""penstock run and penstock env: programs that are not compiled again."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

import click

from penstock import _penstock, preload
from penstock.error import Error

_PROGRAM = {"ignore_unknown_options": True, "allow_interspersed_args": False}
_MPI = click.option(
    "--mpi", type=click.Choice(preload.ABIS), help="The ABI of the program's MPI. Default: found from the program."
)


@click.command("run", context_settings=_PROGRAM)
@_MPI
@click.option("--report", metavar="FILE", default="", help="Also write the report of MPI_Finalize to FILE, as JSON.")
@click.option("--quiet", is_flag=True, help="Print no table at MPI_Finalize.")
@click.option("--verify", is_flag=True, help="Run blocking collectives by MPI, too, and compare the results.")
@click.option("--files", metavar="GLOB", multiple=True, help="Keep MPI files with such paths in a versioned store.")
@click.option("--export-files", is_flag=True, help="Also write them to their paths when the program closes them.")
@click.option(
    "--strict",
    is_flag=True,
    help="Fail if Penstock cannot be preloaded, or a file cannot be stored, instead of running natively.",
)
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED)
def run(
    mpi: str | None,
    report: str,
    quiet: bool,
    verify: bool,
    files: tuple[str, ...],
    export_files: bool,
    strict: bool,
    program: tuple[str, ...],
) -> NoReturn:
    """Run an MPI PROGRAM, unchanged, with Penstock's collectives and versioned files.

    Calls that Penstock cannot serve go to the program's MPI. A table at MPI_Finalize says who served what. If the program
    is not MPI, or Penstock lacks a library for its MPI, one line says so and the program runs as without Penstock.

    \b
    Examples:
      mpiexec -n 4 penstock run ./solver input.dat
      mpiexec -n 4 penstock run --report report.json python train.py
      mpiexec -n 4 penstock run --files '*.h5' --export-files ./solver input.dat
    """
    added: dict[str, str] = {}
    try:
        used = preload.mpi_of(program[0], mpi)
        target = os.path.abspath(report) if report else "" if quiet else "-"
        added = preload.settings(used, target, files)
        for name, is_on in (("VERIFY", verify), ("FILES_EXPORT", export_files), ("PRELOAD_STRICT", strict)):
            if is_on:
                added[f"PENSTOCK_{name}"] = "on"
        # Last: if it fails, the library is still loaded, since the other ranks may have loaded theirs and agree with it.
        _penstock.option_table()
    except Error as error:
        if strict:
            raise
        if preload.rank() == 0:
            click.echo(f"penstock run: {error}; it runs natively", err=True)
            added["PENSTOCK_PRELOAD_SAID"] = "on"
    sys.stdout.flush()
    try:
        os.execvpe(program[0], list(program), {**os.environ, **added})
    except OSError as error:
        click.echo(f"penstock run: {program[0]}: {error.strerror}", err=True)
        sys.exit(127 if isinstance(error, FileNotFoundError) else 126)


@click.command("env")
@_MPI
@click.option("--report", metavar="FILE", default="-", help="Where the JSON of the report goes; -: a table on stderr.")
@click.argument("program", required=False)
def env(mpi: str | None, report: str, program: str | None) -> None:
    """Print lines for a job script that preload Penstock into PROGRAM.

    \b
    Examples:
      eval "$(penstock env ./solver)"
      srun --export=ALL,LD_PRELOAD=$PENSTOCK_PRELOAD ./solver
    """
    if mpi is None and program is None:
        raise click.UsageError("name the program, or its MPI with --mpi")
    used = preload.mpi_of(program, mpi)
    added = preload.preloaded(used, {**os.environ, "LD_PRELOAD": ""})
    click.echo(f"# Penstock's collectives for programs with the {used.abi} ABI")
    click.echo(f"export PENSTOCK_PRELOAD={added['LD_PRELOAD']}")
    if "LD_LIBRARY_PATH" in added:
        click.echo(f"export LD_LIBRARY_PATH={added['LD_LIBRARY_PATH']}")
    click.echo(f"export PENSTOCK_PRELOAD_REPORT={report}")
    click.echo("# Slurm:        srun --export=ALL,LD_PRELOAD=$PENSTOCK_PRELOAD ./program")
    click.echo("# PBS, mpiexec: mpiexec -n 4 env LD_PRELOAD=$PENSTOCK_PRELOAD ./program")
