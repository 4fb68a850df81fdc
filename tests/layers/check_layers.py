#!/usr/bin/env python3
"""Checks every #include of the project against the layer table in docs/architecture.md.

The table is the rule. A row has a folder, the folders that it may include, and the public headers that belong to it.
A public header obeys the row that it belongs to. `include` in the third column means all public headers that do not
use MPI. Only the rows `src/mpi/` and `src/preload/` include mpi.h. A .def table in include/penstock/ belongs to the row of the header
that includes it.

Each function of MPI that `src/mpi/` calls has a line in src/preload/own_calls.hpp: without it the preload library would
intercept Penstock's own call.

Mechanisms of the engine include no other one, also not by other headers. The parts of its messages between nodes include only parts
that are declared before them. (What a mechanism must say, and how few fields an operation has, the compiler checks:
tests/unit/engine/mechanism_test.cpp.)

A header of what runs plans has fewer than 400 lines with its .cpp file. What is done everywhere in one
way is defined once. A folder of collectives has the name of an operation in algorithms.def, and no planner only calls another one:
that is a row.

Usage: check_layers.py [--quiet] [ROOT]
Prints "ok FILE" (not with --quiet) or "not ok FILE" for each file. The exit status is 1 if one is not ok.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

SOURCES = {".cpp", ".hpp", ".c", ".h", ".def", ".inc"}
INCLUDE = re.compile(r'^\s*#\s*include\s+(?:[<"]([^>"]+)[>"]|(\w+))', re.MULTILINE)
MPI_HEADERS = {"mpi.h", "mpi_abi.h", "mpi_proto.h", "mpicxx.h", "PENSTOCK_MPI_HEADER"}
THE_MPI_LAYER = "mpi"
MPI_LAYERS = {THE_MPI_LAYER, "preload"}
#: They list the mechanisms, and the parts in their order.
MECHANISMS = Path("src/engine/routes.hpp")
PARTS = Path("src/engine/remote/remote_messages.hpp")
OWN_CALLS = Path("src/preload/own_calls.hpp")
COMMENT_OR_TEXT = re.compile(r'//.*|"[^"\n]*"')
CALL_OF_MPI = re.compile(r"\b(MPI_[A-Z][a-z]\w*)\s*\(")
CLASS = re.compile(r"^(?:class|struct) (\w+)[^;{]*\{", re.MULTILINE)
#: Where a class with its members stays small.
SMALL = ("engine", "comm", "plan")
MOST_LINES = 400
#: The checks of regions, of overlaps, the hash of arguments, a list of ranks in words. For other arguments one may call it.
DEFINED_ONCE = {
    "is_inside": "src/plan/region.hpp",
    "overlap": "src/base/overlap.hpp",
    "mix": "src/base/hash.hpp",
    "ranks_text": "src/base/ranks_text.cpp",
}
DEFINITION = re.compile(r"^(?:[\w:<>&*]+ )+(\w+)\([^;]*?\)(?: const)?(?: noexcept)? \{", re.MULTILINE)
ALGORITHMS = Path("src/collectives/algorithms.def")
ROW = re.compile(r"^PENSTOCK_ALGORITHM\w*\((\w+), ", re.MULTILINE)
NO_OPERATIONS = {"parts", "cost", "choose"}
FORWARDER = re.compile(r"^Plan (\w+)\([^)]*\) \{\n  return [^;]*;\n\}", re.MULTILINE)
SHORT_FILE = 16  # lines; a longer one has more than the call


@dataclass
class Layer:
    """One row of the table."""

    name: str
    folder: Path
    may_include: set[str]
    headers: set[str] = field(default_factory=set)


def names_in(cell: str) -> set[str]:
    """Return the names in a table cell, with any separators: `a` `b`, or a, b. A dash means none."""
    return {word for word in re.split(r"[\s,`]+", cell) if word and word not in {"–", "-", "—"}}


def read_table(document: Path) -> dict[str, Layer]:
    """Return the rows of the first Markdown table whose header starts with `folder`, by the folder's last component."""
    layers: dict[str, Layer] = {}
    inside = False
    for line in document.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.lstrip().startswith("|") else []
        if not inside:
            inside = len(cells) == 4 and cells[0] == "folder" and cells[2] == "may include"
            continue
        if len(cells) != 4:
            break
        if set(cells[0]) <= set("-: "):
            continue
        for folder in sorted(names_in(cells[0])):
            name = folder.rstrip("/").split("/")[-1]
            layers[name] = Layer(name, Path(folder), names_in(cells[2]), names_in(cells[3]))
    return layers


