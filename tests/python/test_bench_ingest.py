"""penstock bench ingest: its peers are processes that take turns, and what one of them cannot do stops no other."""

from __future__ import annotations

import importlib.util
import os
import time
from pathlib import Path

import pytest
from penstock.bench import ingest, ingest_images, slow_disks
from penstock.bench.worker import Cannot

Image = pytest.importorskip("PIL.Image", reason="needs Pillow, which makes the images")


def state(process: int) -> str:
    with open(f"/proc/{process}/stat", encoding="ascii") as file:
        return file.read().rpartition(")")[2].split()[0]


def test_peers_take_turns_and_are_stopped_in_between(tmp_path):
    ingest_images.make(tmp_path, 12, 24)
    paths = ingest_images.paths(tmp_path, 12, 24)
    with ingest._peers(["bare", "penstock"]) as peers:
        for peer in peers:
            peer.ask({"set_up": {"paths": paths, "decode": True, "threads": 2, "batch": 8}})
            answer = peer.ask({"pass": 1})
            assert answer["images"] == 24
            assert answer["seconds"] > 0
            assert answer["memory_bytes"] > 1 << 20
            while state(peer._process.pid) != "T":  # the signal is on its way
                time.sleep(0.01)
        processes = [peer._process.pid for peer in peers]
    for process in processes:
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


def few_images(folder: Path, **given: object) -> dict[str, object]:
    few = {"sizes": [12], "images": 8, "batch": 4, "threads": [1], "scenes": "synthetic", "directory": str(folder)}
    return {**few, **given}


def test_a_peer_that_fails_is_left_out_with_its_reason(tmp_path, monkeypatch):
    ingest_images.make(tmp_path, 12, 8)
    parameters = few_images(tmp_path, work=["decode"], cache=["cold"], passes=2, disks=["own"])
    monkeypatch.setattr(ingest_images, "paths", lambda *_: [str(tmp_path / "12KB" / f"{i:06}.jpg") for i in range(9)])
    monkeypatch.setattr(ingest, "_drop_from_cache", lambda _: None)
    rows = ingest.measure("no-such-peer,penstock", parameters)
    by_name = {setting["program"]: (setting, samples) for setting, samples in rows}
    assert "KeyError: 'no-such-peer'" in by_name["no-such-peer"][0]["cannot"]
    assert "000008.jpg" in by_name["penstock"][0]["cannot"]
    monkeypatch.undo()
    shares: list[float] = []
    ((setting, samples),) = ingest.measure("penstock", parameters, shares.append)
    assert len(samples) == len(setting["details"]) == 2
    assert all(sum(one["disk_bytes_by_second"]) == one["disk_read_bytes"] for one in setting["details"])
    assert shares == [0]


def test_photographs_are_cut_from_real_ones(tmp_path):
    if not any(importlib.util.find_spec(module) for module in ("skimage", "sklearn")):
        pytest.skip("needs scikit-image or scikit-learn, which have photographs")
    for _ in range(2):  # the same bytes again
        made = tmp_path / str(_)
        ingest_images.make(made, 12, 40, "photographs")
    first, again = (ingest_images.paths(tmp_path / str(i), "12KB-photographs", 40) for i in range(2))
    contents = [Path(path).read_bytes() for path in first]
    assert contents == [Path(path).read_bytes() for path in again]
    assert 6000 < sum(map(len, contents)) / 40 < 24000
    assert len(set(contents)) == 40
    with Image.open(first[0]) as image:
        assert image.size == (300, 200)


def test_files_go_to_an_emulated_disk(tmp_path):
    if reason := slow_disks.missing():
        pytest.skip(f"no disk can be emulated here: {reason}")
    ingest_images.make(tmp_path, 12, 8)
    parameters = few_images(tmp_path, work=["read"], cache=["warm", "cold"], passes=1, disks=["hdd"])
    ((setting, samples),) = ingest.measure("penstock", parameters)
    if "no disk can be emulated" in setting.get("cannot", ""):
        pytest.skip(setting["cannot"])
    assert "cannot" not in setting, setting
    assert (setting["disk"], setting["cache"], len(samples)) == ("hdd", "cold", 1)
    read = sum(os.path.getsize(path) for path in ingest_images.paths(tmp_path, 12, 8))
    assert setting["details"][0]["disk_read_bytes"] >= read


def test_a_process_that_ends_says_how():
    with ingest._peers(["penstock"]) as (peer,):
        peer.ask({})
        os.kill(peer._process.pid, 9)
        with pytest.raises(Cannot, match="status -9"):
            peer.ask({"pass": 1})
