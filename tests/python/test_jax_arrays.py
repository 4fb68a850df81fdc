"""JAX arrays as layouts, against JAX's own index mapping, and redistribution between the devices of several processes."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from penstock.bench.jax import reserved_address

if importlib.util.find_spec("jax") is None:
    pytest.skip("needs JAX", allow_module_level=True)

BEGIN = """
import itertools, sys
import jax, numpy as np, penstock as ps
import penstock.jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
jax.config.update("jax_enable_x64", True)

def refused(said, function, *arguments, **keywords):
    try:
        function(*arguments, **keywords)
    except ps.Error as error:
        assert said in str(error), error
        return error
    raise AssertionError(said)
"""


def program(
    tmp_path: Path, text: str, *arguments: str, devices: int, begin: tuple[str, ...] = ()
) -> subprocess.Popen[str]:
    path = tmp_path / f"program-{zlib.crc32(text.encode())}.py"
    if not path.exists():  # another process may be reading it
        path.write_text(BEGIN + text)
    return subprocess.Popen(
        [*begin, sys.executable, str(path), *arguments],
        env={
            **os.environ,
            "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
            "JAX_PLATFORMS": "cpu",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def check(process: subprocess.Popen[str], done: int = 1) -> None:
    out, error = process.communicate(timeout=200)
    assert process.returncode == 0 and out.count("done") == done, out + error


@pytest.mark.timeout(240)
def test_the_layout_is_jaxs_index_mapping(tmp_path: Path) -> None:
    text = """
