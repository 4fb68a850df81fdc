"""Output files of commands: checked at the start, written at the end, replaced atomically."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from penstock.error import Error


def require_writable(path: Path) -> None:
    """Raise penstock.Error if `write` could not create or replace `path` now. Local; leaves no file behind."""
    if path.is_dir():
        raise Error(f"the output '{path}' is a directory; give the name of a file", "io")
    if not path.parent.is_dir():
        raise Error(f"the directory of the output '{path}' does not exist; make it, or give another name", "not_found")
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}."):
            pass
    except OSError as error:
        raise Error(
            f"the output '{path}' cannot be written; give another name", "io", cause=error.strerror or ""
        ) from None


def write(path: Path, text: str) -> None:
    """Replace `path` by `text` atomically. Raises OSError. Local."""
    temporary = path.with_name(path.name + ".new")
    try:
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        error.filename, error.filename2 = str(path), None  # the name that the user gave
        raise
