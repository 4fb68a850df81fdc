"""Redistribution on several ranks against NumPy."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import ml_dtypes  # noqa: F401  gives NumPy bfloat16
import numpy as np
import penstock as ps
import pytest
from mpi4py import MPI

WORLD = MPI.COMM_WORLD
MOVED = {"N": lambda x: x, "T": np.transpose, "C": lambda x: x.conj().T}
DTYPES = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
DTYPES += ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"]


def random_layout(rng: np.random.Generator, shape: tuple[int, ...], ranks: int) -> ps.Layout:
    """Any layout on up to `ranks` ranks, equal on every rank."""
    storage = str(rng.choice(["row", "column"]))
    if rng.integers(2):
        grid = [1] * len(shape)
        for axis in rng.permutation(len(shape)):
            grid[axis] = int(rng.integers(1, ranks // int(np.prod(grid)) + 1))
        layout = ps.Layout.block_cyclic(shape, rng.integers(1, 9, len(shape)), grid, "column", storage)
        return layout.relabeled(rng.permutation(layout.ranks))
    splits = []
    for length in shape:
        inner = np.unique(rng.integers(1, max(length, 2), rng.integers(0, 5)))
        splits.append([0, *inner[inner < length], length] if length else [0])
    owners = rng.integers(0, ranks, [len(borders) - 1 for borders in splits])
    return ps.Layout.grid(*splits, owners, ranks=ranks, storage=storage)


def numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Small integers, so that every result is exact."""
    values = rng.integers(0 if dtype.startswith("u") else -3, 4, shape)
    if dtype.startswith("complex"):
        values = values + 1j * rng.integers(-3, 4, shape)
    return values.astype(dtype)


def random_boxes(rng: np.random.Generator, shape: tuple[int, ...], ranks: int) -> ps.Layout:
    """Random boxes, made by cutting one box in two, repeatedly."""
    boxes = [([0] * len(shape), list(shape))]
    for _ in range(rng.integers(0, 7)):
        begin, extent = boxes[rng.integers(len(boxes))]
        axis = int(rng.integers(len(shape)))
        rest = begin.copy(), extent.copy()
        extent[axis] = int(rng.integers(0, extent[axis] + 1))
        rest[0][axis] += extent[axis]
        rest[1][axis] -= extent[axis]
        boxes.append(rest)
    given = [(int(rng.integers(ranks)), begin, extent) for begin, extent in boxes]
    return ps.Layout.boxes(shape, given, ranks, str(rng.choice(["row", "column"])))


def random_group(rng: np.random.Generator, shape: tuple[int, ...], ranks: list[int], total: int) -> ps.Layout:
    """Any layout on some of the ranks."""
    make = random_boxes if rng.integers(2) else random_layout
    layout = make(rng, shape, len(ranks))
    return layout.on_ranks(ranks[: layout.ranks], total)


