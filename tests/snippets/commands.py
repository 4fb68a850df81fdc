"""Checks that a command line of the documents can run as printed: every command, subcommand, flag and name exists.

What is quick and safe is then run; of the rest a checker says why it is not. A command that has no checker here raises
`UnknownCommandError`: it gets one line in `_CHECKERS`, or the page is wrong.
"""

from __future__ import annotations

import ast
import functools
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass

import click
from penstock.cli import main
from snippets.markdown import ROOT

try:
    import tomllib
except ImportError:  # before Python 3.11
    from pip._vendor import tomli as tomllib

MOST_RANKS = 8


class UnknownCommandError(Exception):
    """No checker knows this command, or something that it names does not exist."""


@dataclass(frozen=True)
class Verdict:
    words: tuple[str, ...]
    not_run: str = ""  #: Why it is only checked. Empty: it is run.


def command_lines(script: str) -> list[str]:
    """The commands of a shell snippet, without comments and with continued lines joined."""
    joined = script.replace("\\\n", " ")
    return [line for line in joined.splitlines() if shlex.split(line, comments=True)]


def check(line: str) -> Verdict:
    """Raises UnknownCommandError, or click.UsageError for invalid arguments of Penstock's own commands."""
    verdicts = [_check(part) for part in _parts(line)]
    reasons = [verdict.not_run for verdict in verdicts if verdict.not_run]
    return Verdict(verdicts[-1].words, "; ".join(reasons))


def _parts(line: str) -> list[list[str]]:
    """The commands of a pipeline or list."""
    parts: list[list[str]] = [[]]
    # Here $(…) is one word, as its output would be.
    whole = re.sub(r"\$\(([^()]*)\)", lambda match: shlex.quote(match[0]), line)
    for word in shlex.split(whole, comments=True):
        if word in ("|", "&&", "||", ";", "&"):
            parts.append([])
        else:
            parts[-1].append(word)
    return [part for part in parts if part]


def _check(words: list[str]) -> Verdict:
    given, reasons = list(words), []
    while given:
        if re.fullmatch(r"[A-Za-z_]\w*=.*", given[0]):
            _require_variable(given.pop(0).partition("=")[0])
        elif given[0] in ("env", "export"):
            given.pop(0)
        elif given[0] == "mpiexec":
            given, ranks = _launched(given[1:], ("-n",))
            if ranks > MOST_RANKS:
                reasons.append(f"{ranks} ranks are more than tests start")
        elif given[:2] == ["./dev", "exec"]:
            given = given[2:]
        elif given[:3] == ["./dev", "cluster", "run"]:
            given, _ = _launched(given[3:], ("-n", "--ranks", "--mpi"))
            reasons.append("emulated nodes take root; tests/cluster runs them")
        else:
            break
    if not given:
        return Verdict(tuple(words), "; ".join(reasons))
    checker = _CHECKERS.get(given[0])
    if checker is None:
        raise UnknownCommandError(f"no checker knows '{given[0]}'; give it a line in tests/snippets/commands.py")
    reason = checker(given[1:])
    return Verdict(tuple(words), "; ".join([*reasons, *([reason] if reason else [])]))


def _launched(words: list[str], flags: tuple[str, ...]) -> tuple[list[str], int]:
    """(command, ranks) that a launcher starts."""
    ranks = 1
    while words and words[0].startswith("-"):
        if words[0] not in flags:
            raise UnknownCommandError(f"'{words[0]}' is not an option that every launcher has; expected {flags}")
        if words[0] == "-n":
            ranks = int(words[1])
        words = words[2:]
    return words, ranks


