"""Runs every fenced block of the documents, under each MPI if it uses one. Blocks that are only checked say why.

A block that needs what its page does not show gets a prelude, chosen by what it lacks. A language without a runner, and a
command without a checker, fail.
"""

from __future__ import annotations

import ast
import builtins
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import penstock as ps
import pytest
from snippets import commands
from snippets.markdown import ROOT, SNIPPETS, Snippet, snippets_of

MPIS = ("mpich", "openmpi")

#: Name that a Python block uses without defining it → code that defines it.
PYTHON_PRELUDES = {
    "np": "import numpy as np",
    "ps": "import penstock as ps",
    "MPI": "from mpi4py import MPI",
    "comm": "import penstock as ps\nfrom mpi4py import MPI\ncomm = ps.Comm(MPI.COMM_WORLD)",
}

#: Prepended to a CMake block: a project, and the program that it links, which is the page's C++ block.
CMAKE_PRELUDE = "cmake_minimum_required(VERSION 3.20)\nproject(example LANGUAGES C CXX)\n"

#: A row of algorithms.def and its planner, used as the build and the conformance tests do: planned for all ranks of two nodes, and
#: verified against each other.
PLANNER_PRELUDE = """
#include <cstdio>
#include "collectives/parts/arguments.hpp"
"""
PLANNER_POSTLUDE = """
namespace penstock::collectives {
struct SnippetRow {
  Plan (*planner)(const Team&, const Collective&);
  bool (*fits)(const Team&, const Collective&);
};
#define PENSTOCK_ALGORITHM(kind, name, fits, words, cost, ...) {kind##_##name, fits},
static const SnippetRow rows[] = {
ROWS};
}  // namespace penstock::collectives

int main() {
  using namespace penstock;
  int planned = 0;
  for (const auto& row : collectives::rows)
    for (int root = 0; root < 5; ++root) {
      Collective what{.kind = CollectiveKind::bcast, .count = 100, .dtype = DType::float32, .root = root};
      std::vector<Plan> plans;
      Team team{.node_of_rank = {0, 0, 0, 1, 1}};
      for (team.rank = 0; team.rank < team.size(); ++team.rank) {
        if (!row.fits(team, what)) return 2;
        plans.push_back(row.planner(team, what));
      }
      for (const std::string& finding : verify(plans, team.node_of_rank, 4)) return std::puts(finding.c_str()), 1;
      ++planned;
    }
  std::printf("%d plans are right\\n", planned);
}
"""

#: Algorithm that a page adds → existing algorithm, for the commands of the page.
ADDED_ALGORITHMS = {"linear": "binomial"}


def of(*languages: str) -> list[Snippet]:
    return [snippet for snippet in SNIPPETS if snippet.language in languages]


