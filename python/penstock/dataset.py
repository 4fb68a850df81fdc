"""Training samples, read and decoded in parallel behind the computation."""

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
    """A sample that :meth:`Dataset.ignore_errors` left out."""

    path: str  #: for samples in memory: "sample 17 in memory"
    index: int  # type: ignore[assignment]  #: place in the source; hides the method of tuples
    epoch: int
    position: int  #: place in the epoch, counted over all ranks
    reason: str


class Stats(NamedTuple):
    """What a dataset has done so far; the seconds of the threads are added up."""

    wait_s: float = 0.0  #: the consumer stood still
    read_s: float = 0.0  #: threads in reads
    decode_s: float = 0.0  #: threads in decoders
    map_s: float = 0.0  #: threads in map functions
    read_bytes: int = 0
    samples: int = 0  #: delivered
    batches: int = 0  #: delivered
    skipped: int = 0  #: of the batches delivered


class Dataset:
    """A chain of stages from files to batches of NumPy arrays.

    ::

        ds = (Dataset.from_files(paths, labels).shuffle(seed=1).decode_jpeg(size=(224, 224))
                .ignore_errors().batch(64).prefetch(2).shard(comm))
        for images, labels in ds: ...

    Every stage gives a new dataset and leaves the old one as it is; a stage that does not fit the chain raises
    :class:`penstock.Error` at once. Threads do all the work, without the GIL, and sleep when the prefetched batches
    are full.

    **Epochs.** One iteration is one epoch (or ``repeat(n)`` of them), the next iteration is the next epoch. A loop that
    is left early keeps its place: the next iteration goes on with the next batch. A dataset has one iterator at a
    time; taking a new one closes the old one.

    **Order.** The order is a permutation computed from (seed, epoch, position). It depends neither on the number of
    ranks, nor on threads, nor on timing; skipped samples keep their place in it.

    **State.** :meth:`state_dict` is exact after every batch that was *consumed*, however many are prefetched, and may be
    loaded with any other number of ranks and threads and any other batch size.

    **Memory.** The arrays of a batch are the pipeline's own memory, writable, and go back to it when the last of them is
    garbage collected. Keeping them is safe and merely makes the pipeline allocate more.
    """

    def __init__(self, chain: Any, *, seed: int | None = None, epochs: int = 1, with_indices: bool = False) -> None:
        """For the stages only; start with :meth:`from_files` or :meth:`from_bytes`."""
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
        """One sample per file. ``labels`` are integers, one per path; without them every label is 0."""
        if isinstance(paths, (str, bytes, os.PathLike)):
            raise Error(f"paths is the single path {os.fspath(paths)!r}; expected a list of paths")
        try:
            encoded = [os.fsencode(path) for path in paths]
        except TypeError as error:
            raise Error("paths must hold strings or path objects", cause=str(error)) from None
        return Dataset(_Chain.from_files(encoded, _labels(labels)))

    @staticmethod
    def from_bytes(samples: Iterable[Any], labels: Sequence[int] | NDArray[Any] | None = None) -> Dataset:
        """One sample per bytes-like object (an encoded image, for instance); they are copied."""
        return Dataset(_Chain.from_bytes(list(samples), _labels(labels)))

    def interleave(self, *others: Dataset, block: int = 1) -> Dataset:
        """``block`` samples of this and of every other dataset in turn, until all are exhausted.

        All of them may have been shuffled, taken from, skipped and interleaved; other stages go behind.
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
        """Another order of all samples in every epoch. Needs no memory and no time to start."""
        seed = _count(seed, "seed") & 0xFFFF_FFFF_FFFF_FFFF
        return self._with(self._chain.shuffle(seed), seed=seed)

    def take(self, samples: int) -> Dataset:
        """Only the first samples of the order as it is here."""
        return self._with(self._chain.take(_count(samples, "samples")))

    def skip(self, samples: int) -> Dataset:
        """All but the first samples of the order as it is here."""
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
        """Images of any known format to (height, width, 3) arrays, RGB.

        Parameters
        ----------
        size
            (height, width) to stretch every image to, as it is decoded; None leaves each its own size, for a
            ``map()`` that makes them alike.
        dtype
            uint8, or float32 for values in [0, 1].
        format
            A name of ``penstock.dataset.decoder_names()``, or "auto": chosen by each file's first bytes.
        num_parallel_calls
            Threads of the pipeline; None is the option ``io_threads``.
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
        """JPEG images to RGB arrays, see :meth:`decode`. Everything else is an error of its sample."""
        return self.decode(size, dtype, format="jpeg", num_parallel_calls=num_parallel_calls)

    def decode_raw(
        self, shape: Sequence[int], dtype: Any = np.uint8, *, num_parallel_calls: int | None = None
    ) -> Dataset:
        """Files that hold the bytes of an array of this shape and type, and nothing else."""
        extents = [_count(extent, "an extent of the shape") for extent in shape]
        return self._with(self._chain.decode("none", extents, _dtype_name(dtype), _threads(num_parallel_calls)))

    def map(self, function: Callable[..., Any], num_parallel_calls: int | None = None) -> Dataset:
        """``function(array, label)`` gives the new array, or (array, label).

        It runs on the pipeline's threads with the GIL, on at most ``num_parallel_calls`` at a time. Its array may have
        any shape and type as long as all samples of a batch agree; it may change the given array in place. Before a
        decode stage it gets the bytes of the file as a 1-d uint8 array.
        """
        if not callable(function):
            raise Error(f"map() got a {type(function).__name__}; expected a function of (array, label)")

        def call(array: NDArray[Any], label: int) -> tuple[NDArray[Any], int]:
            result = function(array, label)
            if isinstance(result, tuple):
                if len(result) != 2:
                    raise TypeError(f"the map function returned {len(result)} values; expected array or (array, label)")
                result, label = result
            # ascontiguousarray would give a scalar one dimension
            return np.asarray(result, order="C"), operator.index(label)

        return self._with(self._chain.map(call, _threads(num_parallel_calls)))

    def cache(self) -> Dataset:
        """Keeps the samples as they are here in memory: later epochs neither read nor decode them again."""
        return self._with(self._chain.cache())

    def ignore_errors(self, limit: int | None = None) -> Dataset:
        """Leaves out samples for which the read or a stage before this one fails.

        They keep their place in the order, so their batch is that much smaller, and are recorded in :attr:`skipped`.
        With a ``limit``, more of them in one iteration on this rank are an error.
        """
        return self._with(self._chain.ignore_errors(-1 if limit is None else _count(limit, "limit")))

    # How samples are delivered.

    def batch(self, samples: int, drop_remainder: bool = False) -> Dataset:
        """Batches of so many samples: of all ranks together if shard() comes later, else of each rank."""
        return self._with(self._chain.batch(_count(samples, "samples"), bool(drop_remainder)))

    def prefetch(self, batches: int) -> Dataset:
        """Makes up to this many batches ahead. 0, the default, starts when a batch is asked for."""
        return self._with(self._chain.prefetch(_count(batches, "batches")))

    def shard(self, comm: Any, size: int | None = None) -> Dataset:
        """This rank's part: ``shard(comm)``, ``shard((rank, size))`` or ``shard(rank, size)``.

        After batch() every batch is split into contiguous parts that differ by at most one sample; before batch()
        every rank gets every size-th sample. All ranks see the same number of batches; some may be empty. ``comm`` is
        anything with rank and size (mpi4py's or Penstock's); nothing is communicated.
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
        """One iteration covers this many epochs without a break between them; None: it never ends."""
        epochs = 0 if epochs is None else _count(epochs, "epochs")
        return self._with(self._chain.repeat(epochs), epochs=epochs)

    def with_indices(self) -> Dataset:
        """Iteration gives (images, labels, indices), the indices of the samples in the source."""
        return self._with(self._chain, with_indices=True)

    # Iteration and state.

    def __iter__(self) -> Iterator[tuple[NDArray[Any], ...]]:
        """(images, labels) of this rank's part of every batch, from where the dataset stands to the end of the epoch.

        Images are a NumPy array (samples, *shape), or a list of 1-d uint8 arrays where nothing decodes or maps them;
        labels are int64.
        """
        self._stop()
        self._running = _Iteration(self)
        return self._running

    def __len__(self) -> int:
        """Batches of a whole iteration."""
        if self._epochs == 0:
            raise Error("a dataset that repeats without end has no length")
        return self._chain.batches * self._epochs

    @property
    def samples(self) -> int:
        """Samples of one epoch, over all ranks, those to be skipped among them."""
        return self._chain.samples

    @property
    def epoch(self) -> int:
        """The epoch that the next batch belongs to."""
        return self._epoch

    def indices(self, epoch: int, begin: int = 0, end: int | None = None) -> NDArray[Any]:
        """Indices in the source of the samples at [begin, end) of an epoch's order, over all ranks."""
        end = self.samples if end is None else end
        return np.array([self._chain.index_at(epoch, i) for i in range(begin, end)], dtype=np.int64)

    def state_dict(self) -> dict[str, Any]:
        """Where the dataset stands after the last batch that was consumed: a few numbers and strings."""
        return {
            "version": 1,
            "seed": self._seed,
            "epoch": self._epoch,
            "position": self._position,
            "order": self._chain.order,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on where another dataset with the same order stood; its ranks, batch size and threads do not matter."""
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
        """What :meth:`ignore_errors` left out so far, on this rank, in order."""
        return self._past_skipped + (self._running.skipped() if self._running else [])

    @property
    def stats(self) -> Stats:
        """Seconds waited, read, decoded and mapped, and what was delivered, on this rank so far."""
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
    """One pass over a dataset; moves the dataset's state along."""

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
        # Arrays in all but chains that neither decode nor map; a union would have to be told apart in every loop.
        return cast("tuple[NDArray[Any], ...]", given)

    def skipped(self) -> list[Skipped]:
        rows = self._core.skipped()
        return [Skipped(os.fsdecode(path), index, epoch, place, why) for path, index, epoch, place, why in rows]

    def stats(self) -> Stats:
        return Stats(*self._core.stats())

    def close(self) -> None:
        self._core.close()
        _open.discard(self)


# Threads that call map functions must end before the interpreter does.
_open: weakref.WeakSet[_Iteration] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for iteration in list(_open):
        iteration.close()
    _penstock.dataset.forget_functions()


def decoder_names() -> list[str]:
    """The formats that decode() knows."""
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
