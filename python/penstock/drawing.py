"""Access to matplotlib, an optional dependency: every plot imports it through here."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from penstock.error import Error

#: Help text of options that draw.
NEEDS_MATPLOTLIB = "PNG, SVG or PDF, by the name of the file; needs matplotlib (pip install 'penstock[plot]')."


def import_matplotlib() -> Any:
    """``matplotlib``. Raises Error("unsupported"), which says what to install, if it cannot be imported."""
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise Error(
            "a plot needs matplotlib; install it: pip install 'penstock[plot]', or pip install matplotlib",
            "unsupported",
            cause=str(error),
        ) from error
    return mpl


def pyplot() -> Any:
    """matplotlib.pyplot with a file backend."""
    import_matplotlib().use("Agg")
    from matplotlib import pyplot as found

    return found


def check_path(path: str | os.PathLike[str]) -> None:
    """Raise the errors of `save` early, before a long computation."""
    import_matplotlib()
    from matplotlib.backend_bases import FigureCanvasBase

    place = Path(path)
    known = FigureCanvasBase.get_supported_filetypes()
    if place.is_dir():
        raise Error(f"cannot write the plot to {path}: it is a directory; name a file, such as plot.png")
    if place.suffix[1:].lower() not in known:
        given = f"ends with {place.suffix}" if place.suffix else "says no format"
        raise Error(f"cannot write the plot to {path}: its name {given}; expected one that ends with {_of(known)}")
    writable = place if place.exists() else place.parent
    if not os.access(writable, os.W_OK):
        reason = "no write permission" if writable.exists() else f"there is no directory {writable}"
        raise Error(f"cannot write the plot to {path}", "io", cause=reason)


def save(figure: Any, path: str | os.PathLike[str], dpi: int = 120) -> None:
    """Write an image file. The suffix of its name chooses the format."""
    check_path(path)
    try:
        figure.savefig(path, dpi=dpi)
    except (OSError, ValueError) as error:
        raise Error(f"cannot write the plot to {path}", "io", cause=str(error)) from error


def _of(known: dict[str, str]) -> str:
    return " or ".join(f".{name}" for name in ("png", "svg", "pdf") if name in known)
