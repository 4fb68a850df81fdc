"""Makes process groups, and ends them when the process ends."""

from __future__ import annotations

import atexit
import weakref
import zlib
from dataclasses import dataclass
from typing import Any

from penstock import _penstock, mpi_abi, rendezvous
from penstock.error import Error
from penstock.torch.launch import check_size, initialized_mpi, transport_of_job
from penstock.torch.point_to_point import MpiMessages, UcxMessages
from penstock.torch.process_group import ProcessGroup
from penstock.torch.work import completer

#: What tags of MPI reach at least.
_TAGS = 32767
#: At the end of the process, for operations whose futures nobody waited for.
_PATIENCE_S = 5.0


@dataclass(frozen=True)
class Options:
    """The ``pg_options`` of ``init_process_group`` and ``new_group``. A group without them uses those of the default group.

    Parameters
    ----------
    progress_cores : "auto" or int
        Communication cores of each node, which make progress while the ranks compute; as for :class:`penstock.Comm`.
    transport : "auto", "mpi" or "ucx"
        Of all groups; only that of the first group counts, and it is equal on all ranks. "auto": UCX if torchrun has started
        the program, or if no launcher of MPI has.
    """

    progress_cores: str | int = "auto"
    transport: str = "auto"


class _Default:
    """What other groups need to know of the default group."""

    options = Options()
    transport = ""  # of the first group of this backend, if the default group has another one
    #: Of each of its ranks, the one in MPI's world.
    mpi_ranks: list[int] = []  # noqa: RUF012


_open_groups: weakref.WeakSet[ProcessGroup] = weakref.WeakSet()


def create(given: Any, options: Any = None) -> ProcessGroup:
    """Make a group. torch calls it on the members only. Collective over them."""
    members = list(given.global_ranks_in_group)  # empty for the default group
    if options is not None and not isinstance(options, Options):
        raise Error(f"pg_options is a {type(options).__name__}; expected penstock.torch.Options")
    if options is None:
        options = Options() if not members else _Default.options
    if not members:
        _Default.options = options
    if not members or not _Default.transport:
        _Default.transport = transport_of_job(options.transport, given.group_size)
    make = _over_ucx if _Default.transport == "ucx" else _over_mpi
    group = make(given, members, options.progress_cores)
    _open_groups.add(group)
    return group


def _over_ucx(given: Any, members: list[int], progress_cores: str | int) -> ProcessGroup:
    timeout_s = given.timeout.total_seconds()
    group = rendezvous.meet(given.store, given.group_rank, given.group_size, timeout_s, progress_cores)
    core, messages = rendezvous.join(group, timeout_s, progress_cores)
    return ProcessGroup(given, UcxMessages(messages), core)


def _over_mpi(given: Any, members: list[int], progress_cores: str | int) -> ProcessGroup:
    MPI = initialized_mpi()
    if not members:
        check_size(MPI, given.group_size)
    comm = _sub_communicator(MPI, members, given.group_id) if members else _world(MPI, given.group_rank)
    cores = -1 if progress_cores == "auto" else progress_cores
    try:
        core = _penstock.comm_from_address(
            mpi_abi.entry_point(MPI, "penstock_comm_from_address"),
            MPI._addressof(comm),
            cores if isinstance(cores, int) and cores >= -1 else -2,  # which the library refuses, on all ranks
        )
    except Error as error:
        if error.code == "invalid_argument":
            raise Error(
                f'progress_cores is {progress_cores!r}; expected "auto", 0, or a number of cores per node'
            ) from error
        raise
    return ProcessGroup(given, MpiMessages(comm), core)


def _world(MPI: Any, rank: int) -> Any:
    """All ranks of MPI in the order of torch's. Collective."""
    world = MPI.COMM_WORLD
    _Default.mpi_ranks = [mpi_rank for _, mpi_rank in sorted(zip(world.allgather(rank), range(world.Get_size())))]
    if len(set(world.allgather(rank))) != world.Get_size():
        raise Error(f"rank is {rank} here and on another process; give each rank of MPI a rank of its own")
    return world.Split(0, rank)


def _sub_communicator(MPI: Any, members: list[int], name: str) -> Any:
    """Collective over the members, since torch calls only them."""
    if not _Default.mpi_ranks:
        raise Error(
            'the default group has another backend, so the ranks of MPI are not known: make it with backend "penstock", or '
            'this group with pg_options=penstock.torch.Options(transport="ucx")',
            "unsupported",
        )
    world = MPI.COMM_WORLD.Get_group()
    group = world.Incl([_Default.mpi_ranks[member] for member in members])
    try:
        # The tag keeps groups with common members apart where they are made at the same time.
        return MPI.COMM_WORLD.Create_group(group, zlib.crc32(name.encode()) % _TAGS)
    finally:
        group.Free()
        world.Free()


@atexit.register
def _abandon_all() -> None:
    """Runs before MPI ends. Ranks that still wait for this one get an error."""
    for group in list(_open_groups):
        group.abandon()
    completer.stop(_PATIENCE_S)
    _penstock.ucx_flush(_PATIENCE_S)
