"""Checkpoints of JAX arrays of any sharding, on one process and on several; Orbax's interface, with Orbax and without it."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from penstock.bench.jax import reserved_address

if importlib.util.find_spec("jax") is None:
    pytest.skip("needs JAX", allow_module_level=True)

BEGIN = """
import itertools, sys, typing, warnings
import jax, numpy as np, penstock as ps
from ml_dtypes import bfloat16
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
place, address, folder, rank, processes = *sys.argv[1:4], int(sys.argv[4]), int(sys.argv[5])
url = f"file://{place}"
comm = None
if processes > 1:
    jax.distributed.initialize(address, num_processes=processes, process_id=rank)
    comm = ps.Communicator(folder, rank, processes, timeout=120)
import penstock.jax

class State(typing.NamedTuple):
    weights: object
    momentum: object

devices = np.array(jax.devices())
flat = Mesh(devices, ("x",))
grid = Mesh(devices.reshape(2, -1), ("p", "d"))
first = Mesh(devices[:1], ("x",))
n = 48
specs = [(flat, P("x")), (flat, P(None, "x")), (flat, P()), (grid, P("p", "d")), (grid, P("d")), (grid, P(None, "p")),
         (first, P())]
shardings = [NamedSharding(*spec) for spec in specs]

def make(whole, sharding):
    return jax.make_array_from_callback(whole.shape, sharding, lambda index: whole[index], dtype=whole.dtype)

def equal(array, whole, sharding):
    assert isinstance(array, jax.Array) and array.sharding == sharding, (array.sharding, sharding)
    assert array.dtype == whole.dtype and array.shape == whole.shape
    for shard in array.addressable_shards:
        assert np.asarray(shard.data).tobytes() == np.ascontiguousarray(whole[shard.index]).tobytes(), sharding

wholes = [np.arange(n * n).reshape(n, n).astype(np.float32), np.arange(n * n).reshape(n, n).astype(bfloat16)]
scalar = np.float32(2.5)

def state(shift=0):
    def turned(i):
        return shardings[(i + shift) % len(shardings)]
    weights = {f"w{i}": make(wholes[i % 2], turned(i)) for i in range(len(shardings))}
    return State(weights, {"count": make(np.array(scalar), shardings[2]), "step": 7, "key": jax.random.key(3)})

def expect(found, shift=0):
    assert type(found) is State
    for i in range(len(shardings)):
        equal(found.weights[f"w{i}"], wholes[i % 2], shardings[(i + shift) % len(shardings)])
    equal(found.momentum["count"], np.array(scalar), shardings[2])
    assert found.momentum["step"] == 7
    assert jax.random.key_data(found.momentum["key"]).tolist() == jax.random.key_data(jax.random.key(3)).tolist()
"""

END = """
if comm is not None:
    comm.free()
print("done")
"""


def run(tmp_path: Path, text: str, processes: int, devices: int = 2, what: str = "program") -> None:
    program = tmp_path / f"{what}.py"
    program.write_text(BEGIN + text + END)
    with reserved_address() as address:
        started = [
            subprocess.Popen(
                [
                    *(sys.executable, str(program), str(tmp_path / "checkpoints"), address),
                    *(str(tmp_path / f"meet-{what}"), str(rank), str(processes)),
                ],
                env={
                    **os.environ,
                    "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
                    "JAX_PLATFORMS": "cpu",
                },
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(processes)
        ]
        told = [process.communicate(timeout=100) for process in started]
    for process, (out, error) in zip(started, told):
        assert process.returncode == 0 and out.count("done") == 1, out + error


SAVE = """
with ps.Checkpointer(url, comm=comm) as ck:
    ck.save(1, state()).wait("drained")
    step, found = ck.restore(like=state())
    assert step == 1
    expect(found)
    _, found = ck.restore(like=state(shift=3))
    expect(found, shift=3)
"""

RESTORE = """
with ps.Checkpointer(url, comm=comm) as ck:
    for shift in range(len(shardings)):
        _, found = ck.restore(like=state(shift))
        expect(found, shift)
    abstract = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding)
        if isinstance(leaf, jax.Array) and not jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.extended) else leaf, state(1))
    expect(ck.restore(like=abstract)[1], 1)
    _, plain = ck.restore()
    assert all(np.array_equal(plain.weights[f"w{i}"], wholes[i % 2]) for i in range(len(shardings)))
    _, some = ck.restore(only="weights/w0")
    assert type(some["weights/w0"]) is np.ndarray and np.array_equal(some["weights/w0"], wholes[0])
    try:
        ck.restore(like=state()._replace(weights={**state().weights, "w0": make(wholes[1], shardings[0])}))
    except ps.Error as error:
        assert "'weights/w0': saved was an array of float32 [48, 48]; `like` has an array of bfloat16" in str(error), error
    else:
        raise AssertionError("another type")
    assert ck.inspect().arrays["weights/w1"].dtype == "bfloat16"
"""


@pytest.mark.timeout(480)
@pytest.mark.parametrize(("saving", "restoring"), [(1, 1), (2, 1), (1, 2), (2, 3)])
def test_any_sharding_comes_back_in_any_other(tmp_path: Path, saving: int, restoring: int) -> None:
    devices = {1: 4, 2: 2, 3: 2}
    run(tmp_path, SAVE, saving, devices[saving], "save")
    run(tmp_path, RESTORE, restoring, devices[restoring], "restore")


MANAGER = """
def counted(step):
    return {"w": make(wholes[0] + step, shardings[0]), "step": step}

