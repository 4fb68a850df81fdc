"""Functions of a dataset in worker processes: the same samples, in shared memory, whatever goes wrong there."""

from __future__ import annotations

import ctypes
import functools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import penstock as ps
import pytest
from penstock.dataset import shared_arrays


def elsewhere(sample: dict[str, Any]) -> dict[str, Any]:
    return {**sample, "x": 2 * sample["x"], "process": os.getpid(), "text": sample["text"] * 2}


def in_place(array: np.ndarray, label: int) -> tuple[np.ndarray, int]:
    array += 1
    return array, label + os.getpid() * 0


def larger(sample: np.ndarray) -> np.ndarray:
    return np.repeat(sample, int(sample[0]) * 1000)


def strided(sample: dict[str, Any]) -> dict[str, Any]:
    return {"x": sample["x"][:, ::2].T, "name": b"n" * 10_000}


def drawn(sample: Any, rng: np.random.Generator) -> Any:
    return sample + rng.integers(0, 1000, 4)


def failing(sample: np.ndarray) -> np.ndarray:
    if sample[0] == 3:
        raise ValueError("three is bad")
    if sample[0] == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return sample


def hang_here(gate: Path, sample: np.ndarray) -> np.ndarray:
    if sample[0] == 2:
        gate.touch()
        time.sleep(1000)
    return sample


def is_odd(sample: dict[str, Any]) -> Any:
    return sample["x"][0, 0] % 2


