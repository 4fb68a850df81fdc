"""The tuner on real ranks: it ends within its time, goes on where it ended, and its table names algorithms that fit."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import penstock as ps
import pytest
from mpi4py import MPI
from penstock import _penstock, tuning
from penstock.placement import ordered
from penstock.tuning import measure

WORLD = MPI.COMM_WORLD


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that rank 0 uses; the others know its name."""
    made = tempfile.TemporaryDirectory() if WORLD.rank == 0 else None
    yield Path(WORLD.bcast(made.name if made else None))
    WORLD.Barrier()
    if made:
        made.cleanup()


def measured(folder: Path) -> dict[str, Any]:
    """What the tuner keeps beside its table; nothing on the ranks that do not have the file."""
    if WORLD.rank != 0:
        return {}
    done = json.loads((folder / "table.json.progress").read_text())["done"]
    return {name: value for name, value in done.items() if name != "spent"}


def test_tunes_and_goes_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "ALL_S", 0.001)
    monkeypatch.setattr(measure, "REFEREE_S", 0.01)
    request = tuning.TuningRequest(["bcast", "allreduce"], [64, 70_000], minutes=0.05, exhaustive=True)
    found = tuning.run(request, folder / "table.json")
    known_before = measured(folder)
    again = tuning.run(request, folder / "table.json")
    assert (found is not None) == (WORLD.rank == 0)
    if found is None:
        return
    assert again is not None
    content = json.loads((folder / "table.json").read_text())
    (part,) = content["tables"]
    assert part["nodes"] == found.key["nodes"]
    found_points = {o["operation"]: {p["bytes"]: p for p in o["points"]} for o in part["operations"]}
    for operation in ("bcast", "allreduce"):
        for size, point in found_points[operation].items():
            assert point["native_nanoseconds"] > 0
            known = found.exhaustive[operation][size]
            for candidate in point["candidates"]:
                assert f"{candidate['algorithm']}:{candidate['segment_bytes']}" in known
    # What was known was not measured again, whatever else the second run had time for.
    known_after = measured(folder)
    assert known_before
    assert {name: known_after[name] for name in known_before} == known_before


def test_a_table_is_for_the_order_that_was_asked_for(folder: Path) -> None:
    request = tuning.TuningRequest(["bcast"], [64], minutes=2, order="round-robin")
    found = tuning.run(request, folder / "table.json")
    nodes = WORLD.allgather(MPI.Get_processor_name())
    turns = ordered(WORLD, "round-robin")
    in_turns = turns.allgather(nodes[WORLD.rank])
    assert in_turns[: len(set(nodes))] == list(dict.fromkeys(nodes))
    assert sorted(in_turns) == sorted(nodes)
    with ps.Comm(turns) as comm:
        key = json.loads(comm._core.tuning_key())
    turns.Free()
    if found is not None:
        assert found.key == key
    with pytest.raises(ps.Error, match="order is 'zigzag', expected launched or round-robin"):
        tuning.run(tuning.TuningRequest(["bcast"], [64], order="zigzag"), folder / "table.json")


def test_a_communicator_uses_the_table(folder: Path) -> None:
    request = tuning.TuningRequest(["bcast"], [4096], minutes=2)
    tuning.run(request, folder / "table.json")
    WORLD.Barrier()
    # Rank 0 alone knows of it.
    if WORLD.rank == 0:
        _penstock.set_option("tuning", str(folder / "table.json"))
    try:
        with ps.Comm(WORLD) as comm:
            said = comm.explain("bcast", 4096)
            assert said["reason"].startswith("tuned: "), said
            data = np.full(4096, comm.Get_rank() == 0, np.uint8)
            comm.Bcast(data)
            assert data.all()
            if WORLD.size > 1:
                half = comm.Split(WORLD.rank % 2)
                assert not half.explain("bcast", 4096)["reason"].startswith("tuned: ")
                half.Free()
    finally:
        _penstock.set_option("tuning", "")
