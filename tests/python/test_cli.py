"""The command line as a whole: an error is one line, every command has help with an example, and tables fit."""

from __future__ import annotations

import fcntl
import io
import json
import os
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from penstock import progress, text_table
from penstock.cli import main


def invoke(*words: str) -> Result:
    return CliRunner().invoke(main, words)


def commands() -> dict[str, click.Command]:
    """All commands, as lists of words; no command groups."""
    found: dict[str, click.Command] = {}

    def walk(command: click.Command, path: str) -> None:
        if not isinstance(command, click.Group):
            found[path] = command
            return
        context = click.Context(command)
        for name in command.list_commands(context):
            walk(command.get_command(context, name), f"{path} {name}")

    walk(main, "penstock")
    return found


COMMANDS = commands()


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (("nonsense",), 2, "No such command 'nonsense'"),
        (("--nonsense",), 2, "No such option"),  # newer versions of click quote its name
        (("plan", "show"), 2, "Missing argument 'COLLECTIVE'"),
        (("plan", "show", "nonsense"), 2, "unknown collective 'nonsense'; expected one of bcast"),
        (("plan", "show", "allreduce", "--dtype", "floaty"), 2, "dtype is 'floaty'; expected a type of NumPy"),
        (("plan", "show", "allreduce", "--dtype", ""), 2, "dtype is ''"),
        (("plan", "show", "allreduce", "--ranks", "-5"), 2, "-5 is not in the range"),
        (("plan", "show", "allreduce", "--ranks", "99999999999"), 2, "is not in the range"),
        (("plan", "show", "allreduce", "--count", "9" * 30), 2, "is not in the range"),
        (("plan", "show", "allreduce", "--root", "99999999999"), 2, "is not in the range"),
        (("plan", "show", "allreduce", "--rank", "4"), 2, "rank is 4; expected 0 to 3"),
        (("plan", "show", "allreduce", "--dot", "--json"), 2, "leave out --json"),
        (("plan", "list", "nonsense"), 2, "there is no collective 'nonsense'; expected one of bcast"),
        (("model", "split", "--cores", "8", "--costs", "/nonexistent"), 1, "cannot read the costs in /nonexistent"),
        (("model", "relabel"), 2, "--shape is missing"),
        (("info", "--ranks", "0"), 2, "0 is not in the range"),
    ],
)
def test_mistakes_are_one_line(words: tuple[str, ...], status: int, text: str) -> None:
    for given in (words, (*words, "--json")):
        result = invoke(*given)
        assert result.exit_code == status, result.output
        assert result.stdout == ""
        (line,) = result.stderr.splitlines()
        assert line.startswith("penstock") and ": " in line
        assert text in line, line


def test_a_defect_is_one_line_and_a_traceback_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(collective: str | None) -> None:
        raise ZeroDivisionError("what nobody foresaw")

    monkeypatch.setattr("penstock.plan.algorithms", fails)
    result = invoke("plan", "list")
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith("penstock plan list: ZeroDivisionError: what nobody foresaw; a defect of Penstock")
    for debugging in (
        invoke("--debug", "plan", "list"),
        CliRunner(env={"PENSTOCK_DEBUG": "1"}).invoke(main, ["plan", "list"]),
    ):
        assert debugging.exit_code == 1
        assert "Traceback (most recent call last)" in debugging.stderr
        assert debugging.stderr.splitlines()[-1] == line


@pytest.mark.parametrize(("module", "extra"), [("mpi4py", "penstock[mpi]"), ("mfusepy", "penstock[fuse]")])
def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, module: str, extra: str) -> None:
    def fails(collective: str | None) -> None:
        raise ModuleNotFoundError(f"No module named '{module}'", name=module)

    monkeypatch.setattr("penstock.plan.algorithms", fails)
    result = invoke("plan", "list")
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    assert extra in line


def test_an_mpi_that_is_missing_is_said(tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "MPI4PY_MPIABI"}
    environment["MPI4PY_LIBMPI"] = "/nonexistent/libmpi.so"
    done = run("tune", "--operations", "barrier", "-o", str(tmp_path / "table.json"), environment=environment)
    assert done.returncode != 0
    (line,) = done.stderr.splitlines()
    assert "load MPI library" in line and "pip install mpich" in line, line


def without(tmp_path: Path, module: str) -> dict[str, str]:
    """The environment of a process that cannot import `module`."""
    hidden = f"import sys\nsys.modules[{module!r}] = None\n"
    (tmp_path / "sitecustomize.py").write_text(hidden)
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}


def run(*words: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "penstock", *words]
    return subprocess.run(command, check=False, capture_output=True, text=True, env=environment)


