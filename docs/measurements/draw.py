"""Draws results.svg, the picture of the README, from the JSON files beside it.

Every point is a ratio that a page of this folder holds; nothing is left out of a table that is drawn. `--check` only
says whether the picture is the one that the files give.
"""

from __future__ import annotations

import argparse
import json
import math
from html import escape
from pathlib import Path

FOLDER = Path(__file__).parent
PICTURE = FOLDER / "results.svg"

WIDTH, LEFT, RIGHT = 860, 250, 24
ROW, GROUP, TOP, BOTTOM = 21, 34, 58, 44
LEAST, MOST = 0.6, 50.0
TICKS = (0.75, 1, 1.5, 2, 3, 5, 10, 20, 40)
SHORT = ("8 B", "256 B", "1 KiB", "2 KiB", "4 KiB")

STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #24292f; }
  .title { font-size: 16px; font-weight: 600; } .group { font-weight: 600; } .small { font-size: 11px; fill: #57606a; }
  .grid { stroke: #d0d7de; } .one { stroke: #57606a; stroke-width: 1.5; }
  .long { fill: #0969da; fill-opacity: 0.75; } .short { fill: none; stroke: #0969da; stroke-width: 1.5; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; } .small { fill: #9198a1; } .grid { stroke: #3d444d; } .one { stroke: #9198a1; }
    .long { fill: #58a6ff; } .short { stroke: #58a6ff; }
  }
"""


def table(name: str, index: int) -> dict:
    return json.loads((FOLDER / name).read_text())["tables"][index]


def by_size(rows: dict) -> dict[str, list[tuple[str, float]]]:
    return {row: [(size, point["ratio"]) for size, point in sizes.items()] for row, sizes in rows.items()}


def against(rows: dict, key: str) -> list[tuple[str, float]]:
    return [(case, point[key]) for case, point in rows.items()]


def groups() -> list[tuple[str, dict[str, list[tuple[str, float]]]]]:
    """Title of a group → its rows → (what, ratio)."""
    nodes, node = table("collectives-between-nodes.json", 0), table("collectives-on-a-node.json", 0)
    in_turns: dict[str, list[tuple[str, float]]] = {}
    for index in range(1, 5):
        for operation, points in by_size(table("collectives-on-a-node.json", index)["rows"]).items():
            in_turns.setdefault(operation, []).extend(points)
    moved = [table("redistribution.json", index)["rows"] for index in (0, 1)]
    written = table("store.json", 0)["rows"]
    return [
        ("Collectives between 4 nodes, against the best MPI", by_size(nodes["rows"])),
        ("Collectives on a node, against the best MPI", by_size(node["rows"])),
        ("Collectives on a node, 2 and 4 ranks, against the MPI below", in_turns),
        (
            "Redistribution of 8192 x 8192",
            {
                "against COSTA": [point for rows in moved for point in against(rows, "costa_ratio")],
                "against ScaLAPACK": [point for rows in moved for point in against(rows, "scalapack_ratio")],
            },
        ),
        (
            "Atomic writes by 8 writers",
            {
                "against ROMIO's atomic mode": against(written, "romio_atomic_ratio"),
                "against plain files (the limit)": against(written, "plain_files_ratio"),
            },
        ),
    ]


def x_of(ratio: float) -> float:
    if not LEAST <= ratio <= MOST:
        raise ValueError(f"the ratio {ratio} does not fit on the axis from {LEAST} to {MOST}")
    return LEFT + (WIDTH - LEFT - RIGHT) * math.log(ratio / LEAST) / math.log(MOST / LEAST)


def drawn() -> str:
    parts: list[str] = []
    y = TOP
    for title, rows in groups():
        y += GROUP
        parts.append(f'<text class="group" x="16" y="{y - 10}">{escape(title, quote=False)}</text>')
        for name, points in rows.items():
            parts.append(f'<text x="28" y="{y + 10}">{escape(name, quote=False)}</text>')
            for what, ratio in points:
                kind = "short" if what in SHORT else "long"
                label = escape(f"{name}, {what}: {ratio:g}", quote=False)
                parts.append(
                    f'<circle class="{kind}" cx="{x_of(ratio):.1f}" cy="{y + 6}" r="4.5"><title>{label}</title></circle>'
                )
            y += ROW
    bottom = y + 8
    for tick in TICKS:
        kind = "one" if tick == 1 else "grid"
        at = f"{x_of(tick):.1f}"
        parts.insert(0, f'<line class="{kind}" x1="{at}" x2="{at}" y1="{TOP}" y2="{bottom}"/>')
        parts.append(f'<text class="small" x="{at}" y="{bottom + 16}" text-anchor="middle">{tick:g}x</text>')
    head = (
        '<text class="title" x="16" y="24">Time of the peer divided by the time of Penstock</text>'
        '<text class="small" x="16" y="44">Right of 1x Penstock is faster. Hollow: messages of 4 KiB and less. '
        "Virtual machines with 2 cores, November 2026; see docs/measurements.</text>"
    )
    size = f'width="{WIDTH}" height="{bottom + BOTTOM}" viewBox="0 0 {WIDTH} {bottom + BOTTOM}"'
    body = "\n".join(parts)
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img"><style>{STYLE}</style>\n{head}\n{body}\n</svg>\n'


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; status 1 if the picture is another")
    if parser.parse_args().check:
        same = PICTURE.is_file() and PICTURE.read_text() == drawn()
        print("up to date" if same else f"run python {PICTURE.parent.name}/draw.py: {PICTURE.name} is another")
        return 0 if same else 1
    PICTURE.write_text(drawn())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
