"""penstock info, and its facts about this machine."""

from __future__ import annotations

import json
import os

import penstock as ps
import pytest
from click.testing import CliRunner
from penstock import _penstock
from penstock.cli.info import info


def cpus_in(text: str) -> set[int]:
    """The CPUs of a set in the kernel's form, "0-3,8"."""
    ranges = [part.split("-") for part in text.split(",")]
    return {cpu for first, *last in ranges for cpu in range(int(first), int((last or [first])[0]) + 1)}


def run(*arguments: str) -> str:
    result = CliRunner().invoke(info, arguments)
    assert result.exit_code == 0, result.output
    return result.output


def test_json_says_where_communication_cores_would_be() -> None:
    facts = json.loads(run("--json", "--ranks", "1"))
    cores = facts["cores"]
    own = os.sched_getaffinity(0)
    assert cpus_in(cores["process_cpus"]) == own
    assert own <= cpus_in(cores["cpus"])
    assert 1 <= cores["cores"] <= len(cpus_in(cores["cpus"]))
    assert 1 <= cores["numa_nodes"] <= cores["cores"]
    assert cores["topology"].startswith(("hwloc", "/sys"))
    assert facts["single_copy"] == "possible" or "not possible" in facts["single_copy"]
    assert facts["shared_memory"]["size_bytes"] >= facts["shared_memory"]["free_bytes"] > 0
    progress = facts["progress_cores"]
    assert progress["ranks"] == 1
    spare = cores["cores"] > 1 and cpus_in(cores["inherited_cpus"]) == cpus_in(cores["cpus"])
    assert progress["bound"].startswith("1, for 1 rank" if spare else "0, since no core is free"), progress


def test_more_ranks_than_cores_have_no_communication_core() -> None:
    progress = json.loads(run("--json", "--ranks", "1024"))["progress_cores"]
    for how in ("bound", "not_bound"):
        assert progress[how].startswith("0, since no core is free: 1024 ranks on"), progress


def test_text_has_the_same() -> None:
    text = run("--ranks", "2")
    for label in ("cores ", "memory nodes ", "CPU set ", "progress cores ", "shared memory ", "single copy "):
        assert f"\n{label}" in text, text
    assert "auto, 2 ranks on this node" in text


def test_the_process_keeps_its_cpus() -> None:
    before = os.sched_getaffinity(0)
    _penstock.describe_machine(2)
    assert os.sched_getaffinity(0) == before


@pytest.mark.parametrize("ranks", [0, -1, 1025])
def test_ranks_out_of_range(ranks: int) -> None:
    with pytest.raises(ps.Error, match="expected 1 to 1024"):
        _penstock.describe_machine(ranks)
    assert CliRunner().invoke(info, ["--ranks", str(ranks)]).exit_code != 0
