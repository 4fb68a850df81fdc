"""When a save is due: signals, the interval for the least time lost, and the handlers that were there before."""

from __future__ import annotations

import gc
import math
import pathlib
import signal
import subprocess
import sys
import textwrap
import threading

import numpy as np
import penstock as ps
import pytest
from penstock.checkpoint_schedule import Schedule, Signals, interval_s


@pytest.fixture
def url(tmp_path: pathlib.Path) -> str:
    return f"file://{tmp_path}/slow"


def test_a_signal_makes_the_next_step_due_once(url):
    before = signal.getsignal(signal.SIGUSR1)
    with ps.Checkpointer(url, save_on_signal=(signal.SIGUSR1, signal.SIGTERM)) as ck:
        assert not ck.due(1)
        assert ck.signals == frozenset()
        signal.raise_signal(signal.SIGUSR1)
        signal.raise_signal(signal.SIGUSR1)
        assert ck.signals == frozenset()  # only due() agrees
        assert ck.due(2)
        assert ck.signals == {signal.SIGUSR1}
        assert not ck.due(3)
        signal.raise_signal(signal.SIGTERM)
        assert ck.due(4)
        assert ck.signals == {signal.SIGUSR1, signal.SIGTERM}
        assert not ck.due(5)
    assert signal.getsignal(signal.SIGUSR1) is before
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_handlers_come_back_unless_others_were_installed_since(url, tmp_path):
    heard = []
    old = signal.signal(signal.SIGUSR1, lambda number, frame: heard.append("old"))
    try:
        ck = ps.Checkpointer(url, save_on_signal=[signal.SIGUSR1, signal.SIGUSR2])
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)
        signal.raise_signal(signal.SIGUSR1)
        assert heard == []
        ck.close()
        ck.close()
        signal.raise_signal(signal.SIGUSR1)
        assert heard == ["old"]
        assert signal.getsignal(signal.SIGUSR2) is signal.SIG_IGN
        # One that was never closed, and one that could not be opened.
        ck = ps.Checkpointer(url, save_on_signal=[signal.SIGUSR1])
        del ck
        gc.collect()
        (tmp_path / "file").write_text("")
        with pytest.raises(ps.Error):
            ps.Checkpointer(f"file://{tmp_path}/file", save_on_signal=[signal.SIGUSR1])
        signal.raise_signal(signal.SIGUSR1)
        assert heard == ["old", "old"]
    finally:
        signal.signal(signal.SIGUSR1, old)
        signal.signal(signal.SIGUSR2, signal.SIG_DFL)


def test_what_cannot_be_handled_is_told(url):
    for wrong, text in [
        ({"save_on_signal": ["SIGTERM"]}, "save_on_signal has 'SIGTERM'; expected signals"),
        ({"save_on_signal": [1000]}, "save_on_signal has 1000; expected signals"),
        (
            {"save_on_signal": [signal.SIGUSR1, signal.SIGKILL]},
            "save_on_signal has SIGKILL, which no program can handle",
        ),
        ({"mtbf_s": 0}, "mtbf_s is 0; expected seconds above 0"),
        ({"save_every": 0}, "save_every is 0; expected a number of steps from 1 on"),
        ({"drain_bytes_per_s": -1.0}, "drain_bytes_per_s is -1.0; expected bytes per second above 0"),
        ({"drain_bytes_per_s": 1e9}, "without a burst buffer"),
    ]:
        with pytest.raises(ps.Error) as caught:
            ps.Checkpointer(url, **wrong)
        assert text in str(caught.value)
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL
    errors: list[str] = []

    def elsewhere() -> None:
        try:
            ps.Checkpointer(url, save_on_signal=[signal.SIGUSR1])
        except ps.Error as error:
            errors.append(str(error))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert "in a thread other than the main one" in errors[0]


def test_steps_and_failures_decide_together(url):
    with ps.Checkpointer(url, save_every=10) as ck:
        assert [step for step in range(25) if ck.due(step)] == [0, 10, 20]
        assert ck.interval_s is None


