"""The AlexNet mini-application: small images, a narrow network, checkpoints that continue exactly."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., subprocess.CompletedProcess]
ROOT = Path(__file__).parents[2]
PYTHON = ROOT / "build/torch-env/bin/python"
EXAMPLE = ROOT / "examples/alexnet/alexnet.py"
SMALL = ("--batch", "8", "--size", "64", "--width", "0.05", "--kilobytes", "3", "--rate", "1e-3", "--json")


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("images")


def result_of(run: Run, images: Path, *arguments: str, **how: Any) -> dict[str, Any]:
    done = run(PYTHON, EXAMPLE, images, "--make", "40", *SMALL, *arguments, OMP_NUM_THREADS="1", **how)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def test_a_run_that_continues_from_a_checkpoint_has_the_same_losses(run: Run, images: Path, tmp_path: Path) -> None:
    whole = result_of(run, images, "--steps", "12")
    assert len(whole["losses"]) == 12
    assert len(list(images.glob("*/*.jpg"))) == 40
    place = ("--save", str(tmp_path / "slow"), "--burst-buffer", str(tmp_path / "fast"), "--save-every", "3")
    first = result_of(run, images, "--steps", "8", "--prefetch", "2", *place)
    assert first["losses"] == pytest.approx(whole["losses"][:8], rel=1e-5)
    assert first["checkpoints"] == 2
    second = result_of(run, images, "--steps", "6", "--prefetch", "0", "--threads", "2", *place)
    assert second["first_step"] == 7, "the checkpoint of step 6 is the newest"
    assert second["losses"] == pytest.approx(whole["losses"][6:], rel=1e-5)


def test_ranks_train_together(run: Run, images: Path) -> None:
    found = result_of(run, images, "--steps", "2", "--in-memory", ranks=2)
    assert found["ranks"] == 2
    assert len(found["losses"]) == 2


def test_the_figures_have_a_row_for_each_case(run: Run, images: Path) -> None:
    figures = EXAMPLE.with_name("figures.py")
    small = ("--threads", "1", "--batches", "8", "--rounds", "1", "--steps", "2", "--json")
    done = run(PYTHON, figures, images, "--make", "40", *small, "--", "--size", "64", "--width", "0.05")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout.strip().splitlines()[-1])
    assert [row["way"] for row in rows] == ["none", "prefetch", "memory"]
    assert all(row["elapsed_s"] > row["stall_s"] > 0 for row in rows), rows
