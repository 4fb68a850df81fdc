"""Progress of long work on standard error, if that is a terminal. Otherwise nothing is printed."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any


def _shown(*columns: Any) -> Any:
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    text = TextColumn("{task.description}")
    return Progress(SpinnerColumn(), text, *columns, TimeElapsedColumn(), console=console, transient=True)


@contextlib.contextmanager
def working(what: str) -> Iterator[None]:
    """Show for how long a call of unknown length has been running. It must release the GIL."""
    if not sys.stderr.isatty():
        yield
        return
    with _shown() as progress:
        progress.add_task(what, total=None)
        yield


@contextlib.contextmanager
def bar(what: str, shown: bool = True) -> Iterator[Callable[[int, int | None], None]]:
    """Yields a function that takes (done, total) and moves a bar, with the time that is left if there is a total."""
    if not (shown and sys.stderr.isatty()):
        yield lambda done, total: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TimeRemainingColumn

    with _shown(BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
