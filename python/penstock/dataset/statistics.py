"""What a dataset has done so far: records, times and their summary in words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Skipped(NamedTuple):
    """A sample that :meth:`Dataset.ignore_errors` dropped."""

    path: str  #: For samples in memory: "sample 17 in memory".
    index: int  # type: ignore[assignment]  #: Index in the source; hides tuple.index.
    epoch: int
    position: int  #: Position in the epoch, over all ranks.
    reason: str


#: Records that :attr:`Dataset.skipped` keeps.
KEPT_SKIPPED = 1000


class SkippedSamples(list[Skipped]):
    """The last records of samples that were dropped. :attr:`total` counts all, too."""

    def __init__(self, kept: Iterable[Skipped] = (), total: int = 0) -> None:
        super().__init__(kept)
        self.total = total

    def __repr__(self) -> str:
        earlier = self.total - len(self)
        return super().__repr__() + (f" and {earlier} earlier ones, which are only counted" if earlier else "")

    def and_then(self, later: SkippedSamples) -> SkippedSamples:
        return SkippedSamples([*self, *later][-KEPT_SKIPPED:], self.total + later.total)

    def add(self, new: list[Skipped]) -> None:
        self += new
        del self[:-KEPT_SKIPPED]
        self.total += len(new)


class Stats(NamedTuple):
    """Statistics of a dataset so far. Times are summed over threads."""

    wait_s: float = 0.0  #: The program waited for batches.
    read_s: float = 0.0  #: Threads read.
    decode_s: float = 0.0  #: Threads decoded.
    map_s: float = 0.0  #: Threads ran map functions.
    collate_s: float = 0.0  #: Threads collated samples into batches.
    elapsed_s: float = 0.0  #: From the first request of an iteration to its end.
    threads: int = 0
    read_bytes: int = 0
    samples: int = 0  #: Delivered.
    batches: int = 0  #: Delivered.
    skipped: int = 0  #: Dropped from delivered batches.
    held_bytes: int = (
        0  #: The most memory of samples and batches that were not delivered yet; see :meth:`Dataset.budget`.
    )
    readers: int = 0  #: More threads that read ahead, at the end.
    prefetch: int = 0  #: Batches ahead, at the end.

    def and_then(self, later: Stats) -> Stats:
        """Those of two iterations, one after the other."""
        both = Stats._make(a + b for a, b in zip(self, later))
        return both._replace(
            threads=max(self.threads, later.threads),
            held_bytes=max(self.held_bytes, later.held_bytes),
            readers=later.readers if later.threads else self.readers,
            prefetch=later.prefetch if later.threads else self.prefetch,
        )


def report(stats: Stats) -> str:
    if stats.batches == 0:
        return "No batch was delivered."
    stages = {
        "reading": stats.read_s,
        "decoding": stats.decode_s,
        "map functions": stats.map_s,
        "laying batches together": stats.collate_s,
    }
    advice = {
        "reading": "Files are read by all threads at once, so more threads (num_parallel_calls=, budget(cpus=)) or faster storage help.",
        "decoding": "More threads (num_parallel_calls=, budget(cpus=)) help up to the number of cores, as do smaller images and cache().",
        "map functions": "Python functions hold the GIL: what releases it (NumPy) helps, or worker processes (processes=).",
        "laying batches together": "Smaller samples help, and files whose decode stage is the last one.",
    }
    worked = sum(stages.values())
    available = max(stats.elapsed_s * (stats.threads + stats.readers), 1e-9)
    waited = stats.wait_s / max(stats.elapsed_s, 1e-9)
    busy = min(worked / available, 1.0)
    threads = f"{stats.threads} threads" + (f" and {stats.readers} more that read ahead" if stats.readers else "")
    lines = [
        f"{stats.batches:,} batches of {stats.samples:,} samples in {stats.elapsed_s:.2f} s: "
        f"{stats.samples / max(stats.elapsed_s, 1e-9):,.0f} samples/s, "
        f"{stats.read_bytes / 1e6 / max(stats.elapsed_s, 1e-9):,.1f} MB/s read; {stats.skipped:,} samples skipped.",
        f"The program waited {waited:.0%} of the time for batches. The {threads} were busy {busy:.0%} of it: "
        + ", ".join(f"{name} {seconds / max(worked, 1e-9):.0%}" for name, seconds in stages.items() if seconds > 0)
        + ".",
    ]
    if stats.prefetch:
        lines.append(f"Up to {stats.prefetch} batches were prepared ahead.")
    if stats.held_bytes:
        lines.append(f"At most {stats.held_bytes / 1e6:,.1f} MB of samples and batches were held at a time.")
    slowest = max(stages, key=lambda name: stages[name])
    if waited < 0.05:
        lines.append("The program is the bottleneck: batches were ready when it asked for them.")
    elif busy < 0.5:
        lines.append("The window is the bottleneck: threads had nothing to do. Prefetch more batches, or more bytes.")
    else:
        lines.append(f"The bottleneck is {slowest}. {advice[slowest]}")
    return "\n".join(lines)
