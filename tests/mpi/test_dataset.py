"""Datasets on ranks: they agree on what they read."""

from __future__ import annotations

import numpy as np
import penstock as ps
import pytest
from mpi4py import MPI

WORLD = MPI.COMM_WORLD


@pytest.fixture(params=["mpi4py", "penstock"])
def comm(request: pytest.FixtureRequest):
    if request.param == "mpi4py":
        yield WORLD
        return
    with ps.Comm(WORLD) as made:
        yield made


def test_ranks_with_the_same_samples_share_them(comm) -> None:
    data = ps.Dataset.from_arrays(np.arange(50)).shuffle(seed=3).batch(8).shard(comm)
    mine = [int(x) for batch in data for x in batch]
    assert sorted(x for of_rank in WORLD.allgather(mine) for x in of_rank) == list(range(50))


def test_a_rank_with_other_samples_is_named_on_all(comm) -> None:
    last = WORLD.rank == WORLD.size - 1
    data = ps.Dataset.from_bytes([b"a", b"b", b"c" if last and WORLD.size > 1 else b"x"]).batch(2)
    if WORLD.size == 1:
        data.shard(comm)
        return
    # Of two ranks the lower one counts.
    with pytest.raises(ps.Error, match=f"rank {WORLD.size - 1} has another list of samples"):
        data.shard(comm)
    assert data.shard(comm, agree=False).samples == 3


def test_another_seed_is_another_order(comm) -> None:
    if WORLD.size == 1:
        pytest.skip("needs two ranks")
    data = ps.Dataset.from_bytes([b"a"] * 9).shuffle(seed=int(WORLD.rank == 1)).batch(2)
    with pytest.raises(ps.Error, match="rank 1 has them in another order"):
        data.shard(comm)


def test_a_rank_that_cannot_tell_is_an_error_on_all(comm) -> None:
    if WORLD.size == 1:
        pytest.skip("needs two ranks")

    class Source(list):
        pass

    data = ps.Dataset.from_source(Source([1, 2, 3]), digest="v1").batch(2)
    if WORLD.rank == 1:

        def fail() -> str:
            raise RuntimeError("no digest here")

        data = data._with(data._chain, digest=fail)
        with pytest.raises(RuntimeError, match="no digest"):
            data.shard(comm)
    else:
        with pytest.raises(ps.Error, match="rank 1 cannot tell its list of samples"):
            data.shard(comm)
