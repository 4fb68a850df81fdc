"""What the integrations of tensor libraries share: layouts from the boxes that ranks hold, and moves of bytes between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock import _penstock
from penstock.error import Error
from penstock.layout import Layout
from penstock.redistribute import start_parts

if TYPE_CHECKING:
    from typing_extensions import TypeVar
else:
    from typing import TypeVar

Tensor = TypeVar("Tensor")


class Box(NamedTuple):
    """A part of an array."""

    begin: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def is_empty(self) -> bool:
        return 0 in self.shape

    @property
    def slices(self) -> tuple[slice, ...]:
        return tuple(slice(at, at + length) for at, length in zip(self.begin, self.shape))


def layout_of_boxes(shape: Sequence[int], boxes: Mapping[int, Sequence[Box]], ranks: int) -> Layout:
    """The layout in which rank r owns ``boxes[r]``. Ranks with equal boxes own copies of them.

    In its memory a rank's boxes lie in the given order, without empty ones.
    """
    owners: dict[tuple[Box, ...], list[int]] = {}
    for rank in sorted(boxes):
        held = tuple(box for box in boxes[rank] if not box.is_empty)
        if held:
            owners.setdefault(held, []).append(rank)
    counts = sorted({len(found) for found in owners.values()})
    if len(counts) > 1 or len({box for held in owners for box in held}) < sum(map(len, owners)):
        raise Error(
            f"the array of shape {tuple(shape)} is replicated in parts: ranks that have one part in common have others that "
            "differ, or are more than those of another part; expected whole copies of the array, each on ranks of its own",
            "unsupported",
        )
    copies = []
    for copy in range(counts[0] if counts else 1):
        placed = [(found[copy], box.begin, box.shape) for held, found in owners.items() for box in held]
        copies.append(Layout.boxes(shape, placed, ranks) if len(shape) else Layout.whole((), placed[0][0], ranks))
    return copies[0] if len(copies) == 1 else Layout.replicated(copies)


def owned_boxes(layout: Layout) -> dict[int, Box]:
    """The box that each rank owns, if it owns something. Raises Error for ranks that own several boxes, or other forms."""
    found: dict[int, Box] = {}
    for copy in map(layout.copy, range(layout.copies)):
        for rank in range(copy.ranks):
            blocks = copy.local_blocks(rank)
            if not copy.local_size(rank):
                continue
            begin = np.min([block.global_start for block in blocks], axis=0)
            extent = np.max([np.add(block.global_start, block.shape) for block in blocks], axis=0) - begin
            if np.prod(extent, dtype=np.int64) != copy.local_size(rank):
                raise Error(f"rank {rank} owns more than one box of {layout!r}; expected one box for each rank")
            found[rank] = Box(tuple(begin.tolist()), tuple(extent.tolist()))
    return found


class Redistributing(Generic[Tensor]):
    """A redistribution of a tensor that has been started. Keeps the memory of both tensors."""

    def __init__(
        self,
        pending: _penstock.Request,
        finish: Callable[[], Tensor],
        memory: object,
        explained: Callable[[Error], Error] = lambda error: error,
    ) -> None:
        self._pending = pending
        self._finish = finish
        self._memory = memory
        self._explained = explained
        self._result: Tensor | None = None

    def test(self) -> bool:
        """Make progress. Return whether it is complete. Raises its failure."""
        return self._pending.test()

    def wait(self) -> Tensor:
        """Wait until it is complete. Return the new tensor. Raises its failure."""
        if self._result is None:
            try:
                self._pending.wait()
            except Error as error:
                raise self._explained(error) from None
            self._result = self._finish()
            self._memory = None
        return self._result


@dataclass(frozen=True)
class Move(Generic[Tensor]):
    """A redistribution that is ready to start on this rank."""

    layouts: tuple[Layout, Layout]  #: before and after
    dtype: np.dtype[Any]  #: of the bits that travel
    source: list[NDArray[Any]]  #: for each box of this rank that is not empty
    target: list[NDArray[Any]]
    finish: Callable[[], Tensor]  #: makes the result of the target's memory


def start_move(
    core: _penstock.Comm,
    prepare: Callable[[], Move[Tensor]],
    explained: Callable[[Error], Error] = lambda error: error,
) -> Redistributing[Tensor]:
    """Start to move what ``prepare`` returns. Collective.

    If ``prepare`` raises, so does this call, and the other ranks' operations fail.
    """
    try:
        move = prepare()
    except Exception as error:
        core.fail_next(str(error))
        raise
    pending = start_parts(core, move.layouts, move.dtype, move.source, move.target)
    return Redistributing(pending, move.finish, (move.source, move.target), explained)


def parts_of(boxes: Sequence[Box], memory: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """The arrays that layout_of_boxes expects of a rank, of one array for each of its boxes."""
    return [array for box, array in zip(boxes, memory) if not box.is_empty]
