"""Parameter types that several commands share."""

from __future__ import annotations

import re
from typing import Any

import click

_SUFFIXES = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}
_SIZE = re.compile(r"(\d+) ?([KMGT]?)(?:i?B)?", re.IGNORECASE)
_LARGEST = (1 << 63) - 1


class Size(click.ParamType):
    """A size in bytes: 4096, 64K, 16M, 2G."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        match = _SIZE.fullmatch(value.strip())
        size = int(match[1]) << _SUFFIXES[match[2].upper()] if match else -1
        if not 0 <= size <= _LARGEST:
            self.fail(f"{value!r} is not a size; expected bytes such as 4096, 64K, 16M or 2G", param, ctx)
        return size


class Dimensions(click.ParamType):
    """Dimensions of a grid: 4x2."""

    name = "dimensions"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[int]:
        if isinstance(value, list):
            return value
        parts = value.split("x")
        if not all(re.fullmatch(r"[0-9]{1,9}", part) for part in parts):
            self.fail(f"{value!r} are not dimensions; expected numbers such as 4x2", param, ctx)
        return [int(part) for part in parts]


SIZE = Size()
DIMENSIONS = Dimensions()
COUNT = click.IntRange(0, _LARGEST)  #: A count.
INT = click.IntRange(-(1 << 31), (1 << 31) - 1)  #: A C int. The library checks the range further.
