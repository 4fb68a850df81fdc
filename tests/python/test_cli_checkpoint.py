"""`penstock checkpoint`: list, inspect, diff, verify, remove."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil

import numpy as np
import penstock as ps
import pytest
from click.testing import CliRunner, Result
from penstock.cli import main


def invoke(*words: str) -> Result:
    return CliRunner().invoke(main, ["checkpoint", *words])


def told(*words: str) -> dict:
    result = invoke(*words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


@pytest.fixture
def slow(tmp_path: pathlib.Path) -> str:
    return f"file://{tmp_path}/slow"


@pytest.fixture
def fast(tmp_path: pathlib.Path) -> str:
    return f"file://{tmp_path}/fast"


@pytest.fixture
def saved(slow: str, fast: str) -> None:
    """Steps 10, 20, then back to 11, by a second job. The burst buffer holds the newest alone."""
    with ps.Checkpointer(slow, burst_buffer=fast) as ck:
        for step in (10, 20):
            ck.save(step, {"a": np.full(1000, step), "epoch": 3})
    with ps.Checkpointer(slow, burst_buffer=fast) as ck:
        ck.restore(step=10)
        ck.save(11, {"a": np.full(1000, 11), "b": [np.zeros((2, 3), np.float32), "x"], "epoch": 4})


def flip(url: str, pattern: str, byte: int) -> None:
    (path,) = pathlib.Path(url[7:]).rglob(pattern)
    data = bytearray(path.read_bytes())
    data[byte] ^= 1
    os.chmod(path, 0o600)
    path.write_bytes(data)


def test_list_is_in_the_order_of_the_saves(saved, slow, fast):
    rows = told("list", slow, "--burst-buffer", fast)["checkpoints"]
    assert [(row["step"], row["generation"], row["superseded"]) for row in rows] == [
        (10, 1, False),
        (20, 1, True),
        (11, 2, False),
    ]
    assert [(row["drained"], row["fast"]) for row in rows] == [(True, False), (True, False), (True, True)]
    assert rows[0]["bytes"] == 8000 + 16
    assert rows[0]["ranks"] == 1
    text = invoke("list", slow).output
    assert "superseded" in text
    assert [line.split()[0] for line in text.splitlines()[-3:]] == ["10", "20", "11"]
    assert not any(row["fast"] for row in told("list", slow)["checkpoints"])


def test_the_state_says_what_is_left_to_drain(slow, fast, tmp_path):
    """Steps 2 and 3 are in the burst buffer alone, as after a crash; part of step 2 is in the slow tier."""

    def states(*words: str) -> dict[int, str]:
        rows = told("list", slow, *words)["checkpoints"]
        return {row["step"]: row["state"] for row in rows}

    def copy(source: str, target: str) -> None:
        with contextlib.suppress(FileNotFoundError):  # of the step before, which is just evicted
            shutil.copy2(source, target)

    with ps.Checkpointer(slow, burst_buffer=fast) as ck:
        for step in (1, 2, 3):
            ck.save(step, {"a": np.full(1000, step)}).wait()
            shutil.copytree(tmp_path / "fast", tmp_path / "copy", dirs_exist_ok=True, copy_function=copy)
    shutil.copytree(tmp_path / "copy", tmp_path / "fast", dirs_exist_ok=True)
    assert states("--burst-buffer", fast) == {1: "evictable", 2: "evictable", 3: "drained"}
    for pattern in ("*.1-1.manifest.json", "*.1-2.*"):
        for path in (tmp_path / "slow").rglob(pattern):
            path.unlink()
    assert states("--burst-buffer", fast) == {1: "drained", 2: "draining", 3: "fast"}
    assert "draining" in invoke("list", slow, "--burst-buffer", fast).output
    assert states() == {1: "drained"}
    done = told("drain", slow, "--burst-buffer", fast)
    assert done == {"url": slow, "drained": [2, 3], "left": [], "warnings": []}
    assert states() == {1: "drained", 2: "drained", 3: "drained"}
    assert states("--burst-buffer", fast) == {1: "drained", 2: "drained", 3: "drained"}
    for step in (1, 2, 3):
        with ps.Checkpointer(slow) as ck:
            assert ck.restore(step=step)[1]["a"][0] == step
    assert "nothing was drained" in invoke("drain", slow, "--burst-buffer", fast).output
    told("remove", slow, "2", "--burst-buffer", fast)
    assert sorted(states("--burst-buffer", fast)) == [1, 3]
    assert not list((tmp_path / "slow").rglob("*.data"))[2:]


def test_what_cannot_be_drained_is_named(slow, fast, tmp_path):
    with ps.Checkpointer(slow, burst_buffer=fast) as ck:
        ck.save(1, {"a": np.full(1000, 1)})
    for path in (tmp_path / "slow").rglob("step-*"):
        path.unlink()
    flip(fast, "*.data", 100)
    result = invoke("drain", slow, "--burst-buffer", fast)
    assert result.exit_code == 1
    assert "step 1" in result.output and "checksum" in result.output
    assert "nothing was drained" in result.output


def test_list_and_inspect_show_the_metrics(slow):
    with ps.Checkpointer(slow) as ck:
        ck.save(1, {"a": np.zeros(3)}, metrics={"val_loss": 0.125})
        ck.save(2, {"a": np.zeros(3)})
    first, second = told("list", slow)["checkpoints"]
    assert (first["metrics"], second["metrics"]) == ({"val_loss": 0.125}, {})
    assert first["saved_at_s"] <= second["saved_at_s"]
    heading, one, two = invoke("list", slow).output.splitlines()
    assert "val_loss" in heading and "0.125" in one and " - " in two
    assert told("inspect", slow, "--step", "1")["metrics"] == {"val_loss": 0.125}
    assert "metric" in invoke("inspect", slow, "--step", "1").output


def test_a_place_that_does_not_exist_is_an_error_and_is_not_made(slow, tmp_path):
    for command in (["list"], ["inspect"], ["verify"], ["remove"]):
        result = invoke(*command, slow, *(["3"] if command == ["remove"] else []))
        assert result.exit_code == 1, result.output
        assert not (tmp_path / "slow").exists()
    ps.Checkpointer(slow).close()
    assert invoke("list", slow).output == "no complete checkpoint\n"


@pytest.mark.parametrize(("short", "name"), [("ls", "list"), ("show", "inspect"), ("check", "verify")])
def test_short_names_are_the_same_commands(saved, slow, short, name):
    assert told(short, slow) == told(name, slow)


def test_rm_removes(saved, slow, fast):
    before = [row["step"] for row in told("ls", slow)["checkpoints"]]
    assert invoke("rm", slow, "20", "--burst-buffer", fast).exit_code == 0
    assert [row["step"] for row in told("ls", slow)["checkpoints"]] == [step for step in before if step != 20]


def test_inspect_names_arrays_and_values(saved, slow):
    found = told("inspect", slow)
    assert found["step"] == 11
    assert found["arrays"]["b/0"] == {"dtype": "float32", "shape": [2, 3], "bytes": 24}
    assert found["values"] == {"b/1": "'x'", "epoch": "4"}
    assert told("inspect", slow, "--step", "20")["values"] == {"epoch": "3"}
    assert "b/0" in invoke("inspect", slow).output
    assert invoke("inspect", slow, "--step", "12").exit_code == 1


def test_verify_finds_flipped_bits_in_either_tier(saved, slow, fast):
    place = (slow, "--burst-buffer", fast)
    rows = told("verify", *place)["checkpoints"]
    assert [(row["step"], row["tier"], row["problems"]) for row in rows] == [
        (10, slow, []),
        (20, slow, []),
        (11, slow, []),
        (11, fast, []),
    ]
    assert rows[0]["bytes"] == 8000
    assert "no problems" in invoke("verify", *place).output
    flip(fast, "*.rank-0.data", 100)
    flip(slow, "step-00000000000000000020*.manifest.json", 30)
    result = invoke("verify", *place)
    assert result.exit_code == 1
    assert "2 problems" in result.output
    assert told("verify", *place, "--step", "10")["checkpoints"][0]["problems"] == []
    result = invoke("verify", *place, "--json")
    damaged = {(row["step"], row["tier"]) for row in json.loads(result.output)["checkpoints"] if row["problems"]}
    assert damaged == {(20, slow), (11, fast)}
    assert invoke("verify", slow, "--step", "12").exit_code == 1
    assert "checksum" in told("list", slow)["checkpoints"][1]["damage"]


def test_verify_says_what_another_node_holds(saved, slow, fast):
    (path,) = pathlib.Path(fast[7:]).rglob("*.rank-0.data")
    path.unlink()
    rows = told("verify", slow, "--burst-buffer", fast, "--step", "11")["checkpoints"]
    assert [(row["tier"], row["problems"], row["objects_elsewhere"]) for row in rows] == [(slow, [], 0), (fast, [], 1)]
    for path in pathlib.Path(slow[7:]).rglob("step-00000000000000000011*.data"):
        path.unlink()
    assert invoke("verify", slow, "--step", "11").exit_code == 1


def test_remove_takes_a_step_from_all_tiers(saved, slow, fast):
    place = ("--burst-buffer", fast)
    assert [row["step"] for row in told("remove", slow, "20", *place)["removed"]] == [20]
    result = invoke("remove", slow, "11", *place)
    assert result.output == "removed step 11 (8,040 bytes) from slow tier and burst buffer\n"
    for url in (slow, fast):
        left = [path.suffix for path in pathlib.Path(url[7:]).rglob("step-00000000000000000011*")]
        assert left == ([".removed"] if url == slow else [])
    result = invoke("remove", slow, "11", *place)
    assert result.exit_code == 1
    with ps.Checkpointer(slow, burst_buffer=fast) as ck:
        assert ck.steps() == [10]
        assert ck.restore()[0] == 10


@pytest.mark.parametrize("run", [None, "one"])
@pytest.mark.parametrize("again", ["restore", "save"])
def test_what_is_removed_on_one_node_stays_removed_on_others(slow, fast, run, again):
    options = ("--run", run) if run else ()
    with ps.Checkpointer(slow, burst_buffer=fast, run=run) as ck:
        for step in (10, 20):
            ck.save(step, {"a": np.full(1000, step)})
    result = invoke("remove", slow, "20", *options)
    assert result.output == "removed step 20 (8,016 bytes) from slow tier\n"
    rows = told("list", slow, "--burst-buffer", fast, *options)["checkpoints"]
    assert [row["step"] for row in rows] == [10]
    assert invoke("remove", slow, "20", "--burst-buffer", fast, *options).exit_code == 1
    with ps.Checkpointer(slow, burst_buffer=fast, run=run) as ck:
        assert ck.steps() == [10] and ck.latest == 10
        if again == "restore":
            assert ck.restore()[0] == 10
            with pytest.raises(ps.Error, match="no complete checkpoint of step 20"):
                ck.restore(step=20)
        else:
            ck.save(20, {"a": np.full(1000, 21)}).wait()
            assert ck.restore()[1]["a"][0] == 21
            ck.finish()
            (path,) = pathlib.Path(fast[7:]).rglob("*.data")
            assert ".2-0." in path.name, "what another node has removed is still in the burst buffer"


@pytest.mark.parametrize("run", [(), ("--run", "one")])
def test_diff_names_what_differs(slow, run):
    with ps.Checkpointer(slow, run=run[1] if run else None) as ck:
        first = {
            "same": np.array([1.0, np.nan, -0.0]),
            "w*": np.arange(3_000_000, dtype=np.float32),
            "z": np.array([1 + 2j, 3j]),
            "text": np.array(["a", "bc"]),
            "flag": np.array([True, False]),
            "grown": np.zeros(3),
            "retyped": np.zeros(3),
            "gone": np.ones(2),
            "value": 7,
            "became": 1,
            "list": [1, {"x": "y"}],
        }
        ck.save(1, first)
        second = {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in first.items()}
        del second["gone"]
        second["w*"][[5, 2_999_999]] += 0.5
        second["z"][1] += 4
        second["text"][0] = "b"
        second["flag"][:] = [False, True]
        second |= {
            "grown": np.zeros(4),
            "retyped": np.zeros(3, np.float32),
            "new": "x",
            "value": 8,
            "became": np.ones(1),
        }
        second["list"] = [1, {"x": "z"}]
        ck.save(2, second)
    rows = told("diff", slow, "1", "2", *run)["differences"]
    assert [(row["name"], row["kind"]) for row in rows] == [
        ("became", "type"),
        ("flag", "elements"),
        ("gone", "removed"),
        ("grown", "type"),
        ("list/1/x", "value"),
        ("new", "added"),
        ("retyped", "type"),
        ("text", "elements"),
        ("value", "value"),
        ("w*", "elements"),
        ("z", "elements"),
    ]
    by_name = {row["name"]: row for row in rows}
    assert (by_name["w*"]["elements"], by_name["w*"]["of_elements"]) == (2, 3_000_000)
    assert by_name["w*"]["largest"] == 0.5
    assert by_name["z"]["largest"] == 4
    assert by_name["text"]["largest"] is None
    assert (by_name["value"]["old"], by_name["value"]["new"]) == ("7", "8")
    text = invoke("diff", slow, "1", "2", *run).output
    assert "2 of 3,000,000" in text
    assert "float64 (3,) → float64 (4,)" in text
    assert invoke("diff", slow, "1", "1", *run).output == "no difference\n"


def test_diff_of_what_is_not_there(slow, saved, tmp_path):
    assert "no complete checkpoint of step 12" in invoke("diff", slow, "12", "10").output
    invoke("diff", f"file://{tmp_path}/nowhere", "1", "2")
    assert not (tmp_path / "nowhere").exists()
