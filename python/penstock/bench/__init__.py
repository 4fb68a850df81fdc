"""Benchmarks side by side with the installed peers.

One runner (`runner.py`) serves all benchmarks. It launches each peer as a job of its own under each installed MPI, repeats
the jobs interleaved, and reports medians, ratios and a plot. A benchmark is a module of this package and a line of `CASES`:
it lists the peers, and measures one of them in a job.
"""

from __future__ import annotations

#: Name → module. It defines SUMMARY, OPTIONS, RANKS (numbers, or a function of the cores), programs(mpi) and
#: measure(program, parameters). Optional: missing(mpi) (peer → why it is not among the programs), CHOICES (allowed words of
#: options), MINUTES for all repetitions, prepare(parameters, jobs) before the first, and summarize(report), table(report)
#: and plot(report, path) after the last.
CASES = {
    "collectives": "penstock.bench.collectives",
    "overlap": "penstock.bench.overlap",
    "redistribute": "penstock.bench.redistribute",
    "ingest": "penstock.bench.ingest",
    "store": "penstock.bench.store",
    "checkpoint": "penstock.bench.checkpoint",
    "torch": "penstock.bench.torch",
    "bootstrap": "penstock.bench.bootstrap",
    "jax": "penstock.bench.jax",
}
