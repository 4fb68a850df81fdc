"""Emulated disks: file systems on loop devices, held to the rates that the training I/O paper measured (Table I).

A limit of the block layer holds for direct and for synced writes, and for reads that no cache serves. It is set for the
loop device alone. It needs root, and cgroups: with version 1, the groups of this process and the root group, which writes back
what is not synced; with version 2, the group of this process, which is charged for what it has written back, too. Version 2 has
no limits for its root group.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from penstock.bench.worker import Cannot

#: Disk → bytes per second (read, written).
RATES = {"hdd": (163_000_000, 133_140_000), "ssd": (280_550_000, 195_050_000), "optane": (1_603_060_000, 511_780_000)}

_TOOLS = ("losetup", "mkfs.ext4", "mount", "umount")


def missing() -> str:
    """Why no disk can be emulated here, or nothing."""
    if os.geteuid() != 0:
        return "only root can make loop devices"
    if absent := [tool for tool in _TOOLS if shutil.which(tool) is None]:
        return f"{absent[0]} is not installed"
    if not _limits():
        return (
            "no cgroup limits disks here: the blkio controller of version 1 is not mounted, and the group of this process has no "
            "io.max of version 2 (systemd-run --scope --property=IOAccounting=yes starts a program in one that has)"
        )
    return ""


@dataclass(frozen=True)
class _Group:
    """A control group whose requests to a disk can be limited."""

    folder: Path
    unified: bool  #: of version 2

    def limit(self, disk: str, rates: tuple[int, int] | None) -> None:
        """Hold reads and writes of a disk, by its number, to these rates; None: no longer."""
        if self.unified:
            read, write = ("max", "max") if rates is None else map(str, rates)
            (self.folder / "io.max").write_text(f"{disk} rbps={read} wbps={write}")
            return
        for access, rate in zip(("read", "write"), rates or (0, 0)):
            (self.folder / f"blkio.throttle.{access}_bps_device").write_text(f"{disk} {rate}")

    def limited(self) -> str:
        """The limits on writes."""
        return (self.folder / ("io.max" if self.unified else "blkio.throttle.write_bps_device")).read_text()


def _limits(groups: str = "/proc/self/cgroup", mounts: str = "/proc/mounts") -> list[_Group]:
    """The groups to limit."""
    # number:controllers:path; version 2 has the number 0 and no controllers.
    own = [line.rstrip().split(":", 2) for line in open(groups)]
    mounted = [line.split() for line in open(mounts)]
    path = next((where for _, controllers, where in own if "blkio" in controllers.split(",")), None)
    root = next((Path(m[1]) for m in mounted if m[2] == "cgroup" and "blkio" in m[3].split(",")), None)
    if path is not None and root is not None:
        folders = dict.fromkeys([root, root / path.lstrip("/")])
        found = [folder for folder in folders if (folder / "blkio.throttle.write_bps_device").exists()]
        if found:
            return [_Group(folder, False) for folder in found]
    path = next((where for number, controllers, where in own if number == "0" and controllers == ""), None)
    root = next((Path(m[1]) for m in mounted if m[2] == "cgroup2"), None)
    if path is not None and root is not None and (folder := root / path.lstrip("/")) and (folder / "io.max").exists():
        return [_Group(folder, True)]
    return []


def _run(*words: str) -> str:
    try:
        return subprocess.run(
            words, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL
        ).stdout.strip()
    except subprocess.CalledProcessError as error:
        lines = (error.stderr or error.stdout).strip().splitlines()
        raise Cannot(f"{words[0]} ended with status {error.returncode}" + (f": {lines[-1]}" if lines else "")) from None


def remove_abandoned(folder_prefix: str) -> None:
    """Take down the disks of processes that were killed. Their images are in folders of this prefix."""
    mounted = [line.split()[:2] for line in open("/proc/mounts")]
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError, Cannot):
            image = Path(backing.read_text().strip())
            if not image.parent.name.startswith(folder_prefix) or image.suffix != ".image":
                continue
            with open(image, "rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # its process holds the lock as long as it lives
                number = (backing.parents[1] / "dev").read_text().strip()
                # Without its limits: what is left to write would take long.
                for group in _limits():
                    with contextlib.suppress(OSError):
                        group.limit(number, None)
                for _, where in (entry for entry in mounted if entry[0] == f"/dev/{backing.parts[3]}"):
                    _run("umount", where)
                image.unlink()
                # rmdir alone, so that nothing goes but empty folders.
                image.with_suffix("").rmdir()
                image.parent.rmdir()


@contextlib.contextmanager
def emulated(disk: str, size_bytes: int, directory: Path) -> Iterator[Path]:
    """An empty file system of about this size, whose blocks are in `directory`, at the rates of `disk`.

    Raises Cannot if there can be none here.
    """
    if reason := missing():
        raise Cannot(f"no disk can be emulated: {reason}; --{disk} DIRECTORY names a real one")
    groups = _limits()
    image, mount = directory / f"{disk}.image", directory / disk
    with contextlib.ExitStack() as undo:
        undo.callback(image.unlink, missing_ok=True)
        file = undo.enter_context(open(image, "xb"))
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            os.posix_fallocate(file.fileno(), 0, size_bytes)
        except OSError as error:
            raise Cannot(f"{directory} has no room for {size_bytes:,} bytes of an emulated disk: {error}") from None
        loop = _run("losetup", "--find", "--show", "--direct-io=on", str(image))
        try:
            # Without background work of ext4 on a new file system.
            _run("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard", "-m", "0", loop)
            mount.mkdir()
            undo.callback(mount.rmdir)
            _run("mount", loop, str(mount))
            undo.callback(_run, "umount", str(mount))
        finally:
            _run("losetup", "--detach", loop)  # while it is mounted, this means: with the mount
        number = Path(f"/sys/block/{Path(loop).name}/dev").read_text().strip()
        # The kernel holds writing back to what it takes the latency of the disk for, which the limits below would be.
        with contextlib.suppress(OSError):
            Path(f"/sys/block/{Path(loop).name}/queue/wbt_lat_usec").write_text("0")
        for group in groups:
            undo.callback(group.limit, number, None)
            group.limit(number, RATES[disk])
        yield mount