def manager(**options):
    return penstock.jax.CheckpointManager(url, comm=comm, save_interval_steps=2, best_metric="loss", best_mode="min",
                                          **options)

with manager(max_to_keep=2, keep_period=4) as checkpoints:
    assert checkpoints.latest_step() is None and list(checkpoints.all_steps()) == []
    for step in range(9):
        told = checkpoints.save(step, counted(step), metrics={"loss": abs(step - 6) + 1.0})
        assert told == (step % 2 == 0), step
        if told:
            assert checkpoints.latest_step() == step and step in checkpoints.all_steps()
    assert checkpoints.save(9, counted(9), force=True)
    assert not checkpoints.save(8, counted(8))
    checkpoints.wait_until_finished()
    assert not checkpoints.is_saving_in_progress()
    assert list(checkpoints.all_steps()) == [0, 4, 6, 8, 9], checkpoints.all_steps()
    assert checkpoints.best_step() == 6 and checkpoints.metrics(8) == {"loss": 3.0}
    assert not checkpoints.reached_preemption(10)
with manager() as checkpoints:
    assert checkpoints.latest_step() == 9
    for step, found in [(9, checkpoints.restore(args=counted(0))), (4, checkpoints.restore(4, counted(0)))]:
        equal(found["w"], wholes[0] + step, shardings[0])
        assert found["step"] == step
    assert type(checkpoints.restore(4)["w"]) is np.ndarray
    assert checkpoints.item_metadata(4)["w"].shape == (n, n)
for options, said in [({"save_interval_steps": 0}, "save_interval_steps is 0"), ({"max_to_keep": 0}, "keep is 0")]:
    try:
        penstock.jax.CheckpointManager(url, comm=comm, **options)
    except ps.Error as error:
        assert said in str(error), error
    else:
        raise AssertionError(said)
"""


@pytest.mark.timeout(240)
@pytest.mark.parametrize("processes", [1, 2])
def test_a_manager_with_orbaxs_methods(tmp_path: Path, processes: int) -> None:
    run(tmp_path, MANAGER, processes)


WRONG = """
with ps.Checkpointer(url) as ck:
    for leaf, said in [(jax.ShapeDtypeStruct((3,), np.float32), "'x' is a ShapeDtypeStruct, which has no elements"),
                       (jax.numpy.ones(3), "'x' has been deleted or donated")]:
        if isinstance(leaf, jax.Array):
            leaf.delete()
        try:
            ck.save(1, {"x": leaf})
        except ps.Error as error:
            assert said in str(error), error
        else:
            raise AssertionError(said)
"""


@pytest.mark.timeout(240)
def test_what_has_no_elements_is_told(tmp_path: Path) -> None:
    run(tmp_path, WRONG, 1)


ORBAX = """
import pathlib
import orbax.checkpoint as ocp
import penstock.jax.orbax
from penstock.jax.orbax import Handler, Restore, Save

folder = pathlib.Path(place)
options = ocp.CheckpointManagerOptions(max_to_keep=2, save_interval_steps=2)
with ocp.CheckpointManager(folder, options=options) as manager:
    for step in range(7):
        assert manager.save(step, args=Save(state(step))) == (step % 2 == 0)
    manager.wait_until_finished()
    assert manager.all_steps() == [4, 6]
with ocp.CheckpointManager(folder, options=options, item_handlers=Handler()) as manager:
    expect(manager.restore(manager.latest_step(), args=Restore(state(2))), 2)
    assert np.array_equal(manager.restore(4, args=Restore()).weights["w0"], wholes[0])
    assert manager.item_metadata(6)["weights"]["w1"].dtype == "bfloat16"
# Several items, each with its handler.
with ocp.CheckpointManager(folder / "several", options=ocp.CheckpointManagerOptions()) as manager:
    manager.save(1, args=ocp.args.Composite(state=Save(state()), config=ocp.args.JsonSave({"a": 1})))
    manager.wait_until_finished()
    found = manager.restore(1, args=ocp.args.Composite(state=Restore(state(1)), config=ocp.args.JsonRestore()))
    expect(found["state"], 1)
    assert found["config"] == {"a": 1}
# Orbax's arguments with Penstock's manager.
with penstock.jax.CheckpointManager(f"file://{place}/own") as manager:
    manager.save(3, args=ocp.args.StandardSave(state()))
    expect(manager.restore(3, args=ocp.args.StandardRestore(state(1))), 1)
    manager.save(4, args=ocp.args.Composite(a=ocp.args.PyTreeSave({"x": 1}), b=ocp.args.JsonSave({"y": 2})))
    assert manager.restore(4) == {"a": {"x": 1}, "b": {"y": 2}}
"""


@pytest.mark.timeout(240)
def test_below_orbaxs_own_manager(tmp_path: Path) -> None:
    if importlib.util.find_spec("orbax") is None:
        pytest.skip("needs Orbax")
    run(tmp_path, ORBAX, 1)
