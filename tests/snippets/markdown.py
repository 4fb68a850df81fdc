"""The fenced blocks of the documents."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))

_FENCE = re.compile(r"^(?P<indent> *)(?P<marks>`{3,}|~{3,})(?P<language>[^`\n]*)$")


@dataclass(frozen=True)
class Snippet:
    page: str  #: Path in the repository.
    line: int  #: Number of its first line.
    language: str  #: The text after the fence; may be empty.
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def snippets_of(page: Path, text: str | None = None) -> list[Snippet]:
    """The blocks of a page, in order. Raises ValueError for an unclosed fence."""
    found: list[Snippet] = []
    opened: re.Match[str] | None = None
    begin, lines = 0, []
    for number, line in enumerate((page.read_text() if text is None else text).splitlines(), start=1):
        fence = _FENCE.match(line)
        if opened is None:
            if fence:
                opened, begin, lines = fence, number + 1, []
        elif fence and fence["marks"].startswith(opened["marks"]) and not fence["language"].strip():
            body = "\n".join(each.removeprefix(opened["indent"]) for each in lines) + "\n"
            name = str(page.relative_to(ROOT)) if page.is_relative_to(ROOT) else page.name
            found.append(Snippet(name, begin, opened["language"].strip(), body))
            opened = None
        else:
            lines.append(line)
    if opened is not None:
        raise ValueError(f"{page}:{begin - 1}: nothing closes this fence")
    return found


SNIPPETS = [snippet for page in PAGES for snippet in snippets_of(page)]
