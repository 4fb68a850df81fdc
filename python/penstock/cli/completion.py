"""penstock completion: the script with which a shell completes commands, options and their values."""

from __future__ import annotations

import json

import click
from click.shell_completion import get_completion_class

_SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def completion(shell: str, as_json: bool) -> None:
    """Print the script with which SHELL completes penstock's commands and options.

    Write it where the shell looks: ~/.local/share/bash-completion/completions/penstock for bash, _penstock in a folder of
    fpath for zsh, ~/.config/fish/completions/penstock.fish for fish.

    \b
    Examples:
      penstock completion bash
      penstock completion fish
    """
    from penstock.cli import main

    complete = get_completion_class(shell)
    assert complete is not None
    script = complete(main, {}, "penstock", "_PENSTOCK_COMPLETE").source()
    click.echo(json.dumps({"shell": shell, "script": script}) if as_json else script)
