"""`penstock checkpoint export` and `import`: safetensors and NumPy."""

from __future__ import annotations

import dataclasses
import json
import os
import struct
import zipfile
from collections import OrderedDict, namedtuple

import numpy as np
import penstock as ps
import pytest
from click.testing import CliRunner
from penstock.cli import main

ml_dtypes = pytest.importorskip("ml_dtypes")

Pair = namedtuple("Pair", ["first", "second"])


@dataclasses.dataclass
class Optimizer:
    rate: float
    momentum: np.ndarray


def tree() -> dict:
    random = np.random.default_rng(3)
    numbers = {
        name: (random.random((3, 5)) * 100).astype(name)
        for name in ("float64", "float32", "float16", "complex64", "complex128", "int8", "uint64", "bool")
    }
    others = {
        name: random.random((4, 2)).astype(getattr(ml_dtypes, name))
        for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz")
    }
    return {
        "numbers": numbers,
        "others": others,
        "days": np.array(["2026-11-25", "NaT"], "datetime64[D]"),
        "words": np.array([["a", "bcd"]]),
        "empty": np.empty((0, 7), np.float32),
        "single": np.array(2.5, ml_dtypes.bfloat16),
        "columns": np.asfortranarray(random.random((6, 4))),
        "layers": [Pair(np.arange(3), "x"), Optimizer(1e-3, np.ones(2, np.float32))],
        "../odd name/%": np.arange(4),
        "plain": OrderedDict(epoch=3, none=None, nan=float("nan"), name="run", raw=b"\0\1", scalar=np.float32(0.1)),
        7: {"deep": (True, np.zeros((2, 2, 2)))},
    }


def same(one, other, path="tree"):
    assert type(one) is type(other), path
    if isinstance(one, np.ndarray):
        assert (one.dtype, one.shape) == (other.dtype, other.shape), path
        assert one.tobytes() == other.tobytes(), path
    elif isinstance(one, dict):
        assert list(one) == list(other), path
        for key, value in one.items():
            same(value, other[key], f"{path}/{key}")
    elif isinstance(one, (list, tuple)):
        for index, (a, b) in enumerate(zip(one, other, strict=True)):
            same(a, b, f"{path}/{index}")
    elif dataclasses.is_dataclass(one):
        same(vars(one), vars(other), path)
    else:
        assert repr(one) == repr(other), path


def invoke(*words):
    return CliRunner().invoke(main, ["checkpoint", *map(str, words)])


def told(*words):
    result = invoke(*words, "--json")
    assert result.exit_code == 0, result.output + str(result.exception)
    return json.loads(result.output)


def fails(text, *words):
    result = invoke(*words)
    assert result.exit_code in (1, 2), result.output
    assert text in result.output + result.stderr, result.output
    assert len((result.output + result.stderr).strip().splitlines()) < 6


@pytest.fixture
def url(tmp_path):
    return f"file://{tmp_path}/slow"


@pytest.fixture
def small(url):
    """Step 4 with three arrays."""
    with ps.Checkpointer(url) as checkpoints:
        checkpoints.save(4, {name: np.full(1000, i, np.float32) for i, name in enumerate("abc")})


OUTPUTS = {
    "model.safetensors": [],
    "model": ["--shard-bytes", "100"],
    "whole": [],
    "arrays.npz": [],
    "arrays": ["--format", "npy"],
}


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("run", ["", "llama"])
def test_a_tree_comes_back_exactly(url, tmp_path, output, run):
    options = ["--run", run] if run else []
    with ps.Checkpointer(url, run=run or None) as checkpoints:
        checkpoints.save(11, {"old": np.zeros(3)})
        checkpoints.save(12, tree(), metrics={"loss": 0.1})
    done = told("export", url, tmp_path / output, *OUTPUTS[output], *options)
    assert done["step"] == 12
    assert (len(done["files"]) > 3) == (output in ("model", "arrays"))
    other = f"file://{tmp_path}/other"
    assert told("import", tmp_path / output, other, *options)["step"] == 12
    with ps.Checkpointer(other, run=run or None) as checkpoints:
        step, found = checkpoints.restore()
        assert checkpoints.inspect().metrics == {"loss": 0.1}
    assert step == 12
    same(tree(), found)
    result = invoke("verify", other, *options)
    assert "no problem" in result.output
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]


