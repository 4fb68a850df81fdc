"""Results of `penstock bench overlap`: overlap, time to solution, and the plots of the split-tree paper."""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from penstock import model
from penstock.bench.runner import Report, left_out, seconds_text
from penstock.drawing import pyplot, save
from penstock.text_table import columns

#: Operations that the split-tree model does not describe.
WITHOUT_TREE = ("allgather", "alltoall")
Case = tuple[str, int, float]  #: (operation, bytes, ratio).


def overlap_imb(alone_s: float, computation_s: float, overlapped_s: float) -> float:
    """Overlap in percent as IMB-NBC defines it: time saved / the longer of the two."""
    saved = (alone_s + computation_s - overlapped_s) / max(alone_s, computation_s)
    return 100 * max(0.0, min(1.0, saved))


def overlap_osu(alone_s: float, computation_s: float, overlapped_s: float) -> float:
    """Overlap in percent as the OSU benchmarks define it: the share of communication hidden by computation."""
    return max(0.0, 100 * hidden_share(alone_s, computation_s, overlapped_s))


def hidden_share(alone_s: float, computation_s: float, overlapped_s: float) -> float:
    """1: the collective costs nothing. Negative: it delays the computation by more than it takes alone."""
    return 1 - (overlapped_s - computation_s) / alone_s


@dataclass(frozen=True)
class Point:
    """One mode of computation plus collective on one number of ranks. Seconds of the slowest rank."""

    operation: str
    bytes: int
    ratio: float
    ranks: int
    peer: str
    mode: str  #: "blocking" (collective, then computation) or "nonblocking"; for Penstock "auto", "split 0", …
    plan: str  #: The plan that ran, for Penstock.
    alone_s: float  #: The collective, started and waited for at once.
    computation_s: float
    total_s: float  #: Both: the time to solution.
    overlap_imb_percent: float
    overlap_osu_percent: float
    hidden_share: float  #: As the OSU benchmarks define it, but below 0 where the collective delays the computation.

    @property
    def case(self) -> Case:
        return self.operation, self.bytes, self.ratio

    @property
    def is_penstock(self) -> bool:
        return self.peer.startswith("penstock")

    @property
    def is_automatic(self) -> bool:
        """Whether this is Penstock with default settings."""
        return self.peer.startswith("penstock/") and self.mode == "auto"


def points(report: Report) -> list[Point]:
    keys = ("operation", "bytes", "ranks", "measured", "split", "ratio")
    seconds = {
        (peer, *(row.setting[key] for key in keys)): value for row in report.rows for peer, value in row.seconds.items()
    }
    found = []
    for row in report.rows:
        operation, size_bytes, ranks, measured, split, ratio = (row.setting[key] for key in keys)
        if measured not in ("sequence", "overlapped"):
            continue
        for peer, total_s in row.seconds.items():
            here = (peer, operation, size_bytes, ranks)
            alone = ("alone", split, 0) if measured == "overlapped" else ("blocking", "", 0)
            alone_s = seconds[here + alone]
            computation = ("computation", "", ratio)
            times = (alone_s, seconds[here + computation], total_s)
            found.append(
                Point(
                    *(operation, size_bytes, ratio, ranks, peer),
                    mode="blocking" if measured == "sequence" else f"split {split}" if split.isdigit() else split,
                    plan=row.setting["plan"],
                    alone_s=alone_s,
                    computation_s=times[1],
                    total_s=total_s,
                    overlap_imb_percent=overlap_imb(*times),
                    overlap_osu_percent=overlap_osu(*times),
                    hidden_share=hidden_share(*times),
                )
            )
    return sorted(found, key=lambda point: (*point.case, point.ranks, report.peers.index(point.peer), point.mode))


def _best(among: Iterable[Point]) -> Point | None:
    return min(among, key=_total_s, default=None)


def _total_s(point: Point) -> float:
    return point.total_s


def summarize(report: Report) -> dict[str, Any]:
    """The points; for each operation, size and ratio the comparison of everyone's best; and the cost of being idle.

    In a comparison, "penstock" is Penstock with split "auto", and "speedup" its speed relative to the best peer.
    "..._by_ranks" has one entry per number of ranks. "model_s" is the prediction of the split-tree model.
    """
    every = points(report)
    comparisons = [
        _compare(case, list(group), report.parameters["all_cores"])
        for case, group in itertools.groupby(every, key=lambda point: point.case)
    ]
    return {
        "points": [dataclasses.asdict(point) for point in every],
        "comparisons": comparisons,
        "idle_by_ranks": _idle(report),
        "progress_by_ranks": {
            row.setting["ranks"]: row.setting["plan"] for row in report.rows if row.setting["measured"] == "idle"
        },
    }


def _idle(report: Report) -> dict[str, dict[int, float]]:
    """Peer → ranks → time ratio of a computation with an open idle communicator to one without."""
    seconds = {
        (row.setting["measured"], peer, row.setting["ranks"]): value
        for row in report.rows
        for peer, value in row.seconds.items()
    }
    idle: dict[str, dict[int, float]] = {}
    for measured, peer, ranks in sorted(seconds):
        if measured == "idle":
            by_ranks = idle.setdefault(peer, {})
            by_ranks[ranks] = seconds["idle", peer, ranks] / seconds["closed", peer, ranks]
    return idle


