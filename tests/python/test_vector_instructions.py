"""The machine code of the arithmetic kernels, also for processors other than this one."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import penstock as ps
import pytest


def test_nothing_multiplies_and_adds_in_one_rounding() -> None:
    """Sums and products are bit-identical for vectors of every width. Compilers fuse them unless told not to."""
    if shutil.which("objdump") is None:
        pytest.skip("needs objdump (Debian: binutils)")
    ps.Store("memory:")  # loads the library
    maps = Path("/proc/self/maps").read_text()
    library = re.search(r"/\S*/libpenstock\.so\S*", maps)
    assert library is not None
    code = subprocess.run(["objdump", "-d", library[0]], capture_output=True, text=True, check=True).stdout
    if "file format elf64-x86-64" not in code:
        pytest.skip("knows the names of x86-64's instructions only")
    assert "vmulps" in code
    assert set(re.findall(r"\bvfn?m(?:add|sub)\w+", code)) == set()
