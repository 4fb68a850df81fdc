"""How long many processes take to find each other through torch's TCPStore, and how many connections each then has."""

from __future__ import annotations

import importlib.util
import itertools
import os
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from penstock import rendezvous
from penstock.bench import runner
from penstock.bench.installation import Installation
from penstock.bench.runner import Program, Report

SUMMARY = (
    "Clients of one TCPStore of PyTorch find each other, as Penstock's communicators over UCX do and as gloo does. Clients are "
    "threads of some processes. Penstock's run the exchange of its communicators; in place of UCX each then connects to those "
    "whose addresses it has by TCP. gloo's make a whole group, in which each rank connects to all others."
)
PROGRAMS = ("gloo", "penstock")
OPTIONS = {
    "clients": ([16, 32, 64, 1024], [8], "how many clients"),
    "gloo_clients": (64, 8, "at most so many clients of gloo: n of them make n * (n - 1) connections"),
    "processes": (8, 2, "processes in which the clients are threads"),
}
RANKS = [1]
MINUTES = 5

TIMEOUT_S = 300.0
#: Of an address of UCX 1.20 on a machine with one network interface.
ADDRESS_BYTES = 217
_PORT_BYTES = 2


def missing(_: Installation) -> dict[str, str]:
    if importlib.util.find_spec("torch") is not None:
        return {}
    return dict.fromkeys(PROGRAMS, "PyTorch is not installed for the Python that runs the benchmark")


def programs(mpi: Installation) -> list[Program]:
    if missing(mpi):
        return []
    return [
        Program(name, PROGRAMS[:position], once=True, job="in turns", local=True)
        for position, name in enumerate(PROGRAMS)
    ]


def measure(program: str, parameters: dict[str, Any]) -> runner.Measured:
    rows: runner.Measured = []
    for clients in parameters["clients"]:
        for name in program.split(","):
            setting: dict[str, Any] = {"program": name, "clients": clients}
            if name == "gloo" and clients > parameters["gloo_clients"]:
                most = parameters["gloo_clients"]
                rows.append(({**setting, "cannot": f"more than {most} clients; --gloo-clients allows more"}, []))
                continue
            seconds, connections = _bootstrap(name, clients, min(clients, parameters["processes"]))
            rows.append(({**setting, "details": [{"connections": connections}]}, [seconds]))
    return rows


def table(report: Report) -> str:
    lines = [runner.table(report), "", "most connections that one client makes, apart from that to the store:"]
    for row in report.rows:
        facts = ", ".join(f"{peer} {found[0]['connections']}" for peer, found in row.details.items())
        lines.append(f"  {row.setting['clients']} clients: {facts}")
    return "\n".join(lines)


def _bootstrap(program: str, clients: int, processes: int) -> tuple[float, int]:
    """Seconds from the start until the last client is done, and the most connections that a client makes."""
    import torch.distributed as dist

    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    bounds = [clients * process // processes for process in range(processes + 1)]
    started = [
        subprocess.Popen(
            [sys.executable, "-m", __name__, program, str(store.port), str(clients), str(begin), str(end)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for begin, end in itertools.pairwise(bounds)
    ]
    try:
        for process in started:
            _line_of(process)
        begin_s = time.monotonic()
        for process in started:
            _write(process, "go")
        connections = max(int(_line_of(process)) for process in started)
        seconds = time.monotonic() - begin_s
        for process in started:
            _write(process, "end")
            process.wait()
    finally:
        for process in started:
            process.kill()
    return seconds, connections


def _line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"a process of clients ended with status {process.wait()}")
    return line


def _write(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()


# -- a process of clients ---------------------------------------------------------------------------------------------

#: Makes what one client keeps until all are done, and its number of connections.
_Client = Callable[[Any, int, int], tuple[object, int]]


def _penstock(store: Any, rank: int, size: int) -> tuple[object, int]:
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    address = listener.getsockname()[1].to_bytes(_PORT_BYTES, "little").ljust(ADDRESS_BYTES, b"\0")
    group = rendezvous.exchange(store, rank, size, TIMEOUT_S, lambda: address)
    made = [
        socket.create_connection(("127.0.0.1", int.from_bytes(given[:_PORT_BYTES], "little")))
        for given in group.addresses.values()
    ]
    taken = [listener.accept()[0] for _ in made]
    return (listener, made, taken), len(made)


def _gloo(store: Any, rank: int, size: int) -> tuple[object, int]:
    import torch.distributed as dist

    return dist.ProcessGroupGloo(store, rank, size, timedelta(seconds=TIMEOUT_S)), size - 1


def _run(program: str, port: int, size: int, ranks: range) -> None:
    import torch.distributed as dist

    make: _Client = {"penstock": _penstock, "gloo": _gloo}[program]
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
    made: list[tuple[object, int]] = []
    failures: list[BaseException] = []

    def come(rank: int) -> None:
        try:
            store = dist.TCPStore("127.0.0.1", port, wait_for_workers=False, timeout=timedelta(seconds=TIMEOUT_S))
            made.append(make(store, rank, size))
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=come, args=(rank,), daemon=True) for rank in ranks]
    print("ready", flush=True)
    sys.stdin.readline()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        sys.exit(1)
    print(max(connections for _, connections in made), flush=True)
    sys.stdin.readline()
    os._exit(0)  # the ends of a mesh of connections are not measured


if __name__ == "__main__":
    _run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), range(int(sys.argv[4]), int(sys.argv[5])))
