"""Docstrings name each other by Sphinx's roles, :meth:`Store.list`; the site's pages are Markdown."""

from __future__ import annotations

import re
from typing import Any

import griffe

_ROLE = re.compile(r":(?:meth|class|func|attr|mod|data|exc|obj):`~?([^`]+)`")


class Roles(griffe.Extension):  # type: ignore[misc]
    """Replaces a role by the name alone, as code."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = _ROLE.sub(r"`\1`", obj.docstring.value)
