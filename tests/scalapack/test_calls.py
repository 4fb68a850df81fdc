"""Random calls of the redistribution routines on all ranks, compared with NumPy and with ScaLAPACK."""

from __future__ import annotations

import ctypes
import mmap
import os

import numpy as np
import pytest

MPI = pytest.importorskip("mpi4py.MPI")
if MPI.COMM_WORLD.size == 1 and "PENSTOCK_SCALAPACK_JOB" not in os.environ:
    pytest.skip("runs inside of an MPI job, see test_programs.py", allow_module_level=True)

from scalapack.library import LETTERS, TRAN, Grid, Library, Matrix  # noqa: E402

WORLD = MPI.COMM_WORLD


@pytest.fixture(scope="session")
def line(theirs: Library) -> Grid:
    """The context of the calls: a grid of all ranks."""
    return theirs.line(WORLD.size)


def random_grid(rng: np.random.Generator, blacs: Library) -> Grid:
    """Make a grid of some of the ranks in any order. The others are outside."""
    rows = int(rng.integers(1, WORLD.size + 1))
    columns = int(rng.integers(1, WORLD.size // rows + 1))
    return blacs.grid(rng.permutation(WORLD.size)[: rows * columns].tolist(), rows, columns)


def random_matrix(rng: np.random.Generator, grid: Grid, least: tuple[int, int], first: bool = False) -> Matrix:
    block = tuple(int(n) for n in rng.integers(1, 9, 2))
    return Matrix(
        grid,
        tuple(int(n + rng.integers(0, 12)) for n in least),
        block,
        (int(rng.integers(grid.rows)), int(rng.integers(grid.columns))),
        int(rng.integers(0, 4)),
        tuple(int(rng.integers(1, n + 1)) for n in block) if first else None,
    )


def begin_in(rng: np.random.Generator, matrix: Matrix, shape: tuple[int, int]) -> tuple[int, int]:
    return tuple(int(rng.integers(0, whole - part + 1)) for whole, part in zip(matrix.shape, shape))


def numbers(rng: np.random.Generator, shape: tuple[int, int], letter: str) -> np.ndarray:
    values = rng.integers(-9, 10, shape)
    if letter in "cz":
        values = values + 1j * rng.integers(-9, 10, shape)
    return values.astype(LETTERS[letter])


def part(whole: np.ndarray, begin: tuple[int, int], shape: tuple[int, int]) -> np.ndarray:
    return whole[begin[0] : begin[0] + shape[0], begin[1] : begin[1] + shape[1]]


def equal_everywhere(given: np.ndarray, expected: np.ndarray, what: object) -> None:
    wrong = WORLD.allreduce(int(not np.array_equal(given, expected)), MPI.MAX)
    assert not wrong, f"{what}\n{given}\nexpected\n{expected}"


@pytest.mark.parametrize("letter", LETTERS)
def test_gemr2d_equals_numpy_and_scalapack(
    ours: Library, theirs: Library, line: Grid, rng: np.random.Generator, letter: str
) -> None:
    for _ in range(12):
        grids = [random_grid(rng, theirs), random_grid(rng, theirs)]
        for _ in range(3):
            shape = tuple(int(n) for n in rng.integers(1, 40, 2))
            a, b = (random_matrix(rng, grid, shape) for grid in grids)
            at_a, at_b = begin_in(rng, a, shape), begin_in(rng, b, shape)
            source, before = numbers(rng, a.shape, letter), numbers(rng, b.shape, letter)
            after = before.copy()
            part(after, at_b, shape)[...] = part(source, at_a, shape)
            for library, name in ((ours, "Penstock"), (theirs, "ScaLAPACK")):
                given, result = a.local(source), b.local(before)
                call = (letter, shape, given, at_a, a.descriptor(), result, at_b, b.descriptor(), line.context)
                library.gemr2d(*call)
                equal_everywhere(result, b.local(after), f"{name}: {shape} of {a} at {at_a} to {b} at {at_b}")
                equal_everywhere(given, a.local(source), "the source")
        for grid in grids:
            theirs.exit(grid)


@pytest.mark.parametrize("letter", LETTERS)
@pytest.mark.parametrize("uplo", ["U", "l"])
@pytest.mark.parametrize("diag", ["n", "U"])
def test_trmr2d_equals_numpy_and_scalapack(
    ours: Library, theirs: Library, line: Grid, rng: np.random.Generator, letter: str, uplo: str, diag: str
) -> None:
    grids = [random_grid(rng, theirs), random_grid(rng, theirs)]
    for _ in range(8):
        shape = tuple(int(n) for n in rng.integers(1, 40, 2))
        a, b = (random_matrix(rng, grid, shape) for grid in grids)
        at_a, at_b = begin_in(rng, a, shape), begin_in(rng, b, shape)
        source, before = numbers(rng, a.shape, letter), numbers(rng, b.shape, letter)
        # The diagonal ends in the last row and the last column.
        offset = shape[1] - shape[0]
        without = diag == "U"
        if uplo == "U":
            moves = ~np.tri(*shape, k=(offset if offset < 0 else 0) - (0 if without else 1), dtype=bool)
        else:
            moves = np.tri(*shape, k=(offset if offset > 0 else 0) - (1 if without else 0), dtype=bool)
        after = before.copy()
        part(after, at_b, shape)[moves] = part(source, at_a, shape)[moves]
        for library, name in ((ours, "Penstock"), (theirs, "ScaLAPACK")):
            given, result = a.local(source), b.local(before)
            call = (shape, given, at_a, a.descriptor(), result, at_b, b.descriptor(), line.context)
            library.trmr2d(letter, uplo, diag, *call)
            equal_everywhere(result, b.local(after), f"{name}: {uplo} {diag} {shape} of {a} at {at_a} to {b} at {at_b}")
            equal_everywhere(given, a.local(source), "the source")
    for grid in grids:
        theirs.exit(grid)


def test_a_trapezoid_moves_within_its_own_matrix(ours: Library, line: Grid, rng: np.random.Generator) -> None:
    matrix = Matrix(line, (30, 30), (3, 4), padding=1)
    whole = numbers(rng, matrix.shape, "d")
    memory = matrix.local(whole)
    at = (matrix.descriptor(), memory, (4, 5), matrix.descriptor(), line.context)
    ours.trmr2d("d", "L", "N", (12, 12), memory, (3, 3), *at)
    after = whole.copy()
    moves = np.tri(12, 12, dtype=bool)
    part(after, (4, 5), (12, 12))[moves] = part(whole, (3, 3), (12, 12))[moves]
    equal_everywhere(memory, matrix.local(after), "overlapping")


def test_letters_that_trmr2d_does_not_know(ours: Library, line: Grid, capfd: pytest.CaptureFixture) -> None:
    matrix = Matrix(line, (9, 9), (2, 2))
    for uplo, diag, words in (("X", "N", "UPLO is 'X'; expected 'U' or 'L'"), ("U", "?", "DIAG is '?'; expected 'U'")):
        result = matrix.local(np.zeros(matrix.shape))
        at = ((0, 0), matrix.descriptor(), result, (0, 0), matrix.descriptor(), line.context)
        ours.trmr2d("d", uplo, diag, (9, 9), matrix.local(np.ones(matrix.shape)), *at)
        equal_everywhere(result, matrix.local(np.zeros(matrix.shape)), "something was moved")
        assert words in capfd.readouterr().err


@pytest.mark.parametrize("name", TRAN)
def test_tran_equals_numpy_and_scalapack(ours: Library, theirs: Library, rng: np.random.Generator, name: str) -> None:
    letter = TRAN[name]
    for case in range(12):
        grid = random_grid(rng, theirs)
        local_rng = np.random.default_rng([case, *name.encode()])  # ranks outside of the grid draw nothing
        for _ in range(3 if grid.context >= 0 else 0):
            shape = tuple(int(n) for n in local_rng.integers(1, 40, 2))
            a = random_matrix(local_rng, grid, shape[::-1], first=case % 2 == 1)
            c = random_matrix(local_rng, grid, shape, first=case % 3 == 1)
            at_a, at_c = begin_in(local_rng, a, shape[::-1]), begin_in(local_rng, c, shape)
            alpha, beta = (int(n) for n in local_rng.integers(-1, 3, 2))
            source, before = numbers(local_rng, a.shape, letter), numbers(local_rng, c.shape, letter)
            moved = part(source, at_a, shape[::-1]).T
            if name.endswith("c_"):
                moved = moved.conj()
            after = before.copy()
            part(after, at_c, shape)[...] = alpha * moved + beta * part(before, at_c, shape)
            for library in (ours, theirs):
                result = c.local(before)
                library.tran(
                    name, shape, alpha, a.local(source), at_a, a.descriptor(), beta, result, at_c, c.descriptor()
                )
                np.testing.assert_array_equal(
                    result, c.local(after), f"{alpha} * {a} at {at_a} + {beta} * {c} at {at_c}"
                )
        theirs.exit(grid)


def test_what_is_not_to_be_read_may_be_nan(ours: Library, line: Grid) -> None:
    matrix = Matrix(line, (13, 17), (2, 3))
    turned = Matrix(line, (17, 13), (3, 5))
    nothing = np.full(turned.shape, np.nan)
    source = np.arange(13.0 * 17).reshape(13, 17)
    result = turned.local(nothing, 5)
    where = ((0, 0), matrix.descriptor(), 0, result, (0, 0), turned.descriptor())
    ours.tran("pdtran_", (17, 13), 2, matrix.local(source), *where)
    np.testing.assert_array_equal(result, turned.local(2 * source.T, 5))
    ours.tran("pdtran_", (17, 13), 0, matrix.local(np.full(matrix.shape, np.nan)), *where)
    np.testing.assert_array_equal(result, turned.local(0 * source.T, 5))


def test_a_part_moves_within_its_own_matrix(ours: Library, line: Grid, rng: np.random.Generator) -> None:
    matrix = Matrix(line, (30, 30), (3, 4), padding=1)
    for begin in ((15, 2), (4, 4), (0, 16)):  # apart, overlapping, beside
        whole = numbers(rng, matrix.shape, "d")
        memory = matrix.local(whole)
        ours.gemr2d(
            "d", (12, 11), memory, (3, 3), matrix.descriptor(), memory, begin, matrix.descriptor(), line.context
        )
        after = whole.copy()
        part(after, begin, (12, 11))[...] = part(whole, (3, 3), (12, 11))
        equal_everywhere(memory, matrix.local(after), begin)


def test_long_first_blocks_go_to_scalapack(
    ours: Library, theirs: Library, line: Grid, rng: np.random.Generator
) -> None:
    turned = Matrix(line, (17, 13), (3, 5))
    matrix = Matrix(line, (13, 17), (2, 3), first_block=(5, 4))
    source = numbers(rng, matrix.shape, "d")
    for library in (ours, theirs):
        result = turned.local(np.zeros(turned.shape))
        call = (matrix.local(source), (0, 0), matrix.descriptor(), 0, result, (0, 0), turned.descriptor())
        library.tran("pdtran_", (17, 13), 1, *call)
        equal_everywhere(result, turned.local(source.T), matrix)


def test_replicated_matrices_equal_numpy(ours: Library, theirs: Library, rng: np.random.Generator) -> None:
    rows = max(n for n in (1, 2, 3) if WORLD.size % n == 0)
    grid = theirs.grid(list(range(WORLD.size)), rows, WORLD.size // rows)
    for source_of_a in ((0, 0), (-1, 0), (0, -1), (-1, -1)):
        for source_of_c in ((0, 0), (-1, 0), (0, -1), (-1, -1)):
            a = Matrix(grid, (13, 17), (2, 3), source_of_a, padding=1)
            c = Matrix(grid, (18, 15), (3, 5), source_of_c)
            source, before = numbers(rng, a.shape, "z"), numbers(rng, c.shape, "z")
            after = before.copy()
            part(after, (1, 2), (15, 12))[...] = 2 * part(source, (1, 2), (12, 15)).conj().T + 3 * part(
                before, (1, 2), (15, 12)
            )
            result = c.local(before)
            call = (a.local(source), (1, 2), a.descriptor(), 3, result, (1, 2), c.descriptor())
            ours.tran("pztranc_", (15, 12), 2, *call)
            equal_everywhere(result, c.local(after), f"{source_of_a} {source_of_c}")
    theirs.exit(grid)


@pytest.mark.parametrize(
    ("where", "changes", "number", "words"),
    [
        ("A", {"mb": 0}, 605, "DESCA(5), MB, is 0; expected at least 1"),
        ("A", {"m": 11}, 4, "IA is 3; expected"),
        ("B", {"csrc": 99}, 1008, "DESCB(8), CSRC, is 99"),
        ("B", {"lld": 1}, 1009, "DESCB(9), LLD, is 1; expected at least"),
    ],
)
def test_an_illegal_argument_is_named_and_moves_nothing(
    ours: Library, line: Grid, capfd: pytest.CaptureFixture, where: str, changes: dict, number: int, words: str
) -> None:
    a, b = Matrix(line, (20, 20), (3, 2)), Matrix(line, (20, 20), (5, 4))
    source = np.arange(400.0).reshape(20, 20)
    # Only one rank has a wrong argument. The others must neither wait for it nor move anything.
    wrong = changes if WORLD.rank == min(WORLD.size - 1, 3) else {}
    descriptors = {"A": a.descriptor(), "B": b.descriptor()}
    descriptors[where] = (a if where == "A" else b).descriptor(**wrong)
    result = b.local(np.zeros(b.shape))
    call = ("d", (12, 12), a.local(source), (2, 2), descriptors["A"], result, (1, 1), descriptors["B"], line.context)
    ours.gemr2d(*call)
    equal_everywhere(result, b.local(np.zeros(b.shape)), "something was moved")
    said = capfd.readouterr().err
    assert (words in said) == bool(wrong), said
    # ScaLAPACK's error handler got the argument's number. The same call works with right arguments.
    descriptors = {"A": a.descriptor(), "B": b.descriptor()}
    ours.gemr2d(*call[:4], descriptors["A"], *call[5:7], descriptors["B"], line.context)
    after = np.zeros(b.shape)
    part(after, (1, 1), (12, 12))[...] = part(source, (2, 2), (12, 12))
    equal_everywhere(result, b.local(after), "after the mistake")


def test_processes_that_contradict_each_other_are_told_so(
    ours: Library, line: Grid, capfd: pytest.CaptureFixture
) -> None:
    if WORLD.size == 1:
        pytest.skip("one process cannot contradict itself")
    a, b = Matrix(line, (20, 20), (3, 2)), Matrix(line, (20, 20), (5, 4))
    result = b.local(np.zeros(b.shape))
    other = {"mb": 7} if WORLD.rank == 1 else {}
    call = ("d", (12, 12), a.local(np.ones(a.shape)), (0, 0), a.descriptor(**other), result, (0, 0), b.descriptor())
    ours.gemr2d(*call, line.context)
    equal_everywhere(result, b.local(np.zeros(b.shape)), "something was moved")
    said = capfd.readouterr().err
    assert ("process 1 gives another DESCA" in said) == (WORLD.rank == 0), said


def test_a_call_that_is_known_may_differ_in_leading_dimensions_alone(
    ours: Library, line: Grid, rng: np.random.Generator, capfd: pytest.CaptureFixture
) -> None:
    last = WORLD.rank == WORLD.size - 1

    def call(padding: int = 0, **wrong: int) -> tuple[str, np.ndarray, np.ndarray]:
        a, b = Matrix(line, (20, 22), (3, 2), padding=padding), Matrix(line, (20, 22), (5, 4))
        whole = numbers(rng, (20, 22), "d")
        result = b.local(np.zeros(b.shape))
        desc_b = b.descriptor(**(wrong if last else {}))
        ours.gemr2d("d", (20, 22), a.local(whole), (0, 0), a.descriptor(), result, (0, 0), desc_b, line.context)
        return capfd.readouterr().err, result, b.local(whole)

    for turn in range(6):
        said, result, expected = call(padding=turn % 3 if last else 0)
        equal_everywhere(result, expected, f"turn {turn}")
        assert not said
        # An error that only one process sees, and a contradiction between processes, are found before anything moves.
        wrong, words = {2: ({"lld": 0}, "DESCB(9), LLD"), 4: ({"mb": 7}, "different")}.get(turn, ({}, ""))
        if wrong and (WORLD.size > 1 or "lld" in wrong):
            said, result, _ = call(**wrong)
            equal_everywhere(result, np.zeros_like(result), f"{wrong} moved something")
            # Process 0 reports a contradiction. The process with the wrong leading dimension reports that.
            if last if "lld" in wrong else WORLD.rank == 0:
                assert words in said, said


@pytest.mark.skipif("PENSTOCK_SCALAPACK_ILP64" not in os.environ, reason="indices have 32 bits")
def test_indices_of_more_than_31_bits(ours: Library, line: Grid) -> None:
    block = 2**31
    row = Matrix(line, (1, block + 10), (1, block))
    short = Matrix(line, (1, 5), (1, 2))
    elems = block + 10 if line.columns == 1 else (block, 10, 0)[min(line.column, 2)]
    no_reserve = 0x4000  # mmap.MAP_NORESERVE of Python 3.13: all but a page of it is never touched
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | no_reserve
    memory = np.frombuffer(mmap.mmap(-1, 4 * max(elems, 1), flags=flags), np.int32)
    if elems in (10, block + 10):  # the process that owns the end
        memory[elems - 10 : elems] = np.arange(10)
    descriptor = (ctypes.c_int64 * 9)(1, line.context, *row.shape, *row.block, 0, 0, 1)
    result = short.local(np.zeros(short.shape, np.int32))
    where = ((0, block + 3), descriptor, result, (0, 0), short.descriptor())
    ours.gemr2d("i", (1, 5), memory, *where, line.context)
    equal_everywhere(result, short.local(np.arange(3, 8, dtype=np.int32)[None]), "columns from 2^31 + 3")


def test_contexts_come_and_go(ours: Library, theirs: Library, rng: np.random.Generator) -> None:
    """A program that makes a context for every call does not run out of resources."""
    for _ in range(200):
        every = theirs.line(WORLD.size, b"Column")
        a, b = Matrix(every, (9, 9), (2, 2)), Matrix(every, (9, 9), (3, 1))
        whole = numbers(rng, (9, 9), "i")
        result = b.local(np.zeros((9, 9), np.int32))
        ours.gemr2d("i", (9, 9), a.local(whole), (0, 0), a.descriptor(), result, (0, 0), b.descriptor(), every.context)
        equal_everywhere(result, b.local(whole), "contexts")
        theirs.exit(every)
