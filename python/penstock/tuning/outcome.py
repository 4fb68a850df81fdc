"""The outcome of a search, and its quality."""

from __future__ import annotations

import collections
import json
import math
import statistics
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np


@dataclass
class Outcome:
    """The outcome. Exists on rank 0."""

    key: dict[str, Any]
    request: dict[str, Any]
    #: operation → bytes → native_s (measured or interpolated), the candidates with the choice first, the reason for the
    #: choice, the default, the runner-up, and the noise that a difference had to exceed; see `decide.Choice`.
    operations: dict[str, dict[int, dict[str, Any]]]
    predicted: dict[str, dict[int, dict[str, float]]]  #: operation → bytes → "algorithm:segment" → seconds.
    #: As `predicted`, but measured, for all candidates.
    exhaustive: dict[str, dict[int, dict[str, float]]] = field(default_factory=dict)
    #: operation → bytes → time / best time, in one half of the exhaustive search, of the best of the other half. If it is
    #: large, the search does not know the best.
    halves: dict[str, dict[int, float]] = field(default_factory=dict)
    #: operation → bytes → seconds of "chosen", "best" and "best again" (the same candidate), measured side by side.
    referee: dict[str, dict[int, dict[str, float]]] = field(default_factory=dict)
    #: operation → bytes → how much two measurements of the default differ; see `Noise`.
    noise: dict[str, dict[int, dict[str, float]]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)  #: Duration of each part of the search.
    left_out: int = 0  #: Points for which there was no time.
    path: str = ""

    def as_json(self) -> str:
        return json.dumps(asdict(self), indent=2)

    def strict(self, share: float = 0.03) -> tuple[int, int]:
        """(points at which the choice is at most `share` slower than the best of the exhaustive search, all points).

        By the exhaustive search's own measurements, which are noisy and favour lucky candidates."""
        ratios = []
        for operation, points in self.exhaustive.items():
            for size, times in points.items():
                if size in self.operations[operation]:
                    first = self.operations[operation][size]["candidates"][0]
                    ratios.append(times[f"{first['algorithm']}:{first['segment_bytes']}"] / min(times.values()))
        return sum(ratio <= 1 + share for ratio in ratios), len(ratios)

    def within(self, share: float = 0.03, *, noise: float = 0.0, known: float = math.inf) -> tuple[int, int]:
        """(points at which the choice is at most `share` slower than the best of all, known points).

        The two were measured side by side. Differences below `noise` count as equal. A point is known if the exhaustive
        search knows its best to within `known`.
        """
        ratios = [
            t["chosen"] / t["best"]
            for operation, points in self.referee.items()
            for size, t in points.items()
            if self.halves.get(operation, {}).get(size, 1.0) <= 1 + known
        ]
        return sum(ratio <= 1 + max(share, noise) for ratio in ratios), len(ratios)

    def behind(self, share: float = 0.03) -> list[str]:
        """A line for each point at which the choice is more than `share` slower than the best, measured side by side."""
        lines = []
        for operation, points in self.referee.items():
            for size, seconds in points.items():
                ratio = seconds["chosen"] / seconds["best"]
                if ratio > 1 + share:
                    chosen = self.operations[operation][size]["candidates"][0]
                    everyone = self.exhaustive[operation][size]
                    lines.append(
                        f"  {operation} of {size} bytes: {chosen['algorithm']}:{chosen['segment_bytes']} took {ratio:.2f} "
                        f"times as long as {min(everyone, key=everyone.__getitem__)}"
                    )
        return lines

    def points(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """(operation, point with its "bytes") of each choice."""
        for operation, points in self.operations.items():
            for size, point in sorted(points.items()):
                if point["candidates"]:
                    yield operation, {"bytes": size, **point}

    def noise_lines(self) -> list[str]:
        """The noise of the default, one line per operation."""
        return [
            f"noise: {operation} of {bytes_text(size)}, the default {noise['rounds']} times beside itself: single times differ "
            f"by {share_text(math.expm1(noise['scatter']))} (one standard deviation), all of them by "
            f"{share_text(math.expm1(noise['apart']))}"
            for operation, sizes in self.noise.items()
            for size, noise in sorted(sizes.items())
        ]

    def referee_noise(self) -> float:
        """The difference of two measurements of the same candidate that nine of ten do not exceed."""
        apart = [
            max(t["best"], t["best again"]) / min(t["best"], t["best again"]) - 1
            for points in self.referee.values()
            for t in points.values()
        ]
        return float(np.quantile(apart, 0.9)) if apart else 0.0

    def summary(self) -> str:
        lines = [f"{'operation':9} {'bytes':>8}  {'choice':26} {'time':>8} {'95% interval':>17} {'MPI own':>8}  why"]
        for operation, point in self.points():
            best = point["candidates"][0]
            interval = (
                f"{time_text(best['low_s'])} - {time_text(best['high_s'])}" if "low_s" in best else "interpolated"
            )
            lines.append(
                f"{operation[:9]:9} {point['bytes']:8}  {label(name_of_candidate(best)):26} "
                f"{time_text(best['seconds']):>8} {interval:>17} {time_text(point['native_s']):>8}  {reason(point)}"
            )
        lines += ["", *self.noise_lines(), ""]
        counts = collections.Counter(point["why"] for _, point in self.points())
        lines.append(f"{sum(counts.values())} choices: " + ", ".join(f"{count} {why}" for why, count in counts.items()))
        lines += [f"{part}: {seconds:.1f} s" for part, seconds in self.seconds.items()]
        if self.left_out:
            lines.append(f"{self.left_out} points were interpolated, since the time was up; run again to continue")
        good, known = self.within()
        if known:
            noise = self.referee_noise()
            equal, _ = self.within(noise=noise)
            own, of = self.strict()
            sure, of_sure = self.within(known=0.03)
            lines.append(
                f"within 3% of the exhaustive best at {good} of {known} points side by side, and at {equal} within what "
                f"the same candidate differs by when it is measured twice ({noise:.1%}, nine times of ten)"
            )
            lines.append(
                f"by the exhaustive search's own measurements at {own} of {of}; its two halves agree to 3% about "
                f"the best of {of_sure} points, and there at {sure} side by side"
            )
            lines += self.behind()
            searched = sum(s for part, s in self.seconds.items() if part != "exhaustive search")
            if everything := self.seconds.get("exhaustive search"):
                lines.append(f"the search took {searched / everything:.1%} of the time of the exhaustive one")
        lines.append(f"written: {self.path}; use it with PENSTOCK_TUNING={self.path}")
        return "\n".join(lines)


def time_text(seconds: float) -> str:
    """Three digits and a unit."""
    if not seconds:
        return "-"
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= 0.9995 * scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def bytes_text(size: int) -> str:
    for unit, scale in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= scale:
            return f"{size / scale:.4g} {unit}"
    return f"{size} B"


def name_of_candidate(candidate: dict[str, Any]) -> str:
    return f"{candidate['algorithm']}:{candidate['segment_bytes']}"


def label(name: str) -> str:
    """A candidate's name for people."""
    algorithm, _, segment = name.rpartition(":")
    algorithm = "MPI's own" if algorithm == "native" else algorithm
    return f"{algorithm}, {bytes_text(int(segment))}" if int(segment) else algorithm


def reason(point: dict[str, Any]) -> str:
    """Why this is the choice, and how much longer the runner-up takes."""
    text = point["why"]
    if point["runner_up"]:
        text += f"; {label(point['runner_up'])} takes {ratio_text(point['runner_up_ratio'])} times as long"
    return f"{text}; noise {share_text(point['noise'])}"


def share_text(share: float) -> str:
    """A share in percent; from 1 on, as a factor."""
    if share >= 1:
        return f"a factor of {1 + share:.2g}" if share < 98 else "a factor of 99 and more"
    return f"{share:.0%}" if share >= 0.1 else f"{share:.1%}"


def ratio_text(ratio: tuple[float, float, float] | None) -> str:
    """A ratio of times with its interval."""
    return f"{ratio[0]:.2f} ({_bound(ratio[1])} to {_bound(ratio[2])})" if ratio else "-"


def _bound(ratio: float) -> str:
    """An end of an interval. Too few measurements leave it open."""
    return f"{ratio:.2f}" if 0.01 <= ratio < 100 else "?"


def median_gain(outcome: Outcome) -> float:
    """Time of MPI's own collective / time of the choice: the median over all points."""
    gains = [
        point["native_s"] / point["candidates"][0]["seconds"]
        for points in outcome.operations.values()
        for point in points.values()
        if point["candidates"]
    ]
    return statistics.median(gains) if gains else math.nan