def test_output_that_a_stop_interrupts_is_whole() -> None:
    """A write to a full pipe ends early when its process is stopped."""
    command = [sys.executable, "-u", "-m", "penstock", "plan", "show", "allreduce", "--ranks", "16", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as printing:
        assert printing.stdout
        size_bytes = fcntl.fcntl(printing.stdout, fcntl.F_GETPIPE_SZ)
        waiting = bytearray(4)
        while int.from_bytes(waiting, sys.byteorder) < size_bytes and printing.poll() is None:
            fcntl.ioctl(printing.stdout, termios.FIONREAD, waiting)
            time.sleep(0.001)
        printing.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, printing.pid, os.WSTOPPED)
        printing.send_signal(signal.SIGCONT)
        text = printing.stdout.read()
    assert printing.returncode == 0
    assert len(text) > size_bytes
    json.loads(text)


def test_bench_without_mpi4py_or_mpi_starts_no_job(tmp_path: Path) -> None:
    for environment, text in (
        (without(tmp_path, "mpi4py"), "needs mpi4py"),
        ({**os.environ, "PATH": str(tmp_path)}, "no mpiexec was found in PATH; install an MPI"),
    ):
        done = run("bench", "collectives", "--quick", environment=environment)
        assert done.returncode == 1
        (line,) = done.stderr.splitlines()
        assert line.startswith("penstock bench collectives: ") and text in line, line


def test_info_works_without_mpi4py(tmp_path: Path) -> None:
    done = run("info", "--json", environment=without(tmp_path, "mpi4py"))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["mpi"]["problem"]


def test_version() -> None:
    result = invoke("--version")
    assert result.exit_code == 0
    assert result.stdout.startswith("penstock ")


def test_an_empty_command_shows_help() -> None:
    for words in ((), ("store",), ("plan",), ("model",), ("bench",)):
        result = invoke(*words)
        assert result.exit_code in (0, 2)
        assert "Usage: penstock" in result.output


@pytest.mark.parametrize("path", COMMANDS)
def test_help_has_an_example_that_the_command_takes(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("part.bin", "field.bin", "model.safetensors", "model"):
        Path(name).touch()
    result = invoke(*path.split()[1:], "--help")
    assert result.exit_code == 0
    if path not in ("penstock run", "penstock env"):  # what they print is another program's, or for a shell
        assert "--json" in result.output
    lines = [line.strip() for line in result.output.splitlines()]
    examples = [line[line.index("penstock") :] for line in lines if "Usage" not in line and f"{path} " in f"{line} "]
    assert examples, result.output
    for example in examples:
        words = example.removeprefix(path).split()
        COMMANDS[path].make_context(path, words)


def test_tables_fit_into_the_terminal() -> None:
    headings = ["name", "bytes", *(f"peer{number}/mpich" for number in range(6))]
    lines = [headings, *[["row", "1,024", *["2.5 ms"] * 6]] * 3]
    wide = text_table.columns(lines, keys=2)
    assert len(wide.splitlines()) == 4
    assert wide.splitlines()[1].startswith("row   1,024       2.5 ms")
    narrow = text_table.columns(lines, keys=2, width=40)
    assert all(len(line) <= 40 for line in narrow.splitlines())
    assert narrow.count("name  bytes") == 3
    assert all(f"peer{number}/mpich" in narrow for number in range(6))
    paragraphs = text_table.columns(lines, keys=2, width=20)
    assert paragraphs.split("\n\n")[0].splitlines()[:3] == [
        "name         row",
        "bytes        1,024",
        "peer0/mpich  2.5 ms",
    ]


def test_only_a_terminal_limits_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    assert text_table.terminal_columns() is None
    assert text_table.entry("name", "some words that say much", 6) == "name    some words that say much"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert text_table.terminal_columns() == 20
    said = text_table.entry("name", "some words that say much", 6)
    assert said == "name    some words\n        that say\n        much"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_ask_the_command(shell: str) -> None:
    result = invoke("completion", shell)
    assert result.exit_code == 0, result.output
    assert f"_PENSTOCK_COMPLETE={shell}_complete" in result.output


@pytest.mark.parametrize(
    ("words", "expected"),
    [("penstock do", "doctor"), ("penstock store ex", "export"), ("penstock tune --exh", "--exhaustive")],
)
def test_a_shell_is_told_what_fits(words: str, expected: str) -> None:
    environment = {
        **os.environ,
        "_PENSTOCK_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    assert f",{expected}" in run(environment=environment).stdout


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_shown_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream, shown in ((Terminal(), True), (io.StringIO(), False)):
        monkeypatch.setattr(sys, "stderr", stream)
        with progress.working("exporting 5 bytes"):
            pass
        with progress.bar("bench store") as advance:
            advance(1, 3)
        assert ("exporting 5 bytes" in stream.getvalue()) == shown
        assert ("1/3" in stream.getvalue()) == shown
