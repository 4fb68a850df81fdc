"""Models of the store's protocols: Spin explores every order of steps, and finds every planted mistake."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

MODELS = Path(__file__).parent.parent / "model"
WRITERS_AND_COLLECTOR = ["-DWRITERS=2", "-DROUNDS=1", "-DREADERS=0"]
READER_AND_COLLECTOR = ["-DWRITERS=1", "-DROUNDS=2", "-DREADERS=1"]
DELTA_AND_COLLECTOR = ["-DWRITERS=1", "-DROUNDS=2", "-DREADERS=0", "-DDELTAS=1"]
DELTA_AND_READER = ["-DWRITERS=1", "-DROUNDS=1", "-DREADERS=1", "-DDELTAS=1"]
COMPACTION = ["-DWRITERS=1", "-DROUNDS=1", "-DREADERS=0", "-DCOMPACTIONS=1"]
CONDITION = ["-DWRITERS=1", "-DCONDITIONALS=1", "-DATTEMPTS=1", "-DROUNDS=1", "-DREADERS=0"]
TWO_CONDITIONS = ["-DWRITERS=0", "-DCONDITIONALS=2", "-DATTEMPTS=1", "-DROUNDS=1", "-DREADERS=0"]
CONDITION_AND_SLEEPER = [*CONDITION, "-DSLEEPERS=1"]
CONDITION_AND_COMPACTION = ["-DWRITERS=0", "-DCONDITIONALS=1", "-DROUNDS=1", "-DREADERS=0", "-DCOMPACTIONS=1"]
# Roles for one name whose newest entry has the number START.
SLEEPER = ["-DCREATORS=0", "-DREMOVERS=1", "-DCOLLECTORS=1", "-DSLEEPERS=1", "-DSTART=0"]
TWO_REMOVERS = ["-DCREATORS=0", "-DREMOVERS=2", "-DCOLLECTORS=1", "-DSLEEPERS=0", "-DSTART=1"]
NUMBER_FREED = ["-DCREATORS=0", "-DREMOVERS=1", "-DCOLLECTORS=1", "-DSLEEPERS=1", "-DSTART=2"]
TWO_NAME_COLLECTORS = ["-DCREATORS=0", "-DREMOVERS=0", "-DCOLLECTORS=2", "-DSLEEPERS=1", "-DSTART=1"]
ONE_OF_EACH = ["-DTAGGERS=1", "-DCLONERS=1", "-DWRITERS=1", "-DCOLLECTORS=1"]
TWO_COLLECTORS = ["-DTAGGERS=0", "-DCLONERS=1", "-DWRITERS=0", "-DCOLLECTORS=2"]
TWO_REPAIRS_AND_WRITER = ["-DREPAIRS=2", "-DCOLLECTORS=0"]
TWO_REPAIRS_AND_COLLECTOR = ["-DREPAIRS=2", "-DWRITERS=0"]

pytestmark = [
    pytest.mark.skipif(shutil.which("spin") is None, reason="no spin; install Debian's package spin"),
    pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc, which spin needs"),
]


Verified = tuple[int, int, str]


def verify(folder: Path, model: str, processes: list[str], mistake: str | None = None) -> Verified:
    """(errors, states, full output) of the verifier."""
    defines = [*processes, *([f"-D{mistake}"] if mistake else [])]
    # A mistake is found after few states: compiling with optimization would take longer than the run.
    optimize = "-O0" if mistake else "-O1"
    subprocess.run(["spin", *defines, "-a", MODELS / f"{model}.pml"], cwd=folder, check=True, capture_output=True)
    subprocess.run(["gcc", optimize, "-w", "-DSAFETY", "-DCOLLAPSE", "-o", "pan", "pan.c"], cwd=folder, check=True)
    done = subprocess.run(["./pan", "-E", "-m100000", "-w22"], cwd=folder, check=False, capture_output=True, text=True)
    assert "max search depth too small" not in done.stdout
    errors, states = (re.search(text, done.stdout) for text in (r"errors: (\d+)", r"(\d+) states, stored"))
    assert errors, done.stdout
    assert states, done.stdout
    return int(errors[1]), int(states[1]), done.stdout


@pytest.fixture(scope="module")
def verifications(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[Verified]]]:
    """Runs all selected models in parallel: each uses one core."""
    asked = {item.nodeid: item.callspec.params for item in request.session.items if item.module is request.module}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        yield {
            test: pool.submit(
                verify, tmp_path_factory.mktemp("pan"), given["model"], given["processes"], given.get("mistake")
            )
            for test, given in asked.items()
        }
        pool.shutdown(cancel_futures=True)


@pytest.fixture
def verified(request: pytest.FixtureRequest, verifications: dict[str, Future[Verified]]) -> Verified:
    return verifications[request.node.nodeid].result()


@pytest.mark.parametrize(
    ("model", "processes", "expected"),
    [
        ("publication", WRITERS_AND_COLLECTOR, 1_000_000),
        ("publication", READER_AND_COLLECTOR, 1_000_000),
        ("publication", DELTA_AND_COLLECTOR, 1_000_000),
        ("publication", DELTA_AND_READER, 400_000),
        ("publication", COMPACTION, 200_000),
        ("publication", CONDITION, 900_000),
        ("publication", TWO_CONDITIONS, 900_000),
        ("publication", CONDITION_AND_SLEEPER, 300_000),
        ("publication", CONDITION_AND_COMPACTION, 500_000),
        ("names", SLEEPER, 400_000),
        ("names", TWO_REMOVERS, 70_000),
        ("names", NUMBER_FREED, 800_000),
        ("repair", [], 100_000),
        ("repair", TWO_REPAIRS_AND_WRITER, 1_000_000),
        ("repair", TWO_REPAIRS_AND_COLLECTOR, 100_000),
        ("export", [], 10_000),
        ("snapshots", ONE_OF_EACH, 500_000),
        ("snapshots", TWO_COLLECTORS, 10_000),
    ],
    ids=[
        "writers",
        "reader",
        "delta",
        "reader-of-delta",
        "compaction",
        "condition",
        "conditions",
        "condition-sleeper",
        "condition-compaction",
        "sleeper",
        "removers",
        "freed",
        "repair",
        "repairs-writer",
        "repairs-collector",
        "export",
        "snapshots",
        "collectors",
    ],
)
def test_no_order_of_steps_breaks_a_promise(
    verified: Verified, model: str, processes: list[str], expected: int
) -> None:
    errors, states, said = verified
    assert errors == 0, said
    assert states > expected, "so few states mean that something is never tried"


@pytest.mark.parametrize(
    ("model", "mistake", "processes", "broken"),
    [
        ("publication", "NO_LOOK_AT_FENCES", WRITERS_AND_COLLECTOR, "acknowledged"),
        ("publication", "NO_LOOK_AT_KEEP", WRITERS_AND_COLLECTOR, "acknowledged"),
        ("publication", "LIST_BEFORE_FENCE", WRITERS_AND_COLLECTOR, "data"),
        ("publication", "MARK_AFTER_REMOVAL", WRITERS_AND_COLLECTOR, "data"),
        ("publication", "NO_LOOK_AFTER_REPLAY", READER_AND_COLLECTOR, "wrong"),
        ("publication", "NO_LOOK_BEFORE_DELTA", DELTA_AND_COLLECTOR, "delta_wrong"),
        ("publication", "NO_LOOK_AFTER_COMPACTION", COMPACTION, "compact_map"),
        ("publication", "MARK_DECIDES", COMPACTION, "attempt"),
        ("publication", "NO_CONFIRMATION", COMPACTION, "tagged"),
        ("publication", "NO_LOOK_AT_FENCES", CONDITION, "acknowledged"),
        ("publication", "NO_LOOK_AT_KEEP", CONDITION, "acknowledged"),
        ("publication", "MARK_MAKES_VOID", CONDITION, "truth"),
        ("publication", "FIRST_FREE_NUMBER", TWO_CONDITIONS, "truth"),
        ("publication", "NO_LOOK_AFTER_CONDITION", CONDITION_AND_SLEEPER, "truth"),
        ("names", "VISIBLE_AT_ENTRY", SLEEPER, "took"),
        ("names", "NO_GIVING_UP", SLEEPER, "took"),
        ("names", "NO_LEASE_OF_REMOVALS", SLEEPER, "newest"),
        ("names", "NO_LOOK_AT_ALIVE", TWO_REMOVERS, "look"),
        ("names", "LIST_MARKS_ONCE", TWO_REMOVERS, "look"),
        ("names", "GONE_BEFORE_ALIVE", TWO_REMOVERS, "newest"),
        ("names", "REMOVE_THE_NEWEST", TWO_REMOVERS, "free_then"),
        ("names", "NO_LOOK_AFTER_ENTRY", NUMBER_FREED, "is_free"),
        ("names", "NO_LOOK_AT_FREED", TWO_NAME_COLLECTORS, "took"),
        ("repair", "NO_CHECK_OF_THE_LOG", [], "at>3"),
        ("repair", "REMOVE_THE_RECORD", [], "pass"),
        ("repair", "MARK_AFTER_REMOVAL", [], "keep"),
        ("repair", "KEEP_DELTAS", [], "pass"),
        ("repair", "NO_BASE_MARK", [], "pass"),
        ("repair", "ANY_INDEX_DECIDES", [], "stored"),
        ("repair", "KEEPS_ITS_MAP", [], "without"),
        ("repair", "NO_LOOK_AFTER_MAP", [], "without"),
        ("repair", "NO_LAST_MARK", [], "without"),
        ("repair", "NO_SECOND_LOOK", [], "without"),
        ("repair", "OWN_PLAN", TWO_REPAIRS_AND_WRITER, "without"),
        ("export", "ONE_TEMPORARY_NAME", [], "content"),
        ("export", "IGNORE_FAILED_READS", [], "content"),
        ("export", "RENAME_BEFORE_SYNC", [], "content"),
        ("export", "NO_SYNC_OF_THE_DIRECTORY", [], "acknowledged"),
        ("snapshots", "NO_SYNC_OF_TAGS", ONE_OF_EACH, "tagged"),
        ("snapshots", "NO_LOOK_AFTER_TAG", ONE_OF_EACH, "tagged"),
        ("snapshots", "TAGS_BEFORE_MARK", ONE_OF_EACH, "tagged"),
        ("snapshots", "ENTRY_FIRST", ONE_OF_EACH, "object[8]"),
        ("snapshots", "NO_LOOK_AFTER_CLONE", ONE_OF_EACH, "cloned"),
        ("snapshots", "NO_LOOK_AT_GONE", ONE_OF_EACH, "cloned"),
        ("snapshots", "ENTRIES_BEFORE_MARK", ONE_OF_EACH, "cloned"),
        ("snapshots", "GONE_AFTER_REMOVAL", ONE_OF_EACH, "object[8]"),
        ("snapshots", "NO_SYNC_OF_MARKS", ONE_OF_EACH, "object[5]"),
        ("snapshots", "NO_SYNC_OF_DATA", ONE_OF_EACH, "object[12]"),
        ("snapshots", "NO_SYNC_OF_RECORDS", ONE_OF_EACH, "written"),
    ],
)
def test_planted_mistakes_are_found(
    verified: Verified, model: str, mistake: str, processes: list[str], broken: str
) -> None:
    errors, _, said = verified
    assert errors == 1
    violated = next(line for line in said.splitlines() if "assertion violated" in line)
    assert broken in violated
