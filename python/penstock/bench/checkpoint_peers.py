"""What `penstock bench checkpoint` compares, and the process that trains with one of them.

`python -m penstock.bench.checkpoint_peers ORDER`, a JSON object with the fields of Order, prints one JSON object.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from penstock.bench import processes

#: Checkpoints that stay, for all peers.
KEPT = 2
#: Elements of the weights and biases of AlexNet.
ALEXNET = (23232, 64, 307200, 192, 663552, 384, 884736, 256, 589824, 256, 37748736, 4096, 16777216, 4096, 4096000, 1000)

State = dict[str, np.ndarray]
#: Level ("fast", "drained") → a function that blocks until the save has reached it.
Levels = dict[str, Callable[[], object]]


class Saver(NamedTuple):
    """How a peer saves and restores."""

    #: Blocks as long as the training has to wait. What it returns has no entry for a level that is reached then.
    save: Callable[[int], Levels]
    restore: Callable[[int], State]
    close: Callable[[], object] = lambda: None


@dataclass(frozen=True)
class Order:
    """What a process does."""

    peer: str  #: Of PEERS, or "none".
    slow: str  #: The folder on the slow disk.
    fast: str  #: That on the burst buffer. Empty without one.
    state_bytes: int
    tensors: int
    iterations: int
    every: int
    rounds: int  #: Of the computation in an iteration.
    processes: int = 1  #: Ranks of an MPI job, which this is one of. Each has an equal share of the state.
    answer: str = ""  #: The file that gets the JSON object.


class Team:
    """The ranks that train together."""

    def __init__(self, comm: Any = None) -> None:
        self.comm = comm
        self.rank: int = 0 if comm is None else comm.rank
        self.size: int = 1 if comm is None else comm.size

    def barrier(self) -> None:
        if self.comm is not None:
            self.comm.Barrier()

    def gather(self, mine: Any) -> list[Any] | None:
        """The values of all ranks, on rank 0."""
        found: list[Any] | None = [mine] if self.comm is None else self.comm.gather(mine)
        return found

    def own(self, folder: Path) -> Path:
        """A folder for this rank."""
        if self.comm is None:
            return folder
        (folder / f"rank{self.rank}").mkdir(exist_ok=True)
        return folder / f"rank{self.rank}"


def synced(path: Path) -> None:
    """Make the files of a folder durable, and the folders that name them."""
    for folder, _, names in os.walk(path):
        for name in [*names, ""]:
            number = os.open(Path(folder) / name, os.O_RDONLY)
            os.fsync(number)
            os.close(number)
    number = os.open(path.parent, os.O_RDONLY)
    os.fsync(number)
    os.close(number)


# -- peers: state and the folder that they save to → Saver ---------------------------------------------------------


def _penstock(state: State, slow: Path, fast: Path | None, team: Team) -> Saver:
    import penstock as ps

    checkpoints = ps.Checkpointer(
        f"file://{slow}",
        burst_buffer=f"file://{fast}" if fast else None,
        keep=KEPT,
        comm=team.comm,
    )
    checkpoints.reserve(sum(array.nbytes for array in state.values()))
    layouts = {name: ps.Layout.even((team.size * array.size,), team.size) for name, array in state.items()}
    tree = {name: ps.DistArray(layouts[name], array, team.rank) for name, array in state.items()}

    def save(step: int) -> Levels:
        handle = checkpoints.save(step, tree)
        levels = ("fast", "drained") if fast else ("drained",)
        return {level: partial(handle.wait, level) for level in levels}

    def restore(step: int) -> State:
        found = checkpoints.restore(layouts, step)[1]
        return {name: part.local for name, part in found.items()}

    return Saver(save, restore, checkpoints.close)


def _numpy(state: State, folder: Path) -> Saver:
    """A file for each array: without the zip archive and its checksums, as one file is written."""

    def save(step: int) -> Levels:
        place = folder / str(step)
        place.mkdir()
        for name, array in state.items():
            np.save(place / f"{name}.npy", array)
        synced(place)
        return {}

    def restore(step: int) -> State:
        return {name: np.load(folder / str(step) / f"{name}.npy") for name in state}

    return Saver(save, restore)


def _safetensors(state: State, folder: Path) -> Saver:
    from safetensors.numpy import load_file, save_file

    def save(step: int) -> Levels:
        place = folder / str(step)
        place.mkdir()
        save_file(state, place / "state.safetensors")
        synced(place)
        return {}

    return Saver(save, lambda step: load_file(folder / str(step) / "state.safetensors"))


def _torch_tensors(state: State) -> dict[str, Any]:
    import torch

    return {name: torch.from_numpy(array) for name, array in state.items()}


def _torch_save(state: State, folder: Path) -> Saver:
    import torch

    torch.serialization.set_crc32_options(False)  # it is faster so
    tensors = _torch_tensors(state)

    def save(step: int) -> Levels:
        place = folder / str(step)
        place.mkdir()
        torch.save(tensors, place / "state.pt")
        synced(place)
        return {}

    def restore(step: int) -> State:
        found = torch.load(folder / str(step) / "state.pt", weights_only=True)
        return {name: tensor.numpy() for name, tensor in found.items()}

    return Saver(save, restore)


def _dcp(state: State, folder: Path, team: Team, how: str = "") -> Saver:
    """torch.distributed.checkpoint. Its writer syncs the files; `how`: blocking, or by "thread" or "process"."""
    import torch
    import torch.distributed.checkpoint as dcp

    # What several ranks call alike, one of them saves.
    tensors = {f"{name}.{team.rank}": tensor for name, tensor in _torch_tensors(state).items()}
    alone = {"no_dist": team.comm is None}
    if team.comm is not None:
        os.environ.update(MASTER_ADDR="127.0.0.1", RANK=str(team.rank), WORLD_SIZE=str(team.size))
        place = f"tcp://127.0.0.1:{team.comm.bcast(_free_port() if team.rank == 0 else None)}"
        torch.distributed.init_process_group(
            "gloo", init_method=place, rank=team.rank, world_size=team.size, timeout=timedelta(seconds=300)
        )
    before: list[Future] = []
    stager: Any = None
    if how:
        from torch.distributed.checkpoint import staging
        from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

        # Memory that is used again, as both stagers do where CUDA is; staging in the background needs CUDA.
        stager = staging.BlockingAsyncStager(cache_staged_state_dict=True)
        stager.state_dict_cache = {name: torch.empty_like(tensor) for name, tensor in tensors.items()}
    if how == "process":
        stager = staging.DefaultStager(
            staging.StagingOptions(
                use_pinned_memory=False, use_shared_memory=True, use_async_staging=False, use_non_blocking_copy=False
            )
        )
        if team.comm is None:
            # The other process makes a group of its own, with the address that the environment has.
            os.environ.update(MASTER_ADDR="127.0.0.1")
            torch.distributed.init_process_group(
                "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1, timeout=timedelta(seconds=60)
            )

    def save(step: int) -> Levels:
        writer = dcp.FileSystemWriter(folder / str(step))
        if not how:
            dcp.save(tensors, storage_writer=writer, **alone)
            return {}
        if before:
            before.pop().result()  # as its documentation says: one save at a time
        kind = AsyncCheckpointerType.PROCESS if how == "process" else AsyncCheckpointerType.THREAD
        done = dcp.async_save(
            tensors, storage_writer=writer, async_checkpointer_type=kind, async_stager=stager, **alone
        )
        before.append(done)
        return {"drained": done.result}

    def restore(step: int) -> State:
        found = {name: torch.empty_like(tensor) for name, tensor in tensors.items()}
        dcp.load(found, storage_reader=dcp.FileSystemReader(folder / str(step)), **alone)
        return {name.rpartition(".")[0]: tensor.numpy() for name, tensor in found.items()}

    return Saver(save, restore, stager.close if how == "process" else lambda: None)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _dcp_thread(state: State, folder: Path, team: Team) -> Saver:
    return _dcp(state, folder, team, "thread")


def _dcp_process(state: State, folder: Path, team: Team) -> Saver:
    return _dcp(state, folder, team, "process")


def _orbax(state: State, folder: Path) -> Saver:
    """Its files are durable when it says that the save is complete: TensorStore syncs them."""
    import orbax.checkpoint as ocp

    checkpointer = ocp.AsyncCheckpointer(ocp.PyTreeCheckpointHandler(use_compression=False))

    def save(step: int) -> Levels:
        checkpointer.save(folder / str(step), args=ocp.args.PyTreeSave(state))
        return {"drained": checkpointer.wait_until_finished}

    def restore(step: int) -> State:
        found: State = checkpointer.restore(folder / str(step))
        return found

    return Saver(save, restore, checkpointer.close)


@dataclass(frozen=True)
class Peer:
    begin: Callable[..., Saver]
    modules: tuple[str, ...] = ()  #: What it imports.
    #: begin() gets the slow folder and the fast one or None, and the peer drains by itself. Otherwise begin() gets the folder
    #: to save to, and what is complete there is copied for it.
    own_tiers: bool = False
    #: All ranks save one checkpoint, and begin() gets the Team, too. Otherwise each rank saves its share by itself.
    together: bool = False

    def missing(self) -> str:
        """The first module that is not installed, or nothing."""
        return next((module for module in self.modules if _absent(module)), "")


def _absent(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is None
    except ModuleNotFoundError:
        return True


PEERS = {
    "numpy": Peer(_numpy),
    "safetensors": Peer(_safetensors, ("safetensors",)),
    "torch-save": Peer(_torch_save, ("torch",)),
    "dcp": Peer(_dcp, ("torch",), together=True),
    "dcp-thread": Peer(_dcp_thread, ("torch",), together=True),
    "dcp-process": Peer(_dcp_process, ("torch",), together=True),
    "orbax": Peer(_orbax, ("orbax.checkpoint",)),
    "penstock": Peer(_penstock, own_tiers=True, together=True),
}


# -- the training ----------------------------------------------------------------------------------------------------


def initial_state(state_bytes: int, tensors: int, rank: int = 0) -> State:
    """Arrays of float32 with random mantissas, between 1 and 2."""
    elements = max(1, state_bytes // 4)
    shares = (1,) * tensors if tensors else ALEXNET
    random = np.random.default_rng(1 + rank)
    state = {}
    for number, share in enumerate(shares):
        count = max(1, elements * share // sum(shares))
        bits = random.integers(0, 1 << 23, count, np.uint32, endpoint=False)
        bits |= 0x3F800000
        state[f"array{number}"] = bits.view(np.float32)
    return state


def update(state: State) -> None:
    """The optimizer's step: each element changes, in a way that can be checked exactly."""
    for array in state.values():
        bits = array.view(np.uint32)
        bits ^= 0x2AAAAA


