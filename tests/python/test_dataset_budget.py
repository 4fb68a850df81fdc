"""budget(): threads and memory of an iteration."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import penstock as ps
import pytest

COUNT = """
import os, sys, threading
import penstock as ps
os.sched_setaffinity(0, {int(sys.argv[1])} if sys.argv[1] else os.sched_getaffinity(0))
where = set()
data = ps.Dataset.from_source(range(20)).map(lambda x: where.add(frozenset(os.sched_getaffinity(0))) or x).batch(5)
assert sum(len(batch) for batch in data) == 20
print(data.stats.threads, len(where), sorted(where.pop()))
"""


def threads_where(cpu: str = "", **environment: str) -> tuple[int, list[int]]:
    """(threads, the CPUs on which they may run) of a dataset in a new process that is bound to a CPU."""
    out = subprocess.run(
        [sys.executable, "-c", COUNT, cpu],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    ).stdout
    threads, places, cpus = out.split(maxsplit=2)
    assert places == "1"
    return int(threads), [int(cpu) for cpu in cpus.strip("[]\n").split(",")]


def test_by_default_there_is_a_thread_for_each_core_of_the_process():
    mine = sorted(os.sched_getaffinity(0))
    threads, cpus = threads_where()
    assert cpus == mine
    assert 1 <= threads <= len(mine)  # a core may have several hardware threads
    assert threads_where(str(mine[-1])) == (1, [mine[-1]])


def test_the_option_the_budget_and_calls_in_parallel_set_the_number():
    assert threads_where(PENSTOCK_IO_THREADS="5")[0] == 5
    base = ps.Dataset.from_source(range(8))

    def run(data: ps.Dataset) -> int:
        batches = data.batch(4)
        list(batches)
        return batches.stats.threads

    assert run(base.map(lambda x: x, num_parallel_calls=3)) == 3
    assert run(base.map(lambda x: x, num_parallel_calls=3).budget(cpus=2)) == 2
    assert run(base.budget(cpus=7).map(lambda x: x)) == 7


@pytest.mark.parametrize("how", [{"cpus": 0}, {"cpus": 2000}, {"cpus": 1.5}, {"ram_bytes": 0}, {"ram_bytes": -1}])
def test_budgets_that_make_no_sense_are_refused(how):
    with pytest.raises(ps.Error, match=next(iter(how))):
        ps.Dataset.from_source(range(8)).budget(**how)


def test_trees_stay_in_the_budget_and_larger_ones_pass():
    sizes = [1000] * 50 + [100_000] + [1000] * 50

    class Rows:
        def __len__(self) -> int:
            return len(sizes)

        def __getitem__(self, index: int) -> dict[str, object]:
            return {"x": np.full(sizes[index], index % 100, np.uint8), "id": index}

    data = ps.Dataset.from_source(Rows()).map(lambda s: {**s, "y": s["x"][:10]}).budget(cpus=4, ram_bytes=20_000)
    seen = [int(i) for batch in data.pad().batch(2).prefetch(50) for i in batch["id"]]
    assert seen == list(range(len(sizes)))
    small = (
        ps.Dataset.from_arrays(np.zeros((300, 1000), np.uint8)).budget(cpus=4, ram_bytes=50_000).batch(3).prefetch(50)
    )
    assert sum(len(batch) for batch in small) == 300
    assert 3000 <= small.stats.held_bytes <= 55_000
    assert "held at a time" in small.report()