def run(*words: str | Path, cwd: Path, mpi: str = "mpich", **environment: str) -> str:
    """Standard output of a command in the built environment. The command must succeed."""
    done = subprocess.run(
        [str(word) for word in (ROOT / "dev", "exec", *words)],
        cwd=cwd,
        env={**os.environ, "PENSTOCK_MPI": mpi, "PENSTOCK_BUILD": str(ROOT / "build/release"), **environment},
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, f"{' '.join(map(str, words))}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture
def moved() -> Iterator[Callable[[str], str]]:
    """Replaces folders of the machine that a block writes to by new, empty ones."""
    with tempfile.TemporaryDirectory(prefix="snippets-") as disk:
        with tempfile.TemporaryDirectory(prefix="penstock-snippets-", dir="/dev/shm") as memory:
            yield lambda text: text.replace("/tmp/", f"{disk}/").replace("/dev/shm/", f"{memory}/")


def free_names(text: str) -> list[str]:
    """Names that a block uses before it could have defined them."""
    tree = ast.parse(text)
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    bound = {node.id for node in names if not isinstance(node.ctx, ast.Load)}
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            bound |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            bound.add(node.name)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
    return list(dict.fromkeys(node.id for node in names if node.id not in bound and not hasattr(builtins, node.id)))


def with_prelude(text: str) -> str:
    return "\n".join([*(PYTHON_PRELUDES[name] for name in free_names(text) if name in PYTHON_PRELUDES), text])


def uses_mpi(text: str) -> bool:
    return "mpi4py" in text or "penstock.torch" in text


def test_all_pages_are_read() -> None:
    assert {"README.md", "CONTRIBUTING.md", "docs/add-an-algorithm.md"} <= {snippet.page for snippet in SNIPPETS}


RUNNERS = {
    "python": "test_python",
    "cpp": "test_cpp",
    "cmake": "test_cmake",
    "sh": "test_commands",
    "json": "test_json",
    "text": "",  # a drawing, a formula or output
}


@pytest.mark.parametrize("snippet", SNIPPETS, ids=str)
def test_every_language_is_run(snippet: Snippet) -> None:
    assert snippet.language in RUNNERS, f"{snippet}: expected one of {list(RUNNERS)} after the fence"
    runner = RUNNERS[snippet.language]
    assert not runner or runner in globals()


def python_runs() -> Iterator[object]:
    """Without MPI: run once. With MPI: run under each MPI, on several ranks and on one; tutorials as their page says alone."""
    for snippet in of("python"):
        if snippet.page.startswith(("docs/start.md", "docs/tutorials/")):
            yield pytest.param(snippet, MPIS[0], 4, id=f"{snippet}-{MPIS[0]}-4")
            continue
        ways = [(mpi, ranks) for mpi in MPIS for ranks in (4, 1)] if uses_mpi(with_prelude(snippet.text)) else [("", 1)]
        for mpi, ranks in ways:
            yield pytest.param(snippet, mpi or MPIS[0], ranks, id=f"{snippet}-{mpi or 'no MPI'}-{ranks}")


def has_jax(python: str | Path) -> bool:
    return Path(python).exists() and subprocess.run([python, "-c", "import jax"], capture_output=True).returncode == 0


@pytest.mark.parametrize(("snippet", "mpi", "ranks"), list(python_runs()))
def test_python(snippet: Snippet, mpi: str, ranks: int, tmp_path: Path, moved: Callable[[str], str]) -> None:
    text = with_prelude(snippet.text)
    (tmp_path / "example.py").write_text(moved(text))
    launch = ["mpiexec", "-n", str(ranks)] if uses_mpi(text) else []
    python: str | Path = "python"
    if "import torch" in text:
        python = ROOT / "build/torch-env/bin/python"
        if not python.exists():
            pytest.skip("PyTorch is not in build/torch-env; ./dev setup --with torch installs it")
    if "import jax" in text:
        python = next((each for each in (ROOT / "build/torch-env/bin/python", sys.executable) if has_jax(each)), "")
        if not python:
            pytest.skip("JAX is not in build/torch-env; ./dev setup --with torch installs it")
    output = run(*launch, python, "example.py", cwd=tmp_path, mpi=mpi)
    if "print(" in text:
        assert output.strip()
    for picture in re.findall(r"\.plot\(\"([^\"]+)\"", text):
        assert (tmp_path / picture).stat().st_size > 0


@pytest.fixture(scope="session")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An installation of the library."""
    folder = tmp_path_factory.mktemp("prefix")
    run("cmake", "--install", ROOT / "build/release", "--prefix", folder, "--component", "library", cwd=folder)
    return folder


def programs(page: str) -> list[Snippet]:
    return [snippet for snippet in of("cpp", "c") if snippet.page == page and "int main(" in snippet.text]


def build(folder: Path, cmake: str, prefix: Path, mpi: str) -> Path:
    (folder / "CMakeLists.txt").write_text(cmake)
    run("cmake", "-S", ".", "-B", "b", "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}", cwd=folder, mpi=mpi)
    run("cmake", "--build", "b", cwd=folder, mpi=mpi)
    return folder / "b/program"


def readme_program(folder: Path, prefix: Path, mpi: str) -> Path:
    """The C++ program of README.md, built as its CMake block says."""
    (program,), (cmake,) = programs("README.md")[:1], [each for each in of("cmake") if each.page == "README.md"][:1]
    (folder / "program.cpp").write_text(program.text)
    return build(folder, whole_project(cmake.text), prefix, mpi)


def whole_project(text: str) -> str:
    """A CMake block, completed."""
    target = "" if "add_executable(program" in text else "add_executable(program program.cpp)\n"
    project = "" if "project(" in text else CMAKE_PRELUDE
    return project + target + text


@pytest.mark.parametrize("mpi", MPIS)
@pytest.mark.parametrize("snippet", of("cmake"), ids=str)
def test_cmake(snippet: Snippet, mpi: str, prefix: Path, tmp_path: Path) -> None:
    source = (programs(snippet.page) or programs("README.md"))[0]
    (tmp_path / "program.cpp").write_text(source.text)
    program = build(tmp_path, whole_project(snippet.text), prefix, mpi)
    run("mpiexec", "-n", "2", program, cwd=tmp_path, mpi=mpi)


@pytest.mark.parametrize("snippet", of("cpp"), ids=str)
def test_cpp(snippet: Snippet, prefix: Path, tmp_path: Path) -> None:
    if "int main(" in snippet.text:
        (tmp_path / "program.cpp").write_text(snippet.text)
        cmake = CMAKE_PRELUDE + (
            "add_executable(program program.cpp)\nfind_package(penstock REQUIRED COMPONENTS mpi)\n"
            "target_compile_options(program PRIVATE -Wall -Wextra -Werror)\n"
            "target_link_libraries(program PRIVATE penstock::mpi)\n"
        )
        program = build(tmp_path, cmake, prefix, "mpich")
        run("mpiexec", "-n", "4", program, cwd=tmp_path)
        return
    rows, planner = planner_of(snippet.page)
    assert snippet.text in (rows, planner), f"{snippet}: neither a program nor a row of algorithms.def and its planner"
    (tmp_path / "snippet.cpp").write_text(PLANNER_PRELUDE + planner + PLANNER_POSTLUDE.replace("ROWS", rows))
    compiler = ["c++", "-std=c++20", "-Wall", "-Werror", "-I", ROOT / "src", "-I", ROOT / "include"]
    # Linked like the C++ tests, since planners are not exported. Nothing of the other layers is called.
    library = [ROOT / "build/release/src/libpenstock_static.a", "-Wl,--unresolved-symbols=ignore-all"]
    run(*compiler, "snippet.cpp", "-o", "snippet", *library, cwd=tmp_path)
    assert "5 plans are right" in run(tmp_path / "snippet", cwd=tmp_path)


def planner_of(page: str) -> tuple[str, str]:
    """The row and the planner that a page adds, each in a block of its own."""
    blocks = [snippet.text for snippet in of("cpp") if snippet.page == page]
    rows = [text for text in blocks if text.startswith("PENSTOCK_ALGORITHM")]
    planners = [text for text in blocks if "namespace penstock::collectives" in text]
    assert len(rows) == len(planners) == 1, f"{page}: expected one row of algorithms.def and one planner"
    return rows[0], planners[0]


@pytest.mark.parametrize("snippet", of("json"), ids=str)
def test_json(snippet: Snippet, tmp_path: Path) -> None:
    facts = json.loads(snippet.text)
    if "application_s" in facts:
        (tmp_path / "costs.json").write_text(snippet.text)
        advice = ps.model.split(8, nbytes=1 << 20, costs=tmp_path / "costs.json")
        assert advice.unit == "s"


@pytest.mark.parametrize("snippet", of("sh"), ids=str)
def test_commands(snippet: Snippet, prefix: Path, tmp_path: Path, moved: Callable[[str], str]) -> None:
    (tmp_path / "dev").symlink_to(ROOT / "dev")
    for line in commands.command_lines(snippet.text):
        verdict = commands.check(line)
        if verdict.not_run:
            print(f"{snippet}: not run ({verdict.not_run}): {line}")
            continue
        mpi = "openmpi" if "openmpi" in line else "mpich"
        if "./program" in line and not (tmp_path / "program").exists():
            build_folder = tmp_path / "build-program"
            build_folder.mkdir()
            shutil.copy(readme_program(build_folder, prefix, mpi), tmp_path / "program")
        if "example.py" in line:
            (example,) = [each for each in of("python") if each.page == snippet.page and uses_mpi(each.text)]
            (tmp_path / "example.py").write_text(moved(example.text))
        for added, present in ADDED_ALGORITHMS.items():
            line = re.sub(rf"(--algorithm ){added}\b", rf"\g<1>{present}", line)
        run("bash", "-ec", moved(line), cwd=tmp_path, mpi=mpi, prefix=str(prefix))


# -- these tests must be able to fail -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "launder --all",
        "penstock launder",
        "penstock plan show allreduce --no-such-flag",
        "penstock plan show allreduce --ranks many",
        "penstock tune --no-such-flag",
        "mpiexec --no-such-flag 3 ./program",
        "./dev launder",
        "./dev test launder",
        "./dev test --no-such-flag",
        "./dev lint --no-such-flag",
        "./dev build launder",
        "./dev cluster launder",
        "./dev cluster bench collectives --no-such-flag",
        "./dev exec penstock launder",
        "pip install '.[launder]'",
        "pip install 'penstock[launder]'",
        "pip install launder",
        "pip install --no-such-flag .",
        "python launder.py",
        "PENSTOCK_LAUNDER=1 ./program",
        "cmake -S . -B b -DPENSTOCK_LAUNDER=1",
        "cc x.c $(pkg-config --libs penstock-launder)",
        "penstock info | launder",
    ],
)
def test_what_does_not_exist_is_found(line: str) -> None:
    with pytest.raises((commands.UnknownCommandError, click.UsageError)):
        commands.check(line)


def test_blocks_are_found() -> None:
    page = "a\n```python\nx = 1\n```\n\n  ~~~sh\n  ls\n  ~~~\n````text\n```\n````\n```\nnothing\n```\n"
    found = snippets_of(Path("page.md"), page)
    assert [(each.language, each.text, each.line) for each in found] == [
        ("python", "x = 1\n", 3),
        ("sh", "ls\n", 7),
        ("text", "```\n", 10),
        ("", "nothing\n", 13),
    ]
    with pytest.raises(ValueError, match=r"page.md:1: nothing closes"):
        snippets_of(Path("page.md"), "```sh\nls\n")


def test_free_names() -> None:
    text = "import os\nfrom a import b as c\ny = [i for i in x]\ndef f(z): return z + comm\nprint(c, os, f)\n"
    assert free_names(text) == ["x", "comm"]
    assert with_prelude(text).startswith(PYTHON_PRELUDES["comm"])
