"""mypy and pyright on a user's program, on the examples, and on the package itself."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
PACKAGE = Path(os.environ.get("PENSTOCK_BUILD", ROOT / "build/release")) / "python"
# Not imported by users.
OWN_PROGRAMS = ("penstock.bench.", "penstock.cli.", "penstock.tuning.")
# Made of classes of packages that are not installed for these checks.
ON_OTHER_CLASSES = ("penstock.torch", "penstock.jax", "penstock.filesystem.PenstockFileSystem")
# PyTorch is not installed for these checks, so its types, and the examples that use them, are unknown to them.
EXAMPLES = sorted(path for path in (ROOT / "examples/python").glob("*.py") if "import torch" not in path.read_text())
BASEDPYRIGHT = shutil.which("basedpyright") or "basedpyright"
# mypy (builtins.object) and pyright for a name without a useful type.
NOTHING_KNOWN = {"Any", "object", "builtins.object", "Unknown"}


def run(*command: str | Path) -> tuple[int, str]:
    environment = {**os.environ, "MYPYPATH": str(PACKAGE), "PYTHONPATH": str(PACKAGE)}
    done = subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        cwd=ROOT,
        timeout=280,
    )
    return done.returncode, done.stdout + done.stderr


#: A program whose errors the checkers must find: with a name of type Any or of another type, the checks in consumer.py would fail.
WRONG = """import penstock as ps
from typing_extensions import assert_type


def program(comm: ps.Comm, state: ps.Dataset) -> None:
    assert_type(comm.Ibarrier(), ps.Prequest)
    seed = state.state_dict()["seed"]
    print(seed)
"""
#: In pyright's strict mode an expression of type Any or Unknown is an error.
STRICT = "# pyright: strict, reportAny=error\n"


class Said(NamedTuple):
    """A checker's message."""

    file: Path
    line: int
    severity: str
    message: str


@dataclass
class Programs:
    """What users write, and what a checker says of it."""

    wrong: Path
    revealing: Path  #: reveals the type of each public name, and of one that does not exist
    said: list[Said] = field(default_factory=list)

    def errors(self, file: Path) -> list[tuple[int, str]]:
        return [(said.line, said.message) for said in self.said if said.file == file and said.severity == "error"]

    def notes(self, file: Path) -> list[str]:
        return [said.message for said in self.said if said.file == file and said.severity in ("note", "information")]


def public_names() -> list[str]:
    tree = ast.parse((PACKAGE / "penstock/__init__.py").read_text(encoding="utf-8"))
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__":
            return [str(name) for name in ast.literal_eval(statement.value)]
    raise AssertionError("python/penstock/__init__.py has no __all__")


def programs(folder: Path) -> Programs:
    made = Programs(folder / "wrong.py", folder / "revealing.py")
    made.wrong.write_text(STRICT + WRONG)
    asked = "".join(f"reveal_type(ps.{name})\n" for name in public_names())
    made.revealing.write_text(f"import penstock as ps\n{asked}ps.no_such_name\n")
    return made


@pytest.fixture(scope="session")
def mypy_of_users(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    """One run for all programs, since most of its time goes into NumPy. As a user's mypy: without Penstock's configuration, and
    without errors inside the package."""
    made = programs(tmp_path_factory.mktemp("mypy"))
    options = ("--config-file=", "--follow-imports=silent", "--python-version=3.10", "--strict", "--allow-any-generics")
    files = (HERE / "consumer.py", *EXAMPLES, made.wrong, made.revealing)
    _, output = run(sys.executable, "-m", "mypy", "--output=json", "--cache-dir=/dev/null", *options, *files)
    for told in map(json.loads, output.splitlines()):
        made.said.append(Said(ROOT / told["file"], told["line"], told["severity"], told["message"]))
    return made


@pytest.fixture(scope="session")
def pyright(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    """One run for the package and all programs."""
    folder = tmp_path_factory.mktemp("pyright")
    made = programs(folder)
    files = [PACKAGE / "penstock", HERE / "consumer.py", *EXAMPLES, made.wrong, made.revealing]
    settings = {
        "include": [os.path.relpath(file, folder) for file in files],
        "exclude": [],
        "extraPaths": [str(PACKAGE)],
        "pythonVersion": "3.10",
        "typeCheckingMode": "standard",
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    _, output = run(BASEDPYRIGHT, "--outputjson", "--pythonpath", sys.executable, "-p", folder)
    for told in json.loads(output)["generalDiagnostics"]:
        line = told["range"]["start"]["line"] + 1
        made.said.append(Said(Path(told["file"]), line, told["severity"], told["message"]))
    return made


def test_package_is_clean_for_mypy() -> None:
    status, output = run(sys.executable, "-m", "mypy", "--cache-dir=/dev/null", "-p", "penstock")
    assert status == 0, output


def test_programs_are_clean_for_mypy(mypy_of_users: Programs) -> None:
    for program in (HERE / "consumer.py", *EXAMPLES):
        assert mypy_of_users.errors(program) == []


def test_package_and_programs_are_clean_for_pyright(pyright: Programs) -> None:
    assert (HERE / "consumer.py").read_text().startswith(STRICT)
    bad = [said for said in pyright.said if said.severity in ("error", "warning")]
    assert [said for said in bad if said.file not in (pyright.wrong, pyright.revealing)] == []


def unknown(revealed: list[str]) -> list[str]:
    names = public_names()
    assert len(revealed) == len(names)
    return [f"{name}: {kind}" for name, kind in zip(names, revealed, strict=True) if kind in NOTHING_KNOWN]


def test_mypy_knows_every_public_name_and_no_other(mypy_of_users: Programs) -> None:
    notes = mypy_of_users.notes(mypy_of_users.revealing)
    assert unknown([kind for note in notes for kind in re.findall(r'^Revealed type is "(.*)"$', note)]) == []
    errors = mypy_of_users.errors(mypy_of_users.revealing)
    assert [message for _, message in errors] == ['Module has no attribute "no_such_name"']


def test_pyright_knows_every_public_name_and_no_other(pyright: Programs) -> None:
    notes = pyright.notes(pyright.revealing)
    assert unknown([kind for note in notes for kind in re.findall(r'^Type of "ps\.\w+" is "((?:.|\n)*)"$', note)]) == []
    errors = pyright.errors(pyright.revealing)
    assert [message for _, message in errors] == ['"no_such_name" is not a known attribute of module "penstock"']


def test_checks_of_programs_find_what_is_unknown(mypy_of_users: Programs, pyright: Programs) -> None:
    first = 1 + STRICT.count("\n")
    assert [line for line, _ in mypy_of_users.errors(mypy_of_users.wrong)] == [first + 5]
    assert {first + 5, first + 6} <= {line for line, _ in pyright.errors(pyright.wrong)}


def test_every_type_of_the_public_interface_is_stated() -> None:
    """The two checkers may infer different types."""
    _, output = run(BASEDPYRIGHT, "--verifytypes", "penstock", "--ignoreexternal", "--outputjson")
    symbols = json.loads(output)["typeCompleteness"]["symbols"]
    assert len(symbols) > 500, output
    vague = {
        symbol["name"]: [told["message"] for told in symbol["diagnostics"]]
        for symbol in symbols
        if symbol["isExported"]
        and not symbol["name"].startswith((*OWN_PROGRAMS, *ON_OTHER_CLASSES))
        and (symbol["isTypeAmbiguous"] or not symbol["isTypeKnown"])
    }
    assert vague == {}
