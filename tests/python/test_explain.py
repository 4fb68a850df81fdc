"""penstock explain: one page per error code, and the examples raise what they explain."""

from __future__ import annotations

import json
import re
from pathlib import Path

import penstock as ps
import pytest
from click.testing import CliRunner, Result
from penstock.cli import main
from penstock.cli.explain import pages

ROOT = Path(__file__).parents[2]
CODES = {
    name: (int(number), meaning)
    for name, number, meaning in re.findall(
        r'^PENSTOCK_ERROR\((\w+), (-\d+), "(.+)"\)$', (ROOT / "include/penstock/errors.def").read_text(), re.MULTILINE
    )
}
PARTS = ["## Why", "## Example", "## What to do"]


def explain(*words: str) -> Result:
    return CliRunner().invoke(main, ["explain", *words])


def example_of(code: str) -> str:
    """The program of a page, or "" if it has none."""
    return "".join(re.findall(r"^```python\n(.*?)^```$", pages()[code][2], re.MULTILINE | re.DOTALL))


def test_every_code_has_a_page_with_its_number_and_meaning() -> None:
    assert len(CODES) >= 12
    found = {name: (number, text.rstrip(".").lower()) for name, (number, text, _) in pages().items()}
    assert found == {name: (number, meaning.lower()) for name, (number, meaning) in CODES.items()}


@pytest.mark.parametrize("code", CODES)
def test_a_page_says_why_shows_an_example_and_what_to_do(code: str) -> None:
    text = pages()[code][2]
    assert re.findall(r"^## .+$", text, re.MULTILINE) == PARTS
    assert "penstock.Error: " in text


@pytest.mark.parametrize("code", [code for code in CODES if example_of(code) and "mpi4py" not in example_of(code)])
def test_an_example_raises_its_error(code: str) -> None:
    with pytest.raises(ps.Error) as raised:
        exec(compile(example_of(code), f"{code}.md", "exec"), {})
    assert raised.value.code == code
    quoted = " ".join(pages()[code][2].partition("```text\n")[2].partition("```")[0].split())
    parts = [re.escape(part) for part in re.split("…", quoted.removeprefix("penstock.Error: "))]
    assert re.search(r"\S*".join(parts), str(raised.value)), (quoted, str(raised.value))


@pytest.mark.parametrize("given", ["mismatch", "-2", "2", "MISMATCH", "PENSTOCK_mismatch", "ErrorCode::mismatch"])
def test_a_code_is_found_however_it_is_written(given: str) -> None:
    result = explain(given)
    assert result.exit_code == 0, result.output
    assert result.output.startswith("# mismatch (-2)\n")


def test_without_a_code_all_are_listed() -> None:
    result = explain()
    assert result.exit_code == 0
    assert [line.split()[1] for line in result.output.splitlines()] == list(CODES)


def test_json() -> None:
    assert [row["code"] for row in json.loads(explain("--json").output)["codes"]] == list(CODES)
    assert json.loads(explain("corrupt", "--json").output)["number"] == -5


def test_an_unknown_code() -> None:
    result = explain("nonsense")
    assert result.exit_code == 2
    assert "expected one of invalid_argument, mismatch" in result.stderr


def test_codes_that_python_names_exist() -> None:
    """Error("…", "code") in the package, and those of the docstring of Error."""
    named = set(re.findall(r'"(\w+)"', (ps.Error.__doc__ or "").partition("rank : int")[0]))
    for path in (ROOT / "python/penstock").rglob("*.py"):
        text = path.read_text()
        named |= set(re.findall(r'\bError\([^()]*?"\s*,\s*"([a-z_]+)"', text))
    assert named == set(CODES), named ^ set(CODES)
