"""penstock bench checkpoint: what its processes tell, how devices and peers that cannot be measured are left out."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner
from penstock.bench import checkpoint, checkpoint_peers, runner, slow_disks
from penstock.bench.checkpoint_peers import KEPT, PEERS, Order, initial_state, train, update
from penstock.bench.installation import Installation
from penstock.cli import main

MPI = Installation("mpich", "/nowhere")
ORDER = Order("", "", "", state_bytes=1 << 20, tensors=3, iterations=4, every=2, rounds=1)
here = [name for name, peer in PEERS.items() if not peer.missing()]


@pytest.fixture
def parameters(tmp_path):
    given = {key: for_quick for key, (_, for_quick, _) in checkpoint.OPTIONS.items()}
    for disk in ("hdd", "optane"):
        (tmp_path / disk).mkdir()
        given[disk] = str(tmp_path / disk)
    return {**given, "directory": str(tmp_path), "state_mb": 1, "rounds": 1}


def run(parameters, peers):
    return runner.run(
        "checkpoint", checkpoint, parameters, ranks=[1], mpis=[MPI], repetitions=1, programs=["none", *peers]
    )


@pytest.mark.parametrize("buffered", [False, True])
@pytest.mark.parametrize("peer", [name for name in here if not name.startswith("dcp-p")])
def test_a_peer_saves_and_restores(peer, buffered, tmp_path):
    if PEERS[peer].modules and "torch" in PEERS[peer].modules:
        pytest.skip("starts threads that stay")
    (tmp_path / "slow").mkdir()
    (tmp_path / "fast").mkdir()
    fast = str(tmp_path / "fast") if buffered else ""
    found = train(replace(ORDER, peer=peer, slow=str(tmp_path / "slow"), fast=fast))
    assert len(found["saves"]) == 2
    for one in found["saves"]:
        assert 0 <= one["stall_s"] <= one["drained_s"]
        assert ("fast_s" in one) == buffered
        assert not buffered or one["fast_s"] <= one["drained_s"]
    assert found["saves"][0]["at_s"] <= found["saves"][1]["at_s"] <= found["total_s"] <= found["all_drained_s"]
    assert found["stored_bytes"] >= KEPT * found["state_bytes"]
    assert found["restore_s"] > 0


def test_a_restored_state_that_differs_is_noticed(tmp_path, monkeypatch):
    def forgetful(state, folder):
        saver = checkpoint_peers._numpy(state, folder)
        return saver._replace(restore=lambda step: saver.restore(0))

    monkeypatch.setitem(PEERS, "forgetful", checkpoint_peers.Peer(forgetful))
    monkeypatch.setattr(checkpoint_peers, "KEPT", 9)
    with pytest.raises(AssertionError, match="forgetful restored something else"):
        train(replace(ORDER, peer="forgetful", slow=str(tmp_path)))


def test_the_state_is_as_large_as_asked_for_and_each_update_changes_all_of_it():
    for tensors, arrays in ((0, 16), (3, 3)):
        state = initial_state(3_000_000, tensors)
        assert len(state) == arrays
        assert sum(array.nbytes for array in state.values()) == pytest.approx(3_000_000, rel=0.01)
        before = {name: array.copy() for name, array in state.items()}
        update(state)
        assert not any((state[name] == array).any() for name, array in before.items())
        update(state)
        assert all(np.array_equal(state[name], array) for name, array in before.items())


def test_figures_and_comparisons_follow_from_what_was_measured(parameters, tmp_path):
    report = run(parameters, ["numpy", "penstock"])
    assert not report.left_out
    assert [row.setting["device"] for row in report.rows] == ["hdd", "burst-buffer"]
    for row in report.rows:
        assert set(row.seconds) == {"none/mpich", "numpy/mpich", "penstock/mpich"}
        figures = report.summary["devices"][row.setting["device"]]
        for name in ("numpy", "penstock"):
            (details,) = row.details[f"{name}/mpich"]
            one = figures[name]
            assert one["total_s"] == details["total_s"] == row.seconds[f"{name}/mpich"]
            assert one["over_none_s"] == pytest.approx(one["total_s"] - row.seconds["none/mpich"])
            assert one["stall_to_copy"] == pytest.approx(one["stall_s"] / details["copy_s"])
            assert one["share_of_disk"] is None, "the rate of a real disk is not known"
            assert set(details["activity"]) == ({"hdd", "optane"} if one["fast_s"] else {"hdd"})
    ratios = report.summary["comparisons"]
    both = report.summary["devices"]["burst-buffer"]
    assert ratios["burst-buffer: stall of numpy, the best peer / stall of penstock"] == pytest.approx(
        both["numpy"]["stall_s"] / both["penstock"]["stall_s"]
    )
    assert json.loads(runner.as_json(report))["summary"]["comparisons"] == ratios
    text = checkpoint.table(report)
    assert all(word in text for word in ("burst-buffer", "over none", "best peer"))
    if importlib.util.find_spec("matplotlib"):
        checkpoint.plot(report, str(tmp_path / "plot.svg"))
        assert "<svg" in (tmp_path / "plot.svg").read_text()


@pytest.mark.skipif(shutil.which("mpiexec") is None, reason="no mpiexec")
def test_ranks_save_together(parameters):
    devices = {"devices": ["hdd", "burst-buffer"], "processes": 2}
    rows = checkpoint.measure("none,numpy,penstock", {**parameters, **devices})
    for setting, seconds in rows:
        assert "cannot" not in setting, setting.get("cannot")
        (found,) = setting["details"]
        assert setting["processes"] == 2 and seconds == [found["total_s"]]
        assert found["state_bytes"] == pytest.approx(1e6, rel=0.01)
        if setting["program"] != "none":
            assert all(0 <= save["stall_s"] <= save["drained_s"] for save in found["saves"])
            assert found["stored_bytes"] >= KEPT * found["state_bytes"]


def test_of_several_ranks_the_slowest_counts():
    one = {"state_bytes": 5, "begin_s": 2.0, "total_s": 3.0, "kept": 2, "saves": [{"stall_s": 1.0, "drained_s": 4.0}]}
    two = {"state_bytes": 6, "begin_s": 1.0, "total_s": 4.0, "kept": 2, "saves": [{"stall_s": 2.0}]}
    assert checkpoint_peers.combined([one, two]) == {
        "state_bytes": 11,
        "begin_s": 1.0,
        "total_s": 4.0,
        "kept": 2,
        "saves": [{"stall_s": 2.0, "drained_s": 4.0}],
    }


def test_a_disk_that_cannot_be_emulated_leaves_the_others(parameters, monkeypatch):
    monkeypatch.setattr(slow_disks, "missing", lambda: "it is not allowed")
    report = run({**parameters, "devices": ["ssd", "hdd"]}, ["numpy"])
    reason = "on 1 rank: no disk can be emulated: it is not allowed; --ssd DIRECTORY names a real one"
    assert report.left_out["numpy/mpich (device ssd, MB 1)"] == reason
    assert [row.setting["device"] for row in report.rows] == ["hdd"]


def test_a_peer_that_fails_is_left_out_with_its_reason(parameters, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    rows = checkpoint.measure("numpy", {**parameters, "devices": ["hdd"]})
    assert [setting["cannot"] for setting, _ in rows] == ["its process ended with status 1"]
    assert not any(os.scandir(parameters["hdd"]))


def test_wrong_options_are_told(tmp_path):
    for words, text in (
        (["--every", "9", "--iterations", "4"], "nothing would be saved"),
        (["--state-mb", "0"], "expected at least 1"),
        (["--hdd", str(tmp_path / "none")], "expected a directory"),
        (["--devices", "tape"], "'tape' is not one of"),
    ):
        result = CliRunner().invoke(main, ["bench", "checkpoint", "--quick", *words])
        assert result.exit_code != 0
        assert text in result.output + str(result.exception), result.output


@pytest.mark.skipif(bool(slow_disks.missing()), reason="no disk can be emulated here")
def test_an_emulated_disk_goes_with_its_folder(tmp_path):
    with slow_disks.emulated("hdd", 96 << 20, tmp_path) as disk:
        assert os.stat(disk).st_dev != os.stat(tmp_path).st_dev
        number = os.stat(disk).st_dev
        entry = f"{os.major(number)}:{os.minor(number)} "
        rate = str(slow_disks.RATES["hdd"][1])
        for group in slow_disks._limits():
            assert any(line.startswith(entry) and rate in line for line in group.limited().splitlines())
        (disk / "file").write_bytes(b"x")
        before = checkpoint._disk_bytes(disk)
        checkpoint_peers.synced(disk)
        assert checkpoint._disk_bytes(disk)[1] > before[1]
    assert not any(tmp_path.iterdir())
    assert not any(line.startswith(entry) for group in slow_disks._limits() for line in group.limited().splitlines())


@pytest.mark.skipif(bool(slow_disks.missing()), reason="no disk can be emulated here")
def test_disks_of_a_process_that_was_killed_are_taken_down(tmp_path):
    program = """
        import sys, time
        from pathlib import Path
        from penstock.bench import slow_disks

        with slow_disks.emulated("hdd", 96 << 20, Path(sys.argv[1])) as disk:
            (disk / "file").write_bytes(b"x")
            print(disk, flush=True)
            time.sleep(1000)
        """
    folder = tmp_path / "penstock-bench-test-a"
    folder.mkdir()
    words = [sys.executable, "-c", textwrap.dedent(program), str(folder)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            disk = process.stdout.readline().strip()
            assert os.path.ismount(disk)
            slow_disks.remove_abandoned("penstock-bench-test-")
            assert os.path.ismount(disk), "its process lives"
        finally:
            process.kill()
    assert os.path.ismount(disk)
    slow_disks.remove_abandoned("penstock-bench-other-")
    assert os.path.ismount(disk)
    slow_disks.remove_abandoned("penstock-bench-test-")
    assert not os.path.ismount(disk)
    assert not folder.exists()
    assert str(folder) not in "".join(path.read_text() for path in Path("/sys/block").glob("loop*/loop/backing_file"))


def test_disks_are_limited_by_the_cgroups_that_there_are(tmp_path):
    groups, mounts = tmp_path / "cgroup", tmp_path / "mounts"
    legacy, unified = tmp_path / "blkio", tmp_path / "unified"
    for folder in (legacy / "job", unified / "job/step"):
        folder.mkdir(parents=True)
    groups.write_text("7:blkio:/job\n5:devices:/\n0::/job/step\n")
    mounts.write_text(f"cgroup {legacy} cgroup rw,blkio 0 0\ncgroup2 {unified} cgroup2 rw 0 0\n")

    def found():
        return slow_disks._limits(str(groups), str(mounts))

    assert found() == []
    (unified / "job/step/io.max").write_text("")
    ((group),) = found()
    group.limit("7:3", (163, 133))
    assert group.limited() == "7:3 rbps=163 wbps=133"
    group.limit("7:3", None)
    assert group.limited() == "7:3 rbps=max wbps=max"
    for folder in (legacy, legacy / "job"):
        (folder / "blkio.throttle.write_bps_device").write_text("")
    assert [group.folder for group in found()] == [legacy, legacy / "job"], "version 1 limits the root group, too"
    for group in found():
        group.limit("7:3", (163, 133))
        assert (group.folder / "blkio.throttle.read_bps_device").read_text() == "7:3 163"
        assert group.limited() == "7:3 133"
    groups.write_text("0::/\n")
    assert found() == [], "the root group of version 2 has no limits"


def test_without_cgroups_the_reason_is_told(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(slow_disks, "_TOOLS", ())
    monkeypatch.setattr(slow_disks, "_limits", list)
    assert "no cgroup limits disks here: the blkio controller of version 1 is not mounted" in slow_disks.missing()


def test_the_progress_says_how_many_ranks_there_are(parameters):
    told: list[str] = []
    given = {**parameters, "processes": 2, "devices": ["hdd"]}
    case = SimpleNamespace(
        programs=checkpoint.programs, measure=lambda *_: [({"program": "none", "device": "hdd", "cannot": "…"}, [])]
    )
    jobs = runner.Jobs("checkpoint", case, [MPI], told.append, ["none"])
    jobs.measure_group(["none/mpich"], given, 1)
    assert told[0].startswith("checkpoint: none/mpich, 2 ranks")
    jobs = runner.Jobs("checkpoint", case, [MPI], told.append, ["none"])
    jobs.measure_group(["none/mpich"], {**given, "processes": 1}, 1)
    assert any(text.startswith("checkpoint: none/mpich, 1 rank") and "ranks" not in text for text in told)
