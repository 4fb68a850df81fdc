"""Checkpoints of several ranks: restored on fewer ranks and in other layouts; failures of a single rank."""

from __future__ import annotations

import pathlib
import shutil
import signal
import tempfile
import warnings
from collections.abc import Iterator

import numpy as np
import penstock as ps
import pytest
from mpi4py import MPI

SHAPE = (37, 23)


@pytest.fixture
def folder() -> Iterator[pathlib.Path]:
    """A new folder on storage that all ranks see; removed at the end."""
    world = MPI.COMM_WORLD
    made = tempfile.mkdtemp(prefix="penstock-test-") if world.rank == 0 else None
    path = pathlib.Path(world.bcast(made))
    yield path
    world.Barrier()
    if world.rank == 0:
        shutil.rmtree(path)


def urls(folder: pathlib.Path, form: str = "folder") -> dict[str, str]:
    run = {"run": "one"} if form == "run" else {}
    return {"url": f"file://{folder}/slow", "burst_buffer": f"file://{folder}/fast", **run}


both_forms = pytest.mark.parametrize("form", ["folder", "run"])


def grid_of(ranks: int) -> tuple[int, int]:
    rows = max(n for n in range(1, ranks + 1) if ranks % n == 0 and n * n <= ranks)
    return rows, ranks // rows


def field(step: int) -> np.ndarray:
    return np.arange(np.prod(SHAPE), dtype=np.float64).reshape(SHAPE) * step


def tree(step: int, layout: ps.Layout, rank: int) -> dict:
    return {
        "field": ps.DistArray.from_global(layout, field(step), rank),
        "replicated": np.full(100, step, np.float32),
        "step": step,
    }


def expect(tree: dict, layout: ps.Layout, rank: int, step: int) -> None:
    assert tree["field"].layout == layout
    assert np.array_equal(tree["field"].local, ps.DistArray.from_global(layout, field(step), rank).local)
    assert (tree["replicated"] == step).all()
    assert tree["step"] == step


@both_forms
def test_saved_on_all_restored_on_fewer_and_in_another_layout(comm, folder, form):
    saved = ps.Layout.block_cyclic(SHAPE, (4, 3), grid_of(comm.size))
    with ps.Checkpointer(**urls(folder, form), keep=2, comm=comm) as ck:
        for step in (1, 2, 3):
            handle = ck.save(step, tree(step, saved, comm.rank))
        handle.wait("fast")
        assert handle.level in ("fast", "drained")
        handle.wait("drained")
        ck.finish()
        assert ck.steps() == [2, 3]
        transposed = ps.Layout.block_cyclic(SHAPE, (5, 2), grid_of(comm.size)[::-1], order="column", storage="column")
        step, restored = ck.restore({"field": transposed})
        assert step == 3
        expect(restored, transposed, comm.rank, 3)
        assert np.array_equal(ck.restore(step=2)[1]["field"], field(2))
    fewer = max(1, comm.size - 1)
    part = MPI.COMM_WORLD.Split(0 if comm.rank < fewer else 1)
    if comm.rank < fewer:
        layout = ps.Layout.even(SHAPE, fewer, axis=1)
        with ps.Checkpointer(**urls(folder, form), comm=part) as ck:
            step, restored = ck.restore({"field": layout})
            assert step == 3
            expect(restored, layout, part.rank, 3)
            ck.save(4, tree(4, layout, part.rank)).wait("drained")
            assert ck.restore({"field": layout})[0] == 4
    part.Free()


