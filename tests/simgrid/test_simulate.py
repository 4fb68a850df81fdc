"""penstock simulate: Penstock's plans on SimGrid platforms, and the selectors of other MPIs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILD = Path(os.environ.get("PENSTOCK_BUILD", ROOT / "build/release"))

pytestmark = pytest.mark.skipif(
    not (BUILD / "python/penstock/penstock-simgrid").exists(),
    reason="Penstock was built without SimGrid; ./dev setup --with libsimgrid-dev installs it",
)
needs_smpi = pytest.mark.skipif(
    shutil.which("smpicc") is None or shutil.which("smpirun") is None, reason="there is no smpicc or smpirun"
)

SELECTORS = ["ompi", "mpich", "mvapich2", "impi"]


def penstock(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "penstock", "simulate", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(BUILD / "python"), **environment},
        check=False,
    )


def results(*arguments: str) -> list[dict[str, object]]:
    done = penstock(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    found: list[dict[str, object]] = json.loads(done.stdout)["results"]
    return found


@pytest.mark.parametrize(
    ("platform", "nodes", "ranks_per_node"),
    [("emulated", 4, 1), ("shaheen2", 128, 32), ("stampede2", 32, 48), ("fat-tree", 1024, 64)],
)
def test_the_platforms_have_the_nodes_and_ranks_that_they_are_named_for(
    platform: str, nodes: int, ranks_per_node: int
) -> None:
    facts = json.loads(penstock("--platform", platform, "--ranks-per-node", "1", "--bytes", "8", "--json").stdout)
    assert facts["nodes"] == nodes
    assert facts["machine"]["node"]["cores"] == ranks_per_node
    assert facts["results"][0]["seconds"] > 0


def test_a_broadcast_between_two_nodes_takes_the_time_of_a_message() -> None:
    facts = json.loads(
        penstock("--platform", "emulated", "--nodes", "2", "--ranks-per-node", "1", "--bytes", "1K", "--json").stdout
    )
    network = facts["machine"]["network"]
    expected = network["latency_seconds"] + 2 * network["overhead_seconds"] + network["gap_seconds"]
    expected += 1024 * network["seconds_per_byte"]
    assert facts["results"][0]["seconds"] == pytest.approx(expected, rel=1e-3)


def test_a_long_broadcast_takes_as_long_as_its_bytes_need_a_link() -> None:
    [result] = results("--platform", "emulated", "--ranks-per-node", "2", "--bytes", "16M")
    limit = (16 << 20) / 119.5e6
    assert limit < result["seconds"] < 1.05 * limit  # type: ignore[operator]


def test_it_prints_a_table_with_the_algorithms() -> None:
    algorithms = ["ring", "hierarchical"]
    done = penstock(
        "--platform",
        "emulated",
        "--operation",
        "allreduce",
        "--bytes",
        "8,64K",
        "--ranks-per-node",
        "2",
        "--algorithm",
        ",".join(algorithms),
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "allreduce on emulated, 4 nodes x 2 ranks, simulated times in us"
    assert [line.split()[:2] for line in lines[3:]] == [[size, name] for size in ("8", "65536") for name in algorithms]


@needs_smpi
@pytest.mark.parametrize("selector", SELECTORS)
@pytest.mark.parametrize(
    "operation", ["bcast", "reduce", "allreduce", "gather", "scatter", "allgather", "alltoall", "barrier"]
)
def test_the_selectors_of_other_mpis_run_on_the_same_platform(operation: str, selector: str) -> None:
    found = results(
        *("--platform", "emulated", "--ranks-per-node", "2", "--operation", operation),
        *("--bytes", "8,64K", "--peers", selector),
    )
    assert [(each["by"], each["bytes"]) for each in found] == [
        (by, size) for by in ("penstock", selector) for size in (8, 65536)
    ]
    assert all(each["seconds"] > 0 for each in found)  # type: ignore[operator]


@needs_smpi
def test_a_peers_message_takes_what_penstocks_takes_but_for_the_gap() -> None:
    facts = json.loads(
        penstock(
            *("--platform", "emulated", "--nodes", "2", "--ranks-per-node", "1", "--bytes", "1K"),
            *("--peers", "mpich", "--json"),
        ).stdout
    )
    penstocks, peers = facts["results"]
    gap = facts["machine"]["network"]["gap_seconds"]
    assert penstocks["seconds"] - gap == pytest.approx(peers["seconds"], rel=0.03)


# Of one message, up to and beyond the eager limit. SMPI adds 16 bytes to it.
@needs_smpi
@pytest.mark.parametrize("shape", [("2", "1"), ("1", "2")])
def test_with_equal_charges_a_message_takes_what_a_peers_takes(shape: tuple[str, str]) -> None:
    found = results(
        *("--platform", "emulated", "--nodes", shape[0], "--ranks-per-node", shape[1], "--operation", "scatter"),
        *("--bytes", "8,256K,262148", "--algorithm", "linear", "--peers", "mpich", "--charges", "equal"),
    )
    for penstocks, peers in zip(found[:3], found[3:]):
        assert penstocks["seconds"] == pytest.approx(peers["seconds"], abs=0.2e-6), penstocks["bytes"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--platform", "nowhere.xml"), "platform is 'nowhere.xml'; expected a file of SimGrid, or one of emulated, "),
        (("--platform", "emulated", "--nodes", "5"), "nodes is 5; the platform has 4 hosts"),
        (("--platform", "emulated", "--operation", "bcats"), "bcats"),
        (("--platform", "emulated", "--operation", "alltoallv"), "expected one without a list of counts"),
        (("--platform", "emulated", "--operation", "allreduce", "--bytes", "7"), "expected a multiple of 4"),
        (("--platform", "emulated", "--algorithm", "none_such"), "none_such"),
        (("--platform", "emulated", "--root", "8"), "root"),
        (("--platform", "emulated", "--bytes", "8,x"), "'x' is not a size"),
        (("--platform", "emulated", "--peers", "lam"), "lam"),
    ],
)
def test_invalid_arguments_are_one_line_and_status_2(arguments: tuple[str, ...], said: str) -> None:
    done = penstock(*arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.startswith("penstock simulate: ") and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "text",
    [
        "<platform",
        '<?xml version="1.0"?>\n<platform version="4.1"><zone id="a" routing="Full"><hots/></zone></platform>',
    ],
)
def test_a_platform_that_simgrid_cannot_read_is_an_error_in_words(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.xml"
    path.write_text(text)
    done = penstock("--platform", str(path))
    assert done.returncode == 2
    assert done.stderr.startswith("penstock simulate: SimGrid cannot read the platform: ")
    assert done.stderr.count("\n") == 1
    assert str(path) in done.stderr


def test_a_platform_on_which_simgrid_ends_is_an_error_in_words(tmp_path: Path) -> None:
    text = (ROOT / "python/penstock/simulation/platforms/shaheen2.xml").read_text()
    path = tmp_path / "bad.xml"
    path.write_text(text.replace('"4,32;1,4;8,4;4"', '"8,16;1,4;4,4;4"'))  # more groups than routers in a group
    done = penstock("--platform", str(path))
    assert done.returncode == 2
    assert done.stderr.startswith(f"penstock simulate: SimGrid could not simulate on {path}: ")
    assert done.stderr.count("\n") == 1


def test_a_property_that_no_machine_has_is_refused(tmp_path: Path) -> None:
    text = (ROOT / "python/penstock/simulation/platforms/emulated.xml").read_text()
    path = tmp_path / "other.xml"
    path.write_text(text.replace("network.gap_seconds", "network.gab_seconds"))
    done = penstock("--platform", str(path), "--bytes", "8")
    assert done.returncode == 2
    assert "network.gab_seconds" in done.stderr


def test_without_the_program_it_says_what_to_install(tmp_path: Path) -> None:
    package = tmp_path / "penstock"
    shutil.copytree(
        BUILD / "python/penstock",
        package,
        symlinks=True,
        ignore=shutil.ignore_patterns("penstock-simgrid", "simulation"),
    )
    shutil.copytree(ROOT / "python/penstock/simulation", package / "simulation")
    done = penstock("--platform", "emulated", PYTHONPATH=str(tmp_path), PATH="")
    assert done.returncode == 1
    assert "libsimgrid-dev" in done.stderr and done.stderr.count("\n") == 1
