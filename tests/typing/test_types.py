"""mypy and pyright on a user's program, on the examples, and on the package itself."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
PACKAGE = Path(os.environ.get("PENSTOCK_BUILD", ROOT / "build/release")) / "python"
# Not imported by users.
OWN_PROGRAMS = ("penstock.bench.", "penstock.cli.", "penstock.tuning.")
# Made of classes of packages that are not installed for these checks.
ON_OTHER_CLASSES = ("penstock.torch", "penstock.filesystem.PenstockFileSystem")
# PyTorch is not installed for these checks, so its types, and the examples that use them, are unknown to them.
EXAMPLES = sorted(path for path in (ROOT / "examples/python").glob("*.py") if "import torch" not in path.read_text())
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


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mypy")


def mypy(cache: Path, *arguments: str | Path) -> tuple[int, str]:
    return run(sys.executable, "-m", "mypy", "--cache-dir", cache, *arguments)


def mypy_of_user(cache: Path, *arguments: str | Path) -> tuple[int, str]:
    """As a user's mypy: without Penstock's configuration, and without errors inside the package."""
    return mypy(cache, "--config-file=", "--follow-imports=silent", "--python-version=3.10", *arguments)


def pyright(folder: Path, files: list[Path], **rules: str) -> tuple[int, str]:
    settings = {
        "include": [os.path.relpath(file, folder) for file in files],
        "exclude": [],
        "extraPaths": [str(PACKAGE)],
        "pythonVersion": "3.10",
        **rules,
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    return run(shutil.which("basedpyright") or "basedpyright", "--pythonpath", sys.executable, "-p", folder)


def test_package_is_clean_for_mypy(cache: Path) -> None:
    status, output = mypy(cache, "-p", "penstock")
    assert status == 0, output


def test_package_is_clean_for_pyright(tmp_path: Path) -> None:
    status, output = pyright(tmp_path, [PACKAGE / "penstock"], typeCheckingMode="standard")
    assert status == 0, output


def test_examples_are_clean_for_mypy(cache: Path) -> None:
    status, output = mypy_of_user(cache, "--check-untyped-defs", *EXAMPLES)
    assert status == 0, output


def test_examples_are_clean_for_pyright(tmp_path: Path) -> None:
    status, output = pyright(tmp_path, EXAMPLES, typeCheckingMode="standard")
    assert status == 0, output


def test_program_of_a_user_is_clean_for_mypy(cache: Path) -> None:
    status, output = mypy_of_user(cache, "--strict", HERE / "consumer.py")
    assert status == 0, output


def test_program_of_a_user_is_clean_for_pyright(tmp_path: Path) -> None:
    """In strict mode, in which an expression of type Any or Unknown is an error."""
    status, output = pyright(tmp_path, [HERE / "consumer.py"], typeCheckingMode="strict", reportAny="error")
    assert status == 0, output


def public_names() -> list[str]:
    tree = ast.parse((PACKAGE / "penstock/__init__.py").read_text(encoding="utf-8"))
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__":
            return [str(name) for name in ast.literal_eval(statement.value)]
    raise AssertionError("python/penstock/__init__.py has no __all__")


@pytest.fixture
def revealing(tmp_path: Path) -> Path:
    """A program that reveals the type of each public name, and of one that does not exist."""
    program = tmp_path / "revealing.py"
    asked = "".join(f"reveal_type(ps.{name})\n" for name in public_names())
    program.write_text(f"import penstock as ps\n{asked}ps.no_such_name\n")
    return program


def unknown(revealed: list[str]) -> list[str]:
    names = public_names()
    assert len(revealed) == len(names)
    return [f"{name}: {kind}" for name, kind in zip(names, revealed, strict=True) if kind in NOTHING_KNOWN]


def test_mypy_knows_every_public_name_and_no_other(revealing: Path, cache: Path) -> None:
    _, output = mypy_of_user(cache, "--strict", revealing)
    assert unknown(re.findall(r'Revealed type is "(.*)"', output)) == []
    assert re.findall(r"error: (.*?)  \[", output) == ['Module has no attribute "no_such_name"'], output


def test_pyright_knows_every_public_name_and_no_other(revealing: Path, tmp_path: Path) -> None:
    _, output = pyright(tmp_path, [revealing], typeCheckingMode="standard")
    assert unknown(re.findall(r'Type of "ps\..*?" is "((?:.|\n)*?)"\n', output)) == [], output
    assert re.findall(r"error: (.*)", output) == [
        '"no_such_name" is not a known attribute of module "penstock" (reportAttributeAccessIssue)'
    ], output


def test_checks_of_programs_find_what_is_unknown(tmp_path: Path, cache: Path) -> None:
    """If a name were Any or of another type, the checks in consumer.py would fail."""
    wrong = tmp_path / "wrong.py"
    wrong.write_text(
        "import penstock as ps\nfrom typing_extensions import assert_type\n\n\n"
        "def program(comm: ps.Comm, state: ps.Dataset) -> None:\n"
        "    assert_type(comm.Ibarrier(), ps.Prequest)\n"
        '    seed = state.state_dict()["seed"]\n    print(seed)\n'
    )
    status, output = mypy_of_user(cache, "--strict", wrong)
    assert status == 1 and "wrong.py:6: error" in output, output
    status, output = pyright(tmp_path, [wrong], typeCheckingMode="strict", reportAny="error")
    assert status == 1 and "wrong.py:6:" in output and "wrong.py:7:" in output, output


def test_every_type_of_the_public_interface_is_stated() -> None:
    """The two checkers may infer different types."""
    _, output = run(
        shutil.which("basedpyright") or "basedpyright", "--verifytypes", "penstock", "--ignoreexternal", "--outputjson"
    )
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