def check(root: Path) -> tuple[list[Path], list[tuple[Path, str]]]:
    """Return all checked files, and (file, what is wrong) for each violation."""
    document = root / "docs" / "architecture.md"
    layers = read_table(document)
    wrong: list[tuple[Path, str]] = []
    if not layers:
        return [document], [(document, "holds no table with the columns folder | holds | may include | public headers")]
    for layer in layers.values():
        for unknown in layer.may_include - set(layers) - {"include"}:
            wrong.append((document, f"`{layer.folder}` may include `{unknown}`, which is no folder of the table"))

    public = root / "include" / "penstock"
    header_layer = {header: layer.name for layer in layers.values() for header in layer.headers}
    for header in sorted(header_layer):
        if not (public / header).exists():
            wrong.append((document, f"`{header}` is in the table, but not in include/penstock/"))
    # A .def table belongs to the header that includes it. The order of the layer table makes the lowest layer win.
    for header, name in list(header_layer.items()):
        if (public / header).exists():
            for included in includes_of(public / header):
                if included.endswith(".def"):
                    header_layer.setdefault(Path(included).name, name)

    files: list[Path] = [document]
    for path in sorted(public.glob("*")):
        if path.suffix not in SOURCES:
            continue
        files.append(path)
        if path.name not in header_layer:
            wrong.append((path, f"belongs to no row of the table in {document.relative_to(root)}"))
            continue
        wrong += violations(path, layers[header_layer[path.name]], layers, header_layer)
    covered = set()
    for layer in layers.values():
        for path in sorted((root / layer.folder).rglob("*")):
            if path.suffix in SOURCES and path.is_file() and path not in covered:
                covered.add(path)
                files.append(path)
                wrong += violations(path, layer, layers, header_layer)
    for path in sorted((root / "src").rglob("*")):
        if path.suffix in SOURCES and path not in covered:
            files.append(path)
            wrong.append((path, "its folder has no row in the table"))
    wrong += arrows_in_the_engine(root) + calls_that_are_intercepted(root)
    return files, wrong + large_classes(root) + repeated_definitions(root) + misplaced_planners(root)


def lines_of(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines()) if path.exists() else 0


def large_classes(root: Path) -> list[tuple[Path, str]]:
    """Return (header, what is wrong) for each that is too large with its .cpp file."""
    headers = [path for layer in SMALL for path in sorted((root / "src" / layer).rglob("*.hpp"))]
    lines = {path: lines_of(path) + lines_of(path.with_suffix(".cpp")) for path in headers}
    return [
        (path, f"has {count} lines with its .cpp file; {MOST_LINES} are too many")
        for path, count in lines.items()
        if count >= MOST_LINES
    ]


def repeated_definitions(root: Path) -> list[tuple[Path, str]]:
    """Return (file, what is wrong) for each function of a name that another place has."""
    wrong = []
    for path in sorted((root / "src").rglob("*.[ch]pp")):
        text = path.read_text(encoding="utf-8")
        for name in sorted(set(DEFINITION.findall(text)) & set(DEFINED_ONCE)):
            if str(path.relative_to(root)) != DEFINED_ONCE[name] and f"base::{name}(" not in text:
                wrong.append((path, f"defines {name}(), as {DEFINED_ONCE[name]} does"))
    return wrong


def misplaced_planners(root: Path) -> list[tuple[Path, str]]:
    """Return (file, what is wrong) for each folder of no operation, and each planner that only calls another one."""
    if not (root / ALGORITHMS).exists():
        return []
    kinds = set(ROW.findall((root / ALGORITHMS).read_text(encoding="utf-8")))
    wrong = []
    for folder in sorted(path for path in (root / ALGORITHMS).parent.iterdir() if path.is_dir()):
        # `neighbor` has all operations of neighbourhoods, `scan` has exscan too.
        if folder.name not in NO_OPERATIONS and not any(kind.startswith(folder.name) for kind in kinds):
            wrong.append((folder, f"is the folder of no operation in {ALGORITHMS}"))
        for path in sorted(folder.glob("*.cpp")):
            text = path.read_text(encoding="utf-8")
            if len(text.splitlines()) < SHORT_FILE:
                wrong += [
                    (path, f"{name} only calls another planner: make it a row of {ALGORITHMS}")
                    for name in FORWARDER.findall(text)
                ]
    return wrong