@both_forms
def test_what_all_ranks_have_is_divided_over_them(comm, folder, form):
    def states(step: int) -> dict:
        return {
            "large": np.arange(3 << 18).reshape(1 << 18, 3) + step,  # 6 MiB
            "flat": np.full((1, 4 << 20), step, np.uint8)[:, ::2],
            "fortran": np.asfortranarray(np.arange(1 << 18).reshape(1 << 9, 1 << 9) * step),
            "text": np.full(1 << 16, "text", "U5"),
            "small": [np.full(100, step + i) for i in range(12)],
            "empty": np.empty((0, 3)),
            "zero": np.array(step),
        }

    def expect_states(restored: dict, step: int) -> None:
        wanted = states(step)
        for name in ("large", "flat", "fortran", "text", "empty", "zero"):
            assert restored[name].dtype == wanted[name].dtype
            np.testing.assert_array_equal(restored[name], wanted[name], name)
        np.testing.assert_array_equal(restored["small"], wanted["small"])

    with ps.Checkpointer(**urls(folder, form), comm=comm) as ck:
        for step in (1, 2):
            ck.save(step, states(step)).wait("drained")
        expect_states(ck.restore()[1], 2)
        cut = ps.Layout.even((1 << 18, 3), comm.size, axis=1)
        part = ck.restore({"large": cut})[1]["large"]
        assert np.array_equal(part.local, ps.DistArray.from_global(cut, states(2)["large"], comm.rank).local)
        arrays = ck.inspect().arrays.values()
        bytes_of = [
            sum(
                one.nbytes * one.layout.local_size(rank) // max(1, one.layout.size)
                for one in arrays
                if rank < one.layout.ranks
            )
            for rank in range(comm.size)
        ]
        assert max(bytes_of) < 1.1 * sum(bytes_of) / comm.size + (256 << 10), bytes_of
    if comm.rank == 0:
        with ps.Checkpointer(**urls(folder, form), comm=MPI.COMM_SELF) as ck:
            expect_states(ck.restore()[1], 2)


def test_all_ranks_decide_alike_whether_there_is_one(comm, folder):
    layout = ps.Layout.even(SHAPE, comm.size, axis=1)
    with ps.Checkpointer(**urls(folder), comm=comm) as ck:
        assert ck.restore(default=(0, None)) == (0, None)
        ck.save(1, tree(1, ps.Layout.even(SHAPE, comm.size), comm.rank)).wait("drained")
        like = {"field": layout, "replicated": np.zeros(100, np.float32), "step": 0}
        step, restored = ck.restore(like=like, default=(0, None))
        assert step == 1
        expect(restored, layout, comm.rank, 1)
        assert list(ck.restore(only="step")[1]) == ["step"]
        # What one rank asks wrongly fails on all; what ranks ask differently, too.
        with pytest.raises(ps.Error) as error:
            ck.restore(like={**like, "step": np.zeros(1)} if comm.rank == comm.size - 1 else like)
        assert "'step': saved was the value 1" in str(error.value)
        if comm.size > 1:
            with pytest.raises(ps.Error, match="other arrays or layouts than rank 0"):
                ck.restore(only="step" if comm.rank == 0 else "field")
        assert ck.restore()[0] == 1


@both_forms
def test_all_ranks_learn_what_became_of_a_deletion(comm, folder, form):
    with ps.Checkpointer(**urls(folder, form), comm=comm) as ck:
        for step in (1, 2):
            ck.save(step, {"a": np.full(10, step)}).wait("drained")
        if comm.size > 1:
            with pytest.raises(ps.Error, match="pass the same") as error:
                ck.delete(1 if comm.rank == comm.size - 1 else 2)
            assert error.value.code == "mismatch"
        ck.delete(2)
        with pytest.raises(ps.Error) as error:
            ck.delete(2)
        assert error.value.code == "not_found"
        comm.Barrier()
        assert ck.steps() == [1]
        assert ck.restore()[0] == 1


def test_without_a_communicator_it_takes_all_ranks(comm, folder):
    layout = ps.Layout.even(SHAPE, comm.size)
    with ps.Checkpointer(f"file://{folder}/slow") as ck:
        ck.save(1, tree(1, layout, comm.rank)).wait("drained")
        _, restored = ck.restore({"field": layout})
        expect(restored, layout, comm.rank, 1)


