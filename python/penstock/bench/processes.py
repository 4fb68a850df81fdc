"""What a process and all below it use, of Linux's /proc."""

from __future__ import annotations

import os
from pathlib import Path


def tree() -> list[int]:
    """This process and all below it."""
    found = [os.getpid()]
    for process in found:
        for thread in _listed(f"/proc/{process}/task"):
            text = _text(f"/proc/{process}/task/{thread}/children")
            found += [int(word) for word in text.split()]
    return found


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:  # it has ended
        return []


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def cpu_s() -> float:
    """Processor time of all processes, also of those that have ended."""
    ticks = 0
    for process in tree():
        fields = _text(f"/proc/{process}/stat").rpartition(")")[2].split()
        ticks += sum(int(word) for word in fields[11:15])  # utime, stime, cutime, cstime
    return ticks / os.sysconf("SC_CLK_TCK")


def memory_bytes() -> int:
    """Memory of all processes; what several share counts once (PSS)."""
    kilobytes = 0
    for process in tree():
        for line in _text(f"/proc/{process}/smaps_rollup").splitlines():
            if line.startswith("Pss:"):
                kilobytes += int(line.split()[1])
    return kilobytes << 10
