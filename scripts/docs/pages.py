"""Hooks of the documentation site: pages that are generated, lists of pages that grow, and links out of docs/."""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(Path(__file__).parent))

import headers  # noqa: E402

#: C has two headers; all others are C++.
C_HEADERS = ("penstock.h", "penstock_mpi.h")

#: Files outside docs/ that are pages of the site, and where.
OUTSIDE = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}


def generated() -> dict[str, str]:
    """Path → text of the pages that are no files of docs/."""
    pages = {
        "changelog.md": (ROOT / "CHANGELOG.md").read_text(),
        "contributing.md": (ROOT / "CONTRIBUTING.md").read_text(),
        "reference/command-line.md": _command_line(),
        "reference/options.md": _options(),
        "reference/errors/index.md": _errors(),
    }
    for path in sorted((ROOT / "python/penstock/errors").glob("*.md")):
        pages[f"reference/errors/{path.name}"] = path.read_text()
    for header in sorted((ROOT / "include/penstock").glob("*.h*")):
        language = "c" if header.name in C_HEADERS else "cpp"
        pages[f"reference/{language}/{header.name.replace('.', '_')}.md"] = headers.page(header)
    pages |= _python()
    return pages


def _python() -> dict[str, str]:
    import penstock

    titles = {"_penstock": "", "call": "CollectiveOptions", "layout_convert": "Darray and Subarray"}
    pages = {}
    for part, names in penstock._PARTS.items():
        if part.startswith("_"):
            continue
        title = titles.get(part, part.replace("_", " ").capitalize())
        blocks = [f"::: penstock.{part}.{name}" for name in names]
        pages[f"reference/python/{part}.md"] = "\n\n".join([f"# {title}", *blocks]) + "\n"
    for module in penstock._MODULES:
        if f"reference/python/{module}.md" not in pages:
            pages[f"reference/python/{module}.md"] = f"# {module.capitalize()}\n\n::: penstock.{module}\n"
    pages["reference/python/error.md"] = "# Error\n\n::: penstock.error.Error\n"
    pages["reference/python/torch.md"] = (
        "# PyTorch\n\n::: penstock.torch.creation.Options\n\n::: penstock.torch.process_group.ProcessGroup\n"
    )
    return pages


def _command_line() -> str:
    """The help of every command, as the command line prints it."""
    import click
    from penstock.cli import main

    lines = [
        "# Command line",
        "",
        "Every command takes `--json`, whose keys are a stable interface. An error is one line on standard error. The exit "
        "status is 2 for invalid arguments and 1 for other failures.",
        "",
    ]

    def add(command: click.Command, path: str, parent: click.Context | None, depth: int) -> None:
        context = click.Context(command, info_name=path.rpartition(" ")[2], parent=parent, max_content_width=96)
        context.terminal_width = 96
        lines.extend([f"{'#' * depth} {path}", "", "```text", context.get_help().rstrip(), "```", ""])
        for name in command.list_commands(context) if isinstance(command, click.Group) else ():
            child = command.get_command(context, name)
            assert child is not None
            add(child, f"{path} {name}", context, min(depth + 1, 4))

    add(main, "penstock", None, 2)
    return "\n".join(lines)


def _options() -> str:
    from penstock import _penstock

    rows = [
        "# Options",
        "",
        "Each option is an environment variable, a keyword in Python where it belongs to a communicator, and a row of "
        "`penstock info --options`.",
        "",
        "| variable | type | default | meaning |",
        "|---|---|---|---|",
    ]
    for _, variable, kind, default, meaning in _penstock.option_table():
        rows.append(
            f"| `{variable}` | {kind} | {f'`{default}`' if default else ''} | {meaning.replace('|', '&#124;')} |"
        )
    rows += ["", "A Size is in bytes, with an optional suffix K, M or G. A Switch is on or off."]
    return "\n".join(rows) + "\n"


def _errors() -> str:
    from penstock.cli.explain import pages

    rows = [f"| [`{code}`]({code}.md) | {number} | {meaning} |" for code, (number, meaning, _) in pages().items()]
    head = (
        "# Errors\n\nEvery failure has a code: `error.code` in Python, `error.code()` in C++, the returned number in C. "
        "`penstock explain CODE` prints these pages.\n\n| code | number | meaning |\n|---|---|---|\n"
    )
    return head + "\n".join(rows) + "\n"


def on_config(config: Any) -> Any:
    """Fill the lists of the navigation."""
    pages = generated()
    docs = Path(config.docs_dir)

    def under(prefix: str) -> list[str]:
        return sorted((name for name in pages if name.startswith(prefix)), key=lambda name: ("index" not in name, name))

    measured = sorted(path.name for path in (docs / "measurements").glob("*.md") if path.name != "README.md")
    lists = {
        "Reference": [
            {"Python": under("reference/python/")},
            {"C++": under("reference/cpp/")},
            {"C": under("reference/c/")},
            "reference/command-line.md",
            "reference/options.md",
            {"Errors": under("reference/errors/")},
        ],
        "Explanation": sorted(f"design/{path.name}" for path in (docs / "design").glob("*.md")),
        "Measurements": [f"measurements/{name}" for name in ("README.md", *measured)],
    }
    for entry in config.nav:
        for title, more in lists.items():
            if title in entry:
                entry[title] = [*entry[title], *more]
    return config


def on_files(files: Files, config: Any) -> Files:
    for name, text in generated().items():
        files.append(File.generated(config, name, content=text))
    css = Path(__file__).with_name("site.css")
    files.append(File.generated(config, "assets/site.css", abs_src_path=str(css)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links are right in the repository; some lead to other places of the site, or out of it."""
    here = page.file.src_uri

    def of_site(match: re.Match[str]) -> str:
        text, target = match[1], match[2]
        path, mark, anchor = target.partition("#")
        if not path or re.match(r"[a-z]+:", path):
            return match[0]
        place = _in_repository(here, path)
        if place in OUTSIDE:
            return f"[{text}]({_relative(here, OUTSIDE[place])}{mark}{anchor})"
        if place.startswith("python/penstock/errors/"):
            return f"[{text}]({_relative(here, 'reference/errors/' + Path(place).name)}{mark}{anchor})"
        if here.startswith(("reference/c/", "reference/cpp/")):
            return match[0]
        if place.startswith("docs/") and (ROOT / place).is_file():
            return f"[{text}]({_relative(here, place.removeprefix('docs/'))}{mark}{anchor})"
        return text  # a source file, or a folder

    return re.sub(r"(?<!!)\[([^\]]+)\]\(([^()\s]+)\)", of_site, markdown)


def _in_repository(here: str, path: str) -> str:
    """The file that a link of a page leads to, from the root of the repository."""
    origin = {"changelog.md": ".", "contributing.md": "."}.get(here)
    if origin is None:
        errors = here.startswith("reference/errors/")
        origin = "python/penstock/errors" if errors else str(Path("docs", here).parent)
    return posixpath.normpath(posixpath.join(origin, path))


def _relative(here: str, target: str) -> str:
    return posixpath.relpath(target, posixpath.dirname(here) or ".")
