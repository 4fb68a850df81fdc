"""The exception that Penstock raises."""

from __future__ import annotations


class Error(RuntimeError):
    """A failure of Penstock. Its text says what was given, what was expected and what to do.

    By its code an error is also one of Python's own: "not_found" a ``FileNotFoundError``, "exists" a
    ``FileExistsError``, "invalid_argument" a ``ValueError``.

    Attributes
    ----------
    code : str
        The kind of failure, a name of ``errors.def``: "invalid_argument", "mismatch", "not_found", "exists",
        "corrupt", "io", "no_space", "unsupported", "mpi", "peer_failed", "internal",
        "timed_out" or "fenced".
    rank : int
        The rank that failed first, or -1 if no communicator is involved.
    cause : str
        The underlying error of the system or a library. Empty if there is none.
    """

    def __new__(cls, message: str, code: str = "invalid_argument", rank: int = -1, cause: str = "") -> Error:
        kind = _KINDS.get(code, cls) if cls is Error else cls
        if issubclass(kind, OSError):
            import errno  # here, so that importing the package loads as little as possible

            made = OSError.__new__(kind, message)
            made.errno = errno.ENOENT if issubclass(kind, FileNotFoundError) else errno.EEXIST
            return made
        return RuntimeError.__new__(kind, message)

    def __init__(self, message: str, code: str = "invalid_argument", rank: int = -1, cause: str = "") -> None:
        text = message if rank < 0 else f"{message} [rank {rank}]"
        super().__init__(f"{text}: {cause}" if cause else text)
        self.message = message
        self.code = code
        self.rank = rank
        self.cause = cause

    def __reduce__(self) -> tuple[type[Error], tuple[str, str, int, str]]:
        return (Error, (self.message, self.code, self.rank, self.cause))


class NotFoundError(Error, FileNotFoundError):
    """An `Error` with code "not_found"."""


class ExistsError(Error, FileExistsError):
    """An `Error` with code "exists"."""


class InvalidArgumentError(Error, ValueError):
    """An `Error` with code "invalid_argument"."""


_KINDS: dict[str, type[Error]] = {
    "not_found": NotFoundError,
    "exists": ExistsError,
    "invalid_argument": InvalidArgumentError,
}
