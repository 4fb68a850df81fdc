"""torch.distributed.checkpoint (DCP) on a :class:`penstock.Checkpointer`.

>>> import torch.distributed.checkpoint as dcp
>>> from penstock.torch.checkpoint import Reader, Writer
>>> with penstock.Checkpointer("file:///slow/ckpt", burst_buffer="file:///nvme/ckpt", comm=comm) as checkpoints:
...     dcp.save(state, storage_writer=Writer(checkpoints, step=300))
...     dcp.load(state, storage_reader=Reader(checkpoints))

Each tensor is an array of the checkpoint, "state/" and its name, in the layout of its shards: ``Checkpointer.restore``, NumPy
programs and ``penstock checkpoint`` read it without PyTorch. Only what is no tensor is kept as DCP gives it, as bytes.
"""

from __future__ import annotations

import glob
import io
import json
import math
import os
import struct
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import (
    LoadItemType,
    LoadPlan,
    LoadPlanner,
    SavePlan,
    SavePlanner,
    WriteItemType,
)
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from torch.futures import Future

from penstock.error import Error
from penstock.layout import DistArray, Layout

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.checkpoint import Checkpointer

__all__ = ["Reader", "Writer"]

_FORMAT = "torch.distributed.checkpoint, as penstock.torch.checkpoint keeps it, 1"
_BITS = {1: np.uint8, 2: np.int16, 4: np.int32, 8: np.int64}
_TORCH_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class _Box(NamedTuple):
    """A part of a tensor: of rank ``owner``."""

    owner: int
    begin: list[int]
    shape: list[int]