class Compute:
    """The computation of an iteration, by one thread and in its cache."""

    def __init__(self) -> None:
        self._values = np.linspace(0, 1, 1 << 14, dtype=np.float64)
        self._result = np.empty_like(self._values)

    def rounds(self, count: int) -> None:
        for _ in range(count):
            np.exp(self._values, out=self._result)


def _copy_s(state: State) -> float:
    """Seconds in which one thread copies the state into warm memory."""
    warm = {name: np.zeros_like(array) for name, array in state.items()}
    samples = []
    for _ in range(4):
        begin = time.perf_counter()
        for name, array in state.items():
            np.copyto(warm[name], array)
        samples.append(time.perf_counter() - begin)
    return statistics.median(samples[1:])


class _Watch:
    """Notes when each save reaches its levels, and removes old checkpoints of peers that keep all.

    `copies`: this rank does so, and copies what is complete in the burst buffer.
    """

    def __init__(self, saver: Saver, own_tiers: bool, slow: Path, fast: Path | None, copies: bool = True) -> None:
        self._saver, self._own_tiers, self._slow, self._fast = saver, own_tiers, slow, fast
        self._copies = copies
        self._thread = ThreadPoolExecutor(1)
        self._running: list[Future] = []
        self._steps: list[int] = []

    def save(self, step: int) -> dict[str, float]:
        """The record of this save, which gets its levels later."""
        begin = time.monotonic()
        levels = self._saver.save(step)
        record = {"stall_s": time.monotonic() - begin}
        self._running.append(self._thread.submit(self._follow, step, levels, begin, record))
        return record

    def _follow(self, step: int, levels: Levels, begin: float, record: dict[str, float]) -> None:
        for level, reached in levels.items():
            reached()
            record[f"{level}_s"] = time.monotonic() - begin
        if self._own_tiers:
            return
        first = record.pop("drained_s", record["stall_s"])
        record["fast_s" if self._fast else "drained_s"] = first
        if not self._copies:
            return
        if self._fast:
            # As in the paper: a process copies what is complete in the burst buffer.
            subprocess.run(["cp", "-r", self._fast / str(step), self._slow / str(step)], check=True)
            synced(self._slow / str(step))
            record["drained_s"] = time.monotonic() - begin
        self._steps.append(step)
        while len(self._steps) > KEPT:
            old = self._steps.pop(0)
            for folder in [self._slow, self._fast] if self._fast else [self._slow]:
                shutil.rmtree(folder / str(old), ignore_errors=True)

    def wait(self) -> None:
        """Until all saves are drained. Raises what failed."""
        while self._running:
            self._running.pop(0).result()


