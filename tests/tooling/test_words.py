"""Keeps private words out. private_words.txt lists them, with the field's terms that replace them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
LIST = Path(__file__).parent / "private_words.txt"
# These pages quote old names: the changelog's renames, and earlier measurements.
QUOTING = re.compile(r"^(CHANGELOG\.md$|docs/measurements/)")
FOLDERS = ("include/", "src/", "python/", "docs/", "README.md", "CONTRIBUTING.md", "examples/")


class Source(NamedTuple):
    name: str
    lines: list[str]
    words: frozenset[str]

    @classmethod
    def of(cls, name: str, text: str) -> Source:
        text = f"{name}\n{text}"  # file names count, too
        return cls(name, text.splitlines(), frozenset(re.findall(r"\w+", text)))


class Word(NamedTuple):
    pattern: re.Pattern[str]
    instead: str
    legitimate: list[tuple[re.Pattern[str], re.Pattern[str]]]

    @property
    def is_phrase(self) -> bool:
        return re.search(r"[ &]", self.pattern.pattern) is not None

    def uses(self, source: Source) -> list[str]:
        """Return "src/a.cpp:3: 'word'" for each use that is not legitimate."""
        allowed = [text for files, text in self.legitimate if files.search(source.name)]
        return [
            f"{source.name}:{number}: '{found[0]}'"
            for number, line in enumerate(source.lines)
            if (found := self.pattern.search(line)) and not any(text.search(line) for text in allowed)
        ]


def read_list(text: str) -> list[Word]:
    words: list[Word] = []
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        if line.startswith(" "):
            files, allowed = line.strip(" ").split(": ", 1)
            words[-1].legitimate.append((re.compile(files), re.compile(allowed)))
        else:
            pattern, instead = line.split(" = ", 1)
            words.append(Word(re.compile(rf"(?<!\w)(?:{pattern})(?!\w)", re.IGNORECASE), instead, []))
    return words


WORDS = read_list(LIST.read_text())


@pytest.fixture(scope="module")
def sources() -> list[Source]:
    listed = subprocess.run(["git", "ls-files", *FOLDERS], cwd=ROOT, capture_output=True, text=True, check=True)
    return [
        Source.of(name, (ROOT / name).read_text())
        for name in listed.stdout.splitlines()
        if not QUOTING.search(name) and (ROOT / name).is_file() and not name.endswith((".svg", ".png", ".json"))
    ]


@pytest.fixture(scope="module")
def holders(sources: list[Source]) -> dict[str, list[Source]]:
    """Return the sources of each word, so that a pattern is tried once for each word, not for each line."""
    found: dict[str, list[Source]] = {}
    for source in sources:
        for word in source.words:
            found.setdefault(word, []).append(source)
    return found


@pytest.mark.parametrize("word", WORDS, ids=[word.instead for word in WORDS])
def test_private_words_do_not_come_back(word: Word, sources: list[Source], holders: dict[str, list[Source]]) -> None:
    found = {id(source): source for used in filter(word.pattern.fullmatch, holders) for source in holders[used]}
    uses = [use for source in (sources if word.is_phrase else found.values()) for use in word.uses(source)]
    assert not uses, f"write {word.instead} instead of\n" + "\n".join(sorted(uses))


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        ("cell", "  Region cell(std::uint32_t segment) const;"),
        ("cell", "/// The cells of a rank."),
        ("cell", "std::vector<LayoutCell> local_cells(std::int32_t rank) const;"),
        ("expose", "sequence.expose(1, 0);"),
        ("silence", "options.silence_ms = 0;"),
        ("parts of messages", "/// The parts of a message travel alone."),
        ("collective", "Plan plan(const Team& team, const Collective& what);"),
    ],
)
def test_the_list_finds_what_it_names(pattern: str, line: str) -> None:
    assert any(word.uses(Source.of("src/collectives/parts/new.cpp", line)) for word in WORDS), (pattern, line)


def test_legitimate_uses_pass() -> None:
    for name, line in [
        ("src/engine/cells.hpp", "class Cells {"),
        ("src/mpi/transport.cpp", "MPI_Test_cancelled(&status, &cancelled);"),
        ("python/src/buffer.cpp", "nb::borrow(source)"),
        ("src/plan/sequence.hpp", "StepId wait(int peer, std::uint32_t tag);"),
    ]:
        assert not [word.instead for word in WORDS if word.uses(Source.of(name, line))], (name, line)