def test_distributed_arrays_and_the_position_in_the_data_come_too(url, tmp_path):
    values = np.arange(24.0).reshape(4, 6)
    layout = ps.Layout.whole((4, 6))
    data = ps.Dataset.from_bytes([b"0123"] * 8).decode_raw((4,), np.uint8).batch(2)
    batches = iter(data)
    next(batches)
    with ps.Checkpointer(url) as checkpoints:
        checkpoints.save(1, {"w": ps.DistArray(layout, values.copy(), 0)}, dataset=data)
    told("export", url, tmp_path / "m.safetensors")
    told("import", tmp_path / "m.safetensors", f"file://{tmp_path}/other")
    again = ps.Dataset.from_bytes([b"0123"] * 8).decode_raw((4,), np.uint8).batch(2)
    with ps.Checkpointer(f"file://{tmp_path}/other") as checkpoints:
        _, found = checkpoints.restore(dataset=again)
    np.testing.assert_array_equal(found["w"], values)
    assert len(list(again)) == 3


def test_the_librarys_reader_finds_the_arrays_and_its_files_are_imported(small, url, tmp_path):
    numpy = pytest.importorskip("safetensors.numpy")
    told("export", url, tmp_path / "m.safetensors")
    found = numpy.load_file(tmp_path / "m.safetensors")
    assert {name: array[0] for name, array in found.items()} == {"a": 0, "b": 1, "c": 2}
    numpy.save_file({"x/y": np.arange(5), "z": np.ones((2, 2), np.float16)}, tmp_path / "theirs.safetensors")
    other = f"file://{tmp_path}/other"
    fails("--step", "import", tmp_path / "theirs.safetensors", other)
    assert told("import", tmp_path / "theirs.safetensors", other, "--step", "0")["arrays"] == 2
    with ps.Checkpointer(other) as checkpoints:
        same({"x/y": np.arange(5), "z": np.ones((2, 2), np.float16)}, checkpoints.restore()[1])


def test_numpys_reader_finds_the_arrays_and_its_files_are_imported(small, url, tmp_path):
    told("export", url, tmp_path / "m.npz")
    with np.load(tmp_path / "m.npz") as found:
        assert {name: found[name][0] for name in "abc"} == {"a": 0, "b": 1, "c": 2}
    told("export", url, tmp_path / "m", "--format", "npy")
    assert np.load(tmp_path / "m" / "c.npy")[0] == 2
    np.savez_compressed(tmp_path / "theirs.npz", x=np.arange(5))
    told("import", tmp_path / "theirs.npz", url, "--step", "5")
    with ps.Checkpointer(url) as checkpoints:
        same({"x": np.arange(5)}, checkpoints.restore()[1])


