"""The demo's modules are scripts in one folder. The images are those of ./dev demo, made once and cached."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "demo"))


@pytest.fixture(scope="session")
def runner():
    import images
    import tier
    from nodes import EmulatedNodes
    from runner import Runner

    directory = ROOT / "build" / "demo" / "test-runs"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    slow = tier.make(directory)
    assert slow.has_library, slow.left_out
    slow.set_rate(50_000_000)
    return Runner(directory, images.make(ROOT / "build" / "demo" / "images"), slow, EmulatedNodes(directory))