def _compare(case: Case, among: list[Point], all_cores: int) -> dict[str, Any]:
    own = [point for point in among if point.is_penstock]
    auto = [point for point in own if point.is_automatic]
    peers = [point for point in among if not point.is_penstock]
    best = {
        "penstock": _best(auto),
        "penstock_any_mode": _best(own),
        "peer": _best(peers),
        "peer_nonblocking": _best(point for point in peers if point.mode != "blocking"),
    }
    ours = best["penstock"]
    speedup = {
        key: theirs.total_s / ours.total_s
        for key in ("peer", "peer_nonblocking")
        if (theirs := best[key]) is not None and ours is not None
    }
    by_ranks: dict[str, dict[int, float]] = {key: {} for key in _BY_RANKS}
    for ranks in sorted({point.ranks for point in auto}):
        chosen = min((point for point in auto if point.ranks == ranks), key=_total_s)
        blocking = [point.alone_s for point in peers if point.ranks == ranks and point.mode == "blocking"]
        ways = [point.total_s for point in own if point.ranks == ranks and point.peer == chosen.peer]
        if blocking:
            by_ranks["alone_to_blocking"][ranks] = chosen.alone_s / min(blocking)
        by_ranks["total_to_computation"][ranks] = chosen.total_s / chosen.computation_s
        by_ranks["auto_to_best"][ranks] = chosen.total_s / min(ways)
    operation, size_bytes, ratio = case
    return {
        "operation": operation,
        "bytes": size_bytes,
        "ratio": ratio,
        "best": {key: point and dataclasses.asdict(point) for key, point in best.items()},
        "speedup": speedup,
        **{f"{key}_by_ranks": value for key, value in by_ranks.items()},
        "model_s": _predictions(own, all_cores),
    }


def _predictions(own: list[Point], all_cores: int) -> dict[str, dict[int, float]]:
    """Mode → ranks → equation 5, with the transfer time of a buffer taken from the collectives alone."""
    trees = {mode: int(mode.split()[1]) for mode in sorted({point.mode for point in own}) if mode.startswith("split ")}
    measured = [point for point in own if point.mode in trees and 1 < point.ranks <= all_cores]
    if not measured or measured[0].operation in WITHOUT_TREE:
        return {}
    operation = measured[0].operation
    by_ranks = {at.n: at for at in model.split(all_cores, operation).points}
    unit_s = statistics.median(
        point.alone_s / _of_split(by_ranks[point.ranks].t_communication, trees[point.mode]) for point in measured
    )
    computation_s = statistics.median(point.computation_s * point.ranks for point in measured) / all_cores
    advice = model.split(all_cores, operation, ratio=computation_s / (unit_s * by_ranks[all_cores].t_blocking))
    ranks = range(min(point.ranks for point in measured), max(point.ranks for point in measured) + 1)
    points = [at for at in advice.points if at.n in ranks]
    return {mode: {at.n: unit_s * _of_split(at.t, split) for at in points} for mode, split in trees.items()}


def _of_split(times: list[float], split: int) -> float:
    return times[min(split, len(times) - 1)]


_BY_RANKS = {
    "alone_to_blocking": "collective alone : the peers' fastest blocking one",
    "total_to_computation": "computation and collective : computation",
    "auto_to_best": "auto : best mode",
}


def _ratios(by_ranks: dict[int, float]) -> str:
    return ", ".join(f"{ratio:.3f} on {ranks}" for ranks, ratio in sorted(by_ranks.items()))


def table(report: Report) -> str:
    """All points, then all comparisons."""
    lines = [
        [
            "operation",
            "bytes",
            "ratio",
            "ranks",
            "peer",
            "mode",
            "alone",
            "computation",
            "total",
            "IMB%",
            "OSU%",
            "hidden",
            "plan",
        ]
    ]
    for point in points(report):
        times = [seconds_text(value) for value in (point.alone_s, point.computation_s, point.total_s)]
        percents = [f"{value:.0f}" for value in (point.overlap_imb_percent, point.overlap_osu_percent)]
        where = [point.operation, str(point.bytes), f"{point.ratio:g}", str(point.ranks), point.peer, point.mode]
        lines.append([*where, *times, *percents, f"{point.hidden_share:.2f}", point.plan])
    text = [columns(lines, keys=6)]
    for comparison in report.summary["comparisons"]:
        text += ["", f"{comparison['operation']}, {comparison['bytes']} bytes, ratio {comparison['ratio']:g}"]
        for key, point in comparison["best"].items():
            if point is not None:
                whose = f"{point['peer']} {point['mode']}, {point['ranks']} ranks"
                speedup = comparison["speedup"].get(key)
                faster = f"; Penstock is {speedup:.2f} x as fast" if speedup else ""
                text.append(f"  best {key.replace('_', ' ')}: {seconds_text(point['total_s'])} ({whose}){faster}")
        for key, says in _BY_RANKS.items():
            if comparison[key + "_by_ranks"]:
                text.append(f"  {says}: {_ratios(comparison[key + '_by_ranks'])}")
    text.append("")
    for peer, by_ranks in report.summary["idle_by_ranks"].items():
        text.append(f"{peer}, computation beside an idle communicator : without one: {_ratios(by_ranks)}")
    text += [f"{ranks} ranks: {how}" for ranks, how in sorted(report.summary["progress_by_ranks"].items())]
    return "\n".join([*text, *left_out(report)])


