#!/usr/bin/env python3
# bench [--nodes K] [--rate RATE] [OPTION…] : stores in Ceph against MPI's atomic mode on CephFS, over emulated nodes (root)
"""Emulated nodes write to one Ceph on the same switch. The links of the nodes are the bottleneck.

The monitor, the OSDs and the metadata server run in the network of the switch, which is not shaped. Every node mounts CephFS with
ceph-fuse. Penstock writes to a pool on the same OSDs, with the same number of copies. Unknown options are passed to
`penstock bench store`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from ceph_cluster import Ceph, missing_packages

ROOT = Path(os.environ["PENSTOCK_ROOT"])
DEV = str(ROOT / "dev")
ADDRESS = "10.77.0.254"  # on the subnet of scripts/commands/cluster.sh
UNITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev ceph bench", description=__doc__)
    parser.add_argument("command", choices=["bench"])
    parser.add_argument("--nodes", type=int, default=4, help="emulated nodes, one client each (default: 4)")
    parser.add_argument("--rate", default="200mbit", help="rate of each node's link (default: 200mbit)")
    parser.add_argument("--osds", type=int, default=3, help="(default: 3)")
    parser.add_argument("--copies", type=int, default=2, help="copies of each object, for both (default: 2)")
    parser.add_argument("--json", action="store_true", help="print what penstock bench store --json prints")
    arguments, rest = parser.parse_known_args()
    rate = re.fullmatch(r"([0-9.]+)(kbit|mbit|gbit)", arguments.rate)
    if rate is None:
        parser.error(f"--rate is {arguments.rate}, expected such as 200mbit")
    if os.geteuid() != 0:
        sys.exit("./dev ceph: emulated nodes and mounts need root")
    if missing := missing_packages(file_system=True):
        subprocess.run([DEV, "setup", "--with", *missing], check=True)
    subprocess.run([DEV, "build", "release", "penstock_programs"], check=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    directory = Path(tempfile.mkdtemp(prefix="penstock-ceph-"))
    try:
        report = bench(arguments, rest, directory)
    except KeyboardInterrupt:
        return 130
    finally:
        end_jobs()
        subprocess.run([DEV, "cluster", "down"], check=False)
        shutil.rmtree(directory, ignore_errors=True)
    if arguments.json:
        print(json.dumps(report))
    else:
        show(report, arguments.nodes * float(rate[1]) * UNITS[rate[2]] / 8)
    return 0


def end_jobs() -> None:
    """An interrupted launcher leaves its ranks behind: end all processes in the nodes' networks."""
    hosts = ROOT / "build/cluster/hosts"
    holders = [line.split()[1] for line in hosts.read_text().splitlines()] if hosts.exists() else []
    networks = {network for holder in holders if (network := network_of(holder))} - {network_of("self")}
    for process in Path("/proc").glob("[0-9]*"):
        if process.name not in holders and network_of(process.name) in networks:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(process.name), signal.SIGKILL)


def network_of(process: str) -> str | None:
    try:
        return os.readlink(f"/proc/{process}/ns/net")
    except OSError:
        return None


def bench(arguments: argparse.Namespace, rest: list[str], directory: Path) -> dict:
    subprocess.run([DEV, "cluster", "up", str(arguments.nodes), arguments.rate], check=True)
    state = ROOT / "build/cluster"
    switch = ["nsenter", "-t", (state / "switch.pid").read_text().strip(), "-n"]
    path = {**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"}
    for words in (["link", "set", "lo", "up"], ["address", "add", f"{ADDRESS}/24", "dev", "bridge"]):
        subprocess.run([*switch, "ip", *words], check=True, env=path)
    nodes = [line.split()[1] for line in (state / "hosts").read_text().splitlines()]
    with contextlib.ExitStack() as stack:
        ceph = stack.enter_context(Ceph(directory / "ceph", arguments.osds, address=ADDRESS, enter=switch))
        ceph.make_pool("penstock", arguments.copies)
        ceph.make_file_system(arguments.copies)
        # The same path on every node, each with its own mount.
        place = directory / "shared"
        for number, holder in enumerate(nodes):
            enter = ["nsenter", "-t", holder, "-n", "-u", "-i", "-m"]
            stack.enter_context(ceph.mounted(place, enter, f"fuse-{number}"))
        words = [
            DEV,
            "cluster",
            "bench",
            "store",
            "--json",
            "--directory",
            str(place),
            "--store",
            "rados://penstock/bench",
        ]
        defaults = {"--ranks": str(arguments.nodes), "--sync": "no", "--mpi": "mpich"}
        for option, value in defaults.items():
            if option not in rest:
                words += [option, value]
        done = subprocess.run(
            [*words, *rest], env={**os.environ, **ceph.environment}, stdout=subprocess.PIPE, text=True, check=False
        )
        if done.returncode:
            sys.exit(f"./dev ceph: penstock bench store ended with status {done.returncode}")
        return json.loads(done.stdout)


def show(report: dict, limit: float) -> None:
    """Prints MB/s over all nodes, the relative speed of Penstock, and its share of the links' rate."""
    print(f"{'':32} {'ranks':>5} {'bytes':>12}  " + "  ".join(f"{peer:>16}" for peer in report["peers"]))
    for row in report["rows"]:
        setting = row["setting"]
        speeds = {peer: setting["bytes"] / seconds for peer, seconds in row["seconds"].items()}
        what = f"{setting['experiment']}, {setting['waiting']}" + (", synced" if setting["sync"] == "yes" else "")
        print(
            f"{what:32} {setting['ranks']:5} {setting['bytes']:12}  "
            + "  ".join(
                f"{speeds[peer] / 1e6:11.1f} MB/s" if peer in speeds else f"{'-':>16}" for peer in report["peers"]
            )
        )
        for pair, factor in row["speedup"].items():
            print(f"{'':4} {pair}: {factor:.1f}")
        for peer, speed in speeds.items():
            if peer.startswith("penstock"):
                print(f"{'':4} {peer}: {speed / limit:.2f} of the links' {limit / 1e6:.0f} MB/s")
    for peer, why in report["left_out"].items():
        print(f"{peer} was left out: {why}")


if __name__ == "__main__":
    sys.exit(main())
