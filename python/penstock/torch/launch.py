"""What launched the program: ranks and the store of torch.distributed from MPI or PMIx, if mpiexec or srun started it."""

from __future__ import annotations

import fcntl
import importlib
import importlib.util
import json
import os
import socket
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlparse

import torch.distributed as dist

from penstock import mpi_abi, pmix
from penstock.error import Error

_Rendezvous = Iterator[tuple[Any, int, int]]

#: Whether the ranks have found each other through PMIx, and MPI is not to be initialized.
_met_through_pmix = False

#: What launchers of MPI programs set for each process.
_OF_LAUNCHERS = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK", "PALS_RANKID")

_SIOCGIFADDR = 0x8915  # Linux: the IPv4 address of an interface
_CONNECT_S = 20.0  # for one address; the listener is there before the others know of it


def transport_of_job(asked: str, size: int) -> str:
    """ "mpi" or "ucx", for a default group of `size` ranks."""
    if asked in ("mpi", "ucx"):
        return asked
    if asked != "auto":
        raise Error(f'transport is {asked!r}; expected "auto", "mpi" or "ucx"')
    if "TORCHELASTIC_RUN_ID" in os.environ or _met_through_pmix:
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
    """Take rank, size and store from MPI for ``mpi://``, from PMIx for ``pmix://``.

    If the environment does not give them, ``env://`` takes them from MPI, and from PMIx if mpi4py is not installed.
    """
    handlers = importlib.import_module("torch.distributed.rendezvous")._rendezvous_handlers  # a function hides it
    handlers.setdefault("mpi", _from_mpi)
    handlers.setdefault("pmix", _from_pmix)
    handlers["env"] = _or_from_launcher(handlers["env"])


def _or_from_launcher(from_environment: Callable[..., _Rendezvous]) -> Callable[..., _Rendezvous]:
    def rendezvous(url: str, **options: Any) -> _Rendezvous:
        is_given = "MASTER_ADDR" in os.environ or "MASTER_PORT" in os.environ or "TORCHELASTIC_RUN_ID" in os.environ
        has_pmix_alone = "PMIX_NAMESPACE" in os.environ and importlib.util.find_spec("mpi4py") is None
        from_launcher = _from_pmix if has_pmix_alone else _from_mpi
        yield from (from_environment if is_given else from_launcher)(url, **options)

    return rendezvous


def _from_mpi(url: str, timeout: timedelta = dist.default_pg_timeout, **_: Any) -> _Rendezvous:
    MPI = initialized_mpi()
    world = MPI.COMM_WORLD
    rank, size = world.Get_rank(), world.Get_size()
    asked = dict(parse_qsl(urlparse(url).query))
    check_size(MPI, int(asked.get("world_size", size)))
    _check_rank(asked, rank, "MPI")
    yield _open_store(rank, size, world.allgather, _is_one_node(MPI, world), timeout), rank, size
    raise RuntimeError("a rendezvous over MPI happens once; ranks cannot join later")


def _from_pmix(url: str, timeout: timedelta = dist.default_pg_timeout, **_: Any) -> _Rendezvous:
    global _met_through_pmix
    client = pmix.client()
    rank, size = client.rank, client.size
    asked = dict(parse_qsl(urlparse(url).query))
    if int(asked.get("world_size", size)) != size:
        raise Error(f"world_size is {asked['world_size']}, and the launcher has started {size} ranks; leave it out")
    _check_rank(asked, rank, "PMIx")

    def allgather(mine: Any) -> list[Any]:
        everyone = client.allgather(json.dumps(mine).encode(), timeout.total_seconds())
        return [json.loads(each) for each in everyone]

    node = [socket.gethostname(), Path("/proc/sys/kernel/random/boot_id").read_text()]
    is_one_node = all(each == node for each in allgather(node))
    _met_through_pmix = True
    yield _open_store(rank, size, allgather, is_one_node, timeout), rank, size
    raise RuntimeError("a rendezvous through PMIx happens once; ranks cannot join later")


def _check_rank(asked: dict[str, str], rank: int, whose: str) -> None:
    if int(asked.get("rank", rank)) != rank:
        raise Error(f"rank {asked['rank']} was given, and this is {whose}'s rank {rank}; leave out rank and world_size")


def _open_store(
    rank: int, size: int, allgather: Callable[[Any], list[Any]], is_one_node: bool, timeout: timedelta
) -> Any:
    """The key-value store of rank 0; collective."""
    place: Any = None
    store: Any = None
    if rank == 0:
        try:
            store = dist.TCPStore("localhost", 0, size, is_master=True, timeout=timeout, wait_for_workers=False)
            place = (["127.0.0.1"] if is_one_node else addresses_of_this_node(), store.port)
        except Exception as error:
            place = str(error)
    place = allgather(place)[0]
    if isinstance(place, str):
        raise Error("rank 0 could not open the store of torch.distributed", "io", 0, place)
    addresses, port = place
    # Collective: a rank that cannot reach the store must not leave the others waiting in it.
    host = None if store is not None else reachable(addresses, port, min(timeout.total_seconds(), _CONNECT_S))
    unreached = [rank for rank, found in enumerate(allgather(host is not None)) if rank > 0 and not found]
    if unreached:
        raise Error(
            f"rank {unreached[0]} cannot connect to the store of torch.distributed on rank 0, at port {port} of "
            f"{' or '.join(addresses) or 'no address'}; set MASTER_ADDR to an address of rank 0's node that the other nodes "
            "reach, and MASTER_PORT to a free port there",
            "io",
            unreached[0],
        )
    if host is not None:
        store = dist.TCPStore(host, port, size, is_master=False, timeout=timeout, wait_for_workers=False)
    return store


def _is_one_node(MPI: Any, world: Any) -> bool:
    node = world.Split_type(MPI.COMM_TYPE_SHARED)
    is_one_node = world.allreduce(node.Get_size(), MPI.MIN) == world.Get_size()
    node.Free()
    return bool(is_one_node)


def addresses_of_this_node() -> list[str]:
    """Where other nodes may reach this process, the likeliest first; without loopback addresses."""
    found: list[str] = []
    # Without a name service the host name is of no use to the others either.
    with suppress(OSError):
        found.append(socket.gethostbyname(socket.gethostname()))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        with suppress(OSError):
            probe.connect(("192.0.2.1", 9))  # a datagram socket only chooses its route
            found.append(str(probe.getsockname()[0]))
        for _, interface in socket.if_nameindex():
            with suppress(OSError):  # it has no address
                request = struct.pack("256s", interface.encode())
                found.append(socket.inet_ntoa(fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)[20:24]))
    # Debian's /etc/hosts gives a loopback address for the host's own name.
    return [address for address in dict.fromkeys(found) if not address.startswith("127.")]


def reachable(addresses: Sequence[str], port: int, patience_s: float) -> str | None:
    """The first address at which a listener accepts a connection, or None."""
    for address in addresses:
        with suppress(OSError):
            socket.create_connection((address, port), patience_s).close()
            return address
    return None
