"""MPI files under `penstock run`: the same bytes as natively, in the store, and exported when asked."""

from __future__ import annotations

from pathlib import Path

import pytest
from penstock.store import Store
from preload.launch import ALL, MPIS, Done, mpiexec, preloaded, program

RANKS = [1, 2, 3, 4] if ALL else [3]


def files_of(done: Done) -> list[dict[str, object]]:
    assert done.report is not None, done.err
    return list(done.report["files"])


@pytest.fixture(scope="module")
def native_bytes(tmp_path_factory: pytest.TempPathFactory) -> dict[int, bytes]:
    """What MPICH writes, by the number of ranks."""
    folder = tmp_path_factory.mktemp("natively")
    written = {}
    for ranks in RANKS:
        done = mpiexec("mpich", ranks, program("mpich", "files"), folder / f"{ranks}")
        assert done.status == 0, done.err
        written[ranks] = (folder / f"{ranks}").read_bytes()
    return written


@pytest.mark.parametrize("abi", MPIS)
@pytest.mark.parametrize("ranks", RANKS)
def test_every_call_gives_the_bytes_that_mpi_gives(
    abi: str, ranks: int, native_bytes: dict[int, bytes], tmp_path: Path
) -> None:
    path = tmp_path / "field.dat"
    done = preloaded(abi, ranks, tmp_path / "report.json", program(abi, "files"), f"penstock:{path}")
    assert done.status == 0, done.err
    assert "files: ok" in done.out
    assert not path.exists()
    blob = Store(f"file://{tmp_path}/penstock.store").open("field.dat")
    assert blob.read_bytes() == native_bytes[ranks]
    assert any(tag.startswith("closed-") for tag in blob.tags)
    (row,) = files_of(done)
    assert row["path"] == str(path)
    assert row["stored"] is True
    assert row["opens"] == 2


@pytest.mark.parametrize("abi", MPIS if ALL else ["mpich"])
def test_a_glob_chooses_and_the_plain_file_is_exported(
    abi: str, native_bytes: dict[int, bytes], tmp_path: Path
) -> None:
    ranks = RANKS[-1]
    path = tmp_path / "field.dat"
    chosen = {"PENSTOCK_FILES": "*.h5:*.dat", "PENSTOCK_FILES_EXPORT": "on"}
    report = tmp_path / "report.json"
    done = preloaded(abi, ranks, report, program(abi, "files"), path, **chosen)
    assert done.status == 0, done.err
    assert path.read_bytes() == native_bytes[ranks]
    assert (tmp_path / "penstock.store").is_dir()

    def opened(mode: str) -> str:
        return preloaded(abi, 2, report, program(abi, "files"), path, mode, **chosen).out.strip()

    assert opened("exclusive") == "exists"
    assert opened("read") == "opened"
    path.unlink()  # so the file is gone
    assert opened("read") == "no such file"
    assert opened("exclusive") == "opened"
    assert path.read_bytes() == b""
    path.write_bytes(b"from elsewhere")  # it counts, and becomes a version
    assert opened("create") == "opened"
    assert path.read_bytes() == b"from elsewhere"
    blob = Store(f"file://{tmp_path}/penstock.store").open("field.dat")
    assert blob.size == 14
    assert opened("drop") == "opened"
    assert not path.exists()
    assert opened("read") == "no such file"


def test_files_that_nobody_chose_stay_mpis(tmp_path: Path) -> None:
    done = preloaded("mpich", 2, tmp_path / "report.json", program("mpich", "files"), tmp_path / "plain")
    assert done.status == 0, done.err
    assert (tmp_path / "plain").exists()
    assert not (tmp_path / "penstock.store").exists()
    (row,) = files_of(done)
    assert (row["stored"], row["why_native"]) == (False, "no prefix, info key or glob chooses it")


def test_a_store_that_cannot_be_written_leaves_the_file_to_mpi(tmp_path: Path) -> None:
    (tmp_path / "penstock.store").write_text("in the way")
    report = tmp_path / "report.json"
    chosen = {"PENSTOCK_FILES": "*.dat"}
    done = preloaded("mpich", 2, report, program("mpich", "files"), tmp_path / "field.dat", "create", **chosen)
    assert (done.status, done.out.strip()) == (0, "opened")
    assert done.err.count("MPI opens the file itself") == 1
    assert (tmp_path / "field.dat").exists()
    chosen["PENSTOCK_PRELOAD_STRICT"] = "on"
    done = preloaded("mpich", 2, report, program("mpich", "files"), tmp_path / "other.dat", "create", **chosen)
    assert done.out.strip() == "another error"
    assert not (tmp_path / "other.dat").exists()


def test_ranks_that_close_openings_of_their_own_at_once(tmp_path: Path) -> None:
    path = tmp_path / "field.dat"
    report = tmp_path / "report.json"
    done = preloaded(
        "mpich", 3, report, program("mpich", "closes"), path, PENSTOCK_FILES="*.dat", PENSTOCK_FILES_EXPORT="on"
    )
    assert done.status == 0, done.err
    assert "closes: ok" in done.out
    numbers = [int.from_bytes(path.read_bytes()[4 * i : 4 * i + 4], "little") for i in range(3)]
    assert numbers == [87, 88, 89]


@pytest.mark.parametrize("abi", MPIS)
def test_what_happens_inside_finalize_is_reported(abi: str, tmp_path: Path) -> None:
    path = tmp_path / "field.dat"
    report = tmp_path / "report.json"
    done = preloaded(abi, 3, report, program(abi, "closes_late"), path, PENSTOCK_FILES="*.dat")
    assert done.status == 0, done.err
    assert "closes_late: ok" in done.out
    (row,) = files_of(done)
    assert (row["stored"], row["written_bytes"], row["versions"]) == (True, 12, 1)
    assert done.native("allreduce") == {"MPI_Finalize has begun": 1}
    assert done.served("barrier") == 1