devices = np.array(jax.devices())
specs = [P(), P("x"), P("y"), P(None, "x"), P("x", "y"), P("y", "x"), P(("x", "y")), P(("y", "x")), P(None, ("x", "y"))]
shape = (24, 16)
whole = np.arange(24 * 16).reshape(shape)
orders = [np.arange(8), np.random.default_rng(1).permutation(8)]
for order, grid, spec in itertools.product(orders, [(8, 1), (2, 4), (4, 2)], specs):
    mesh = Mesh(devices[order].reshape(grid), ("x", "y"))
    sharding = NamedSharding(mesh, spec)
    indices = sharding.devices_indices_map(shape)
    layout = ps.jax.layout_for(shape, sharding, rank_of=lambda device: device.id)
    for device, index in indices.items():
        part = ps.DistArray.zeros(layout, np.int64, device.id).fill_from(whole)
        assert np.array_equal(part.local, whole[index]), (spec, device)
    again = ps.jax.sharding_of(layout, mesh, rank_of=lambda device: device.id)
    assert again.devices_indices_map(shape) == indices, (spec, again.spec)
    for per_rank in (2, 4):                     # several devices for each rank
        try:
            layout = ps.jax.layout_for(shape, sharding, rank_of=lambda device: device.id // per_rank)
        except ps.Error as error:
            assert "replicated in parts" in str(error) and order is orders[1]
            continue
        for rank in range(8 // per_rank):
            held = {str(indices[device]) for device in indices if device.id // per_rank == rank}
            assert len(layout.part_shapes(rank)) == len(held)
            owned = np.zeros(shape, int)
            ps.DistArray(layout, [np.ones(each, int) for each in layout.part_shapes(rank)], rank).to_global(owned)
            expected = np.zeros(shape, int)
            for device, index in indices.items():
                if device.id // per_rank == rank:
                    expected[index] = 1
            assert np.array_equal(owned, expected)
mesh = Mesh(devices, ("x",))
scalar = ps.jax.layout_of(jax.device_put(3.0, NamedSharding(mesh, P())), rank_of=lambda device: device.id)
assert scalar.shape == () and scalar.copies == 8
refused("does not fit an array of shape (9,)", ps.jax.layout_for, (9,), NamedSharding(mesh, P("x")))
refused("the sharding is a Mesh", ps.jax.layout_for, (8,), mesh)
refused("the array is a ndarray", ps.jax.layout_of, np.ones(3))
refused("no PartitionSpec on the mesh {'x': 8}", ps.jax.sharding_of, ps.Layout.grid([0, 1, 8], [0, 1], ranks=8), mesh)
refused("more than one box", ps.jax.sharding_of, ps.Layout.block_cyclic((8,), (1,), (2,)), mesh)
refused("expected a penstock.Layout", ps.jax.sharding_of, 3, mesh)
refused("expected a jax.sharding.Mesh", ps.jax.sharding_of, scalar, devices)
refused("the communicator is a int", ps.jax.redistribute, jax.numpy.ones(8), NamedSharding(mesh, P("x")), 3)
print("done")
"""
    check(program(tmp_path, text, devices=8))


MOVES = """
from ml_dtypes import bfloat16, float8_e4m3fn
from penstock.jax.arrays import _boxes
devices = np.array(jax.devices())
size, mine = jax.process_count(), jax.process_index()
flat = Mesh(devices, ("x",))
grid = Mesh(devices.reshape(size, -1), ("p", "d"))
backwards = Mesh(devices[::-1].reshape(-1, size), ("p", "d"))
first = Mesh(np.array(jax.devices()[:2]), ("x",))              # the first process's devices alone
last = Mesh(np.array(jax.devices()[-2:]), ("x",))
n = 12 * size
shardings = [
    NamedSharding(flat, P("x")), NamedSharding(flat, P(None, "x")), NamedSharding(flat, P()),
    NamedSharding(grid, P("p", "d")), NamedSharding(grid, P("d", "p")), NamedSharding(grid, P(("d", "p"))),
    NamedSharding(grid, P("p")), NamedSharding(grid, P("d")), NamedSharding(backwards, P("p", "d")),
    NamedSharding(first, P("x")), NamedSharding(last, P(None, "x")),
]

def make(whole, sharding):
    shards = [jax.device_put(whole[index], device) for device, index in sharding.devices_indices_map(whole.shape).items()
              if device.process_index == mine]
    return jax.make_array_from_single_device_arrays(whole.shape, sharding, shards, dtype=whole.dtype)

def equal(array, whole, sharding):
    assert array.sharding == sharding and array.dtype == whole.dtype and array.shape == whole.shape
    for shard in array.addressable_shards:
        assert np.asarray(shard.data).tobytes() == np.ascontiguousarray(whole[shard.index]).tobytes()

with make_comm() as comm:
    whole = np.arange(n * n, dtype=np.float32).reshape(n, n)
    for before, after in itertools.product(shardings, shardings):
        equal(ps.jax.redistribute(make(whole, before), after, comm), whole, after)
    for dtype in (bool, np.int8, np.uint16, bfloat16, float8_e4m3fn, np.float64, np.complex64, np.complex128):
        whole = (np.arange(n * n).reshape(n, n) % 7).astype(dtype)
        equal(ps.jax.redistribute(make(whole, shardings[0]), shardings[3], comm), whole, shardings[3])
    scalar = np.array(2.5)
    equal(ps.jax.redistribute(make(scalar, NamedSharding(first, P())), shardings[2], comm), scalar, shardings[2])
    empty = np.zeros((0, n))
    equal(ps.jax.redistribute(make(empty, shardings[1]), shardings[1], comm), empty, shardings[1])
    cube = np.arange(8 * n * 2).reshape(8, n, 2)
    started = ps.jax.iredistribute(make(cube, NamedSharding(flat, P(None, "x"))), NamedSharding(grid, P("d", "p")), comm)
    equal(started.wait(), cube, NamedSharding(grid, P("d", "p")))
    right = make(whole, shardings[0])
    def everywhere(said, *arguments):
        refused(said, ps.jax.redistribute, *arguments, comm)
        equal(ps.jax.redistribute(right, shardings[1], comm), whole, shardings[1])
    everywhere("the array is a ndarray", whole, shardings[1])
    everywhere("the sharding is a P", right, P("x"))
    everywhere("does not fit an array of shape (1, 1)", make(np.ones((1, 1)), NamedSharding(flat, P())), shardings[0])
    everywhere("jax.random.key_data(array)", jax.random.key(1), shardings[0])
    if mine == 0:                               # one wrong process fails all
        refused("the array is a list", ps.jax.redistribute, [1], shardings[1], comm)
    else:
        assert refused("", ps.jax.redistribute, right, shardings[1], comm).code in ("peer_failed", "mismatch")
    equal(ps.jax.redistribute(right, shardings[1], comm), whole, shardings[1])
print("done")
"""

PLACES = """
address, folder, rank, processes = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
jax.distributed.initialize(address, num_processes=processes, process_id=rank)
def make_comm():
    return ps.Communicator(folder, rank, processes, timeout=120)
"""

OVER_MPI = """
from mpi4py import MPI
jax.distributed.initialize(sys.argv[1], num_processes=MPI.COMM_WORLD.size, process_id=MPI.COMM_WORLD.rank)
def make_comm():
    return ps.Comm(MPI.COMM_WORLD)
"""


@pytest.mark.timeout(240)
@pytest.mark.parametrize("processes", [2, 3])
def test_between_the_devices_of_processes(tmp_path: Path, processes: int) -> None:
    with reserved_address() as place:
        arguments = [(place, str(tmp_path / "meet"), str(rank), str(processes)) for rank in range(processes)]
        for process in [program(tmp_path, PLACES + MOVES, *each, devices=2) for each in arguments]:
            check(process)


@pytest.mark.timeout(240)
def test_over_mpi(tmp_path: Path) -> None:
    with reserved_address() as place:
        check(program(tmp_path, OVER_MPI + MOVES, place, devices=2, begin=("mpiexec", "-n", "2")), 2)


@pytest.mark.timeout(240)
def test_ranks_are_jaxs_processes(tmp_path: Path) -> None:
    text = """
from mpi4py import MPI
mesh = Mesh(np.array(jax.devices()), ("x",))
with ps.Comm(MPI.COMM_WORLD) as comm:
    refused("call jax.distributed.initialize", ps.jax.redistribute, jax.numpy.ones(8), NamedSharding(mesh, P("x")), comm)
print("done")
"""
    check(program(tmp_path, text, devices=2, begin=("mpiexec", "-n", "2")), 2)
