"""Asynchronous checkpoints, restored into any layout on any number of ranks."""

from __future__ import annotations

import atexit
import itertools
import json
import math
import operator
import sys
import time
import warnings
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock import _penstock
from penstock.error import Error
from penstock.layout import DistArray, Layout

if TYPE_CHECKING:
    from typing import Literal

    from numpy.typing import NDArray

    #: (name, element type, layout, memory)
    _Saved = tuple[str, str, _penstock.Layout, NDArray[Any] | None]

# Element types that are saved as such. Other types are saved as the bits of an unsigned integer of their size.
_NATIVE = {
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "bfloat16", "float32", "float64", "complex64", "complex128",
}  # fmt: skip
_BITS = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64", 16: "complex128"}

_open: weakref.WeakSet[Checkpointer] = weakref.WeakSet()
_numbers = itertools.count()


class CheckpointHandle:
    """A checkpoint in progress. Made by :meth:`Checkpointer.save`."""

    def __init__(self, native: _penstock.CheckpointHandle, stall_s: float) -> None:
        self._native = native
        #: Seconds that ``save`` blocked its caller.
        self.stall_s = stall_s

    @property
    def step(self) -> int:
        return self._native.step

    @property
    def level(self) -> str:
        """ "staged" (copied), "fast" (durable in the burst buffer) or "drained" (durable in the slow tier).

        Without a burst buffer, "fast" and "drained" are reached together.
        """
        return self._native.level

    @property
    def failed(self) -> bool:
        """Whether the checkpoint has failed and will never reach the next level."""
        return self._native.failed

    def wait(self, level: str = "drained") -> None:
        """Block until all ranks have reached the level. Releases the GIL.

        Raises the checkpoint's :class:`penstock.Error` if it failed before that level: the original error on the rank
        where it occurred, "peer_failed" on the others. Call it on all ranks or on none.
        """
        self._native.wait(level)

    def __repr__(self) -> str:
        return f"<checkpoint of step {self.step}, {'failed after ' if self.failed else ''}{self.level}>"


