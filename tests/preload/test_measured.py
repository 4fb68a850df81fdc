"""MPI and Penstock serve some calls in turns, and the faster one the others."""

from __future__ import annotations

from pathlib import Path

import pytest
from preload.launch import ALL, HOOKED, MPIS, Done, preloaded, program

#: In measured.c, counts.c and rehearsed_lists.c.
CALLS = 300
#: In rooted.c.
ROOTED_CALLS = 2000
#: In rehearsed.c.
REHEARSED_CALLS = 40


def row(done: Done, operation: str) -> dict[str, object]:
    assert done.report is not None, done.err
    (found,) = (row for row in done.report["operations"] if row["operation"] == operation)
    return found


def measured(abi: str, ranks: int, folder: Path, name: str, *arguments: str, tool: str, **environment: str) -> Done:
    """Run a program whose calls are measured, beneath which a tool changes MPI's speed."""
    done = preloaded(
        abi,
        ranks,
        folder / "report.json",
        program(abi, name),
        *arguments,
        tool=tool,
        PENSTOCK_PRELOAD_MEASURE="on",
        **environment,
    )
    assert done.status == 0, done.err
    assert f"{name}: ok" in done.out
    return done


def goes_to_mpi(done: Done, operation: str, calls: int) -> None:
    native = sum(done.native(operation).values())
    # The report has the reason of the last call, which may be one of a later round.
    assert done.native(operation).keys() == {"MPI was faster"} or native > 0.75 * calls, (operation, done.err)
    assert done.served(operation) + native == calls


def stays_penstocks(done: Done, operation: str, least_calls: float) -> None:
    assert done.native(operation).keys() == {"measured in turns"}, (operation, done.err)
    assert done.served(operation) > least_calls, operation
    gain_s = row(done, operation)["estimated_gain_s"]
    assert isinstance(gain_s, float)
    assert gain_s > 0, operation


@pytest.mark.parametrize("abi", MPIS)
@pytest.mark.parametrize("ranks", [2, 3, 4] if ALL else [3])
def test_the_faster_one_serves(abi: str, ranks: int, tmp_path: Path) -> None:
    done = measured(abi, ranks, tmp_path, "measured", tool="unequal_speeds")
    # One call each, and two rounds of 33 that agree; more of them where another program delayed calls of one. Where it
    # delayed MPI's first call, that one chose Penstock, and after 50 calls a round of one call each contradicted it.
    regular = {1 + rounds * 33 for rounds in (2, 3, 4, 5)}
    after_delay = {1 + 50 + 1 + rounds * 33 for rounds in (1, 2, 3, 4)}
    assert done.served("bcast") in regular | after_delay, done.err
    assert done.native("bcast") == {"MPI was faster": CALLS - done.served("bcast")}
    # MPI's is so slow that the first calls decide, and another one confirms it. Where another program delayed Penstock's
    # first call, a whole round is between them, and perhaps nothing confirms it any more.
    assert done.native("allgather").keys() == {"measured in turns"}, done.err
    assert done.native("allgather")["measured in turns"] in (1 + 1, 1 + 33, 1 + 33 + 1, 1 + 2 * 33, 1 + 2 * 33 + 1)
    gain_s = row(done, "allgather")["estimated_gain_s"]
    assert isinstance(gain_s, float)
    assert gain_s > 0.5 * 0.02 * (CALLS - 2 * (1 + 33))


@pytest.mark.parametrize("abi", MPIS)
def test_a_choice_is_corrected(abi: str, tmp_path: Path) -> None:
    done = measured(abi, 2, tmp_path, "corrected", tool="changing_speeds")
    # At first Penstock was, but where another program delayed its first call.
    assert done.native("bcast").keys() == {"MPI was faster"}, done.err


COUNTED = ("gatherv", "scatterv", "alltoallv", "alltoallw")


@pytest.mark.parametrize("abi", MPIS)
@pytest.mark.parametrize("ranks", [3, 4] if ALL else [4])  # more than two do not know the lengths of others
@pytest.mark.parametrize("longest", [4, 100000])
def test_lists_of_counts_go_to_a_faster_mpi(abi: str, ranks: int, longest: int, tmp_path: Path) -> None:
    done = measured(abi, ranks, tmp_path, "counts", str(longest), tool="counts_speeds", COUNTS_MOVE_NOTHING="1")
    for operation in COUNTED:
        goes_to_mpi(done, operation, CALLS)


