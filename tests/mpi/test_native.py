"""MPI's own collectives as an algorithm: by name, by a table, among Penstock's operations, and if they cannot run this call."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import penstock as ps
import pytest
from forms import FORMS, call
from mpi4py import MPI
from penstock import _penstock

WORLD = MPI.COMM_WORLD
NATIVE: dict[str, Any] = {"algorithm": "native"}


def data(rank: int, count: int, dtype: str) -> np.ndarray:
    return ((np.arange(count) + rank) % 3).astype(dtype)


@pytest.mark.parametrize("form", FORMS)
def test_every_operation(comm: ps.Comm, form: str) -> None:
    n, rank = WORLD.size, WORLD.rank
    for count, dtype, root in ((0, "f8", 0), (1, "i4", n - 1), (7, "f4", 0), (513, "c16", n // 2), (40_000, "u2", 0)):
        mine, all_mine = data(rank, count, dtype), data(rank, n * count, dtype)
        counts = [count + (r % 2) for r in range(n)]
        uneven, sum_of = data(rank, counts[rank], dtype), data(rank, sum(counts), dtype)
        calls: list[tuple[str, list[Any], int]] = [
            ("Bcast", [mine.copy() if rank == root else np.zeros(count, dtype), root], 0),
            ("Reduce", [mine, np.zeros(count, dtype) if rank == root else None, MPI.SUM, root], 1),
            ("Allreduce", [mine, np.zeros(count, dtype)], 1),
            ("Gather", [mine, np.zeros(n * count, dtype) if rank == root else None, root], 1),
            ("Scatter", [all_mine if rank == root else None, np.zeros(count, dtype), root], 1),
            ("Allgather", [mine, np.zeros(n * count, dtype)], 1),
            ("Allgatherv", [uneven, [np.zeros(sum(counts), dtype), counts]], 1),
            ("Alltoall", [all_mine, np.zeros(n * count, dtype)], 1),
            ("Reduce_scatter_block", [all_mine, np.zeros(count, dtype)], 1),
            ("Reduce_scatter", [sum_of, np.zeros(counts[rank], dtype), counts], 1),
            ("Scan", [mine, np.zeros(count, dtype)], 1),
            ("Exscan", [mine, np.zeros(count, dtype)], 1),
        ]
        for name, arguments, at in calls:
            expected = [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]
            if name == "Allgatherv":
                expected[1] = [np.zeros(sum(counts), dtype), counts]
            getattr(WORLD, name)(*expected)
            call(comm, form, name, *arguments, **NATIVE)
            got, wanted = arguments[at], expected[at]
            if name == "Allgatherv":
                got, wanted = got[0], wanted[0]
            if got is not None and not (name == "Exscan" and rank == 0):
                np.testing.assert_array_equal(got, wanted, err_msg=f"{form} {name}, {count} x {dtype}, root {root}")
    call(comm, form, "Barrier", **NATIVE)
    assert comm.explain("allreduce", 4096, dtype="float64", **NATIVE)["algorithm"] == "allreduce/native"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("root", [0, -1])
def test_counts_of_one_rank_alone(comm: ps.Comm, form: str, root: int) -> None:
    n, rank = WORLD.size, WORLD.rank
    root %= n
    counts = [2 * r + 1 for r in range(n)]
    places = [sum(counts[r + 1 :]) + n - r for r in range(n)]  # backwards, with gaps
    whole = np.full(sum(counts) + n + 1, -1.0)
    mine = np.arange(counts[rank]) + 100.0 * rank
    got, expected = whole.copy(), whole.copy()
    at_root = rank == root
    WORLD.Gatherv(mine, [expected, (counts, places)] if at_root else None, root)
    call(comm, form, "Gatherv", mine, [got, (counts, places)] if at_root else None, root, **NATIVE)
    np.testing.assert_array_equal(got, expected)
    back = np.zeros(counts[rank])
    call(comm, form, "Scatterv", [got, (counts, places)] if at_root else None, back, root, **NATIVE)
    np.testing.assert_array_equal(back, mine)

    to = [(rank + r) % 3 for r in range(n)]  # symmetric, so counts sent and received are equal
    sent, arrived, wanted = np.arange(float(sum(to))) + 10 * rank, np.zeros(sum(to)), np.zeros(sum(to))
    WORLD.Alltoallv([sent, to], [wanted, to])
    call(comm, form, "Alltoallv", [sent, to], [arrived, to], **NATIVE)
    np.testing.assert_array_equal(arrived, wanted)
    call(comm, form, "Allgatherv", mine, [got, (counts, places)], **NATIVE)
    WORLD.Allgatherv(mine, [expected, (counts, places)])
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("form", FORMS)
def test_in_place(comm: ps.Comm, form: str) -> None:
    n, rank = WORLD.size, WORLD.rank
    repeats = 3 if form == "persistent" else 1
    total = data(rank, 100, "i8")
    expected = total.copy()
    for _ in range(repeats):
        WORLD.Allreduce(MPI.IN_PLACE, expected)
    call(comm, form, "Allreduce", MPI.IN_PLACE, total, **NATIVE)
    np.testing.assert_array_equal(total, expected)
    blocks = np.zeros((n, 5))
    blocks[rank] = rank + 1
    call(comm, form, "Allgather", MPI.IN_PLACE, blocks, **NATIVE)
    assert (blocks == np.arange(1, n + 1)[:, None]).all()
    mine = np.full((n, 5) if rank == 0 else 5, rank + 1.0)
    call(comm, form, "Gather", MPI.IN_PLACE if rank == 0 else mine, mine if rank == 0 else None, 0, **NATIVE)
    if rank == 0:
        assert (mine == np.arange(1, n + 1)[:, None]).all()


def test_among_operations_of_ours(comm: ps.Comm) -> None:
    """In flight together, waited for in a different order on every rank."""
    n, rank = WORLD.size, WORLD.rank
    for round_number in range(5):
        ours, native, more = np.zeros(200_000), np.zeros(3000), np.zeros(n * 500)
        requests = [
            comm.Iallreduce(np.full(200_000, float(rank + round_number)), ours),
            comm.Iallreduce(np.full(3000, float(rank)), native, **NATIVE),
            comm.Iallgather(np.full(500, rank, "f8"), more),
        ]
        blocking = np.zeros(4)
        comm.Allreduce(np.ones(4), blocking, **NATIVE)
        for i in np.random.default_rng([rank, round_number]).permutation(3):
            requests[i].Wait()
        assert (ours == sum(range(n)) + n * round_number).all()
        assert (native == sum(range(n))).all()
        assert (more.reshape(n, 500) == np.arange(n)[:, None]).all()
        assert (blocking == n).all()


@pytest.mark.parametrize("algorithm", ["", "native"])
def test_what_others_wait_for_goes_on(comm: ps.Comm, algorithm: str) -> None:
    """Rank 0 is inside MPI's own collective while the others still need it for an earlier operation on another communicator."""
    other = comm.Dup()
    total, agreed = np.zeros(300_000), np.zeros(2)
    request = other.Iallreduce(np.ones(300_000), total, algorithm=algorithm)
    if WORLD.rank != 0:
        request.Wait()
    comm.Allreduce(np.ones(2), agreed, **NATIVE)
    request.Wait()
    assert (total == WORLD.size).all()
    assert (agreed == WORLD.size).all()
    other.Free()


