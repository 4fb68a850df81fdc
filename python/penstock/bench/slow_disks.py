"""Emulated disks: file systems on loop devices, held to the rates that the training I/O paper measured (Table I).

A limit of the block layer holds for direct and for synced writes, and for reads that no cache serves. It is set for the
loop device alone. It needs root, and cgroups of version 1: the blkio controller of version 2 has no limit for its root group,
which writes back what is not synced.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
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
    if _limits() is None:
        return "the blkio controller of cgroups of version 1 is not mounted"
    return ""


def _limits() -> list[Path] | None:
    """The groups whose requests to a disk are limited: the one of this process, and the root one, which writes back."""
    path = next(
        (
            line.rstrip().split(":", 2)[2]
            for line in open("/proc/self/cgroup")
            if "blkio" in line.split(":")[1].split(",")
        ),
        None,
    )
    mounts = (line.split() for line in open("/proc/mounts"))
    root = next((Path(m[1]) for m in mounts if m[2] == "cgroup" and "blkio" in m[3].split(",")), None)
    if path is None or root is None:
        return None
    groups = [group for group in dict.fromkeys([root, root / path.lstrip("/")]) if _file(group, "write").exists()]
    return groups or None


def _file(group: Path, access: str) -> Path:
    return group / f"blkio.throttle.{access}_bps_device"


def _run(*words: str) -> str:
    try:
        return subprocess.run(
            words, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL
        ).stdout.strip()
    except subprocess.CalledProcessError as error:
        lines = (error.stderr or error.stdout).strip().splitlines()
        raise Cannot(f"{words[0]} ended with status {error.returncode}" + (f": {lines[-1]}" if lines else "")) from None


@contextlib.contextmanager
def emulated(disk: str, size_bytes: int, directory: Path) -> Iterator[Path]:
    """An empty file system of about this size, whose blocks are in `directory`, at the rates of `disk`.

    Raises Cannot if there can be none here.
    """
    if reason := missing():
        raise Cannot(f"no disk can be emulated: {reason}; --{disk} DIRECTORY names a real one")
    groups = _limits()
    assert groups is not None
    image, mount = directory / f"{disk}.image", directory / disk
    with contextlib.ExitStack() as undo:
        undo.callback(image.unlink, missing_ok=True)
        with open(image, "xb") as file:
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
            for access, rate in zip(("read", "write"), RATES[disk]):
                undo.callback(_file(group, access).write_text, f"{number} 0")
                _file(group, access).write_text(f"{number} {rate}")
        yield mount
