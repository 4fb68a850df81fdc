"""Stores as a file system of fsspec."""

from __future__ import annotations

import contextlib
from pathlib import Path

import penstock as ps
import pytest

fsspec = pytest.importorskip("fsspec")
from penstock.filesystem import PenstockFileSystem  # noqa: E402


@pytest.fixture(autouse=True)
def _registered() -> None:
    fsspec.register_implementation("penstock", PenstockFileSystem, clobber=True)


def test_urls_name_blobs_versions_and_tags(tmp_path: Path) -> None:
    blob = ps.Store(tmp_path / "run7").create("field", size=5)
    for content in (b"first", b"other", b"third"):
        blob.write([(0, content)])
    blob.tag("best", 2)
    url = f"penstock://{tmp_path}/run7/field"
    for suffix, expected in (("", b"third"), ("@1", b"first"), ("@best", b"other")):
        with fsspec.open(url + suffix) as file:
            assert file.read() == expected, suffix
    with pytest.raises(FileNotFoundError, match="worst"):
        fsspec.open(url + "@worst").open()
    with pytest.raises(FileNotFoundError):
        fsspec.open(url + "2").open()
    with pytest.raises(ps.Error, match="expected store=URL"):
        fsspec.filesystem("penstock")


def test_files_are_written_read_copied_and_removed() -> None:
    fs = fsspec.filesystem("penstock", store="memory:fsspec", create=True)
    with fs.open("table", "wb") as file:
        file.write(b"0123")
        file.write(b"456789")
    assert fs.info("table") == {"name": "table", "size": 10, "type": "file", "version": 1}, "one version"
    assert fs.cat_file("table", 2, -1) == b"2345678"
    assert fs.cat("table@1") == b"0123456789"
    before = fs.ukey("table")
    with fs.open("table", "ab") as file:
        file.write(b"ab")
    assert fs.ukey("table") != before
    assert fs.cat("table") == b"0123456789ab"
    with fs.open("table", "wb") as file:
        file.write(b"new")
    assert fs.cat("table") == b"new"
    fs.copy("table@1", "copy")
    assert sorted(fs.ls("", detail=False)) == ["copy", "table"]
    assert fs.cat("copy") == b"0123456789"
    with pytest.raises(FileExistsError):
        fs.open("copy", "xb")
    with pytest.raises(ps.Error, match="never change"):
        fs.open("table@1", "wb")
    with contextlib.suppress(ZeroDivisionError), fs.open("broken", "wb") as file:
        file.write(b"half")
        raise ZeroDivisionError
    assert not fs.exists("broken")
    fs.rm("copy")
    assert not fs.exists("copy")
    with fs.open("text", "w") as file:
        file.write("text")
    with fs.open("text", "r") as file:
        assert file.read() == "text"
