"""Reproducible reductions on several ranks: bit-identical whichever rank contributes what, for all message sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import penstock as ps
import pytest
from mpi4py import MPI

WORLD = MPI.COMM_WORLD
COUNTS = (1, 5, 700, 9001, 60000)


def wild(rng: np.random.Generator, count: int, dtype: str) -> np.ndarray:
    """Contributions of all magnitudes, so that sums in different orders differ."""
    shape = (WORLD.size, count)
    values = rng.normal(size=shape) * 10.0 ** rng.integers(-6, 4, size=shape)
    values[rng.random(shape) < 0.01] = np.inf
    values[rng.random(shape) < 0.01] = -np.inf
    values[rng.random(shape) < 0.01] = -0.0
    if dtype == "c8":
        values = np.stack([values, values[:, ::-1]], axis=-1).view("c16")[..., 0]
    with np.errstate(over="ignore", invalid="ignore"):
        return values.astype(dtype)


def other_ranks(rng: np.random.Generator) -> list[np.ndarray]:
    return [np.arange(WORLD.size), np.arange(WORLD.size)[::-1], rng.permutation(WORLD.size)]


def same_bits(results: list[np.ndarray]) -> bool:
    return all(np.array_equal(one.view(np.uint8), results[0].view(np.uint8)) for one in results)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8"])
def test_allreduce_gives_the_same_bits_for_any_order_of_the_ranks(
    comm: ps.Comm, rng: np.random.Generator, dtype: str
) -> None:
    for count in COUNTS:
        all_values = wild(rng, count, dtype)
        results = []
        for order in other_ranks(rng):
            mine = all_values[order[comm.rank]].copy()
            result = np.empty_like(mine)
            comm.Allreduce(mine, result, reproducible=True)
            results.append(result)
            in_place = mine.copy()
            comm.Iallreduce(MPI.IN_PLACE, in_place, reproducible=True).Wait()
            results.append(in_place)
        assert same_bits(results), f"{count} {dtype}"
        everyone = np.empty((comm.size, count), dtype)
        WORLD.Allgather(results[0], everyone)
        assert same_bits(list(everyone)), "differs between the ranks"
        parts = "f4" if dtype == "c8" else dtype  # real and imaginary parts of complex numbers
        with np.errstate(invalid="ignore"):
            np.testing.assert_allclose(
                results[0].view(parts).astype("f8"),
                all_values.view(parts).astype("f8").sum(axis=0),
                rtol=0,
                atol=float(np.finfo(dtype).eps) * 4e4 * comm.size,
                err_msg="not the sum",
            )


def test_a_part_of_a_message_has_the_bits_of_the_whole(comm: ps.Comm, rng: np.random.Generator) -> None:
    all_values = wild(rng, COUNTS[-1], "f4")
    mine = all_values[comm.rank].copy()
    whole = np.empty_like(mine)
    comm.Allreduce(mine, whole, reproducible=True)
    for begin, end in ((0, 1), (17, 40), (59_999, 60_000), (100, 20_000)):
        part = np.empty(end - begin, "f4")
        comm.Allreduce(mine[begin:end].copy(), part, reproducible=True)
        assert same_bits([part, whole[begin:end]]), f"elements {begin} to {end}"
    for algorithm in ("sorted", "sorted_short"):
        again = np.empty_like(mine)
        comm.Allreduce(mine, again, reproducible=True, algorithm=algorithm, segment_bytes=4096)
        assert same_bits([again, whole]), algorithm


def test_other_reductions_have_the_bits_of_allreduce(comm: ps.Comm, rng: np.random.Generator) -> None:
    for per_rank in (1, 300, 20_000):
        count = per_rank * comm.size
        mine = wild(rng, count, "f8")[comm.rank].copy()
        whole = np.empty_like(mine)
        comm.Allreduce(mine, whole, reproducible=True)
        root = comm.size // 2
        at_root = np.empty_like(mine)
        comm.Reduce(mine, at_root if comm.rank == root else None, root=root, reproducible=True)
        if comm.rank == root:
            assert same_bits([at_root, whole])
        block = np.empty(per_rank)
        comm.Reduce_scatter_block(mine, block, reproducible=True)
        assert same_bits([block, whole[comm.rank * per_rank : (comm.rank + 1) * per_rank]])
        counts = [per_rank * (2 if rank == 0 else 0 if rank == 1 else 1) for rank in range(comm.size)]
        counts[0] -= 0 if comm.size > 1 else per_rank
        part = np.empty(counts[comm.rank])
        comm.Reduce_scatter(mine, part, counts, reproducible=True)
        begin = sum(counts[: comm.rank])
        assert same_bits([part, whole[begin : begin + counts[comm.rank]]])


def test_scan_does_not_depend_on_the_message_size(comm: ps.Comm, rng: np.random.Generator) -> None:
    mine = wild(rng, 30_000, "f4")[comm.rank].copy()
    mine[~np.isfinite(mine)] = 1
    whole = np.empty_like(mine)
    comm.Scan(mine, whole, reproducible=True)
    for begin, end in ((0, 1), (1000, 1003), (7, 29_000)):
        part = np.empty(end - begin, "f4")
        comm.Scan(mine[begin:end].copy(), part, reproducible=True)
        assert same_bits([part, whole[begin:end]])


def test_explain_says_so(comm: ps.Comm) -> None:
    facts = comm.explain("allreduce", nbytes=1 << 20, dtype="float32", reproducible=True)
    assert facts["reproducible"] == "on"
    assert "reproducible" in facts["reason"]
    assert "reproducible" not in comm.explain("allreduce", nbytes=1 << 20, dtype="float32")


def test_what_cannot_be_reproducible_is_refused(comm: ps.Comm) -> None:
    ones = np.ones(4)

    def refused(**how: Any) -> str:
        with pytest.raises(ps.Error) as caught:
            comm.Allreduce(ones, np.empty(4), **how)
        return str(caught.value)

    assert "sorted" in refused(reproducible=True, algorithm="ring")
    assert "reproducible" in refused(reproducible=1)
    assert "commute" in refused(reproducible=True, op=np.subtract)


def test_a_rank_that_does_not_want_it_is_found(comm: ps.Comm) -> None:
    if comm.size == 1:
        pytest.skip("there is nobody to disagree with")
    with ps.Comm(WORLD) as own, pytest.raises(ps.Error) as caught:
        own.Allreduce(np.ones(50_000), np.empty(50_000), reproducible=own.rank == 0)
    assert caught.value.code in ("mismatch", "peer_failed"), str(caught.value)