class Checkpointer:
    """Saves checkpoints to one place and restores them: ``Checkpointer("file:///slow/ckpt", burst_buffer="file:///nvme/ckpt")``.

    :meth:`save` returns after one copy of the arrays. Writing, agreement of the ranks, and draining from the burst buffer to
    the slow tier run in the background. A checkpoint exists once all of it is durable. One run at a time may save to a place;
    any number may restore from it. The constructor, :meth:`save`, :meth:`restore`, :meth:`finish` and :meth:`close` are
    collective.

    Parameters
    ----------
    url : str
        The slow tier, shared by all ranks.
    burst_buffer : str, optional
        The fast tier. It may be local to each node.
    keep : int, optional
        How many of the newest checkpoints stay in the slow tier. Default: all. An old one is removed only after a newer one
        is drained.
    comm : penstock.Comm or mpi4py.MPI.Intracomm, optional
        The ranks that save and restore together; it is duplicated. Default: mpi4py's COMM_WORLD if mpi4py.MPI is imported
        and has more than one rank, else this process alone.
    chunk_bytes : int
        Unit of checksums and of reads. A multiple of 64.
    undrained_max : int
        If this many checkpoints wait to be drained, the next save waits for the oldest.
    """

    def __init__(
        self,
        url: str,
        burst_buffer: str | None = None,
        keep: int | None = None,
        comm: Any = None,
        *,
        chunk_bytes: int = 1 << 20,
        undrained_max: int = 4,
    ) -> None:
        if keep is not None and keep < 1:
            raise Error(f"keep is {keep}; expected a number of checkpoints from 1 on, or None to keep all")
        if chunk_bytes < 0:
            raise Error(f"chunk_bytes is {chunk_bytes}; expected a multiple of 64 above 0")
        self._comm = _penstock_comm(comm)
        self._rank = 0 if self._comm is None else self._comm.Get_rank()
        core = None if self._comm is None else self._comm._open()
        self._native = _penstock.Checkpointer(url, burst_buffer or "", keep or 0, chunk_bytes, undrained_max, core)
        #: What the last :meth:`restore` skipped or repaired.
        self.restore_warnings: list[str] = []
        self._number = next(_numbers)
        _open.add(self)

    def save(self, step: int, tree: Any, dataset: Any = None) -> CheckpointHandle:
        """Save a tree of arrays, and optionally the position of a data loader. Returns once everything is copied.

        The caller may then change its arrays. The call first waits until the previous checkpoint is complete in the first
        tier.

        Parameters
        ----------
        step : int
            Checkpoints are ordered by step. An existing step is replaced once the new one is drained.
        tree : dict, list, tuple or leaf
            Nested containers with the same structure on all ranks. Dictionary keys are strings or integers. Leaves:

            - :class:`penstock.DistArray`: every rank passes its part;
            - arrays (NumPy, DLPack), equal on all ranks: rank 0's is saved;
            - numbers, strings, bytes, booleans and None: rank 0's is saved.
        dataset : optional
            An object with ``state_dict()`` and ``load_state_dict()``, such as a :class:`penstock.Dataset`.

        Raises
        ------
        penstock.Error
            An argument cannot be saved; or an earlier checkpoint failed, and no ``wait`` has raised its error. All ranks
            raise from the same call, and no rank saves this step.
        """
        begin = time.perf_counter()
        step = operator.index(step)
        if step < 0 or step >= 1 << 64:
            raise Error(f"step is {step}; expected a number from 0 on")
        arrays: list[_Saved] = []
        try:
            content: dict[str, Any] = {"tree": _encode(tree, "", arrays, self._rank)}
            if dataset is not None:
                content["dataset"] = _encode(dataset.state_dict(), "dataset:", arrays, self._rank)
            metadata = json.dumps(content, allow_nan=False)
        except Exception as error:
            # The other ranks wait for this one in save.
            self._native.fail_save(step, str(error))
            raise
        native = self._native.save(step, arrays, metadata)
        return CheckpointHandle(native, time.perf_counter() - begin)

    def restore(
        self, layouts: Mapping[str, Any] | None = None, step: int | None = None, dataset: Any = None
    ) -> tuple[int, Any]:
        """Read the newest complete and intact checkpoint, or the one of ``step``.

        It skips damaged checkpoints with a warning. If one tier is damaged, it reads the other, with a warning. See
        :attr:`restore_warnings`.

        Parameters
        ----------
        layouts : dict, optional
            New layouts of distributed arrays, structured as the tree, or flat with "outer/inner" names. A value is a
            :class:`penstock.Layout`, or a :class:`penstock.DistArray` whose memory to fill. Every rank gets the whole of
            an array that is not listed.
        step : int, optional
        dataset : optional
            Its ``load_state_dict`` gets the saved state.

        Returns
        -------
        step : int
        tree
            The saved tree with new arrays: :class:`penstock.DistArray` for those in ``layouts``, ndarrays otherwise.

        Raises
        ------
        penstock.Error
            "not_found" if there is no checkpoint, "corrupt" if none is intact, "invalid_argument" if a layout does not
            fit.
        """
        wanted: dict[str, Any] = {}
        _flatten(layouts or {}, "", wanted)
        natives: dict[str, Any] = {}
        into: dict[str, Any] = {}
        for name, value in wanted.items():
            if isinstance(value, DistArray):
                natives[name] = value.layout._native
                into[name] = _bits(value.local.reshape(-1, order="A"))[0]
            elif isinstance(value, Layout):
                natives[name] = value._native
            else:
                raise Error(f"layouts['{name}'] is a {type(value).__name__}; expected a Layout or a DistArray")
        found_step, saved, metadata, told = self._native.restore(
            None if step is None else operator.index(step), natives, into
        )
        self.restore_warnings = told
        for text in told:
            warnings.warn(text, RuntimeWarning, stacklevel=2)
        arrays = {name: (dtype, Layout(layout), memory, wanted.get(name)) for name, dtype, layout, memory in saved}
        content = json.loads(metadata)
        tree = _decode(content["tree"], arrays, self._rank)
        if dataset is not None:
            if "dataset" not in content:
                raise Error(f"the checkpoint of step {found_step} was saved without a dataset", "not_found")
            dataset.load_state_dict(_decode(content["dataset"], arrays, self._rank))
        return found_step, tree

    def steps(self) -> list[int]:
        """The steps of the complete checkpoints that this rank can see, ascending. Local."""
        return self._native.steps()

    @property
    def latest(self) -> int | None:
        """The last of :meth:`steps`, or None. Local."""
        return max(self.steps(), default=None)

    @property
    def warnings(self) -> list[str]:
        """Problems that failed no checkpoint, such as an old one that could not be removed. Local."""
        return self._native.warnings()

    def reserve(self, local_nbytes: int) -> None:
        """Allocate and touch memory for saves of ``local_nbytes`` on this rank, so that the first save is no slower. Local."""
        self._native.reserve(local_nbytes)

    def report(self) -> str:
        """Tiers, memory and threads, one fact per line. Local."""
        return self._native.report()

    def finish(self) -> None:
        """Wait until all checkpoints are drained or failed. Raises the first error that no call has raised. Collective."""
        self._native.finish()

    def close(self) -> None:
        """Finish, and release all resources. May be called twice. Collective."""
        if self not in _open:
            return
        _open.discard(self)
        try:
            self._native.finish()
        finally:
            self._native.close()

    def __enter__(self) -> Checkpointer:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


