"""The arguments of one collective call, converted for the extension."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypedDict

from penstock import _penstock, mpi_abi
from penstock.error import Error
from penstock.message import (
    Derived,
    DerivedBlocks,
    block_message,
    datatype_of,
    is_computed,
    item_count,
    message,
    numbers,
    parse,
    typed_block_message,
)
from penstock.user_op import UnsuitableError, UserReduction

if TYPE_CHECKING:
    from typing import Literal

    from mpi4py import MPI
else:
    MPI = mpi_abi.import_mpi()

_OP_NAMES = ("sum", "prod", "min", "max", "band", "bor", "bxor", "land", "lor", "lxor", "minloc", "maxloc")
_OPS = {MPI._handleof(getattr(MPI, name.upper())): name for name in _OP_NAMES}
_OPS_BY_ID = {id(getattr(MPI, name.upper())): name for name in _OP_NAMES}  # most callers pass MPI.SUM itself
#: Operation numbers for Comm.run_on_arrays, by id of MPI's predefined operations, which are never freed.
OP_NUMBERS = {key: _penstock.REDUCE_OPS[name] for key, name in _OPS_BY_ID.items()}
_REDUCTIONS = ("reduce", "allreduce", "reduce_scatter_block", "reduce_scatter", "scan", "exscan")


class CollectiveOptions(TypedDict, total=False):
    """Keyword arguments of all collectives: how to run the operation. Equal on all ranks, like the other arguments."""

    #: A name of the algorithms table, such as "binomial". "" (default): chosen by size and ranks. "native": MPI runs the
    #: collective by MPI's rules: all ranks call the same form, and a rank that raises before it calls MPI leaves the others
    #: waiting there. A tuning table may choose "native", unless PENSTOCK_NATIVE is off on a rank.
    algorithm: str
    segment_bytes: int  #: Length of a pipeline segment. 0 (default): chosen by the algorithm.
    #: Tree levels, counted from the leaves, that run on application cores; communication cores run the others. A number
    #: above the height means all levels. "auto" (default): chosen by the split-tree model.
    split: int | Literal["auto"]
    #: Reductions: the result is bit-identical for any placement, order of the ranks and message size. Contributions are
    #: combined in an order that depends on their values only (scan and exscan: in rank order).
    reproducible: bool
    #: Of trees: a rank that has the data serves radix - 1 others per level. Of leader_multiplying and barriers: a leader sends
    #: radix - 1 messages at once; 2 (default): as many as take least on a known machine. At least 2.
    radix: int


class Call:
    """One collective: its kind and its buffers, as the extension takes them."""

    __slots__ = ("blocks", "calls_mpi", "finish", "in_place", "input", "kind", "native", "op", "output", "root", "user")

    def __init__(self, kind: str, native: tuple[Any, ...], root: int = 0) -> None:
        self.kind: str = kind
        self.native: tuple[Any, ...] = native  # arguments of mpi4py's method, if MPI runs the collective
        self.root: int = root
        self.input: Any = None
        self.output: Any = None
        self.op: str | None = "sum"
        self.in_place: bool = False
        #: [send counts, send displacements, receive counts, receive displacements], each in bytes or None.
        self.blocks: list[list[int] | None] | None = None
        self.finish: Callable[[], None] | None = None
        self.calls_mpi: bool = False  #: Whether it combines with MPI's Reduce_local, on any thread.
        #: (callable, bytes per element, commutative), used instead of `op`.
        self.user: tuple[Callable[[memoryview, memoryview], None], int, bool] | None = None

    def send(self, spec: Any, blocks: int = 1) -> None:
        if not isinstance(spec, (list, tuple)):
            self.input = spec
            return
        given = message(spec, blocks, self.kind in _REDUCTIONS)
        self._check_movable(given)
        self.input = given.pack() if isinstance(given, Derived) else given

    def _check_movable(self, given: Any) -> None:
        if self.kind in _REDUCTIONS and isinstance(given, Derived):
            raise Error(f"{self.kind}: MPI's predefined operations are not defined for derived datatypes")

    def receive(self, spec: Any, blocks: int = 1, keep: bool = False) -> None:
        """Set the receive buffer. `keep`: its contents matter (bcast's root, in-place)."""
        if not isinstance(spec, (list, tuple)):
            self.output = spec
            return
        given = message(spec, blocks, self.kind in _REDUCTIONS)
        self._check_movable(given)
        if isinstance(given, Derived):
            self._receive_packed(given, keep)
        else:
            self.output = given

    def _receive_packed(self, given: Derived | DerivedBlocks, keep: bool) -> None:
        packed = given.receive_buffer(keep)
        self.output = packed
        self.finish = lambda: given.unpack(packed)

    def reduce(
        self, op: Any, sendbuf: Any, recvbuf: Any, *, receives: bool = True, blocks: tuple[int, int] = (1, 1)
    ) -> Call:
        """Set the buffers of a reduction. Returns self.

        A predefined operation on elements that Penstock has kernels for runs with these kernels; otherwise the operation
        itself combines. `blocks`: blocks per count of the send buffer and of the receive buffer.
        """
        self.op = op_name(op)
        mine, many = (recvbuf, blocks[1]) if self.in_place else (sendbuf, blocks[0])
        if self.op is not None and _is_planned(message(mine, many, True)):
            if not self.in_place:
                self.send(sendbuf, blocks[0])
            if receives:
                self.receive(recvbuf, blocks[1], keep=self.in_place)
            return self
        if not isinstance(op, MPI.Op) and not callable(op):
            raise Error(f"op is {op!r}; expected an operation of mpi4py, or a callable on two arrays")
        if self.op is not None and isinstance(message(mine, many, True), Derived):
            self._check_movable(message(mine, many, True))
        self.op = "sum"
        try:
            user = UserReduction(op, mine)
        except UnsuitableError:
            self.op = None
            return self
        self.user = user.for_extension()
        self.calls_mpi = isinstance(op, MPI.Op)
        if not self.in_place:
            self.input = user.memory(sendbuf, blocks[0])
        if receives:
            self.output, self.finish = user.receive(recvbuf, blocks[1], keep=self.in_place)
        return self

    def send_blocks(self, spec: Any, ranks: int) -> None:
        """Set a send buffer with one block per rank."""
        given = block_message(spec, ranks)
        if isinstance(given, DerivedBlocks):
            self.input = given.pack()
            self._set_blocks(0, given.counts, None)
        else:
            self.input = given.given
            self._set_blocks(0, given.counts, given.displacements)

    def receive_blocks(self, spec: Any, ranks: int, keep: bool = False) -> None:
        """Set a receive buffer with one block per rank. `keep`: its contents matter."""
        given = block_message(spec, ranks)
        if not isinstance(given, DerivedBlocks):
            self.output = given.given
            self._set_blocks(2, given.counts, given.displacements)
            return
        self._receive_packed(given, keep)
        self._set_blocks(2, given.counts, None)

    def send_typed_blocks(self, spec: Any, ranks: int) -> None:
        """Set a send buffer with one block and one datatype per rank."""
        given = typed_block_message(spec, ranks)
        self.input = given.pack()
        self._set_blocks(0, given.counts, None)

    def receive_typed_blocks(self, spec: Any, ranks: int, keep: bool = False) -> None:
        """Set a receive buffer with one block and one datatype per rank. `keep`: its contents matter."""
        given = typed_block_message(spec, ranks)
        self._receive_packed(given, keep)
        self._set_blocks(2, given.counts, None)

    def set_recvcounts(self, counts: Any, ranks: int) -> None:
        """Set how many elements of the result each rank receives. Call it after send and receive."""
        self._set_blocks(2, numbers(counts, ranks, "recvcounts"), None)

    def check_for_mpi(self, rank: int, ranks: int) -> None:
        """Validate the arguments of a native reduction as mpi4py does, before other ranks wait in it."""
        op = self.native[-2 if self.kind == "reduce" else -1]
        if not isinstance(op, MPI.Op) or op == MPI.OP_NULL:
            raise Error(f"{self.kind}: op is {op!r}; MPI itself reduces these elements, by an operation of mpi4py's")
        if not 0 <= self.root < ranks:
            raise Error(f"{self.kind}: root is {self.root}; expected a rank from 0 to {ranks - 1}")
        sendbuf, recvbuf = self.native[:2]
        receives = self.kind != "reduce" or self.root == rank
        # mpi4py validates a buffer specification when it makes a request. These requests are never started.
        if not self.in_place:
            MPI.COMM_SELF.Send_init(sendbuf, 0).Free()
        if receives:
            MPI.COMM_SELF.Recv_init(recvbuf, 0).Free()
            self._check_counts(sendbuf, recvbuf, rank, ranks)

    def _check_counts(self, sendbuf: Any, recvbuf: Any, rank: int, ranks: int) -> None:
        received = item_count(recvbuf)
        sent = None if self.in_place else item_count(sendbuf)
        expected_sent = received
        if self.kind == "reduce_scatter":
            counts = numbers(self.native[2], ranks, "recvcounts")
            expected = sum(counts) if self.in_place else counts[rank]
            if received != expected:
                raise Error(f"{self.kind}: recvbuf has {received} items; expected {expected} by recvcounts")
            expected_sent = sum(counts)
        elif self.kind == "reduce_scatter_block" and parse(sendbuf).count is None:
            expected_sent = received * ranks
        if sent is not None and sent != expected_sent:
            raise Error(f"{self.kind}: sendbuf has {sent} items; expected {expected_sent} as recvbuf has {received}")
        if sent is not None and datatype_of(sendbuf) != datatype_of(recvbuf):
            raise Error(f"{self.kind}: sendbuf and recvbuf have different datatypes")

    def _set_blocks(self, first: int, counts: list[int], displacements: list[int] | None) -> None:
        blocks = self.blocks or [None, None, None, None]
        blocks[first : first + 2] = [counts, displacements]
        self.blocks = blocks


def _is_planned(given: Any) -> bool:
    return given is None or is_computed(given)


@contextlib.contextmanager
def or_fail_next(core: _penstock.Comm) -> Iterator[None]:
    """Raises an error in this rank's arguments, and fails the collective on the other ranks, which wait for this one."""
    try:
        yield
    except Exception as error:
        core.fail_next(str(error))
        if isinstance(error, Error):
            raise
        raise Error(str(error)) from error


def op_name(op: Any) -> str | None:
    """The name of `op` in reduce_ops.def, or None if Penstock has no kernel for it."""
    if not isinstance(op, MPI.Op):
        return None
    return _OPS_BY_ID.get(id(op)) or _OPS.get(MPI._handleof(op))


def is_in_place(spec: Any) -> bool:
    """Whether a buffer specification means MPI.IN_PLACE."""
    return spec is None or spec is MPI.IN_PLACE
