"""The demo's run, killed with SIGKILL on 4 ranks and restarted on 2, 3 and 5, gives one loss curve."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from rich.console import Console

DEMO = Path(__file__).parents[2] / "demo"
STEPS = 28  # a checkpoint after 12 and 24
KILL_AT = 15


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    sys.path.insert(0, str(DEMO))
    import main

    # The images are those of ./dev demo: made once, then cached.
    directory = DEMO.parent / "build" / "demo" / "test-runs"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    return main.Demo(directory, STEPS, Console(quiet=True))


def test_restart_on_any_number_of_ranks_continues_the_same_run(demo):
    killed = demo.run("penstock", "killed", 4, kill_at=KILL_AT)
    assert killed.killed_ns is not None
    before, samples_before = killed.losses(), killed.samples()
    curves, samples = {}, {}
    for ranks in (2, 3, 5):
        shutil.copytree(demo.directory / "killed", demo.directory / f"restarted-{ranks}")
        restarted = demo.run("penstock", f"restarted-{ranks}", ranks)
        first = restarted.results[0]["first_step"]
        assert first == 12
        assert all(result["field_restored"] for result in restarted.results)
        curves[ranks], samples[ranks] = restarted.losses(), restarted.samples()
        assert sorted(curves[ranks]) == list(range(first, STEPS))
        for step in set(before) & set(curves[ranks]):
            assert curves[ranks][step] == pytest.approx(before[step], rel=1e-4)
        for step in range(first, KILL_AT):
            assert samples[ranks][step] == samples_before[step]
    for ranks in (3, 5):
        assert samples[ranks] == samples[2]
        for step, loss in curves[ranks].items():
            # Sums of other parts of a batch are rounded otherwise, and what a step makes of that may double.
            assert loss == pytest.approx(curves[2][step], rel=min(1e-6 * 2 ** (step - first), 5e-3))
