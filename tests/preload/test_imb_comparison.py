"""What ./dev imb makes of the Intel MPI Benchmarks' output, and the tool by which it times barriers, too."""

from __future__ import annotations

import os
import sys

import pytest
from preload.launch import BUILD, HOOKED, ROOT, mpiexec, program

os.environ.setdefault("PENSTOCK_ROOT", str(ROOT))
sys.path.insert(0, str(ROOT / "scripts"))
import imb_comparison
from imb_comparison import Point

OUTPUT = """
# Benchmarking Bcast
# #processes = 4
#----------------------------------------------------------------
       #bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]
            8         1000         0.30         0.45         0.40
           64 time-out.; Time limit (secs_per_sample * msg_sizes_list_len) is over; use "-time X"

# Benchmarking Barrier
# #processes = 4
 #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]
         1000         1.00         1.25         1.10

"""


def test_points_beyond_the_limit_of_time_are_expected_and_not_found() -> None:
    found = imb_comparison.points(OUTPUT)
    assert found == {Point("Bcast", 4, 8): 0.45, Point("Barrier", 4, 0): 1.25}
    assert imb_comparison.expected("Bcast", 4, [8, 64]) == [Point("Bcast", 4, 8), Point("Bcast", 4, 64)]
    assert imb_comparison.expected("Ibarrier_pure", 4, [8, 64]) == [Point("Ibarrier_pure", 4, 0)]


@pytest.mark.parametrize("abi", HOOKED)
@pytest.mark.parametrize("is_served", [False, True])
def test_the_tool_times_barriers_whoever_serves_them(abi: str, is_served: bool) -> None:
    libraries = [BUILD / f"tests/preload/libpreload_{abi}_tool_barrier_timed.so"]
    if is_served:
        libraries.append(BUILD / f"python/penstock/libpenstock_preload_{abi}.so")
    once = program(abi, "barrier_timed")
    assert set(mpiexec(abi, 2, once).out.splitlines()) == {"without"}
    done = mpiexec(
        abi,
        2,
        *["env", f"LD_PRELOAD={':'.join(str(library) for library in libraries)}", once],
        PENSTOCK_PRELOAD_AFTER="0",
        PENSTOCK_PRELOAD_MEASURE="off",
        PENSTOCK_PRELOAD_REPORT="-",
    )
    assert done.status == 0, done.err
    assert set(done.out.splitlines()) == {"with the barrier"}
    assert ("served by Penstock" in done.err) == is_served
