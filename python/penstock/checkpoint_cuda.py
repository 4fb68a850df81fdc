"""Tensors in the memory of CUDA devices on their way into a checkpoint: through pinned memory, on a stream of their own."""

from __future__ import annotations

from typing import Any

import torch  # pyright: ignore[reportMissingImports]


def is_on_device(tensor: torch.Tensor) -> bool:
    return bool(tensor.is_cuda)


class DeviceCopies:
    """Copies of one save from devices, which go on together. The pinned memory is kept for the next save.

    What is running on the device's current stream comes before them, and what is started there later need not wait.
    """

    def __init__(self) -> None:
        self._streams: dict[torch.device, Any] = {}
        self._pinned: dict[tuple[Any, ...], list[torch.Tensor]] = {}
        self._taken: dict[tuple[Any, ...], int] = {}
        self._sources: list[torch.Tensor] = []  # alive until they are copied

    def begin(self) -> None:
        """A save begins: the one before has copied out of the pinned memory."""
        self._taken.clear()

    def start(self, tensor: torch.Tensor) -> torch.Tensor:
        """Start to copy a tensor. What this returns has its elements after :meth:`finish`."""
        tensor = tensor.contiguous()
        stream = self._streams.get(tensor.device)
        if stream is None:
            stream = self._streams[tensor.device] = torch.cuda.Stream(tensor.device)
        stream.wait_stream(torch.cuda.current_stream(tensor.device))
        target = self._memory(tensor)
        with torch.cuda.stream(stream):
            target.copy_(tensor, non_blocking=True)
        self._sources.append(tensor)
        return target

    def finish(self) -> None:
        """Wait for all copies."""
        if self._sources:
            for stream in self._streams.values():
                stream.synchronize()
            self._sources.clear()

    def ranges(self) -> list[tuple[int, int]]:
        """Beginning and end of the memory that the next save uses again."""
        return [
            (tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes) for kept in self._pinned.values() for tensor in kept
        ]

    def _memory(self, tensor: torch.Tensor) -> torch.Tensor:
        key = tensor.dtype, tuple(tensor.shape)
        kept, place = self._pinned.setdefault(key, []), self._taken.get(key, 0)
        self._taken[key] = place + 1
        if place == len(kept):
            kept.append(torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True))
        return kept[place]
