# pyright: strict, reportAny=error
"""A user's program. test_types.py checks it with mypy and pyright, which must know each type here. It is never run.

What a checker takes for Any is an error of its own in this file, so every expression below has a type.
"""

from __future__ import annotations

import numpy as np
import penstock as ps
from mpi4py import MPI
from numpy.typing import NDArray
from typing_extensions import assert_type


def collectives(vector: NDArray[np.float32], total: NDArray[np.float32]) -> None:
    with ps.Comm(MPI.COMM_WORLD, progress_cores="auto") as comm:
        assert_type(comm, ps.Comm)
        assert_type(comm.rank, int)
        assert_type(comm.size, int)
        comm.Allreduce(vector, total, op=MPI.SUM)
        comm.Allreduce(vector, total, reproducible=True, split="auto", radix=4)
        request = comm.Iallreduce(vector, total, op=MPI.SUM)
        assert_type(request, ps.Request)
        assert_type(request.Wait(), bool)
        assert_type(request.Test(), bool)
        assert_type(comm.Ialltoallv(vector, total), ps.Request)
        assert_type(comm.Alltoallw_init(vector, total), ps.Prequest)
        assert_type(comm.Ineighbor_alltoallv(vector, total), ps.Request)
        assert_type(comm.Neighbor_allgather_init(vector, total), ps.Prequest)
        assert_type(comm.degrees, tuple[int, int])
        persistent = comm.Bcast_init(vector, root=0)
        assert_type(persistent, ps.Prequest)
        persistent.Start()
        assert_type(ps.Request.Waitall([request, persistent]), bool)
        assert_type(comm.Dup(), ps.Comm)
        assert_type(comm.Split(comm.rank % 2), ps.Comm)
        assert_type(comm.report(), str)
        plain: MPI.Intracomm = comm
        assert_type(plain.Get_size(), int)


def options(keywords: ps.CollectiveOptions) -> int:
    return keywords.get("segment_bytes", 0)


def layouts() -> NDArray[np.float64]:
    layout = ps.Layout.block_cyclic((4096, 4096), block=(64, 64), grid=(2, 2))
    assert_type(layout, ps.Layout)
    assert_type(layout.shape, tuple[int, ...])
    assert_type(layout.owner(0, 0), int)
    assert_type(layout.local_shape(0), tuple[int, ...])
    block = layout.local_blocks(0)[0]
    assert_type(block, ps.LayoutBlock)
    assert_type(block.global_start, tuple[int, ...])
    assert_type(layout.to_darray((2, 2)), ps.Darray)
    assert_type(layout.to_subarray(0), ps.Subarray)
    part = ps.DistArray(layout, np.ones(layout.local_shape(0)), 0)
    part.local[...] = 1  # an array, not a list of arrays
    assert_type(part.layout, ps.Layout)
    assert_type(part.rank, int)
    zeros = ps.DistArray.zeros(layout, np.float64)
    assert_type(zeros, ps.DistArray)
    assert_type(ps.DistArray.assemble([part, zeros]).ndim, int)
    several = ps.DistArray(layout, [np.ones(4)])
    assert_type(len(several.local), int)
    several.local.append(np.ones(4))  # a list
    return np.empty(layout.shape)


def redistribution(comm: ps.Comm, source: ps.Layout, target: ps.Layout, a: NDArray[np.float64]) -> None:
    plan = comm.plan_redistribute(source, target, np.float64, op="T", relabel=True)
    assert_type(plan, ps.Redistribution)
    assert_type(plan.target, ps.Layout)
    assert_type(plan.permutation, list[int])
    assert_type(plan.relabeling, ps.Relabeling)
    plan.run(a, a, alpha=2.0)
    plan.run([a, a], ps.DistArray(target, a))
    assert_type(plan.start(a, a), ps.Request)
    batch = comm.plan_redistribute([source], [target], np.float64, relabel=True, relabel_jointly=True)
    assert_type(batch, ps.RedistributionBatch)
    assert_type(batch.targets, list[ps.Layout])
    found = ps.relabel(source, target, cost=ps.TransferCost.nodes([0, 0], np.ones((1, 1)), np.ones((1, 1))))
    assert_type(found, ps.Relabeling)
    assert_type(found.reduction_pct, float)
    joint = ps.relabel_jointly([ps.RelabelTransfer(source, target, op="T", side="source")], ranks=2)
    assert_type(joint, ps.Relabeling)


