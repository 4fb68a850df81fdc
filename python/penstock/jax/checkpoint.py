"""JAX arrays in checkpoints, and Orbax's CheckpointManager on a :class:`penstock.Checkpointer`.

``Checkpointer.save`` takes trees with JAX arrays of any sharding, and ``Checkpointer.restore(like=tree)`` makes them, on any
number of processes.
"""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import jax
import numpy as np

from penstock.checkpoint import Checkpointer, CheckpointHandle
from penstock.checkpoint_tree import ArrayInfo, Shares, register_node
from penstock.error import Error
from penstock.jax.arrays import _aligned, _box, _boxes, _process_of, layout_for
from penstock.layout import DistArray, Layout

if TYPE_CHECKING:
    from jax.sharding import Sharding
    from numpy.typing import NDArray

    from penstock.tensor_layout import Box

_MOST_LAYOUTS = 4096


# -- leaves of a tree -------------------------------------------------------------------------------------------------


def is_leaf(node: object) -> bool:
    """Whether it is an array of JAX, or says what one is to be like."""
    return isinstance(node, (jax.Array, jax.ShapeDtypeStruct))


def saved(array: Any, path: str, shares: Shares) -> NDArray[Any] | DistArray:
    """What this rank saves: all of what the process has alone, or its parts of an array of several processes."""
    if not isinstance(array, jax.Array):
        raise Error(f"'{path}' is a {type(array).__name__}, which has no elements; expected a jax.Array")
    if array.is_deleted():
        raise Error(f"'{path}' has been deleted or donated")
    if jax.dtypes.issubdtype(array.dtype, jax.dtypes.extended):
        raise Error(f"'{path}' has elements of {array.dtype}; expected numbers: pass jax.random.key_data(array)")
    if jax.process_count() == 1 or isinstance(array.sharding, jax.sharding.SingleDeviceSharding):
        return np.asarray(array)  # each process has its own, equal ones
    processes = {device.process_index for device in array.sharding.device_set}
    if array.is_fully_replicated and len(processes) == jax.process_count():
        return np.asarray(array.addressable_data(0))
    _check_ranks(path, shares)
    held: dict[Box, NDArray[Any]] = {}
    for shard in array.addressable_shards:
        held.setdefault(_box(shard.index, array.shape), shard.data)
    layout, mine = _placed(array.shape, array.dtype.itemsize, array.sharding, shares)
    parts = [np.asarray(held[box]).reshape(-1) for box in mine]
    flat = parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, array.dtype), *parts])
    return DistArray(layout, flat, shares.rank)


def _check_ranks(path: str, shares: Shares) -> None:
    if (jax.process_index(), jax.process_count()) != (shares.rank, shares.ranks):
        raise Error(
            f"'{path}' is distributed over the {jax.process_count()} processes of JAX, of which this is {jax.process_index()}; "
            f"the Checkpointer has {shares.ranks} ranks, of which this is {shares.rank}: give it a communicator of the same "
            "processes in the same order"
        )


def _placed(
    shape: tuple[int, ...], item_bytes: int, sharding: Sharding, shares: Shares
) -> tuple[Layout, tuple[Box, ...]]:
    """Each box is saved by one of the processes that hold it, and by which one is alike on all. And this rank's boxes."""
    owners = tuple(
        shares.give(holders, math.prod(box.shape) * item_bytes) for box, holders in _holders(shape, sharding).items()
    )
    return _layout_of(shape, sharding, owners, shares.rank, shares.ranks)


@functools.lru_cache(maxsize=_MOST_LAYOUTS)
def _holders(shape: tuple[int, ...], sharding: Sharding) -> dict[Box, tuple[int, ...]]:
    by_rank, _ = _boxes(shape, sharding, _process_of)
    holders: dict[Box, list[int]] = {}
    for rank, boxes in by_rank.items():
        for box in boxes:
            if not box.is_empty:
                holders.setdefault(box, []).append(rank)
    return {box: tuple(ranks) for box, ranks in sorted(holders.items())}


