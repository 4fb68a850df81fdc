"""The emulated slow tier: a folder whose files all processes read and write at a given rate."""

from __future__ import annotations

import mmap
import os
import struct
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parent / "slow_tier.c"
_DEVICE = struct.Struct("=QQQQ")  # struct Device of slow_tier.c


class SlowTier:
    """`environment` slows down the processes that are started with it. Without a rate, nothing is slowed down."""

    def __init__(self, folder: Path, library: Path | None, left_out: str = "") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.left_out = left_out  #: Why nothing can be slowed down.
        self._state = folder.parent / f"{folder.name}.device"
        self._state.write_bytes(_DEVICE.pack(1, 0, 0, 0))
        self._file = open(self._state, "r+b")
        self._device = mmap.mmap(self._file.fileno(), _DEVICE.size)
        self._library = library
        self.bytes_per_s = 0

    def set_rate(self, bytes_per_s: int) -> None:
        self.bytes_per_s = bytes_per_s
        struct.pack_into("=Q", self._device, 0, bytes_per_s)

    @property
    def has_library(self) -> bool:
        return self._library is not None

    @property
    def environment(self) -> dict[str, str]:
        if self._library is None or not self.bytes_per_s:
            return {}
        preload = [str(self._library), *filter(None, [os.environ.get("LD_PRELOAD")])]
        state = {"PENSTOCK_DEMO_TIER": str(self.folder), "PENSTOCK_DEMO_TIER_STATE": str(self._state)}
        return {**state, "LD_PRELOAD": ":".join(preload)}

    def counts(self) -> tuple[int, int]:
        """(bytes read, bytes written) so far."""
        return _DEVICE.unpack_from(self._device)[2:4]


def counts_of_this_process() -> tuple[int, int]:
    """The same counts, in a process that is slowed down; zeros in others."""
    state = os.environ.get("PENSTOCK_DEMO_TIER_STATE")
    return _DEVICE.unpack(Path(state).read_bytes())[2:4] if state else (0, 0)


def make(directory: Path) -> SlowTier:
    library, left_out = _build(directory)
    return SlowTier(directory / "slow-tier", library, left_out)


def _build(directory: Path) -> tuple[Path | None, str]:
    """Compiles the library. Returns (its path, "") or (None, why it is missing)."""
    if not sys.platform.startswith("linux"):
        return None, f"LD_PRELOAD is a matter of Linux, and this is {sys.platform}"
    library = directory / "slow_tier.so"
    compiler = os.environ.get("CC", "cc").split()
    command = [*compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl"]
    try:
        run = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        return None, f"{compiler[0]}: {error.strerror}"
    if run.returncode:
        return None, f"{' '.join(command)} failed: {run.stderr.strip()[-300:]}"
    return library, ""


_PROBE = """
import os, sys, time
path, size = sys.argv[1], int(sys.argv[2])
begin = time.monotonic()
with open(path, "wb") as file:
    file.write(bytes(size)); file.flush(); os.fsync(file.fileno())
print(time.monotonic() - begin)
os.unlink(path)
"""


def measured_bytes_per_s(tier: SlowTier, nbytes: int) -> float:
    """The rate at which one process writes `nbytes` to the folder, including fsync."""
    command = [sys.executable, "-c", _PROBE, str(tier.folder / "probe"), str(nbytes)]
    run = subprocess.run(command, env={**os.environ, **tier.environment}, capture_output=True, text=True, check=True)
    return nbytes / float(run.stdout)