def calls_that_are_intercepted(root: Path) -> list[tuple[Path, str]]:
    """Return (file, what is wrong) for each MPI function that is called but is not in the list of own calls."""
    if not (root / OWN_CALLS).exists():
        return []
    own = set(re.findall(r"^#define (MPI_\w+) ", (root / OWN_CALLS).read_text(encoding="utf-8"), re.MULTILINE))
    wrong = []
    for path in sorted((root / "src" / THE_MPI_LAYER).rglob("*.[ch]pp")):
        called = CALL_OF_MPI.findall(COMMENT_OR_TEXT.sub("", path.read_text(encoding="utf-8")))
        wrong += [
            (path, f"calls {name}, which has no line in {OWN_CALLS}; the preload library would intercept it")
            for name in sorted(set(called) - own)
        ]
    return wrong


def arrows_in_the_engine(root: Path) -> list[tuple[Path, str]]:
    """Return (header, what is wrong) for each mechanism and part that can use one that it must not know."""
    if not (root / MECHANISMS).exists():
        return []
    headers = (root / MECHANISMS).parent.rglob("*.hpp")
    home = {name: path for path in headers for name in CLASS.findall(path.read_text(encoding="utf-8"))}

    def listed(where: Path, pattern: str) -> list[str]:
        text = (root / where).read_text(encoding="utf-8") if (root / where).exists() else ""
        return [name for name in re.findall(pattern, text, re.MULTILINE) if name in home]

    mechanisms = listed(MECHANISMS, r"std::optional<(\w+)>")
    parts = listed(PARTS, r"^  (?:const )?(\w+) \w+_;$")
    unknown_to = {name: set(mechanisms) - {name} for name in mechanisms}
    unknown_to |= {name: set(parts[place + 1 :]) | set(mechanisms) for place, name in enumerate(parts)}
    wrong = [(root / MECHANISMS, "lists no mechanisms in a form that this check reads")] if not mechanisms else []
    for name, unknown in unknown_to.items():
        reached: set[Path] = set()
        left = [home[name], home[name].with_suffix(".cpp")]
        while left:
            path = left.pop()
            if path in reached or not path.exists():
                continue
            reached.add(path)
            left += [root / "src" / included for included in includes_of(path)]
        wrong += [
            (home[name], f"can use {other}, which {name} must not know")
            for other in sorted(unknown)
            if home[other] in reached
        ]
    return wrong


def includes_of(path: Path) -> list[str]:
    return [bracketed or macro for bracketed, macro in INCLUDE.findall(path.read_text(encoding="utf-8"))]


def violations(
    path: Path, layer: Layer, layers: dict[str, Layer], header_layer: dict[str, str]
) -> list[tuple[Path, str]]:
    wrong = []
    for included in includes_of(path):
        first, _, rest = included.partition("/")
        if included in MPI_HEADERS:
            if layer.name not in MPI_LAYERS:
                wrong.append((path, f"includes {included}; only src/{THE_MPI_LAYER} and its public headers may"))
        elif first == "penstock":
            owner = header_layer.get(rest)
            if owner is None:
                wrong.append((path, f"includes {included}, which belongs to no row of the table"))
            elif not (
                owner == layer.name
                or owner in layer.may_include
                or ("include" in layer.may_include and owner != THE_MPI_LAYER)
            ):
                wrong.append((path, f"includes {included} of {owner}, but {layer.name} may not include {owner}"))
        elif rest and first in layers and first != layer.name and first not in layer.may_include:
            wrong.append((path, f"includes {included}, but {layer.name} may not include {first}"))
        elif included.startswith(".."):
            wrong.append((path, f"includes {included}; write the path from src/ or include/"))
    return wrong


def main() -> int:
    arguments = sys.argv[1:]
    quiet = "--quiet" in arguments
    roots = [argument for argument in arguments if argument != "--quiet"] or [Path(__file__).parents[2]]
    root = Path(roots[0]).resolve()
    files, wrong = check(root)
    for path in [*files, *sorted({where for where, _ in wrong} - set(files))]:
        reasons = [reason for where, reason in wrong if where == path]
        if reasons or not quiet:
            print("not ok" if reasons else "ok", path.relative_to(root))
        for reason in reasons:
            print("   ", reason)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
