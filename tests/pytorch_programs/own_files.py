"""A file of PyTorch's tests of its distributed package, from a checkout of PyTorch, on gloo or on `penstock`.

python own_files.py CHECKOUT/test/distributed/FILE gloo|penstock RESULT.json

With `penstock`, each group that a test makes on gloo is one of Penstock's, over UCX; its name stays gloo's, since tests ask for
it. Writes {test: "passed", "skipped" or why it failed}.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import unittest
from pathlib import Path
from typing import Any

os.environ.setdefault("DISTRIBUTED_TESTS_DEFAULT_TIMEOUT", "600")


def replace_gloo() -> None:
    """Groups of gloo are Penstock's from now on, in this process and in those that it forks."""
    import penstock.torch
    from torch.distributed import distributed_c10d as c10d

    make = c10d._new_process_group_helper

    def helper(size: int, rank: int, members: list[int], backend: Any, store: Any, *rest: Any, **more: Any) -> Any:
        if str(backend) not in ("gloo", "cpu:gloo", "undefined", "None"):
            return make(size, rank, members, backend, store, *rest, **more)
        group, prefix_store = make(size, rank, members, c10d.Backend("penstock"), store, *rest, **more)
        if group in c10d._world.pg_map:
            assert isinstance(group, penstock.torch.ProcessGroup)
            c10d._world.pg_map[group] = ("gloo", prefix_store)
        return group, prefix_store

    c10d._new_process_group_helper = helper


def fork_instead_of_spawn() -> None:
    """PyTorch's tests start their ranks anew for each test, of which most time would go into importing torch."""
    import torch
    from torch.testing._internal.common_distributed import MultiProcessTestCase

    def start(self: Any) -> None:
        self._start_processes(torch.multiprocessing.get_context("fork").Process)

    MultiProcessTestCase._spawn_processes = start
    torch.set_num_threads(1)


class Outcomes(unittest.TestResult):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self.of: dict[str, str] = {}

    def _put(self, test: Any, outcome: str) -> None:
        name = ".".join(test.id().split(".")[-2:])
        if self.of.get(name, "passed") == "passed":
            self.of[name] = outcome
        self._path.write_text(json.dumps(self.of, indent=1))

    def startTest(self, test: Any) -> None:
        super().startTest(test)
        print(test.id(), flush=True)

    def addSuccess(self, test: Any) -> None:
        self._put(test, "passed")

    def addSkip(self, test: Any, reason: str) -> None:
        self._put(test, "skipped")

    def addExpectedFailure(self, test: Any, error: Any) -> None:
        self._put(test, "skipped")

    def addUnexpectedSuccess(self, test: Any) -> None:
        self._put(test, "passed unexpectedly")

    def addError(self, test: Any, error: Any) -> None:
        lines = self._exc_info_to_string(error, test).strip().split("\n")
        self._put(test, " / ".join(lines[-25:])[-1500:])

    addFailure = addError  # noqa: N815

    def addSubTest(self, test: Any, subtest: Any, error: Any) -> None:
        if error is not None:
            self.addError(test, error)


def main() -> None:
    file, backend, result = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    wanted = sys.argv[4:]
    fork_instead_of_spawn()
    if backend == "penstock":
        replace_gloo()
    sys.path[:0] = [str(file.parent), str(next(folder for folder in file.parents if folder.name == "test"))]
    sys.argv = [str(file)]
    module = importlib.import_module(file.stem)
    outcomes = Outcomes(result)
    suite = unittest.TestSuite()
    for cases in unittest.defaultTestLoader.loadTestsFromModule(module):
        for case in cases:  # type: ignore[union-attr]
            if not wanted or any(part in case.id() for part in wanted):
                suite.addTest(case)
    suite.run(outcomes)
    result.write_text(json.dumps(outcomes.of, indent=1))


if __name__ == "__main__":
    main()
