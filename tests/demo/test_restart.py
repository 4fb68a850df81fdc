"""The demo's run, killed with SIGKILL on 4 ranks and restarted on 2, 3 and 5, gives one loss curve."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import checks
import pytest

STEPS = 30
KILL_STEP = 26  # the last checkpoint before is that of step 17
KILLED_STEPS = KILL_STEP + 2  # before the next checkpoint: the kill may come late
FIRST = 17
BATCH = 64


def restart(runner, way: str, name: str, ranks: int):
    for place in (runner.tier.folder, runner.directory / "fast"):
        shutil.copytree(place / name, place / f"{name}-{ranks}")
    job = runner.job(f"{name}-{ranks}", steps=STEPS, batch=BATCH)
    return runner.run(way, job, ranks)[way]


@pytest.fixture(scope="module")
def killed(runner):
    job = runner.job("killed", steps=KILLED_STEPS, batch=BATCH, kill_step=KILL_STEP)
    return dataclasses.replace(job, steps=STEPS), runner.run("penstock", job, 4)["penstock"]


def test_restart_on_any_number_of_ranks_continues_the_same_run(runner, killed):
    _, records = killed
    before, samples_before = records.losses(), records.samples()
    curves, samples = {}, {}
    for ranks in (2, 3, 5):
        restarted = restart(runner, "penstock", "killed", ranks)
        assert restarted.first_step == FIRST
        assert all(result["field_restored"] for result in restarted.results)
        curves[ranks], samples[ranks] = restarted.losses(), restarted.samples()
        assert sorted(curves[ranks]) == list(range(FIRST, STEPS))
        for step in set(before) & set(curves[ranks]):
            assert curves[ranks][step] == pytest.approx(before[step], rel=1e-4)
        for step in range(FIRST, KILL_STEP):
            assert samples[ranks][step] == samples_before[step]
    for ranks in (3, 5):
        assert samples[ranks] == samples[2]
        for step, loss in curves[ranks].items():
            # Sums over other parts of a batch round differently, and a step may double the difference.
            assert loss == pytest.approx(curves[2][step], rel=min(1e-6 * 2 ** (step - FIRST), 5e-3))


def test_plain_way_sees_the_same_samples_and_restarts_too(runner, killed):
    _, with_penstock = killed
    job = runner.job("plain", steps=KILLED_STEPS, batch=BATCH, kill_step=KILL_STEP)
    records = runner.run("plain", job, 4)["plain"]
    restarted = restart(runner, "plain", "plain", 3)
    assert restarted.first_step == FIRST
    assert all(result["field_restored"] for result in restarted.results)
    expected = with_penstock.samples()
    for step in range(KILL_STEP):
        assert records.samples()[step] == expected[step]
    assert restarted.samples()[FIRST] == expected[FIRST]


def test_checks_tell_what_is_wrong(runner, killed):
    job, records = killed
    reference = runner.run("both", runner.job("reference", steps=STEPS, batch=BATCH, segment_steps=6), 2)
    restarted = restart_once_more(runner)
    snapshots = {"reads": 3, "read_live": 2, "mixed": 0}
    left = checks.what_is_left(job)
    failed = failures(job, records, restarted, reference["penstock"], snapshots, left)
    assert failed == []
    assert reference["plain"].samples() == reference["penstock"].samples()

    assert failures(job, records, restarted, reference["penstock"], {**snapshots, "mixed": 1}, left) == ["snapshots"]
    assert failures(job, records, restarted, reference["penstock"], snapshots, {**left, "step": None}) == [
        "file_after_kill"
    ]
    path = Path(restarted.path) / "samples-0.jsonl"
    lines = path.read_text().splitlines()
    step, ids = json.loads(lines[2])
    path.write_text("\n".join([*lines[:2], json.dumps([step, [*ids[:-1], ids[0]]]), *lines[3:]]) + "\n")
    assert set(failures(job, records, restarted, reference["penstock"], snapshots, left)) >= {"samples"}


def restart_once_more(runner):
    job = runner.job("killed-3", steps=STEPS, batch=BATCH)
    # A restart leaves checkpoints of its own: start again from the state after the kill.
    for place in (runner.tier.folder, runner.directory / "fast"):
        shutil.rmtree(place / "killed-3")
        shutil.copytree(place / "killed", place / "killed-3")
    return runner.run("penstock", job, 3)["penstock"]


def failures(*arguments) -> list[str]:
    return [check["key"] for check in checks.verify(*arguments) if not check["ok"]]
