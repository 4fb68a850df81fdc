"""The tuner on several ranks: it stops at its time limit, resumes, and its table names applicable algorithms."""

from __future__ import annotations

import errno
import json
import math
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import penstock as ps
import pytest
from mpi4py import MPI
from penstock import _penstock, output_file, tuning
from penstock.placement import ordered
from penstock.tuning import candidates, decide, measure, noise, racing, search

WORLD = MPI.COMM_WORLD


@pytest.fixture(autouse=True)
def _few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measurements as short as the tuner allows: what a table holds does not depend on how exact its times are."""
    for name in ("TASKS_S", "ALL_S", "REFEREE_S", "NOISE_S", "DUEL_S"):
        monkeypatch.setattr(measure, name, 1e-6)
    for name in ("ALL_ROUNDS", "REFEREE_ROUNDS", "NOISE_ROUNDS"):
        monkeypatch.setattr(measure, name, (2, 2))
    monkeypatch.setattr(racing, "RACE_S", 1e-6)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that rank 0 uses; the others know its name."""
    made = tempfile.TemporaryDirectory() if WORLD.rank == 0 else None
    yield Path(WORLD.bcast(made.name if made else None))
    WORLD.Barrier()
    if made:
        made.cleanup()


def measured(folder: Path) -> dict[str, Any]:
    """The tuner's journal; nothing on ranks without the file."""
    if WORLD.rank != 0:
        return {}
    done = json.loads((folder / "table.json.progress").read_text())["done"]
    return {name: value for name, value in done.items() if name not in ("spent", "finished")}


class Races:
    """Counts races and reports the end of the time after `most` of them: a limit independent of the machine's load."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
        self.count = 0
        race = measure.Meter.race

        def counted(meter: measure.Meter, *arguments: Any, **keywords: Any) -> Any:
            self.count += 1
            return race(meter, *arguments, **keywords)

        monkeypatch.setattr(measure.Meter, "race", counted)
        monkeypatch.setattr(search._Search, "seconds_left", lambda _, share=1.0: most - self.count - 0.5)


def test_tunes_and_goes_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = tuning.TuningRequest(["bcast", "allreduce"], [64, 70_000])
    with monkeypatch.context() as cut:
        races = Races(cut, most=2)
        found = tuning.run(request, folder / "table.json")
        assert races.count == 2
    known_before = measured(folder)
    with monkeypatch.context() as unlimited:
        Races(unlimited, most=1000)
        again = tuning.run(request, folder / "table.json")
    known_after = measured(folder)
    assert (found is not None) == (again is not None) == (WORLD.rank == 0)
    if found is None or again is None:
        return
    assert found.left_out == 2
    assert again.left_out == 0
    assert {operation: sorted(points) for operation, points in again.operations.items()} == {
        operation: [64, 70_000] for operation in ("bcast", "allreduce")
    }
    # Known values were not measured again.
    assert known_before
    assert {name: known_after[name] for name in known_before} == known_before
    assert len(known_after) > len(known_before)


@pytest.mark.anywhere
def test_an_exhaustive_search_knows_every_candidate(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Races(monkeypatch, most=1000)
    request = tuning.TuningRequest(["bcast", "allreduce"], [64, 70_000], exhaustive=True)
    found = tuning.run(request, folder / "table.json")
    if found is None:
        return
    (part,) = json.loads((folder / "table.json").read_text())["tables"]
    assert part["nodes"] == found.key["nodes"]
    found_points = {o["operation"]: {p["bytes"]: p for p in o["points"]} for o in part["operations"]}
    for operation in ("bcast", "allreduce"):
        assert sorted(found_points[operation]) == [64, 70_000]
        for size, point in found_points[operation].items():
            assert point["native_nanoseconds"] > 0
            known = found.exhaustive[operation][size]
            for candidate in point["candidates"]:
                assert f"{candidate['algorithm']}:{candidate['segment_bytes']}" in known


def test_a_table_is_for_the_order_that_was_asked_for(folder: Path) -> None:
    request = tuning.TuningRequest(["bcast"], [64], minutes=1e6, order="round-robin")
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
    with pytest.raises(ps.Error, match="order is 'zigzag'; expected launched or round-robin"):
        tuning.run(tuning.TuningRequest(["bcast"], [64], order="zigzag"), folder / "table.json")


def test_a_communicator_uses_the_table(folder: Path) -> None:
    request = tuning.TuningRequest(["bcast"], [4096], minutes=1e6)
    tuning.run(request, folder / "table.json")
    WORLD.Barrier()
    # Only rank 0 has the outcome.
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


def test_an_output_that_cannot_be_written_is_an_error_on_all_ranks(folder: Path) -> None:
    request = tuning.TuningRequest(["bcast"], [64], minutes=1e6)
    with pytest.raises(ps.Error, match="does not exist; make it"):
        tuning.run(request, folder / "none" / "table.json")
    if WORLD.rank == 0:
        (folder / "notes.txt").write_text("mine")
    with pytest.raises(ps.Error, match="is not a tuning table"):
        tuning.run(request, folder / "notes.txt")


def test_a_disk_that_fills_is_an_error_on_all_ranks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = output_file.write

    def full(path: Path, text: str) -> None:
        if path.name == "table.json":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        write(path, text)

    monkeypatch.setattr(output_file, "write", full)
    request = tuning.TuningRequest(["bcast"], [64], minutes=1e6)
    with pytest.raises(ps.Error, match="No space left on device") as caught:
        tuning.run(request, folder / "table.json")
    assert caught.value.code == "no_space"


def test_the_default_is_what_runs_without_a_table() -> None:
    with ps.Comm(WORLD) as comm:
        for operation in candidates.OPERATIONS:
            for size in (8, 70_000):
                space = candidates.space_of(comm._core, operation, size)
                default = candidates.default_of(comm._core, operation, size, space)
                assert default in space.lengths
                plan = comm.explain(operation, max(8, size), dtype="int64")["algorithm"]
                assert plan == f"{operation}/{candidates.config_of(default)[0]}"


def test_a_table_says_why(folder: Path) -> None:
    found = tuning.run(tuning.TuningRequest(["allreduce"], [8, 64, 4096], minutes=1e6), folder / "table.json")
    if found is None:
        return
    (part,) = json.loads((folder / "table.json").read_text())["tables"]
    points = part["operations"][0]["points"]
    assert [point["bytes"] for point in points] == [8, 64, 4096]
    for point in points:
        assert point["why"] in decide.REASONS
        assert point["noise"] >= math.expm1(noise.FLOOR) - 1e-4
        best = point["candidates"][0]
        if point["why"] in (decide.FASTEST, decide.WITHIN):
            assert point["default"] == f"{best['algorithm']}:{best['segment_bytes']}"
        if point["measured"]:
            assert best["low_nanoseconds"] <= best["nanoseconds"] <= best["high_nanoseconds"]
            assert best["rounds"] >= 1
    assert sorted(found.noise["allreduce"]) == [8, 64, 4096]  # measured first, at the smallest, middle and largest
