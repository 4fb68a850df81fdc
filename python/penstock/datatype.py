"""MPI datatypes as lists of byte ranges, for file views and messages."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from penstock import _penstock, mpi_abi

if TYPE_CHECKING:
    from mpi4py import MPI
else:
    MPI = mpi_abi.import_mpi()


@functools.cache
def _entry_point() -> int:
    return mpi_abi.entry_point(MPI, "penstock_datatype_from_address")


def flatten(datatype: Any) -> _penstock.Datatype:
    """The byte ranges of one item of `datatype`, in typemap order; adjacent ranges are merged.

    Any nesting of MPI's type constructors is decoded, once: the result is cached until the datatype is freed.
    """
    return _penstock.datatype_from_address(_entry_point(), MPI._addressof(datatype))
