"""Communicators without MPI: processes that find each other in a folder."""

from __future__ import annotations

import collections
import math
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import penstock as ps
import pytest
from penstock import rendezvous
from penstock.rendezvous import FileStore, PrefixStore

TIMEOUT_S = 1200
Outcomes = list[tuple[int, str]]


@pytest.fixture(scope="session")
def _ucx() -> None:
    program = "from penstock import _penstock, rendezvous; _penstock.ucx_open(rendezvous.libraries())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"UCX cannot be used here: {done.stderr.strip().splitlines()[-1]}")


@pytest.fixture
def ranks(_ucx: None, tmp_path: Path) -> Callable[..., Outcomes]:
    """Run a program on each rank: its exit status, and what it wrote. It has `rank`, `size` and `folder`."""

    def run(size: int, program: str) -> Outcomes:
        start = "import sys\nimport numpy as np\nimport penstock as ps\nrank, size = map(int, sys.argv[1:3])\n"
        text = f"{start}folder = {str(tmp_path / 'store')!r}\n{textwrap.dedent(program)}"
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", text, str(rank), str(size)],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for rank in range(size)
        ]
        try:
            outputs = [process.communicate(timeout=TIMEOUT_S)[0] for process in processes]
        finally:
            for process in processes:
                process.kill()
        return [(process.returncode, output) for process, output in zip(processes, outputs)]

    return run


def succeeded(outcomes: Outcomes) -> bool:
    assert [status for status, _ in outcomes] == [0] * len(outcomes), "\n".join(output for _, output in outcomes)
    return True


@pytest.mark.parametrize("size", [1, 2, 3])
def test_collectives(ranks: Callable[..., Outcomes], size: int) -> None:
    program = """
        assert "mpi4py" not in sys.modules
        with ps.Communicator(folder, rank, size) as comm:
            assert (comm.rank, comm.size) == (rank, size)
            assert "UCX 1." in comm.report(), comm.report()
            everyone = np.arange(size)
            for count in (1, 1000, 200_000):
                mine, result = np.full(count, rank, dtype="f4"), np.empty(count, dtype="f4")
                comm.Allreduce(mine, result)
                assert (result == everyone.sum()).all()
                work = comm.Iallreduce(None, mine, "max")
                work.wait()
                assert (mine == size - 1).all()
                comm.Reduce(np.full(count, rank), result64 := np.empty(count, dtype=int), "sum", size - 1)
                assert rank < size - 1 or (result64 == everyone.sum()).all()
                whole = np.empty((size, count))
                comm.Allgather(np.full(count, rank, dtype="f8"), whole)
                assert (whole == everyone[:, None]).all()
                whole[:] = rank
                comm.Ialltoall(whole, other := np.empty_like(whole)).wait()
                assert (other == everyone[:, None]).all()
                block = np.empty(count)
                comm.Reduce_scatter_block(np.repeat(everyone, count).astype("f8"), block)
                assert (block == size * rank).all()
                root = size // 2
                comm.Bcast(data := np.full(count, rank), root)
                assert (data == root).all()
                comm.Gather(data, gathered := np.zeros((size, count), dtype=int), root)
                assert rank != root or (gathered == root).all()
                comm.Scatter(np.repeat(everyone, count) if rank == root else None, data, root)
                assert (data == rank).all()
                comm.Scan(np.ones(count), scanned := np.empty(count))
                assert (scanned == rank + 1).all()
                scanned[:] = 0
                comm.Exscan(np.ones(count), scanned)
                assert (scanned == rank).all()
            comm.Barrier()
            comm.Ibarrier().wait()
        assert "mpi4py" not in sys.modules
    """
    assert succeeded(ranks(size, program))