@both_forms
def test_collectives_go_on_meanwhile(comm, folder, form):
    layout = ps.Layout.even((1 << 18,), comm.size)
    local = np.empty(layout.local_shape(comm.rank))
    total = np.empty(1000)
    with ps.Checkpointer(**urls(folder, form), keep=1, comm=comm) as ck:
        for step in range(1, 8):
            local[:] = step
            ck.save(step, {"a": ps.DistArray(layout, local, comm.rank)})
            for _ in range(3):
                comm.Allreduce(np.full(1000, comm.rank + step, np.float64), total)
                assert (total == sum(range(comm.size)) + comm.size * step).all()
        ck.finish()
        assert (ck.restore()[1]["a"] == 7).all()


@both_forms
def test_what_one_rank_cannot_save_fails_on_all(comm, folder, form):
    layout = ps.Layout.even(SHAPE, comm.size)
    last = comm.size - 1
    with ps.Checkpointer(**urls(folder, form), comm=comm) as ck:
        given = tree(1, layout, comm.rank)
        if comm.rank == last:
            given["step"] = object()
            with pytest.raises(ps.Error, match="cannot be saved"):
                ck.save(1, given)
        else:
            handle = ck.save(1, given)
            with pytest.raises(ps.Error, match="cannot be saved") as error:
                handle.wait("fast")
            assert error.value.code == "peer_failed"
            assert error.value.rank == last
        ck.save(2, tree(2, layout, comm.rank)).wait("drained")
        assert ck.steps() == [2]


@both_forms
@pytest.mark.parametrize("shared", [True, False])
def test_what_a_dead_job_left_undrained_is_drained_by_the_next(comm, folder, form, shared):
    """As after a crash, the slow tier does not have step 2. A shared burst buffer is drained by half of the ranks."""
    layout = ps.Layout.even(SHAPE, comm.size)
    where = urls(folder, form) | ({} if shared else {"burst_buffer": f"file://{folder}/fast{comm.rank}"})
    with ps.Checkpointer(**where, comm=comm) as ck:
        ck.save(1, tree(1, layout, comm.rank)).wait("drained")
        comm.Barrier()
        if comm.rank == 0:
            shutil.copytree(folder / "slow", folder / "kept")
        comm.Barrier()
        ck.save(2, tree(2, layout, comm.rank)).wait("drained")
    comm.Barrier()
    if comm.rank == 0:
        shutil.rmtree(folder / "slow")
        (folder / "kept").rename(folder / "slow")
    comm.Barrier()
    ranks = (comm.size + 1) // 2 if shared else comm.size
    group = comm.Split(0 if comm.rank < ranks else MPI.UNDEFINED)
    if comm.rank < ranks:
        with ps.Checkpointer(**where, comm=group) as ck:
            assert ck.resume_drains() in (0, 1)
            ck.finish()
            assert ck.warnings == []
    comm.Barrier()
    slow = {key: value for key, value in where.items() if key != "burst_buffer"}
    with ps.Checkpointer(**slow, comm=comm) as ck:
        assert ck.steps() == [1, 2]
        step, restored = ck.restore({"field": layout})
        assert step == 2
        expect(restored, layout, comm.rank, 2)


@both_forms
def test_a_burst_buffer_that_fails_on_one_rank_fails_the_checkpoint_on_all(comm, folder, form):
    """Each rank has its own burst buffer, as on a separate node."""
    layout = ps.Layout.even(SHAPE, comm.size)
    last = comm.size - 1
    fast = folder / f"fast{comm.rank}"
    with ps.Checkpointer(f"file://{folder}/slow", burst_buffer=f"file://{fast}", comm=comm) as ck:
        ck.save(1, tree(1, layout, comm.rank)).wait("drained")
        if comm.rank == last:
            (fast / "checkpoints").rename(fast / "away")
            (fast / "checkpoints").write_text("no folder any more")
        handle = ck.save(2, tree(2, layout, comm.rank))
        with pytest.raises(ps.Error) as error:
            handle.wait("fast")
        assert error.value.code == ("io" if comm.rank == last else "peer_failed")
        assert error.value.rank == last
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the last rank's burst buffer cannot be listed
            step, restored = ck.restore({"field": layout})
        assert step == 1
        expect(restored, layout, comm.rank, 1)


