"""The layer check finds violations."""

from __future__ import annotations

from pathlib import Path

import check_layers
import pytest

TABLE = """# Architecture

| folder | holds | may include | public headers |
|---|---|---|---|
| `src/base/` | errors | – | `error.hpp` |
| `src/plan/` | steps | base | `plan.hpp` |
| `src/engine/` | lanes | base, plan | – |
| `src/mpi/` | MPI | base, engine | `mpi.hpp` |
| `src/preload/` | PMPI | base, engine | – |
| `python/` | bindings | include | – |
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    files = {
        "docs/architecture.md": TABLE,
        "include/penstock/error.hpp": '#include <string>\n#include "penstock/errors.def"\n',
        "include/penstock/errors.def": "ROW(a)\n",
        "include/penstock/plan.hpp": '#include "penstock/error.hpp"\n',
        "include/penstock/mpi.hpp": "#include <mpi.h>\n",
        "src/base/error.cpp": '#include "penstock/error.hpp"\n#include "base/other.hpp"\n#include "penstock/errors.def"\n',
        "src/engine/routes.hpp": """#include "engine/cells.hpp"
using All = std::tuple<std::optional<Cells>, std::optional<Remote>>;
""",
        "src/engine/core.hpp": "class Core {\n};\n",
        "src/engine/cells.hpp": '#include "engine/core.hpp"\nclass Cells final : public Mechanism {\n};\n',
        "src/engine/cells.cpp": '#include "engine/cells.hpp"\n',
        "src/engine/remote/remote_messages.hpp": """#include "engine/remote/first.hpp"
#include "engine/remote/second.hpp"
class Remote final : public Mechanism {
  First first_;
  const Second second_;
};
""",
        "src/engine/remote/first.hpp": "class First {\n};\n",
        "src/engine/remote/second.hpp": '#include "engine/remote/first.hpp"\nclass Second {\n};\n',
        "src/engine/engine.cpp": '#include "plan/graph.hpp"\n#include "penstock/plan.hpp"\n',
        "src/mpi/transport.cpp": """#include PENSTOCK_MPI_HEADER
#include "engine/transport.hpp"
void send() { MPI_Send("MPI_Bsend()"); }  // never MPI_Ssend()
""",
        "src/preload/own_calls.hpp": "#define MPI_Send PENSTOCK_OWN(Send)\n",
        "python/src/module.cpp": "#include <nanobind/nanobind.h>\n#include <penstock/plan.hpp>\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_a_project_that_obeys_passes(project: Path) -> None:
    files, wrong = check_layers.check(project)
    assert wrong == []
    assert len(files) == 17


@pytest.mark.parametrize(
    ("file", "line", "expected"),
    [
        ("src/base/error.cpp", '#include "plan/graph.hpp"', "base may not include plan"),
        ("src/base/error.cpp", '#include "penstock/plan.hpp"', "base may not include plan"),
        ("include/penstock/error.hpp", '#include "penstock/plan.hpp"', "base may not include plan"),
        ("src/engine/engine.cpp", "#include <mpi.h>", "only src/mpi"),
        ("src/engine/engine.cpp", "#  include PENSTOCK_MPI_HEADER", "only src/mpi"),
        ("src/engine/engine.cpp", '#include "penstock/mpi.hpp"', "engine may not include mpi"),
        ("src/engine/engine.cpp", '#include "../plan/graph.hpp"', "write the path from src/"),
        ("src/engine/engine.cpp", '#include "penstock/unknown.hpp"', "belongs to no row"),
        ("python/src/module.cpp", '#include "engine/engine.hpp"', "python may not include engine"),
        ("python/src/module.cpp", '#include "penstock/mpi.hpp"', "python may not include mpi"),
        ("src/mpi/transport.cpp", "void receive() { MPI_Recv(); }", "calls MPI_Recv, which has no line"),
        ("src/utils/strings.cpp", "", "its folder has no row"),
        ("include/penstock/strange.hpp", "", "belongs to no row"),
    ],
)
def test_each_kind_of_violation_is_reported(project: Path, file: str, line: str, expected: str) -> None:
    path = project / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text((path.read_text() if path.exists() else "") + line + "\n")
    _, wrong = check_layers.check(project)
    assert [where for where, _ in wrong] == [path]
    assert expected in wrong[0][1]


@pytest.mark.parametrize(
    ("file", "line", "header", "other"),
    [
        ("src/engine/cells.cpp", '#include "engine/remote/remote_messages.hpp"', "src/engine/cells.hpp", "Remote"),
        ("src/engine/core.hpp", '#include "engine/cells.hpp"', "src/engine/remote/remote_messages.hpp", "Cells"),
        ("src/engine/remote/first.hpp", '#include "engine/remote/second.hpp"', "src/engine/remote/first.hpp", "Second"),
    ],
)
def test_no_mechanism_knows_another_and_no_part_a_later_one(
    project: Path, file: str, line: str, header: str, other: str
) -> None:
    remote = project / "src/engine/remote/remote_messages.hpp"
    remote.write_text('#include "engine/core.hpp"\n' + remote.read_text())
    assert check_layers.check(project)[1] == []
    (project / file).write_text((project / file).read_text() + line + "\n")
    _, wrong = check_layers.check(project)
    assert [where for where, _ in wrong] == [project / header]
    assert f"can use {other}" in wrong[0][1]


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        ("src/engine/core.hpp", "class Core {\n" + "  int x;\n" * 399 + "};\n", "400 are too many"),
        ("src/engine/own.cpp", "bool overlap(int a, int b) {\n}\n", "defines overlap()"),
        ("src/engine/own.cpp", "constexpr std::uint64_t mix(std::uint64_t a) {\n}\n", "defines mix()"),
        ("src/collectives/bcast/ring.cpp", "Plan ring(const Team& t) {\n  return chain(t);\n}\n", "make it a row"),
        ("src/collectives/rings/ring.cpp", "", "is the folder of no operation"),
    ],
)
def test_what_is_large_or_repeated_or_misplaced_is_reported(project: Path, file: str, text: str, expected: str) -> None:
    table = project / "docs/architecture.md"
    table.write_text(TABLE + "| `src/collectives/` | planners | base, plan | – |\n")
    (project / "src/collectives/bcast").mkdir(parents=True)
    (project / "src/collectives/algorithms.def").write_text("PENSTOCK_ALGORITHM(bcast, ring, any_team)\n")
    assert check_layers.check(project)[1] == []
    (project / file).parent.mkdir(parents=True, exist_ok=True)
    (project / file).write_text(text)
    _, wrong = check_layers.check(project)
    assert [expected in reason for _, reason in wrong] == [True]


def test_mechanisms_that_cannot_be_read_are_an_error(project: Path) -> None:
    (project / "src/engine/routes.hpp").write_text("class Routes {\n};\n")
    _, wrong = check_layers.check(project)
    assert "lists no mechanisms" in wrong[0][1]


def test_a_header_in_the_table_must_exist(project: Path) -> None:
    (project / "include/penstock/plan.hpp").unlink()
    _, wrong = check_layers.check(project)
    assert any("not in include/penstock/" in reason for _, reason in wrong)


def test_a_missing_table_is_an_error(project: Path) -> None:
    (project / "docs/architecture.md").write_text("nothing here\n")
    _, wrong = check_layers.check(project)
    assert "holds no table" in wrong[0][1]