def test_messages(ranks: Callable[..., Outcomes]) -> None:
    program = """
        comm = ps.Communicator(folder, rank, size)
        sends = [comm.Isend(np.full(n, rank), (rank + 1) % size, tag) for tag, n in enumerate((1, 100_000))]
        for tag in (1, 0):
            received = np.zeros(200_000, dtype=int)
            work = comm.Recv(received, tag=tag)
            count = work.size_bytes // 8
            assert (work.source, count) == ((rank - 1) % size, (1, 100_000)[tag])
            assert (received[:count] == work.source).all()
        for work in sends:
            work.wait()
        comm.Barrier()
    """
    assert succeeded(ranks(3, program))


def test_splits(ranks: Callable[..., Outcomes]) -> None:
    program = """
        comm = ps.Communicator(folder, rank, size)
        for _ in range(2):
            part = comm.split(rank % 2, key=-rank)
            assert part.size == (2 if rank % 2 == 0 else 1)
            part.Allreduce(np.array([rank]), result := np.array([0]))
            assert result[0] == (2 if rank % 2 == 0 else 1)
            assert part.rank == (1 if rank == 0 else 0)
        assert (comm.split(None if rank == 1 else 7) is None) == (rank == 1)
    """
    assert succeeded(ranks(3, program))


def test_wrong_arguments_fail_on_all(ranks: Callable[..., Outcomes]) -> None:
    program = """
        comm = ps.Communicator(folder, rank, size)
        def code_of(call):
            try:
                call()
            except ps.Error as error:
                return error.code
        wrong = np.array(["text"]) if rank == 1 else np.ones(3)
        assert code_of(lambda: comm.Allreduce(wrong, np.ones(3))) == ("invalid_argument" if rank == 1 else "peer_failed")
        assert code_of(lambda: comm.Allreduce(np.ones(3 + rank), np.ones(3 + rank))) in ("mismatch", "peer_failed")
        assert code_of(lambda: comm.Send(np.ones(1), size)) == "invalid_argument"
        comm.Allreduce(None, value := np.ones(1))
        assert value[0] == size
        comm.free()
        comm.free()
        assert code_of(comm.Barrier) == "invalid_argument"
        assert code_of(lambda: ps.Communicator(folder, size, size)) == "invalid_argument"
    """
    assert succeeded(ranks(3, program))


def test_a_killed_rank_is_named(ranks: Callable[..., Outcomes]) -> None:
    program = """
        import os, signal
        comm = ps.Communicator(folder, rank, size)
        comm.Barrier()
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        for call in (lambda: [comm.Allreduce(None, np.ones(10)) for _ in range(10**6)], lambda: comm.Recv(np.ones(1), 1)):
            try:
                call()
                sys.exit("no error")
            except ps.Error as error:
                assert (error.code, error.rank) == ("peer_failed", 1), error
    """
    outcomes = ranks(3, program)
    assert [status for status, _ in outcomes] == [0, -9, 0], outcomes


def test_a_rank_that_does_not_come_is_named(ranks: Callable[..., Outcomes]) -> None:
    program = """
        import re
        if rank != 1:
            try:
                ps.Communicator(folder, rank, size, timeout=1)
                sys.exit("no error")
            except ps.Error as error:
                # On a slow machine another rank may be late, too.
                late = re.search(r"ranks? ([\\d, ]+) of 3 did not come within 1 s", str(error))
                assert error.code == "timed_out" and late and "1" in late[1].split(", "), error
    """
    assert succeeded(ranks(3, program))


def test_an_operation_times_out(ranks: Callable[..., Outcomes]) -> None:
    program = """
        comm = ps.Communicator(folder, rank, size)
        comm._timeout_s = 1.0  # not before: the ranks may need longer to come
        comm._core.set_timeout(1.0)
        try:
            if rank == 0:
                comm.Recv(np.ones(1), 1)
            else:
                comm.Barrier()
            sys.exit("no error")
        except ps.Error as error:
            assert error.code in ("timed_out", "peer_failed"), error
    """
    assert succeeded(ranks(2, program))