def rows_from_there(sample: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for row in sample["x"][: sample["number"] % 3]:
        yield {"x": row, "process": os.getpid()}


def label_in_rows(array: np.ndarray, label: int) -> list[dict[str, Any]]:
    return [{"x": array[:label], "label": label}]


class Trees:
    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": np.full((6, 8), index, np.float32), "text": f"{index}.", "number": index}


def test_trees_go_there_and_back() -> None:
    data = ps.Dataset.from_source(Trees()).map(elsewhere, processes=2).batch(6)
    for epoch in range(2):
        batches = list(data)
        assert np.concatenate([b["number"] for b in batches]).tolist() == list(range(24)), epoch
        assert np.concatenate([b["x"] for b in batches])[:, 3, 3].tolist() == [2.0 * i for i in range(24)]
        assert [text for b in batches for text in b["text"]] == [f"{i}.{i}." for i in range(24)]
        made_by = {int(process) for b in batches for process in b["process"]}
        assert 1 <= len(made_by) <= 2
        assert os.getpid() not in made_by


def test_samples_are_filtered_and_multiplied_there() -> None:
    base = ps.Dataset.from_source(Trees()).shuffle(3)
    data = base.filter(is_odd, processes=2).flat_map(rows_from_there, processes=2).batch(6)
    for epoch in range(2):
        batches = list(data)
        order = [int(i) for i in base.indices(epoch) if i % 2]
        assert np.concatenate([b["x"][:, 0] for b in batches]).tolist() == [i for i in order for _ in range(i % 3)]
        assert os.getpid() not in {int(process) for b in batches for process in b["process"]}
    samples = [np.full(8, i, np.uint8).tobytes() for i in range(6)]
    files = (
        ps.Dataset.from_bytes(samples, range(6)).decode_raw((8,)).flat_map(label_in_rows, processes=1).pad().batch(6)
    )
    [batch] = files
    assert batch["label"].tolist() == list(range(6))
    assert batch["x"].shape == (6, 5)


def test_what_flat_map_made_is_multiplied_again_there() -> None:
    data = ps.Dataset.from_source(Trees()).flat_map(lambda s: [s, s]).filter(is_odd, processes=1).batch(24)
    [batch] = data
    assert batch["number"].tolist() == [i for i in range(24) if i % 2 for _ in range(2)]


def test_arrays_with_labels_are_changed_in_place() -> None:
    samples = [np.full(1000, i, np.uint8).tobytes() for i in range(20)]
    data = ps.Dataset.from_bytes(samples, range(20)).decode_raw((1000,)).map(in_place, processes=2).batch(5)
    found = [(int(row[999]), int(label)) for arrays, labels in data for row, label in zip(arrays, labels)]
    assert found == [(i + 1, i) for i in range(20)]


def test_results_may_be_larger_than_before_and_of_any_strides() -> None:
    grown = ps.Dataset.from_arrays(np.arange(1, 20)[:, None]).map(larger, processes=2).pad(0).batch(1)
    assert [(batch.shape[1], int(batch[0, -1])) for batch in grown] == [(1000 * i, i) for i in range(1, 20)]
    for batch in ps.Dataset.from_source(Trees()).map(strided, processes=1).batch(8):
        assert batch["x"].shape == (8, 4, 6)
        assert batch["name"] == [b"n" * 10_000] * 8


def test_random_maps_are_the_same_in_threads_and_processes() -> None:
    base = ps.Dataset.from_arrays(np.zeros((32, 4), np.int64)).shuffle(seed=3)
    in_threads = np.concatenate(list(base.random_map(drawn).batch(8)))
    in_processes = np.concatenate(list(base.random_map(drawn, processes=2).batch(8)))
    assert in_threads.tolist() == in_processes.tolist()


def test_errors_and_deaths_are_errors_of_their_sample() -> None:
    numbers = ps.Dataset.from_arrays(np.arange(12)[:, None]).map(failing, processes=2)
    with pytest.raises(ps.Error, match="three is bad") as raised:
        list(numbers.batch(4))
    assert "in failing" in str(raised.value)
    data = numbers.ignore_errors().batch(4)
    assert np.concatenate(list(data))[:, 0].tolist() == [i for i in range(12) if i not in (3, 5)]
    assert [one.index for one in data.skipped] == [3, 5]
    assert "of failing() ended by signal 9" in data.skipped[1].reason


def test_a_worker_that_hangs_is_ended_and_shows_its_stack(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    data = ps.Dataset.from_arrays(np.arange(6)[:, None]).map(functools.partial(hang_here, gate), processes=1)
    data = data.limits(max_seconds=5).ignore_errors().batch(3).prefetch(2)
    batches = iter(data)
    while not gate.exists():  # only who waits for a batch gives a sample up
        time.sleep(0.01)
    delivered = np.concatenate(list(batches))[:, 0].tolist()
    skipped = {one.index: one.reason for one in data.skipped}
    assert sorted([*delivered, *skipped]) == list(range(6))  # another worker may start more slowly
    assert "hang_here" in skipped[2]
    assert "worker process" in skipped[2]


def shut_and_hang(gate: Path, sample: np.ndarray) -> np.ndarray:
    if sample[0] == 2:
        gate.touch()
        threading.Event().wait()
    return sample


def test_a_worker_may_start_more_slowly_than_a_sample_may_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = tmp_path / "gate"
    slow_start = f"import os, time\nwhile os.path.exists({str(gate)!r}): time.sleep(0.01)\n"
    (tmp_path / "sitecustomize.py").write_text(slow_start)
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(tmp_path), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    )
    data = ps.Dataset.from_arrays(np.arange(100)[:, None])
    data = data.map(functools.partial(shut_and_hang, gate), processes=1).limits(max_seconds=5)
    data = data.ignore_errors().batch(1)
    batches = iter(data)
    while not any("has not started yet" in skipped.reason for skipped in data.skipped):
        next(batches)
    gate.unlink()
    while not len(next(batches)):
        pass


def test_memory_is_used_again_when_nothing_refers_to_it() -> None:
    parts = shared_arrays.SharedMemory(1 << 20)
    first, memory = parts.take(5000)
    second, other = parts.take(5000)
    assert first.begin != second.begin
    view = memoryview(memory)[:10]
    del memory
    third, _third = parts.take(5000)
    assert third.begin not in (first.begin, second.begin), "a view still refers to it"
    view.release()
    del view
    again, _again = parts.take(5000)
    assert again.begin == first.begin
    del other
    parts.take(1 << 22)  # the file grows; what is taken stays


def test_free_memory_is_bounded() -> None:
    parts = shared_arrays.SharedMemory(1 << 20)

    def used_bytes() -> int:
        return 512 * os.fstat(parts.shared.file).st_blocks

    taken = [parts.take(1 << 19) for _ in range(8)]
    for _, memory in taken:
        ctypes.memset(memory, 1, 1 << 19)
    assert used_bytes() == 8 << 19
    del memory
    taken.clear()
    parts.trim()
    assert used_bytes() <= 1 << 20
    again = [parts.take(1 << 19) for _ in range(8)]
    assert max(part.begin + part.size_bytes for part, _ in again) == 8 << 19, "addresses are used again, too"
    for number, (_, memory) in enumerate(again):
        ctypes.memset(memory, number, 1 << 19)
    assert [bytes(memory[:1]) for _, memory in again] == [bytes([number]) for number in range(8)]


def test_a_resumed_epoch_has_the_same_random_samples() -> None:
    def data(batch: int, **how: Any) -> ps.Dataset:
        source = ps.Dataset.from_arrays(np.zeros((40, 4), np.int64)).shuffle(seed=7)
        return source.random_map(drawn, **how).batch(batch)

    whole = np.concatenate(list(data(8)))
    first = data(8, processes=2)
    begin = [batch for _, batch in zip(range(2), first)]
    second = data(3, processes=1)
    second.load_state_dict(first.state_dict())
    first.close()
    assert np.concatenate([*begin, *second]).tolist() == whole.tolist()


def test_what_cannot_go_to_a_process_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    base = ps.Dataset.from_arrays(np.arange(4))
    with pytest.raises(ps.Error, match=r"<lambda>\(\) cannot go to worker processes: it must be picklable"):
        base.map(lambda sample: sample, processes=1)
    with pytest.raises(ps.Error, match="num_parallel_calls and processes"):
        base.map(elsewhere, 2, processes=2)
    with pytest.raises(ps.Error, match="processes is 0"):
        base.map(elsewhere, processes=0)


def test_closures_go_by_cloudpickle() -> None:
    pytest.importorskip("cloudpickle", reason="needs cloudpickle")
    offset = 5
    data = ps.Dataset.from_arrays(np.arange(4)).map(lambda sample: sample + offset, processes=1).batch(4)
    assert np.concatenate(list(data)).tolist() == [5, 6, 7, 8]


def unpicklable_result(sample: np.ndarray) -> Any:
    return {"x": threading.Lock()}


def unpicklable_here(sample: Any) -> Any:
    return sample


def test_what_cannot_be_sent_is_an_error_of_its_sample() -> None:
    with pytest.raises(ps.Error, match=r"unpicklable_result\(\) in its worker process(.|\n)*cannot pickle"):
        list(ps.Dataset.from_arrays(np.arange(4)).map(unpicklable_result, processes=1).batch(4))
    locks = ps.Dataset.from_source([{"x": threading.Lock()}]).map(unpicklable_here, processes=1)
    with pytest.raises(ps.Error, match="cannot pickle"):
        list(locks.batch(1))


def hold_open_and_die(sample: np.ndarray) -> np.ndarray:
    if os.fork() == 0:  # has the worker's end of the pipe
        time.sleep(5)
        os._exit(0)
    os._exit(3)


def test_a_death_is_seen_although_a_child_holds_the_pipe() -> None:
    with pytest.raises(ps.Error, match=r"of hold_open_and_die\(\) ended with status 3"):
        list(ps.Dataset.from_arrays(np.arange(4)).map(hold_open_and_die, processes=1).batch(4))


def environment(sample: np.ndarray) -> str:
    return " ".join(os.environ)


def test_a_worker_is_no_rank_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK"):
        monkeypatch.setenv(name, "0")
    monkeypatch.setenv("PENSTOCK_TEST_KEPT", "1")
    found = next(iter(ps.Dataset.from_arrays(np.arange(1)).map(environment, processes=1).batch(1)))[0].split()
    assert "PENSTOCK_TEST_KEPT" in found
    assert not [name for name in found if name.startswith(("PMI", "OMPI_COMM"))]


# Programs, and the processes that they leave.


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a program in a session of its own."""
    started = []

    def start(text: str) -> subprocess.Popen[str]:
        path = tmp_path / "program.py"
        path.write_text(text)
        started.append(
            subprocess.Popen(
                # One of the programs forks although it has threads, of which later Pythons warn.
                [sys.executable, "-W", "ignore::DeprecationWarning", str(path)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        )
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def wait_for_end(processes: str) -> None:
    for process in processes.split():
        while Path(f"/proc/{process}/stat").exists() and Path(f"/proc/{process}/stat").read_text().split()[2] != "Z":
            time.sleep(0.05)


def test_a_program_ends_with_its_workers(program: Callable[..., subprocess.Popen[str]]) -> None:
    running = program("""
import os, numpy as np, penstock as ps
def work(sample):
    return {"x": sample, "process": os.getpid()}
if __name__ == "__main__":
    data = ps.Dataset.from_arrays(np.arange(8)).map(work, processes=2).batch(2)
    iterator = iter(data)
    first = next(iterator)
    child = os.fork()
    if child == 0:
        assert [int(x) for batch in data for x in batch["x"]] == list(range(8))  # with workers of its own
        raise SystemExit(0)
    assert os.waitpid(child, 0)[1] == 0
    rest = [batch for batch in iterator]
    print(*{int(p) for batch in (first, *rest) for p in batch["process"]})
""")
    out, error = running.communicate()
    assert (error, running.returncode) == ("", 0)
    wait_for_end(out)


WORKS_FOR_EVER = """
import os, signal, sys, time, numpy as np, penstock as ps
def work(sample):
    if sample >= 4:
        print(os.getpid(), flush=True)
        time.sleep(1000)
    return sample
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job inherits that it is ignored
    data = ps.Dataset.from_arrays(np.arange(8)).map(work, processes=2).batch(2)
    for batch in data:
        pass
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGKILL"])
def test_an_ended_program_leaves_no_worker(program: Callable[..., subprocess.Popen[str]], name: str) -> None:
    running = program(WORKS_FOR_EVER)
    assert running.stdout
    workers = running.stdout.readline() + running.stdout.readline()
    os.killpg(running.pid, getattr(signal, name))
    _, error = running.communicate()
    assert running.returncode != 0
    if name == "SIGINT":
        assert error.rstrip().endswith("KeyboardInterrupt"), error
    wait_for_end(workers)


def test_a_program_without_the_guard_is_told_so(program: Callable[..., subprocess.Popen[str]]) -> None:
    running = program("""
import numpy as np, penstock as ps
def work(sample):
    return sample
for batch in ps.Dataset.from_arrays(np.arange(8)).map(work, processes=2).batch(2):
    pass
""")
    _, error = running.communicate()
    assert running.returncode == 1
    assert 'put what it does under if __name__ == "__main__":' in error
