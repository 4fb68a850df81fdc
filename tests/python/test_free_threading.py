"""Objects that several threads use at once. With a GIL these tests show little; the build for a free-threaded Python needs them."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable

import numpy as np
import penstock as ps
import pytest

THREADS = 8


def on_threads(*work: Callable[[], object]) -> None:
    """Runs each function on a thread of its own, all at once. Raises the first failure."""
    together = threading.Barrier(len(work))
    failures: list[BaseException] = []

    def run(function: Callable[[], object]) -> None:
        together.wait()
        try:
            function()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(function,)) for function in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


@pytest.mark.skipif(not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this Python always has a GIL")
def test_the_extension_leaves_the_gil_disabled() -> None:
    program = "import sys, penstock._penstock; print(sys._is_gil_enabled())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False", done.stderr


def test_threads_make_and_drop_functions_of_datasets() -> None:
    def work() -> None:
        for i in range(5):
            data = ps.Dataset.from_arrays({"x": np.arange(16.0)}).map(lambda sample, i=i: {"x": sample["x"] + i})
            total = sum(batch["x"].sum() for batch in data.batch(4))
            assert total == 120 + 16 * i

    on_threads(*[work] * THREADS)


def test_an_iterator_is_closed_while_other_threads_read_it() -> None:
    for _ in range(3):
        data = ps.Dataset.from_arrays({"x": np.arange(4096.0)}).map(lambda sample: sample).batch(4)
        batches = iter(data)
        next(batches)

        def read(batches=batches) -> None:
            for _ in range(200):
                try:
                    next(batches)
                except (ps.Error, StopIteration, ValueError):
                    return

        on_threads(read, read, read, batches.close)


def test_threads_write_to_one_blob() -> None:
    blob = ps.Store("memory:threads").create("field", size=64 * THREADS)

    def work(number: int) -> None:
        for i in range(10):
            blob.write([(64 * number, bytes([i]) * 64)])

    on_threads(*[lambda number=number: work(number) for number in range(THREADS)])
    assert blob.latest == 10 * THREADS
    buffer = bytearray(64 * THREADS)
    blob.read([(0, buffer)])
    assert buffer == bytes([9]) * (64 * THREADS)


def test_threads_trace_and_reuse_layouts() -> None:
    layout = ps.Layout.block_cyclic((64, 64), (8, 8), (2, 2))
    expected = layout.part_shapes(3)

    def work() -> None:
        for _ in range(50):
            with ps.trace.span("work"):
                assert layout.part_shapes(3) == expected

    ps.trace.start()
    try:
        on_threads(*[work] * THREADS)
    finally:
        ps.trace.stop()
