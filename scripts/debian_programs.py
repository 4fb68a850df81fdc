"""Programs of Debian under its Open MPI, natively and with the preload library, in turns: results and times.

    python scripts/debian_programs.py prepare FOLDER      # as root: packages, sources, examples, inputs
    python scripts/debian_programs.py compare FOLDER [NAME...] [--repetitions N] [--json FILE]

Needs Debian 12 with its sources (deb-src), which may be a folder made by debootstrap, and penstock for `compare`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shlex
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

PACKAGES = (
    "gcc make pkg-config openmpi-bin libopenmpi-dev lammps quantum-espresso quantum-espresso-data libpetsc-real3.18-dev "
    "libhypre-dev python3-h5py-mpi python3-mpi4py scalapack-mpi-test gromacs libfftw3-dev libfftw3-mpi-dev dpkg-dev"
)
SOURCES = "petsc hypre fftw3"
#: Debian's, so that an installation of Penstock in an environment of its own does not hide it.
PYTHON = "/usr/bin/python3"
SCALAPACK = "/usr/lib/x86_64-linux-gnu/scalapack/openmpi-tests"
RANKS = 2
#: Before all other programs of the machine, in turns with each other.
FIRST = ("chrt", "--rr", "1")
TIMEOUT_S = 170

BUILD = r"""
set -e
apt-get install -q -y --no-install-recommends {packages}
apt-get source -q {sources}
petsc="$(pkg-config --cflags --libs PETSc)"
mpicc.openmpi -O2 -w -o ex2 petsc-*/src/ksp/ksp/tutorials/ex2.c $petsc -lm
mpicc.openmpi -O2 -w -o ex19 petsc-*/src/snes/tutorials/ex19.c $petsc -lm
for name in ex3 ex5; do
  mpicc.openmpi -O2 -w -I/usr/include/hypre -o hypre_$name hypre-*/src/examples/$name.c -lHYPRE -lm
done
cd fftw3-*
./configure --quiet --disable-fortran
(cd libbench2 && gcc -O2 -w -DHAVE_CONFIG_H -I.. -I. -c *.c && ar rcs libbench2.a *.o)
# hook.c checks FFTW's inner states, which a shared library does not show.
printf 'void install_hook(void) {{}}\nvoid uninstall_hook(void) {{}}\n' > no_hook.c
mpicc.openmpi -O2 -w -DHAVE_CONFIG_H -I. -Ilibbench2 -Itests -Iapi -Impi -o ../mpi-bench mpi/mpi-bench.c \
  tests/fftw-bench.c no_hook.c libbench2/libbench2.a -lfftw3_mpi -lfftw3 -lm
cd ..
gmx grompp -f md.mdp -c water.gro -p water.top -o md.tpr -maxwarn 2
"""

MELT = """units lj
atom_style atomic
lattice fcc 0.8442
region box block 0 12 0 12 0 12
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 1.44 87287 loop geom
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
neighbor 0.3 bin
neigh_modify delay 0 every 20 check no
fix 1 all nve
thermo 100
run 3600
"""

ALUMINIUM = """&control
 calculation = 'scf', prefix = 'al', pseudo_dir = '/usr/share/espresso/pseudo', outdir = './out'
/
&system
 ibrav = 2, celldm(1) = 7.5, nat = 1, ntyp = 1, ecutwfc = 15.0
 occupations = 'smearing', smearing = 'marzari-vanderbilt', degauss = 0.05
/
&electrons
 mixing_beta = 0.7
/
ATOMIC_SPECIES
 Al 26.98 Al.pz-vbc.UPF
ATOMIC_POSITIONS
 Al 0.00 0.00 0.00
K_POINTS automatic
 26 26 26 1 1 1
"""

H5PY = """import os
import time
import zlib

import h5py
import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
comm.Barrier()
begin = time.perf_counter()
for number in range(100):
    with h5py.File("file.h5", "w", driver="mpio", comm=comm) as file:
        for dataset in range(21):
            rows = file.create_dataset(f"rows{dataset}", (comm.size, 20000), "f8", chunks=(1, 5000))
            values = np.arange(20000) + comm.rank + number
            if dataset % 2:
                rows[comm.rank] = values
            else:
                with rows.collective:
                    rows[comm.rank] = values
    comm.Barrier()
    if comm.rank == 0:
        with h5py.File("file.h5", "r") as file:
            sums = [zlib.crc32(file[f"rows{dataset}"][:].tobytes()) for dataset in range(21)]
        print("sums", *sums)
        os.remove("file.h5")
    comm.Barrier()