# -- plots ------------------------------------------------------------------------------------------------------------


def plot(report: Report, path: str) -> None:
    """For each operation, size and ratio: the splits (split-tree paper, figures 5 and 6) and all MPIs (figure 7)."""
    plt = pyplot()
    every = points(report)
    cases = list(dict.fromkeys(point.case for point in every))
    figure, axes = plt.subplots(len(cases), 2, figsize=(17, 4.4 * len(cases)), squeeze=False, constrained_layout=True)
    for (left, right), case in zip(axes, cases):
        here = [point for point in every if point.case == case]
        operation, size_bytes, ratio = case
        title = f"{operation}, {size_bytes / (1 << 20):g} MiB" + (f", computation x {ratio:g}" if ratio != 1 else "")
        (comparison,) = (c for c in report.summary["comparisons"] if (c["operation"], c["bytes"], c["ratio"]) == case)
        _plot_splits(left, here, comparison["model_s"])
        _plot_peers(right, here)
        left.set_title(f"{title}: tree levels on the application's cores")
        right.set_title(f"{title}: all MPIs")
        for axis in (left, right):
            axis.set(xlabel=f"ranks, on {report.parameters['all_cores']} cores", ylabel="time to solution, ms")
            axis.set_xticks(sorted({point.ranks for point in here}))
            axis.grid(alpha=0.3)
            axis.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    save(figure, path)
    plt.close(figure)


def _curve(axis: Any, among: list[Point], value: str, **style: Any) -> None:
    among = sorted(among, key=lambda point: point.ranks)
    axis.plot([point.ranks for point in among], [1e3 * getattr(point, value) for point in among], **style)


def _plot_splits(axis: Any, here: list[Point], model_s: dict[str, dict[int, float]]) -> None:
    peer = next((point.peer for point in here if point.peer.startswith("penstock/")), None)
    own = [point for point in here if point.peer == peer]
    modes = sorted({point.mode for point in own} - {"auto", "blocking"}, key=lambda mode: (" " not in mode, mode))
    colors = {mode: f"C{number}" for number, mode in enumerate(modes)}
    for mode in modes:
        label = mode.replace("split ", "S = ")
        among = [point for point in own if point.mode == mode]
        _curve(axis, among, "total_s", color=colors[mode], marker="o", ms=4, lw=1.3, label=label)
        if mode in model_s:
            predicted = model_s[mode]
            axis.plot(predicted.keys(), [1e3 * value for value in predicted.values()], color=colors[mode], ls=":", lw=1)
    _curve(axis, [p for p in own if p.mode == "auto"], "total_s", color="black", marker="D", ms=5, lw=2, label="auto")
    blocking = [point for point in own if point.mode == "blocking"]
    style = {"color": "gray", "marker": "s", "ms": 4}
    _curve(axis, blocking, "total_s", **style, label="blocking, then computation")
    _curve(axis, blocking, "computation_s", color="gray", ls="--", marker="_", ms=8, label="computation alone")
    if model_s:
        axis.plot([], [], color="black", ls=":", lw=1, label="model")
    # If one core carries the whole tree, S = 0 is far off. Show what is below twice the blocking mode.
    top = max((2e3 * point.total_s for point in blocking), default=math.inf)
    axis.set_ylim(0, min(top, axis.get_ylim()[1]))


def _plot_peers(axis: Any, here: list[Point]) -> None:
    own = [point for point in here if point.is_automatic]
    peers = [point for point in here if not point.is_penstock]
    colors: dict[str, str] = {}
    for peer, mode in dict.fromkeys((point.peer, point.mode) for point in peers):
        program, mpi = peer.split("/")
        style = {"blocking": "--", "nonblocking": "-"}[mode] if program == "native" else ":"
        marker = "^" if program == "async" else {"blocking": "s", "nonblocking": "o"}[mode]
        label = f"{_MPI_NAMES[mpi]}, {mode if program == 'native' else 'asynchronous progress'}"
        among = [point for point in peers if (point.peer, point.mode) == (peer, mode)]
        color = colors.setdefault(mpi, f"C{len(colors)}")
        _curve(axis, among, "total_s", color=color, ls=style, marker=marker, ms=3.5, lw=1.3, label=label)
    _curve(axis, own, "total_s", color="black", marker="D", ms=5, lw=2, label="Penstock, auto")
    _curve(axis, own, "computation_s", color="gray", ls="--", marker="_", ms=8, label="computation alone")
    axis.set_yscale("log")
    axis.yaxis.get_major_locator().set_params(subs=(1, 2, 5))
    axis.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.minorticks_off()


_MPI_NAMES = {"mpich": "MPICH", "openmpi": "Open MPI", "impi": "Intel MPI"}
