"""Commands that all ranks of an mpiexec job run together."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import click

from penstock import spmd


class CollectiveCommand(click.Command):
    """Runs its callback inside ``spmd.program``: an error of one rank is reported once, and all ranks exit alike.

    All ranks have the same arguments, so rank 0 alone prints the help and reports invalid arguments.
    """

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> click.Context:
        if not spmd.launched_rank():
            return super().make_context(info_name, args, parent, **extra)
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                return super().make_context(info_name, args, parent, **extra)
        except click.ClickException as error:
            raise SystemExit(error.exit_code) from None

    def invoke(self, ctx: click.Context) -> Any:
        with spmd.program(ctx.command_path):
            return super().invoke(ctx)