@pytest.mark.parametrize("how", ["disjoint", "overlapping", "copies"])
def test_groups_boxes_and_copies_equal_numpy(comm: ps.Comm, rng: np.random.Generator, how: str) -> None:
    for case in range(20):
        dtype, op = DTYPES[case % len(DTYPES)], "NTC"[case % 3]
        shape = tuple(int(n) for n in rng.integers(0, 30, rng.integers(1, 4) if op == "N" else 2))
        shapes = [shape, shape if op == "N" else shape[::-1]]
        ranks = rng.permutation(comm.size).tolist()
        middle = int(rng.integers(1, comm.size)) if comm.size > 1 else 0
        if how == "disjoint" and comm.size > 1:
            groups = [ranks[:middle], ranks[middle:]]
        else:
            groups = [ranks[: middle + 1], ranks[middle // 2 :]]
        source, target = (random_group(rng, *each, comm.size) for each in zip(shapes, groups))
        if how == "copies" and comm.size > 1:
            copies = [[], []]
            for made, of_shape in zip(copies, shapes):
                storage = str(rng.choice(["row", "column"]))
                for group in (ranks[:middle], ranks[middle:]):
                    splits = [sorted({0, int(rng.integers(0, n + 1)), n}) for n in of_shape]
                    owners = rng.integers(0, len(group), [len(borders) - 1 for borders in splits])
                    layout = ps.Layout.grid(*splits, owners, ranks=len(group), storage=storage)
                    made.append(layout.on_ranks(group, comm.size))
            source = ps.Layout.replicated(copies[0]) if case % 4 != 1 else source
            target = ps.Layout.replicated(copies[1]) if case % 4 != 2 else target
        b, a = numbers(rng, source.shape, dtype), numbers(rng, target.shape, dtype)
        plan = comm.plan_redistribute(source, target, dtype, op=op, relabel="always" if case % 2 else False)
        b_local = ps.DistArray.from_global(source, b, comm.rank)
        a_local = ps.DistArray.from_global(plan.target, a, comm.rank)
        plan.run(b_local, a_local, alpha=1, beta=case % 2)
        moved = {"N": lambda x: x, "T": np.transpose, "C": lambda x: x.conj().T}[op](b)
        expected = ps.DistArray.from_global(plan.target, (moved + case % 2 * a).astype(dtype), comm.rank)
        np.testing.assert_array_equal(a_local.local, expected.local, f"{source!r} -> {target!r} {dtype}")


@pytest.mark.parametrize("op", ["N", "T", "C"])
@pytest.mark.parametrize("relabel", [False, True])
def test_random_layouts_equal_numpy(comm: ps.Comm, rng: np.random.Generator, op: str, relabel: bool) -> None:
    for case in range(2 * len(DTYPES)):
        dtype = DTYPES[case % len(DTYPES)]
        shape = tuple(int(n) for n in rng.integers(0, 40, rng.integers(1, 4) if op == "N" else 2))
        source = random_layout(rng, shape, comm.size)
        target = random_layout(rng, shape if op == "N" else shape[::-1], comm.size)
        alpha, beta = (int(x) for x in rng.integers(0, 3, 2))
        b = numbers(rng, source.shape, dtype)
        a = numbers(rng, target.shape, dtype)
        plan = comm.plan_redistribute(source, target, dtype, op=op, relabel=relabel)
        b_local = ps.DistArray.from_global(source, b, comm.rank)
        a_local = ps.DistArray.from_global(plan.target, a, comm.rank)
        plan.run(b_local, a_local, alpha=alpha, beta=beta)
        moved = {"N": lambda x: x, "T": np.transpose, "C": lambda x: x.conj().T}[op](b)
        expected = ps.DistArray.from_global(plan.target, (alpha * moved + beta * a).astype(dtype), comm.rank)
        np.testing.assert_array_equal(a_local.local, expected.local, f"{source!r} -> {target!r} {dtype}")


def random_view(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """An array of this shape inside a larger one, with any order and direction of its dimensions."""
    order = rng.permutation(len(shape))
    steps = rng.choice([1, 1, 1, 2, 3, -1, -2], len(shape))
    padding = rng.integers(0, 3, len(shape))
    whole = np.zeros([abs(int(steps[d])) * (shape[d] + int(padding[d])) + 1 for d in order], dtype)
    view = whole.transpose(np.argsort(order))
    return view[tuple(slice(None, None, int(step)) for step in steps)][tuple(slice(0, n) for n in shape)]


def random_part(rng: np.random.Generator, layout: ps.Layout, dtype: str, rank: int) -> ps.DistArray:
    """A rank's local arrays: dense or any views; as a list or, if there is only one, as an array."""
    if rng.integers(4) == 0:
        return ps.DistArray.zeros(layout, dtype, rank)
    views = [random_view(rng, shape, dtype) for shape in layout.part_shapes(rank)]
    only_one = len(views) == 1 and rng.integers(2)
    return ps.DistArray(layout, views[0] if only_one else views, rank, dtype)


@pytest.mark.parametrize("op", ["N", "T", "C"])
def test_any_views_of_arrays(comm: ps.Comm, rng: np.random.Generator, op: str) -> None:
    mine = np.random.default_rng(comm.rank)
    for case in range(24):
        dtype = DTYPES[case % len(DTYPES)]
        shape = tuple(int(n) for n in rng.integers(0, 30, rng.integers(1, 5) if op == "N" else 2))
        make = random_boxes if case % 2 else random_layout
        source, target = make(rng, shape, comm.size), make(rng, shape if op == "N" else shape[::-1], comm.size)
        if case % 4 == 0 and comm.size > 1:
            middle = comm.size // 2
            halves = list(range(middle)), list(range(middle, comm.size))
            source = ps.Layout.replicated(
                [ps.Layout.even(source.shape, len(half)).on_ranks(half, comm.size) for half in halves]
            )
        b, a = numbers(rng, source.shape, dtype), numbers(rng, target.shape, dtype)
        plan = comm.plan_redistribute(source, target, dtype, op=op)
        for turn in range(2):
            b_local = random_part(mine, source, dtype, comm.rank).fill_from(b)
            a_local = random_part(mine, target, dtype, comm.rank).fill_from(a)
            if turn:
                plan.run(b_local, a_local, beta=1)
            else:
                comm.redistribute(b_local, a_local, op, beta=1)
            expected = ps.DistArray.from_global(target, (MOVED[op](b) + a).astype(dtype), comm.rank)
            result, wanted = np.zeros(target.shape, dtype), np.zeros(target.shape, dtype)
            np.testing.assert_array_equal(
                a_local.to_global(result), expected.to_global(wanted), f"{source!r} -> {target!r} {dtype}"
            )


def test_a_batch_of_views(comm: ps.Comm, rng: np.random.Generator) -> None:
    mine = np.random.default_rng(comm.rank)
    layouts = [[random_boxes(rng, (13, 7, 3), comm.size) for _ in range(3)] for _ in range(2)]
    batch = comm.plan_redistribute(*layouts, "float32")
    arrays = [numbers(rng, (13, 7, 3), "float32") for _ in range(3)]
    for _ in range(3):
        sources = [random_part(mine, layout, "float32", comm.rank) for layout in layouts[0]]
        targets = [random_part(mine, layout, "float32", comm.rank) for layout in layouts[1]]
        for part, array in zip(sources, arrays):
            part.fill_from(array)
        batch.run(sources, targets, workspace=np.empty(batch.workspace_bytes, np.uint8))
        for part, array in zip(targets, arrays):
            expected = ps.DistArray.from_global(part.layout, array, comm.rank)
            np.testing.assert_array_equal(
                part.to_global(np.zeros(array.shape)), expected.to_global(np.zeros(array.shape))
            )


def test_both_halves_of_one_array(comm: ps.Comm) -> None:
    """The address ranges of the arrays overlap, but no element does."""
    rows = ps.Layout.even((4 * comm.size, 4 * comm.size), comm.size)
    columns = ps.Layout.even((4 * comm.size, 4 * comm.size), comm.size, 1)
    everything = np.arange(16.0 * comm.size**2).reshape(rows.shape)
    plan = comm.plan_redistribute(rows, columns, np.float64)
    both = np.zeros((4 * comm.size, 4 * comm.size + 4))
    source, target = both[:4, 4:], both[:, :4]
    source[...] = everything[4 * comm.rank : 4 * comm.rank + 4]
    plan.run(source, target)
    np.testing.assert_array_equal(target, everything[:, 4 * comm.rank : 4 * comm.rank + 4])
    with pytest.raises(ps.Error, match="overlaps"):
        plan.run(source, both[:, 1:5])


def test_a_workspace_of_the_callers(comm: ps.Comm) -> None:
    layout = ps.Layout.even((8 * comm.size,), comm.size)
    cyclic = ps.Layout.block_cyclic((8 * comm.size,), (1,), (comm.size,))
    plan = comm.plan_redistribute(layout, cyclic, np.float64)
    everything = np.arange(8.0 * comm.size)
    b = ps.DistArray.from_global(layout, everything, comm.rank)
    for workspace in (bytearray(plan.workspace_bytes), np.empty(plan.workspace_bytes + 5, np.int8), None):
        a = ps.DistArray.zeros(cyclic, rank=comm.rank)
        plan.run(b, a, workspace=workspace)
        np.testing.assert_array_equal(a.local, everything[comm.rank :: comm.size])
    if plan.workspace_bytes:
        with pytest.raises(ps.Error, match=f"expected at least {plan.workspace_bytes}|peer|rank"):
            plan.run(b, a, workspace=bytearray(plan.workspace_bytes - 1))


def test_calls_without_a_plan(comm: ps.Comm, rng: np.random.Generator) -> None:
    for case in range(40):
        length = int(rng.integers(1, 30))
        dtype = ["float32", "float64"][case % 2]
        source = ps.Layout.even((length, 3), comm.size)
        target = ps.Layout.block_cyclic((3, length), (1, 2), (1, comm.size))
        b = numbers(rng, (length, 3), dtype)
        a = ps.DistArray.zeros(target, "float64", comm.rank)
        request = comm.iredistribute(ps.DistArray.from_global(source, b, comm.rank), a, "T", alpha=2)
        request.Wait()
        np.testing.assert_array_equal(a.local, ps.DistArray.from_global(target, 2.0 * b.T, comm.rank).local)


CONVERSIONS = [("float64", "float32"), ("float32", "float64"), ("float64", "float16"), ("float16", "float32")]
CONVERSIONS += [("float32", "bfloat16"), ("bfloat16", "float32"), ("bfloat16", "float64")]
CONVERSIONS += [
    ("complex128", "complex64"),
    ("complex64", "complex128"),
    ("int32", "float64"),
    ("float32", "complex64"),
]


@pytest.mark.parametrize(("narrow", "wide"), CONVERSIONS)
def test_conversions_equal_numpy(comm: ps.Comm, rng: np.random.Generator, narrow: str, wide: str) -> None:
    for op in "NTC":
        shape = tuple(int(n) for n in rng.integers(1, 90, 2))
        source = random_layout(rng, shape, comm.size)
        target = random_layout(rng, shape if op == "N" else shape[::-1], comm.size)
        b = numbers(rng, source.shape, "float64") * np.pi ** rng.integers(0, 9, source.shape)
        b = (b + 1j * b[::-1] if narrow.startswith("complex") else b).astype(narrow)
        plan = comm.plan_redistribute(source, target, wide, op=op, source_dtype=narrow)
        local = ps.DistArray.zeros(target, np.dtype(wide), comm.rank)
        plan.run(ps.DistArray.from_global(source, b, comm.rank), local)
        moved = {"N": lambda x: x, "T": np.transpose, "C": lambda x: x.conj().T}[op](b.astype(wide))
        np.testing.assert_array_equal(local.local, ps.DistArray.from_global(target, moved, comm.rank).local)
    with pytest.raises(ps.Error, match="float32 cannot become int32"):
        comm.plan_redistribute(source, source, "int32", source_dtype="float32")
    values = [rng.integers(0, 9, source.shape).astype(narrow) for _ in range(2)]
    batch = comm.plan_redistribute([source] * 2, [source] * 2, wide, source_dtype=narrow)
    results = [ps.DistArray.zeros(source, np.dtype(wide), comm.rank) for _ in values]
    batch.run([ps.DistArray.from_global(source, each, comm.rank) for each in values], results)
    for each, result in zip(values, results, strict=True):
        expected = ps.DistArray.from_global(source, each.astype(wide), comm.rank)
        np.testing.assert_array_equal(result.local, expected.local)


def test_many_runs_of_one_plan_and_several_at_once(comm: ps.Comm) -> None:
    source = ps.Layout.block_cyclic((60, 48), (7, 5), (comm.size, 1))
    target = ps.Layout.block_cyclic((48, 60), (4, 16), (1, comm.size))
    plan = comm.plan_redistribute(source, target, np.float64, op="T")
    back = comm.plan_redistribute(target, source, np.float64, op="T")
    field = np.arange(60.0 * 48).reshape(60, 48)
    for step in range(5):
        mine = ps.DistArray.from_global(source, field + step, comm.rank)
        there, again = (ps.DistArray.empty(layout, rank=comm.rank) for layout in (target, source))
        plan.run(mine, there)
        back.run(there, again)
        np.testing.assert_array_equal(again.local, mine.local)
    inputs = [ps.DistArray.from_global(source, field * k, comm.rank) for k in range(3)]
    outputs = [ps.DistArray.empty(target, rank=comm.rank) for _ in range(3)]
    requests = [plan.start(b, a) for b, a in zip(inputs, outputs, strict=True)]
    for request in reversed(requests):
        request.Wait()
    for k, a in enumerate(outputs):
        np.testing.assert_array_equal(a.local, ps.DistArray.from_global(target, (field * k).T, comm.rank).local)


def test_beta_zero_does_not_read_the_target(comm: ps.Comm) -> None:
    source = ps.Layout.even((12,), comm.size)
    target = ps.Layout.block_cyclic((12,), (1,), (comm.size,))
    a_local = np.full(target.local_shape(comm.rank), np.nan)
    b_local = ps.DistArray.from_global(source, np.arange(12.0), comm.rank)
    comm.plan_redistribute(source, target, np.float64).run(b_local, a_local, alpha=2)
    np.testing.assert_array_equal(a_local, ps.DistArray.from_global(target, 2 * np.arange(12.0), comm.rank).local)


def test_messages_larger_than_any_buffer(comm: ps.Comm) -> None:
    shape = (1 << 21, 2)
    source = ps.Layout.even(shape, comm.size)
    target = ps.Layout.block_cyclic(shape, (1024, 1), (comm.size, 1), storage="column")
    plan = comm.plan_redistribute(source, target, np.float32)
    everything = np.arange(2 << 21, dtype=np.float32).reshape(shape)
    a_local = ps.DistArray.empty(target, np.float32, comm.rank)
    plan.run(ps.DistArray.from_global(source, everything, comm.rank), a_local)
    np.testing.assert_array_equal(a_local.local, ps.DistArray.from_global(target, everything, comm.rank).local)


@pytest.mark.parametrize("padding", ["none", "source", "target"])
@pytest.mark.parametrize("factors", [(1.0, 0.0), (2.0, 1.0)])
def test_long_runs_wherever_they_lie(comm: ps.Comm, padding: str, factors: tuple[float, float]) -> None:
    rows, columns = 40_000, 4 * comm.size  # a column is 312 KiB
    source = ps.Layout.block_cyclic((rows, columns), (rows, 1), (1, comm.size), storage="column")
    target = ps.Layout.block_cyclic((rows, columns), (rows, 4), (1, comm.size), storage="column")
    values = np.arange(rows * columns, dtype=np.float64).reshape(rows, columns)
    given = ps.DistArray.from_global(source, values, comm.rank).local
    expected = ps.DistArray.from_global(target, values, comm.rank).local * factors[0] + factors[1]
    a = np.ones_like(expected, order="F")
    if padding == "source":
        given = padded(given, "column", rows + 3, -9)[:rows]
    if padding == "target":
        a = padded(a, "column", rows + 3, -9)[:rows]
    plan = comm.plan_redistribute(source, target, np.float64)
    for workspace in (None, np.empty(plan.workspace_bytes, np.uint8)):
        a[...] = 1
        plan.run(given, a, alpha=factors[0], beta=factors[1], workspace=workspace)
        np.testing.assert_array_equal(a, expected)
    if padding == "target":
        assert (a.base[rows:] == -9).all()


def test_relabeling_by_a_cost_of_ones_own(comm: ps.Comm) -> None:
    # Free for the next rank only, so that even data that could stay moves there.
    layout = ps.Layout.block_cyclic((12 * comm.size, 3), (4, 3), (comm.size, 1))
    only_here = comm.rank == 0
    asked = []

    def cost(source: np.ndarray, target: np.ndarray, nbytes: np.ndarray) -> np.ndarray:
        asked.append(len(source))
        return nbytes * (target != (source + 1) % comm.size)

    plan = comm.plan_redistribute(layout, layout, np.float64, relabel="always", cost=ps.TransferCost.function(cost))
    assert plan.permutation == [(r + 1) % comm.size for r in range(comm.size)]
    assert plan.relabeling.cost_after == 0
    assert bool(asked) == only_here
    everything = np.arange(36 * comm.size, dtype=float).reshape(layout.shape)
    given = ps.DistArray.from_global(layout, everything, comm.rank)
    moved = ps.DistArray.zeros(plan.target, np.float64, comm.rank)
    plan.run(given, moved)
    np.testing.assert_array_equal(moved.local, ps.DistArray.from_global(plan.target, everything, comm.rank).local)
    failing = ps.TransferCost.function(lambda i, j, size: 1 / 0)
    with pytest.raises(ps.Error, match="division by zero"):
        comm.plan_redistribute(layout, layout, np.float64, relabel=True, cost=failing)


def test_a_cyclic_shift_moves_nothing_after_relabeling(comm: ps.Comm) -> None:
    source = ps.Layout.block_cyclic((40, 40), (3, 3), (comm.size, 1))
    target = source.relabeled(np.roll(np.arange(comm.size), 1))
    plan = comm.plan_redistribute(source, target, np.float32, relabel=True)
    assert plan.bytes_before == (40 * 40 * 4 if comm.size > 1 else 0)
    assert plan.bytes_after == 0
    assert plan.target == source
    assert comm.plan_redistribute(source, target, np.float32).bytes_after == plan.bytes_before


def padded(part: np.ndarray, storage: str, leading: int, fill: int) -> np.ndarray:
    """A local array with padding between its columns (storage "column") or rows."""
    rows, columns = part.shape
    shape, order = ((leading, columns), "F") if storage == "column" else ((rows, leading), "C")
    array = np.full(shape, fill, part.dtype, order=order)
    array[:rows, :columns] = part
    return array


@pytest.mark.parametrize("op", ["N", "T", "C"])
def test_submatrices_of_padded_arrays_on_different_processes(comm: ps.Comm, rng: np.random.Generator, op: str) -> None:
    for case in range(20):
        dtype = DTYPES[case % len(DTYPES)]
        whole = []
        for _ in range(2):
            count = int(rng.integers(1, comm.size + 1))
            rows = int(rng.choice([n for n in range(1, count + 1) if count % n == 0]))
            grid = (rows, count // rows)
            ranks = rng.permutation(comm.size)[:count]
            layout = ps.Layout.block_cyclic(
                rng.integers(1, 40, 2), rng.integers(1, 9, 2), grid, storage=str(rng.choice(["row", "column"])),
                first=[int(rng.integers(n)) for n in grid], ranks=ranks,
            )  # fmt: skip
            whole.append(layout)
        source, target = whole
        room = target.shape if op == "N" else target.shape[::-1]
        shape = [int(rng.integers(0, min(a, b) + 1)) for a, b in zip(source.shape, room)]
        moved = shape if op == "N" else shape[::-1]
        at = [int(rng.integers(0, n - m + 1)) for n, m in zip(source.shape, shape)]
        to = [int(rng.integers(0, n - m + 1)) for n, m in zip(target.shape, moved)]
        b, a = numbers(rng, source.shape, dtype), numbers(rng, target.shape, dtype)
        padding = rng.integers(0, 4, (2, comm.size))  # a different leading dimension on each rank
        leading, local = [], []
        for k, (layout, values) in enumerate(((source, b), (target, a))):
            part = ps.DistArray.from_global(layout, values, comm.rank).local
            fast = part.shape[0 if layout.storage == "column" else 1]
            leading.append(fast + int(padding[k, comm.rank]) if part.size else 0)
            local.append(padded(part, layout.storage, leading[k], 77) if part.size else part)
        plan = comm.plan_redistribute(
            source, target, dtype, op, source_begin=at, target_begin=to, shape=shape,
            source_leading=leading[0], target_leading=leading[1],
        )  # fmt: skip
        plan.run(*local, alpha=2, beta=1)
        part_of = tuple(slice(i, i + n) for i, n in zip(at, shape))
        part_to = tuple(slice(i, i + n) for i, n in zip(to, moved))
        change = {"N": lambda x: x, "T": np.transpose, "C": lambda x: x.conj().T}[op](b[part_of])
        a[part_to] = (2 * change + a[part_to]).astype(dtype)
        expected = ps.DistArray.from_global(target, a, comm.rank).local
        if expected.size:
            expected = padded(expected, target.storage, leading[1], 77)
        np.testing.assert_array_equal(local[1], expected, f"{source!r}{at} -> {target!r}{to} {shape} {dtype}")


def test_disjoint_sets_of_processes(comm: ps.Comm) -> None:
    half = max(1, comm.size // 2)
    others = list(range(half, comm.size)) or [0]
    source = ps.Layout.block_cyclic((37, 21), (4, 3), (half, 1))
    target = ps.Layout.block_cyclic((37, 21), (5, 2), (1, len(others)), ranks=others, storage="column")
    values = np.arange(37.0 * 21).reshape(37, 21)
    result = ps.DistArray.zeros(target, np.float64, comm.rank)
    plan = comm.plan_redistribute(source, target, np.float64)
    plan.run(ps.DistArray.from_global(source, values, comm.rank), result)
    expected = ps.DistArray.from_global(target, values, comm.rank)
    np.testing.assert_array_equal(result.local, expected.local)
    if comm.size > 1:
        assert plan.bytes_before == values.nbytes
        # Each part of the target goes to a rank that has most of it, so some data stays.
        assert comm.plan_redistribute(source, target, np.float64, relabel=True).bytes_after < values.nbytes


@pytest.mark.parametrize("op", ["N", "C"])
@pytest.mark.parametrize("relabel", [False, True])
def test_batches(comm: ps.Comm, rng: np.random.Generator, op: str, relabel: bool) -> None:
    for dtype in ("float64", "int16", "complex64"):
        shapes = [tuple(int(n) for n in rng.integers(0, 30, 2)) for _ in range(rng.integers(1, 5))]
        sources = [random_layout(rng, shape, comm.size) for shape in shapes]
        targets = [random_layout(rng, shape if op == "N" else shape[::-1], comm.size) for shape in shapes]
        batch = comm.plan_redistribute(sources, targets, dtype, op=op, relabel=relabel)
        assert len(batch) == len(shapes)
        for turn in range(3):  # in new memory, in the same memory, in other memory
            if turn != 1:
                values = [numbers(rng, shape, dtype) for shape in shapes]
                given = [ps.DistArray.from_global(*pair, comm.rank) for pair in zip(sources, values)]
                results = [ps.DistArray.zeros(target, dtype, comm.rank) for target in batch.targets]
            request = batch.start(given, results, beta=1)
            while not request.Test():
                pass
            for target, result, value in zip(batch.targets, results, values):
                expected = (value if op == "N" else value.conj().T) * (2 if turn == 1 else 1)
                np.testing.assert_array_equal(result.local, ps.DistArray.from_global(target, expected, comm.rank).local)


def test_a_batch_with_one_relabeling_for_all(comm: ps.Comm, rng: np.random.Generator) -> None:
    shapes = [tuple(int(n) for n in rng.integers(1, 30, 2)) for _ in range(3)]
    sources = [random_layout(rng, shape, comm.size) for shape in shapes]
    given = [random_layout(rng, shape, comm.size) for shape in shapes]
    batch = comm.plan_redistribute(sources, given, np.float32, relabel="always", relabel_jointly=True)
    found = ps.relabel_jointly([ps.RelabelTransfer(*pair, np.float32) for pair in zip(sources, given)], comm.size)
    for target, layout, each in zip(given, batch.targets, batch.relabelings):
        assert each.permutation == found.permutation
        assert layout == target.relabeled(found.permutation)
    for name in ("bytes_before", "bytes_after"):
        assert sum(getattr(each, name) for each in batch.relabelings) == getattr(found, name)
    values = [numbers(rng, shape, "float32") for shape in shapes]
    results = [ps.DistArray.zeros(target, np.float32, comm.rank) for target in batch.targets]
    batch.run([ps.DistArray.from_global(*pair, comm.rank) for pair in zip(sources, values)], results)
    for target, result, value in zip(batch.targets, results, values):
        np.testing.assert_array_equal(result.local, ps.DistArray.from_global(target, value, comm.rank).local)

    with pytest.raises(ps.Error, match="joint relabeling given without a relabeling"):
        comm.plan_redistribute(sources, given, np.float32, relabel_jointly=True)
    if comm.size > 1:
        with pytest.raises(ps.Error, match="the choice to relabel of rank 1 differs"):
            comm.plan_redistribute(sources, given, np.float32, relabel=True, relabel_jointly=comm.rank == 1)


@pytest.mark.anywhere
def test_a_plan_draws_who_owns_what(comm: ps.Comm, tmp_path: Path) -> None:
    if not find_spec("matplotlib"):  # rank 0 alone imports it
        pytest.skip("matplotlib is not installed")
    source = ps.Layout.even((12, 8), comm.size)
    target = ps.Layout.even((12, 8), comm.size, axis=1)
    plan = comm.plan_redistribute(source, target, np.float32)
    batch = comm.plan_redistribute([source], [target], np.float32)
    folder = comm.bcast(tmp_path)
    for name, draw in (("plan.png", plan.plot), ("batch.png", batch.plot)):
        draw(folder / name if comm.rank == 0 else tmp_path / "nonexistent" / name)
        # The file is complete on every rank's return, and written by rank 0 alone.
        assert (folder / name).read_bytes().startswith(b"\x89PNG")
    assert comm.rank == 0 or not list(tmp_path.iterdir())
    for wrong, text in (
        (lambda: batch.plot(folder / "none.png", pair=1), "pair is 1; expected 0 to 0"),
        (lambda: plan.plot(folder / "nonexistent" / "plan.png"), "there is no directory"),
        (lambda: plan.plot(folder / "plan.odd"), "ends with .odd"),
        (lambda: plan.plot(folder / "plan.png", index=(1,)), "index has 1 numbers"),
    ):
        with pytest.raises(ps.Error, match=text):
            wrong()


def test_without_matplotlib_all_ranks_hear_what_to_install(
    comm: ps.Comm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if comm.rank == 0:
        monkeypatch.setitem(sys.modules, "matplotlib", None)
    layout = ps.Layout.even((12, 8), comm.size)
    plan = comm.plan_redistribute(layout, layout, np.float32)
    with pytest.raises(ps.Error, match=r"pip install 'penstock\[plot\]'") as caught:
        plan.plot(tmp_path / "plan.png")
    assert caught.value.code == "unsupported"