@pytest.mark.parametrize("abi", MPIS)
@pytest.mark.parametrize("ranks", [2, 3, 4] if ALL else [3])
def test_lists_of_counts_stay_penstocks_if_mpi_is_slow(abi: str, ranks: int, tmp_path: Path) -> None:
    done = measured(abi, ranks, tmp_path, "counts", tool="counts_speeds")
    for operation in COUNTED:
        stays_penstocks(done, operation, CALLS / 2)


@pytest.mark.parametrize("abi", MPIS)
def test_two_ranks_have_a_choice_for_each_length_of_lists(abi: str, tmp_path: Path) -> None:
    done = measured(abi, 2, tmp_path, "two_ranks", tool="long_moves_nothing")
    for operation in ("gatherv", "scatterv", "alltoallv"):
        # The short ones, and up to five rounds of long ones; more of them where another program delayed MPI's first call.
        assert CALLS < done.served(operation) < CALLS + 1 + 50 + 1 + 5 * 33, (operation, done.err)
        assert sum(done.native(operation).values()) == 2 * CALLS - done.served(operation)


ROOTED = ("bcast", "gather", "reduce")


@pytest.mark.parametrize("abi", MPIS)
@pytest.mark.parametrize("ranks", [2, 3, 4] if ALL else [2, 4])
def test_rooted_calls_alone_go_to_a_faster_mpi(abi: str, ranks: int, tmp_path: Path) -> None:
    done = measured(abi, ranks, tmp_path, "rooted", tool="rooted_speeds", ROOTED_MOVES_NOTHING="1")
    for operation in ROOTED:
        goes_to_mpi(done, operation, ROOTED_CALLS)


@pytest.mark.parametrize("abi", MPIS)
@pytest.mark.parametrize("ranks", [2, 3, 4] if ALL else [3])
def test_rooted_calls_alone_stay_penstocks_if_mpi_is_slow(abi: str, ranks: int, tmp_path: Path) -> None:
    done = measured(abi, ranks, tmp_path, "rooted", tool="rooted_speeds")
    for operation in ROOTED:
        stays_penstocks(done, operation, 0.9 * ROOTED_CALLS)


@pytest.mark.parametrize("abi", MPIS)
def test_a_handle_may_become_that_of_another_type(abi: str, tmp_path: Path) -> None:
    done = measured(abi, 2, tmp_path, "reused_handles", tool="unequal_speeds")
    # Each length has rounds of its own: the longer one two of five calls.
    assert done.served("bcast") == (1 + 2 * 33) + (1 + 2 * 5)


@pytest.mark.parametrize("abi", HOOKED)
@pytest.mark.parametrize("ranks", [2, 3, 4] if ALL else [2])
def test_non_blocking_ones_are_rehearsed(abi: str, ranks: int, tmp_path: Path) -> None:
    done = measured(abi, ranks, tmp_path, "rehearsed", tool="unequal_rehearsals")
    # After the first call the next barrier finds out.
    assert (done.served("ibcast"), done.native("ibcast")) == (1, {"MPI was faster": REHEARSED_CALLS - 1})
    assert (done.served("iallgather"), done.native("iallgather")) == (REHEARSED_CALLS, {})


@pytest.mark.parametrize("abi", HOOKED)
@pytest.mark.parametrize("ranks", [2, 3, 4] if ALL else [2, 4])
@pytest.mark.parametrize("longest", [4, 100000])
def test_non_blocking_lists_go_to_a_faster_mpi(abi: str, ranks: int, longest: int, tmp_path: Path) -> None:
    arguments = ("rehearsed_lists", str(longest))
    done = measured(abi, ranks, tmp_path, *arguments, tool="unequal_lists", LISTS_MOVE_NOTHING="1")
    for operation in COUNTED:
        goes_to_mpi(done, f"i{operation}", CALLS)


@pytest.mark.parametrize("abi", HOOKED)
@pytest.mark.parametrize("ranks", [2, 3, 4] if ALL else [3])
def test_non_blocking_lists_stay_penstocks_if_mpi_is_slow(abi: str, ranks: int, tmp_path: Path) -> None:
    done = measured(abi, ranks, tmp_path, "rehearsed_lists", tool="unequal_lists")
    for operation in COUNTED:
        assert (done.served(f"i{operation}"), done.native(f"i{operation}")) == (CALLS, {}), done.err