@functools.cache
def _sources() -> str:
    """Names that may be read as environment variables or set with -D."""
    names = subprocess.run(
        ["git", "ls-files", "include", "src", "python", "scripts", "dev", "cmake", "CMakeLists.txt"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    return "\n".join((ROOT / name).read_text(errors="replace") for name in names if (ROOT / name).is_file())


def _require_variable(name: str) -> None:
    from penstock import _penstock

    known = {row[1] for row in _penstock.option_table()}
    if name.startswith("PENSTOCK_") and name not in known and not re.search(rf"\b{name}\b", _sources()):
        raise UnknownCommandError(f"nothing reads the variable {name}")


def _penstock_command(words: list[str]) -> str:
    """Parses as the command line does. Runs nothing."""
    command: click.Command = main
    path, given = "penstock", list(words)
    context = click.Context(main, info_name=path)
    while isinstance(command, click.Group) and given and not given[0].startswith("-"):
        name = given.pop(0)
        found = command.get_command(context, name)
        if found is None:
            raise UnknownCommandError(f"there is no command '{path} {name}'")
        command, path = found, f"{path} {name}"
    if not isinstance(command, click.Group):
        command.make_context(path, given)
    reasons = {
        "bench": "it takes minutes; tests/python/test_bench.py runs it",
        "tune": "it takes minutes; tests/mpi/test_tuning.py runs it",
        "run": "tests/preload runs it",
        "simulate": "it needs SimGrid; tests/simgrid runs it",
    }
    if words[:2] == ["store", "mount"]:
        return "it needs /dev/fuse; tests/python/test_store_mount.py runs it"
    return reasons.get(words[0] if words else "", "")


def _dev_command(words: list[str]) -> str:
    if not words:
        return ""
    name, given = words[0], words[1:]
    files = list((ROOT / "scripts/commands").glob(f"{name}.*"))
    if name != "help" and not files:
        raise UnknownCommandError(f"there is no command './dev {name}'")
    checker = _DEV.get(name)
    if checker is None:
        if given:
            raise UnknownCommandError(f"no checker knows the arguments of './dev {name}': {given}")
        return f"./dev {name} changes this checkout, or tests run it"
    return checker(given)


def _dev_build(given: list[str]) -> str:
    presets = {each["name"] for each in json.loads((ROOT / "CMakePresets.json").read_text())["configurePresets"]}
    if given and given[0] not in presets:
        raise UnknownCommandError(f"there is no preset '{given[0]}'; there are {sorted(presets)}")
    return "it takes minutes; it ran before this test"


def _dev_test(given: list[str]) -> str:
    known = _output(ROOT / "dev", "test", "--list").split()
    _require_flags(given, _output(ROOT / "dev", "test", "--help"))
    if unknown := [word for word in given if not word.startswith("-") and word not in known]:
        raise UnknownCommandError(f"./dev test has no suite {unknown}")
    return "this is part of it"


def _dev_lint(given: list[str]) -> str:
    _require_flags(given, _output(ROOT / "dev", "lint", "--help"))
    return "it may change files"


def _dev_imb(given: list[str]) -> str:
    _require_flags(given, _output(ROOT / "dev", "imb", "--help"))
    return "it fetches the Intel MPI Benchmarks and takes minutes; tests/preload/test_imb.py runs them with --all"


def _dev_fresh(given: list[str]) -> str:
    _require_flags(given, _output(ROOT / "dev", "fresh", "--help"))
    return "it takes root and a wheel of ./dev wheel"


def _dev_demo(given: list[str]) -> str:
    _require_flags(given, _output(sys.executable, ROOT / "demo/main.py", "--help"))
    return "it takes minutes; tests/demo runs its parts"


def _dev_bench(given: list[str]) -> str:
    return _penstock_command(["bench", *[word for word in given if word != "--with-intel-mpi"]])


def _dev_cluster(given: list[str]) -> str:
    command, rest = given[0], given[1:]
    if command == "bench":
        _penstock_command(["bench", *(rest[2:] if rest[:1] == ["--ranks"] else rest)])
    elif not (command == "down" and not rest) and not (command == "up" and len(rest) == 2):
        raise UnknownCommandError(f"./dev cluster takes up K RATE, run, bench or down, not {given}")
    return "emulated nodes take root; tests/cluster runs them"


def _dev_ceph(given: list[str]) -> str:
    if given[:1] != ["bench"]:
        raise UnknownCommandError(f"./dev ceph takes bench, not {given}")
    _require_flags(given, _output(ROOT / "dev", "ceph", "--help") + _output(ROOT / "dev", "bench", "store", "--help"))
    return "it takes Ceph and root; tests/ceph runs such stores"


_DEV: dict[str, Callable[[list[str]], str]] = {
    "bench": _dev_bench,
    "build": _dev_build,
    "ceph": _dev_ceph,
    "cluster": _dev_cluster,
    "demo": _dev_demo,
    "fresh": _dev_fresh,
    "imb": _dev_imb,
    "lint": _dev_lint,
    "test": _dev_test,
}


@functools.cache
def _output(*words: object) -> str:
    return subprocess.run([str(word) for word in words], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def _require_flags(given: list[str], help_text: str) -> None:
    for word in given:
        flag = word.partition("=")[0]
        if flag.startswith("-") and not re.search(rf"(?<![\w-]){re.escape(flag)}(?![\w-])", help_text):
            raise UnknownCommandError(f"the flag '{flag}' is not among those of --help")


def _pip(given: list[str]) -> str:
    if given[:1] != ["install"]:
        raise UnknownCommandError(f"expected pip install, not pip {given}")
    _require_flags(given[1:], _output(sys.executable, "-m", "pip", "install", "--help"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    written = "\n".join(
        [*project["dependencies"], *(each for listed in extras.values() for each in listed)]
        + [path.read_text() for path in (ROOT / "scripts").glob("requirements*.txt")]
    )
    for word in [word for word in given[1:] if not word.startswith("-")]:
        match = re.fullmatch(r"(?P<name>\.|[\w-]+)(?:\[(?P<extras>[\w,-]+)\])?(?:[=<>].*)?", word)
        if match is None:
            raise UnknownCommandError(f"'{word}' is no requirement")
        own = match["name"] in (".", "penstock")
        if unknown := [extra for extra in (match["extras"] or "").split(",") if extra and own and extra not in extras]:
            raise UnknownCommandError(f"pyproject.toml has no extra {unknown}")
        if not own and not re.search(rf"^{re.escape(match['name'])}\b", written, re.MULTILINE):
            raise UnknownCommandError(f"'{match['name']}' is neither a dependency nor in scripts/requirements*.txt")
    return "tests/package installs the wheel in a new environment"


def _python(given: list[str]) -> str:
    if given[:1] == ["-c"]:
        ast.parse(given[1])
    elif given and (ROOT / given[0]).is_file():
        return "it changes this checkout; tests/tooling checks its result"
    elif not given or given[0] != "example.py":
        raise UnknownCommandError(f"expected python example.py, the page's own, not python {given}")
    return ""


def _torchrun(given: list[str]) -> str:
    options = [word for word in given if word.startswith("-")]
    if unknown := set(options) - {"--nproc-per-node"}:
        raise UnknownCommandError(f"no checker knows torchrun's {sorted(unknown)}")
    if not (ROOT / given[2 * len(options)]).is_file():
        raise UnknownCommandError(f"there is no program {given[2 * len(options)]}")
    return "it takes PyTorch; tests/pytorch_programs runs it"


def _cmake(given: list[str]) -> str:
    for word in given:
        if (name := re.match(r"-D(PENSTOCK_\w+)", word)) and not re.search(rf"\b{name[1]}\b", _sources()):
            raise UnknownCommandError(f"no CMake file has the option {name[1]}")
    flags = [word for word in given if not word.startswith("-D")]
    _require_flags([word for word in flags if word.startswith("--")], _output("cmake", "--help") + _CMAKE_MODES)
    return "a build takes minutes; tests/package installs and finds the library"


#: Options of `cmake --build` and `cmake --install` that `cmake --help` does not list.
_CMAKE_MODES = " --prefix --component --parallel --target --config --strip "


def _ctest(given: list[str]) -> str:
    _require_flags([word for word in given if word.startswith("-")], _output("ctest", "--help"))
    folder = given[given.index("--test-dir") + 1].removeprefix("build/") if "--test-dir" in given else "release"
    _dev_build([folder])
    return "it needs the row that the page adds; the suite c++ runs all others"


def _compiler(given: list[str]) -> str:
    for package in re.findall(r"pkg-config (?:--\w+ )*([\w-]+)", " ".join(given)):
        if not (ROOT / f"build/release/{package}.pc").exists():
            raise UnknownCommandError(f"no package {package}.pc is installed")
    return "there is no such program; tests/package compiles one by pkg-config"


def _program(_: list[str]) -> str:
    return ""


def _eval(given: list[str]) -> str:
    inner = re.fullmatch(r"'?\$\((.*)\)'?", " ".join(given))
    if inner is None:
        raise UnknownCommandError(f"expected eval $(a command), not eval {given}")
    return check(inner[1]).not_run or "it changes the shell; tests/preload runs it"


def _slurm(given: list[str]) -> str:
    if not any(re.fullmatch(r"--export=ALL(,\w+=\$?\w+)*", word) for word in given):
        raise UnknownCommandError(f"expected srun --export=ALL,…, not srun {given}")
    return "it takes Slurm"


def _built_program(_: list[str]) -> str:
    return "test_cmake builds it as the page does, and runs it"


_CHECKERS: dict[str, Callable[[list[str]], str]] = {
    "./dev": _dev_command,
    "./program": _program,
    "c++": _compiler,
    "cc": _compiler,
    "cmake": _cmake,
    "ctest": _ctest,
    "date": _program,
    "echo": _program,
    "eval": _eval,
    "mpicc": _compiler,
    "mpifort": _compiler,
    "penstock": _penstock_command,
    "pip": _pip,
    "program/build/program": _built_program,
    "python": _python,
    "srun": _slurm,
    "torchrun": _torchrun,
}
