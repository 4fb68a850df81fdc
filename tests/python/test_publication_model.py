"""The protocol of the store as a model: Spin looks at every order of steps, and finds every mistake planted in it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

MODEL = Path(__file__).parent.parent / "model" / "publication.pml"
WRITERS_AND_COLLECTOR = ["-DWRITERS=2", "-DROUNDS=1", "-DREADERS=0"]
READER_AND_COLLECTOR = ["-DWRITERS=1", "-DROUNDS=2", "-DREADERS=1"]

pytestmark = [
    pytest.mark.skipif(shutil.which("spin") is None, reason="no spin; install Debian's package spin"),
    pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc, which spin needs"),
]


def verify(folder: Path, *defines: str) -> tuple[int, int, str]:
    """Errors, states, and all that the verifier says."""
    subprocess.run(["spin", *defines, "-a", MODEL], cwd=folder, check=True, capture_output=True)
    subprocess.run(["gcc", "-O2", "-w", "-DSAFETY", "-DCOLLAPSE", "-o", "pan", "pan.c"], cwd=folder, check=True)
    done = subprocess.run(
        ["./pan", "-m100000", "-w22"], cwd=folder, check=False, capture_output=True, text=True, timeout=300
    )
    assert "max search depth too small" not in done.stdout
    errors, states = (re.search(text, done.stdout) for text in (r"errors: (\d+)", r"(\d+) states, stored"))
    assert errors, done.stdout
    assert states, done.stdout
    return int(errors[1]), int(states[1]), done.stdout


@pytest.mark.parametrize("processes", [WRITERS_AND_COLLECTOR, READER_AND_COLLECTOR], ids=["writers", "reader"])
def test_no_order_of_steps_breaks_a_promise(tmp_path: Path, processes: list[str]) -> None:
    errors, states, said = verify(tmp_path, *processes)
    assert errors == 0, said
    assert states > 1_000_000, "so few states mean that something is never tried"


@pytest.mark.parametrize(
    ("mistake", "processes", "broken"),
    [
        ("NO_LOOK_AT_FENCES", WRITERS_AND_COLLECTOR, "acknowledged"),
        ("NO_LOOK_AT_KEEP", WRITERS_AND_COLLECTOR, "acknowledged"),
        ("LIST_BEFORE_FENCE", WRITERS_AND_COLLECTOR, "data"),
        ("MARK_AFTER_REMOVAL", WRITERS_AND_COLLECTOR, "data"),
        ("NO_LOOK_AFTER_REPLAY", READER_AND_COLLECTOR, "wrong"),
    ],
)
def test_planted_mistakes_are_found(tmp_path: Path, mistake: str, processes: list[str], broken: str) -> None:
    errors, _, said = verify(tmp_path, f"-D{mistake}", *processes)
    assert errors == 1
    violated = next(line for line in said.splitlines() if "assertion violated" in line)
    assert broken in violated
