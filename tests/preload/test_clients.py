"""mpi4py's own tests give the same under `penstock run` as natively."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from preload.launch import ALL, ROOT

os.environ.setdefault("PENSTOCK_ROOT", str(ROOT))
sys.path.insert(0, str(ROOT / "scripts"))
import mpi4py_comparison
from captured import CommandError

pytestmark = pytest.mark.skipif(not ALL, reason="with --all, which fetches mpi4py's tests")


@pytest.fixture(scope="module")
def suite() -> Path:
    try:
        return mpi4py_comparison.fetch(ROOT / "build/mpi4py-tests")
    except CommandError as reason:
        pytest.skip(str(reason))


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("mpi", ["mpich", "openmpi"])
@pytest.mark.parametrize("ranks", mpi4py_comparison.RANKS)
def test_mpi4py(mpi: str, ranks: int, suite: Path, tmp_path: Path) -> None:
    natively, served = (
        mpi4py_comparison.run_tests(mode, mpi, ranks, suite, tmp_path / f"{mode}.log") for mode in ("native", "preload")
    )
    assert len(natively) > 1000
    different = {
        test: (natively.get(test), served.get(test))
        for test in natively.keys() | served.keys()
        if natively.get(test, ("",))[0] != served.get(test, ("",))[0]
    }
    assert different == {}