@atexit.register
def _close_all() -> None:
    """Runs before mpi4py finalizes MPI, which the background threads use."""
    for checkpointer in sorted(_open, key=lambda open_one: open_one._number):  # equal order on all ranks
        try:
            checkpointer.close()
        except Error as error:
            print(f"penstock: {error}", file=sys.stderr)


def _penstock_comm(comm: Any) -> Any:
    """A penstock.Comm, or None for a single process."""
    if comm is None:
        MPI = sys.modules.get("mpi4py.MPI")
        if MPI is None or not MPI.Is_initialized() or MPI.Is_finalized() or MPI.COMM_WORLD.Get_size() == 1:
            return None
        comm = MPI.COMM_WORLD
    from penstock.comm import Comm

    return comm if isinstance(comm, Comm) else Comm(comm)


# -- trees as JSON ------------------------------------------------------------------------------------------------
#
# None, booleans, strings, integers and finite floats are JSON values. Everything else is an object with one member, whose
# name is its kind.


def _joined(prefix: str, key: object) -> str:
    separator = "" if not prefix or prefix.endswith(":") else "/"
    return f"{prefix}{separator}{key}"


def _encode(node: Any, path: str, arrays: list[_Saved], rank: int) -> Any:
    if node is None or isinstance(node, (bool, str)):
        return node
    if isinstance(node, np.generic):
        return {"scalar": [_described(node.dtype, path), node.tobytes().hex()]}
    if isinstance(node, int):
        return int(node)
    if isinstance(node, float):
        return float(node) if math.isfinite(node) else {"float": repr(float(node))}
    if isinstance(node, complex):
        return {"complex": [repr(node.real), repr(node.imag)]}
    if isinstance(node, (bytes, bytearray)):
        return {"bytes": bytes(node).hex()}
    if isinstance(node, Mapping):
        items = []
        for key, value in node.items():
            if not isinstance(key, (str, int)) or isinstance(key, bool):
                raise Error(f"'{path}' has the key {key!r}; expected strings and integers")
            items.append([key, _encode(value, _joined(path, key), arrays, rank)])
        return {"dict": items}
    if isinstance(node, (list, tuple)):
        items = [_encode(value, _joined(path, index), arrays, rank) for index, value in enumerate(node)]
        return {"tuple" if isinstance(node, tuple) else "list": items}
    if isinstance(node, DistArray):
        if node.rank != rank and node.layout.local_size(rank) != node.local.size:
            raise Error(f"'{path}' is the part of rank {node.rank}, saved by rank {rank}")
        bits, dtype = _bits(node.local.reshape(-1, order="A"))
        if bits is None:
            raise Error(f"'{path}' has elements of {node.dtype}, which a DistArray cannot save")
        arrays.append((path or "tree", dtype, node.layout._native, bits))
        return {"distributed": [path or "tree", _described(node.dtype, path)]}
    if isinstance(node, np.ndarray) or hasattr(node, "__dlpack__") or hasattr(node, "__array__"):
        return _encode_array(node, path or "tree", arrays, rank)
    raise Error(
        f"'{path}' is a {type(node).__name__}, which cannot be saved; expected arrays, numbers, strings, bytes, None, and "
        "dictionaries, lists and tuples of them"
    )


