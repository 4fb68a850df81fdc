"""HDF5's own parallel tests, compiled from Debian's source package against Debian's library for MPICH, end as natively with
their files in the store. Needs, besides the packages of test_file_libraries.py, dpkg-dev and a source of packages' sources
(deb-src). Not among them: testphdf5, which takes minutes; t_cache, which natively ended 6 of its 15 checks in 20 minutes on two
busy cores; and t_cache_image, which has not been compared yet."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from preload.installed import flags_of, run_installed, tool
from preload.launch import ALL

pytestmark = pytest.mark.skipif(not ALL, reason="with --all, which fetches the sources")

RANKS = 3
TIMEOUT_S = 600
COMMON = ("h5test", "testframe", "cache_common")
#: Programs that run in one folder, one after the other: the second reads what the first has written. Natively, too,
#: t_pflush1 ends without MPI_Finalize.
GROUPS = (
    ("t_mpi",),
    ("t_pread",),
    ("t_pshutdown", "t_prestart"),
    ("t_pflush1", "t_pflush2"),
    ("t_init_term",),
    ("t_filters_parallel",),
    ("t_shapesame",),
    ("t_bigio",),
)
#: Of 0 to 3. At 3 t_shapesame runs few of its subtests, and t_bigio leaves out those of collective chunks.
EXPRESS = "3"
#: They write to files without MPI, too, and then open them by MPI. Those are MPI's by rule.
WRITE_PLAIN_FILES = ("t_pread", "t_filters_parallel")
CHANGED = "the plain file has changed since its last version"


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source package, unpacked."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-source") is None:
        pytest.skip("no apt-get or no dpkg-source (package dpkg-dev) here")
    folder = tmp_path_factory.mktemp("sources")
    command = ["apt-get", "source", "-q", "hdf5"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
        pytest.skip(f"apt-get source hdf5: {said[-1]}")
    (unpacked,) = (found for found in folder.glob("hdf5-*") if found.is_dir())
    (unpacked / "test/H5srcdir_str.h").write_text(f'static const char *config_srcdir = "{unpacked}/test";\n')
    return unpacked


@pytest.fixture(scope="module", params=["mpich"])
def programs(
    request: pytest.FixtureRequest, sources: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path]:
    """An MPI and the folder of its programs."""
    mpi: str = request.param
    compiler = tool("mpicc", mpi)
    flags = flags_of(f"hdf5-{mpi}")
    folder = tmp_path_factory.mktemp(mpi)
    # The library has been compiled without assertions, on which the layout of some of its types depends.
    always = ["-O1", "-w", "-DNDEBUG", "-Isrc", "-Itest", "-Itestpar"]

    def run(*words: str | Path) -> None:
        subprocess.run([str(word) for word in words], cwd=sources, check=True, timeout=TIMEOUT_S)

    for name in COMMON:
        run(compiler, *always, "-c", f"test/{name}.c", "-o", folder / f"{name}.o", *flags)
    # An archive, since some programs have names of cache_common.c themselves.
    run("ar", "rcs", folder / "common.a", *(folder / f"{name}.o" for name in COMMON))
    for name in (name for group in GROUPS for name in group):
        run(compiler, *always, "-o", folder / name, f"testpar/{name}.c", folder / "common.a", *flags, "-lm")
    return mpi, folder


def outcomes(output: str) -> dict[str, int]:
    """How often a test says that it passed, was skipped or failed."""
    return {word: output.count(word) for word in ("PASSED", "SKIPPED", "FAILED")}


@pytest.mark.timeout(4 * TIMEOUT_S)
@pytest.mark.parametrize("group", GROUPS, ids=lambda group: "+".join(group))
def test_ends_as_natively(group: tuple[str, ...], programs: tuple[str, Path], tmp_path: Path) -> None:
    mpi, built = programs
    natively, preloaded = tmp_path / "natively", tmp_path / "preloaded"
    for folder in (natively, preloaded):
        folder.mkdir()
    for name in group:
        options = ["--files", "*", *(["--export-files"] if name in WRITE_PLAIN_FILES else [])]
        command = [str(built / name)]
        paths = {"HDF5_PARAPREFIX": str(natively), "HDF5TestExpress": EXPRESS}
        plain = run_installed(mpi, RANKS, None, command, natively, (), TIMEOUT_S, **paths)
        report = preloaded / f"{name}.json"
        paths["HDF5_PARAPREFIX"] = str(preloaded)
        done = run_installed(mpi, RANKS, report, command, preloaded, options, TIMEOUT_S, **paths)
        assert done.status == plain.status, done.out[-2000:] + done.err[-4000:]
        assert outcomes(done.out) == outcomes(plain.out), done.out[-2000:] + done.err[-4000:]
        files = done.report["files"] if done.report is not None else []
        assert all(row["stored"] or row["why_native"] == CHANGED for row in files), done.err
        if name in WRITE_PLAIN_FILES:
            assert any(row["stored"] for row in files), done.err
        else:
            assert all(row["stored"] for row in files), done.err
