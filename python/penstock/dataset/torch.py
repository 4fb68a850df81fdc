"""Batches of a dataset as tensors. Needs PyTorch, but no MPI; :mod:`penstock.torch` has it, too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from penstock.dataset.pipeline import Dataset
from penstock.dataset.sample_tree import mapped
from penstock.error import Error


class DataLoader:
    """Iterates over a :class:`penstock.Dataset` with tensors in place of its arrays, which share their memory.

    It has the protocol of torchdata's ``StatefulDataLoader``: :meth:`state_dict` after any batch, :meth:`load_state_dict`
    before an iteration, which then continues with the next batch. Unlike there, the state holds for any number of ranks,
    threads and any batch size, and images are decoded by threads.

    Parameters
    ----------
    dataset
        With ``batch()``, and with ``shard()`` if there are several ranks.
    pin_memory
        Copy tensors into pinned memory, for copies to a GPU that overlap.
    """

    def __init__(self, dataset: Dataset, *, pin_memory: bool = False) -> None:
        if not isinstance(dataset, Dataset):
            raise Error(f"DataLoader got a {type(dataset).__name__}; expected a penstock.Dataset")
        self.dataset = dataset
        self._pin = pin_memory

    def __iter__(self) -> Iterator[Any]:
        for batch in self.dataset:
            yield mapped(self._tensor, batch)

    def __len__(self) -> int:
        return len(self.dataset)

    def state_dict(self) -> dict[str, Any]:
        """The position after the last batch, as a small dict of numbers and strings."""
        return self.dataset.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue at the position of another loader of the same samples and order."""
        self.dataset.load_state_dict(state)

    def _tensor(self, leaf: Any) -> Any:
        if isinstance(leaf, list):  # samples of files that were not decoded, or strings
            return [self._tensor(one) for one in leaf]
        if not isinstance(leaf, np.ndarray):
            return leaf
        tensor = torch.from_numpy(leaf)
        return tensor.pin_memory() if self._pin else tensor
