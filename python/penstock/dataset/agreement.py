"""All ranks must read the same list of samples, or they would train on some twice and on others never."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.error import Error

_HEX = 32


def check_agreement(comm: Any, digest: Callable[[], str], order: str) -> None:
    """Collective. Raises an error on all ranks if one has another digest or another order, or cannot tell them."""
    failure: Exception | None = None
    try:
        mine = f"{digest():<{_HEX}.{_HEX}}" + hashlib.sha256(order.encode()).hexdigest()[:_HEX]
    except Exception as error:
        failure, mine = error, " " * 2 * _HEX
    told = np.zeros((comm.size, 2 * _HEX), np.uint8)
    comm.Allgather(np.frombuffer(mine.encode("ascii", "replace"), np.uint8).copy(), told)
    if failure is not None:
        raise failure
    texts = [row.tobytes().decode("ascii") for row in told]
    # Of two lists that equally many ranks have, that of the lower rank.
    usual = Counter(texts).most_common(1)[0][0]
    others = [rank for rank, text in enumerate(texts) if text != usual]
    if not others:
        return
    first = texts[others[0]]
    if not first.strip():
        what = "cannot tell its list of samples"
    elif first[:_HEX] != usual[:_HEX]:
        what = f"has another list of samples (digest {first[:_HEX].strip()}, the others {usual[:_HEX].strip()})"
    else:
        what = "has them in another order: another seed, or another take, skip, mix or interleave"
    more = f", as do the ranks {', '.join(map(str, others[1:]))} differ" if len(others) > 1 else ""
    raise Error(f"rank {others[0]} {what}{more}; give all ranks the same samples in the same order")