def test_copies_on_partners_outlive_the_burst_buffer_of_a_node(folder):
    world = MPI.COMM_WORLD
    node = world.Split_type(MPI.COMM_TYPE_SHARED)
    first = node.bcast(world.rank)  # names the node
    fewest = world.allreduce(node.size, MPI.MIN)
    group = world.Split(0 if node.rank < fewest else MPI.UNDEFINED, world.rank)
    if group == MPI.COMM_NULL:
        return
    places = {"url": f"file://{folder}/slow", "burst_buffer": f"file://{folder}/fast{first}", "comm": group}
    if group.allreduce(first, MPI.MAX) == 0:
        with pytest.raises(ps.Error, match=f"a node has {group.size} of the {group.size} ranks"):
            ps.Checkpointer(**places, partner_copies=True)
        return
    layout = ps.Layout.even((3_000_000,), group.size)  # several messages for each copy
    values = np.arange(3_000_000, dtype=np.float64)
    with ps.Checkpointer(**places, partner_copies=True) as ck:
        ck.save(1, {"a": ps.DistArray.from_global(layout, values, group.rank)}).wait("drained")
    group.Barrier()
    if group.rank == 0:  # as if it had not been drained, and the node of rank 0 had failed
        shutil.rmtree(folder / "slow" / "checkpoints")
        shutil.rmtree(folder / f"fast{first}")
    group.Barrier()
    with ps.Checkpointer(**places) as ck, warnings.catch_warnings():
        warnings.simplefilter("error")
        step, restored = ck.restore({"a": layout})
        assert step == 1
        assert np.array_equal(restored["a"].local, ps.DistArray.from_global(layout, values, group.rank).local)
        whole = ck.restore()[1]["a"]
        assert np.array_equal(whole, values)


def test_a_wrong_place_is_told_to_all(comm, folder):
    with pytest.raises(ps.Error) as error:
        ps.Checkpointer("nowhere:x" if comm.rank == comm.size - 1 else f"file://{folder}/slow", comm=comm)
    assert error.value.code == ("invalid_argument" if comm.rank == comm.size - 1 else "peer_failed")


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM])
def test_a_signal_to_one_rank_makes_a_save_due_on_all_in_the_same_step(comm, folder, number):
    layout = ps.Layout.even(SHAPE, comm.size)
    with ps.Checkpointer(**urls(folder), comm=comm, save_on_signal=(signal.SIGUSR1, signal.SIGTERM)) as ck:
        due = []
        for step in range(1, 7):
            # The last rank hears it before step 3, rank 0 while the others decide about step 5.
            if (step == 3 and comm.rank == comm.size - 1) or (step == 5 and comm.rank == 0):
                signal.raise_signal(number)  # os.kill: later, if another thread gets it
            if ck.due(step):
                due.append(step)
                ck.save(step, tree(step, layout, comm.rank))
        assert due == [3, 5]
        assert ck.signals == {number}
        ck.finish()
        assert ck.steps() == [3, 5]
        step, restored = ck.restore({"field": layout})
        expect(restored, layout, comm.rank, 5)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_the_interval_is_that_of_rank_0(comm, folder):
    with ps.Checkpointer(**urls(folder), comm=comm, mtbf_s=1e9) as ck:
        assert ck.due(1)  # nothing is saved yet
        ck.save(1, {"step": 1})
        assert not ck.due(2)
        # A long time by the clock of one rank.
        ck._schedule._now_s = lambda: 1e12 if comm.rank == comm.size - 1 else 0.0
        assert ck.due(3) == (comm.size == 1)
        ck._schedule._now_s = lambda: 1e12 if comm.rank == 0 else 0.0
        assert ck.due(4)
