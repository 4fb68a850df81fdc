"""One job of a benchmark: mpiexec -n N python -m penstock.bench.worker CASE PROGRAM PARAMETERS RESULT"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

WARM_UP = 2
MAX_ITERATIONS = 200


class Cannot(Exception):  # noqa: N818
    """This program cannot be measured here; the text says why."""


def time_of(comm: Any, action: Callable[[], object], budget_s: float) -> list[float]:
    """Seconds that `action` takes on the slowest rank: the median of repetitions that together take about `budget_s`.

    Collective; `comm` is the MPI library's own, so the peers are all measured with the same clock and barrier.
    """
    from mpi4py import MPI

    def once() -> float:
        comm.Barrier()
        begin = time.perf_counter()
        action()
        mine = np.array(time.perf_counter() - begin)
        slowest = np.empty_like(mine)
        comm.Allreduce(mine, slowest, MPI.MAX)
        return float(slowest)

    first = [once() for _ in range(WARM_UP)][-1]
    count = comm.bcast(int(min(MAX_ITERATIONS, max(3, budget_s / max(first, 1e-7)))))
    return [statistics.median(once() for _ in range(count))]


def main() -> None:
    case_name, program, parameters, result = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), Path(sys.argv[4])
    from mpi4py import MPI

    from penstock.bench import runner

    try:
        rows = runner.load(case_name).measure(program, parameters)
        content: dict[str, Any] = {"rows": [{"setting": setting, "seconds": seconds} for setting, seconds in rows]}
    except Cannot as reason:
        content = {"cannot": str(reason)}
    except Exception as error:
        # The other ranks may wait for this one for ever.
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        MPI.COMM_WORLD.Abort(1)
    if MPI.COMM_WORLD.rank == 0:
        result.write_text(json.dumps(content))


if __name__ == "__main__":
    main()
