"""Public names: all places that list them agree, and names in docstrings exist."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import penstock as ps
import pytest

ROOT = Path(__file__).parents[2]
INIT = ROOT / "python/penstock/__init__.py"


def imported_for_checkers() -> dict[str, str]:
    """Name → module, for the imports that only type checkers see."""
    (block,) = [
        statement
        for statement in ast.parse(INIT.read_text(encoding="utf-8")).body
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING"
    ]
    return {
        alias.name: str(line.module) for line in block.body if isinstance(line, ast.ImportFrom) for alias in line.names
    }


def test_checkers_and_python_find_the_same_names_in_the_same_modules() -> None:
    loaded = {name: f"penstock.{part}" for part, names in ps._PARTS.items() for name in names}
    assert imported_for_checkers() == {**loaded, **dict.fromkeys(ps._MODULES, "penstock")}
    assert sorted(ps.__all__) == sorted([*loaded, *ps._MODULES, "Error"])


@pytest.mark.parametrize("name", sorted(ps.__all__))
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(ps, name) is not None


def test_dir_has_the_public_names_alone() -> None:
    for name in ps.__all__:
        getattr(ps, name)
    assert dir(ps) == sorted(ps.__all__)


def test_unknown_names_are_refused_as_by_any_module() -> None:
    with pytest.raises(AttributeError, match="module 'penstock' has no attribute 'no_such_name'"):
        _ = ps.no_such_name


def test_import_loads_none_of_the_parts() -> None:
    """With -S: without the site-packages' own imports."""
    program = (
        f"import sys\nsys.path.insert(0, {str(Path(ps.__file__).parents[1])!r})\nbefore = set(sys.modules)\n"
        "import penstock\nprint(*sorted(set(sys.modules) - before))\n"
    )
    loaded = subprocess.run([sys.executable, "-S", "-c", program], capture_output=True, text=True, check=True)
    assert loaded.stdout.split() == ["__future__", "penstock", "penstock.error"]


def test_version_is_that_of_the_build() -> None:
    text = (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")
    (version,) = re.findall(r"project\(penstock VERSION ([0-9.]+)", text)
    assert ps.__version__ == version


def test_package_says_that_it_is_typed() -> None:
    folder = Path(ps.__file__).parent
    assert (folder / "py.typed").exists()
    assert (folder / "_penstock/__init__.pyi").exists()


# -- docstrings -------------------------------------------------------------------------------------------------------

ROLE = re.compile(r":(?:class|func|meth|attr|mod|data|exc):`~?([\w.]+)`")
QUALIFIED = re.compile(r"`{1,2}((?:ps|penstock)\.[A-Za-z_][\w.]*)")
CLASS_LIKE = re.compile(r"`{1,2}([A-Z][A-Za-z]+(?:\.\w+)?)`{1,2}")
# Classes and methods of mpi4py, which docstrings name as mpi4py does, and of Python.
OTHERS = {"Free", "Dup", "Start", "Wait", "Test", "None", "True", "False", "MPI"}
OTHERS |= {"FileNotFoundError", "FileExistsError", "ValueError", "Path"}


def documented() -> list[tuple[str, object, str]]:
    """(place, class or module that it documents, docstring) of all public names."""
    found: list[tuple[str, object, str]] = []
    for name in ps.__all__:
        thing = getattr(ps, name)
        if inspect.ismodule(thing):
            own = getattr(thing, "__all__", None) or [
                each
                for each, value in vars(thing).items()
                if not each.startswith("_") and getattr(value, "__module__", "") == thing.__name__
            ]
            things = [(f"{name}.{each}", getattr(thing, each)) for each in own]
            found.append((name, thing, thing.__doc__ or ""))
        else:
            things = [(name, thing)]
        for where, each in things:
            if not (inspect.isclass(each) or inspect.isfunction(each)):
                continue
            found.append((where, each, inspect.getdoc(each) or ""))
            if inspect.isclass(each):
                bases = [base for base in each.__mro__ if base.__module__.startswith("penstock")]
                for member, value in {
                    name: value for base in bases[::-1] for name, value in vars(base).items()
                }.items():
                    if not member.startswith("_") and (text := getattr(value, "__doc__", None)):
                        found.append((f"{where}.{member}", each, text))
    return found


def resolves(name: str, owner: object) -> bool:
    """Whether a reader who has imported penstock finds a name: in the class, in its module, or by its full name."""
    first, *rest = name.split(".")
    if first in ("ps", "penstock"):
        return has(ps, rest)
    module = (
        owner if inspect.ismodule(owner) else importlib.import_module(str(getattr(owner, "__module__", "penstock")))
    )
    public = ps if module.__name__.split(".")[-1] not in ps._MODULES else module
    return any(has(place, [first, *rest]) for place in (owner, public, ps))


def has(thing: object, path: list[str]) -> bool:
    for name in path:
        if not name:  # the full stop of a sentence
            continue
        if name in getattr(thing, "__annotations__", {}) and not hasattr(thing, name):
            return True
        if inspect.isclass(thing) and f"self.{name}" in inspect.getsource(thing):
            return True
        if inspect.ismodule(thing) and thing is ps and name not in ps.__all__:
            return False
        if not hasattr(thing, name):
            return False
        thing = getattr(thing, name)
    return True


def test_docstrings_name_only_what_can_be_had() -> None:
    lost = []
    for where, owner, text in documented():
        names = [*ROLE.findall(text), *QUALIFIED.findall(text)]
        names += [name for name in CLASS_LIKE.findall(text) if name.split(".")[0] not in OTHERS]
        lost += [f"{where}: {name}" for name in names if not resolves(name, owner)]
    assert lost == []


def test_docstrings_with_lost_names_are_found() -> None:
    assert not resolves("penstock.comm.CollectiveOptions", ps.Comm)
    assert not resolves("NoSuchClass", ps.Comm)
    assert not resolves("Comm.no_such_method", ps.Layout)
    assert resolves("Comm.plan_redistribute", ps.Layout)
    assert resolves("penstock.redistribute.plan_batch", ps.Comm)


def test_public_methods_return_public_types() -> None:
    """By annotations: a reader must be able to name the type of a result."""
    classes = {name: value for name in ps.__all__ if inspect.isclass(value := getattr(ps, name))}
    hidden = []
    for name, each in classes.items():
        for member, value in vars(each).items():
            function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
            returned = getattr(function, "__annotations__", {}).get("return", "")
            if member.startswith("_") or not isinstance(returned, str):
                continue
            home = importlib.import_module(each.__module__)
            for word in re.findall(r"[A-Z]\w+", returned):
                made = getattr(home, word, None)
                if inspect.isclass(made) and made.__module__.startswith("penstock.") and word not in ps.__all__:
                    hidden.append(f"{name}.{member}() -> {returned}")
    assert hidden == []
