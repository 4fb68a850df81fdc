"""Turns the records of a comparison into numbers: medians with their spread, for both ways, pair by pair."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass

from job import Job
from runner import Records

WAYS = ("plain", "penstock")


@dataclass
class Measure:
    """A quantity in milliseconds, for both ways. The n-th values of both were measured one after the other."""

    key: str
    name: str
    plain: list[float]
    penstock: list[float]

    def median(self, way: str) -> float:
        return statistics.median(getattr(self, way))

    def spread(self, way: str) -> tuple[float, float]:
        values = getattr(self, way)
        return min(values), max(values)

    @property
    def pairs_won(self) -> int:
        """Number of pairs in which Penstock was shorter."""
        return sum(fast < plain for plain, fast in zip(self.plain, self.penstock, strict=True))

    @property
    def verdict(self) -> str:
        """A difference counts if every pair shows it, and if the spreads do not overlap."""
        if max(self.penstock) < min(self.plain):
            return "shorter"
        return "longer" if min(self.penstock) > max(self.plain) else "unclear"

    def as_json(self) -> dict:
        rows = {
            way: {
                "median_ms": self.median(way),
                "min_ms": self.spread(way)[0],
                "max_ms": self.spread(way)[1],
                "all_ms": getattr(self, way),
            }
            for way in WAYS
        }
        return {"name": self.name, "verdict": self.verdict, "pairs_won": self.pairs_won, **rows}


# Measured in each segment: (key, name on the page, seconds of one rank's segment).
# Sums over a segment are divided by its number of steps or dumps; it has one checkpoint.
PER_STEP = [
    ("compute", "compute", "compute, per step"),
    ("next_batch", "next batch", "next batch, per step"),
    ("sum_gradients", "sum gradients", "sums of the gradients, per step"),
]
PER_DUMP = [
    ("redistribute", "redistribute", "redistribute the field, per dump"),
    ("write_tiles", "write tiles", "write overlapping tiles, per dump"),
]
PER_SEGMENT = [
    ("checkpoint", "checkpoint", "checkpoint"),
    ("settle", "settle", "wait until it is in the slow tier"),
]
WARM_UP = 1  # segments of each way that do not count: connections and caches


def measures(records: dict[str, Records], job: Job) -> dict[str, Measure]:
    found = [_measure(records, key, name, _sum_of(phase, job.segment_steps)) for key, phase, name in PER_STEP]
    dumps = dumps_of_segment(job.segment_steps, job)
    found += [_measure(records, key, name, _sum_of(phase, dumps)) for key, phase, name in PER_DUMP]
    found += [_measure(records, key, name, _sum_of(phase, 1)) for key, phase, name in PER_SEGMENT]
    found.append(_measure(records, "segment", f"all of {job.segment_steps} steps", _length))
    return {measure.key: measure for measure in found}


def dumps_of_segment(steps: int, job: Job) -> int:
    return sum(job.dumps(step + 1) for step in range(steps))


def _measure(records: dict[str, Records], key: str, name: str, seconds: Callable[[dict], float]) -> Measure:
    values = {}
    for way in WAYS:
        by_rank = [[1e3 * seconds(segment) for segment in r["segments"][WARM_UP:]] for r in records[way].results]
        values[way] = [statistics.mean(segments) for segments in zip(*by_rank, strict=True)]
    return Measure(key, name, **values)


def _sum_of(phase: str, times: int) -> Callable[[dict], float]:
    return lambda segment: sum(segment["phases"].get(phase, [])) / times


def _length(segment: dict) -> float:
    return (segment["end_ns"] - segment["begin_ns"]) * 1e-9


def drained_s(records: Records) -> list[float]:
    """For each checkpoint: seconds from the start of its save until all ranks' parts were in the slow tier."""
    found = []
    segments = [result["segments"][WARM_UP:] for result in records.results]
    spans = list(records.spans().values())
    for number in range(len(segments[0])):
        begins, ends = [], []
        for of_rank, spans_of_rank in zip(segments, spans, strict=True):
            window = of_rank[number]
            inside = [s for s in spans_of_rank if window["begin_ns"] <= s[2] <= window["end_ns"]]
            begins += [s[2] for s in inside if s[1] == "application" and s[0] == "checkpoint"]
            ends += [s[3] for s in inside if s[1] == "checkpoint"]
        if begins and ends:
            found.append((max(ends) - min(begins)) * 1e-9)
    return found


def tier_bytes(records: Records, kind: str) -> float:
    """Bytes through the slow tier in a segment, over all ranks and threads, as the emulated device counts them."""
    return statistics.median(
        max(result["segments"][n][f"tier_{kind}_bytes"] for result in records.results)
        for n in range(WARM_UP, len(records.results[0]["segments"]))
    )


def round_rate(rate: float, least: float) -> int:
    """The nearest of …, 10, 20, 50, 100, 200, … to a rate, by ratio."""
    rate = max(rate, least)
    power = 10.0 ** math.floor(math.log10(rate))
    return round(min((step * power for step in (1, 2, 5, 10)), key=lambda r: abs(math.log(r / rate))))


def timeline(records: dict[str, Records]) -> dict:
    """The last segment of each way: spans per rank and lane, in milliseconds since the segment's start."""
    found = {}
    for way in WAYS:
        rows: dict[tuple[int, str], list[tuple[str, float, float]]] = {}
        for result in records[way].results:
            rank, segment = result["rank"], result["segments"][-1]
            for name, lane, begin, end in records[way].spans()[rank]:
                if begin < segment["begin_ns"] or begin > segment["end_ns"]:
                    continue
                span = ((begin - segment["begin_ns"]) * 1e-6, (end - segment["begin_ns"]) * 1e-6)
                rows.setdefault((rank, lane), []).append((name, *span))
        found[way] = {
            "length_ms": max(_length(result["segments"][-1]) for result in records[way].results) * 1e3,
            "rows": [{"rank": rank, "lane": lane, "spans": _merged(spans)} for (rank, lane), spans in rows.items()],
        }
    return found


def _merged(spans: list[tuple[str, float, float]]) -> list[tuple[str, float, float]]:
    """Merges neighbouring spans of one name if the gap between them is too small to see."""
    merged: list[tuple[str, float, float]] = []
    for name, begin, end in sorted(spans, key=lambda s: s[1]):
        if merged and merged[-1][0] == name and begin - merged[-1][2] < 0.5:
            merged[-1] = (name, merged[-1][1], max(end, merged[-1][2]))
        else:
            merged.append((name, begin, end))
    return merged