def test_a_failure_before_joining_is_told_to_all(ranks: Callable[..., Outcomes]) -> None:
    program = """
        try:
            ps.Communicator(folder, rank, size, progress_cores=-2 if rank == 1 else 0)
            sys.exit("no error")
        except ps.Error as error:
            assert error.code == ("invalid_argument" if rank == 1 else "peer_failed"), error
            assert "progress_cores is -2" in str(error), error
    """
    assert succeeded(ranks(3, program))


def test_two_versions_in_one_job_are_told_to_all(ranks: Callable[..., Outcomes]) -> None:
    program = """
        from penstock import _penstock
        if rank == 1:
            _penstock.__version__ = "0.0.1"
        try:
            ps.Communicator(folder, rank, size)
            sys.exit("no error")
        except ps.Error as error:
            assert error.code == "peer_failed" and "install one version for all" in str(error), error
    """
    assert succeeded(ranks(3, program))


def test_one_folder_serves_runs_of_any_size(ranks: Callable[..., Outcomes]) -> None:
    program = """
        comm = ps.Communicator(folder, rank, size, timeout=600)
        total = np.zeros(1)
        comm.Allreduce(np.ones(1), total)
        assert total[0] == size
    """
    for size in (3, 2, 1, 3):
        assert succeeded(ranks(size, program))


def test_two_processes_with_one_rank_are_told(ranks: Callable[..., Outcomes]) -> None:
    program = """
        try:
            ps.Communicator(folder, 1, size, timeout=600)
            sys.exit("no error")
        except ps.Error as error:
            assert "rank 1 came twice" in str(error), error
    """
    assert succeeded(ranks(2, program))


def test_each_rank_connects_to_few_others(ranks: Callable[..., Outcomes]) -> None:
    """Without shared memory, as if each rank had a node of its own."""
    program = """
        import math, os
        os.environ["PENSTOCK_SHARED_MEMORY"] = "0"
        os.environ["PENSTOCK_NETWORK"] = "off"  # to agree on the machine takes a broadcast, which connects to others
        from penstock import _penstock
        comm = ps.Communicator(folder, rank, size, progress_cores=0)
        few = math.ceil(math.log2(size))
        assert _penstock.ucx_connections() == few, _penstock.ucx_connections()
        comm.Barrier()
        comm.Allreduce(None, value := np.ones(1))
        assert value[0] == size
        assert _penstock.ucx_connections() <= 2 * few, _penstock.ucx_connections()
    """
    assert succeeded(ranks(8, program))


# -- what the ranks ask a store ---------------------------------------------------------------------------------------


class CountingStore:
    """In memory, for threads. Counts the requests of each thread, which is a rank's.

    The time of a wait is over when `waiting_at_timeout` ranks wait.
    """

    def __init__(self, waiting_at_timeout: float = math.inf) -> None:
        self._waiting_at_timeout = waiting_at_timeout
        self._waited: set[str] = set()
        self._awaited: set[str] = set()  # hundreds of threads wake up for nothing else
        self.requests: collections.Counter[str] = collections.Counter()
        self._values: dict[str, bytes] = {}
        self._sums: collections.Counter[str] = collections.Counter()
        self._changed = threading.Condition()

    def set(self, key: str, value: bytes) -> None:
        with self._counted():
            self._values[key] = value
            if key in self._awaited:
                self._changed.notify_all()

    def get(self, key: str) -> bytes:
        with self._counted():
            return self._values[key]

    def add(self, key: str, amount: int) -> int:
        with self._counted():
            self._sums[key] += amount
            return self._sums[key]

    def wait(self, keys: list[str], timeout: timedelta) -> None:
        with self._counted():
            rank = threading.current_thread().name
            is_first = rank not in self._waited
            self._waited.add(rank)
            self._awaited.update(keys)
            if len(self._waited) == self._waiting_at_timeout:
                self._changed.notify_all()

            def over() -> bool:
                return is_first and len(self._waited) == self._waiting_at_timeout

            self._changed.wait_for(lambda: self._has(keys) or over())
            if not self._has(keys):
                raise TimeoutError

    def check(self, keys: list[str]) -> bool:
        with self._counted():
            return self._has(keys)

    def _has(self, keys: list[str]) -> bool:
        return all(key in self._values for key in keys)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        with self._changed:
            self.requests[threading.current_thread().name] += 1
            yield


