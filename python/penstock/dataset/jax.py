"""Batches of a dataset as JAX arrays on the devices of a sharding. Needs JAX, but no MPI."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from penstock.dataset.pipeline import Dataset
from penstock.dataset.sample_tree import leaves, mapped
from penstock.error import Error


class DataLoader:
    """Iterates over a :class:`penstock.Dataset` with global JAX arrays in place of its arrays.

    Each process puts its part of a batch on its own devices; nothing is communicated. It has the protocol of
    :class:`penstock.dataset.torch.DataLoader`.

    Parameters
    ----------
    dataset
        With ``batch()``. If JAX has several processes, with ``shard(jax.process_index(), jax.process_count())`` after it, and
        full batches: ``batch(n, drop_remainder=True)`` with ``n`` a multiple of the processes, and no filter.
    sharding
        Of every array, such as ``NamedSharding(mesh, PartitionSpec("data"))``: its first dimension counts the samples.
        Strings and bytes stay lists of this process's samples.
    """

    def __init__(self, dataset: Dataset, sharding: Any) -> None:
        if not isinstance(dataset, Dataset):
            raise Error(f"DataLoader got a {type(dataset).__name__}; expected a penstock.Dataset")
        if not isinstance(sharding, jax.sharding.Sharding):
            raise Error(f"DataLoader got a {type(sharding).__name__}; expected a jax.sharding.Sharding")
        processes = jax.process_count()
        if processes > 1 and dataset._options.ranks != processes:
            raise Error(
                f"the dataset is divided among {dataset._options.ranks} ranks, and JAX has {processes} processes; use "
                "shard(jax.process_index(), jax.process_count())"
            )
        self.dataset: Dataset = dataset
        self._sharding = sharding
        self._full = dataset._options.batch // processes if processes > 1 else None

    def __iter__(self) -> Iterator[Any]:
        for batch in self.dataset:
            self._check_full(batch)
            yield mapped(self._array, batch)

    def __len__(self) -> int:
        return len(self.dataset)

    def state_dict(self) -> dict[str, Any]:
        """The position after the last batch, as a small dict of numbers and strings."""
        return self.dataset.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue at the position of another loader of the same samples and order."""
        self.dataset.load_state_dict(state)

    def _check_full(self, batch: Any) -> None:
        # Other processes would take the array for one of another shape.
        for path, leaf in leaves(batch, "batch") if self._full is not None else ():
            if leaf is None or len(leaf) != self._full:
                raise Error(
                    f"{path} has {0 if leaf is None else len(leaf)} samples on this process, and a full batch has "
                    f"{self._full}; use batch(drop_remainder=True) with a multiple of the processes, and "
                    "ignore_errors(replace=True)"
                )

    def _array(self, leaf: Any) -> Any:
        if not isinstance(leaf, np.ndarray):
            return leaf
        try:
            return jax.make_array_from_process_local_data(self._sharding, leaf)
        except ValueError as error:
            raise Error(
                f"an array of shape {leaf.shape} does not fit the sharding {self._sharding}; use batch(drop_remainder=True) with "
                "a multiple of its devices",
                cause=str(error),
            ) from None
