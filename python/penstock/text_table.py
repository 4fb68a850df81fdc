"""Text tables for the terminal. Output to a file or pipe has unlimited width."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Sequence

_GAP = "  "
_NUMBER = re.compile(r"[-+]?[\d,.]*\d[\d,.eE+-]*( ?(s|ms|µs|%|x))?|-|")


def terminal_columns() -> int | None:
    """The width of the terminal on standard output. None for a file or a pipe."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def columns(lines: Sequence[Sequence[str]], keys: int = 1, width: int | None = None) -> str:
    """Format rows of equally many entries, headings first, in aligned columns: numbers right, words left.

    If a terminal (or `width`) is too narrow, the table is split into several, each starting with the first `keys` columns,
    which identify the rows. If not even one more column fits, each row becomes a paragraph with one line per entry.
    """
    width = terminal_columns() if width is None else width
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    groups = _groups(widths, keys, width)
    if groups is None:
        return "\n\n".join(_paragraph(lines[0], line) for line in lines[1:])
    return "\n\n".join(_aligned(lines, widths, group) for group in groups)


def entry(name: str, text: str, name_columns: int) -> str:
    """A name and its description. In a narrow terminal the description wraps below itself."""
    width = terminal_columns()
    head = name.ljust(name_columns) + _GAP
    if width is None or len(head) + len(text) <= width:
        return head + text
    indent = len(head) if len(head) <= width // 2 else 4
    return textwrap.fill(text, max(width, 20), initial_indent=head, subsequent_indent=" " * indent)


def _groups(widths: list[int], keys: int, width: int | None) -> list[list[int]] | None:
    """The columns of each table. None if one column is wider than `width`."""
    keyed, others = list(range(min(keys, len(widths)))), range(keys, len(widths))
    groups = [[*keyed]]
    for column in others:
        if width is not None and _length(widths, [*groups[-1], column]) > width and len(groups[-1]) > len(keyed):
            groups.append([*keyed])
        groups[-1].append(column)
    fits = width is None or all(_length(widths, group) <= width for group in groups)
    return groups if fits else None


def _length(widths: list[int], group: list[int]) -> int:
    return sum(widths[column] for column in group) + len(_GAP) * (len(group) - 1)


def _aligned(lines: Sequence[Sequence[str]], widths: list[int], group: list[int]) -> str:
    to_the_right = {column for column in group if all(_NUMBER.fullmatch(line[column]) for line in lines[1:])}
    return "\n".join(
        _GAP.join(
            line[column].rjust(widths[column]) if column in to_the_right else line[column].ljust(widths[column])
            for column in group
        ).rstrip()
        for line in lines
    )


def _paragraph(headings: Sequence[str], line: Sequence[str]) -> str:
    longest = max(map(len, headings))
    return "\n".join(f"{heading.ljust(longest)}{_GAP}{cell}" for heading, cell in zip(headings, line)).rstrip()
