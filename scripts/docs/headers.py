"""A page of the reference for each public header: its comment, then each declaration with its comment above it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_SKIPPED = re.compile(
    r'#\s*(?:pragma once|include|ifndef|ifdef|if |define|undef|endif|else)|extern "C"|namespace [\w:]* ?\{$'
)
_NAMED = (
    re.compile(r"^(?:template\b.*?>\s*)?(?:enum class|class|struct|enum)\s+(?:PENSTOCK_API\s+)?(\w+)", re.DOTALL),
    re.compile(r"^using\s+(\w+)"),
    re.compile(r"^typedef\b[^;]*?\(\*(\w+)\)"),
    re.compile(r"^typedef\b.*?(\w+);\s*$", re.DOTALL),
    re.compile(r"([\w~]+|operator\S+)\s*\("),
    re.compile(r"(\w+)\s*(?:=[^;]*|\{[^;]*)?;"),
)


@dataclass
class Declaration:
    name: str
    comment: str
    code: str


def page(header: Path) -> str:
    """The page of a header, in Markdown."""
    text = header.read_text(encoding="utf-8")
    intro, rest = _introduction(text)
    lines = [f"# {header.name}", "", intro, "", f'```cpp\n#include "penstock/{header.name}"\n```', ""]
    for each in declarations(rest):
        lines += [f"## {each.name}", "", each.comment, "", f"```cpp\n{each.code}\n```", ""]
    return "\n".join(lines)


def declarations(text: str) -> list[Declaration]:
    """The declarations of the namespace `penstock`. Overloads that stand together without a blank line are one."""
    found: list[Declaration] = []
    for comment, code in _chunks(text):
        name = next((match[1] for match in (pattern.search(code) for pattern in _NAMED) if match), None)
        is_forward = re.fullmatch(r"(?:class|struct) \w+;", code)
        if name is None or is_forward:
            continue
        if found and found[-1].name == name:  # overloads
            found[-1].code += f"\n\n{code}"
            found[-1].comment += f"\n\n{comment}" if comment else ""
        else:
            found.append(Declaration(name, comment, code.replace("PENSTOCK_API ", "")))
    return found


def _introduction(text: str) -> tuple[str, str]:
    """(comment at the top as prose, the rest)"""
    if text.startswith("/*"):
        comment, _, rest = text.partition("*/")
        return _prose([re.sub(r"^\s*(?:/\*+|\*)? ?", "", line) for line in comment.splitlines()]), rest
    lines = text.splitlines()
    count = next(number for number, line in enumerate(lines) if not line.startswith("//"))
    return _prose([re.sub(r"^//+ ?", "", line) for line in lines[:count]]), "\n".join(lines[count:])


def _chunks(text: str) -> list[tuple[str, str]]:
    """(comment, code) of each declaration at the depth of the namespace."""
    chunks: list[tuple[str, str]] = []
    comment: list[str] = []
    code: list[str] = []
    depth, detail = 0, 0
    in_comment = False
    for line in text.splitlines():
        stripped = line.strip()
        if detail or re.match(r"namespace (?:detail|store|engine|trace::detail)\b.*\{$", stripped):
            detail += line.count("{") - line.count("}")
            continue
        if depth == 0 and not code:
            if in_comment or stripped.startswith(("//", "/*")):
                in_comment = (in_comment or stripped.startswith("/*")) and "*/" not in stripped
                comment.append(re.sub(r"^(?:/\*+<?|\*/|\*|///?<?) ?|\*/$", "", stripped))
                continue
            if not stripped or _SKIPPED.match(stripped) or stripped.startswith("}"):
                comment = comment if stripped.startswith("#") else []
                continue
        code.append(line)
        bare = re.sub(r'//.*|/\*.*?\*/|"[^"]*"', "", line).rstrip()
        depth += bare.count("{") + bare.count("(") - bare.count("}") - bare.count(")")
        if depth == 0 and bare.endswith((";", "}")):
            chunks.append((_prose(comment), "\n".join(code)))
            comment, code = [], []
    return chunks


def _prose(lines: list[str]) -> str:
    """The text of a comment, with what Markdown would take for markup escaped outside of code."""
    parts = "\n".join(line.rstrip() for line in lines).strip().split("`")
    parts[::2] = [re.sub(r"([\[\]|*_<])", r"\\\1", part) for part in parts[::2]]
    parts[::2] = [re.sub(r"\bdocs/([\w/-]+\.md)", r"[\1](../../\1)", part) for part in parts[::2]]
    return "`".join(parts)
