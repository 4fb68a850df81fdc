"""PyTorch's own tests: what gloo passes passes through Penstock, too."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

Run = Callable[..., subprocess.CompletedProcess]
PYTHON = Path(__file__).parents[2] / "build/torch-env/bin/python"
SUITE = Path(__file__).with_name("own_suite.py")
RANKS = 3
#: That end otherwise here, and why they should.
DIFFERENCES = {
    "test_monitored_barrier_gloo_subgroup": "dist.monitored_barrier refuses every backend but gloo",
    "test_monitored_barrier_gloo_rank_0_timeout": "the error is to have the words of gloo's monitored barrier",
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
    differ = {name: ours[name] for name in passed if ours[name] != "passed"}
    unexpected = {name: outcome for name, outcome in differ.items() if name not in DIFFERENCES}
    assert not unexpected
    assert set(DIFFERENCES) <= set(differ), "these pass by now; take them out of DIFFERENCES"
