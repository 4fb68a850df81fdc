"""PyTorch's own tests of its distributed package, torch.testing._internal.distributed.distributed_test, on one rank of a job.

mpiexec -n 3 python own_suite.py penstock|gloo RESULT.json [PART OF A NAME…]

Those that PyTorch enables for gloo run on `penstock`, too. Rank 0 writes {test: "passed", "skipped" or why it failed}.
"""

from __future__ import annotations

import contextlib
import faulthandler
import io
import json
import os
import signal
import sys
import tempfile
import traceback
import unittest
from datetime import timedelta
from pathlib import Path
from typing import Any

from mpi4py import MPI

WORLD = MPI.COMM_WORLD
#: Of an operation: a rank whose test has failed leaves the others waiting for it.
TIMEOUT_S = 10
#: Tests that compare the backend of the group with the name.
NAMED = ("test_get_backend", "test_ddp_logging_data_cpu")
#: Of a test.
HUNG_S = 120


def load(backend: str) -> Any:
    """The module. It asks for the backend when its classes are made, and again when tests run."""
    scratch = WORLD.bcast(tempfile.mkdtemp(prefix="penstock-torch-") if WORLD.rank == 0 else None)
    os.environ.update(BACKEND="gloo", WORLD_SIZE=str(WORLD.size), TEMP_DIR=scratch, INIT_METHOD="")
    with contextlib.redirect_stderr(io.StringIO()):
        from torch.testing._internal.distributed import distributed_test as module
    if WORLD.rank == 0:
        for folder in ("barrier", "test_dir", "init_dir"):
            (Path(scratch) / folder).mkdir()
    WORLD.Barrier()
    return module


def one_outcome(module: Any, cls: Any, name: str, backend: str) -> str:
    """Of one test on this rank. Collective."""
    import torch.distributed as dist
    from torch.testing._internal.common_utils import set_rng_seed

    store = WORLD.bcast(tempfile.mktemp(prefix="penstock-store-") if WORLD.rank == 0 else None)
    if WORLD.rank == 0:
        module.Barrier.init()
    module.Barrier.barrier_id = 0
    set_rng_seed(1234)
    # Bodies of tests ask for the name as well, to choose what gloo is able to, or to compare it with the group's.
    module.BACKEND = backend if name in NAMED else "gloo"
    test = cls(name)
    test.rank, test.file_name = WORLD.rank, store
    seconds = module.CUSTOM_PG_TIMEOUT.get(name, TIMEOUT_S)
    outcome = "passed"
    faulthandler.dump_traceback_later(HUNG_S, exit=True)
    try:
        dist.init_process_group(
            backend,
            init_method=f"file://{store}",
            world_size=WORLD.size,
            rank=WORLD.rank,
            timeout=timedelta(seconds=seconds),
        )
        getattr(test, name)()
    except unittest.SkipTest:
        outcome = "skipped"
    except SystemExit as end:  # how tests of processes skip
        outcome = "skipped" if end.code else "passed"
    except BaseException as error:
        outcome = f"{type(error).__name__}: {error}"
        traceback.print_exc()
    finally:
        WORLD.Barrier()
        with contextlib.suppress(Exception):
            dist.destroy_process_group()
        faulthandler.cancel_dump_traceback_later()
        test.doCleanups()
    return outcome


def main() -> None:
    backend, result, wanted = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]
    if backend == "penstock":
        import penstock.torch  # noqa: F401
    module = load(backend)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)

    class Case(module.TestDistBackend, module.DistributedTest._DistTestBase):  # type: ignore[name-defined,misc]
        @property
        def world_size(self) -> int:
            return WORLD.size

        def _should_stop_test_suite(self) -> bool:
            return False

    outcomes: dict[str, str] = {}
    for name in unittest.defaultTestLoader.getTestCaseNames(Case):
        if wanted and not any(part in name for part in wanted):
            continue
        if WORLD.rank == 0:
            print(name, flush=True)
        everyone = WORLD.allgather(one_outcome(module, Case, name, backend))
        failed = [
            f"rank {rank}: {outcome}" for rank, outcome in enumerate(everyone) if outcome not in ("passed", "skipped")
        ]
        outcomes[name] = failed[0] if failed else "skipped" if "skipped" in everyone else "passed"
        if WORLD.rank == 0:
            result.write_text(json.dumps(outcomes, indent=1))


if __name__ == "__main__":
    main()
