"""An address for a coordinator of JAX that no other process gets."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def reserved_address() -> Iterator[str]:
    """Hold a free port. gRPC, in which the coordinator listens, sets SO_REUSEPORT, so it alone can bind the port, too."""
    has_ipv6 = socket.has_dualstack_ipv6()
    with socket.socket(socket.AF_INET6 if has_ipv6 else socket.AF_INET) as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if has_ipv6:
            held.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        held.bind(("", 0))
        yield f"127.0.0.1:{held.getsockname()[1]}"