def test_the_interval_loses_the_least_time():
    """Against the expected time of Daly's model, equation 21, found by search."""

    def total(interval: float, cost: float, mtbf: float) -> float:
        return mtbf * math.expm1((interval + cost) / mtbf) / interval

    for cost, mtbf in [(1.0, 3600.0), (10.0, 86400.0), (60.0, 3600.0), (0.05, 1e6), (100.0, 1000.0)]:
        found = interval_s(cost, mtbf)
        assert found == pytest.approx(math.sqrt(2 * cost * mtbf), rel=0.35)  # Young's
        best = min(total(x, cost, mtbf) for x in np.geomspace(cost / 10, mtbf * 10, 20_000))
        assert total(found, cost, mtbf) <= best * 1.001
    assert interval_s(10.0, 2.0) == 2.0


def test_saves_become_due_as_their_cost_says():
    now = 100.0
    schedule = Schedule((), 3600.0, None, lambda: now)
    alone = lambda flags: flags  # noqa: E731
    assert schedule.interval_s is None
    assert schedule.due(0, 0, alone)  # nothing is saved yet
    schedule.saved(2.0)
    interval = interval_s(2.0, 3600.0)
    assert schedule.interval_s == interval
    now += interval - 0.01
    assert not schedule.due(1, 0, alone)
    now += 0.02
    assert schedule.due(2, 0, alone)
    # One slow save does not change what a save usually takes; more of them do.
    for cost, median in [(50.0, 26.0), (2.0, 2.0), (50.0, 26.0), (50.0, 50.0), (50.0, 50.0)]:
        schedule.saved(cost)
        assert schedule.interval_s == interval_s(median, 3600.0)
    # The clock of rank 0 alone counts.
    now += 1e6
    assert not schedule.due(3, 1, alone)
    assert schedule.due(3, 0, alone)


def test_a_signal_during_the_exchange_counts_for_the_next_one():
    signals = Signals([signal.SIGUSR1])
    schedule = Schedule((), None, None)
    schedule.signals = signals

    def exchange(flags: int) -> int:
        signal.raise_signal(signal.SIGUSR1)
        return flags

    try:
        assert not schedule.due(0, 0, exchange)
        assert schedule.due(1, 0, lambda flags: flags)
        assert not schedule.due(2, 0, lambda flags: flags)
    finally:
        signals.restore()


CHILD = """
    import signal, sys
    import numpy as np
    import penstock as ps

    with ps.Checkpointer(sys.argv[1], save_on_signal=[signal.SIGTERM]) as ck:
        step = 0
        print("ready", flush=True)
        while signal.SIGTERM not in ck.signals:
            step += 1
            if ck.due(step):
                ck.save(step, {"a": np.full(1000, step)})
    print("saved", step, flush=True)
"""


def test_a_job_that_is_asked_to_end_saves_and_ends(url, tmp_path):
    script = tmp_path / "child.py"
    script.write_text(textwrap.dedent(CHILD))
    child = subprocess.Popen([sys.executable, script, url], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    child.send_signal(signal.SIGTERM)
    told, step = child.communicate()[0].split()
    assert child.returncode == 0
    assert told == "saved"
    with ps.Checkpointer(url) as ck:
        found, tree = ck.restore()
    assert found == int(step)
    assert (tree["a"] == found).all()


AT_EXIT = """
    import signal, sys
    import numpy as np
    import penstock as ps

    ck = ps.Checkpointer(sys.argv[1], save_on_signal=[signal.SIGTERM])

    class Native:
        def __getattr__(self, name):
            return getattr(native, name)

        def finish(self):
            signal.raise_signal(signal.SIGTERM)  # while the last save is written
            native.finish()

    native, ck._native = ck._native, Native()
    ck.save(1, {"a": np.ones(1000)})
"""


def test_a_signal_during_the_last_write_does_not_end_it(url, tmp_path):
    script = tmp_path / "child.py"
    script.write_text(textwrap.dedent(AT_EXIT))
    subprocess.run([sys.executable, script, url], check=True)
    with ps.Checkpointer(url) as ck:
        assert ck.restore()[0] == 1
