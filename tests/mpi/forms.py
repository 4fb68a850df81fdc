"""The three forms of a collective, as a test parameter."""

from __future__ import annotations

from typing import Any

FORMS = ("blocking", "nonblocking", "persistent")


def call(comm: Any, form: str, name: str, *arguments: Any, **how: Any) -> None:
    """Runs `name` once; a persistent collective three times, on the same buffers."""
    if form == "blocking":
        getattr(comm, name)(*arguments, **how)
    elif form == "nonblocking":
        getattr(comm, "I" + name.lower())(*arguments, **how).Wait()
    else:
        request = getattr(comm, name + "_init")(*arguments, **how)
        for _ in range(3):
            request.Start()
            request.Wait()
        request.Free()
