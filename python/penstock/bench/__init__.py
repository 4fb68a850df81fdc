"""Benchmarks side by side with the peers that are installed.

One runner (`runner.py`) serves all of them: it launches every peer as a job of its own under each installed MPI,
repeats the jobs interleaved, and reports medians, ratios and a plot. A benchmark is a module of this package and one
line of `CASES`; it says which peers there are and, in a job, measures one of them.
"""

from __future__ import annotations

#: Name → module, which defines SUMMARY, OPTIONS, RANKS (numbers, or a function of the cores), programs(mpi) and
#: measure(program, parameters); and where it wants to, missing(mpi) (peer → why it is not among those programs), CHOICES
#: (what options of words may be), MINUTES for all repetitions, prepare(parameters, jobs) before the first, and
#: summarize(report), table(report) and plot(report, path) after the last.
CASES = {
    "collectives": "penstock.bench.collectives",
    "overlap": "penstock.bench.overlap",
    "redistribute": "penstock.bench.redistribute",
    "store": "penstock.bench.store",
    "torch": "penstock.bench.torch",
}
