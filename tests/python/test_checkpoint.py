"""Checkpoints of one process: trees, loader state, new layouts, and a process that is killed while it saves."""

from __future__ import annotations

import collections
import dataclasses
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import types
import typing
import warnings

import numpy as np
import penstock as ps
import pytest
from penstock.checkpoint_tree import Shares


class Moments(typing.NamedTuple):
    mean: typing.Any
    variance: typing.Any
    count: int = 0


@dataclasses.dataclass(frozen=True)
class State:
    step: int
    params: dict
    moments: Moments
    apply: typing.Any = dataclasses.field(default=None, metadata={"pytree_node": False})

    class Inner(typing.NamedTuple):
        x: typing.Any


class Box:
    """Neither a named tuple nor a dataclass."""

    def __init__(self, content: typing.Any) -> None:
        self.content = content


ps.register_node(Box, lambda box: {"content": box.content}, lambda tree: Box(tree["content"]))


def state(step: int = 3) -> State:
    rng = np.random.default_rng(step)
    params = {"w": rng.standard_normal((4, 3)).astype(np.float32), "b": np.arange(3.0)}
    return State(step, params, Moments(rng.standard_normal(5), np.ones(5), 7))


@pytest.fixture
def urls(tmp_path: pathlib.Path, request: pytest.FixtureRequest) -> dict[str, str]:
    """The arguments of a Checkpointer; with the parameter "run" the slow tier is a store."""
    run = {"run": "one"} if getattr(request, "param", "folder") == "run" else {}
    return {"url": f"file://{tmp_path}/slow", "burst_buffer": f"file://{tmp_path}/fast", **run}


both_forms = pytest.mark.parametrize("urls", ["folder", "run"], indirect=True)