@contextlib.contextmanager
def _peak_memory() -> Iterator[list[int]]:
    """The list has the most memory that was in use meanwhile."""
    peak, ended = [processes.memory_bytes()], threading.Event()

    def sample() -> None:
        while not ended.wait(0.01):
            peak[0] = max(peak[0], processes.memory_bytes())

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield peak
    finally:
        ended.set()
        thread.join()


def _drop_from_cache(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            with open(path, "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def train(order: Order, team: Team | None = None) -> dict[str, Any]:
    """Train with a save each `every` iterations, then restore what was saved last. What this rank has seen."""
    team = team or Team()
    slow, fast = Path(order.slow), Path(order.fast) if order.fast else None
    state = initial_state(order.state_bytes // team.size, order.tensors, team.rank)
    compute = Compute()
    team.barrier()
    found: dict[str, Any] = {
        "state_bytes": sum(array.nbytes for array in state.values()),
        "copy_s": _copy_s(state),
        "saves": [],
    }

    def iterate(save: Callable[[int], dict[str, float]] | None) -> None:
        found["begin_s"] = begin = time.monotonic()
        for iteration in range(1, order.iterations + 1):
            compute.rounds(order.rounds)
            update(state)
            if iteration % order.every == 0:
                team.barrier()  # as an optimizer's step has one
            if save is not None and iteration % order.every == 0:
                at_s = time.monotonic() - begin
                record = save(iteration)
                record["at_s"] = at_s
                found["saves"].append(record)
        found["total_s"] = time.monotonic() - begin

    compute.rounds(order.rounds)
    if order.peer == "none":
        iterate(None)
        return found
    peer = PEERS[order.peer]
    for module in peer.modules:
        importlib.import_module(module)
    before_bytes = processes.memory_bytes()
    if not peer.together:
        slow, fast = team.own(slow), team.own(fast) if fast else None
    places = (slow, fast) if peer.own_tiers else (fast or slow,)
    saver = peer.begin(state, *places, *((team,) if peer.together else ()))
    watch = _Watch(saver, peer.own_tiers, slow, fast, copies=not peer.together or team.rank == 0)
    # This save starts what the peer starts once, and touches its memory.
    found["first_stall_s"] = watch.save(0)["stall_s"]
    watch.wait()
    iterate(watch.save)
    watch.wait()
    found["all_drained_s"] = time.monotonic() - found["begin_s"]
    update(state)
    last = order.iterations + 1
    with _peak_memory() as peak:
        watch.save(last)
        watch.wait()
    found["memory_bytes"] = max(0, peak[0] - before_bytes)
    team.barrier()
    for place in (slow, fast):
        if place is not None:
            _drop_from_cache(place)
    team.barrier()
    begin = time.monotonic()
    restored = saver.restore(last)
    found["restore_s"] = time.monotonic() - begin
    for name, array in state.items():
        if not np.array_equal(np.asarray(restored[name]), array):
            raise AssertionError(f"{order.peer} restored something else than was saved ({name})")
    saver.close()
    found["kept"] = KEPT
    mine = not peer.together or team.rank == 0
    found["stored_bytes"] = sum(path.stat().st_size for path in slow.rglob("*") if path.is_file()) if mine else 0
    return found


def combined(ranks: list[dict[str, Any]]) -> dict[str, Any]:
    """What the ranks have seen as one: sizes are sums, and the slowest rank counts."""
    sums = {"state_bytes", "memory_bytes", "stored_bytes"}
    found: dict[str, Any] = {}
    for key, value in ranks[0].items():
        if key == "saves":
            saves = zip(*(one["saves"] for one in ranks))
            found[key] = [
                {name: max(one[name] for one in save if name in one) for name in {n for one in save for n in one}}
                for save in saves
            ]
        elif key in sums:
            found[key] = sum(one[key] for one in ranks)
        else:
            found[key] = (min if key == "begin_s" else max)(one[key] for one in ranks) if key != "kept" else value
    return found


def main() -> None:
    order = Order(**json.loads(sys.argv[1]))
    os.dup2(2, 1)  # libraries print to it
    team = Team()

    def tell(answer: dict[str, Any]) -> None:
        with contextlib.suppress(FileExistsError), open(order.answer, "x") as file:  # the first rank that fails
            json.dump(answer, file)

    try:
        if order.processes > 1:
            from mpi4py import MPI

            team = Team(MPI.COMM_WORLD)
            if team.size != order.processes:
                raise RuntimeError(f"{team.size} processes of this MPI were started; expected {order.processes}")
        ranks = team.gather(train(order, team))
        if ranks is not None:
            tell(combined(ranks))
    except Exception as error:
        traceback.print_exc()
        tell({"cannot": f"{type(error).__name__}: {error}"})
        if team.comm is not None:
            team.comm.Abort(1)  # the others wait for this one
    if team.comm is not None:
        MPI.Finalize()
    sys.stderr.flush()
    os._exit(0)  # without waiting for threads and processes of libraries


if __name__ == "__main__":
    main()
