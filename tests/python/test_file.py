"""penstock.File in one process. tests/mpi/test_file.py tests it on several ranks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import penstock as ps
import pytest

MPI = pytest.importorskip("mpi4py.MPI", exc_type=ImportError)


def test_alone(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store/field"
    with ps.File.Open(None, url, MPI.MODE_RDWR | MPI.MODE_CREATE) as f:
        field = np.arange(24, dtype=np.float32).reshape(4, 6)
        column = MPI.FLOAT.Create_subarray((4, 6), (4, 1), (0, 2)).Commit()
        assert f.Write(field) == 1
        f.Set_view(0, MPI.FLOAT, column)
        assert f.Get_view()[1] == MPI.FLOAT
        assert f.Get_byte_offset(1) == 8 * 4
        assert f.Write_at(0, np.full(4, -1, np.float32)) == 2
        column.Free()
        before = np.empty((4, 6), np.float32)
        pinned = f.snapshot(1)
        pinned.Set_view()
        pinned.Read(before)
        np.testing.assert_array_equal(before, field)
        after = np.empty((4, 6), np.float32)
        ps.Store(f"file://{tmp_path}/store").open("field").read([(0, after)])
        field[:, 2] = -1
        np.testing.assert_array_equal(after, field)
        assert f.blob.latest == f.version == 2


def test_errors(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store/field"
    with pytest.raises(ps.Error, match="create the store first"):
        ps.File.Open(None, url, MPI.MODE_RDONLY)
    with ps.File.Open(None, url, MPI.MODE_RDWR | MPI.MODE_CREATE) as f:
        with pytest.raises(ps.Error, match="-1; expected an integer"):
            f.Set_view(-1)
        with pytest.raises(ps.Error, match="data representation"):
            f.Set_view(0, MPI.BYTE, MPI.BYTE, "external32")
        descending = MPI.INT.Create_indexed([1, 1], [3, 0]).Commit()
        with pytest.raises(ps.Error, match="ascending"):
            f.Set_view(0, MPI.INT, descending)
        descending.Free()
        f.Write(b"data")
        with pytest.raises(ps.Error, match="whence"):
            f.Seek(0, 99)
    with pytest.raises(ps.Error, match="closed"):
        f.Write(b"data")


def test_deleted_on_close(tmp_path: Path) -> None:
    store = f"file://{tmp_path}/store"
    with ps.File.Open(None, f"{store}/scratch", MPI.MODE_RDWR | MPI.MODE_CREATE | MPI.MODE_DELETE_ON_CLOSE) as f:
        f.Write(bytes(10_000))
        late = ps.Store(store).open("scratch")
        assert late.latest == 1
    assert "scratch" not in ps.Store(store)
    with pytest.raises(ps.Error, match="was removed"):
        late.write([(0, b"x")])
    with ps.File.Open(None, f"{store}/scratch", MPI.MODE_RDWR | MPI.MODE_CREATE) as f:
        assert f.Get_size() == 0
    assert "scratch" in ps.Store(store)


def test_equal_files_have_no_hashes_that_differ(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store/field"
    with ps.File.Open(None, url, MPI.MODE_RDWR | MPI.MODE_CREATE) as f:
        assert f == ps.File(f)
        assert f != ps.File()
        for file in (f, ps.File(f)):  # equal, so their hashes would have to agree before and after Close
            with pytest.raises(TypeError, match="unhashable"):
                hash(file)
    assert f == ps.File() == MPI.FILE_NULL


def test_delete_splits_the_url_before_its_query(monkeypatch: pytest.MonkeyPatch) -> None:
    removed: list[tuple[str, str]] = []

    class Recorded:
        def __init__(self, url: str, *, create: bool) -> None:
            assert not create
            self.url = url

        def remove(self, name: str) -> None:
            removed.append((self.url, name))

    monkeypatch.setattr("penstock.file.Store", Recorded)
    ps.File.Delete("rados://pool/run7/field?conf=/etc/ceph/ceph.conf")
    ps.File.Delete("file:///scratch/run7/what?")
    assert removed == [("rados://pool/run7?conf=/etc/ceph/ceph.conf", "field"), ("file:///scratch/run7", "what?")]