def test_shards_hold_as_much_as_was_asked_for(small, url, tmp_path):
    told("export", url, tmp_path / "m", "--shard-bytes", "8000")
    index = json.loads((tmp_path / "m" / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == 12000
    first, second = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
    assert index["weight_map"] == {"a": first, "b": first, "c": second}


def test_an_array_at_a_time_is_read(url, tmp_path, monkeypatch):
    from penstock import checkpoint_files

    monkeypatch.setattr(checkpoint_files, "_BATCH_BYTES", 5000)
    with ps.Checkpointer(url) as checkpoints:
        checkpoints.save(4, {name: np.full(1000, i, np.float32) for i, name in enumerate("abcd")}).wait()
        source = checkpoint_files._Source(checkpoints, (url, "", ""), None)
        batches = []
        read = source._read
        monkeypatch.setattr(source, "_read", lambda names: batches.append(list(names)) or read(names))
        assert [name for name, _ in source.read(list("abcd"))] == list("abcd")
        assert batches == [["a"], ["b"], ["c"], ["d"]]
        checkpoints.save(4, {name: np.zeros(1000, np.float32) for name in "abcd"}).wait()
        with pytest.raises(ps.Error, match="saved again while it was exported"):
            list(source.read(["a"]))


def test_what_exists_is_not_replaced(small, url, tmp_path):
    (tmp_path / "m.npz").write_text("mine")
    (tmp_path / "m").mkdir()
    for output in ("m.npz", "m"):
        fails("exists", "export", url, tmp_path / output)
    fails("does not exist", "export", url, tmp_path / "no" / "m.npz")
    fails("", "export", f"file://{tmp_path}/nowhere", tmp_path / "n.npz")
    assert not (tmp_path / "nowhere").exists()
    told("export", url, tmp_path / "n.npz")
    fails("there is a checkpoint of step 4", "import", tmp_path / "n.npz", url)
    assert told("import", tmp_path / "n.npz", url, "--step", "3")["step"] == 3


def test_damage_leaves_no_output(small, url, tmp_path):
    (data,) = (tmp_path / "slow").rglob("*.data")
    content = bytearray(data.read_bytes())
    content[100] ^= 1
    os.chmod(data, 0o600)
    data.write_bytes(content)
    for output in ("m.safetensors", "m", "m.npz"):
        assert invoke("export", url, tmp_path / output).exit_code == 1
    assert sorted(os.listdir(tmp_path)) == ["slow"]


def safetensors(header, data=b"\0" * 8):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


F32 = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "no safetensors file"),
        (b"\x89PNG\r\n\x1a\n" * 4, "no safetensors file"),
        (safetensors({"a": F32})[:-1], "was cut off"),
        (safetensors({"a": F32})[:20], "was cut off"),
        (safetensors(b'{"a": 1, "a": 2}'), "'a' is there twice"),
        (safetensors(b"[]"), "header is wrong"),
        (safetensors({"a": {**F32, "shape": [3]}}), "cannot take the bytes"),
        (safetensors({"a": {**F32, "shape": [-2], "data_offsets": [8, 0]}}), "cannot take the bytes"),
        (safetensors({"a": {**F32, "dtype": "F4"}}), "elements of F4"),
        (safetensors({"a": F32, "__metadata__": {"penstock": "{}"}}), "was changed"),
        (safetensors({"a": F32, "__metadata__": {"penstock": '{"format": 9}'}}), "newer Penstock"),
        (
            safetensors({"a": F32, "__metadata__": {"penstock": '{"format": 1, "step": 1, "tree": {"dict": []}}'}}),
            "'a' is no part",
        ),
    ],
)
def test_a_file_that_is_none_or_damaged_is_refused(content, text, url, tmp_path):
    (tmp_path / "m.safetensors").write_bytes(content)
    fails(text, "import", tmp_path / "m.safetensors", url, "--step", "1")
    assert not list(tmp_path.glob("slow/**/*.manifest.json"))


def test_folders_and_archives_that_are_damaged_are_refused(small, url, tmp_path):
    told("export", url, tmp_path / "m", "--shard-bytes", "8000")
    told("export", url, tmp_path / "m.npz")
    told("export", url, tmp_path / "n", "--format", "npy")
    other = f"file://{tmp_path}/other"
    second = tmp_path / "m" / "model-00002-of-00002.safetensors"
    content = second.read_bytes()
    second.write_bytes((tmp_path / "m" / "model-00001-of-00002.safetensors").read_bytes())
    fails("two files have the name 'a'", "import", tmp_path / "m", other)
    second.unlink()
    fails("which is not in", "import", tmp_path / "m", other)
    second.write_bytes(content)
    assert told("import", tmp_path / "m", other)["arrays"] == 3
    whole = (tmp_path / "m.npz").read_bytes()
    (tmp_path / "m.npz").write_bytes(whole[:-30])
    fails("no intact .npz", "import", tmp_path / "m.npz", other, "--step", "9")
    with zipfile.ZipFile(tmp_path / "two.npz", "w") as archive:
        archive.writestr("a.npy", b"x")
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("a.npy", b"x")
    fails("twice", "import", tmp_path / "two.npz", other, "--step", "9")
    (tmp_path / "n" / "b.npy").write_bytes(b"\x93NUMPY\1\0")
    fails("no intact .npy", "import", tmp_path / "n", other, "--step", "9")
    (tmp_path / "n" / "b.npy").unlink()
    fails("'b' is missing", "import", tmp_path / "n", other, "--step", "9")
    np.save(tmp_path / "n" / "b.npy", np.zeros(999, np.float32))
    fails("'b' has the shape", "import", tmp_path / "n", other, "--step", "9")
    (tmp_path / "nothing").mkdir()
    fails("has no .safetensors", "import", tmp_path / "nothing", other, "--step", "9")
    (tmp_path / "m.txt").write_text("x")
    fails("ends neither", "import", tmp_path / "m.txt", other, "--step", "9")
