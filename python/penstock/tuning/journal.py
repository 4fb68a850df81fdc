"""The journal of a search: its measurements, kept beside the table, so that an interrupted search can resume."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from penstock import output_file, spmd

VERSION = 2  #: Of the file format. Another version is not resumed.


class Journal:
    """Measurements by name. Equal on all ranks; all ranks make it and write to it in the same order. Rank 0 owns the file."""

    def __init__(self, world: Any, key: dict[str, Any], path: Path, again: bool) -> None:
        self._world = world
        self._key = key
        self._path = path
        self._known: dict[str, Any] = spmd.from_root(world, lambda: {} if again else self._resumed())
        self.spent: dict[str, float] = dict(self._known.get("spent", {}))  #: Seconds of each part of the search.

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def __getitem__(self, name: str) -> Any:
        return self._known[name]

    def keep(self, values: dict[str, Any]) -> None:
        """Add measurements. Raises penstock.Error on all ranks if the file cannot be written."""
        self._known.update(values)
        state = {"version": VERSION, "key": self._key, "done": {**self._known, "spent": self.spent}}
        spmd.from_root(self._world, lambda: output_file.write(self._path, json.dumps(state)))

    def _resumed(self) -> dict[str, Any]:
        try:
            state = json.loads(self._path.read_text())
            return state["done"] if (state["version"], state["key"]) == (VERSION, self._key) else {}
        except (FileNotFoundError, ValueError, KeyError):
            return {}
