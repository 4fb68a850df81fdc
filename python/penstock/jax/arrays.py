"""JAX arrays over the devices of several processes: shardings as layouts, and redistribution between any shardings."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding
from numpy.typing import NDArray

from penstock.communicator import Communicator
from penstock.error import Error
from penstock.layout import Layout
from penstock.tensor_layout import Box, Move, Redistributing, layout_of_boxes, owned_boxes, parts_of, start_move

if TYPE_CHECKING:
    from penstock import _penstock
    from penstock.comm import Comm

#: By size in bytes. Arrays are only moved, so elements without arithmetic (8-bit floats) travel as such bits.
_BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64, 16: np.complex128}
_MOST_LAYOUTS = 256
_ALIGNMENT = 64


def _process_of(device: Any) -> int:
    return device.process_index


def layout_of(array: jax.Array, *, rank_of: Callable[[Any], int] = _process_of) -> Layout:
    """Which rank owns which elements of a JAX array. Local.

    A rank that has several devices owns the boxes of all of them, each once, in the order of their begin.

    Parameters
    ----------
    array : jax.Array
        Of any sharding. If parts of it are replicated, each process takes part in one copy.
    rank_of : callable
        The rank of a device. Default: its process.
    """
    if not isinstance(array, jax.Array):
        raise Error(f"layout_of: the array is a {type(array).__name__}; expected a jax.Array")
    return layout_for(array.shape, array.sharding, rank_of=rank_of)


def layout_for(shape: Sequence[int], sharding: Sharding, *, rank_of: Callable[[Any], int] = _process_of) -> Layout:
    """The layout of a JAX array of this shape with this sharding; see :func:`layout_of`. Local."""
    boxes, _ = _boxes(tuple(shape), sharding, rank_of)
    return layout_of_boxes(shape, boxes, max(boxes) + 1)


def sharding_of(layout: Layout, mesh: Mesh, *, rank_of: Callable[[Any], int] = _process_of) -> NamedSharding:
    """The sharding by which a mesh distributes an array as a layout does. Local.

    Each rank owns one box of the layout. Raises :class:`penstock.Error` if there is no such sharding. If several are
    equal, dimensions are sharded rather than replicated.
    """
    if not isinstance(layout, Layout):
        raise Error(f"sharding_of: the layout is a {type(layout).__name__}; expected a penstock.Layout")
    if not isinstance(mesh, Mesh):
        raise Error(f"sharding_of: the mesh is a {type(mesh).__name__}; expected a jax.sharding.Mesh")
    owned = owned_boxes(layout)
    for sharding in _shardings(mesh, layout.ndim):
        try:
            boxes, _ = _boxes(layout.shape, sharding, rank_of)
        except Error:  # does not divide the shape
            continue
        held = {rank: [box for box in found if not box.is_empty] for rank, found in boxes.items()}
        if {rank: found for rank, found in held.items() if found} == {rank: [box] for rank, box in owned.items()}:
            return sharding
    raise Error(
        f"sharding_of: no PartitionSpec on the mesh {dict(mesh.shape)} distributes an array as {layout!r} does; a mesh cuts "
        "a dimension into equal pieces"
    )


def _shardings(mesh: Mesh, ndim: int) -> Iterator[NamedSharding]:
    """Each axis of the mesh shards one dimension or none; axes of one dimension do so in any order."""
    names = mesh.axis_names
    seen = set()
    for order in itertools.permutations(names):
        for dims in itertools.product([*range(ndim), None], repeat=len(names)):
            spec = [tuple(name for name, dim in zip(order, dims) if dim == d) for d in range(ndim)]
            entry = tuple(each or None for each in spec)
            if entry not in seen:
                seen.add(entry)
                yield NamedSharding(mesh, PartitionSpec(*entry))


def redistribute(array: jax.Array, sharding: Sharding, comm: Comm | Communicator) -> jax.Array:
    """An array with the same elements and another sharding, also on devices of other processes. Collective, and blocking.

    Each byte goes from a process that owns it to the processes that need it; nothing is gathered. Elements are only
    moved, so all types will do. JAX's own collectives are not used. Plans are cached.

    Invalid arguments of one rank raise :class:`penstock.Error` there, and "peer_failed" or "mismatch" on the others.

    Parameters
    ----------
    array : jax.Array
        On devices of the CPU. Each process passes the same global array, also without a device of its sharding.
    sharding : jax.sharding.Sharding
        Of the result, such as ``NamedSharding(mesh, PartitionSpec("x"))``.
    comm : penstock.Comm or penstock.Communicator
        Its rank r is process r of JAX (``jax.distributed.initialize``).
    """
    return iredistribute(array, sharding, comm).wait()


def iredistribute(array: jax.Array, sharding: Sharding, comm: Comm | Communicator) -> Redistributing[jax.Array]:
    """Start :func:`redistribute`; ``wait()`` of what it returns gives the array."""
    core = _core(comm)

    def prepare() -> Move[jax.Array]:
        _check_ranks(core.rank, core.size)
        _check_array(array)
        if not isinstance(sharding, Sharding):
            raise Error(f"redistribute: the sharding is a {type(sharding).__name__}; expected a jax.sharding.Sharding")
        layouts, devices, boxes = _planned(array.shape, array.sharding, sharding, core.rank, core.size)
        held = {shard.device: shard.data for shard in array.addressable_shards}
        received = {box: _aligned(box.shape, array.dtype) for box in boxes}
        given = [_bits(np.asarray(held[device])) for device in devices]
        wanted = parts_of(boxes, [_bits(memory) for memory in received.values()])

        def finish() -> jax.Array:
            return jax.make_array_from_callback(
                array.shape, sharding, lambda index: received[_box(index, array.shape)], dtype=array.dtype
            )

        return Move(layouts, np.dtype(_BITS[array.dtype.itemsize]), given, wanted, finish)

    return start_move(core, prepare)


def _core(comm: object) -> _penstock.Comm:
    if isinstance(comm, Communicator):
        return comm._opened
    opened = getattr(comm, "_open", None)
    if opened is None:
        raise Error(f"the communicator is a {type(comm).__name__}; expected a penstock.Comm or penstock.Communicator")
    return opened()


def _check_ranks(rank: int, size: int) -> None:
    if (jax.process_index(), jax.process_count()) != (rank, size):
        raise Error(
            f"this is rank {rank} of {size} of the communicator, and process {jax.process_index()} of {jax.process_count()} of "
            "JAX; expected the same: call jax.distributed.initialize(address, size, rank) before any use of JAX"
        )


def _check_devices(sharding: Sharding) -> None:
    platforms = {device.platform for device in sharding.device_set}
    if platforms != {"cpu"}:
        raise Error(
            f'the sharding has devices of "{", ".join(sorted(platforms))}"; expected "cpu": jax.device_put copies an array there'
        )


def _check_array(array: object) -> None:
    if not isinstance(array, jax.Array):
        raise Error(f"redistribute: the array is a {type(array).__name__}; expected a jax.Array")
    if jax.dtypes.issubdtype(array.dtype, jax.dtypes.extended):
        raise Error(f"redistribute: the elements are {array.dtype}; expected numbers: pass jax.random.key_data(array)")
    if array.dtype.itemsize not in _BITS:
        raise Error(f"{array.dtype} has elements of {array.dtype.itemsize} bytes; expected one of {list(_BITS)}")
    if array.is_deleted():
        raise Error("redistribute: the array has been deleted or donated")


@functools.lru_cache(maxsize=_MOST_LAYOUTS)
def _planned(
    shape: tuple[int, ...], given: Sharding, wanted: Sharding, rank: int, ranks: int
) -> tuple[tuple[Layout, Layout], list[Any], list[Box]]:
    """The layouts before and after; a device with each box of this rank that is not empty before; its boxes after.

    Finding them takes longer than moving a short array.
    """
    _check_devices(given)
    _check_devices(wanted)
    before, on_devices = _boxes(shape, given, _process_of)
    after, _ = _boxes(shape, wanted, _process_of)
    device_of = {box: device for device, box in on_devices if device.process_index == rank}
    devices = [device_of[box] for box in before.get(rank, ()) if not box.is_empty]
    layouts = layout_of_boxes(shape, before, ranks), layout_of_boxes(shape, after, ranks)
    return layouts, devices, after.get(rank, [])


def _aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Memory that XLA takes over. What NumPy aligns as it likes, device_put copies."""
    size_bytes = math.prod(shape) * dtype.itemsize
    memory = np.empty(size_bytes + _ALIGNMENT, np.uint8)
    begin = -memory.ctypes.data % _ALIGNMENT
    return memory[begin : begin + size_bytes].view(dtype).reshape(shape)


