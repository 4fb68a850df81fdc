"""Checks the pages: links work, each page has the form of its kind, and the things that it names exist."""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
DESIGN = sorted((DOCS / "design").glob("*.md"))
MEASUREMENTS = sorted(page for page in (DOCS / "measurements").glob("*.md") if page.name != "README.md")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]
MOST_DESIGN_LINES = 150
MOST_README_LINES = 119

FENCE = re.compile(r"^ *(```+|~~~+).*?^ *\1 *$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]+`")
LINK = re.compile(r"\]\(([^()\s]+)\)")
TIMING = re.compile(r"(?<![\w.-])\d[\d.,]*\s?(?:µs|us|ms|ns|[KMG]B/s|GiB/s|MiB/s)(?!\w)")


@functools.cache
def tracked() -> list[str]:
    done = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [name for name in done.stdout.splitlines() if (ROOT / name).is_file()]


def prose(text: str) -> str:
    """Return the text without blocks and words of code, which have no links."""
    return CODE.sub("", FENCE.sub("", text))


def anchors(text: str) -> set[str]:
    """Return the anchors that GitHub makes of the headings."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ +(.+?) *$", FENCE.sub("", text), re.MULTILINE):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        number = 0
        while (name := f"{slug}-{number}" if number else slug) in found:
            number += 1
        found.add(name)
    return found


def broken_links(page: Path, text: str) -> Iterator[str]:
    for target in LINK.findall(prose(text)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists():
            yield f"{target}: there is no such file"
        elif anchor and anchor not in anchors(text if file == page else file.read_text()):
            yield f"{target}: {file.name} has no such heading"


def terms(glossary: str) -> list[str]:
    """Return the bold terms in the first column of the tables. `a / b` and `a, b` are two terms."""
    rows = re.findall(r"^\| \*\*(.+?)\*\* \|", glossary, re.MULTILINE)
    return [term for row in rows for term in re.split(r" / |, ", row)]


def missing_in(text: str) -> list[str]:
    """Return what a page of measurements lacks. Its command is a block of shell, or a program."""
    wanted = {
        "**Date**": r"\*\*Date\*\* \| .*20\d\d-\d\d-\d\d",
        "**Machine**": r"\*\*Machine\*\* \| \S",
        "**Versions**": r"\*\*Versions\*\* \| \S",
        "**Command.**": r"\*\*Command\.\*\*.*?^```(?:sh|python)$",
    }
    return [name for name, pattern in wanted.items() if not re.search(pattern, text, re.MULTILINE | re.DOTALL)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert list(broken_links(page, page.read_text())) == []


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= MOST_README_LINES


@pytest.mark.parametrize("page", DESIGN, ids=lambda page: page.name)
def test_a_design_page_states_its_problem_is_short_and_holds_no_timing(page: Path) -> None:
    text = page.read_text()
    assert "**Problem.**" in text
    lines = len(text.splitlines())
    assert lines <= MOST_DESIGN_LINES, f"{lines} lines; split it by subject, or cut what is history"
    assert TIMING.findall(text) == [], "timings belong to docs/measurements"


@pytest.mark.parametrize("page", MEASUREMENTS, ids=lambda page: page.name)
def test_a_page_of_measurements_says_when_where_and_how(page: Path) -> None:
    assert missing_in(page.read_text()) == []
    assert f"({page.name})" in (page.parent / "README.md").read_text(), "the index lacks it"


@pytest.mark.parametrize("page", sorted((DOCS / "measurements").glob("*.json")), ids=lambda page: page.name)
def test_figures_for_the_picture_are_those_of_the_page(page: Path) -> None:
    data = json.loads(page.read_text())
    text = (page.parent / data["source"]).read_text()
    for table in data["tables"]:
        assert table["date"] in text
        if "mean" in table["case"]:
            continue  # each is the mean of two figures on the page
        for row in table["rows"].values():
            points = row.values() if all(isinstance(point, dict) for point in row.values()) else [row]
            for number in (number for point in points for number in point.values()):
                assert re.search(rf"(?<![\d.]){number:g}0?(?![\d])", text), f"{number} is not on {data['source']}"


def test_the_picture_is_what_the_figures_give() -> None:
    done = subprocess.run(
        [sys.executable, DOCS / "measurements/draw.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_term_of_the_glossary_is_used() -> None:
    glossary = DOCS / "glossary.md"
    names = [name for name in tracked() if name.endswith((".md", ".hpp", ".h", ".def", ".py", ".cpp"))]
    text = " ".join((ROOT / name).read_text(errors="replace") for name in names if ROOT / name != glossary)
    text = re.sub(r"[\s/]+", " ", text).lower()
    found = terms(glossary.read_text())
    assert len(found) > 50
    unused = [term for term in found if not re.search(rf"\b{re.escape(term.lower())}", text)]
    assert unused == []


def test_pages_that_sources_name_exist() -> None:
    wrong = []
    for name in tracked():
        if name.startswith("tests/tooling/") or not name.endswith((".hpp", ".cpp", ".h", ".def", ".py", ".pml", ".md")):
            continue
        for page in re.findall(r"\bdocs/[\w/-]+\.md", (ROOT / name).read_text(errors="replace")):
            if not (ROOT / page).is_file():
                wrong.append(f"{name}: {page}")
    assert wrong == []


def files_named(text: str) -> set[str]:
    """Return the source files that the prose names, such as `parts/levels.hpp`."""
    return set(re.findall(r"`([\w./-]+\.(?:hpp|cpp|def|py|pml|h))`", FENCE.sub("", text)))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_a_page_names_exist(page: Path) -> None:
    made_by_the_reader = {"src/collectives/bcast/linear.cpp"} if page.name == "add-an-algorithm.md" else set()
    names = [f"/{name}" for name in tracked()]
    wanted = files_named(page.read_text()) - made_by_the_reader
    assert [each for each in sorted(wanted) if not any(name.endswith(f"/{each}") for name in names)] == []


# -- the checks themselves must be able to fail -------------------------------------------------------------------------


def test_broken_links_are_found() -> None:
    page = DOCS / "glossary.md"
    text = "# A `b` c\n\n[x](nothing.md) [y](#a-b-c) [z](#a) [w](architecture.md#no-such) `[q](r.md)`\n```text\n[q](s.md)\n```\n"
    assert [each.partition(":")[0] for each in broken_links(page, text)] == [
        "nothing.md",
        "#a",
        "architecture.md#no-such",
    ]


def test_equal_headings_are_numbered() -> None:
    assert anchors("# One\n## Two, three: four\n## One\n```sh\n# no\n```\n") == {"one", "two-three-four", "one-1"}


@pytest.mark.parametrize("timing", ["it takes 3 µs", "1.5 ms", "25 GB/s", "200ms", "8,965 MB/s"])
def test_timings_are_found(timing: str) -> None:
    assert TIMING.search(timing)
    assert not TIMING.search("64 KiB, 1 Gbit/s, 5 times a second, v2 ms-dos, 10 msgs")


def test_terms_are_found() -> None:
    assert terms("| term |\n|---|\n| **a** | **b** |\n| **c / d** | x |\n| **e, f g** | y |\n") == [
        "a",
        "c",
        "d",
        "e",
        "f g",
    ]


def test_what_a_page_of_measurements_lacks_is_found() -> None:
    table = "| **Date** | 2026-01-02 |\n| **Machine** | one |\n| **Versions** | MPI |\n"
    assert missing_in(table + "**Command.** as root:\n\n```sh\nls\n```\n") == []
    assert missing_in("| **Date** | today |\n") == ["**Date**", "**Machine**", "**Versions**", "**Command.**"]


def test_files_that_a_page_names_are_found() -> None:
    assert files_named("`a/b.hpp` b.cpp `c.def`, `.def` `d.md`\n```cpp\n`e.h`\n```\n") == {"a/b.hpp", "c.def"}
