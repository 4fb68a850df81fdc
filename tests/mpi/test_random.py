"""Random calls on random communicators against the MPI library's own: any operation, type, size, root and form."""

from __future__ import annotations

import numpy as np
import penstock as ps
import pytest
from mpi4py import MPI

WORLD = MPI.COMM_WORLD
CALLS = 60
INTEGERS = ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8")
DTYPES = (*INTEGERS, "f4", "f8", "g", "c8", "c16")
FORMS = ("", "I", "_init")
BITWISE = ("BAND", "BOR", "BXOR", "LAND", "LOR", "LXOR")
KINDS = (
    "Bcast",
    "Reduce",
    "Allreduce",
    "Gather",
    "Scatter",
    "Allgather",
    "Alltoall",
    "Reduce_scatter_block",
    "Scan",
    "Exscan",
    "Gatherv",
    "Scatterv",
    "Allgatherv",
    "Alltoallv",
    "Reduce_scatter",
)


def second_after_first(a: memoryview, b: memoryview, _: MPI.Datatype) -> None:
    """Concatenates octal digits, those of `a` first: does not commute."""
    left, right = np.frombuffer(a, "u8"), np.frombuffer(b, "u8")
    digits = right >> 56
    value = ((left & ((1 << 56) - 1)) << (3 * digits)) | (right & ((1 << 56) - 1))
    right[:] = (((left >> 56) + digits) << 56) | (value & ((1 << 56) - 1))