def test_communicators_come_and_go(comm: ps.Comm) -> None:
    half = comm.Split(WORLD.rank % 2, -WORLD.rank)
    total = np.zeros(10)
    half.Allreduce(np.ones(10), total, **NATIVE)
    assert (total == half.Get_size()).all()
    request = half.Ibarrier(**NATIVE)
    request.Wait()
    again = half.Dup()
    half.Free()
    again.Bcast(total, 0, **NATIVE)
    again.Free()
    comm.Allreduce(np.ones(10), total, **NATIVE)
    assert (total == comm.size).all()


REFUSED: dict[str, Callable[[ps.Comm], object]] = {
    "no type of MPI": lambda comm: comm.Allreduce(np.zeros(4, "f2"), np.zeros(4, "f2"), **NATIVE),
    "an operation of the user": lambda comm: comm.Allreduce(np.zeros(4), np.zeros(4), lambda a, b: a + b, **NATIVE),
    "reproducible": lambda comm: comm.Allreduce(np.zeros(4), np.zeros(4), reproducible=True, **NATIVE),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_it_cannot_serve(comm: ps.Comm, what: str) -> None:
    with pytest.raises(ps.Error, match="cannot run this call") as raised:
        REFUSED[what](comm)
    assert raised.value.code == "invalid_argument"
    total = np.zeros(5)
    comm.Allreduce(np.ones(5), total)
    assert (total == comm.size).all()


@pytest.mark.parametrize("at", [0, -1])
def test_a_mistake_can_be_mended(comm: ps.Comm, at: int) -> None:
    """A rank that raised before it called MPI can still make the call that the others wait in."""
    total = np.zeros(8)
    if comm.rank == at % comm.size:
        with pytest.raises(ps.Error, match="72"):
            comm.Allreduce(np.ones(8), np.zeros(9), **NATIVE)
    comm.Allreduce(np.ones(8), total, **NATIVE)
    assert (total == comm.size).all()
    comm.Allreduce(np.ones(8), total)
    assert (total == comm.size).all()


def table(key: dict[str, Any], version: int = 2) -> str:
    def point(size: int) -> dict[str, Any]:
        rows = [("native", 0, 1000), ("binomial", 0, 2000)]
        return {
            "bytes": size,
            "native_nanoseconds": 1000,
            "candidates": [{"algorithm": a, "segment_bytes": s, "nanoseconds": t} for a, s, t in rows],
        }

    operations = [{"operation": o, "points": [point(8), point(1 << 20)]} for o in ("bcast", "reduce", "gather")]
    operations.append({"operation": "allreduce", "points": [point(8)]})
    return json.dumps({"format": "penstock-tuning", "version": version, "tables": [{**key, "operations": operations}]})


@contextmanager
def tuned(comm: ps.Comm, **options: str) -> Iterator[ps.Comm]:
    """A communicator with a table that only rank 0 has. `options` are rank 0's."""
    if WORLD.rank == 0:
        folder = tempfile.TemporaryDirectory()
        path = Path(folder.name) / "table.json"
        path.write_text(table(json.loads(comm._core.tuning_key())))
        options["tuning"] = str(path)
    else:
        options = {}
    before = {"tuning": "", "native": "on", "debug": "0"}
    for name, value in options.items():
        _penstock.set_option(name, value)
    try:
        with ps.Comm(WORLD) as made:
            yield made
            made.Barrier()
    finally:
        for name in options:
            _penstock.set_option(name, before[name])


def test_a_table_chooses_it(comm: ps.Comm) -> None:
    with tuned(comm) as made:
        said = made.explain("bcast", 5000)
        assert said["algorithm"] == "bcast/native", said
        assert said["reason"].startswith("tuned: "), said
        values = np.full(5000, made.Get_rank() == 0, np.uint8)
        made.Bcast(values)
        assert values.all()
        made.Ibcast(values).Wait()
        assert "bcast/native" in made.report()
        # What MPI cannot run falls back to Penstock's best algorithm.
        sums = np.zeros(4, "f2")
        made.Allreduce(np.ones(4, "f2"), sums)
        assert (sums == made.size).all()
        assert made.explain("allreduce", 8, dtype="float16")["algorithm"] == "allreduce/binomial"
        assert made.explain("bcast", 5000, algorithm="binomial")["algorithm"] == "bcast/binomial"


@pytest.mark.parametrize("option", [{"native": "off"}, {"debug": "1"}])
def test_one_rank_can_have_it_off(comm: ps.Comm, option: dict[str, str]) -> None:
    with tuned(comm, **option) as made:
        assert made.explain("bcast", 5000)["algorithm"] == "bcast/binomial"
        values = np.full(5000, made.Get_rank() == 0, np.uint8)
        made.Bcast(values)
        assert values.all()


@pytest.mark.parametrize("who", [0, 1])
def test_a_table_is_for_the_settings_of_the_mpi_library(
    comm: ps.Comm, monkeypatch: pytest.MonkeyPatch, who: int
) -> None:
    """Ranks have different tables with other native choices; rank 0's counts on all ranks."""
    if WORLD.rank == who:
        monkeypatch.setenv("OMPI_MCA_coll_han_priority", "100")
        monkeypatch.setenv("MPIR_CVAR_BCAST_INTRA_ALGORITHM", "binomial")
        monkeypatch.setenv("MPIR_CVAR_ANY_NETWORK_IFACE", "eth0")
    with ps.Comm(WORLD) as here:
        settings = json.loads(here._core.tuning_key())["mpi"].partition(" with ")[2]
    for setting in ("OMPI_MCA_coll_han_priority=100", "MPIR_CVAR_BCAST_INTRA_ALGORITHM=binomial"):
        assert (setting in settings) == (WORLD.rank == who)
    assert "IFACE" not in settings
    with tuned(comm) as made:
        assert (made.explain("bcast", 5000)["algorithm"] == "bcast/native") == (who != 0)
        values = np.full(5000, made.Get_rank() == 0, np.uint8)
        made.Bcast(values)
        assert values.all()
        if who == 0:
            assert "mpi is '" in made.report()
            assert "OMPI_MCA_coll_han_priority=100" in made.report()
