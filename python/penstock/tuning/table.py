"""The tuning table that communicators read (PENSTOCK_TUNING)."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

from penstock import output_file
from penstock.error import Error
from penstock.tuning.outcome import Outcome

#: Version 2 added the reasons for a choice. Readers ignore unknown members.
FORMAT, VERSION = "penstock-tuning", 2
OLDEST_VERSION = 1  #: Lacks MPI's own collective among the candidates.


def require_table(path: Path) -> None:
    """Raise penstock.Error unless `write_table` may write here: the path is free or holds a table of a known version."""
    try:
        old = json.loads(path.read_text())
        is_table, version = old["format"] == FORMAT, old["version"]
    except FileNotFoundError:
        return
    except OSError as error:
        raise Error(
            f"the table '{path}' cannot be read, so it cannot be completed", "io", cause=error.strerror or str(error)
        ) from None
    except (ValueError, KeyError, TypeError):
        is_table, version = False, None
    if not is_table:
        raise Error(
            f"'{path}' is not a tuning table, so it was not overwritten; give another name, or remove the file",
            "exists",
        )
    if version not in range(OLDEST_VERSION, VERSION + 1):
        raise Error(
            f"the table '{path}' has version {version}; expected {OLDEST_VERSION} to {VERSION}; give another name",
            "unsupported",
        )


def _nanoseconds(seconds: float) -> int:
    return max(1, round(seconds * 1e9))


def _candidate(each: dict[str, Any]) -> dict[str, Any]:
    """A candidate, with the 95% interval of its median if it was measured."""
    spread = {}
    if "low_s" in each:
        spread = {"low_nanoseconds": _nanoseconds(each["low_s"]), "high_nanoseconds": _nanoseconds(each["high_s"])}
        spread["rounds"] = each["rounds"]
    return {
        "algorithm": each["algorithm"],
        "segment_bytes": each["segment_bytes"],
        "nanoseconds": _nanoseconds(each["seconds"]),
        **spread,
    }


def _evidence(point: dict[str, Any]) -> dict[str, Any]:
    """Why the first candidate is the choice. Ratios are other time / choice's time with a 95% interval; an end is null if too
    few measurements leave it open."""
    return {
        "why": point["why"],
        "default": point["default"],
        "noise": round(point["noise"], 4),
        "runner_up": point["runner_up"],
        "runner_up_ratio": _ratio(point["runner_up_ratio"]),
        "default_ratio": _ratio(point["default_ratio"]),
    }


def _ratio(ratio: tuple[float, float, float] | None) -> list[float | None] | None:
    return None if ratio is None else [round(each, 4) if 0 < each < math.inf else None for each in ratio]


def write_table(path: Path, outcome: Outcome) -> None:
    """Write the outcome to the file. It replaces an entry with the same key; other entries stay."""
    content: dict[str, Any] = {"format": FORMAT, "version": VERSION, "tables": []}
    try:
        old = json.loads(path.read_text())
        # An entry of version 1 becomes one of version 2 that lacks MPI's own collective.
        if old["format"] == FORMAT and old["version"] in range(OLDEST_VERSION, VERSION + 1):
            content["tables"] = [t for t in old["tables"] if any(t[k] != v for k, v in outcome.key.items())]
    except (OSError, ValueError, KeyError, TypeError):
        pass  # no table that a communicator would read
    operations = [
        {
            "operation": operation,
            "points": [
                {
                    "bytes": size,
                    "native_nanoseconds": round(point["native_s"] * 1e9),
                    "measured": point.get("measured", True),  # else interpolated
                    **_evidence(point),
                    "candidates": [_candidate(each) for each in point["candidates"]],
                }
                for size, point in sorted(points.items())
            ],
        }
        for operation, points in outcome.operations.items()
    ]
    content["tables"].append({**outcome.key, "made": time.strftime("%Y-%m-%d %H:%M"), "operations": operations})
    output_file.write(path, json.dumps(content, indent=1) + "\n")
