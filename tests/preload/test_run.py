"""`penstock run` and `penstock env`, with programs that can and cannot be preloaded."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest
from preload.launch import MPIS, Done, mpiexec, preloaded, program


def penstock(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "penstock", *arguments]
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PMI", "OMPI_COMM", "PMIX"))}
    return subprocess.run(
        [str(word) for word in words], env={**clean, **environment}, capture_output=True, text=True, check=False
    )


def is_installed(library: str) -> bool:
    """Whether the dynamic linker finds a library where the system keeps them."""
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def test_a_program_without_mpi_runs_natively_with_its_own_status() -> None:
    done = penstock("run", "sh", "-c", "echo $LD_PRELOAD; exit 7")
    assert (done.returncode, done.stdout.strip()) == (7, "")
    (line,) = done.stderr.strip().splitlines()
    assert "is not linked to an MPI" in line
    assert "runs natively" in line


def test_strict_fails_instead() -> None:
    done = penstock("run", "--strict", "sh", "-c", "echo ran")
    assert (done.returncode, done.stdout) == (1, "")


def test_a_program_that_is_not_there() -> None:
    assert penstock("run", "no-such-program").returncode == 127


def test_a_broken_option_is_said_in_one_line() -> None:
    done = penstock("run", "--mpi", "mpich", "sh", "-c", "exit 3", PENSTOCK_EAGER_BYTES="many")
    assert done.returncode == 3
    (line,) = done.stderr.strip().splitlines()
    assert "eager_bytes cannot be 'many'" in line


def test_the_table_of_a_program_without_report() -> None:
    done = mpiexec("mpich", 2, "penstock", "run", program("mpich", "lives"), "3")
    assert done.status == 0, done.err
    assert done.err.count("collective calls served by Penstock") == 1
    assert "not prepared yet" in done.err


#: Eight numbers, or 64 KiB: a call that counts as nine.
@pytest.mark.parametrize(("mpi", "numbers", "native"), [("mpich", 8, 64), ("mpich", 8192, 8), ("openmpi", 8192, 8)])
def test_a_script_gets_the_library_of_its_launcher(mpi: str, numbers: int, native: int, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import numpy as np\n"
        "from mpi4py import MPI\n"
        f"total = np.zeros({numbers})\n"
        "for _ in range(100):\n"
        f"    MPI.COMM_WORLD.Allreduce(np.ones({numbers}), total)\n"
        "assert total[7] == MPI.COMM_WORLD.size\n"
    )
    report = tmp_path / "report.json"
    done = mpiexec(
        mpi, 2, "penstock", "run", "--report", report, sys.executable, script, PENSTOCK_PRELOAD_MEASURE="off"
    )
    assert done.status == 0, done.err
    assert f'"operation": "allreduce", "served": {100 - native},' in report.read_text()


def test_env_prints_lines_for_a_shell() -> None:
    done = penstock("env", "--mpi", "mpich")
    assert done.returncode == 0, done.stderr
    shell = subprocess.run(
        ["sh", "-c", f'{done.stdout}\nprintf %s "$PENSTOCK_PRELOAD"'], capture_output=True, text=True, check=True
    )
    for path in map(Path, shell.stdout.split(":")):
        assert path.is_absolute()
        assert path.exists()


def test_env_takes_the_mpi_on_the_path(tmp_path: Path) -> None:
    for place in ("bin/mpiexec", "lib/libmpi.so.40"):
        (tmp_path / place).parent.mkdir()
        (tmp_path / place).touch(mode=0o755)
    done = penstock("env", "--mpi", "openmpi", PATH=f"{tmp_path}/bin:{os.environ['PATH']}")
    assert f":{tmp_path}/lib/libmpi.so.40\n" in done.stdout


def test_the_thread_level_is_the_programs(tmp_path: Path) -> None:
    done = preloaded("mpich", 2, tmp_path / "report.json", program("mpich", "lives"), "1")
    assert done.report is not None, done.err
    assert done.report["thread_level"] == "MPI_THREAD_SINGLE"


def compiled(folder: Path, name: str, text: str, *options: str | Path) -> Path:
    source = folder / f"{name}.c"
    source.write_text(text)
    made = folder / name
    subprocess.run(["cc", "-o", str(made), str(source), *map(str, options)], check=True)
    return made


@pytest.mark.parametrize("options", [[], ["--mpi", "mpich"]])
def test_a_static_program_runs_natively(options: list[str], tmp_path: Path) -> None:
    made = compiled(tmp_path, "static", "int main(void) { return 5; }", "-static")
    done = penstock("run", *options, made)
    assert (done.returncode, done.stdout) == (5, "")
    (line,) = done.stderr.strip().splitlines()
    assert "is linked statically" in line
    assert "runs natively" in line
    done = penstock("run", "--strict", *options, made)
    assert (done.returncode, done.stdout) == (1, "")
    assert "is linked statically" in done.stderr
    assert "natively" not in done.stderr


def test_a_program_whose_mpi_is_not_there_ends_as_without_penstock(tmp_path: Path) -> None:
    name = next((name for name in ("libmpi_abi.so.0", "libmpi.so.40", "libmpi.so.12") if not is_installed(name)), None)
    if name is None:
        pytest.skip("the system has a library of every MPI")
    compiled(tmp_path, name, "int part(void) { return 3; }", "-shared", "-fPIC", f"-Wl,-soname,{name}")
    made = compiled(tmp_path, "program", "int part(void);\nint main(void) { return part(); }", tmp_path / name)
    (tmp_path / name).unlink()
    natively = subprocess.run([made], capture_output=True, text=True, check=False)
    assert natively.returncode == 127
    done = penstock("run", made)
    assert (done.returncode, done.stdout) == (127, "")
    line, *others = done.stderr.strip().splitlines()
    assert f"needs {name}, which is not found here" in line
    assert "runs natively" in line
    assert others == natively.stderr.strip().splitlines()


def assert_said_once(done: Done, line: str) -> None:
    """By the processes of a job that went on to its end."""
    assert (done.status, done.out.strip()) == (0, "splits: ok"), done.err
    assert [said for said in done.err.splitlines() if said.startswith("penstock: ") and line in said] != []
    assert done.err.count(line) == 1, done.err


def broken_on(folder: Path, ranks: str, setting: str) -> list[str]:
    """What starts a program with a setting on some ranks: a pattern of the shell."""
    script = folder / "start.sh"
    script.write_text(f'case $PMI_RANK in {ranks}) export {setting} ;; esac\nexec "$@"\n')
    return ["sh", str(script)]


@pytest.mark.parametrize("text", [None, '{"points": ['])
@pytest.mark.parametrize("mpi", MPIS)
def test_a_broken_table_is_said_in_one_line(mpi: str, text: str | None, tmp_path: Path) -> None:
    table = tmp_path / "table.json"
    if text is not None:
        table.write_text(text)
    done = preloaded(mpi, 4, tmp_path / "report.json", program(mpi, "splits"), PENSTOCK_TUNING=str(table))
    assert_said_once(done, f"the table {table} is not used")
    assert done.served("allreduce") > 0


def test_a_table_for_other_jobs_is_said_once_by_ranks_that_met(tmp_path: Path) -> None:
    table = tmp_path / "table.json"
    table.write_text('{"format": "penstock-tuning", "version": 2, "tables": []}')
    done = preloaded("mpich", 4, tmp_path / "report.json", program("mpich", "splits"), PENSTOCK_TUNING=str(table))
    assert done.status == 0, done.err
    assert done.err.count("it has no table for this communicator") == 2, done.err  # by each half; the others know


#: What the launcher can read of it, too; what only the library finds.
@pytest.mark.parametrize(
    ("setting", "line"),
    [
        ("PENSTOCK_EAGER_BYTES=many", "eager_bytes cannot be 'many'"),
        ("PENSTOCK_NETWORK=string", "unknown class of networks 'string'"),
    ],
)
@pytest.mark.parametrize("ranks", ["*", "2", "[13]"])
def test_an_option_that_some_ranks_cannot_use_is_said_in_one_line(
    setting: str, line: str, ranks: str, tmp_path: Path
) -> None:
    start = broken_on(tmp_path, ranks, setting)
    lines = penstock("env", "--mpi", "mpich")
    linked = program("mpich", "splits")
    for words in (
        [*start, "penstock", "run", linked],
        [*start, "sh", "-c", f'{lines.stdout}\nLD_PRELOAD=$PENSTOCK_PRELOAD exec "$0"', linked],
    ):
        done = mpiexec("mpich", 4, *words, PENSTOCK_PRELOAD_AFTER="0")
        assert (done.status, done.out.strip()) == (0, "splits: ok"), done.err
        assert done.err.count(line) == 1, done.err
        assert "natively" in done.err or "MPI's own" in done.err
        if ranks != "*":  # rank 0 reports
            assert "penstock: 0 collective calls served" in done.err


def test_a_program_that_loads_two_mpis_runs_natively(tmp_path: Path) -> None:
    libraries = []
    for name in ("libmpi.so.12", "libmpi.so.40"):
        symbol = "of_" + name.replace(".", "_")
        compiled(tmp_path, name, f"int {symbol}(void) {{ return 3; }}", "-shared", "-fPIC", f"-Wl,-soname,{name}")
        libraries.append(symbol)
    made = compiled(
        tmp_path,
        "both",
        f"int {libraries[0]}(void), {libraries[1]}(void);\nint main(void) {{ return {libraries[0]}() + {libraries[1]}(); }}",
        tmp_path / "libmpi.so.12",
        tmp_path / "libmpi.so.40",
    )
    done = penstock("run", made, LD_LIBRARY_PATH=str(tmp_path))
    assert done.returncode == 6
    (line,) = done.stderr.strip().splitlines()
    assert "loads libmpi.so.12 and libmpi.so.40, two MPIs" in line
    assert "runs natively" in line
    done = penstock("run", "--strict", made, LD_LIBRARY_PATH=str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert "two MPIs" in done.stderr


def test_the_library_of_another_mpi_is_not_preloaded() -> None:
    linked = program("openmpi", "lives")
    done = penstock("env", "--mpi", "mpich", linked)
    assert (done.returncode, done.stdout) == (1, "")
    assert "is linked to an MPI of the openmpi ABI" in done.stderr