def equal(a, b) -> bool:
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return type(a) is type(b) and a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(equal(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(equal(x, y) for x, y in zip(a, b))
    return a == b or (a != a and b != b)


@both_forms
def test_tree_comes_back_as_it_was(urls):
    rng = np.random.default_rng(1)
    tree = {
        "layers": [
            {"w": rng.standard_normal((7, 5)).astype(np.float32), "b": np.arange(5.0)},
            {"w": np.ones((2, 3, 4))},
        ],
        "optimizer": {0: {"step": 3}, 1: {"step": np.int64(4)}},
        "values": (1, -(1 << 70), 2.5, float("inf"), float("nan"), 1 - 2j, True, None, 'größe \n "', b"\x00\xff"),
        "zero-dimensional": np.array(3.5),
        "empty": np.zeros((0, 4), np.int16),
        "bool": np.array([[True, False]]),
        "strings": np.array(["a", "bcd"]),
        "dates": np.array(["2026-01-02"], "M8[D]"),
        "long": np.array([1.25], np.longdouble),
        "complex": np.array([1 + 2j], np.complex64),
        "half": np.array([0.5], np.float16),
        "columns": np.asfortranarray(rng.standard_normal((3, 4))),
        "strided": np.arange(20)[::3],
        "scalar": np.float32(1.5),
    }
    with ps.Checkpointer(**urls) as ck:
        handle = ck.save(3, tree)
        handle.wait("drained")
        assert (handle.level, handle.step, handle.failed) == ("drained", 3, False)
        assert 0 < handle.stall_s < 60
        step, restored = ck.restore()
    assert step == 3
    assert equal(restored, tree)


def test_named_tuples_dataclasses_and_registered_nodes_come_back_as_they_were(urls):
    tree = {
        "state": state(),
        "inner": State.Inner(np.arange(3)),
        "box": Box([np.arange(4), Moments(1, 2.5)]),
        "ordered": collections.OrderedDict(b=1, a=2),
    }
    with ps.Checkpointer(urls["url"]) as ck:
        ck.save(1, tree).wait("drained")
        restored = ck.restore()[1]
    assert type(restored["state"]) is State
    assert type(restored["state"].moments) is Moments
    assert restored["state"].step == 3
    assert equal(restored["state"].params, tree["state"].params)
    assert equal(restored["state"].moments, tree["state"].moments)
    assert type(restored["inner"]) is State.Inner
    assert equal(restored["inner"].x, np.arange(3))
    assert type(restored["box"]) is Box
    assert equal(restored["box"].content[0], np.arange(4))
    assert restored["box"].content[1] == Moments(1, 2.5)
    assert type(restored["ordered"]) is collections.OrderedDict
    assert list(restored["ordered"]) == ["b", "a"]


def test_types_are_looked_up_among_loaded_modules_and_never_imported(urls, tmp_path, monkeypatch):
    (tmp_path / "shapes_of_a_model.py").write_text(
        "import typing\nclass Point(typing.NamedTuple):\n    x: typing.Any\n    y: typing.Any\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import shapes_of_a_model as shapes

    with ps.Checkpointer(urls["url"]) as ck:
        ck.save(1, {"p": shapes.Point(np.arange(3), 2)}).wait("drained")
        monkeypatch.delitem(sys.modules, "shapes_of_a_model")
        with pytest.raises(
            ps.Error, match=r"'p' was saved as the named tuple shapes_of_a_model.Point, .* import shapes_of_a_model"
        ):
            ck.restore()
        assert "shapes_of_a_model" not in sys.modules
        as_moments = collections.namedtuple("Other", ["x", "y"])
        restored = ck.restore(like={"p": as_moments(np.zeros(3, int), 0)})[1]["p"]
        assert type(restored) is as_moments
        assert equal(restored.x, np.arange(3))
        assert restored.y == 2
        assert ck.restore(only="p/x")[1]["p/x"].tolist() == [0, 1, 2]
        # A module whose attribute lookup would run code, and one with another kind of thing under the name.
        odd = types.ModuleType("shapes_of_a_model")
        odd.__getattr__ = lambda name: pytest.fail("code of the module ran")
        monkeypatch.setitem(sys.modules, "shapes_of_a_model", odd)
        with pytest.raises(ps.Error, match="import shapes_of_a_model"):
            ck.restore()
        odd.Point = State
        with pytest.raises(ps.Error, match="is no named tuple now"):
            ck.restore()
        odd.Point = Moments
        with pytest.raises(ps.Error, match=r"with the fields \['x', 'y'\]; the class has \['mean'"):
            ck.restore()


def test_like_gives_types_and_layouts(urls):
    a = np.arange(60.0).reshape(6, 10)
    even = ps.Layout.even(a.shape, 1)
    columns = ps.Layout.block_cyclic(a.shape, (2, 5), (1, 1), storage="column")
    with ps.Checkpointer(**urls) as ck:
        ck.save(1, {"pair": (np.arange(2), 1), "field": ps.DistArray.from_global(even, a), "state": state()}).wait(
            "fast"
        )
        like = {
            "pair": (np.zeros(2, int), 0),
            "field": columns,
            "state": State(
                0, {"w": np.zeros((4, 3), np.float32), "b": np.zeros(3)}, Moments(np.zeros(5), np.zeros(5)), print
            ),
        }
        restored = ck.restore(like=like)[1]
        assert restored["field"].layout == columns
        assert np.array_equal(restored["field"].local, a)
        assert restored["state"].apply is None  # None was saved
        part = ps.DistArray.zeros(columns, a.dtype)
        restored = ck.restore(like={**like, "field": part})[1]
        assert restored["field"].layout == columns
        assert not part.local.any()
        pair = collections.namedtuple("pair", ["first", "second"])
        restored = ck.restore(like={**like, "pair": pair(np.zeros(2, int), 5)})[1]
        assert type(restored["pair"]) is pair
        assert restored["pair"].second == 1


def test_a_field_that_is_no_part_of_the_tree_comes_from_like(urls):
    with ps.Checkpointer(urls["url"]) as ck:
        ck.save(1, dataclasses.replace(state(), apply=print)).wait("drained")
        with pytest.raises(ps.Error, match="'apply', a builtin_function_or_method, was not saved; pass like="):
            ck.restore()
        restored = ck.restore(like=dataclasses.replace(state(5), apply=len))[1]
        assert restored.apply is len
        assert equal(restored.params, state().params)


def test_a_tree_that_changed_is_told_with_both_sides(urls):
    with ps.Checkpointer(urls["url"]) as ck:
        ck.save(1, {"w": np.zeros((2, 3), np.float32), "b": np.zeros(3), "step": 1, "l": [1, 2]}).wait("drained")
        good = {"w": np.ones((2, 3), np.float32), "b": np.ones(3), "step": 0, "l": (0, 0)}
        assert ck.restore(like=good)[1]["l"] == (1, 2)
        for change, text in {
            "w": (np.zeros((3, 2), np.float32), r"'w': saved was an array of float32 \[2, 3\]; `like` has .* \[3, 2\]"),
            "b": (np.zeros(3, np.float32), r"'b': saved was an array of float64 \[3\]; `like` has an array of float32"),
            "step": (np.zeros(1), r"'step': saved was the value 1; `like` has an array of float64 \[1\]"),
            "l": ([1, 2, 3], r"'l': saved was a list of 2; `like` has a list of 3"),
        }.items():
            wrong, message = text
            with pytest.raises(ps.Error, match=message) as error:
                ck.restore(like={**good, change: wrong})
            assert error.value.code == "invalid_argument"
        renamed = {"weight" if key == "w" else key: value for key, value in good.items()}
        with pytest.raises(
            ps.Error, match=r"saved was a dictionary with 'w', 'b'.*`like` has a dictionary with 'weight'"
        ):
            ck.restore(like=renamed)
        with pytest.raises(ps.Error, match=r"(?s)'w'.*'b'"):
            ck.restore(like={**good, "w": 1, "b": 2})
        assert ck.restore(like=good)[0] == 1


def test_only_reads_what_is_named(urls):
    with ps.Checkpointer(urls["url"]) as ck:
        tree = {"params": {"a": np.arange(3), "b": np.ones(1 << 18)}, "step": 4, "s": state()}
        ck.save(1, tree).wait("drained")
        assert list(ck.restore(only="params/*")[1]) == ["params/a", "params/b"]
        assert ck.restore(only=["step", "s/step"])[1] == {"step": 4, "s/step": 3}
        (data,) = files(urls["url"], "*.data")  # what is not read may be damaged
        damaged = bytearray(data.read_bytes())
        damaged[1 << 20] ^= 1
        os.chmod(data, 0o600)
        data.write_bytes(damaged)
        like = {"params": {"a": np.zeros(3, int), "b": "kept"}, "step": 0, "s": state(9)}
        restored = ck.restore(only=["params/a", "step"], like=like)[1]
        assert equal(restored["params"]["a"], np.arange(3))
        assert restored["params"]["b"] == "kept"
        assert restored["step"] == 4
        assert equal(restored["s"].params, state(9).params)
        with pytest.raises(ps.Error, match=r"matches no leaf .* it has 'params/a', 'params/b'"):
            ck.restore(only="weights/*")


@both_forms
def test_default_is_for_an_empty_place(urls):
    with ps.Checkpointer(**urls) as ck:
        assert ck.restore(default=None) is None
        assert ck.restore(default=(0, "new")) == (0, "new")
        with pytest.raises(ps.Error, match=r"no complete checkpoint at file://.* and file://") as error:
            ck.restore()
        assert error.value.code == "not_found"
        ck.save(7, {"a": 1}).wait("drained")
        assert ck.restore(default=None) == (7, {"a": 1})
        with pytest.raises(ps.Error, match="of step 8"):
            ck.restore(step=8, default=None)


def test_default_is_not_for_a_burst_buffer_that_cannot_be_read(urls, tmp_path):
    with ps.Checkpointer(**urls) as ck:
        os.symlink("checkpoints", tmp_path / "fast" / "checkpoints")  # leads to itself
        with pytest.raises(ps.Error, match="cannot tell whether there is a complete checkpoint"):
            ck.restore(default=None)


@pytest.mark.parametrize("tier", ["fast", "slow"])
def test_default_is_not_for_a_file_in_place_of_the_folder(urls, tmp_path, tier):
    with ps.Checkpointer(**urls) as ck:
        (tmp_path / tier / "checkpoints").write_text("a file where the folder should be")
        with pytest.raises(ps.Error, match="'checkpoints' is a file") as error:
            ck.restore(default=None)
        assert error.value.code == "io"


def test_inspect_reads_no_array(urls):
    with ps.Checkpointer(urls["url"]) as ck:
        with pytest.raises(ps.Error, match="no complete checkpoint"):
            ck.inspect()
        ck.save(1, {"s": state(), "n": [1, (2.5, None)], "box": Box(np.zeros((2, 2), np.int16))}).wait("drained")
        ck.save(2, {"x": 1}).wait("drained")
        for path in files(urls["url"], "*.data"):
            path.unlink()
        info = ck.inspect(1)
        assert ck.inspect().step == 2
    assert (info.step, info.nbytes) == (1, 48 + 24 + 80 + 8)
    assert info.arrays["s/params/w"][:2] == ("float32", (4, 3))
    assert info.tree["n"] == [1, (2.5, None)]
    assert info.tree["s"]["moments"]["count"] == 7
    assert info.tree["box"]["content"].dtype == "int16"


def test_types_that_numpy_does_not_know_are_saved_by_name(urls, monkeypatch):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    names = ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz", "int4"]
    tree = {name: np.arange(6).astype(getattr(ml_dtypes, name)).reshape(2, 3) for name in names}
    tree["scalar"] = ml_dtypes.bfloat16(1.5)
    tree["part"] = ps.DistArray(ps.Layout.whole((4,)), np.ones(4, ml_dtypes.float8_e5m2))
    with ps.Checkpointer(urls["url"]) as ck:
        ck.save(1, tree).wait("drained")
        restored = ck.restore()[1]
        assert ck.inspect().arrays["float8_e5m2"].dtype == "float8_e5m2"
        part = tree.pop("part")
        assert equal(restored.pop("part"), part.local)
        assert equal(restored, tree)
        with pytest.raises(ps.Error, match="saved was an array of float8_e5m2"):
            ck.restore(like={**tree, "part": part, "float8_e5m2": tree["float8_e4m3fn"]})
        monkeypatch.setitem(sys.modules, "ml_dtypes", None)
        with pytest.raises(ps.Error, match="which NumPy does not know; install ml_dtypes"):
            ck.restore()


def test_foreign_byte_order_becomes_native(urls):
    with ps.Checkpointer(**urls) as ck:
        ck.save(1, {"a": np.arange(4, dtype=">f8")})
        ck.finish()
        assert equal(ck.restore()[1]["a"], np.arange(4.0))


def test_each_element_of_what_all_ranks_have_is_saved_by_one_of_them():
    shapes = [
        (),
        (0,),
        (5,),
        (3, 1 << 18),
        (1, 1, 1 << 19),
        (1 << 18, 2),
        (2, 1 << 10, 1 << 9),
        *[(7,)] * 5,
        (1 << 20, 0),
    ]
    for ranks in (1, 2, 3, 8):
        everyone = [Shares(rank, ranks) for rank in range(ranks)]
        saved_bytes = [0] * ranks
        for shape in shapes:
            array = np.arange(np.prod(shape, dtype=int), dtype=np.int32).reshape(shape)
            shares = [one.take(array) for one in everyone]
            layouts = [ps.Layout(layout) for layout, _ in shares]
            assert all(layout == layouts[0] for layout in layouts)
            parts = [np.empty(0, np.int32) if part is None else part.reshape(-1) for _, part in shares]
            whole = ps.DistArray.assemble(ps.DistArray(layouts[0], part, rank) for rank, part in enumerate(parts))
            np.testing.assert_array_equal(whole, array)
            for rank, part in enumerate(parts):
                saved_bytes[rank] += part.nbytes
        assert max(saved_bytes) - min(saved_bytes) <= 1 << 19, saved_bytes


def test_bare_array_as_tree(urls):
    with ps.Checkpointer(urls["url"]) as ck:
        ck.save(1, np.arange(4)).wait("fast")
        assert equal(ck.restore()[1], np.arange(4))


def test_caller_may_change_arrays_after_save(urls):
    a = np.zeros(1 << 20)
    with ps.Checkpointer(**urls) as ck:
        ck.save(1, {"a": a})
        a[:] = 1
        ck.finish()
        assert not ck.restore()[1]["a"].any()


@both_forms
def test_other_layouts(urls):
    a = np.arange(300.0).reshape(15, 20)
    saved = ps.Layout.block_cyclic(a.shape, (4, 3), (1, 1))
    wanted = ps.Layout.block_cyclic(a.shape, (2, 5), (1, 1), storage="column")
    tree = {"outer": {"field": ps.DistArray.from_global(saved, a)}, "weights": a}
    with ps.Checkpointer(**urls) as ck:
        ck.save(1, tree).wait("fast")
        for layouts in ({"outer/field": wanted, "weights": wanted}, {"outer": {"field": wanted}, "weights": wanted}):
            _, restored = ck.restore(layouts)
            for part in (restored["outer"]["field"], restored["weights"]):
                assert isinstance(part, ps.DistArray)
                assert part.layout == wanted
                assert part.local.flags.f_contiguous
                assert equal(np.ascontiguousarray(part.local), a)
        assert equal(ck.restore()[1]["outer"]["field"], a)
        target = ps.DistArray.zeros(wanted, a.dtype)
        assert ck.restore({"outer": {"field": target}})[1]["outer"]["field"] is target
        assert np.array_equal(target.local, a)
        with pytest.raises(ps.Error, match="elements of float64, the DistArray to fill has int64"):
            ck.restore({"outer/field": ps.DistArray.zeros(wanted, np.int64)})


@both_forms
def test_levels_steps_and_keep(urls):
    with ps.Checkpointer(**urls, keep=2) as ck:
        assert ck.latest is None
        assert ck.steps() == []
        for step in (10, 20, 30):
            ck.save(step, {"a": np.full(10, step)})
        ck.finish()
        assert ck.steps() == [20, 30]
        assert ck.latest == 30
        assert ck.restore()[0] == 30
        step, tree = ck.restore(step=20)
        assert step == 20
        assert (tree["a"] == 20).all()
        with pytest.raises(ps.Error) as error:
            ck.restore(step=10)
        assert error.value.code == "not_found"
        assert "burst buffer: file://" in ck.report()
    with pytest.raises(ps.Error, match="closed"):
        ck.save(40, {})


def test_the_end_of_a_with_block_has_a_limit(tmp_path):
    """The slow tier hangs: its first piece has passed, and the next one takes weeks."""
    program = f"""
        import os, numpy as np, penstock as ps, pytest
        late = "step 1 is not drained within the time given"
        place = {{"url": "file://{tmp_path}/slow", "burst_buffer": "file://{tmp_path}/fast"}}
        with (
            pytest.raises(ps.Error, match=late) as error,
            ps.Checkpointer(**place, drain_bytes_per_s=1, timeout_s=0.0) as ck,
        ):
            ck.save(1, {{"a": np.arange(3 << 20)}}).wait("fast", timeout_s=float("inf"))
        assert error.value.code == "timed_out"
        for wait in (ck.close, ck.finish, lambda: ck.delete(1)):
            with pytest.raises(ps.Error, match=late):
                wait()
        os.kill(os.getpid(), 9)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    with pytest.raises(ps.Error, match=r"timeout_s is -1.*expected seconds from 0 on"):
        ps.Checkpointer(f"file://{tmp_path}/slow", timeout_s=-1)


def test_what_has_reached_its_limit_can_be_closed_again(tmp_path):
    state = np.arange(3 << 20)
    ck = ps.Checkpointer(f"file://{tmp_path}/slow", burst_buffer=f"file://{tmp_path}/fast", timeout_s=0.0)
    try:
        ck.save(1, {"a": state})
        ck.close()
    except ps.Error as error:  # only a disk that is fast enough ends before
        assert error.code == "timed_out"
        ck.finish(timeout_s=float("inf"))
        ck.close()
    with pytest.raises(ps.Error, match="closed"):
        ck.save(2, {})
    with ps.Checkpointer(f"file://{tmp_path}/slow") as ck:
        assert np.array_equal(ck.restore()[1]["a"], state)


def test_wrong_limits_of_waits_are_told(urls):
    with ps.Checkpointer(**urls) as ck:
        handle = ck.save(1, {"a": np.zeros(10)})
        for wait in (handle.wait, ck.finish):
            with pytest.raises(ps.Error, match=r"timeout_s is -1.*expected seconds from 0 on"):
                wait(timeout_s=-1)
            wait(timeout_s=float("inf"))


@both_forms
def test_a_deleted_one_is_gone_for_later_jobs_too(urls):
    with ps.Checkpointer(**urls) as ck:
        for step in (1, 2, 3):
            ck.save(step, {"a": np.full(10, step)}).wait("drained")
        ck.delete(3)
        assert ck.latest == 2
        assert ck.restore()[1]["a"][0] == 2
        with pytest.raises(ps.Error, match="3") as error:
            ck.delete(3)
        assert error.value.code == "not_found"
        for wrong in (-1, 1 << 64):
            with pytest.raises(ps.Error, match="expected a number from 0 on"):
                ck.delete(wrong)
        # A save that is still under way.
        ck.save(4, {"a": np.full(10, 4)}).wait("fast")
        ck.delete(4)
        ck.save(5, {"a": np.full(10, 5)})
    with ps.Checkpointer(**urls) as ck:
        assert ck.steps() == [1, 2, 5]
        assert ck.restore()[1]["a"][0] == 5


def test_saves_follow_each_other_through_several_staging_buffers(urls):
    with ps.Checkpointer(**urls, staging_buffers=3) as ck:
        ck.reserve(1_600_000, buffers=3)
        for wrong in (0, 4):
            with pytest.raises(ps.Error, match=f"reserve: buffers is {wrong}; expected 1 to 3"):
                ck.reserve(1_600_000, buffers=wrong)
        array = np.empty(200_000)
        for step in range(1, 9):
            array[:] = step
            ck.save(step, {"a": array})
        ck.finish()
        for step in range(1, 9):
            assert (ck.restore(step=step)[1]["a"] == step).all()
    with pytest.raises(ps.Error, match="staging_buffers is 0; expected a number of saves from 1 on, or None"):
        ps.Checkpointer(**urls, staging_buffers=0)


def test_staging_bytes_bound_what_saves_take(urls):
    array = np.arange(200_000.0)
    with ps.Checkpointer(**urls, staging_bytes=2 * array.nbytes) as ck:
        with pytest.raises(ps.Error, match="staging_bytes is 3200000, but the arrays of this rank take 3200001 bytes"):
            ck.reserve(2 * array.nbytes + 1)
        handles = [ck.save(step, {"a": array * step}) for step in range(1, 9)]
        assert all(0 <= handle.waited_s <= handle.stall_s for handle in handles)
        assert "bytes of at most 3200000, filled by" in ck.report()
        assert "saves under way in the first tier: at most 2" in ck.report()
        with pytest.raises(ps.Error, match="staging_bytes is 3200000, but the arrays of this rank take 4800000 bytes"):
            ck.save(9, {"a": np.zeros(600_000)})
        ck.finish()
        for step in range(1, 9):
            assert (ck.restore(step=step)[1]["a"] == array * step).all()
    with pytest.raises(ps.Error, match="staging_bytes is 0; expected a number of bytes from 1 on, or None"):
        ps.Checkpointer(**urls, staging_bytes=0)


@pytest.mark.parametrize("buffered", [False, True])
def test_a_save_and_its_drain_take_one_state_of_memory(urls, buffered):
    """And 64 MiB, in saves that do not follow each other closely."""
    program = """
        import sys
        import numpy as np
        import penstock as ps

        def memory(key):
            return next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith(key))

        url, fast = sys.argv[1:]
        array = np.arange(40_000_000, dtype=np.float32)
        with ps.Checkpointer(url, burst_buffer=fast or None, keep=1) as checkpoints:
            checkpoints.save(0, {"a": array[:1]}).wait()
            before = memory("VmRSS")
            with open("/proc/self/clear_refs", "w") as file:
                file.write("5")  # the peak begins anew
            for step in range(1, 4):
                checkpoints.save(step, {"a": array}).wait()
            print((memory("VmHWM") - before) - array.nbytes)
        """
    beside = measured_bytes(program, urls["url"], urls["burst_buffer"] if buffered else "")
    assert beside <= 64 << 20, f"{beside} bytes beside one state"


def measured_bytes(program: str, *arguments: str) -> int:
    """What a program prints that measures its memory."""
    try:
        open("/proc/self/clear_refs", "w").close()
    except OSError:
        pytest.skip("the peak of the memory cannot be begun anew here")
    words = [sys.executable, "-c", textwrap.dedent(program), *arguments]
    return int(subprocess.run(words, check=True, capture_output=True, text=True).stdout)


@both_forms
@pytest.mark.parametrize("other_layout", [False, True])
def test_a_restore_takes_little_memory_beside_the_state(urls, other_layout):
    """A tenth of it and 64 MiB."""
    program = """
        import sys
        import numpy as np
        import penstock as ps

        def memory(key):
            return next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith(key))

        url, run, layout = sys.argv[1:]
        shape = (8_000, 10_000)
        with ps.Checkpointer(url, run=run or None) as checkpoints:
            checkpoints.save(0, {"a": np.zeros(100)}).wait()
            checkpoints.save(1, {"a": np.arange(80_000_000, dtype=np.float32).reshape(shape)}).wait()
        wanted = {"a": ps.Layout.block_cyclic(shape, (512, 300), (1, 1), storage="column")} if layout else None
        with ps.Checkpointer(url, run=run or None) as checkpoints:
            checkpoints.restore(step=0)
            before = memory("VmRSS")
            with open("/proc/self/clear_refs", "w") as file:
                file.write("5")  # the peak begins anew
            _, tree = checkpoints.restore(wanted)
            restored = tree["a"].local if layout else tree["a"]
            print(memory("VmHWM") - before - restored.nbytes)
        assert restored.flags.f_contiguous == bool(layout)
        assert restored[7_999, 9_999] == np.float32(79_999_999)
        """
    beside = measured_bytes(program, urls["url"], urls.get("run", ""), "other" if other_layout else "")
    assert beside <= 32_000_000 + (64 << 20), f"{beside} bytes beside one state"


def test_random_numbers_go_on_where_they_were(urls):
    def draw() -> tuple[float, float, float]:
        return random.random(), random.gauss(0, 1), np.random.standard_normal()  # noqa: NPY002

    random.gauss(0, 1)
    np.random.standard_normal()  # each has a normal number left over  # noqa: NPY002
    with ps.Checkpointer(**urls) as ck:
        ck.save(1, {"random": ps.RngState(), "a": np.ones(3)}).wait()
        expected = [draw() for _ in range(3)]
        for like in ({}, {"like": {"random": ps.RngState(), "a": np.zeros(3)}}):
            ck.restore(**like)[1]["random"].set()
            assert [draw() for _ in range(3)] == expected
        ck.save(2, ck.restore()[1]).wait()
        ck.restore(step=2)[1]["random"].set()
        assert [draw() for _ in range(3)] == expected
        assert ck.inspect().arrays.keys() == {"a", "random/python", "random/numpy"}


def test_one_process_has_no_partner(tmp_path):
    with pytest.raises(ps.Error, match="a node has 1 of the 1 ranks; expected at most half"):
        ps.Checkpointer(f"file://{tmp_path}/slow", burst_buffer=f"file://{tmp_path}/fast", partner_copies=True)
    with pytest.raises(ps.Error, match="partner_copies is given without a burst buffer"):
        ps.Checkpointer(f"file://{tmp_path}/slow", partner_copies=True)


@both_forms
def test_periodic_ones_stay(urls):
    with ps.Checkpointer(**urls, keep=2, keep_every=100) as ck:
        for step in range(50, 451, 50):
            ck.save(step, {"a": np.full(10, step)})
        ck.finish()
        assert ck.steps() == [100, 200, 300, 400, 450]
    with pytest.raises(ps.Error, match="keep_every is 100 without keep"):
        ps.Checkpointer(**urls, keep_every=100)
    with pytest.raises(ps.Error, match="keep_every is 0; expected"):
        ps.Checkpointer(**urls, keep=1, keep_every=0)


@both_forms
def test_the_best_stay_and_any_later_job_decides_alike(urls):
    losses = {1: 5, 2: 3, 3: 4, 4: float("nan"), 5: 9}
    with ps.Checkpointer(**urls, keep=1, keep_best=("loss", 2)) as ck:
        for step, loss in losses.items():
            ck.save(step, {"a": np.full(10, step)}, metrics={"loss": loss, "accuracy": np.float32(0.5)})
        ck.finish()
        assert ck.steps() == [2, 3, 5]
        assert not ck.warnings
        info = ck.inspect(3)
        assert info.metrics == {"loss": 4.0, "accuracy": 0.5}
        assert abs(info.saved_at_s - time.time()) < 3600
    # It knows the metrics from the checkpoints alone.
    with ps.Checkpointer(**urls, keep=1, keep_best=("loss", 1), best_mode="max") as ck:
        assert ck.restore()[0] == 5
        ck.save(6, {"a": np.full(10, 6)}, metrics={"loss": 7})
        ck.finish()
        assert ck.steps() == [5, 6]
    with ps.Checkpointer(**urls, keep=1, keep_younger_s=3600.0) as ck:
        ck.save(7, {"a": np.full(10, 7)}).wait()
        ck.finish()
        assert ck.steps() == [5, 6, 7]


def test_wrong_rules_and_metrics_are_told(urls):
    for wrong, text in (
        ({"keep_best": ("loss", 1)}, "keep_best is given without keep"),
        ({"keep_younger_s": 5}, "keep_younger_s is given without keep"),
        ({"keep": 1, "keep_best": ("loss", 0)}, "expected a metric and a number from 1 on"),
        ({"keep": 1, "keep_best": "loss"}, "expected a metric and a number from 1 on"),
        ({"keep": 1, "best_mode": "least"}, "expected 'min' or 'max'"),
        ({"keep": 1, "keep_younger_s": -1}, "expected seconds above 0"),
    ):
        with pytest.raises(ps.Error, match=text):
            ps.Checkpointer(**urls, **wrong)
    with ps.Checkpointer(**urls) as ck:
        with pytest.raises(ps.Error, match=r"metrics\['loss'\] is 'low'; expected a number"):
            ck.save(1, {}, metrics={"loss": "low"})
        assert ck.steps() == []


@both_forms
def test_after_a_rollback_the_newest_is_of_the_new_line(urls):
    def saved(step: int, run: int) -> dict:
        return {"a": np.full(10, step), "run": run}

    with ps.Checkpointer(**urls, keep=2) as ck:
        for step in (10, 20):
            ck.save(step, saved(step, 1))
    with ps.Checkpointer(**urls, keep=2) as ck:
        assert ck.restore(step=10)[0] == 10
        ck.save(11, saved(11, 2))
        ck.finish()
        assert ck.restore()[0] == 11
        assert ck.latest == 11
        assert ck.inspect().step == 11
        assert ck.steps() == [10, 11, 20], "what was superseded stays until the new line has passed it"
        step, tree = ck.restore(step=20)
        assert (step, tree["run"]) == (20, 1)
    with ps.Checkpointer(**urls, keep=2) as ck:
        assert ck.restore()[0] == 11
        ck.save(20, saved(20, 3))
        ck.finish()
        assert ck.restore()[1]["run"] == 3
        ck.save(30, saved(30, 3))
        ck.finish()
        assert ck.steps() == [20, 30]


class Loader:
    def __init__(self) -> None:
        self.state = {"epoch": 0}

    def state_dict(self) -> dict:
        return self.state

    def load_state_dict(self, state: dict) -> None:
        self.state = state


def test_position_of_a_loader_is_part_of_the_checkpoint(urls):
    loader = Loader()
    loader.state = {"epoch": 3, "position": 123456789012345, "order": "seed 1"}
    saved = dict(loader.state)
    with ps.Checkpointer(**urls) as ck:
        ck.save(1, {"a": 1}, dataset=loader)
        loader.state = {}
        ck.save(2, {"a": 2})
        ck.finish()
        assert ck.restore(step=1, dataset=loader) == (1, {"a": 1})
        assert loader.state == saved
        with pytest.raises(ps.Error, match="without a dataset"):
            ck.restore(dataset=loader)


@pytest.mark.parametrize(
    ("tree", "text"),
    [
        ({"a": object()}, "'a' is a object, which cannot be saved"),
        ({"a": {"b": np.array([None])}}, "'a/b' has elements of object"),
        ({"a": np.zeros(2, [("x", "f4")])}, "'a' has elements of"),
        ({(1, 2): 3}, "has the key"),
        ({"1": np.zeros(1), 1: np.zeros(1)}, "two arrays are called '1'"),
    ],
)
def test_what_cannot_be_saved_is_refused(urls, tree, text):
    with ps.Checkpointer(**urls) as ck:
        with pytest.raises(ps.Error, match=text.replace("(", r"\(")):
            ck.save(1, tree)
        ck.save(2, {"a": 1}).wait("drained")
        assert ck.steps() == [2]


def test_wrong_arguments(urls):
    for wrong in ({"keep": 0}, {"chunk_bytes": 100}, {"undrained_max": 0}, {"burst_buffer": urls["url"]}):
        with pytest.raises(ps.Error) as error:
            ps.Checkpointer(**{**urls, **wrong})
        assert error.value.code == "invalid_argument", wrong
    with ps.Checkpointer(**urls) as ck:
        with pytest.raises(ps.Error, match="step is -1"):
            ck.save(-1, {})
        handle = ck.save(1, {"a": np.zeros((2, 3))})
        with pytest.raises(ps.Error, match="'written' is not a level"):
            handle.wait("written")
        handle.wait("drained")
        with pytest.raises(ps.Error, match=r"saved with the shape \(2, 3\)"):
            ck.restore({"a": ps.Layout.whole((3, 2))})
        with pytest.raises(ps.Error, match="no array 'b' was saved"):
            ck.restore({"b": ps.Layout.whole((3, 2))})
        with pytest.raises(ps.Error, match="expected a Layout or a DistArray"):
            ck.restore({"a": 3})


def files(url: str, pattern: str) -> list[pathlib.Path]:
    return sorted(pathlib.Path(url.removeprefix("file://")).rglob(pattern))


def test_damage_falls_back_and_is_told(urls):
    with ps.Checkpointer(**urls) as ck:
        for step in (1, 2):
            ck.save(step, {"a": np.full(1000, step)}).wait("drained")
        ck.finish()
        for url in urls.values():
            for path in files(url, "*2.1-1.rank-0.data"):
                data = bytearray(path.read_bytes())
                data[100] ^= 1
                os.chmod(path, 0o600)
                path.write_bytes(data)
        with pytest.warns(RuntimeWarning, match="checksum"):
            step, tree = ck.restore()
        assert step == 1
        assert (tree["a"] == 1).all()
        assert "passed over" in ck.restore_warnings[0]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with pytest.raises(ps.Error, match="checksum") as error:
                ck.restore(step=2)
        assert error.value.code == "corrupt"


@pytest.mark.parametrize("buffers", [1, None])
def test_error_of_the_background_comes_with_wait_and_with_a_later_save(urls, tmp_path, buffers):
    ck = ps.Checkpointer(**urls, staging_buffers=buffers)
    ck.save(1, {"a": np.zeros(10)}).wait("drained")
    folder = tmp_path / "fast" / "checkpoints"
    os.rename(folder, tmp_path / "away")
    folder.write_text("a file where the folder was")  # an error for root too
    handle = ck.save(2, {"a": np.zeros(10)})
    with pytest.raises(ps.Error) as error:
        handle.wait("fast")
    assert handle.failed
    assert handle.level == "staged"
    ck.save(3, {"a": np.zeros(10)})
    if buffers is None:
        ck.save(4, {"a": np.zeros(10)})
    with pytest.raises(ps.Error, match="step 3"):
        ck.save(5, {"a": np.zeros(10)})
    if buffers is None:
        with pytest.raises(ps.Error, match="step 4"):
            ck.save(6, {"a": np.zeros(10)})
    folder.unlink()
    os.rename(tmp_path / "away", folder)
    ck.save(7, {"a": np.ones(10)}).wait("drained")
    ck.close()
    assert error.value.code == "io"
    with ps.Checkpointer(**urls) as again:
        assert again.restore()[0] == 7


CHILD = """
    import json
    import sys
    import numpy as np
    import penstock as ps

    ck = ps.Checkpointer(**json.loads(sys.argv[1]), keep=2)
    step = ck.restore()[0] if ck.latest is not None else 0
    while True:
        step += 1
        tree = {"a": np.full(200_000, step), "b": np.arange(100_000) + step, "step": step}
        handle = ck.save(step, tree)
        if step % 3 == 0:
            handle.wait("drained")
            print(f"drained {step}", flush=True)
        elif step % 3 == 1:
            handle.wait("fast")
            print(f"fast {step}", flush=True)
"""


@both_forms
def test_killed_while_it_saves_it_goes_on_from_a_complete_checkpoint(urls, tmp_path):
    rng = np.random.default_rng(5)
    script = tmp_path / "child.py"
    script.write_text(textwrap.dedent(CHILD))
    last = 0
    for _ in range(6):
        with open(tmp_path / "out", "w+") as out:
            child = subprocess.Popen([sys.executable, script, json.dumps(urls)], stdout=out)
            while not (tmp_path / "out").read_text() and child.poll() is None:
                time.sleep(0.01)
            time.sleep(rng.uniform(0, 0.3))
            assert child.poll() is None, "the child has ended by itself"
            child.send_signal(signal.SIGKILL)
            child.wait()
        lines = [line.split() for line in (tmp_path / "out").read_text().splitlines() if line.count(" ") == 1]
        promised = {
            level: max((int(s) for name, s in lines if name in levels), default=0)
            for level, levels in {"fast": ("fast", "drained"), "drained": ("drained",)}.items()
        }
        assert promised["fast"] > last
        with ps.Checkpointer(urls["url"], run=urls.get("run")) as slow_alone, warnings.catch_warnings():
            warnings.simplefilter("error")
            if promised["drained"]:
                assert slow_alone.restore()[0] >= promised["drained"]
        with ps.Checkpointer(**urls) as ck, warnings.catch_warnings():
            warnings.simplefilter("error")
            step, tree = ck.restore()
            assert step >= promised["fast"]
            assert tree["step"] == step
            assert (tree["a"] == step).all()
            assert (tree["b"] == np.arange(100_000) + step).all()
        last = step


DRAINING = """
    import json
    import sys
    import time
    import numpy as np
    import penstock as ps

    # The second piece of the drain would wait for hours.
    ck = ps.Checkpointer(**json.loads(sys.argv[1]), drain_bytes_per_s=1000)
    ck.save(1, {"a": np.arange(4 << 20)}).wait("fast")
    print("fast", flush=True)
    while True:
        time.sleep(1)
"""


def test_killed_between_two_pieces_of_a_drain_nothing_of_it_counts(urls, tmp_path):
    script = tmp_path / "child.py"
    script.write_text(textwrap.dedent(DRAINING))
    child = subprocess.Popen([sys.executable, script, json.dumps(urls)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "fast\n"
    part = 0
    while part < 1 << 20:  # a record of the job is smaller
        assert child.poll() is None, "the child has ended by itself"
        part = sum(path.stat().st_size for path in files(urls["url"], ".tmp/*"))
        time.sleep(0.01)
    child.send_signal(signal.SIGKILL)
    child.communicate()
    assert part < 32 << 20
    assert not files(urls["url"], "*.data")
    with ps.Checkpointer(urls["url"]) as slow_alone:
        assert slow_alone.restore(default=None) is None
    with ps.Checkpointer(**urls) as ck, warnings.catch_warnings():
        warnings.simplefilter("error")
        step, tree = ck.restore()
        assert step == 1
        assert np.array_equal(tree["a"], np.arange(4 << 20))
        ck.save(2, tree).wait("drained")  # and before it what the dead job has left
    with ps.Checkpointer(urls["url"]) as slow_alone:
        assert slow_alone.steps() == [1, 2]
        assert np.array_equal(slow_alone.restore()[1]["a"], np.arange(4 << 20))


@both_forms
def test_a_job_that_was_stopped_does_not_save_over_the_one_that_replaced_it(urls, tmp_path):
    rng = np.random.default_rng(7)
    script = tmp_path / "child.py"
    script.write_text(textwrap.dedent(CHILD))

    def acknowledged() -> int:
        lines = [line.split() for line in (tmp_path / "out").read_text().splitlines() if line.count(" ") == 1]
        return max((int(step) for _, step in lines), default=0)

    for _ in range(3):
        with open(tmp_path / "out", "w+") as out, open(tmp_path / "errors", "w+") as errors:
            older = subprocess.Popen([sys.executable, script, json.dumps(urls)], stdout=out, stderr=errors)
            while not acknowledged() and older.poll() is None:
                time.sleep(0.01)
            time.sleep(rng.uniform(0, 0.2))
            assert older.poll() is None, (tmp_path / "errors").read_text()
            older.send_signal(signal.SIGSTOP)
            # Until all of its threads have stopped, it may complete a save.
            stopped = os.waitid(os.P_PID, older.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            assert stopped is not None and stopped.si_code == os.CLD_STOPPED
            before = acknowledged()
            with ps.Checkpointer(**urls, keep=2) as newer:
                step, _ = newer.restore()
                assert step >= before
                newer.save(step + 1, {"a": np.zeros(10), "step": "of the newer job"}).wait("drained")
                older.send_signal(signal.SIGCONT)
                assert older.wait() == 1
                assert acknowledged() <= step
                text = (tmp_path / "errors").read_text()
                assert f"process {os.getpid()}) saves checkpoints here since this one" in text
                assert newer.restore()[1]["step"] == "of the newer job"
        with ps.Checkpointer(**urls) as ck, warnings.catch_warnings():
            warnings.simplefilter("error")
            assert ck.restore()[1]["step"] == "of the newer job"
            for kept in ck.steps():
                assert ck.restore(step=kept)[0] == kept


def test_works_without_mpi(urls):
    program = (
        "import sys; sys.modules['mpi4py'] = None\n"
        "import numpy as np, penstock as ps\n"
        f"ck = ps.Checkpointer({urls['url']!r})\n"
        "ck.save(1, {'a': np.ones(3)})\n"  # the end of the program waits for it
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    with ps.Checkpointer(urls["url"]) as ck:
        assert ck.restore()[0] == 1


def test_manifest_is_json_that_anybody_can_read(urls):
    with ps.Checkpointer(urls["url"]) as ck:
        ck.save(12, {"größe": np.ones((3, 4), np.float32)}).wait("drained")
    (path,) = files(urls["url"], "*manifest.json")
    manifest = json.loads(path.read_text())
    assert path.name == "step-00000000000000000012.1-0.manifest.json"
    assert manifest["step"] == 12
    assert manifest["format"] == 2
    assert manifest["arrays"][0]["name"] == "größe"
    assert manifest["arrays"][0]["dtype"] == "float32"
    (data,) = files(urls["url"], "*.data")
    assert data.stat().st_size == manifest["objects"][0]["size_bytes"] == 48 + 16
    assert data.read_bytes()[:48] == np.ones(12, np.float32).tobytes()


FUNNELED = """
    import sys
    import mpi4py
    mpi4py.rc.thread_level = "funneled"
    from mpi4py import MPI
    import numpy as np
    import penstock as ps

    comm = MPI.COMM_WORLD
    layout = ps.Layout.even((1000,), comm.size)
    with ps.Checkpointer(sys.argv[1], burst_buffer=sys.argv[2], keep=2) as ck:
        for step in (1, 2, 3, 4):
            handle = ck.save(step, {"a": ps.DistArray.from_global(layout, np.arange(1000) * step, comm.rank)})
        handle.wait("drained")
        step, tree = ck.restore()
        assert step == 4 and (tree["a"] == np.arange(1000) * 4).all()
        assert "without MPI_THREAD_MULTIPLE" in ck.report(), ck.report()
"""


@pytest.mark.skipif(shutil.which("mpiexec") is None, reason="no mpiexec")
def test_without_thread_multiple_the_ranks_agree_inside_the_calls(urls, tmp_path):
    script = tmp_path / "funneled.py"
    script.write_text(textwrap.dedent(FUNNELED))
    command = ["mpiexec", "-n", "2", sys.executable, str(script), *urls.values()]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