def checkpoints(part: ps.DistArray, dataset: ps.Dataset) -> None:
    with ps.Checkpointer("file:///tmp/slow", burst_buffer="file:///tmp/fast", keep=2) as place:
        handle = place.save(1, {"a": part}, dataset=dataset)
        assert_type(handle, ps.CheckpointHandle)
        handle.wait("drained")
        assert_type(handle.level, str)
        assert_type(handle.stall_s, float)
        assert_type(place.steps(), list[int])
        assert_type(place.latest, int | None)
        assert_type(place.restore({"a": part.layout})[0], int)
        assert_type(place.restore(like={"a": part}, only=["a"])[0], int)
        assert_type(place.restore(default=(0, part))[0], int)
        info = place.inspect()
        assert_type(info, ps.CheckpointInfo)
        assert_type(info.arrays["a"], ps.ArrayInfo)
        assert_type(info.arrays["a"].shape, tuple[int, ...])


def stores(buffer: bytearray) -> None:
    store = ps.Store("memory:x")
    blob = store.create("field", size=1 << 20)
    assert_type(blob, ps.Blob)
    assert_type(blob.write([(0, b"left"), (4096, b"right")]), int)
    assert_type(blob.write([(0, b"left")], parent=blob.latest), int)
    blob.read([(0, buffer)], version=1)
    snapshot = blob.snapshot()
    assert_type(snapshot, ps.Snapshot)
    assert_type(snapshot.size, int)
    assert_type(blob.tags, dict[str, int])
    assert_type(blob.log(), list[ps.LogEntry])
    assert_type(store.list(), list[ps.BlobInfo])
    assert_type(store.list()[0]["latest_version"], int)
    assert_type(store.check(), ps.CheckReport)
    assert_type(store.gc(keep_last=2), dict[str, int])


def files(comm: ps.Comm, buffer: NDArray[np.float32]) -> None:
    with ps.File.Open(comm, "file:///tmp/store/field", MPI.MODE_RDWR) as file:
        assert_type(file, ps.File)
        file.Set_view(0, MPI.FLOAT)
        assert_type(file.Write_at_all(0, buffer), int)
        assert_type(file.Iread_at(0, buffer), ps.FileRequest)
        assert_type(file.blob, ps.Blob)
        assert_type(file.Get_size(), int)


def datasets(paths: list[str], comm: ps.Comm) -> None:
    dataset = (
        ps.Dataset.from_files(paths).shuffle(seed=1).decode_jpeg(size=(224, 224)).batch(64).prefetch(2).shard(comm)
    )
    assert_type(dataset, ps.Dataset)
    assert_type(len(dataset), int)
    assert_type(dataset.skipped, ps.SkippedSamples)
    assert_type(dataset.skipped[0], ps.Skipped)
    assert_type(dataset.stats, ps.Stats)
    assert_type(dataset.stats.wait_s, float)
    assert_type(ps.dataset.decoder_names(), list[str])
    for images, labels in dataset:
        assert_type(images.shape, tuple[int, ...])
        assert_type(labels.nbytes, int)
    trees = ps.Dataset.mix([ps.Dataset.from_source([1, 2]), ps.Dataset.from_arrays(np.zeros(3))], [1, 0.5])
    trees = trees.map(np.sqrt).random_map(np.add).filter(np.any).pad(0, multiple=8)
    trees = (
        trees.limits(max_bytes=1 << 20, max_seconds=2.5)
        .budget(cpus=2, ram_bytes=1 << 30)
        .ignore_errors(3, replace=True, log="skipped.jsonl")
    )
    assert_type(trees.batch(2).prefetch(4, max_bytes=1 << 30), ps.TreeDataset)
    assert_type(trees.report(), str)
    assert_type(trees.flat_map(list).pack(128).batch(8), ps.TreeDataset)
    assert_type(trees.shuffle(1, block=64).bucket_by_length([1, 2], 8).cache(max_bytes=1 << 20), ps.TreeDataset)
    assert_type(ps.Dataset.from_tfrecord(paths), ps.TreeDataset)
    assert_type(ps.Dataset.from_parquet(paths, columns=["x"]), ps.TreeDataset)
    assert_type(ps.Dataset.from_tar(paths, field="jpg"), ps.Dataset)
    assert_type(ps.Dataset.from_index("train.index"), ps.Dataset)
    assert_type(ps.dataset.build_index(paths, "train.index").samples, int)


def models() -> None:
    advice = ps.model.split(16, "reduce", ratio=1.0)
    assert_type(advice, ps.model.SplitAdvice)
    assert_type(advice.best.best_t, float)
    plans = ps.plan.collective("allreduce", 4, 1024, np.float32)
    assert_type(plans, ps.plan.Plans)
    assert_type(plans.findings, list[str])
    assert_type(ps.plan.algorithms()[0].name, str)
    ps.trace.start()
    with ps.trace.span("step", nbytes=8) as span:
        pass
    assert_type(span.seconds, float)
    assert_type(ps.trace.take(), list[ps.trace.Event])


def errors(error: ps.Error) -> str:
    assert_type(error.rank, int)
    return f"{error.code}: {error} of {ps.__version__}"
