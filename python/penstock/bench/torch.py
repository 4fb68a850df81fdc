"""Backend "penstock" of torch.distributed against gloo."""

from __future__ import annotations

import importlib.util
import math
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

from penstock.bench import runner
from penstock.bench.installation import Installation, cores
from penstock.bench.runner import Program, Report
from penstock.bench.worker import Cannot
from penstock.text_table import columns

SUMMARY = (
    'Collectives of torch.distributed through backend "penstock" and through gloo, in turns in the same jobs, and a '
    "training step of DistributedDataParallel: how much of its communication is hidden behind the backward pass. DTensors are "
    "redistributed by their own method over gloo and by penstock.torch.redistribute. Times are those of Python's functions."
)
BACKENDS = ("gloo", "penstock")
COLLECTIVES = ("barrier", "allreduce", "reduce_scatter", "all_gather")
#: Redistributions of a DTensor: rows to columns, rows to all on each rank, and rows to the blocks of a mesh of two dimensions.
TENSORS = ("shard_to_shard", "shard_to_replicate", "other_mesh")
OPERATIONS = (*COLLECTIVES, *TENSORS, "ddp")
CHOICES = {"ops": OPERATIONS}

OPTIONS = {
    "ops": (list(OPERATIONS), ["barrier", "allreduce", "shard_to_shard", "other_mesh", "ddp"], "what to measure"),
    "bytes": (
        [8, 1024, 64 << 10, 1 << 20, 25 << 20],
        [8, 64 << 10, 1 << 20],
        "bytes of the tensor of allreduce, of the input of reduce_scatter and of the output of all_gather, in float32",
    ),
    "tensor_bytes": (
        [1024, 64 << 10, 1 << 20, 16 << 20, 64 << 20],
        [1024, 64 << 10],
        "bytes of the DTensors that are redistributed, in float32",
    ),
    "budget_s": (1.0, 0.2, "seconds for one setting in one job"),
    "ddp_width": (1024, 256, "width of the layers of the network that DDP trains"),
    "ddp_layers": (6, 4, "its number of layers"),
    "ddp_samples": (64, 32, "samples of each rank in a step"),
    "ddp_bucket_mb": (4.0, 0.25, "MiB of a bucket of gradients"),
    "compute_cores": (
        0,
        0,
        "cores that each rank computes on, beside each other on a node; the threads of both backends may use the others. "
        "0: ranks are not bound",
    ),
    "progress_cores": ("auto", "auto", "communication cores of each node: auto, 0, or a number"),
    "transport": ("auto", "auto", "what carries penstock's messages: auto, mpi, or ucx, as under torchrun"),
}
RANKS = [2, 4]
MINUTES = 8


def missing(_: Installation) -> dict[str, str]:
    if importlib.util.find_spec("torch") is not None:
        return {}
    return dict.fromkeys(BACKENDS, "PyTorch is not installed for the Python that runs the benchmark")


def programs(mpi: Installation) -> list[Program]:
    if missing(mpi):
        return []
    return [Program(name, BACKENDS[:position], job="in turns") for position, name in enumerate(BACKENDS)]


def measure(program: str, parameters: dict[str, Any]) -> runner.Measured:
    """Measure all peers of one job."""
    import torch
    import torch.distributed as dist
    from mpi4py import MPI

    import penstock.torch

    torch.set_num_threads(max(1, parameters["compute_cores"]))
    cores = parameters["progress_cores"]
    options = penstock.torch.Options(
        progress_cores=cores if cores == "auto" else int(cores), transport=parameters["transport"]
    )
    with _bound(MPI.COMM_WORLD, parameters["compute_cores"]) as unbound:
        dist.init_process_group("penstock", pg_options=options)
        groups = {}
        for name in sorted(program.split(","), reverse=True):  # penstock looks at where the process is bound
            with unbound() if name == "gloo" else nullcontext():
                groups[name] = dist.new_group(backend=name)
        groups = {name: groups[name] for name in program.split(",")}
        rows = _rows(groups, parameters)
        dist.destroy_process_group()
    return rows


@contextmanager
def _bound(world: Any, cores_of_rank: int) -> Iterator[Callable[[], AbstractContextManager[None]]]:
    """Bind the calling thread to this rank's cores. Yields a context in which it is not bound: what starts there is not."""
    from mpi4py import MPI

    before = os.sched_getaffinity(0)
    usable = cores()
    local = world.Split_type(MPI.COMM_TYPE_SHARED)
    last = (local.rank + 1) * cores_of_rank
    too_few = world.allreduce(last > len(usable), MPI.LOR)
    local.Free()
    if too_few:
        raise Cannot(f"the ranks of a node need {cores_of_rank} cores each, more than it has ({len(usable)} here)")
    mine = {cpu for core in usable[last - cores_of_rank : last] for cpu in core} or before

    @contextmanager
    def unbound() -> Iterator[None]:
        os.sched_setaffinity(0, before)
        try:
            yield
        finally:
            os.sched_setaffinity(0, mine)

    os.sched_setaffinity(0, mine)
    try:
        yield unbound
    finally:
        os.sched_setaffinity(0, before)


