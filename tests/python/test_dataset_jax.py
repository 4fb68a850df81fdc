"""Batches as JAX arrays on the devices of a sharding, in one process and in two."""

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
import sys
import jax, numpy as np, penstock as ps
from jax.sharding import Mesh, NamedSharding, PartitionSpec
if len(sys.argv) > 2:
    jax.distributed.initialize(sys.argv[1], num_processes=2, process_id=int(sys.argv[2]))
from penstock.dataset.jax import DataLoader
sharding = NamedSharding(Mesh(np.array(jax.devices()), ("data",)), PartitionSpec("data"))
def rows(n, **how):
    source = {"x": np.arange(3 * n, dtype=np.float32).reshape(n, 3), "n": np.arange(n, dtype=np.int32)}
    return ps.Dataset.from_arrays(source).map(lambda sample: {**sample, "name": str(sample["n"])}).shuffle(seed=3)
"""


def program(tmp_path: Path, text: str, *arguments: str, devices: int) -> subprocess.Popen[str]:
    path = tmp_path / "program.py"
    path.write_text(BEGIN + text)
    flags = f"--xla_force_host_platform_device_count={devices}"
    return subprocess.Popen(
        [sys.executable, str(path), *arguments],
        env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def check(process: subprocess.Popen[str]) -> None:
    out, error = process.communicate(timeout=200)
    assert (process.returncode, out.split()) == (0, ["done"]), error


@pytest.mark.timeout(240)
def test_one_process_with_several_devices(tmp_path: Path) -> None:
    text = """
loader = DataLoader(rows(20).batch(8), sharding)
seen, states = [], []
for batch in loader:
    assert isinstance(batch["x"], jax.Array) and batch["x"].sharding == sharding, batch["x"].sharding
    assert batch["x"].shape == (len(batch["n"]), 3)
    assert [shard.data.shape for shard in batch["x"].addressable_shards] == [(len(batch["n"]) // 4, 3)] * 4
    assert batch["name"] == [str(n) for n in np.asarray(batch["n"])]
    seen += np.asarray(batch["n"]).tolist()
    states.append(loader.state_dict())
assert seen == loader.dataset.indices(0).tolist() and len(loader) == 3
again = DataLoader(rows(20).batch(4), sharding)
again.load_state_dict(states[0])
assert np.concatenate([batch["n"] for batch in again]).tolist() == seen[8:]
kept = [batch["x"] for batch in DataLoader(rows(16).batch(4).prefetch(1), sharding)]
found = np.concatenate([np.asarray(x) for x in kept])[:, 0]
assert sorted(found.tolist()) == [3.0 * i for i in range(16)], "arrays that are kept keep their memory"
try:
    list(DataLoader(rows(18).batch(8), sharding))
except ps.Error as error:
    assert "does not fit the sharding" in str(error) and "drop_remainder" in str(error)
    print("done")
"""
    check(program(tmp_path, text, devices=4))


@pytest.mark.timeout(240)
def test_two_processes_make_global_arrays(tmp_path: Path) -> None:
    text = """
mine = jax.process_index(), jax.process_count()
loader = DataLoader(rows(24).batch(8, drop_remainder=True).shard(*mine), sharding)
order = loader.dataset.indices(0)
for number, batch in enumerate(loader):
    assert batch["x"].shape == (8, 3) and not batch["x"].is_fully_addressable
    for shard in batch["n"].addressable_shards:
        assert np.asarray(shard.data).tolist() == order[8 * number:8 * number + 8][shard.index].tolist()
shapes = [batch["x"].shape for batch in DataLoader(rows(24).shard(*mine).batch(4), sharding)]
assert shapes == [(8, 3)] * 3
for data, said in ((rows(24).batch(8), "use shard(jax.process_index()"), (rows(20).batch(8).shard(*mine), "a full batch has 4")):
    try:
        list(DataLoader(data, sharding))
    except ps.Error as error:
        assert said in str(error), error
    else:
        raise AssertionError(said)
print("done")
"""
    with reserved_address() as place:
        processes = [program(tmp_path, text, place, str(rank), devices=2) for rank in range(2)]
        for process in processes:
            check(process)
