"""Penstock below Orbax's own CheckpointManager: a handler for trees with JAX arrays of any sharding.

>>> import orbax.checkpoint as ocp
>>> import penstock.jax.orbax
>>> manager = ocp.CheckpointManager(folder)
>>> manager.save(step, args=penstock.jax.orbax.Save(state))
>>> state = manager.restore(step, args=penstock.jax.orbax.Restore(state))

Several processes: ``ocp.CheckpointManager(folder, item_handlers=penstock.jax.orbax.Handler(comm=comm))``. Penstock's own
:class:`penstock.jax.CheckpointManager` also has a burst buffer, incremental saves and fences, and keeps its staging memory.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any

from penstock.checkpoint import Checkpointer, CheckpointHandle
from penstock.error import Error

try:
    import orbax.checkpoint as _orbax
except ImportError as _error:
    raise Error(
        "penstock.jax.orbax needs Orbax, which is not installed; install it: pip install orbax-checkpoint, or take "
        "penstock.jax.CheckpointManager, which does not need it",
        "unsupported",
        cause=str(_error),
    ) from _error

import penstock.jax  # noqa: F401

__all__ = ["Handler", "Restore", "Save"]

_STEP = 0  # Orbax has a folder for each step


async def _nothing() -> None:
    pass


class _Commit:
    """A future of Orbax: a save that is complete once it is durable on all ranks."""

    def __init__(self, handle: CheckpointHandle) -> None:
        self._handle = handle

    def result(self, timeout: float | None = None) -> None:
        self._handle.wait("drained")

    def cancel(self) -> None:
        """Nothing: other ranks take part in the save."""


class Handler(_orbax.AsyncCheckpointHandler):
    """An ``orbax.checkpoint.AsyncCheckpointHandler``. A save returns once everything is copied.

    Parameters
    ----------
    comm : penstock.Comm, penstock.Communicator or mpi4py.MPI.Intracomm, optional
        The processes of JAX, in their order; as for :class:`penstock.Checkpointer`.
    chunk_bytes : int
        Unit of checksums.
    """

    def __init__(self, comm: Any = None, *, chunk_bytes: int = 256 << 10) -> None:
        self._comm = comm
        self._chunk_bytes = chunk_bytes
        self._saving: Checkpointer | None = None

    def _opened(self, directory: Any) -> Checkpointer:
        place = os.fspath(directory)
        url = place if "://" in place else f"file://{os.path.abspath(place)}"
        return Checkpointer(url, comm=self._comm, chunk_bytes=self._chunk_bytes)

    async def async_save(self, directory: Any, item: Any = None, args: Save | None = None) -> list[Any]:
        self._finish()
        # Orbax makes the folder meanwhile, and empties it before: what is written earlier would be lost.
        _orbax.future.CommitFutureAwaitingContractedSignals(_nothing(), name="penstock_folder").result()
        self._saving = self._opened(directory)
        return [_Commit(self._saving.save(_STEP, item if args is None else args.item))]

    def save(self, directory: Any, item: Any = None, args: Save | None = None) -> None:
        self._finish()
        with self._opened(directory) as checkpoints:
            checkpoints.save(_STEP, item if args is None else args.item).wait("drained")

    def restore(self, directory: Any, item: Any = None, args: Restore | None = None) -> Any:
        like = item if args is None else args.item
        with self._opened(directory) as checkpoints:
            return checkpoints.restore(step=_STEP, **({} if like is None else {"like": like}))[1]

    def metadata(self, directory: Any) -> Any:
        """The tree with a :class:`penstock.checkpoint.ArrayInfo` for each array."""
        with self._opened(directory) as checkpoints:
            return checkpoints.inspect(_STEP).tree

    def _finish(self) -> None:
        # Orbax begins a save after the one before has ended, on all processes, and has told its failure.
        checkpoints, self._saving = self._saving, None
        if checkpoints is not None:
            checkpoints.close()

    def close(self) -> None:
        self._finish()


@_orbax.args.register_with_handler(Handler, for_save=True)
@dataclasses.dataclass
class Save(_orbax.args.CheckpointArgs):
    """A tree to save: what :meth:`penstock.Checkpointer.save` takes."""

    item: Any


@_orbax.args.register_with_handler(Handler, for_restore=True)
@dataclasses.dataclass
class Restore(_orbax.args.CheckpointArgs):
    """A tree of arrays or of ``jax.ShapeDtypeStruct``, whose types and shardings the result gets; None: NumPy arrays."""

    item: Any = None