@functools.lru_cache(maxsize=_MOST_LAYOUTS)
def _layout_of(
    shape: tuple[int, ...], sharding: Sharding, owners: tuple[int, ...], rank: int, ranks: int
) -> tuple[Layout, tuple[Box, ...]]:
    boxes = list(_holders(shape, sharding))
    if not shape:
        return Layout.whole((), owners[0], ranks), tuple(boxes) if owners[0] == rank else ()
    placed = [(owner, box.begin, box.shape) for owner, box in zip(owners, boxes)]
    return Layout.boxes(shape, placed, ranks), tuple(box for owner, box in zip(owners, boxes) if owner == rank)


def layout(like: Any) -> Layout | None:
    """The layout in which a restore reads an array like this one; None: every rank the whole."""
    sharding = like.sharding
    single = isinstance(sharding, jax.sharding.SingleDeviceSharding)
    if sharding is None or single or jax.process_count() == 1 or sharding.is_fully_replicated:
        return None
    try:
        return layout_for(like.shape, sharding)
    except Error as error:
        if error.code != "unsupported":
            raise
        return None  # replicated in parts


def made(like: Any, value: Any) -> Any:
    """An array with the sharding of `like`; an ndarray if that has none."""
    sharding = like.sharding
    if sharding is None:
        return value
    if not isinstance(value, DistArray):
        return jax.make_array_from_callback(value.shape, sharding, lambda index: value[index], dtype=value.dtype)
    boxes, _ = _boxes(tuple(like.shape), sharding, _process_of)
    flat = value.local.reshape(-1)
    parts: dict[Box, NDArray[Any]] = {}
    begin = 0
    for box in boxes.get(value.rank, []):
        end = begin + math.prod(box.shape)
        parts[box] = _aligned(box.shape, value.dtype) if box.is_empty else flat[begin:end].reshape(box.shape)
        begin = end
    return jax.make_array_from_callback(
        tuple(like.shape), sharding, lambda index: parts[_box(index, like.shape)], dtype=value.dtype
    )


def _register_keys() -> None:
    """Typed keys of random numbers: their bits and how they are used."""
    # Their class has no public name, and making a key would start JAX's devices.
    for module in ("jax._src.random.prng", "jax._src.prng"):
        try:
            kind = importlib.import_module(module).PRNGKeyArray
        except (ImportError, AttributeError):
            continue
        register_node(
            kind,
            lambda key: {"impl": str(jax.random.key_impl(key)), "data": jax.random.key_data(key)},
            lambda tree: jax.random.wrap_key_data(jax.numpy.asarray(tree["data"]), impl=tree["impl"]),
        )
        return


_register_keys()


# -- Orbax's interface ------------------------------------------------------------------------------------------------


