"""What a search has found, and how good it is."""

from __future__ import annotations

import json
import math
import statistics
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np


@dataclass
class Outcome:
    """What was found; on rank 0."""

    key: dict[str, Any]
    request: dict[str, Any]
    #: operation → bytes → native_s, measured (or between two that were), and candidates, the best first
    operations: dict[str, dict[int, dict[str, Any]]]
    predicted: dict[str, dict[int, dict[str, float]]]  #: operation → bytes → "algorithm:segment" → seconds
    #: the same, measured, of all there are
    exhaustive: dict[str, dict[int, dict[str, float]]] = field(default_factory=dict)
    #: operation → bytes → how many times as long as the best the choice of one half of the exhaustive search takes in
    #: the other half: where that is much, the search does not know the best
    halves: dict[str, dict[int, float]] = field(default_factory=dict)
    #: operation → bytes → seconds of "chosen", "best" and "best again", which are the same, side by side
    referee: dict[str, dict[int, dict[str, float]]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)  #: what each part of the search took
    left_out: int = 0  #: points for which the time did not suffice
    path: str = ""

    def as_json(self) -> str:
        return json.dumps(asdict(self), indent=2)

    def strict(self, share: float = 0.03) -> tuple[int, int]:
        """Points at which the choice is at most `share` slower than the best in the exhaustive search's own measurements,
        which are noisy and favour what was lucky, and how many there are."""
        ratios = []
        for operation, points in self.exhaustive.items():
            for size, times in points.items():
                if size in self.operations[operation]:
                    first = self.operations[operation][size]["candidates"][0]
                    ratios.append(times[f"{first['algorithm']}:{first['segment_bytes']}"] / min(times.values()))
        return sum(ratio <= 1 + share for ratio in ratios), len(ratios)

    def within(self, share: float = 0.03, *, noise: float = 0.0, known: float = math.inf) -> tuple[int, int]:
        """Points at which the choice is at most `share` slower than the best of all, and how many are known.

        Of the two that are compared, each was measured beside the other. What differs by less than `noise` is equal.
        Points count whose best the exhaustive search knows to `known`.
        """
        ratios = [
            t["chosen"] / t["best"]
            for operation, points in self.referee.items()
            for size, t in points.items()
            if self.halves.get(operation, {}).get(size, 1.0) <= 1 + known
        ]
        return sum(ratio <= 1 + max(share, noise) for ratio in ratios), len(ratios)

    def behind(self, share: float = 0.03) -> list[str]:
        """A line for each point at which the choice is more than `share` slower than the best of all, side by side."""
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

    def noise(self) -> float:
        """How far apart two measurements of the same candidate were: nine of ten were closer."""
        apart = [
            max(t["best"], t["best again"]) / min(t["best"], t["best again"]) - 1
            for points in self.referee.values()
            for t in points.values()
        ]
        return float(np.quantile(apart, 0.9)) if apart else 0.0

    def summary(self) -> str:
        lines = [f"{'operation':10} {'bytes':>10}  {'algorithm':24} {'segment':>9} {'time':>10} {'native':>10}"]
        for operation, points in self.operations.items():
            for size, point in sorted(points.items()):
                if not point["candidates"]:
                    continue
                best = point["candidates"][0]
                lines.append(
                    f"{operation:10} {size:10}  {best['algorithm']:24} {best['segment_bytes'] or '-':>9} "
                    f"{_time(best['seconds']):>10} {_time(point['native_s']):>10}"
                )
        lines.append("")
        lines += [f"{part}: {seconds:.1f} s" for part, seconds in self.seconds.items()]
        if self.left_out:
            lines.append(f"{self.left_out} points were left to interpolation for want of time; run again to go on")
        good, known = self.within()
        if known:
            noise = self.noise()
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
            searched = self.seconds.get("predicting", 0.0) + self.seconds.get("validating", 0.0)
            if everything := self.seconds.get("exhaustive search"):
                lines.append(f"the search took {searched / everything:.1%} of the time of the exhaustive one")
        lines.append(f"written: {self.path}; use it with PENSTOCK_TUNING={self.path}")
        return "\n".join(lines)


def _time(seconds: float) -> str:
    if not seconds:
        return "-"
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.1f} µs"


def median_gain(outcome: Outcome) -> float:
    """How many times as fast as MPI's own collectives the choices are, as a median over all points."""
    gains = [
        point["native_s"] / point["candidates"][0]["seconds"]
        for points in outcome.operations.values()
        for point in points.values()
        if point["candidates"]
    ]
    return statistics.median(gains) if gains else math.nan
