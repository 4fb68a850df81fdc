"""What launched the program: ranks and the store of torch.distributed from MPI, if mpiexec or srun started it."""

from __future__ import annotations

import importlib
import os
import socket
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qsl, urlparse

import torch.distributed as dist

from penstock import mpi_abi
from penstock.error import Error

_Rendezvous = Iterator[tuple[Any, int, int]]

#: What launchers of MPI programs set for each process.
_OF_LAUNCHERS = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK", "PALS_RANKID")


def transport_of_job(asked: str, size: int) -> str:
    """ "mpi" or "ucx", for a default group of `size` ranks."""
    if asked in ("mpi", "ucx"):
        return asked
    if asked != "auto":
        raise Error(f'transport is {asked!r}; expected "auto", "mpi" or "ucx"')
    if "TORCHELASTIC_RUN_ID" in os.environ:
        return "ucx"
    if any(name in os.environ for name in _OF_LAUNCHERS):
        return "mpi"
    # A single process that no launcher has started may still use MPI, as for its rank and size.
    MPI: Any = sys.modules.get("mpi4py.MPI")
    has_mpi = MPI is not None and MPI.Is_initialized() and not MPI.Is_finalized()
    return "mpi" if has_mpi and MPI.COMM_WORLD.Get_size() == size else "ucx"


def initialized_mpi() -> Any:
    """``mpi4py.MPI``, whose import initializes MPI for calls from any thread.

    Raises Error if the MPI cannot be called from several threads: backward passes and futures run on their own.
    """
    MPI = mpi_abi.import_mpi()
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        raise Error(
            'backend "penstock" calls MPI from several threads, and MPI was initialized without MPI_THREAD_MULTIPLE; '
            "let mpi4py initialize it (its default), or ask MPI_Init_thread for MPI_THREAD_MULTIPLE",
            "unsupported",
        )
    return MPI


def check_size(MPI: Any, size: int) -> None:
    """Raise Error if MPI has not started as many processes as torch.distributed expects."""
    started = MPI.COMM_WORLD.Get_size()
    if started == size:
        return
    raise Error(
        f'backend "penstock" runs on all ranks that MPI has started, {started}, but the default group is to have {size}; '
        f"start the program with mpiexec -n {size} python …, or leave out rank and world_size, or run without MPI: "
        'pg_options=penstock.torch.Options(transport="ucx")',
    )


def register_rendezvous() -> None:
    """Take rank, size and store from MPI for ``mpi://``, and for ``env://`` if the environment does not give them."""
    handlers = importlib.import_module("torch.distributed.rendezvous")._rendezvous_handlers  # a function hides it
    handlers.setdefault("mpi", _from_mpi)
    handlers["env"] = _or_from_mpi(handlers["env"])


def _or_from_mpi(from_environment: Callable[..., _Rendezvous]) -> Callable[..., _Rendezvous]:
    def rendezvous(url: str, **options: Any) -> _Rendezvous:
        is_given = "MASTER_ADDR" in os.environ or "MASTER_PORT" in os.environ or "TORCHELASTIC_RUN_ID" in os.environ
        yield from (from_environment if is_given else _from_mpi)(url, **options)

    return rendezvous


def _from_mpi(url: str, timeout: timedelta = dist.default_pg_timeout, **_: Any) -> _Rendezvous:
    MPI = initialized_mpi()
    world = MPI.COMM_WORLD
    rank, size = world.Get_rank(), world.Get_size()
    asked = dict(parse_qsl(urlparse(url).query))
    check_size(MPI, int(asked.get("world_size", size)))
    if int(asked.get("rank", rank)) != rank:
        raise Error(f"rank {asked['rank']} was given, and this is MPI's rank {rank}; leave out rank and world_size")
    yield _open_store(MPI, world, timeout), rank, size
    raise RuntimeError("a rendezvous over MPI happens once; ranks cannot join later")


def _open_store(MPI: Any, world: Any, timeout: timedelta) -> Any:
    """The key-value store of rank 0; collective."""
    size = world.Get_size()
    place: Any = None
    store: Any = None
    if world.Get_rank() == 0:
        try:
            store = dist.TCPStore("localhost", 0, size, is_master=True, timeout=timeout, wait_for_workers=False)
            place = (_address_of_this_node(MPI, world), store.port)
        except Exception as error:
            place = str(error)
    else:
        _address_of_this_node(MPI, world)
    place = world.bcast(place, root=0)
    if isinstance(place, str):
        raise Error("rank 0 could not open the store of torch.distributed", "io", 0, place)
    host, port = place
    if store is None:
        store = dist.TCPStore(host, port, size, is_master=False, timeout=timeout, wait_for_workers=False)
    return store


def _address_of_this_node(MPI: Any, world: Any) -> str:
    """Where the other ranks reach this process; collective."""
    node = world.Split_type(MPI.COMM_TYPE_SHARED)
    is_one_node = world.allreduce(node.Get_size(), MPI.MIN) == world.Get_size()
    node.Free()
    if is_one_node:
        return "127.0.0.1"
    name = socket.gethostname()
    try:
        address = socket.gethostbyname(name)
    except OSError:
        return name
    if not address.startswith("127."):
        return address
    # Debian's /etc/hosts gives a loopback address for the host's own name: ask for that of the default route instead.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # a datagram socket only chooses its route
            return str(probe.getsockname()[0])
        except OSError:
            return name
