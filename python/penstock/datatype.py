"""MPI datatypes as lists of bytes: what a file view and a message need."""

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
    """The bytes of one item of `datatype`, in typemap order; neighbours that touch are one.

    Any nesting of MPI's constructors is taken apart, once: the result is kept with the datatype until it is freed.
    """
    return _penstock.datatype_from_address(_entry_point(), MPI._addressof(datatype))