def _rows(groups: dict[str, Any], parameters: dict[str, Any]) -> runner.Measured:
    from mpi4py import MPI

    from penstock.bench.worker import times_of

    rows: runner.Measured = []

    def add(operation: str, size_bytes: int, seconds: dict[str, float]) -> None:
        rows.extend(
            ({"program": name, "operation": operation, "bytes": size_bytes}, [value]) for name, value in seconds.items()
        )

    budget_s = parameters["budget_s"] * len(groups)
    for operation in parameters["ops"]:
        if operation == "ddp":
            for step, actions in _training(groups, parameters).items():
                add(f"ddp {step}", 0, times_of(MPI.COMM_WORLD, actions, budget_s))
            continue
        if operation in TENSORS:
            for size_bytes in parameters["tensor_bytes"]:
                moves = {name: _move(operation, size_bytes, name, group) for name, group in groups.items()}
                add(operation, size_bytes, times_of(MPI.COMM_WORLD, moves, budget_s))
            continue
        for size_bytes in [0] if operation == "barrier" else parameters["bytes"]:
            runs = {name: _collective(operation, size_bytes, group) for name, group in groups.items()}
            add(operation, size_bytes, times_of(MPI.COMM_WORLD, runs, budget_s))
    return rows


def _collective(operation: str, size_bytes: int, group: Any) -> Callable[[], object]:
    import torch
    import torch.distributed as dist

    if operation == "barrier":
        return partial(dist.barrier, group)
    count = max(1, size_bytes // 4)
    if operation == "allreduce":
        tensor = torch.zeros(count)
        return partial(dist.all_reduce, tensor, group=group)
    part = torch.zeros(max(1, count // group.size()))
    whole = torch.zeros(part.numel() * group.size())
    if operation == "reduce_scatter":
        # PyTorch 2.13 renamed both.
        reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
        return partial(reduce_scatter, part, whole, group=group)
    all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    return partial(all_gather, whole, part, group=group)


def _move(operation: str, size_bytes: int, name: str, group: Any) -> Callable[[], object]:
    """DTensor has no move to another mesh: over gloo it is gathered, and each rank takes its part."""
    import torch
    from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

    import penstock.torch

    ranks = group.size()
    order = max(ranks, math.isqrt(size_bytes // 4) // ranks * ranks)
    mesh = DeviceMesh.from_group(group, "cpu")
    source = DTensor.from_local(torch.rand(order // ranks, order), mesh, [Shard(0)], run_check=False)
    if operation == "other_mesh":
        grid = init_device_mesh("cpu", (ranks // 2, 2))
        if name == "penstock":
            return partial(penstock.torch.redistribute, source, grid, [Shard(0), Shard(1)], group=group)
        return lambda: distribute_tensor(source.full_tensor(), grid, [Shard(0), Shard(1)], src_data_rank=None)
    places = [Shard(1) if operation == "shard_to_shard" else Replicate()]
    if name == "penstock":
        return partial(penstock.torch.redistribute, source, mesh, places, group=group)
    return partial(source.redistribute, mesh, places)


def _training(groups: dict[str, Any], parameters: dict[str, Any]) -> dict[str, dict[str, Callable[[], object]]]:
    """What a step takes with communication and without, and the communication alone."""
    import torch
    import torch.distributed as dist
    from torch import nn

    width, samples = parameters["ddp_width"], parameters["ddp_samples"]
    inputs = torch.randn(samples, width)
    actions: dict[str, dict[str, Callable[[], object]]] = {"computation": {}, "communication": {}, "step": {}}

    def step(model: nn.Module) -> None:
        model(inputs).square().mean().backward()

    def computation(model: Any) -> None:
        with model.no_sync():
            step(model)

    def communication(buckets: list[Any], group: Any) -> None:
        works = [dist.all_reduce(bucket, group=group, async_op=True) for bucket in buckets]
        for work in works:
            work.wait()

    for name, group in groups.items():
        layers: list[nn.Module] = []
        for _ in range(parameters["ddp_layers"]):
            layers += [nn.Linear(width, width), nn.Tanh()]
        model = nn.parallel.DistributedDataParallel(
            nn.Sequential(*layers),
            process_group=group,
            bucket_cap_mb=parameters["ddp_bucket_mb"],
            gradient_as_bucket_view=True,
        )
        count = sum(each.numel() for each in model.parameters())
        bucket = max(1, int(parameters["ddp_bucket_mb"] * (1 << 20)) // 4)
        buckets = list(torch.zeros(count).split(bucket))
        for _ in range(3):  # DDP arranges its buckets after the first step
            step(model)
        actions["computation"][name] = partial(computation, model)
        actions["communication"][name] = partial(communication, buckets, group)
        actions["step"][name] = partial(step, model)
    return actions


def summarize(report: Report) -> dict[str, Any]:
    """For each number of ranks and backend the share of the communication that DDP hides: 1 is all of it."""
    seconds = {
        (row.setting["ranks"], row.setting["operation"], peer): value
        for row in report.rows
        for peer, value in row.seconds.items()
    }
    hidden = []
    for ranks, operation, peer in seconds:
        if operation != "ddp step":
            continue
        step, computation, communication = (
            seconds[ranks, f"ddp {name}", peer] for name in ("step", "computation", "communication")
        )
        share = 1 - (step - computation) / communication
        hidden.append({"ranks": ranks, "peer": peer, "step_s": step, "hidden_share": min(1.0, max(0.0, share))})
    return {"hidden": hidden}


def table(report: Report) -> str:
    text = runner.table(report)
    if not report.summary["hidden"]:
        return text
    lines = [["ranks", "peer", "DDP step", "of the communication hidden"]]
    for facts in report.summary["hidden"]:
        cells = [str(facts["ranks"]), facts["peer"], runner.seconds_text(facts["step_s"])]
        lines.append([*cells, f"{facts['hidden_share']:.2f}"])
    return text + "\n\n" + columns(lines, keys=2)
