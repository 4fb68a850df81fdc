"""Checkpoints that are saved behind the computation and restored into any layout on any number of ranks."""

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

    #: Name, element type, layout and memory.
    _Saved = tuple[str, str, _penstock.Layout, NDArray[Any] | None]

# Element types of arrays as they are saved; others travel as the bits of an unsigned integer of their size.
_NATIVE = {
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "bfloat16", "float32", "float64", "complex64", "complex128",
}  # fmt: skip
_BITS = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64", 16: "complex128"}

_open: weakref.WeakSet[Checkpointer] = weakref.WeakSet()
_numbers = itertools.count()


class CheckpointHandle:
    """A checkpoint under way; made by :meth:`Checkpointer.save`."""

    def __init__(self, native: _penstock.CheckpointHandle, stall_s: float) -> None:
        self._native = native
        #: How long ``save`` held up its caller, in seconds.
        self.stall_s = stall_s

    @property
    def step(self) -> int:
        return self._native.step

    @property
    def level(self) -> str:
        """How safe it is: "staged" (copied), "fast" (durable in the burst buffer) or "drained" (in the slow tier).

        Without a burst buffer the last two are reached together.
        """
        return self._native.level

    @property
    def failed(self) -> bool:
        """Whether it will never reach the next level."""
        return self._native.failed

    def wait(self, level: str = "drained") -> None:
        """Block until the level is reached on all ranks; other Python threads run meanwhile.

        Raises the checkpoint's :class:`penstock.Error` if it failed before: the rank's own where it occurred,
        "peer_failed" on the others. Call it on all ranks or on none.
        """
        self._native.wait(level)

    def __repr__(self) -> str:
        return f"<checkpoint of step {self.step}, {'failed after ' if self.failed else ''}{self.level}>"


class Checkpointer:
    """``Checkpointer("file:///slow/ckpt", burst_buffer="file:///nvme/ckpt", keep=5)``: saves and restores at one place.

    :meth:`save` returns after one copy; writing, agreement of the ranks and the way from the burst buffer to the slow
    tier happen in the background. A checkpoint exists from the moment when everything of it is durable. One run at a
    time may save to a place, any number may restore from it.

    Parameters
    ----------
    url : str
        The slow tier, shared by all ranks.
    burst_buffer : str, optional
        The fast tier; may be local to each node.
    keep : int, optional
        The newest checkpoints that stay in the slow tier; None keeps all. An old one goes only when a newer one has
        reached the slow tier.
    comm : penstock.Comm or mpi4py.MPI.Intracomm, optional
        The ranks that save and restore together; it is duplicated. None is mpi4py's COMM_WORLD where mpi4py.MPI is imported
        and has more than one rank, else this process alone.
    chunk_bytes : int
        Unit of checksums and of reading, a multiple of 64.
    undrained_max : int
        When so many checkpoints wait to be drained, the next one waits for the oldest.

    Making one, :meth:`save`, :meth:`restore`, :meth:`finish` and :meth:`close` are collective.
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
        #: What :meth:`restore` passed over or repaired, most recent call.
        self.restore_warnings: list[str] = []
        self._number = next(_numbers)
        _open.add(self)

    def save(self, step: int, tree: Any, dataset: Any = None) -> CheckpointHandle:
        """Save a tree of arrays, and the position of a loader with it. Returns once everything has been copied.

        Parameters
        ----------
        step : int
            Checkpoints are ordered by it. A step that exists is replaced, once the new one is durable.
        tree : dict, list, tuple or leaf
            Nested containers of the same form on all ranks. Leaves: :class:`penstock.DistArray`, of which every rank
            gives its part; arrays (NumPy, DLPack), which are the same on all ranks, so rank 0's is saved; numbers,
            strings, bytes, booleans and None, of which rank 0's are saved. Dictionary keys are strings or integers.
        dataset : optional
            Anything with ``state_dict()`` and ``load_state_dict()``, such as a :class:`penstock.Dataset`.

        Raises
        ------
        penstock.Error
            For arguments that cannot be saved; or the error of an earlier checkpoint that no ``wait`` has delivered, on
            all ranks from the same call. This step is then saved on no rank.
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
            # The other ranks are about to save and must not wait for this one.
            self._native.fail_save(step, str(error))
            raise
        native = self._native.save(step, arrays, metadata)
        return CheckpointHandle(native, time.perf_counter() - begin)

    def restore(
        self, layouts: Mapping[str, Any] | None = None, step: int | None = None, dataset: Any = None
    ) -> tuple[int, Any]:
        """Read the newest checkpoint that is complete and intact, or the one of ``step``.

        A damaged checkpoint is passed over with a warning, as is damage in one tier that the other makes good; see
        :attr:`restore_warnings`.

        Parameters
        ----------
        layouts : dict, optional
            The new layout of each distributed array, in the form of the tree or flat with "outer/inner" names: a
            :class:`penstock.Layout`, or a :class:`penstock.DistArray` whose memory is to be filled. Arrays that are not
            named come whole to every rank.
        step : int, optional
        dataset : optional
            Gets ``load_state_dict`` with what was saved.

        Returns
        -------
        step : int
        tree
            As it was saved, with new arrays: :class:`penstock.DistArray` for those in ``layouts``, ndarrays otherwise.

        Raises
        ------
        penstock.Error
            "not_found" without any checkpoint, "corrupt" without an intact one, "invalid_argument" for layouts that do
            not fit.
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
        """The complete checkpoints that this rank can see, ascending. Local."""
        return self._native.steps()

    @property
    def latest(self) -> int | None:
        """The newest of :meth:`steps`, or None. Local."""
        return max(self.steps(), default=None)

    @property
    def warnings(self) -> list[str]:
        """What went wrong without failing a checkpoint, such as an old one that could not be removed. Local."""
        return self._native.warnings()

    def reserve(self, local_nbytes: int) -> None:
        """Allocate and touch memory for saves of so many bytes on this rank: the first one is then as short as the others."""
        self._native.reserve(local_nbytes)

    def report(self) -> str:
        """Return tiers, memory and threads, one fact per line."""
        return self._native.report()

    def finish(self) -> None:
        """Wait until all checkpoints are drained or have failed; raise the first error that was not delivered."""
        self._native.finish()

    def close(self) -> None:
        """Finish, and let go of everything. May be called twice."""
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
    """Before mpi4py finalizes MPI, which the background threads use."""
    for checkpointer in sorted(_open, key=lambda open_one: open_one._number):  # the same order on all ranks
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
# None, booleans, strings, integers and finite floats stand for themselves; everything else is an object of one member,
# whose name says what it is.


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
