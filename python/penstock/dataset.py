"""Input pipelines: training samples, read and decoded in parallel with the computation."""

from __future__ import annotations

import atexit
import operator
import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from penstock import _penstock
from penstock.error import Error

if TYPE_CHECKING:
    from numpy.typing import NDArray

_Chain = _penstock.dataset.Chain


class Skipped(NamedTuple):
    """A sample that :meth:`Dataset.ignore_errors` dropped."""

    path: str  #: For samples in memory: "sample 17 in memory".
    index: int  # type: ignore[assignment]  #: Index in the source; hides tuple.index.
    epoch: int
    position: int  #: Position in the epoch, over all ranks.
    reason: str


class Stats(NamedTuple):
    """Statistics of a dataset so far. Times are summed over threads."""

    wait_s: float = 0.0  #: The consumer waited for a batch.
    read_s: float = 0.0  #: Threads read.
    decode_s: float = 0.0  #: Threads decoded.
    map_s: float = 0.0  #: Threads ran map functions.
    read_bytes: int = 0
    samples: int = 0  #: Delivered.
    batches: int = 0  #: Delivered.
    skipped: int = 0  #: Dropped from delivered batches.


class Dataset:
    """A chain of stages from files to batches of NumPy arrays.

    ::

        ds = (Dataset.from_files(paths, labels).shuffle(seed=1).decode_jpeg(size=(224, 224))
                .ignore_errors().batch(64).prefetch(2).shard(comm))
        for images, labels in ds: ...

    Every stage returns a new dataset and leaves the old one unchanged. A stage that does not fit the chain raises
    :class:`penstock.Error` at once. The pipeline's threads do all work without the GIL. They sleep while the prefetch queue
    is full.

    **Epochs.** One iteration is one epoch (or ``repeat(n)`` epochs); the next iteration is the next epoch. After an early
    exit from the loop, the next iteration continues with the next batch. A dataset has one iterator at a time; making a new
    one closes the old one.

    **Order.** The order is a permutation computed from (seed, epoch, position). It does not depend on the number of ranks,
    on threads or on timing. Skipped samples keep their position.

    **State.** :meth:`state_dict` is exact after every *consumed* batch, however many are prefetched. It can be loaded with
    another number of ranks or threads, and with another batch size.

    **Memory.** A batch's arrays are memory of the pipeline, writable. The memory returns to the pipeline when the last array
    is garbage collected. If you keep arrays, the pipeline allocates more.
    """

    def __init__(self, chain: Any, *, seed: int | None = None, epochs: int = 1, with_indices: bool = False) -> None:
        """For internal use. Start with :meth:`from_files` or :meth:`from_bytes`."""
        if not isinstance(chain, _Chain):
            raise Error("a Dataset is not made directly; use Dataset.from_files(paths, labels)")
        self._chain = chain
        self._seed = seed
        self._epochs = epochs
        self._with_indices = with_indices
        self._epoch = 0
        self._position = 0
        self._running: _Iteration | None = None
        self._past_stats = Stats()
        self._past_skipped: list[Skipped] = []

    # Sources.

    @staticmethod
    def from_files(
        paths: Iterable[str | os.PathLike[str]], labels: Sequence[int] | NDArray[Any] | None = None
    ) -> Dataset:
        """One sample per file. ``labels`` are integers, one per path. Default: 0."""
        if isinstance(paths, (str, bytes, os.PathLike)):
            raise Error(f"paths is the single path {os.fspath(paths)!r}; expected a list of paths")
        try:
            encoded = [os.fsencode(path) for path in paths]
        except TypeError as error:
            raise Error("paths must hold strings or path objects", cause=str(error)) from None
        return Dataset(_Chain.from_files(encoded, _labels(labels)))

    @staticmethod
    def from_bytes(samples: Iterable[Any], labels: Sequence[int] | NDArray[Any] | None = None) -> Dataset:
        """One sample per bytes-like object, such as an encoded image. The objects are copied."""
        return Dataset(_Chain.from_bytes(list(samples), _labels(labels)))

    def interleave(self, *others: Dataset, block: int = 1) -> Dataset:
        """Take ``block`` samples of each dataset in turn, this one first, until all are exhausted.

        The datasets may have been shuffled, taken from, skipped and interleaved. Apply other stages afterwards.
        """
        chains = []
        for other in (self, *others):
            if not isinstance(other, Dataset):
                raise Error(f"interleave() got a {type(other).__name__}; expected datasets")
            chains.append(other._chain)
        seeds = {d._seed for d in (self, *others)}
        return self._with(
            _Chain.interleave(chains, _count(block, "block")), seed=seeds.pop() if len(seeds) == 1 else None
        )

    # Which samples, in which order.

    def shuffle(self, seed: int = 0) -> Dataset:
        """Permute the samples, differently in every epoch. Takes no memory and no start-up time."""
        seed = _count(seed, "seed") & 0xFFFF_FFFF_FFFF_FFFF
        return self._with(self._chain.shuffle(seed), seed=seed)

    def take(self, samples: int) -> Dataset:
        """The first ``samples`` of the current order."""
        return self._with(self._chain.take(_count(samples, "samples")))

    def skip(self, samples: int) -> Dataset:
        """All but the first ``samples`` of the current order."""
        return self._with(self._chain.skip(_count(samples, "samples")))

    # What happens to a sample.

    def decode(
        self,
        size: tuple[int, int] | None = None,
        dtype: Any = np.uint8,
        *,
        format: str = "auto",
        num_parallel_calls: int | None = None,
    ) -> Dataset:
        """Decode images of any known format to RGB arrays (height, width, 3).

        Parameters
        ----------
        size
            (height, width) to which every image is scaled while it is decoded. None keeps each image's size; a ``map()``
            must then make them equal.
        dtype
            uint8, or float32 with values in [0, 1].
        format
            A name of ``penstock.dataset.decoder_names()``; or "auto", which detects the format from a file's first bytes.
        num_parallel_calls
            Threads of the pipeline. None: the option ``io_threads``.
        """
        shape: tuple[int, ...] = ()
        if size is not None:
            try:
                height, width = size
            except (TypeError, ValueError):
                raise Error(f"size is {size!r}; expected (height, width)") from None
            shape = (_count(height, "the height"), _count(width, "the width"), 3)
        return self._with(self._chain.decode(format, shape, _dtype_name(dtype), _threads(num_parallel_calls)))

    def decode_jpeg(
        self, size: tuple[int, int] | None = None, dtype: Any = np.uint8, *, num_parallel_calls: int | None = None
    ) -> Dataset:
        """Decode JPEG images to RGB arrays; see :meth:`decode`. Other data is an error of its sample."""
        return self.decode(size, dtype, format="jpeg", num_parallel_calls=num_parallel_calls)

    def decode_raw(
        self, shape: Sequence[int], dtype: Any = np.uint8, *, num_parallel_calls: int | None = None
    ) -> Dataset:
        """Read files that hold exactly the bytes of an array of this shape and type."""
        extents = [_count(extent, "an extent of the shape") for extent in shape]
        return self._with(self._chain.decode("none", extents, _dtype_name(dtype), _threads(num_parallel_calls)))

    def map(self, function: Callable[..., Any], num_parallel_calls: int | None = None) -> Dataset:
        """Apply ``function(array, label)``, which returns the new array or (array, label).

        It runs on the pipeline's threads with the GIL, on at most ``num_parallel_calls`` of them. It may change the array in
        place. Its result may have any shape and type, equal for all samples of a batch. Before a decode stage it gets a
        file's bytes as a 1-d uint8 array.
        """
        if not callable(function):
            raise Error(f"map() got a {type(function).__name__}; expected a function of (array, label)")

        def call(array: NDArray[Any], label: int) -> tuple[NDArray[Any], int]:
            result = function(array, label)
            if isinstance(result, tuple):
                if len(result) != 2:
                    raise TypeError(f"the map function returned {len(result)} values; expected array or (array, label)")
                result, label = result
            # ascontiguousarray turns a 0-d array into a 1-d array
            return np.asarray(result, order="C"), operator.index(label)

        return self._with(self._chain.map(call, _threads(num_parallel_calls)))

    def cache(self) -> Dataset:
        """Keep the samples of this stage in memory: later epochs neither read nor decode them again."""
        return self._with(self._chain.cache())

    def ignore_errors(self, limit: int | None = None) -> Dataset:
        """Drop samples whose read or earlier stage fails.

        They keep their position in the order, so their batch is smaller. :attr:`skipped` records them. More than ``limit``
        of them in one iteration on this rank are an error.
        """
        return self._with(self._chain.ignore_errors(-1 if limit is None else _count(limit, "limit")))

    # How samples are delivered.

    def batch(self, samples: int, drop_remainder: bool = False) -> Dataset:
        """Group samples into batches. ``samples`` is per batch over all ranks if shard() follows, else per rank."""
        return self._with(self._chain.batch(_count(samples, "samples"), bool(drop_remainder)))

    def prefetch(self, batches: int) -> Dataset:
        """Prepare up to this many batches ahead. 0, the default, starts when a batch is requested."""
        return self._with(self._chain.prefetch(_count(batches, "batches")))

    def shard(self, comm: Any, size: int | None = None) -> Dataset:
        """Keep this rank's part: ``shard(comm)``, ``shard((rank, size))`` or ``shard(rank, size)``.

        After batch(), every batch is split into contiguous parts that differ by at most one sample. Before batch(), every
        rank gets every size-th sample. All ranks get the same number of batches; some may be empty. ``comm`` is any object
        with rank and size (mpi4py's or Penstock's). Local.
        """
        if size is not None:
            rank = comm
        elif hasattr(comm, "rank") and hasattr(comm, "size"):
            rank, size = comm.rank, comm.size
        elif isinstance(comm, (tuple, list)) and len(comm) == 2:
            rank, size = comm
        else:
            raise Error(f"shard() got a {type(comm).__name__}; expected a communicator, or (rank, size)")
        return self._with(self._chain.shard(_count(rank, "rank"), _count(size, "size")))

    def repeat(self, epochs: int | None = None) -> Dataset:
        """One iteration covers this many epochs, without a pause between them. None: it never ends."""
        epochs = 0 if epochs is None else _count(epochs, "epochs")
        return self._with(self._chain.repeat(epochs), epochs=epochs)

    def with_indices(self) -> Dataset:
        """Iterate over (images, labels, indices), with the indices of the samples in the source."""
        return self._with(self._chain, with_indices=True)

    # Iteration and state.

    def __iter__(self) -> Iterator[tuple[NDArray[Any], ...]]:
        """Yields (images, labels) of this rank's part of every batch, from the current position to the end of the epoch.

        Images are an array (samples, *shape); without a decode or map stage, a list of 1-d uint8 arrays. Labels are int64.
        """
        self._stop()
        self._running = _Iteration(self)
        return self._running

    def __len__(self) -> int:
        """Number of batches in a whole iteration."""
        if self._epochs == 0:
            raise Error("a dataset that repeats without end has no length")
        return self._chain.batches * self._epochs

    @property
    def samples(self) -> int:
        """Number of samples in one epoch, over all ranks, including those that will be skipped."""
        return self._chain.samples

    @property
    def epoch(self) -> int:
        """The epoch of the next batch."""
        return self._epoch

    def indices(self, epoch: int, begin: int = 0, end: int | None = None) -> NDArray[Any]:
        """Source indices of the samples at [begin, end) of an epoch's order, over all ranks."""
        end = self.samples if end is None else end
        return np.array([self._chain.index_at(epoch, i) for i in range(begin, end)], dtype=np.int64)

    def state_dict(self) -> dict[str, Any]:
        """The position after the last consumed batch, as a small dict of numbers and strings."""
        return {
            "version": 1,
            "seed": self._seed,
            "epoch": self._epoch,
            "position": self._position,
            "order": self._chain.order,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue at the position of another dataset with the same order. Ranks, batch size and threads may differ."""
        try:
            version, order = int(state["version"]), str(state["order"])
            epoch, position = int(state["epoch"]), int(state["position"])
        except (KeyError, TypeError, ValueError) as error:
            raise Error("this is not the state of a dataset", cause=repr(error)) from None
        if version != 1:
            raise Error(f"the state has version {version}; this Penstock reads version 1", code="unsupported")
        if order != self._chain.order:
            raise Error(
                f"the state was saved by a dataset with the order '{order}', this one has '{self._chain.order}'; "
                "build it from the same samples with the same shuffle, take, skip and interleave"
            )
        if epoch < 0 or not 0 <= position <= self.samples:
            raise Error(f"the state stands at epoch {epoch}, position {position}, in epochs of {self.samples} samples")
        self._stop()
        self._epoch, self._position = epoch, position

    @property
    def skipped(self) -> list[Skipped]:
        """Samples that :meth:`ignore_errors` has dropped so far, on this rank, in order."""
        return self._past_skipped + (self._running.skipped() if self._running else [])

    @property
    def stats(self) -> Stats:
        """Statistics so far, on this rank."""
        now = self._running.stats() if self._running else Stats()
        return Stats._make(a + b for a, b in zip(self._past_stats, now))

    def __repr__(self) -> str:
        return f"<penstock.Dataset: {self._chain.order}; at epoch {self._epoch}, position {self._position}>"

    def _with(self, chain: Any, **changed: Any) -> Dataset:
        kept = {"seed": self._seed, "epochs": self._epochs, "with_indices": self._with_indices}
        return Dataset(chain, **{**kept, **changed})

    def _stop(self) -> None:
        if self._running is not None:
            running, skipped, stats = self._running, self.skipped, self.stats
            self._running, self._past_skipped, self._past_stats = None, skipped, stats
            running.close()


class _Iteration:
    """One pass over a dataset. Advances the dataset's position."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = weakref.ref(dataset)
        self._core = dataset._chain.iterate(dataset._epoch, dataset._position)
        self._with_indices = dataset._with_indices
        self._done = False
        _open.add(self)

    def __iter__(self) -> _Iteration:
        return self

    def __next__(self) -> tuple[NDArray[Any], ...]:
        if self._done:
            raise StopIteration
        arrays = self._core.next()
        dataset = self._dataset()
        if dataset is not None and dataset._running is self:
            dataset._epoch, dataset._position = self._core.state()
        if arrays is None:
            self._done = True
            if dataset is not None and dataset._running is self:
                dataset._stop()
            raise StopIteration
        given = arrays if self._with_indices else arrays[:2]
        # A list only if the chain neither decodes nor maps. Typed as an array, so that loops need not narrow a union.
        return cast("tuple[NDArray[Any], ...]", given)

    def skipped(self) -> list[Skipped]:
        rows = self._core.skipped()
        return [Skipped(os.fsdecode(path), index, epoch, place, why) for path, index, epoch, place, why in rows]

    def stats(self) -> Stats:
        return Stats(*self._core.stats())

    def close(self) -> None:
        self._core.close()
        _open.discard(self)


# Threads that call map functions must end before the interpreter.
_open: weakref.WeakSet[_Iteration] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for iteration in list(_open):
        iteration.close()
    _penstock.dataset.forget_functions()


def decoder_names() -> list[str]:
    """The formats that decode() accepts."""
    return _penstock.dataset.decoder_names()


def _labels(labels: Any) -> NDArray[Any]:
    if labels is None:
        return np.empty(0, np.int64)
    array = np.asarray(labels)
    if array.ndim != 1 or (array.size > 0 and array.dtype.kind not in "iub"):
        raise Error(f"labels are {array.dtype} of shape {array.shape}; expected a list of integers")
    return np.ascontiguousarray(array, np.int64)


def _count(value: Any, what: str) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise Error(f"{what} is {value!r}; expected an integer") from None
    if number < 0:
        raise Error(f"{what} is {number}; expected 0 or more")
    return number


def _threads(value: int | None) -> int:
    if value is None:
        return 0
    count = _count(value, "num_parallel_calls")
    if not 1 <= count <= 1024:
        raise Error(f"num_parallel_calls is {count}; expected 1 to 1024, or None for the default")
    return count


def _dtype_name(dtype: Any) -> str:
    try:
        name: str = np.dtype(dtype).name
    except TypeError as error:
        raise Error(f"{dtype!r} is not the name of an element type", cause=str(error)) from None
    return name
