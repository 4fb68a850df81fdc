"""Random views and accesses, through penstock.File and through MPI.File: the bytes must be equal."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import penstock as ps
import pytest
from mpi4py import MPI

RDWR = MPI.MODE_RDWR | MPI.MODE_CREATE


@pytest.fixture
def folder(comm: ps.Comm) -> Iterator[Path]:
    place = comm.bcast(tempfile.mkdtemp(prefix="penstock-file-") if comm.rank == 0 else None)
    yield Path(place)
    MPI.COMM_WORLD.Barrier()
    if comm.rank == 0:
        shutil.rmtree(place, ignore_errors=True)


def _datatype(rng: random.Random, depth: int, etype: MPI.Datatype) -> MPI.Datatype:
    """A file type made of `etype`: ascending, disjoint, nested up to `depth` times."""
    old = etype if depth == 0 else _datatype(rng, depth - 1, etype)
    kind = rng.choice(["contiguous", "vector", "indexed", "subarray", "darray", "resized", "struct"])
    if kind == "contiguous":
        return old.Create_contiguous(rng.randint(1, 3))
    if kind == "vector":
        length = rng.randint(1, 3)
        return old.Create_vector(rng.randint(1, 3), length, length + rng.randint(0, 2))
    if kind == "indexed":
        lengths = [rng.randint(0, 2) for _ in range(3)] + [1]
        gaps = [rng.randint(0, 2) for _ in lengths]
        places = [sum(lengths[:i]) + sum(gaps[:i]) for i in range(4)]
        return old.Create_indexed(lengths, places)
    if kind == "subarray":
        sizes = [rng.randint(1, 4) for _ in range(rng.randint(1, 3))]
        starts = [rng.randint(0, n - 1) for n in sizes]
        counts = [rng.randint(1, n - start) for n, start in zip(sizes, starts)]
        return old.Create_subarray(sizes, counts, starts, order=rng.choice([MPI.ORDER_C, MPI.ORDER_FORTRAN]))
    if kind == "darray":
        return _darray(rng, old)
    if kind == "resized":
        return old.Create_resized(0, old.extent + etype.extent * rng.randint(0, 3))
    gap = etype.extent * rng.randint(0, 2)
    return MPI.Datatype.Create_struct([1, 2], [0, old.extent + gap], [old, old])


def _darray(rng: random.Random, old: MPI.Datatype) -> MPI.Datatype:
    """A non-empty part of a distributed array."""
    dimensions = rng.randint(1, 3)
    sizes = [rng.randint(3, 6) for _ in range(dimensions)]
    grid = [rng.randint(1, 2) for _ in range(dimensions)]
    how, blocks = [], []
    for n in range(dimensions):
        how.append(rng.choice([MPI.DISTRIBUTE_BLOCK, MPI.DISTRIBUTE_CYCLIC]))
        if grid[n] == 1 and rng.random() < 0.3:
            how[n] = MPI.DISTRIBUTE_NONE
        blocks.append(rng.randint(1, 2) if how[n] == MPI.DISTRIBUTE_CYCLIC else MPI.DISTRIBUTE_DFLT_DARG)
    places = int(np.prod(grid))
    order = rng.choice([MPI.ORDER_C, MPI.ORDER_FORTRAN])
    return old.Create_darray(places, rng.randrange(places), sizes, how, blocks, grid, order=order)


def _filetype(rng: random.Random, etype: MPI.Datatype) -> MPI.Datatype:
    while True:
        made = _datatype(rng, rng.randint(0, 2), etype)
        if made.Get_size() > 0 and made.Get_size() < 4000 and made.extent < 20_000:
            return made.Commit()


@pytest.mark.parametrize("seed", range(8))
def test_random_views_give_the_files_of_mpi_io(comm: ps.Comm, folder: Path, seed: int) -> None:
    """Alternating collective and independent accesses. Ranks write disjoint parts, so order does not matter."""
    shared = random.Random(seed)
    etype = shared.choice([MPI.BYTE, MPI.SHORT, MPI.INT, MPI.DOUBLE])
    native = MPI.File.Open(MPI.COMM_WORLD, str(folder / "native"), RDWR)
    with ps.File.Open(comm, f"file://{folder}/store/field", RDWR, info={"penstock_durable": "false"}) as ours:
        # ROMIO fills holes behind the end of the file with old contents of its buffer, so there are no holes.
        zeros = np.zeros(40_000, np.uint8)
        for file in (native, ours):
            file.Write_at_all(comm.rank * zeros.size, zeros)
        for step in range(5):
            filetype = _filetype(shared, etype)
            # Each rank has its own tile of a fixed size behind the others', seen through the same holes.
            displacement = shared.randrange(64) + zeros.size * comm.rank
            for file in (native, ours):
                file.Set_view(displacement, etype, filetype)
            assert ours.Get_view()[0] == displacement
            mine = random.Random(1000 * seed + 10 * step + comm.rank)
            items = mine.randint(
                1, min(40, 15_000 // max(1, filetype.extent // filetype.Get_size() * etype.Get_size()))
            )
            offset = mine.randint(0, 20)
            data = np.frombuffer(mine.randbytes(items * etype.Get_size()), np.uint8).copy()
            how = shared.choice(["at_all", "all", "at", "iat", "iall", "split"])
            for file in (native, ours):
                _write(file, how, offset, [data, items, etype])
            native.Sync()
            MPI.COMM_WORLD.Barrier()
            _same_reads(native, ours, shared, mine, etype)
            _same_contents(native, ours, folder, comm)
            filetype.Free()
    native.Close()


def _write(file: MPI.File | ps.File, how: str, offset: int, message: list) -> None:
    if how == "at_all":
        file.Write_at_all(offset, message)
    elif how == "all":
        file.Seek(offset)
        file.Write_all(message)
    elif how == "at":
        file.Write_at(offset, message)
    elif how == "iat":
        file.Iwrite_at(offset, message).Wait()
    elif how == "iall":
        file.Seek(offset)
        file.Iwrite_all(message).Wait()
    else:
        file.Write_at_all_begin(offset, message)
        file.Write_at_all_end(message)


def _same_reads(
    native: MPI.File, ours: ps.File, shared: random.Random, mine: random.Random, etype: MPI.Datatype
) -> None:
    how = shared.choice(["Read_at", "Read_at_all"])
    offset, items = mine.randint(0, 30), mine.randint(0, 50)
    found = []
    for file in (native, ours):
        data, status = np.full(items * etype.Get_size(), 77, np.uint8), MPI.Status()
        getattr(file, how)(offset, [data, items, etype], status)
        found.append(data[: status.Get_elements(MPI.BYTE)])
        assert file.Get_byte_offset(offset) == native.Get_byte_offset(offset)
    # ROMIO counts bytes behind the end of the file as read if a hole of the view lies there.
    shorter = min(map(len, found))
    np.testing.assert_array_equal(found[1][:shorter], found[0][:shorter])


def _same_contents(native: MPI.File, ours: ps.File, folder: Path, comm: ps.Comm) -> None:
    if comm.rank == 0:
        expected = np.fromfile(folder / "native", np.uint8)
        assert ours.Get_size() == expected.size
        with ours.snapshot() as pinned:
            pinned.Set_view()
            data = np.zeros_like(expected)
            pinned.Read_at(0, data)
        np.testing.assert_array_equal(data, expected)
    comm.Barrier()


def test_shared_pointers_work_as_those_of_mpi_io(comm: ps.Comm, folder: Path) -> None:
    with ps.File.Open(comm, f"file://{folder}/store/log", RDWR) as ours:
        ours.Set_view(8, MPI.INT)
        mine = [np.full(1 + i % 2, comm.rank * 100 + i, np.int32) for i in range(4)]
        requests = [ours.Iwrite_shared(mine[i]) for i in range(2)]
        for i in (2, 3):
            ours.Write_shared(mine[i])
        for request in requests:
            request.Wait()
        ours.Sync()
        assert ours.Get_position_shared() == 6 * comm.size
        everything = np.zeros(6 * comm.size, np.int32)
        ours.Read_at_all(0, everything)
        expected = np.concatenate([np.full(1 + i % 2, r * 100 + i) for r in range(comm.size) for i in range(4)])
        np.testing.assert_array_equal(np.sort(everything), np.sort(expected))

        ours.Seek_shared(-3 * comm.size, MPI.SEEK_CUR)
        part = np.zeros(3, np.int32)
        ours.Read_ordered(part)
        np.testing.assert_array_equal(part, everything[3 * comm.size + 3 * comm.rank :][:3])
        ours.Seek_shared(0)
        one = np.zeros(1, np.int32)
        ours.Read_shared(one)
        request = ours.Iread_shared(np.zeros(2, np.int32))
        request.Wait()
        assert one[0] in everything
        ours.Sync()
        assert ours.Get_position_shared() == 3 * comm.size
        ours.Write_ordered_begin(mine[0])
        with pytest.raises(ps.Error, match="Write_ordered_end first"):
            ours.Write_all_begin(mine[0])
        ours.Write_ordered_end(mine[0])
        with pytest.raises(ps.Error, match="none has been begun"):
            ours.Read_all_end(one)
        assert ours.Get_position_shared() == 4 * comm.size
        data = np.zeros(comm.size, np.int32)
        ours.Read_at_all(3 * comm.size, data)
        np.testing.assert_array_equal(data, 100 * np.arange(comm.size))
        assert ours.Get_group().Get_size() == comm.size


def test_sizes_and_hints_are_those_of_mpi_io(comm: ps.Comm, folder: Path) -> None:
    with ps.File.Open(comm, f"file://{folder}/store/field", RDWR, info={"penstock_durable": "false"}) as ours:
        ours.Preallocate(1000)
        assert ours.Get_size() == 1000
        ours.Preallocate(10)
        assert ours.Get_size() == 1000
        comm.Barrier()  # the next call takes effect when the first rank makes it
        ours.Set_size(300)
        assert ours.Get_size() == 300
        data = np.full(20, 7, np.uint8)
        status = MPI.Status()
        ours.Read_at(290, data, status)
        assert status.Get_count(MPI.BYTE) == 10
        assert list(data) == [0] * 10 + [7] * 10
        hints = ours.Get_info()
        assert hints.Get("penstock_durable") == "false"
        hints.Free()
        assert ours.Get_type_extent(MPI.DOUBLE) == 8
    comm.Barrier()
    if comm.rank == 0:
        ps.File.Delete(f"file://{folder}/store/field")
        assert "field" not in ps.Store(f"file://{folder}/store")
    comm.Barrier()
