"""Penstock moves the data of parallel programs while their cores compute.

Importing it needs neither MPI nor mpi4py: every public name is loaded from its part on first use.
"""

from __future__ import annotations

import importlib

from penstock.error import Error

# One line per part: the module and the public names that it has.
_PARTS = {
    "checkpoint": ("Checkpointer", "CheckpointHandle"),
    "comm": ("Comm",),
    "dataset": ("Dataset",),
    "file": ("File",),
    "layout": ("Layout", "LayoutBlock", "DistArray"),
    "redistribute": ("Redistribution", "Relabeling", "TransferCost", "relabel"),
    "request": ("Request", "Prequest"),
    "store": ("Blob", "Snapshot", "Store"),
}

_MODULES = ("model", "plan", "trace")

_HOME = {name: part for part, names in _PARTS.items() for name in names}

__all__ = ["Error", *_MODULES, *_HOME]


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return importlib.import_module(f"penstock.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"penstock.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