class Writer(StorageWriter):
    """Saves what ``dcp.save`` and ``dcp.async_save`` give it. Make one on every rank of the Checkpointer.

    The ranks of DCP's process group must be those of the Checkpointer, in the same order. The Checkpointer must not be used for
    something else at the same time, which matters for ``async_save``. DCP's ``enable_plan_caching`` does not work with it.

    Parameters
    ----------
    checkpoints : penstock.Checkpointer
    step : int, optional
        The step to save. ``dcp.save(checkpoint_id=step)`` overrides it.
    level : str
        When ``dcp.save`` returns, and the future of ``async_save`` is done: "drained" (durable in the slow tier), "fast"
        (durable in the burst buffer) or "staged" (copied; a failure surfaces in the next save or ``finish``).
    """

    def __init__(self, checkpoints: Checkpointer, step: int | None = None, *, level: str = "drained") -> None:
        if level not in ("staged", "fast", "drained"):
            raise Error(f"level is {level!r}; expected 'staged', 'fast' or 'drained'")
        self._checkpoints = checkpoints
        self._step = step
        self._level = level

    def reset(self, checkpoint_id: str | os.PathLike[str] | int | None = None) -> None:
        if checkpoint_id is not None:
            self._step = _step_of(checkpoint_id)

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        if self._step is None:
            raise Error("no step to save: give Writer(checkpoints, step=…) or dcp.save(checkpoint_id=step)")
        _check_rank(self._checkpoints, kwargs)

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """All ranks learn all boxes: they save the same arrays."""
        _check_size(self._checkpoints, len(plans))
        tensors: dict[str, dict[str, Any]] = {}
        others: dict[str, int] = {}
        paths: dict[str, list[Any]] = {}
        for rank, plan in enumerate(plans):
            if not plan.usable:
                raise Error(
                    "DCP's enable_plan_caching is on, with which no plan comes here; leave it off", "unsupported"
                )
            paths.update({name: list(path) for name, path in (plan.planner_data or {}).items()})
            for item in plan.items:
                if item.type == WriteItemType.BYTE_IO:
                    others[item.index.fqn] = rank
                    continue
                assert item.tensor_data is not None
                data = item.tensor_data
                tensor = tensors.setdefault(
                    item.index.fqn, {"dtype": _name_of(data.properties.dtype), "shape": list(data.size), "boxes": []}
                )
                tensor["boxes"].append([rank, list(data.chunk.offsets), list(data.chunk.sizes)])
        for name, tensor in tensors.items():
            try:
                _layout(tensor["shape"], [_Box(*box) for box in tensor["boxes"]], len(plans))
            except Error as error:
                raise Error(f"the shards of '{name}' are not a division of it: {error.message}") from None
        told = {"format": _FORMAT, "tensors": tensors, "others": others, "paths": paths}
        return [replace(plan, storage_data=told) for plan in plans]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        step = self._step
        assert step is not None
        told, rank, ranks = plan.storage_data, self._checkpoints._rank, _size(self._checkpoints)
        parts: dict[str, list[NDArray[Any]]] = {}
        content: dict[str, bytes] = {}
        failure: Exception | None = None
        try:
            for item in plan.items:
                data = planner.resolve_data(item)
                if isinstance(data, torch.Tensor):
                    parts.setdefault(item.index.fqn, []).append(_numpy(data))
                else:
                    content[item.index.fqn] = bytes(data.getbuffer())
        except Exception as error:  # the other ranks wait for this one in what follows
            failure = error
        packed = _pack(content) if content else b""
        tree: dict[str, Any] = {"dcp": json.dumps(told), "state": {}, "others": {}}
        for owner in sorted(set(told["others"].values())):
            # Only the owner has a length.
            nbytes = self._checkpoints._native.any_of(len(packed) if owner == rank and failure is None else 0)
            mine = np.frombuffer(packed, np.uint8) if owner == rank and failure is None else np.empty(0, np.uint8)
            tree["others"][str(owner)] = DistArray(Layout.whole((nbytes,), owner, ranks), mine, rank)
        if failure is not None:
            self._checkpoints._native.fail_save(step, str(failure))
            raise failure
        for name, tensor in told["tensors"].items():
            if math.prod(tensor["shape"]) == 0:
                continue
            layout = _layout(tensor["shape"], [_Box(*box) for box in tensor["boxes"]], ranks)
            given = parts.get(name, [])
            flat = (
                given[0].reshape(-1)
                if len(given) == 1
                else np.concatenate([np.empty(0, _dtype_of(tensor["dtype"])), *(part.reshape(-1) for part in given)])
            )
            tree["state"][name] = DistArray(layout, flat, rank)
        handle = self._checkpoints.save(step, tree)
        if self._level != "staged":
            handle.wait(self._level)
        done: Future[list[WriteResult]] = Future()
        done.set_result([WriteResult(item.index, item.tensor_storage_size() or 0, None) for item in plan.items])
        return done

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Nothing: the checkpoint has been complete since ``write_data``."""

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return False  # DCP must not choose this class by itself


class Reader(StorageReader):
    """Gives ``dcp.load`` what :class:`Writer` has saved, on any number of ranks and in any sharding.

    A tensor whose parts the ranks divide is read once over all of them; of a tensor that ranks want several times, every rank
    reads the whole.

    Parameters
    ----------
    checkpoints : penstock.Checkpointer
        Its ranks must be those of DCP's process group, in the same order.
    step : int, optional
        Default: the newest. ``dcp.load(checkpoint_id=step)`` overrides it.
    """

    def __init__(self, checkpoints: Checkpointer, step: int | None = None) -> None:
        self._checkpoints = checkpoints
        self._step = step
        self._found: int | None = None
        self._told: dict[str, Any] = {}

    def reset(self, checkpoint_id: str | os.PathLike[str] | int | None = None) -> None:
        if checkpoint_id is not None:
            self._step = _step_of(checkpoint_id)

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        info = self._checkpoints.inspect(self._step)
        text = info.tree.get("dcp") if isinstance(info.tree, dict) else None
        told = json.loads(text) if isinstance(text, str) else {}
        if told.get("format") != _FORMAT:
            raise Error(
                f"the checkpoint of step {info.step} was not saved by penstock.torch.checkpoint.Writer, or by a later one; "
                "read it with Checkpointer.restore",
                "unsupported",
            )
        self._found, self._told = info.step, told
        state: dict[str, Any] = {name: BytesStorageMetadata() for name in told["others"]}
        for name, tensor in told["tensors"].items():
            chunks = [ChunkStorageMetadata(torch.Size(begin), torch.Size(shape)) for _, begin, shape in tensor["boxes"]]
            properties = TensorProperties(dtype=getattr(torch, tensor["dtype"]))
            state[name] = TensorStorageMetadata(properties, torch.Size(tensor["shape"]), chunks)
        return Metadata(
            state, planner_data={name: tuple(path) for name, path in told["paths"].items()} or None, storage_data={}
        )

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        _check_rank(self._checkpoints, kwargs)

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return replace(plan, storage_data=self._found)

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """All ranks learn the layouts in which they read."""
        _check_size(self._checkpoints, len(plans))
        for rank, plan in enumerate(plans):
            if plan.storage_data != plans[0].storage_data:
                raise Error(
                    f"rank {rank} sees the checkpoint of step {plan.storage_data} as the newest, rank 0 that of step "
                    f"{plans[0].storage_data}; give Reader(checkpoints, step=…)",
                    "mismatch",
                )
        boxes: dict[str, list[_Box]] = {}
        others: set[str] = set()
        for rank, plan in enumerate(plans):
            for item in plan.items:
                if item.type == LoadItemType.BYTE_IO:
                    others.add(str(self._told["others"][item.storage_index.fqn]))
                else:
                    boxes.setdefault(item.storage_index.fqn, []).append(_wanted(rank, item))
        wanted: dict[str, list[_Box] | None] = {}
        for name, some in boxes.items():
            shape = self._told["tensors"][name]["shape"]
            if math.prod(shape) == 0:
                continue
            try:
                _layout(shape, some, len(plans))
                wanted[name] = some
            except Error:
                wanted[name] = None  # several ranks want the same elements, or nobody some
        return [replace(plan, storage_data=(plan.storage_data, wanted, sorted(others))) for plan in plans]

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        step, wanted, others = plan.storage_data
        rank, ranks = self._checkpoints._rank, _size(self._checkpoints)
        layouts = {
            f"state/{name}": _layout(self._told["tensors"][name]["shape"], boxes, ranks)
            for name, boxes in wanted.items()
            if boxes is not None
        }
        names = [f"state/{name}" for name in wanted] + [f"others/{owner}" for owner in others]
        found: dict[str, Any] = {}
        if names:
            _, found = self._checkpoints.restore(layouts, step, only=[glob.escape(name) for name in names])
        content = {name: data for owner in others for name, data in _unpack(found[f"others/{owner}"].tobytes()).items()}
        taken: dict[str, int] = {}  #: elements of this rank's part that are used
        for item in plan.items:
            name = item.storage_index.fqn
            if item.type == LoadItemType.BYTE_IO:
                planner.load_bytes(item, io.BytesIO(content[name]))
                continue
            target = planner.resolve_tensor(item).detach()
            if target.numel() > 0:
                box = _wanted(rank, item)
                array = found[f"state/{name}"]
                if isinstance(array, DistArray):
                    begin = taken.get(name, 0)
                    taken[name] = end = begin + math.prod(box.shape)
                    part = array.local.reshape(-1, order="A")[begin:end]
                else:
                    part = array.reshape(self._told["tensors"][name]["shape"])[
                        tuple(slice(begin, begin + length) for begin, length in zip(box.begin, box.shape))
                    ]
                source = _tensor(part, getattr(torch, self._told["tensors"][name]["dtype"]))
                target.copy_(source.reshape(target.shape))
            planner.commit_tensor(item, target)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return False


def _step_of(checkpoint_id: Any) -> int:
    try:
        return int(os.fspath(checkpoint_id) if isinstance(checkpoint_id, os.PathLike) else checkpoint_id)
    except ValueError:
        raise Error(f"checkpoint_id is {checkpoint_id!r}; expected the number of a step") from None


def _size(checkpoints: Checkpointer) -> int:
    return checkpoints._ranks


def _check_rank(checkpoints: Checkpointer, given: dict[str, Any]) -> None:
    rank = given.get("rank")
    if rank is not None and _size(checkpoints) > 1 and rank != checkpoints._rank:
        raise Error(
            f"rank {rank} of DCP's process group is rank {checkpoints._rank} of the Checkpointer; give both the same ranks in "
            "the same order",
            "mismatch",
        )


def _check_size(checkpoints: Checkpointer, plans: int) -> None:
    if plans != _size(checkpoints):
        raise Error(
            f"DCP's process group has {plans} ranks, the Checkpointer {_size(checkpoints)}; give both the same ranks",
            "mismatch",
        )


def _layout(shape: list[int], boxes: Iterable[_Box], ranks: int) -> Layout:
    """A tensor without dimensions is an array of one element."""
    if not shape:
        boxes = [_Box(owner, [0], [1]) for owner, _, _ in boxes]
    whole = [box for box in boxes if math.prod(box.shape) > 0]
    return Layout.boxes(shape or [1], whole, ranks)


def _wanted(rank: int, item: Any) -> _Box:
    """The elements of the saved tensor that an item reads."""
    shard = item.storage_index.offset or [0] * len(item.lengths)
    return _Box(rank, [a + b for a, b in zip(shard, item.storage_offsets)], list(item.lengths))


def _name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _dtype_of(name: str) -> np.dtype[Any]:
    return _numpy(torch.empty(0, dtype=getattr(torch, name))).dtype


def _numpy(tensor: torch.Tensor) -> NDArray[Any]:
    tensor = tensor.detach().cpu().contiguous()
    try:
        return tensor.numpy()
    except TypeError:  # bfloat16, float8 and others that NumPy does not know
        bits = tensor.view(_TORCH_BITS[tensor.element_size()]).numpy()
    try:
        import ml_dtypes
    except ImportError:
        return bits
    known = getattr(ml_dtypes, _name_of(tensor.dtype), None)
    return bits if known is None else bits.view(known)


def _tensor(array: NDArray[Any], dtype: torch.dtype) -> torch.Tensor:
    array = np.ascontiguousarray(array)
    try:
        tensor = torch.from_numpy(array)
    except TypeError:
        tensor = torch.from_numpy(array.view(_BITS[array.itemsize]))
    return tensor if tensor.dtype == dtype else tensor.view(dtype)


def _pack(content: dict[str, bytes]) -> bytes:
    head = json.dumps([[name, len(data)] for name, data in content.items()]).encode()
    return struct.pack("<Q", len(head)) + head + b"".join(content.values())


def _unpack(packed: bytes) -> dict[str, bytes]:
    (length,) = struct.unpack_from("<Q", packed)
    at, content = 8 + length, {}
    for name, nbytes in json.loads(packed[8:at]):
        content[name] = packed[at : at + nbytes]
        at += nbytes
    return content
