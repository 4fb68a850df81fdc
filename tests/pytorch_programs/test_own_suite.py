"""PyTorch's own tests: what gloo passes passes through Penstock, too."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess]
PYTHON = Path(__file__).parents[2] / "build/torch-env/bin/python"
SUITE = Path(__file__).with_name("own_suite.py")
FILES = Path(__file__).with_name("own_files.py")
RANKS = 3
#: Of test/distributed in a checkout of PyTorch; the wheel has only distributed_test.
OF_CHECKOUT = (
    "test_c10d_common",
    "test_c10d_object_collectives",
    "test_device_mesh",
    "_composable/fsdp/test_fully_shard_comm",
    "_composable/fsdp/test_fully_shard_state_dict",
    "_composable/test_replicate",
    "_tensor/test_dtensor",
    "_tensor/test_redistribute",
    "checkpoint/test_checkpoint",
    "checkpoint/test_file_system_checkpoint_cpu",
    "checkpoint/test_state_dict",
    "checkpoint/test_state_dict_utils",
)
#: That end otherwise here, and why they should.
DIFFERENCES = {
    "ProcessGroupWithDispatchedCollectivesTests.test_init_process_group_for_all_backends": (
        'groups of all registered backends but "threaded" are to have the name of a backend in C++, "custom"'
    ),
}


def outcomes(run: Run, backend: str, folder: Path) -> dict[str, str]:
    result = folder / f"{backend}.json"
    done = run(PYTHON, SUITE, backend, result, ranks=RANKS)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return json.loads(result.read_text())


def test_what_gloo_passes_passes(run: Run, tmp_path: Path) -> None:
    theirs, ours = (outcomes(run, backend, tmp_path) for backend in ("gloo", "penstock"))
    passed = [name for name, outcome in theirs.items() if outcome == "passed"]
    assert len(passed) > 80, f"gloo passes only {len(passed)} of {len(theirs)}"
    assert {name: ours[name] for name in passed if ours[name] != "passed"} == {}


@pytest.mark.parametrize("name", OF_CHECKOUT)
def test_what_gloo_passes_of_a_checkout_passes(run: Run, tmp_path: Path, name: str) -> None:
    checkout = os.environ.get("PENSTOCK_PYTORCH_CHECKOUT")
    if not checkout:
        pytest.skip("PENSTOCK_PYTORCH_CHECKOUT does not name a checkout of PyTorch")
    places = [
        Path(checkout) / "test/distributed" / f"{each}.py" for each in (name, name.replace("_tensor/", "tensor/"))
    ]
    file = next((place for place in places if place.exists()), None)
    if file is None:
        pytest.skip(f"{checkout} has no test/distributed/{name}.py")
    found = {}
    for backend in ("gloo", "penstock"):
        result = tmp_path / f"{backend}.json"
        done = run(PYTHON, FILES, file, backend, result)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        found[backend] = json.loads(result.read_text())
    theirs, ours = found["gloo"], found["penstock"]
    differ = {test: ours[test] for test, outcome in theirs.items() if outcome == "passed" and ours[test] != "passed"}
    assert {test: outcome for test, outcome in differ.items() if test not in DIFFERENCES} == {}
