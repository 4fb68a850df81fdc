"""What a search has measured, kept beside its table so that a search that was cut short goes on where it ended."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


class Journal:
    """Equal on all ranks; made and written to by all of them in the same order. Rank 0 has the file."""

    def __init__(self, world: Any, key: dict[str, Any], path: Path, again: bool) -> None:
        self._world = world
        self._key = key
        self._path = path
        self._known: dict[str, Any] = world.bcast(self._resumed() if world.rank == 0 and not again else {})
        self.spent: dict[str, float] = dict(self._known.get("spent", {}))  #: seconds of each part of the search

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def __getitem__(self, name: str) -> Any:
        return self._known[name]

    def keep(self, values: dict[str, Any]) -> None:
        self._known.update(values)
        if self._world.rank == 0:
            temporary = self._path.with_name(self._path.name + ".new")
            temporary.write_text(json.dumps({"key": self._key, "done": {**self._known, "spent": self.spent}}))
            os.replace(temporary, self._path)

    def _resumed(self) -> dict[str, Any]:
        try:
            state = json.loads(self._path.read_text())
            return state["done"] if state["key"] == self._key else {}
        except (OSError, ValueError, KeyError):
            return {}
