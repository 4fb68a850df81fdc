"""penstock.File on every rank, at any number of ranks."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator

import numpy as np
import penstock as ps
import pytest
from mpi4py import MPI
from penstock.datatype import flatten


@pytest.fixture
def url(comm: ps.Comm) -> Iterator[str]:
    """A store that does not exist yet, equal on all ranks: in a shared file system, or where PENSTOCK_TEST_PLACE says."""
    folder = comm.bcast(tempfile.mkdtemp(prefix="penstock-file-") if comm.rank == 0 else None)
    yield f"{os.environ.get('PENSTOCK_TEST_PLACE', 'file://')}{folder}/store"
    MPI.COMM_WORLD.Barrier()
    if comm.rank == 0:
        shutil.rmtree(folder, ignore_errors=True)


RDWR = MPI.MODE_RDWR | MPI.MODE_CREATE


def test_a_collective_write_is_one_version(comm: ps.Comm, url: str) -> None:
    with ps.File.Open(comm, f"{url}/field", RDWR) as f:
        mine = np.full(1000, comm.rank, np.int32)
        assert f.Write_at_all(comm.rank * mine.nbytes, mine) == 1
        assert f.Get_size() == comm.size * mine.nbytes
        everything = np.empty((comm.size, 1000), np.int32)
        status = MPI.Status()
        f.Read_at_all(0, everything, status)
        assert status.Get_count(MPI.BYTE) == everything.nbytes
        assert (everything == np.arange(comm.size)[:, None]).all()
        assert f.blob.log()[0]["regions"] == comm.size


def test_subarray_views_put_a_field_together(comm: ps.Comm, url: str) -> None:
    rows, columns = 12, 10 * comm.size
    whole = np.arange(rows * columns, dtype=np.float64).reshape(rows, columns)
    tile = np.ascontiguousarray(whole[:, 10 * comm.rank : 10 * comm.rank + 10])
    filetype = MPI.DOUBLE.Create_subarray(whole.shape, tile.shape, (0, 10 * comm.rank)).Commit()
    with ps.File.Open(comm, f"{url}/field", RDWR) as f:
        f.Set_view(16, MPI.DOUBLE, filetype)
        f.Set_atomicity(True)
        f.Write_all(tile)
        assert f.Get_position() == tile.size
        f.Seek(0)
        back = np.empty_like(tile)
        f.Read_all(back)
        np.testing.assert_array_equal(back, tile)
        f.Set_view(16, MPI.DOUBLE)
        back = np.empty_like(whole)
        f.Read_at_all(0, back)
        np.testing.assert_array_equal(back, whole)
    filetype.Free()


def test_a_rank_without_data_has_a_view_of_no_bytes(comm: ps.Comm, url: str) -> None:
    """As PnetCDF fills variables; it does not look at what setting the view returns."""
    size = 4 if comm.rank == 0 else 0
    filetype = MPI.BYTE.Create_hindexed([size], [200]).Commit()
    with ps.File.Open(comm, f"{url}/field", RDWR) as f:
        f.Write_at_all(0, np.full(64 if comm.rank == 0 else 0, 1, np.uint8))
        f.Set_view(0, MPI.BYTE, filetype)
        f.Write_at_all(0, np.full(size, 2, np.uint8))
        assert f.Get_size() == 204
        back = np.zeros(4, np.uint8)
        status = MPI.Status()
        f.Read_at_all(0, back, status)
        assert status.Get_count(MPI.BYTE) == size
        if size == 0:
            assert f.Get_byte_offset(0) == 0
            with pytest.raises(ps.Error, match="the file type has no bytes, so expected 0"):
                f.Write_at(0, back)
        else:
            assert (back == 2).all()
        f.Set_view()
        whole = np.zeros(204, np.uint8)
        f.Read_at_all(0, whole)
        assert (whole == np.repeat([1, 0, 2], [64, 136, 4])).all()
    filetype.Free()


def test_overlapping_tiles_are_each_atomic(comm: ps.Comm, url: str) -> None:
    rows, width, overlap = 24, 64, 32
    columns = overlap * comm.size + width
    filetype = MPI.BYTE.Create_subarray((rows, columns), (rows, width), (0, overlap * comm.rank)).Commit()
    with ps.File.Open(comm, f"{url}/field", RDWR, info={"penstock_durable": "false"}) as f:
        f.Set_size(rows * columns)
        f.Set_view(0, MPI.BYTE, filetype)
        versions = [f.Write_at(0, np.full((rows, width), 1 + comm.rank * 5 + i, np.uint8)) for i in range(5)]
        f.Sync()
        assert versions == sorted(versions)
        for version in range(1, f.version + 1):
            with f.snapshot(version) as pinned:
                field = np.zeros((rows, columns), np.uint8)
                pinned.Set_view()
                pinned.Read_at(0, field)
                assert (field == field[0]).all(), f"version {version} is torn"
    filetype.Free()


def test_a_reader_keeps_its_snapshot(comm: ps.Comm, url: str) -> None:
    with ps.File.Open(comm, f"{url}/field", RDWR) as f:
        f.Write_at_all(comm.rank, bytes([1]))
        pinned = f.snapshot()
        f.Write_at_all(comm.rank, bytes([2]))
        data = bytearray(comm.size)
        pinned.Read(data)
        assert data == bytes([1]) * comm.size
        f.Read_all(data)
        assert data == bytes([2]) * comm.size
        with pytest.raises(ps.Error):
            pinned.Write_at(0, b"x")


def test_a_failure_on_one_rank_is_one_on_all(comm: ps.Comm, url: str) -> None:
    with ps.File.Open(comm, f"{url}/field", RDWR) as f:
        f.Set_view(0, MPI.INT)
        guilty = comm.size - 1
        data = bytes(6 if comm.rank == guilty else 8)
        with pytest.raises(ps.Error) as caught:
            f.Write_all(data)
        assert caught.value.code == ("invalid_argument" if comm.rank == guilty else "peer_failed")
        assert f.version == 0
        assert f.Write_all(bytes(8)) == 1
    with pytest.raises(ps.Error) as caught:
        ps.File.Open(comm, f"{url}/none", MPI.MODE_RDONLY)
    assert caught.value.code == ("not_found" if comm.rank == 0 else "peer_failed")


@pytest.mark.parametrize(
    "call",
    [
        lambda f, wrong: f.Write_at_all(-1 if wrong else 0, bytes(8)),
        lambda f, wrong: f.Write_at_all(1 << 64 if wrong else 0, bytes(8)),
        lambda f, wrong: f.Write_all("no buffer" if wrong else bytes(8)),
        lambda f, wrong: f.Write_ordered([bytes(8), 9, MPI.INT] if wrong else bytes(8)),
        lambda f, wrong: f.Read_at_all(0, bytes(8) if wrong else bytearray(8)),
        lambda f, wrong: f.Iwrite_at_all("zero" if wrong else 0, bytes(8)).Wait(),
        lambda f, wrong: f.Set_view(-1 if wrong else 0),
        lambda f, wrong: f.Set_view(0, MPI.BYTE, MPI.BYTE, "external32" if wrong else "native"),
        lambda f, wrong: f.Seek_shared(0, 99 if wrong else MPI.SEEK_SET),
        lambda f, wrong: f.Set_size(-1 if wrong else 8),
        lambda f, wrong: f.Preallocate("8" if wrong else 8),
    ],
)
def test_what_no_call_can_be_made_with_fails_on_all_ranks(comm: ps.Comm, url: str, call) -> None:
    with ps.File.Open(comm, f"{url}/field", RDWR) as f:
        guilty = comm.size - 1
        with pytest.raises(ps.Error) as caught:
            call(f, comm.rank == guilty)
        if comm.rank != guilty:
            assert (caught.value.code, caught.value.rank) == ("peer_failed", guilty)
        assert f.version == 0
        assert f.Write_all(bytes(8)) == 1
    with pytest.raises(ps.Error) as caught:
        ps.File.Open(comm, f"{url}/field", 0 if comm.rank == guilty else RDWR)
    assert caught.value.code == ("invalid_argument" if comm.rank == guilty else "peer_failed")


def test_what_has_to_be_the_same_on_all_ranks(comm: ps.Comm, url: str) -> None:
    with pytest.raises(ps.Error, match="on rank 1") if comm.size > 1 else contextlib.nullcontext():
        ps.File.Open(comm, f"{url}/field", RDWR | (MPI.MODE_APPEND if comm.rank == 1 else 0)).Close()
    with ps.File.Open(comm, f"{url}/field", RDWR) as f:
        for call in (f.Set_size, f.Preallocate, f.Seek_shared):
            with pytest.raises(ps.Error, match="on rank 1") if comm.size > 1 else contextlib.nullcontext():
                call(1000 if comm.rank == 1 else 0)
        assert f.Get_size() == 0
        with pytest.raises(ps.Error, match="on rank 1") if comm.size > 1 else contextlib.nullcontext():
            f.Set_atomicity(comm.rank == 1)


def test_ordered_access(comm: ps.Comm, url: str) -> None:
    with ps.File.Open(comm, f"{url}/log", RDWR) as f:
        for line in range(3):
            f.Write_ordered(f"{line}{comm.rank}".encode() * comm.rank)
        assert f.version == 3
        expected = "".join(f"{line}{rank}" * rank for line in range(3) for rank in range(comm.size)).encode()
        assert f.Get_position_shared() == len(expected) == f.Get_size()
        data = bytearray(len(expected))
        f.Read_at(0, data)
        assert data == expected


def test_nonblocking_access_with_derived_memory(comm: ps.Comm, url: str) -> None:
    memory = np.arange(40, dtype=np.int16).reshape(10, 4) + 100 * comm.rank
    column = MPI.SHORT.Create_vector(10, 1, 4).Commit()
    with ps.File.Open(comm, f"{url}/field", RDWR) as f:
        request = f.Iwrite_at(20 * comm.rank, [memory, 1, column])
        assert request.Wait()
        back = np.zeros((10, 4), np.int16)
        request = f.Iread_at(20 * comm.rank, [back, 1, column])
        request.Wait()
        np.testing.assert_array_equal(back[:, 0], memory[:, 0])
        assert (back[:, 1:] == 0).all()
        f.Seek(20 * comm.rank)
        f.Iwrite(memory[0].copy()).Wait()
        assert f.Get_position() == 20 * comm.rank + 8
    column.Free()


def _typemap(datatype: MPI.Datatype, items: int) -> np.ndarray:
    """The positions where MPI itself puts the bytes of some items, found by unpacking numbered bytes."""
    lower, extent = datatype.Get_extent()
    packed = (np.arange(datatype.Get_size() * items) % 250 + 1).astype(np.uint8)
    # mpi4py unpacks as many items as the memory has extents.
    memory = np.zeros(extent * items + lower, np.uint8)
    datatype.Unpack(packed, 0, memory, MPI.COMM_SELF)
    return memory


DATATYPES = {
    "named": lambda: MPI.DOUBLE.Dup(),
    "contiguous": lambda: MPI.INT.Create_contiguous(3),
    "vector": lambda: MPI.INT.Create_vector(3, 2, 5),
    "hvector": lambda: MPI.SHORT.Create_hvector(3, 2, 7),
    "indexed": lambda: MPI.INT.Create_indexed([2, 0, 1], [0, 3, 7]),
    "hindexed": lambda: MPI.INT.Create_hindexed([2, 1], [1, 40]),
    "indexed_block": lambda: MPI.INT.Create_indexed_block(2, [0, 3, 8]),
    "hindexed_block": lambda: MPI.INT.Create_hindexed_block(2, [0, 13, 30]),
    "struct": lambda: MPI.Datatype.Create_struct([2, 1, 3], [0, 9, 17], [MPI.INT, MPI.DOUBLE, MPI.CHAR]),
    "subarray": lambda: MPI.INT.Create_subarray((4, 5, 6), (2, 3, 2), (1, 1, 3)),
    "fortran": lambda: MPI.INT.Create_subarray((4, 5, 6), (2, 3, 2), (1, 1, 3), order=MPI.ORDER_FORTRAN),
    "resized": lambda: MPI.INT.Create_vector(2, 1, 3).Create_resized(0, 24),
    "nested": lambda: MPI.INT.Create_vector(2, 1, 2).Create_vector(2, 2, 3).Create_subarray((3, 3), (2, 2), (1, 0)),
}


@pytest.mark.parametrize("name", DATATYPES)
def test_flattened_datatypes_are_those_of_mpi(name: str) -> None:
    datatype = DATATYPES[name]().Commit()
    expected = _typemap(datatype, 2)
    found = np.zeros_like(expected)
    position = 0
    for item in range(2):
        for offset, size in flatten(datatype).pieces:
            start = offset + item * datatype.extent
            found[start : start + size] = np.arange(position, position + size) % 250 + 1
            position += size
    np.testing.assert_array_equal(found, expected)
    datatype.Free()


@pytest.mark.parametrize(
    ("amode", "code"),
    [
        (0, "invalid_argument"),
        (MPI.MODE_RDONLY | MPI.MODE_CREATE, "invalid_argument"),
    ],
)
def test_modes_that_cannot_be(comm: ps.Comm, url: str, amode: int, code: str) -> None:
    with pytest.raises(ps.Error) as caught:
        ps.File.Open(comm, f"{url}/field", amode)
    assert caught.value.code == code


def test_deleted_on_close(comm: ps.Comm, url: str) -> None:
    for _ in range(3):
        with ps.File.Open(comm, f"{url}/scratch", RDWR | MPI.MODE_EXCL | MPI.MODE_DELETE_ON_CLOSE) as f:
            f.Write_at_all(comm.rank * 5_000, np.full(5_000, comm.rank, np.uint8))
            assert f.Get_size() == comm.size * 5_000
        assert "scratch" not in ps.Store(url, create=False)
        comm.Barrier()


def test_an_mpi4py_communicator_will_do(url: str) -> None:
    with ps.File.Open(MPI.COMM_WORLD, f"{url}/field", RDWR) as f:
        f.Write_at_all(MPI.COMM_WORLD.rank, b"x")
        assert f.Get_size() == MPI.COMM_WORLD.size
    alone = ps.File.Open(None, f"{url}/field", MPI.MODE_RDONLY)
    data = bytearray(1)
    alone.Read(data)
    assert data == b"x"
    alone.Close()


def test_collective_accesses_that_are_started_take_place_in_order(comm: ps.Comm, url: str) -> None:
    with ps.File.Open(comm, f"{url}/field", RDWR) as f:
        writes = [np.full(500, 100 * step + comm.rank, np.int32) for step in range(4)]
        started = [f.Iwrite_at_all(comm.rank * data.nbytes, data) for data in writes]
        everything = np.empty((comm.size, 500), np.int32)
        read = f.Iread_at_all(0, everything)
        # A blocking collective of the file waits for its turn; other communicators are not affected.
        comm.Barrier()
        f.Sync()
        read.Wait()
        assert (everything == 300 + np.arange(comm.size)[:, None]).all()
        for request in reversed(started):
            request.Wait()
        assert f.version == 4
        f.Seek(0)
        back = np.empty(500, np.int32)
        f.Seek(comm.rank * back.nbytes)
        request = f.Iread_all(back)
        assert f.Get_position() == (comm.rank + 1) * back.nbytes
        request.Wait()
        assert (back == 300 + comm.rank).all()


def test_a_started_collective_write_fails_on_all_ranks(comm: ps.Comm, url: str) -> None:
    with ps.File.Open(comm, f"{url}/field", RDWR) as f:
        f.Set_view(0, MPI.INT32_T)
        odd = np.zeros(3 if comm.rank == comm.size - 1 else 4, np.uint8)
        request = f.Iwrite_at_all(0, odd)
        with pytest.raises(ps.Error):
            request.Wait()
        assert f.version == 0
