"""The table that communicators read (PENSTOCK_TUNING)."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from penstock.tuning.outcome import Outcome

FORMAT, VERSION = "penstock-tuning", 2


def write_table(path: Path, outcome: Outcome) -> None:
    """Put what was found into the file, in the place of an older part for the same key; other parts stay."""
    content: dict[str, Any] = {"format": FORMAT, "version": VERSION, "tables": []}
    try:
        old = json.loads(path.read_text())
        # A part of version 1 becomes one of this: its candidates lack MPI's own.
        if old["format"] == FORMAT and old["version"] in (1, VERSION):
            content["tables"] = [t for t in old["tables"] if any(t[k] != v for k, v in outcome.key.items())]
    except (OSError, ValueError, KeyError, TypeError):
        pass  # no table, or none that a communicator would read
    operations = [
        {
            "operation": operation,
            "points": [
                {
                    "bytes": size,
                    "native_nanoseconds": round(point["native_s"] * 1e9),
                    "measured": point.get("measured", True),  # or else between two that were
                    "candidates": [
                        {
                            "algorithm": each["algorithm"],
                            "segment_bytes": each["segment_bytes"],
                            "nanoseconds": max(1, round(each["seconds"] * 1e9)),
                        }
                        for each in point["candidates"]
                    ],
                }
                for size, point in sorted(points.items())
            ],
        }
        for operation, points in outcome.operations.items()
    ]
    content["tables"].append({**outcome.key, "made": time.strftime("%Y-%m-%d %H:%M"), "operations": operations})
    temporary = path.with_name(path.name + ".new")
    temporary.write_text(json.dumps(content, indent=1) + "\n")
    os.replace(temporary, path)
