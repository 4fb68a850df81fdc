"""JAX arrays: their shardings as layouts, redistribution between any devices of several processes, batches of a data
set, checkpoints.

>>> import penstock.jax
>>> import jax
>>> rows, columns = (jax.NamedSharding(mesh, spec) for spec in (jax.P("x", None), jax.P(None, "x")))
>>> array = ps.jax.redistribute(array, columns, comm)          # ps.Comm or ps.Communicator

What it does and how programs are started is in docs/integrations/jax.md.
"""

from __future__ import annotations

from penstock.error import Error

try:
    import jax as _jax  # noqa: F401
except ImportError as _error:
    raise Error(
        "penstock.jax needs JAX, which is not installed; install it: pip install jax", "unsupported", cause=str(_error)
    ) from _error

from penstock.dataset.jax import DataLoader
from penstock.jax.arrays import iredistribute, layout_for, layout_of, redistribute, sharding_of
from penstock.jax.checkpoint import CheckpointManager

__all__ = ["CheckpointManager", "DataLoader", "iredistribute", "layout_for", "layout_of", "redistribute", "sharding_of"]