def exchange_in_threads(store: CountingStore, size: int, missing: set[int]) -> dict[int, object]:
    """What each rank gets or raises."""
    results: dict[int, object] = {}

    def come(rank: int) -> None:
        try:
            results[rank] = rendezvous.exchange(store, rank, size, 9.0, lambda: f"address {rank}".encode())
        except ps.Error as error:
            results[rank] = error

    threads = [
        threading.Thread(target=come, args=(rank,), name=str(rank)) for rank in range(size) if rank not in missing
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


@pytest.mark.parametrize("size", [1, 5, 64, 1024])
def test_a_rank_makes_few_requests_and_learns_few_addresses(size: int) -> None:
    store = CountingStore()
    groups = exchange_in_threads(store, size, missing=set())
    few = math.ceil(math.log2(size))
    for rank, group in groups.items():
        assert isinstance(group, rendezvous.Group), group
        assert group.addresses == {(rank - 2**i) % size: f"address {(rank - 2**i) % size}".encode() for i in range(few)}
    assert len({group.nonce for group in groups.values() if isinstance(group, rendezvous.Group)}) == 1
    busiest = max(store.requests.values())
    assert busiest <= 10 + few, store.requests  # the last rank that is ready makes three more
    assert sum(store.requests.values()) <= size * (7 + few) + 3


@pytest.mark.parametrize("missing", [{517}, set(range(1024)) - {3, 700}])
def test_one_rank_looks_who_is_missing(missing: set[int]) -> None:
    store = CountingStore(1024 - len(missing))
    results = exchange_in_threads(store, 1024, missing)
    named = sorted(missing)[:8]
    more = f" and {len(missing) - 8} more" if len(missing) > 8 else ""
    text = f"rank{'s' * (len(missing) > 1)} {', '.join(map(str, named))}{more} of 1024 did not come within 9 s"
    for error in results.values():
        assert isinstance(error, ps.Error) and (error.code, error.rank) == ("timed_out", named[0]), error
        assert text in str(error), error
    looked = sorted(store.requests.values())
    assert looked[-1] <= 80, looked[-5:]  # not 1,024
    assert all(requests <= 12 for requests in looked[:-1]), looked[-5:]


def test_a_rank_that_comes_too_late_hears_it() -> None:
    store = CountingStore(1)
    exchange_in_threads(store, 2, missing={1})
    late = exchange_in_threads(store, 2, missing={0})[1]
    assert isinstance(late, ps.Error) and "rank 1 of 2 did not come within 9 s" in str(late), late


# -- the store in a folder --------------------------------------------------------------------------------------------


def test_sums_of_a_file_store_are_taken_once(tmp_path: Path) -> None:
    sums: list[int] = []

    def add() -> None:
        store = FileStore(tmp_path)
        sums.extend(store.add("a/number", 1) for _ in range(20))

    threads = [threading.Thread(target=add) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(sums) == list(range(1, 101))
    assert FileStore(tmp_path).add("a/number", 0) == 100
    assert FileStore(tmp_path).add("another", 0) == 0
    assert not FileStore(tmp_path).check(["a/number"])


def test_values_of_a_file_store(tmp_path: Path) -> None:
    store = PrefixStore("part", FileStore(tmp_path / "new" / "folder"))
    with pytest.raises(TimeoutError):
        store.wait(["key"], timedelta(milliseconds=10))
    writer = threading.Timer(0.05, lambda: store.set("key", b"\0value"))
    writer.start()
    store.wait(["key"], timedelta(minutes=5))
    assert store.get("key") == b"\0value"
    writer.join()


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ps.Error, match="cannot be made") as caught:
        ps.Communicator(tmp_path / "file", 0, 1)
    assert caught.value.code == "io"