class CheckpointManager:
    """The interface of ``orbax.checkpoint.CheckpointManager`` on a :class:`penstock.Checkpointer`; Orbax is not needed.

    >>> with penstock.jax.CheckpointManager("file:///scratch/run", max_to_keep=3, save_interval_steps=100) as manager:
    ...     if manager.latest_step() is not None:
    ...         state = manager.restore(manager.latest_step(), state)
    ...     for step in range(steps):
    ...         state = update(state)
    ...         manager.save(step, state)

    A save returns once everything is copied. Trees and arguments of Orbax that have an ``item`` (``args.StandardSave(tree)``,
    ``args.PyTreeSave``, ``args.JsonSave``, and ``StandardRestore``, ``PyTreeRestore``) or are ``args.Composite`` are taken alike.
    All methods are collective, with equal arguments on all ranks.

    Parameters
    ----------
    url : str
        The slow tier, as for :class:`penstock.Checkpointer`, which is ``checkpointer``.
    save_interval_steps : int
        :meth:`save` does nothing at steps that are not multiples of it, unless forced.
    max_to_keep, keep_period : int, optional
        ``keep`` and ``keep_every`` of the Checkpointer.
    best_metric : str, optional
        The metric by which :meth:`best_step` chooses.
    best_mode : "min" or "max"
    **options
        Of the Checkpointer, such as ``burst_buffer``, ``comm``, ``run``, ``staging_bytes`` and ``save_on_signal``.
    """

    def __init__(
        self,
        url: str,
        *,
        save_interval_steps: int = 1,
        max_to_keep: int | None = None,
        keep_period: int | None = None,
        best_metric: str | None = None,
        best_mode: Literal["min", "max"] = "max",
        **options: Any,
    ) -> None:
        if save_interval_steps < 1:
            raise Error(f"save_interval_steps is {save_interval_steps}; expected at least 1")
        if best_metric is not None and max_to_keep is not None:
            options.setdefault("keep_best", (best_metric, max_to_keep))
        self.checkpointer = Checkpointer(url, keep=max_to_keep, keep_every=keep_period, best_mode=best_mode, **options)
        self._interval_steps = save_interval_steps
        self._best = best_metric, best_mode
        self._last: CheckpointHandle | None = None
        self._due: tuple[int, bool] | None = None

    def should_save(self, step: int) -> bool:
        """Whether :meth:`save` would save: at multiples of the interval, and after a signal of ``save_on_signal``."""
        if self._due is None or self._due[0] != step:
            latest = self.latest_step()
            by_signal = self.checkpointer.due(step)
            self._due = step, (step % self._interval_steps == 0 or by_signal) and (latest is None or step > latest)
        return self._due[1]

    def save(
        self, step: int, args: Any = None, *, metrics: Mapping[str, float] | None = None, force: bool = False
    ) -> bool:
        """Start to save a tree. Returns whether it did. Raises the failure of an earlier save that nobody has heard of."""
        should = self.should_save(step)
        if not (should or force):
            return False
        self._last = self.checkpointer.save(step, _item_of(args), metrics=metrics)
        return True

    def restore(self, step: int | None = None, args: Any = None) -> Any:
        """The tree of a step, by default of the latest. Waits for a save of it that is in progress.

        ``args`` is a tree such as the program saves, or of ``jax.ShapeDtypeStruct`` with shardings, or Orbax's arguments with
        one: the result has its types and shardings. Without it, arrays are NumPy's and whole on each rank.
        """
        if self._last is not None and not self._last.failed and step in (None, self._last.step):
            self._last.wait("fast")
        item = _item_of(args)
        like = {} if item is None else {"like": item}
        return self.checkpointer.restore(step=step, **like)[1]

    def all_steps(self, read: bool = False) -> Sequence[int]:
        """The steps of the complete checkpoints, ascending; of saves in progress, too."""
        steps = set(self.checkpointer.steps())
        if self._last is not None and not self._last.failed:
            steps.add(self._last.step)
        return sorted(steps)

    def latest_step(self) -> int | None:
        """The step that was saved last."""
        if self._last is not None and not self._last.failed:
            return self._last.step
        return self.checkpointer.latest

    def best_step(self) -> int | None:
        """The step with the best metric, the latest of equally good ones; the latest step if none has it."""
        name, mode = self._best
        found = [(metrics[name], step) for step in self.checkpointer.steps() if name in (metrics := self.metrics(step))]
        if name is None or not found:
            return self.latest_step()
        return max(found, key=lambda one: (one[0] if mode == "max" else -one[0], one[1]))[1]

    def metrics(self, step: int) -> dict[str, float]:
        return self.checkpointer.inspect(step).metrics

    def item_metadata(self, step: int) -> Any:
        """The tree of a step with a :class:`penstock.checkpoint.ArrayInfo` for each array. Reads no array."""
        return self.checkpointer.inspect(step).tree

    def reached_preemption(self, step: int) -> bool:
        """Whether a signal of ``save_on_signal`` has come to any rank."""
        self.should_save(step)
        return bool(self.checkpointer.signals)

    def is_saving_in_progress(self) -> bool:
        return self._last is not None and not self._last.failed and self._last.level != "drained"

    def wait_until_finished(self) -> None:
        """Wait until everything is durable in the slow tier. Raises a failure that nobody has heard of."""
        self.checkpointer.finish()

    def check_for_errors(self) -> None:
        """Raise if the last save has failed."""
        if self._last is not None and self._last.failed:
            self._last.wait()

    def close(self) -> None:
        self.checkpointer.close()

    def __enter__(self) -> CheckpointManager:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _item_of(args: Any) -> Any:
    """The tree of Orbax's arguments; anything else is a tree."""
    if not type(args).__module__.startswith("orbax."):
        return args
    items = getattr(type(args), "items", None)  # Composite takes any name of an instance for an item
    if callable(items):
        return {name: _item_of(value) for name, value in items(args)}
    if hasattr(args, "item"):
        return args.item
    raise Error(f"args is a {type(args).__name__}; expected a tree, or arguments with an item")


__all__ = ["ArrayInfo", "CheckpointManager"]