def _encode_array(node: Any, path: str, arrays: list[_Saved], rank: int) -> Any:
    array = np.asarray(node) if isinstance(node, np.ndarray) or hasattr(node, "__array__") else np.from_dlpack(node)
    described = _described(array.dtype, path)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
        described = _described(array.dtype, path)
    flat = np.ascontiguousarray(array).reshape(-1)
    bits, dtype = _bits(flat)
    shape = array.shape
    if bits is None:  # elements of an odd size: strings, long doubles
        bits, dtype, shape = flat.view(np.uint8), "uint8", (flat.nbytes,)
    arrays.append((path, dtype, Layout.whole(shape)._native, bits if rank == 0 else None))
    return {"array": [path, described, list(array.shape)]}


def _bits(flat: NDArray[Any]) -> tuple[NDArray[Any] | None, str]:
    """The elements as a type that is saved, and its name; None for sizes that none has."""
    if flat.dtype.name in _NATIVE and flat.dtype.isnative:
        return flat, flat.dtype.name
    dtype = _BITS.get(flat.dtype.itemsize)
    return (None, "") if dtype is None else (flat.view(dtype), dtype)


def _described(dtype: np.dtype[Any], path: str) -> str:
    if dtype.hasobject or dtype.names is not None:
        raise Error(f"'{path}' has elements of {dtype}; expected numbers, booleans, dates or strings of fixed length")
    return "bfloat16" if dtype.name == "bfloat16" else dtype.str


def _dtype(described: str) -> np.dtype[Any]:
    if described != "bfloat16":
        return np.dtype(described)
    try:
        from ml_dtypes import bfloat16
    except ImportError:
        return np.dtype(np.uint16)  # NumPy has no such type: the bits
    known: np.dtype[Any] = np.dtype(bfloat16)
    return known


def _decode(node: Any, arrays: dict[str, tuple[str, Layout, NDArray[Any] | None, Any]], rank: int) -> Any:
    if not isinstance(node, dict):
        return node
    ((kind, value),) = node.items()
    if kind == "dict":
        return {key: _decode(item, arrays, rank) for key, item in value}
    if kind in ("list", "tuple"):
        items = [_decode(item, arrays, rank) for item in value]
        return tuple(items) if kind == "tuple" else items
    if kind == "float":
        return float(value)
    if kind == "complex":
        return complex(float(value[0]), float(value[1]))
    if kind == "bytes":
        return bytes.fromhex(value)
    if kind == "scalar":
        return np.frombuffer(bytes.fromhex(value[1]), _dtype(value[0]))[0]
    _, layout, memory, wanted = arrays[value[0]]
    dtype = _dtype(value[1])
    if isinstance(wanted, DistArray):
        if wanted.dtype != dtype:
            raise Error(f"'{value[0]}' was saved with elements of {dtype}, the DistArray to fill has {wanted.dtype}")
        return wanted
    if memory is None:
        raise Error(f"'{value[0]}' has no memory, and no DistArray to fill", "internal")
    flat = memory.view(dtype)
    order: Literal["C", "F"] = "C" if layout.storage == "row" else "F"
    if wanted is not None:
        return DistArray(wanted, flat.reshape(layout.local_shape(rank), order=order), rank)
    return flat.reshape(value[2] if kind == "array" else layout.shape, order=order)


def _flatten(layouts: Any, path: str, to: dict[str, Any]) -> None:
    if isinstance(layouts, Mapping):
        for key, value in layouts.items():
            _flatten(value, _joined(path, key), to)
    elif isinstance(layouts, (list, tuple)):
        for index, value in enumerate(layouts):
            _flatten(value, _joined(path, index), to)
    elif layouts is not None:
        to[path or "tree"] = layouts