if comm.rank == 0:
    print("seconds", time.perf_counter() - begin)
"""

#: Water on a lattice, with the three-site model of the OPLS force field.
MDP = """integrator = md
nsteps = {steps}
dt = 0.001
cutoff-scheme = Verlet
coulombtype = PME
rcoulomb = 0.9
rvdw = 0.9
tcoupl = v-rescale
tc-grps = System
tau-t = 0.5
ref-t = 300
gen-vel = yes
gen-temp = 300
gen-seed = 1
ld-seed = 1
nstenergy = 100
nstlog = 100
constraints = none
"""
TOPOLOGY = """#include "oplsaa.ff/forcefield.itp"
#include "oplsaa.ff/spce.itp"
[ system ]
Water
[ molecules ]
"""


@dataclass(frozen=True)
class Program:
    command: str
    #: What of its output must be equal in all runs. A regular expression of whole lines.
    results: str
    ranks: int = RANKS
    environment: dict[str, str] = field(default_factory=dict)
    #: A file with the results, if not stdout.
    output: str = ""
    #: The time that the program itself prints, without its start; in seconds if it names no unit. Empty: of the whole job.
    seconds: str = ""


PROGRAMS = {
    "lammps": Program("lmp -in melt.in -log none", r"^ +\d+( +[-\d.]+){5}", seconds=r"Loop time of ([\d.]+)"),
    "pw.x": Program(
        "pw.x -in al.in",
        r"^!|Fermi energy|convergence has been|^ +[-\d.]+( +[-\d.]+)* *$",
        seconds=r"PWSCF +:.* ([\d.]+)s WALL",
    ),
    "petsc ex2": Program(
        "./ex2 -m 900 -n 900 -ksp_type cg -log_view", r"^Norm of error", seconds=r"Time \(sec\): +([\d.e+]+)"
    ),
    "petsc ex19": Program(
        "./ex19 -da_refine 6 -snes_max_it 1 -snes_monitor -log_view",
        r"SNES Function|Newton",
        seconds=r"Time \(sec\): +([\d.e+]+)",
    ),
    "hypre ex5": Program("./hypre_ex5 -n 1700 -solver 1", r"Iterations|Norm"),
    "hypre ex3": Program("./hypre_ex3 -n 1800 -solver 0 -v 1 1", r"Iterations|Norm"),
    "h5py": Program(
        f"{PYTHON} writes.py", r"^sums", environment={"H5PY_ALWAYS_USE_MPI": "1"}, seconds=r"^seconds ([\d.]+)"
    ),
    "scalapack xdlu": Program(f"{SCALAPACK}/xdlu", r"(PASSED|FAILED)$|tests completed", ranks=4),
    "gromacs": Program(
        "gmx_mpi mdrun -s md.tpr -ntomp 1 -reprod -pin off -dlb no -notunepme -cpt -1 -g md.log -e md.edr -o md.trr -c md.gro",
        r"^ +[-+\d.e]+( +[-+\d.e]+)+ *$",
        output="md.log",
        seconds=r"^ +Time: +[\d.]+ +([\d.]+)",
    ),
    "fftw": Program("./mpi-bench -oestimate -t 2 -s ocf128x128x128", r"^$", seconds=r", time: ([\d.]+ \w+)"),
}


def prepare(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    side, distance = 16, 0.31
    atoms = []
    for cell in range(side**3):
        x, y, z = (distance * (cell // side**axis % side) for axis in range(3))
        for name, at in (("OW", (0, 0, 0)), ("HW1", (0.1, 0, 0)), ("HW2", (-0.0333, 0.0943, 0))):
            place = "".join(f"{origin + offset:8.3f}" for origin, offset in zip((x, y, z), at, strict=True))
            atoms.append(f"{cell + 1:5d}{'SOL':<5}{name:>5}{(len(atoms) + 1) % 100000:5d}{place}")
    length = f"{side * distance:10.5f}"
    files = {
        "melt.in": MELT,
        "al.in": ALUMINIUM,
        "writes.py": H5PY,
        "md.mdp": MDP.format(steps=500),
        "water.gro": f"Water\n{len(atoms)}\n" + "\n".join(atoms) + f"\n{length * 3}\n",
        "water.top": f"{TOPOLOGY}SOL {side**3}\n",
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    command = BUILD.format(packages=PACKAGES, sources=SOURCES)
    subprocess.run(
        ["bash", "-c", command], cwd=folder, check=True, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    )


def run(program: Program, folder: Path, report: Path | None) -> tuple[float, list[str]]:
    """Seconds, and the lines of results."""
    words = [
        *FIRST,
        "mpiexec.openmpi",
        "-n",
        str(program.ranks),
        "--bind-to",
        "core" if program.ranks <= RANKS else "none",
    ]
    always = {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "OMPI_MCA_mpi_yield_when_idle": "1",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        **program.environment,
    }
    command = shlex.split(program.command)
    # Otherwise Penstock's own folders would be the program's.
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "LD_PRELOAD")}
    if report is not None:
        from penstock import preload

        mpi = preload.mpi_of(str(folder / command[0]) if command[0].startswith("./") else command[0], "openmpi")
        added = preload.settings(mpi, str(report))
        words += ["env", *(f"{name}={value}" for name, value in added.items())]
    begin = time.monotonic()
    done = subprocess.run(
        [*words, *command],
        cwd=folder,
        env={**clean, **always},
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    seconds = time.monotonic() - begin
    if done.returncode != 0:
        raise SystemExit(f"{program.command}: status {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    text = (folder / program.output).read_text() if program.output else done.stdout
    if program.seconds:
        value, *unit = re.findall(program.seconds, text, re.MULTILINE)[-1].split()
        seconds = float(value) * {"s": 1, "ms": 1e-3, "us": 1e-6}[unit[0] if unit else "s"]
    return seconds, [line for line in text.splitlines() if re.search(program.results, line)]


def served(report: Path) -> str:
    """Who served what, in one line."""
    rows: dict[str, list[int]] = {}
    for row in json.loads(report.read_text())["operations"]:
        counts = rows.setdefault(row["operation"], [0, 0])
        counts[0] += row["served"]
        counts[1] += row["native"]
    return ", ".join(f"{name} {ours} of {ours + theirs}" for name, (ours, theirs) in sorted(rows.items()))


def compare(folder: Path, names: list[str], repetitions: int, budget_s: float) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = {}
    for name in names or PROGRAMS:
        program, report = PROGRAMS[name], folder / f"{name.replace(' ', '_')}.json"
        times: dict[str, list[float]] = {"natively": [], "preloaded": []}
        results = []
        begin = time.monotonic()
        for done in range(repetitions):
            if done and (time.monotonic() - begin) * (done + 1) / done > budget_s:
                break
            for how in list(times) if done % 2 == 0 else list(times)[::-1]:
                seconds, lines = run(program, folder, report if how == "preloaded" else None)
                times[how].append(seconds)
                results.append(lines)
        is_equal = all(lines == results[0] for lines in results)
        medians = {how: statistics.median(samples) for how, samples in times.items()}
        ratios = [ours / theirs for theirs, ours in zip(*times.values(), strict=True)]
        row = {
            **{how: [round(value, 6) for value in samples] for how, samples in times.items()},
            "ratio": medians["preloaded"] / medians["natively"],
            "median_of_ratios": statistics.median(ratios),
            "lines": len(results[0]),
            "equal": is_equal,
            "served": served(report),
        }
        found[name] = row
        spans = ", ".join(
            f"{how} {medians[how]:.4g} ({min(samples):.4g} to {max(samples):.4g}) s" for how, samples in times.items()
        )
        print(
            f"{name}: {spans}, ratio {row['ratio']:.3f}, of pairs {row['median_of_ratios']:.3f}; "
            f"{len(results[0])} lines {'equal' if is_equal else 'DIFFER'}; {row['served']}",
            flush=True,
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["prepare", "compare"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PROGRAMS))
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument(
        "--budget-s", type=float, default=math.inf, help="no repetition that would exceed it, for a program"
    )
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    folder = options.folder.resolve()
    if options.what == "prepare":
        prepare(folder)
        return
    found = compare(folder, options.names, options.repetitions, options.budget_s)
    if options.json:
        options.json.write_text(json.dumps(found, indent=2))
    sys.exit(0 if all(row["equal"] for row in found.values()) else 1)


if __name__ == "__main__":
    main()
