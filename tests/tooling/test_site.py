"""The reference of the documentation site: what it makes of a header. `./dev docs` builds the whole site."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts/docs"))
import headers  # noqa: E402

HEADERS = sorted((ROOT / "include/penstock").glob("*.h*"))

SAMPLE = """// What it is. See docs/design/store.md.
// More [of it].
#pragma once
#include <vector>
namespace penstock {
class Hidden;

/// A pair, [first, second).
struct Pair {
  int first = 0;  ///< in [0, second)
  int second = 0;
};

PENSTOCK_API int add(int a, int b);
/// With a carry.
int add(int a, int b,
        int carry);
}  // namespace penstock
"""


def test_declarations_have_their_comments(tmp_path: Path) -> None:
    path = tmp_path / "sample.hpp"
    path.write_text(SAMPLE)
    text = headers.page(path)
    assert text.startswith(
        "# sample.hpp\n\nWhat it is. See [design/store.md](../../design/store.md).\nMore \\[of it\\].\n"
    )
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ["Pair", "add"]
    assert "A pair, \\[first, second)." in text
    assert "int second = 0;\n};\n```" in text
    assert "With a carry." in text and "        int carry);" in text
    assert "PENSTOCK_API" not in text and "Hidden" not in text


@pytest.mark.parametrize("header", HEADERS, ids=lambda header: header.name)
def test_every_class_of_a_header_is_on_its_page(header: Path) -> None:
    text = re.sub(r"^namespace (?:trace::)?detail \{.*?^\}", "", header.read_text(), flags=re.MULTILINE | re.DOTALL)
    defined = set(
        re.findall(r"^(?:class|struct)(?: PENSTOCK_API)? (\w+)(?: final)?(?: : [^;{]+)? \{", text, re.MULTILINE)
    )
    functions = set(re.findall(r"^PENSTOCK_API [\w:<>*& ]+?(\w+)\(", text, re.MULTILINE))
    found = {each.name for each in headers.declarations(text.partition("#pragma once")[2] or text)}
    assert defined | functions <= found, (defined | functions) - found
    assert not {name for name in found if name in ("void", "int", "const", "namespace")}
