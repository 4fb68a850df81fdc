"""The command line, `penstock`. A command is a module of this package and one line of `_COMMANDS`."""

from __future__ import annotations

import importlib
import os
import sys

import click

from penstock.error import Error

# Name → module; the module has a click command of the command's name. Loaded when used: `penstock --help` is quick.
_COMMANDS = {
    "bench": "penstock.cli.bench",
    "info": "penstock.cli.info",
    "store": "penstock.cli.store",
    "plan": "penstock.cli.plan",
    "model": "penstock.cli.model",
    "tune": "penstock.cli.tune",
}


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        return getattr(importlib.import_module(_COMMANDS[name]), name)

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except Error as error:
            raise click.ClickException(f"{error} ({error.code})") from None
        except BrokenPipeError:
            # The reader of a pipe has what it wanted; Python must not complain about it while it exits.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise SystemExit(1) from None


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="penstock", message="%(prog)s %(version)s")
def main() -> None:
    """Moves the data of parallel programs behind their computation.

    Every command takes --json; the keys of what it prints are part of the interface.
    """
