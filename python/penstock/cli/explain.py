"""penstock explain: what an error code means, with an example, and what to do. The pages are python/penstock/errors/*.md."""

from __future__ import annotations

import json
import re
import sys
from importlib import resources

import click

from penstock.error import Error
from penstock.text_table import entry

_HEAD = re.compile(r"# (\w+) \((-\d+)\)\n\n(.+?)\n\n", re.DOTALL)


def pages() -> dict[str, tuple[int, str, str]]:
    """Code → (number, meaning, page), in the order of the numbers."""
    found = {}
    for file in resources.files("penstock").joinpath("errors").iterdir():
        if file.name.endswith(".md"):
            text = file.read_text(encoding="utf-8")
            head = _HEAD.match(text)
            if head is None or f"{head[1]}.md" != file.name:
                raise Error(f"{file.name} does not begin with its code, its number and its meaning", "internal")
            found[head[1]] = (int(head[2]), head[3], text)
    return dict(sorted(found.items(), key=lambda item: -item[1][0]))


def _code(given: str, known: dict[str, tuple[int, str, str]]) -> str:
    """The code for "mismatch", "MISMATCH", "PENSTOCK_mismatch", "ErrorCode::mismatch", "-2" or "2"."""
    word = given.rpartition("::")[2].strip("\"'()").lower().removeprefix("penstock_")
    for code, (number, _, _) in known.items():
        if word in (code, str(number), str(-number)):
            return code
    raise Error(f"there is no error code {given!r}; expected one of {', '.join(known)}")


# Without this, click takes -2 for an option.
@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("code", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def explain(code: str | None, as_json: bool) -> None:
    """Explain an error CODE: what it means, why it happens, an example, and what to do. Without CODE, list them.

    CODE is error.code in Python, a number such as -2 in C, or ErrorCode::mismatch in C++.

    \b
    Examples:
      penstock explain
      penstock explain mismatch
      penstock explain -2
    """
    known = pages()
    if code is None:
        if as_json:
            rows = [{"code": name, "number": number, "meaning": text} for name, (number, text, _) in known.items()]
            click.echo(json.dumps({"codes": rows}, indent=2))
            return
        for name, (number, meaning, _) in known.items():
            click.echo(entry(f"{number:>3}  {name}", meaning, 5 + max(map(len, known))))
        return
    name = _code(code, known)
    number, meaning, page = known[name]
    if as_json:
        click.echo(json.dumps({"code": name, "number": number, "meaning": meaning, "page": page}, indent=2))
    elif sys.stdout.isatty():
        from rich.console import Console
        from rich.markdown import Markdown

        Console().print(Markdown(page, hyperlinks=False))
    else:
        click.echo(page, nl=False)
