"""Stores in a Ceph of three OSDs: the contract of backends, MPI files, and an OSD that dies under load."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import penstock as ps
import pytest
from ceph_cluster import Ceph
from daemons import DaemonError
from store_suites import check_mpi_files, check_unit_store

ROOT = Path(__file__).parents[2]
TILES, TILE_BYTES = 4, 3 << 20

WRITER = """
import sys, time
import numpy as np
import penstock as ps
url, rank, tile = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
blob = ps.Store(url, create=False).open("field")
step = 0
while not sys.stdin.closed:
    step += 1
    value = (step * 8 + rank) % 251
    data = np.full(tile, value, np.uint8)
    # Half of a tile overlaps its neighbour's; two regions, so that a torn write would show.
    begin = rank * tile // 2
    version = blob.write([(begin, data[: tile // 2]), (begin + tile // 2, data[tile // 2 :])])
    print(version, rank, value, time.time(), flush=True)
"""


def test_every_promise_of_a_backend_and_of_blobs(ceph: Ceph) -> None:
    check_unit_store("*rados*:Rados*-RadosCalls.*", least=40)


@pytest.mark.parametrize("mpi", ["mpich", "openmpi"])
def test_mpi_files(ceph: Ceph, mpi: str) -> None:
    check_mpi_files(mpi, 3, os.environ["PENSTOCK_TEST_RADOS"])


def test_the_command_line_takes_the_url_of_a_blob(ceph: Ceph, url: str, tmp_path: Path) -> None:
    place = f"{url}?conf={ceph.conf}"
    blob = ps.Store(place).create("field", size=1 << 20)
    blob.write([(5, b"penstock")])
    command = [sys.executable, "-m", "penstock", "store"]
    without = {key: value for key, value in os.environ.items() if key != "CEPH_CONF"}
    done = subprocess.run(
        [*command, "export", f"{url}/field?conf={ceph.conf}", str(tmp_path / "field"), "--json"],
        env=without,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["bytes"] == 1 << 20
    assert (tmp_path / "field").read_bytes()[:16] == b"\0" * 5 + b"penstock" + b"\0" * 3
    missing = subprocess.run(
        [*command, "ls", f"{url}-not-there?conf={ceph.conf}"], capture_output=True, text=True, check=False
    )
    assert missing.returncode == 1
    assert "no such store" in missing.stderr


def test_an_osd_that_dies_loses_nothing_and_stops_nobody(ceph: Ceph, url: str) -> None:
    store = ps.Store(url)
    blob = store.create("field", size=(TILES + 1) * TILE_BYTES // 2)
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, url, str(rank), str(TILE_BYTES)], stdout=subprocess.PIPE, text=True
        )
        for rank in range(TILES)
    ]
    try:
        blob.wait(12, 60)
        killed = time.time()
        ceph.kill_osd(0)
        # Reads continue too. A read returns one version, despite concurrent writes.
        reads = 0
        while time.time() < killed + 6 or reads < 3:
            snapshot = blob.snapshot()
            data = np.empty(snapshot.size, np.uint8)
            snapshot.read([(0, data)])
            assert len(set(np.unique(data[: TILE_BYTES // 2]))) == 1
            reads += 1
            assert time.time() < killed + 120
        ceph.start_osd(0)
        ceph.wait_for_osds(3)
        back = time.time()
        blob.wait(blob.latest + 8, 60)
    finally:
        for writer in writers:
            writer.kill()
    acknowledged = []
    for writer in writers:
        output = writer.stdout
        assert output is not None
        # The kill may have cut off the last line.
        lines = output.read().split("\n")[:-1]
        acknowledged += [[float(word) for word in line.split()] for line in lines]
        writer.wait()
    assert len({version for version, *_ in acknowledged}) == len(acknowledged)
    while_down = [row for row in acknowledged if killed + 1 < row[3] < back]
    assert len(while_down) >= 3, "nothing was written while the OSD was down"
    assert any(row[3] > back for row in acknowledged)
    for version, rank, value, _ in acknowledged:
        tile = np.empty(TILE_BYTES, np.uint8)
        blob.read([(int(rank) * TILE_BYTES // 2, tile)], int(version))
        assert (tile == value).all(), f"version {version:.0f} of writer {rank:.0f}"
    report = store.check()
    assert report["problems"] == []
    assert report["versions"] >= len(acknowledged)
    # Each writer may have died between its last write and the line about it.
    assert blob.latest <= len(acknowledged) + TILES, "a write was applied twice"
    store.gc(keep_last=1, lease=0)
    report = store.check()
    assert (report["problems"], report["garbage_objects"]) == ([], 0)


def test_ceph_ends_with_its_owner_however_that_ends() -> None:
    directory = tempfile.mkdtemp(prefix="penstock-ceph-")
    program = (
        f"import sys, time; sys.path.insert(0, {str(ROOT / 'scripts')!r})\n"
        "from pathlib import Path; from ceph_cluster import Ceph\n"
        f"with Ceph(Path({directory!r}), osds=0) as ceph:\n"
        "    print(*ceph.pids, flush=True); time.sleep(100)\n"
    )
    owner = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    pids = [int(word) for word in owner.stdout.readline().split()]
    owner.kill()
    owner.wait()
    assert pids
    end = time.monotonic() + 10
    while any(alive(pid) for pid in pids):
        assert time.monotonic() < end, "a part of Ceph outlived its owner"
        time.sleep(0.05)
    subprocess.run(["rm", "-rf", directory], check=True)


def alive(pid: int) -> bool:
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    except FileNotFoundError:
        return False


def test_a_part_that_does_not_start_is_named(tmp_path: Path) -> None:
    with pytest.raises(DaemonError, match="ceph-mon"):
        Ceph(tmp_path / "ceph", osds=0, settings={"mon data": "/dev/null/none"}).__enter__()
    assert not (tmp_path / "ceph").exists()