def _bits(array: NDArray[Any]) -> NDArray[Any]:
    return array.view(_BITS[array.dtype.itemsize])


def _box(index: tuple[slice, ...], shape: Sequence[int]) -> Box:
    ranges = [range(*each.indices(length)) for each, length in zip(index, shape)]
    return Box(tuple(each.start for each in ranges), tuple(len(each) for each in ranges))


def _boxes(
    shape: tuple[int, ...], sharding: Sharding, rank_of: Callable[[Any], int]
) -> tuple[dict[int, list[Box]], list[tuple[Any, Box]]]:
    """Each rank's boxes, without repetition, by their begin; and the box of each device."""
    if not isinstance(sharding, Sharding):
        raise Error(f"the sharding is a {type(sharding).__name__}; expected a jax.sharding.Sharding")
    try:
        indices = sharding.devices_indices_map(shape)
    except ValueError as error:
        raise Error(f"the sharding {sharding} does not fit an array of shape {shape}", cause=str(error)) from None
    on_devices = [(device, _box(index, shape)) for device, index in indices.items()]
    boxes: dict[int, set[Box]] = {}
    for device, box in on_devices:
        boxes.setdefault(rank_of(device), set()).add(box)
    return {rank: sorted(found) for rank, found in sorted(boxes.items())}, on_devices