@pytest.mark.parametrize("abi", HOOKED)
def test_a_few_long_ones_are_not_rehearsed(abi: str, tmp_path: Path) -> None:
    arguments = ("rehearsed_lists", "4000000", "20")
    done = measured(abi, 2, tmp_path, *arguments, tool="unequal_lists", LISTS_MOVE_NOTHING="1")
    for operation in COUNTED:
        assert (done.served(f"i{operation}"), done.native(f"i{operation}")) == (20, {}), done.err


@pytest.mark.parametrize("abi", HOOKED)
@pytest.mark.parametrize("in_flight", [1, 3])
def test_a_rehearsal_has_as_many_in_flight_as_the_program(abi: str, in_flight: int, tmp_path: Path) -> None:
    done = measured(abi, 2, tmp_path, "in_flight", str(in_flight), tool="counts_in_flight")
    assert done.out.count(f"most in flight: {in_flight}\n") == 2, done.out


@pytest.mark.parametrize("abi", HOOKED)
def test_progress_threads_serve_all_non_blocking_ones(abi: str, tmp_path: Path) -> None:
    done = measured(abi, 2, tmp_path, "rehearsed", tool="unequal_rehearsals", PENSTOCK_PROGRESS_CORES="1")
    assert (done.served("ibcast"), done.native("ibcast")) == (REHEARSED_CALLS, {})


@pytest.mark.parametrize("abi", MPIS)
def test_sums_whose_bits_depend_on_their_order_are_not_measured(abi: str, tmp_path: Path) -> None:
    done = preloaded(abi, 3, tmp_path / "report.json", program(abi, "measured"), PENSTOCK_PRELOAD_MEASURE="on")
    assert done.status == 0, done.err
    served = row(done, "allreduce")["served"]
    assert isinstance(served, int)
    # The other half of them adds integers, one or more in turns.
    assert CALLS < served < 2 * CALLS
    assert "measured in turns" in done.native("gather") or "MPI was faster" in done.native("gather")


@pytest.mark.parametrize("abi", MPIS)
@pytest.mark.parametrize(
    "name",
    [
        "collectives",
        "completions",
        "counts",
        "lives",
        "neighbors",
        "rehearsed",
        "rehearsed_lists",
        "repeated",
        "rooted",
        "verified",
    ],
)
def test_programs_that_are_measured(abi: str, name: str, tmp_path: Path) -> None:
    arguments = ["20"] if name == "lives" else []
    if name == "completions" and abi not in HOOKED:
        pytest.skip("this MPI has no hook for progress")
    done = preloaded(abi, 3, tmp_path / "report.json", program(abi, name), *arguments, PENSTOCK_PRELOAD_MEASURE="on")
    assert done.status == 0, done.err
    assert f"{name}: ok" in done.out or name == "verified"


@pytest.mark.parametrize("abi", MPIS)
def test_bytes_are_those_of_each_call_where_one_trial_has_all_lengths(abi: str, tmp_path: Path) -> None:
    done = preloaded(abi, 3, tmp_path / "report.json", program(abi, "repeated"), PENSTOCK_PRELOAD_MEASURE="on")
    assert done.status == 0, done.err
    (line,) = (line for line in done.out.splitlines() if line.startswith("repeated: ok "))
    assert done.report is not None
    (of_neighbors,) = (row for row in done.report["operations"] if row["operation"] == "neighbor_allgather")
    assert of_neighbors["served_bytes"] + of_neighbors["native_bytes"] == int(line.split()[-1])


@pytest.mark.parametrize("abi", MPIS)
def test_it_can_be_switched_off(abi: str, tmp_path: Path) -> None:
    done = preloaded(abi, 2, tmp_path / "report.json", program(abi, "measured"))
    assert done.status == 0, done.err
    without_hook = {} if abi in HOOKED else {"this MPI has no hook for progress": CALLS}
    assert done.native("ibcast") == without_hook
    assert not any(done.native(each) for each in ("barrier", "bcast", "allreduce", "gather", "allgather")), done.err
