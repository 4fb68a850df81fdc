"""The examples of `penstock explain` that need several ranks raise what they explain."""

from __future__ import annotations

import re

import penstock as ps
import pytest
from mpi4py import MPI
from penstock.cli.explain import pages

EXAMPLES = {
    code: example
    for code, (_, _, page) in pages().items()
    for example in re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    if "mpi4py" in example
}


def test_there_are_examples() -> None:
    assert set(EXAMPLES) == {"mismatch", "peer_failed"}


@pytest.mark.skipif(MPI.COMM_WORLD.size == 1, reason="one rank agrees with itself")
@pytest.mark.parametrize("code", sorted(EXAMPLES))
def test_an_example_raises_its_error(code: str) -> None:
    with pytest.raises(ps.Error) as raised:
        exec(compile(EXAMPLES[code], f"{code}.md", "exec"), {})
    codes = MPI.COMM_WORLD.allgather(raised.value.code)
    if code == "peer_failed":
        assert codes == ["invalid_argument"] + ["peer_failed"] * (len(codes) - 1), raised.value
    else:
        assert "mismatch" in codes, raised.value
        assert set(codes) <= {"mismatch", "peer_failed"}, raised.value
