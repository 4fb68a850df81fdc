"""A small Ceph cluster of plain processes in one directory: a monitor, OSDs (BlueStore on files) and, on request, a metadata
server and a gateway for S3. All of them end with this process, however it ends.

with Ceph(Path("/tmp/ceph"), osds=3) as ceph:
    ceph.make_pool("penstock")
    subprocess.run([...], env={**os.environ, **ceph.environment})
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from daemons import DaemonError, Daemons

PROGRAMS = {"ceph-mon": "ceph-mon", "ceph-osd": "ceph-osd", "ceph": "ceph-common"}
FILE_SYSTEM_PROGRAMS = {"ceph-mds": "ceph-mds", "ceph-fuse": "ceph-fuse"}
GATEWAY_PROGRAMS = {"radosgw": "radosgw", "radosgw-admin": "radosgw"}
SEARCH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])


def missing_packages(file_system: bool = False, gateway: bool = False) -> list[str]:
    """Debian packages that are missing on this machine."""
    wanted = {**PROGRAMS, **(FILE_SYSTEM_PROGRAMS if file_system else {}), **(GATEWAY_PROGRAMS if gateway else {})}
    missing = [package for program, package in wanted.items() if shutil.which(program, path=SEARCH) is None]
    return list(dict.fromkeys(missing))


class Ceph:
    """A cluster that listens on `address`. `enter` is a command prefix that enters another network namespace."""

    def __init__(
        self,
        directory: Path,
        osds: int = 3,
        *,
        address: str = "127.0.0.1",
        enter: Sequence[str] = (),
        settings: dict[str, str] | None = None,
    ) -> None:
        self.directory = directory
        self.conf = directory / "ceph.conf"
        self._osds = osds
        self._address = address
        self._enter = list(enter)
        self._settings = settings or {}
        # Ceph must not see what the project's environment sets for its MPI and its Python.
        self._environment = {
            key: value for key, value in os.environ.items() if key not in ("LD_LIBRARY_PATH", "PYTHONPATH")
        }
        self._environment.update(PATH=SEARCH, CEPH_CONF=str(self.conf))
        self._daemons = Daemons("Ceph", directory, self._environment)

    @property
    def environment(self) -> dict[str, str]:
        return {"CEPH_CONF": str(self.conf)}

    def __enter__(self) -> Ceph:
        try:
            self._configure()
            self._start_monitor()
            for number in range(self._osds):
                self._make_osd(number)
                self.start_osd(number)
            self._wait("the OSDs", lambda: self._up() == self._osds)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def command(self, *words: str, timeout_s: float = 60) -> str:
        """The output of `ceph WORDS…`."""
        done = subprocess.run(
            [*self._enter, "ceph", "--connect-timeout", "20", *words],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if done.returncode:
            raise DaemonError(f"ceph {' '.join(words)} ended with status {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def make_pool(self, name: str, size: int = 3, groups: int = 16) -> None:
        """A pool that accepts writes as long as one of its `size` copies is reachable."""
        self.command("osd", "pool", "create", name, str(groups))
        confirm = ("--yes-i-really-mean-it",) if size == 1 else ()
        self.command("osd", "pool", "set", name, "size", str(size), *confirm)
        self.command("osd", "pool", "set", name, "min_size", str(max(size - 1, 1)))

    def start_osd(self, number: int) -> None:
        self._start(f"osd.{number}", ["ceph-osd", "-f", "-i", str(number)])

    def kill_osd(self, number: int) -> None:
        """SIGKILL, as in a power cut."""
        self._daemons.end(f"osd.{number}", signal.SIGKILL)

    @property
    def pids(self) -> list[int]:
        return self._daemons.pids

    def wait_for_osds(self, up: int) -> None:
        self._wait(f"{up} OSDs", lambda: self._up() == up)

    @contextlib.contextmanager
    def mounted(self, place: Path, enter: Sequence[str] = (), name: str = "fuse") -> Iterator[Path]:
        """Mounts the file system while the context lasts. `enter` is as for the cluster; `name` starts with fuse."""
        place.mkdir(parents=True, exist_ok=True)
        self._start(name, ["ceph-fuse", "-f", "--id", "admin", str(place)], enter=enter)
        shown = [*enter, "sh", "-c", f"grep -q ' {place} fuse' /proc/self/mounts"]
        try:
            self._wait(name, lambda: subprocess.run(shown, check=False).returncode == 0)
            yield place
        finally:
            subprocess.run([*enter, "umount", str(place)], check=False, capture_output=True)
            self._daemons.end(name)

    def make_file_system(self, size: int = 3) -> None:
        """CephFS with one metadata server."""
        self._start("mds.a", ["ceph-mds", "-f", "-i", "a"])
        self.make_pool("cephfs_metadata", size)
        self.make_pool("cephfs_data", size)
        self.command("fs", "new", "cephfs", "cephfs_metadata", "cephfs_data")
        self._wait("the metadata server", lambda: "up:active" in self.command("mds", "stat"))

    def start_gateway(self, key: str, secret: str) -> str:
        """Serves S3 to a user with this key. Returns the address, http://HOST:PORT."""
        with socket.socket() as probe:
            probe.bind((self._address, 0))
            port = probe.getsockname()[1]
        self._run(
            "radosgw-admin",
            "user",
            "create",
            "--uid",
            "user",
            "--display-name",
            "user",
            "--access-key",
            key,
            "--secret",
            secret,
        )
        frontend = f"beast endpoint={self._address}:{port}"
        # Its own default is to encrypt, which takes keys.
        plain = ["--ms-mon-client-mode", "crc"]
        self._start("rgw", ["radosgw", "-f", "-n", "client.admin", *plain, "--rgw-frontends", frontend])

        def answers() -> bool:
            with socket.socket() as client:
                return client.connect_ex((self._address, port)) == 0

        self._wait("the gateway for S3", answers)
        return f"http://{self._address}:{port}"

    def stop(self) -> None:
        # Clients first, the monitor last: a daemon whose peer is gone takes long to end.
        self._daemons.end_all(lambda name: signal.SIGTERM if name.startswith("fuse") else signal.SIGKILL)
        shutil.rmtree(self.directory, ignore_errors=True)

    def _configure(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self._fsid = str(uuid.uuid4())
        with socket.socket() as probe:
            probe.bind(("", 0))
            port = probe.getsockname()[1]
        self._monitor = f"{self._address}:{port}"
        settings = {
            "fsid": self._fsid,
            "mon host": f"v2:{self._monitor}",
            "public addr": self._address,
            "cluster addr": self._address,
            "auth cluster required": "none",
            "auth service required": "none",
            "auth client required": "none",
            "run dir": str(self.directory),
            "admin socket": str(self.directory / "$name.$pid.asok"),
            "log file": str(self.directory / "$name.log"),
            "crash dir": str(self.directory / "crash"),
            "mon data": str(self.directory / "mon.$id"),
            "osd data": str(self.directory / "osd.$id"),
            "mds data": str(self.directory / "mds.$id"),
            "keyring": "/dev/null",
            "mon data avail crit": "1",
            "mon data avail warn": "1",
            "mon allow pool size one": "true",
            "mon osd down out interval": "3600",
            "osd crush chooseleaf type": "0",
            "osd pool default pg autoscale mode": "off",
            "osd objectstore": "bluestore",
            "bluestore block size": str(8 << 30),
            "bluestore block db create": "false",
            "osd memory target": str(1 << 30),
            "osd class update on start": "false",
            "ms bind ipv6": "false",
            "ms bind msgr1": "false",
            # An OSD that died counts as down within seconds.
            "osd heartbeat interval": "1",
            "osd heartbeat grace": "4",
            "mon osd min down reporters": "1",
            "osd op num shards": "2",
            # The kernel's page cache misses writes of other clients: ROMIO's atomic mode would write old bytes back.
            "fuse disable pagecache": "true",
            **self._settings,
        }
        self.conf.write_text("[global]\n" + "".join(f"{key} = {value}\n" for key, value in settings.items()))

    def _start_monitor(self) -> None:
        monmap = self.directory / "monmap"
        self._run("monmaptool", "--create", "--addv", "a", f"[v2:{self._monitor}]", "--fsid", self._fsid, str(monmap))
        self._run("ceph-mon", "--mkfs", "-i", "a", "--monmap", str(monmap))
        self._start("mon.a", ["ceph-mon", "-f", "-i", "a"])
        self._wait("the monitor", lambda: bool(self.command("mon", "stat", timeout_s=30)))

    def _make_osd(self, number: int) -> None:
        (self.directory / f"osd.{number}").mkdir()
        identity = str(uuid.uuid4())
        self.command("osd", "new", identity, str(number))
        self._run("ceph-osd", "-i", str(number), "--mkfs", "--osd-uuid", identity)

    def _up(self) -> int:
        return int(json.loads(self.command("osd", "stat", "--format", "json"))["num_up_osds"])

    def _run(self, *words: str) -> None:
        done = subprocess.run(
            [*self._enter, *words], env=self._environment, capture_output=True, text=True, timeout=120, check=False
        )
        if done.returncode:
            raise DaemonError(f"{words[0]} ended with status {done.returncode}: {done.stderr.strip()[-2000:]}")

    def _start(self, name: str, words: list[str], enter: Sequence[str] | None = None) -> None:
        self._daemons.start(name, [*(self._enter if enter is None else enter), *words])

    def _wait(self, what: str, ready: Callable[[], bool]) -> None:
        def answers() -> bool:
            # What is not there yet says so by an error.
            with contextlib.suppress(DaemonError, subprocess.TimeoutExpired):
                return ready()
            return False

        self._daemons.wait(what, answers, lambda name: [self.directory / f"{name}.log"])
