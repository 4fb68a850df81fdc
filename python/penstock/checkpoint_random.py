"""States of random number generators in a checkpoint: each rank has its own."""

from __future__ import annotations

import hashlib
import random
import struct
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.error import Error

_Bytes = NDArray[np.uint8]


class _Generator(NamedTuple):
    get: Callable[[], bytes]
    set: Callable[[bytes], None]
    seed: Callable[[int], None]  #: with a number below 2^32


def _get_python() -> bytes:
    version, numbers, gauss = random.getstate()
    return struct.pack(f"<I?d{len(numbers)}I", version, gauss is not None, gauss or 0.0, *numbers)


def _set_python(state: bytes) -> None:
    head = struct.calcsize("<I?d")
    version, has_gauss, gauss = struct.unpack_from("<I?d", state)
    numbers = struct.unpack_from(f"<{(len(state) - head) // 4}I", state, head)
    random.setstate((version, numbers, gauss if has_gauss else None))


def _get_numpy() -> bytes:
    state: Any = np.random.get_state(legacy=False)  # noqa: NPY002
    if state["bit_generator"] != "MT19937":
        raise Error(
            f"NumPy's global generator is a {state['bit_generator']}, of which RngState cannot keep the state; expected the "
            "MT19937 that NumPy begins with. Save the state of another one as a part of the tree"
        )
    head = struct.pack("<IId", state["state"]["pos"], state["has_gauss"], state["gauss"])
    key: NDArray[np.uint32] = state["state"]["key"]
    return head + key.astype("<u4").tobytes()


def _set_numpy(state: bytes) -> None:
    position, has_gauss, gauss = struct.unpack_from("<IId", state)
    key = np.frombuffer(state, "<u4", offset=struct.calcsize("<IId"))
    np.random.set_state(  # noqa: NPY002
        {
            "bit_generator": "MT19937",
            "state": {"key": key, "pos": position},
            "has_gauss": has_gauss,
            "gauss": gauss,
        }
    )


def _get_torch() -> bytes:
    return bytes(sys.modules["torch"].get_rng_state().numpy())


def _set_torch(state: bytes) -> None:
    torch = _torch()
    torch.set_rng_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))


def _get_cuda() -> bytes:
    return bytes(sys.modules["torch"].cuda.get_rng_state().cpu().numpy())


def _set_cuda(state: bytes) -> None:
    torch = _torch()
    torch.cuda.set_rng_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))


def _torch() -> Any:
    torch = sys.modules.get("torch")
    if torch is None:
        raise Error("the checkpoint has the state of PyTorch's generator; import torch before RngState.set()")
    return torch


_GENERATORS = {
    "python": _Generator(_get_python, _set_python, random.seed),
    "numpy": _Generator(_get_numpy, _set_numpy, np.random.seed),
    "torch": _Generator(_get_torch, _set_torch, lambda seed: _torch().default_generator.manual_seed(seed)),
    "cuda": _Generator(_get_cuda, _set_cuda, lambda seed: _torch().cuda.manual_seed(seed)),
}


class RowOfRank:
    """A leaf of which each rank saves a row of its own."""

    def __init__(self, row: _Bytes) -> None:
        self.row = row


class RngState:
    """The states of this rank's random number generators, as a node of a tree that is saved.

    They are those of Python's ``random``, of NumPy's global generator and, if PyTorch has been imported, of its default
    generator and that of the current CUDA device. Each rank saves its own.

    >>> checkpoints.save(step, {"model": model.state_dict(), "random": ps.RngState()})
    >>> step, tree = checkpoints.restore(like={"model": model.state_dict(), "random": ps.RngState()})
    >>> tree["random"].set()

    A rank that the checkpoint does not have, since fewer ranks saved it, gets a stream of its own, which follows from the saved
    ones and its number. Import PyTorch on all ranks or on none.
    """

    def __init__(self) -> None:
        torch: Any = sys.modules.get("torch")
        names = ["python", "numpy"]
        if hasattr(torch, "get_rng_state"):
            names.append("torch")
            if torch.cuda.is_available() and torch.cuda.is_initialized():
                names.append("cuda")
        self._rows: dict[str, _Bytes] = {
            name: np.frombuffer(_GENERATORS[name].get(), np.uint8).reshape(1, -1) for name in names
        }
        self._rank = 0

    def set(self) -> None:
        """Give the generators of this process these states."""
        for name, rows in self._rows.items():
            generator = _GENERATORS[name]
            if self._rank < len(rows):
                generator.set(rows[self._rank].tobytes())
            else:
                known = hashlib.sha256(rows[self._rank % len(rows)].tobytes() + struct.pack("<Q", self._rank)).digest()
                generator.seed(int.from_bytes(known[:4], "little"))

    def _saved(self) -> dict[str, RowOfRank]:
        """What this rank saves."""
        return {name: RowOfRank(rows[min(self._rank, len(rows) - 1)]) for name, rows in self._rows.items()}

    @classmethod
    def _of_rank(cls, rows: Mapping[str, _Bytes], rank: int) -> RngState:
        """What a rank restores: `rows` are those of all ranks that saved."""
        unknown = sorted(rows.keys() - _GENERATORS.keys())
        if unknown:
            raise Error(
                f"the checkpoint has the state of a generator '{unknown[0]}', which this Penstock does not know; use a newer one",
                "unsupported",
            )
        state = cls.__new__(cls)
        state._rows, state._rank = dict(rows), rank
        return state
