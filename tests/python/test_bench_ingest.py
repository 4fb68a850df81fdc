"""penstock bench ingest: its peers are processes that take turns, and what one of them cannot do stops no other."""

from __future__ import annotations

import os
import time

import pytest
from penstock.bench import ingest, ingest_images
from penstock.bench.worker import Cannot

pytest.importorskip("PIL", reason="needs Pillow, which makes the images")


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


def test_a_peer_that_fails_is_left_out_with_its_reason(tmp_path, monkeypatch):
    ingest_images.make(tmp_path, 12, 8)
    parameters = {
        "sizes": [12],
        "images": 8,
        "batch": 4,
        "threads": [1],
        "work": ["decode"],
        "cache": ["cold"],
        "passes": 2,
        "directory": str(tmp_path),
    }
    monkeypatch.setattr(ingest_images, "paths", lambda *_: [str(tmp_path / "12KB" / f"{i:06}.jpg") for i in range(9)])
    monkeypatch.setattr(ingest, "_drop_from_cache", lambda _: None)
    rows = ingest.measure("no-such-peer,penstock", parameters)
    by_name = {setting["program"]: (setting, samples) for setting, samples in rows}
    assert "KeyError: 'no-such-peer'" in by_name["no-such-peer"][0]["cannot"]
    assert "000008.jpg" in by_name["penstock"][0]["cannot"]
    monkeypatch.undo()
    ((setting, samples),) = ingest.measure("penstock", parameters)
    assert len(samples) == len(setting["details"]) == 2


def test_a_process_that_ends_says_how():
    with ingest._peers(["penstock"]) as (peer,):
        peer.ask({})
        os.kill(peer._process.pid, 9)
        with pytest.raises(Cannot, match="status -9"):
            peer.ask({"pass": 1})
