"""Manual pages of all commands: man.py DIRECTORY."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from click_man.core import write_man_pages
from penstock.cli import main, version


def loaded(command: click.Command, context: click.Context) -> click.Command:
    """The command with all its commands, which the command line loads only when they are called."""
    if not isinstance(command, click.Group):
        return command
    commands = {name: command.get_command(context, name) for name in command.list_commands(context)}
    found = {name: loaded(each, click.Context(each, parent=context)) for name, each in commands.items() if each}
    return click.Group(command.name, commands=found, params=command.params, help=command.help)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    write_man_pages("penstock", loaded(main, click.Context(main)), version=version(), target_dir=str(folder))