class Calls:
    """Draws calls for one communicator. Draws are equal on all ranks, except buffer contents."""

    def __init__(self, comm: ps.Comm, native: MPI.Intracomm, rng: np.random.Generator, user: MPI.Op) -> None:
        self.comm, self.native, self.rng, self.user = comm, native, rng, user
        self.rank, self.size = native.rank, native.size

    def random(self) -> str:
        """Makes one call. Returns its description."""
        rng = self.rng
        kind = KINDS[rng.integers(len(KINDS))]
        form = FORMS[rng.integers(len(FORMS))]
        self.dtype = DTYPES[rng.integers(len(DTYPES))]
        self.root = int(rng.integers(self.size))
        self.count = int(rng.integers(0, 4) and 2 ** rng.uniform(0, 15))
        self.in_place = bool(rng.integers(2))
        self.op = self._operation() if kind.startswith(("Reduce", "Allreduce", "Scan", "Exscan")) else None
        self.values = np.random.default_rng([self.rank, self.count, int(rng.integers(1 << 30))])
        what = f"{kind}{form} of {self.count} {self.dtype}, root {self.root}, in place {self.in_place}, {self.op}"
        expected, got, call, native = getattr(self, "_" + kind.lower())(kind)
        getattr(self.native, kind)(*native)
        self._run(kind, form, call)
        if got is not None:
            np.testing.assert_array_equal(got, expected, err_msg=f"rank {self.rank} of {self.size}: {what}")
        return what

    def _operation(self) -> MPI.Op:
        names = ["SUM", "PROD"]
        if self.dtype[0] != "c":
            names += ["MIN", "MAX"]
        if self.dtype in INTEGERS:
            names += BITWISE
        choice = int(self.rng.integers(len(names) + 1))
        if choice < len(names):
            return getattr(MPI, names[choice])
        self.dtype = "u8"
        return self.user

    def _run(self, kind: str, form: str, arguments: tuple) -> None:
        if form == "":
            getattr(self.comm, kind)(*arguments)
        elif form == "I":
            getattr(self.comm, "I" + kind.lower())(*arguments).Wait()
        else:
            request = getattr(self.comm, kind + "_init")(*arguments)
            request.Start()
            request.Wait()

    def _some(self, count: int) -> np.ndarray:
        if self.op is self.user:
            return (np.uint64(1) << np.uint64(56)) + self.values.integers(0, 8, count, "u8")
        return self.values.integers(0, 3, count).astype(self.dtype)

    def _none(self, count: int) -> np.ndarray:
        return np.full(count, 9, self.dtype)

    def _counts(self) -> list[int]:
        return [int(n) for n in self.rng.integers(0, self.count + 1, self.size) * (self.rng.random(self.size) < 0.8)]

    def _places(self, counts: list[int]) -> tuple[list[int], int]:
        begins, at = [0] * len(counts), 0
        for rank in self.values.permutation(len(counts)):
            at += int(self.values.integers(0, 4))
            begins[rank] = at
            at += counts[rank]
        return begins, at + 1

    def _reduction(self, sent: int, received: int, receives: bool, rooted: bool, rest: tuple) -> tuple:
        mine = self._some(sent)
        expected = self._none(received) if receives else None
        in_place = self.in_place and receives
        got = expected.copy() if receives else None
        result = got
        if in_place:
            got = mine.copy()
            result = got[:received]
        return expected, result, (MPI.IN_PLACE if in_place else mine, got, *rest), (mine, expected, *rest)

    def _reduce(self, kind: str) -> tuple:
        return self._reduction(self.count, self.count, self.rank == self.root, True, (self.op, self.root))

    def _allreduce(self, kind: str) -> tuple:
        return self._reduction(self.count, self.count, True, False, (self.op,))

    _scan = _allreduce

    def _exscan(self, kind: str) -> tuple:
        expected, got, call, native = self._reduction(self.count, self.count, True, False, (self.op,))
        return expected, None if self.rank == 0 else got, call, native

    def _reduce_scatter_block(self, kind: str) -> tuple:
        return self._reduction(self.count * self.size, self.count, True, False, (self.op,))

    def _reduce_scatter(self, kind: str) -> tuple:
        counts = self._counts()
        return self._reduction(sum(counts), counts[self.rank], True, False, (counts, self.op))

    def _bcast(self, kind: str) -> tuple:
        expected = self._some(self.count)
        got = expected.copy()
        return expected, got, (got, self.root), (expected, self.root)

    def _gather(self, kind: str) -> tuple:
        mine = self._some(self.count)
        if self.rank != self.root:
            return None, None, (mine, None, self.root), (mine, None, self.root)
        expected = self._none(self.count * self.size)
        got = expected.copy()
        if self.in_place:
            got[self.root * self.count :][: self.count] = mine
        return expected, got, (MPI.IN_PLACE if self.in_place else mine, got, self.root), (mine, expected, self.root)

    def _scatter(self, kind: str) -> tuple:
        dealt = self._some(self.count * self.size) if self.rank == self.root else None
        expected = self._none(self.count)
        got = expected.copy()
        if self.in_place and self.rank == self.root:
            return None, None, (dealt, MPI.IN_PLACE, self.root), (dealt, expected, self.root)
        return expected, got, (dealt, got, self.root), (dealt, expected, self.root)

    def _allgather(self, kind: str) -> tuple:
        mine = self._some(self.count)
        expected = self._none(self.count * self.size)
        got = expected.copy()
        if self.in_place:
            got[self.rank * self.count :][: self.count] = mine
        return expected, got, (MPI.IN_PLACE if self.in_place else mine, got), (mine, expected)

    def _alltoall(self, kind: str) -> tuple:
        mine = self._some(self.count * self.size)
        expected = self._none(mine.size)
        got = mine.copy() if self.in_place else expected.copy()
        return expected, got, (MPI.IN_PLACE if self.in_place else mine, got), (mine, expected)

    def _gatherv(self, kind: str) -> tuple:
        counts = self._counts()
        mine = self._some(counts[self.rank])
        if self.rank != self.root:
            return None, None, (mine, None, self.root), (mine, None, self.root)
        begins, extent = self._places(counts)
        expected = self._none(extent)
        got = expected.copy()
        if self.in_place:
            got[begins[self.root] :][: mine.size] = mine
        sent = MPI.IN_PLACE if self.in_place else mine
        return (
            expected,
            got,
            (sent, [got, (counts, begins)], self.root),
            (mine, [expected, (counts, begins)], self.root),
        )

    def _scatterv(self, kind: str) -> tuple:
        counts = self._counts()
        dealt = None
        if self.rank == self.root:
            begins, extent = self._places(counts)
            dealt = [self._some(extent), (counts, begins)]
        expected = self._none(counts[self.rank])
        got = expected.copy()
        if self.in_place and self.rank == self.root:
            return None, None, (dealt, MPI.IN_PLACE, self.root), (dealt, expected, self.root)
        return expected, got, (dealt, got, self.root), (dealt, expected, self.root)

    def _allgatherv(self, kind: str) -> tuple:
        counts = self._counts()
        mine = self._some(counts[self.rank])
        begins, extent = self._places(counts)
        expected = self._none(extent)
        got = expected.copy()
        if self.in_place:
            got[begins[self.rank] :][: mine.size] = mine
        sent = MPI.IN_PLACE if self.in_place else mine
        return expected, got, (sent, [got, (counts, begins)]), (mine, [expected, (counts, begins)])

    def _alltoallv(self, kind: str) -> tuple:
        table = np.array([self._counts() for _ in range(self.size)])
        if self.in_place:
            table = np.triu(table) + np.triu(table, 1).T
        sent, received = table[self.rank].tolist(), table[:, self.rank].tolist()
        begins, extent = self._places(received)
        expected = self._some(extent) if self.in_place else self._none(extent)
        got = expected.copy()
        if self.in_place:
            packed = np.concatenate([expected[begin:][:count] for begin, count in zip(begins, received)])
            native = ([packed, received], [expected, (received, begins)])
            return expected, got, (MPI.IN_PLACE, [got, (received, begins)]), native
        send_begins, send_extent = self._places(sent)
        mine = [self._some(send_extent), (sent, send_begins)]
        return expected, got, (mine, [got, (received, begins)]), (mine, [expected, (received, begins)])


@pytest.mark.parametrize("turn", range(5))
def test_random_calls(comm: ps.Comm, rng: np.random.Generator, turn: int) -> None:
    """On the whole communicator, and on parts of it with shuffled ranks."""
    user = MPI.Op.Create(second_after_first, commute=False)
    colors, keys = rng.integers(0, 1 + turn % 3, WORLD.size), rng.permutation(WORLD.size)
    part = WORLD.Split(int(colors[WORLD.rank]), int(keys[WORLD.rank]))
    try:
        with ps.Comm(part, progress_cores=turn % 2) as parted:
            calls = Calls(parted, part, rng, user)
            for _ in range(CALLS):
                calls.random()
            assert "native: " not in parted.report()
    finally:
        part.Free()
        user.Free()
