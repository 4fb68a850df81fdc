"""Input pipelines: training samples, read and decoded in parallel with the computation."""

from __future__ import annotations

import atexit
import ctypes
import dataclasses
import functools
import json
import math
import operator
import os
import sys
import traceback
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import numpy as np

from penstock import _penstock, sample_tree
from penstock.error import Error
from penstock.sample_tree import Padding

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Self

_Chain = _penstock.dataset.Chain
_D = TypeVar("_D", bound="Dataset")


class Skipped(NamedTuple):
    """A sample that :meth:`Dataset.ignore_errors` dropped."""

    path: str  #: For samples in memory: "sample 17 in memory".
    index: int  # type: ignore[assignment]  #: Index in the source; hides tuple.index.
    epoch: int
    position: int  #: Position in the epoch, over all ranks.
    reason: str


class Stats(NamedTuple):
    """Statistics of a dataset so far. Times are summed over threads."""

    wait_s: float = 0.0  #: The program waited for batches.
    read_s: float = 0.0  #: Threads read.
    decode_s: float = 0.0  #: Threads decoded.
    map_s: float = 0.0  #: Threads ran map functions.
    collate_s: float = 0.0  #: Threads collated samples into batches.
    elapsed_s: float = 0.0  #: From the first request of an iteration to its end.
    threads: int = 0
    read_bytes: int = 0
    samples: int = 0  #: Delivered.
    batches: int = 0  #: Delivered.
    skipped: int = 0  #: Dropped from delivered batches.


class Interrupted(BaseException):
    """Raised inside a function of a dataset that exceeds :meth:`Dataset.limits`, or that keeps an iteration from closing."""


@dataclasses.dataclass(frozen=True)
class _Options:
    """Options of stages that the Python side implements."""

    seed: int | None = None
    epochs: int = 1
    with_indices: bool = False
    prefetch: bool = False  #: Whether prefetch() was called.
    random_stages: int = 0
    limits: tuple[int, int, int] = (1 << 30, 1 << 28, 0)  #: (bytes, pixels, milliseconds).
    log: Callable[[Skipped], Any] | str | None = None
    digest: Callable[[], str] = lambda: ""


class Dataset:
    """A chain of stages from files, arrays or other sources to batches of NumPy arrays.

    ::

        ds = (Dataset.from_files(paths, labels).shuffle(seed=1).decode_jpeg(size=(224, 224))
                .ignore_errors().batch(64).shard(comm))
        for images, labels in ds: ...

    Every stage returns a new dataset and leaves the old one unchanged. A stage that does not fit the chain raises
    :class:`penstock.Error` at once. Threads do the work. They sleep while the prefetch queue is full, and hold the GIL only
    in Python functions.

    **Samples.** From files and bytes, a sample is an array with an integer label: ``map(fn)`` calls ``fn(array, label)``, and
    a batch is ``(arrays, labels)``. From other sources, or once a map function has returned a tree, a sample is a tree:
    arrays, numbers, strings, bytes and None in dicts, tuples, named tuples and dataclasses. ``map(fn)`` then calls
    ``fn(sample)``, and a batch is a tree with the same structure: arrays and numbers get a new first dimension; strings,
    bytes and None become lists.

    **Epochs.** One iteration is one epoch (or ``repeat(n)`` epochs); the next iteration is the next epoch. Leaving a loop
    early ends its iteration; to continue there, load its state. A dataset has one iterator at a time; making a new one closes
    the old one.

    **Order.** The order is a permutation computed from (seed, epoch, position). It does not depend on the number of ranks, on
    threads or on timing. Skipped samples keep their position.

    **State.** :meth:`state_dict` is exact after every *consumed* batch, however many are prefetched. It can be loaded with
    another number of ranks or threads, and with another batch size.

    **Memory.** The arrays of a batch of files are memory of the pipeline, writable. The memory returns to the pipeline when
    the last array is garbage collected. If you keep arrays, the pipeline allocates more.

    **Processes.** A forked child has none of the pipeline's threads: the parent's iterators raise there. The dataset itself
    works in the child, with a new iteration.
    """

    def __init__(self, chain: Any, options: _Options | None = None) -> None:
        """For internal use. Start with :meth:`from_files`, :meth:`from_source` or another source."""
        if not isinstance(chain, _Chain):
            raise Error("a Dataset is not made directly; use Dataset.from_files(paths, labels)")
        self._chain = chain
        self._options = options or _Options()
        self._epoch = 0
        self._position = 0
        self._skipped_before = 0  # in the iteration of the loaded state
        self._skipped_total = 0
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
        return Dataset(*_source(_Chain.from_files(encoded, _labels(labels))))

    @staticmethod
    def from_bytes(samples: Iterable[Any], labels: Sequence[int] | NDArray[Any] | None = None) -> Dataset:
        """One sample per bytes-like object, such as an encoded image. The objects are copied."""
        return Dataset(*_source(_Chain.from_bytes(list(samples), _labels(labels))))

    @staticmethod
    def from_source(source: Any, *, digest: str | None = None) -> TreeDataset:
        """One sample per index of an object with ``len(source)`` and ``source[index]``, such as a torch or Hugging Face
        dataset, a Grain source or a list.

        A sample is the result of ``source[index]``: a tree, an array or a number. Several threads call it at once. ``digest``
        identifies the list of samples and its version; a state with another digest is rejected. Default: the type and the
        length of the source.
        """
        if not (hasattr(source, "__len__") and hasattr(source, "__getitem__")):
            raise Error(f"from_source() got a {type(source).__name__}; expected an object with len() and [index]")
        name = type(source).__name__
        size = len(source)
        if digest is None:
            digest = source.digest() if isinstance(source, sample_tree.ArraySource) else name
        chain = _Chain.from_objects(size, source.__getitem__, lambda i: f"sample {i} of {name}", digest)
        return TreeDataset(*_source(chain))

    @staticmethod
    def from_arrays(arrays: Any) -> TreeDataset:
        """One sample per index of the first dimension of an array, or of all arrays of a tree. The arrays are not copied;
        stages get read-only views."""
        return Dataset.from_source(sample_tree.ArraySource(arrays))

    @staticmethod
    def mix(datasets: Sequence[_D], weights: Sequence[float], *, samples: int | None = None) -> _D:
        """Mix samples of several datasets: every stretch of the order contains them in proportion to ``weights``.

        An epoch ends when the first dataset is exhausted. With ``samples``, it ends after that many; a smaller dataset
        restarts, in another order if it is shuffled. The datasets may have been shuffled, taken from, skipped, mixed and
        interleaved. Apply other stages afterwards.
        """
        whole = _integer_weights(weights)
        if samples is not None:
            samples = _count(samples, "samples")
        return _joined(datasets, "mix()", lambda chains: _Chain.mix(chains, whole, samples))

    def interleave(self, *others: Self, block: int = 1) -> Self:
        """Take ``block`` samples of each dataset in turn, this one first, until all are exhausted.

        The datasets may have been shuffled, taken from, skipped and interleaved. Apply other stages afterwards.
        """
        size = _count(block, "block")
        return _joined([self, *others], "interleave()", lambda chains: _Chain.interleave(chains, size))

    # Which samples, in which order.

    def shuffle(self, seed: int = 0) -> Self:
        """Permute the samples, differently in every epoch. Takes no memory and no start-up time."""
        seed = _count(seed, "seed") & 0xFFFF_FFFF_FFFF_FFFF
        return self._with(self._chain.shuffle(seed), seed=seed)

    def take(self, samples: int) -> Self:
        """The first ``samples`` of the current order."""
        return self._with(self._chain.take(_count(samples, "samples")))

    def skip(self, samples: int) -> Self:
        """All but the first ``samples`` of the current order."""
        return self._with(self._chain.skip(_count(samples, "samples")))

    # What happens to a sample.

    def decode(
        self,
        size: tuple[int, int] | None = None,
        dtype: Any = np.uint8,
        *,
        format: str = "auto",
        random_resized_crop: bool | tuple[float, float] | tuple[float, float, float, float] = False,
        center_crop: float | None = None,
        flip: float = 0.0,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        layout: Literal["NHWC", "NCHW"] = "NHWC",
        orient: bool = False,
        seed: int | None = None,
        num_parallel_calls: int | None = None,
    ) -> Self:
        """Decode images of any known format to RGB arrays, in one pass from the decoder's pixels to the batch.

        JPEG images are decoded at the smallest of the scales 1, 1/2, 1/4 and 1/8 that is not smaller than the result, then
        scaled by a triangle filter with antialiasing. On photographs the result differs from decoding in full and Pillow's
        bilinear filter by less than 2 of 255 on average.

        Parameters
        ----------
        size
            (height, width) to which every image, or its crop, is scaled. None keeps each image's size; a ``map()`` must
            then make them equal.
        dtype
            uint8, or float16 or float32 for values in [0, 1].
        format
            A name of ``penstock.dataset.decoder_names()``, or "auto", which detects the format from a file's first bytes.
        random_resized_crop
            As torchvision's: a random part of 0.08 to 1 of the area and an aspect ratio of 3/4 to 4/3, another one in
            every epoch. Or (min area, max area), or (min area, max area, min aspect, max aspect).
        center_crop
            This fraction of the largest central part that has the aspect ratio of ``size``; 0.875 is usual.
        flip
            Probability that left and right are exchanged.
        mean, std
            Of the three channels, for values in [0, 1]: the result is (value - mean) / std.
        layout
            (height, width, 3), or (3, height, width) as PyTorch likes it.
        orient
            Turn JPEG images as their EXIF data says.
        seed
            Of crops and flips, which are functions of seed, epoch and sample; that of shuffle() if it is not given.
        num_parallel_calls
            Threads of the pipeline. None: the option ``io_threads``.
        """
        self._check_files("decode()")
        image = _image_options(
            layout,
            orient,
            random_resized_crop,
            center_crop,
            flip,
            mean,
            std,
            self._options.seed if seed is None else seed,
        )
        chain = self._chain.decode(
            format, _image_shape(size, layout), _dtype_name(dtype), _threads(num_parallel_calls), image
        )
        return self._with(chain)

    def decode_jpeg(
        self, size: tuple[int, int] | None = None, dtype: Any = np.uint8, *, num_parallel_calls: int | None = None
    ) -> Self:
        """Decode JPEG images to RGB arrays; see :meth:`decode`. Other data is an error of its sample."""
        return self.decode(size, dtype, format="jpeg", num_parallel_calls=num_parallel_calls)

    def decode_raw(self, shape: Sequence[int], dtype: Any = np.uint8, *, num_parallel_calls: int | None = None) -> Self:
        """Read files that hold exactly the bytes of an array of this shape and type."""
        extents = [_count(extent, "an extent of the shape") for extent in shape]
        self._check_files("decode_raw()")
        return self._with(self._chain.decode("none", extents, _dtype_name(dtype), _threads(num_parallel_calls), None))

    def map(self, function: Callable[..., Any], num_parallel_calls: int | None = None) -> Self:
        """Apply ``function(array, label)``, which returns the new array, (array, label) or a tree; or ``function(tree)``, which
        returns a tree.

        It runs on the pipeline's threads with the GIL, on at most ``num_parallel_calls`` of them. Arrays may be changed in
        place, except those of :meth:`from_arrays`. Results may have any shape and type, equal for all samples of a batch.
        Before a decode stage it gets a file's bytes as a 1-d uint8 array.
        """
        _check_function(function, "map()")

        def call(value: Any, label: int | None, _: Any) -> tuple[Any, int | None]:
            return _given(function(value) if label is None else function(value, label), label)

        return self._with(self._chain.map(call, _threads(num_parallel_calls)))

    def random_map(
        self, function: Callable[..., Any], num_parallel_calls: int | None = None, *, seed: int | None = None
    ) -> Self:
        """:meth:`map` with a NumPy random generator as the last argument: ``function(array, label, rng)`` or
        ``function(tree, rng)``.

        The generator depends only on the seed, the epoch and the sample. So augmentation is the same on any number of ranks
        and threads, and after a resume. ``seed`` defaults to that of shuffle().
        """
        _check_function(function, "random_map()")
        if seed is None:
            seed = self._options.seed or 0
        # Philox is a counter-based generator (Salmon et al., SC'11): every key and counter is an independent stream.
        key = np.array([_count(seed, "seed") & 0xFFFF_FFFF_FFFF_FFFF, self._options.random_stages], np.uint64)

        def call(value: Any, label: int | None, sample: tuple[int, int, int]) -> tuple[Any, int | None]:
            epoch, index, position = sample
            counter = np.array([0, position, index, epoch], np.uint64)
            rng = np.random.Generator(np.random.Philox(key=key, counter=counter))
            return _given(function(value, rng) if label is None else function(value, label, rng), label)

        return self._with(
            self._chain.map(call, _threads(num_parallel_calls)), random_stages=self._options.random_stages + 1
        )

    def filter(self, predicate: Callable[..., Any], num_parallel_calls: int | None = None) -> Self:
        """Keep the samples for which ``predicate(array, label)`` or ``predicate(tree)`` is true.

        The others keep their position in the order, so their batch is smaller: ranks need not exchange what they keep, and
        the state stays exact.
        """
        _check_function(predicate, "filter()")

        def call(value: Any, label: int | None, _: Any) -> tuple[Any, int | None] | None:
            kept = predicate(value) if label is None else predicate(value, label)
            return (value, label) if kept else None

        return self._with(self._chain.map(call, _threads(num_parallel_calls)))

    def cache(self) -> Self:
        """Keep the samples of this stage in memory: later epochs neither read nor decode them again."""
        return self._with(self._chain.cache())

    def limits(
        self, *, max_bytes: int | None = None, max_pixels: int | None = None, max_seconds: float | None = None
    ) -> Self:
        """Limit the resources of one sample. Exceeding a limit is an error of that sample; see :meth:`ignore_errors`.

        Parameters
        ----------
        max_bytes
            Size of its file. Default: 1 GiB.
        max_pixels
            Size of its image before it is scaled. Default: 268,435,456.
        max_seconds
            Time from the start of its read to the end of its last map function. Default: no limit. The error says where the
            thread is. A Python function is interrupted; a thread that does not return is replaced.
        """
        size, pixels, milliseconds = self._options.limits
        size = size if max_bytes is None else _count(max_bytes, "max_bytes")
        pixels = pixels if max_pixels is None else _count(max_pixels, "max_pixels")
        if max_seconds is not None:
            if not (isinstance(max_seconds, (int, float)) and 0.001 <= max_seconds < 1e9):
                raise Error(f"max_seconds is {max_seconds!r}; expected seconds, at least 0.001")
            milliseconds = math.ceil(max_seconds * 1000)
        return self._with(self._chain.limits(size, pixels, milliseconds), limits=(size, pixels, milliseconds))

    def ignore_errors(
        self,
        max: int | None = None,
        *,
        replace: bool = False,
        log: Callable[[Skipped], Any] | str | os.PathLike[str] | None = None,
    ) -> Self:
        """Drop samples whose read or earlier stage fails. :attr:`skipped` records them.

        Parameters
        ----------
        max
            More dropped samples than this, in one iteration on this rank, are an error.
        replace
            Replace a dropped sample by another one of the epoch, so that batches keep their size. The choice depends only on
            the epoch and the position. Without it, the batch is smaller.
        log
            A function that is called with each :class:`Skipped` when its batch is delivered; or the path of a file that gets
            a line of JSON for each.
        """
        if log is not None and not callable(log):
            log = os.fspath(log)
        ignore = (-1 if max is None else _count(max, "max"), bool(replace))
        return self._with(self._chain.ignore_errors(*ignore), log=log)

    # How samples are delivered.

    def batch(self, samples: int, drop_remainder: bool = False) -> Self:
        """Group samples into batches. ``samples`` is per batch over all ranks if shard() follows, else per rank."""
        return self._with(self._chain.batch(_count(samples, "samples"), bool(drop_remainder)))

    def pad(self, value: Any = 0, *, length: int | None = None, multiple: int = 1) -> Self:
        """Pad arrays of different lengths along their first dimension when samples are collated into a batch of trees.

        They get the length of the longest in this rank's part of the batch, or ``length``, rounded up to a multiple of
        ``multiple``. ``value`` fills them. Longer arrays are an error.
        """
        padding = Padding(
            value, None if length is None else _count(length, "length"), operator.index(_positive(multiple, "multiple"))
        )
        return self._with(_with_calls(self._chain, padding))

    def prefetch(self, batches: int, *, max_bytes: int | None = None) -> Self:
        """Prepare up to this many batches ahead, but at most ``max_bytes`` of them; at least one.

        Default: 2 batches, up to 256 MiB. 0 starts when a batch is requested.
        """
        limit = 0 if max_bytes is None else _positive(max_bytes, "max_bytes")
        return self._with(self._chain.prefetch(_count(batches, "batches"), limit), prefetch=True)

    def shard(self, comm: Any, size: int | None = None) -> Self:
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

    def repeat(self, epochs: int | None = None) -> Self:
        """One iteration covers this many epochs, without a pause between them. None: it never ends."""
        epochs = 0 if epochs is None else _count(epochs, "epochs")
        return self._with(self._chain.repeat(epochs), epochs=epochs)

    def with_indices(self) -> Self:
        """Iterate over (images, labels, indices), with the indices of the samples in the source."""
        return self._with(self._chain, with_indices=True)

    # Iteration and state.

    def __iter__(self) -> Iterator[tuple[NDArray[Any], ...]]:
        """Yields this rank's part of every batch, from the current position to the end of the iteration.

        From files and bytes: (images, labels). Images are an array (samples, *shape); without a decode or map stage, a list of
        1-d uint8 arrays. Labels are int64. From other sources: trees. An empty batch has arrays of length 0; before the first
        non-empty batch of trees it is None.
        """
        self._stop(left_early=True)
        self._running = _Iteration(self)
        return self._running

    def __len__(self) -> int:
        """Number of batches in a whole iteration."""
        if self._options.epochs == 0:
            raise Error("a dataset that repeats without end has no length")
        return self._chain.batches * self._options.epochs

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
            "version": 2,
            "seed": self._options.seed,
            "epoch": self._epoch,
            "position": self._position,
            "order": self._chain.order,
            "samples": self._options.digest(),
            "skipped": self._skipped_total,
            "skipped_in_iteration": self._skipped_before,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue at the position of another dataset with the same samples and order. Ranks, batch size and threads may
        differ. States of version 1 lack the digest and the counts; they are accepted."""
        try:
            version, order = int(state["version"]), str(state["order"])
            epoch, position = int(state["epoch"]), int(state["position"])
            digest = str(state["samples"]) if version > 1 else None
            skipped = [int(state[name]) if version > 1 else 0 for name in ("skipped", "skipped_in_iteration")]
        except (KeyError, TypeError, ValueError) as error:
            raise Error("this is not the state of a dataset", cause=repr(error)) from None
        if version not in (1, 2):
            raise Error(f"the state has version {version}; this Penstock reads versions 1 and 2", code="unsupported")
        if order != self._chain.order:
            raise Error(
                f"the state was saved by a dataset with the order '{order}', this one has '{self._chain.order}'; "
                "build it from the same samples with the same shuffle, take, skip, mix and interleave"
            )
        if digest is not None and digest != self._options.digest():
            raise Error(
                f"the state was saved with another list of samples: its digest is {digest}, this one's is "
                f"{self._options.digest()}; pass the same samples and labels in the same order"
            )
        if epoch < 0 or not 0 <= position <= self.samples:
            raise Error(f"the state stands at epoch {epoch}, position {position}, in epochs of {self.samples} samples")
        self._stop()
        self._epoch, self._position = epoch, position
        self._skipped_total, self._skipped_before = skipped

    @property
    def skipped(self) -> list[Skipped]:
        """Samples that :meth:`ignore_errors` has dropped so far, on this rank, in order."""
        return self._past_skipped + (self._running.skipped if self._running else [])

    @property
    def stats(self) -> Stats:
        """Statistics so far, on this rank."""
        now = self._running.stats() if self._running else Stats()
        return Stats._make(a + b for a, b in zip(self._past_stats, now))._replace(
            threads=max(self._past_stats.threads, now.threads)
        )

    def report(self) -> str:
        """A summary in words: the rate of batches, the work of the threads, and the bottleneck."""
        return _report(self.stats)

    def close(self) -> None:
        """End the running iteration and its threads."""
        self._stop()

    def __repr__(self) -> str:
        return f"<penstock.Dataset: {self._chain.order}; at epoch {self._epoch}, position {self._position}>"

    def _with(self, chain: Any, **changed: Any) -> Self:
        return type(self)(chain, dataclasses.replace(self._options, **changed))

    def _check_files(self, stage: str) -> None:
        if isinstance(self, TreeDataset):
            raise Error(f"{stage} decodes files and bytes, and these samples come from another source; use map()")

    def _stop(self, left_early: bool = False) -> None:
        running, self._running = self._running, None
        if running is None:
            return
        if not running.forked():
            self._past_skipped = self._past_skipped + running.skipped
            self._past_stats = Stats._make(a + b for a, b in zip(self._past_stats, running.stats()))._replace(
                threads=max(self._past_stats.threads, running.stats().threads)
            )
        if left_early and running.delivered and self._epoch < running.end_epoch:
            endless = self._options.epochs == 0
            self._epoch, self._position = self._epoch + 1 if endless else int(running.end_epoch), 0
            self._skipped_before = 0
        running.close()


class TreeDataset(Dataset):
    """A :class:`Dataset` whose samples and batches are trees."""

    if TYPE_CHECKING:

        def __iter__(self) -> Iterator[Any]: ...


_DEFAULT_PREFETCH = (2, 256 << 20)


class _Iteration:
    """One pass over a dataset. Advances the dataset's position."""

    def __init__(self, dataset: Dataset) -> None:
        options = dataset._options
        self._dataset = weakref.ref(dataset)
        self._options = options
        self._process = os.getpid()
        chain = dataset._chain if options.prefetch else dataset._chain.prefetch(*_DEFAULT_PREFETCH)
        self._core = chain.iterate(
            dataset._epoch, dataset._position, dataset._skipped_before, isinstance(dataset, TreeDataset)
        )
        self._last_tree: Any = None
        self._done = False
        self.delivered = False
        self.skipped: list[Skipped] = []
        self.end_epoch = math.inf if options.epochs == 0 else (dataset._epoch // options.epochs + 1) * options.epochs
        _open.add(self)

    def __iter__(self) -> _Iteration:
        return self

    def __next__(self) -> Any:
        if self._done:
            raise StopIteration
        batch = self._core.next()
        dataset = self._dataset()
        current = dataset is not None and dataset._running is self
        new = [
            Skipped(os.fsdecode(path), index, epoch, place, why)
            for path, index, epoch, place, why in self._core.skipped(len(self.skipped))
        ]
        self.skipped += new
        if dataset is not None and current:
            dataset._epoch, dataset._position, dataset._skipped_before = self._core.state()
            dataset._skipped_total += len(new)
        for one in new:
            self._log(one)
        if batch is None:
            self._done = True
            if dataset is not None and current:
                dataset._stop()
            raise StopIteration
        self.delivered = True
        samples, labels, indices = batch
        if labels is not None:
            return (samples, labels, indices) if self._options.with_indices else (samples, labels)
        if samples is not None:
            self._last_tree = samples
        elif self._last_tree is not None:
            samples = sample_tree.emptied(self._last_tree)
        return (samples, indices) if self._options.with_indices else samples

    def _log(self, skipped: Skipped) -> None:
        log = self._options.log
        if callable(log):
            log(skipped)
        elif log is not None:
            with open(log, "a", encoding="utf-8", errors="surrogateescape") as file:
                file.write(json.dumps(skipped._asdict()) + "\n")

    def forked(self) -> bool:
        return os.getpid() != self._process

    def stats(self) -> Stats:
        return Stats(*self._core.stats())

    def close(self) -> None:
        left_behind = self._core.close()
        _open.discard(self)
        for where in left_behind:
            warnings.warn(
                "a function of this dataset does not return; its thread is left behind" + (where and f": {where}"),
                RuntimeWarning,
                stacklevel=4,
            )


# Threads that call map functions must end before the interpreter.
_open: weakref.WeakSet[_Iteration] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for iteration in list(_open):
        iteration.close()
    _penstock.dataset.forget_functions()


def _interrupt(thread: int) -> str:
    """Returns the stack of a thread, and raises Interrupted in the Python function that it runs."""
    frame = sys._current_frames().get(thread)
    if frame is None:
        return ""
    where = "it stands at\n" + "".join(traceback.format_stack(frame)).rstrip()
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(Interrupted))
    return where


def _with_calls(chain: Any, padding: Padding | None = None) -> Any:
    return chain.objects(functools.partial(sample_tree.collate, padding=padding), sample_tree.copied, _interrupt)


def _source(chain: Any) -> tuple[Any, _Options]:
    return _with_calls(chain), _Options(digest=functools.cache(chain.digest))


def _joined(datasets: Sequence[_D], stage: str, join: Callable[[list[Any]], Any]) -> _D:
    for dataset in datasets:
        if not isinstance(dataset, Dataset):
            raise Error(f"{stage} got a {type(dataset).__name__}; expected datasets")
    if len({type(dataset) for dataset in datasets}) > 1:
        raise Error(f"{stage} got datasets of files and of trees; expected one kind")
    chain = join([dataset._chain for dataset in datasets])
    seeds = {dataset._options.seed for dataset in datasets}
    options = _Options(
        seed=seeds.pop() if len(seeds) == 1 else None,
        limits=datasets[0]._options.limits,
        digest=functools.cache(chain.digest),
    )
    return type(datasets[0])(chain, options)


def _given(result: Any, label: int | None) -> tuple[Any, int | None]:
    """The result of a map function, as the pipeline takes it: (array, label) or (tree, None)."""
    if result is None:
        raise TypeError("the map function returned None; expected a sample")
    if label is None:
        return result, None
    if isinstance(result, tuple) and not hasattr(result, "_fields"):
        if len(result) != 2:
            raise TypeError(f"the map function returned {len(result)} values; expected array, (array, label) or a tree")
        result, label = result[0], operator.index(result[1])
    if sample_tree.is_tree(result):
        return result, None
    # ascontiguousarray turns a 0-d array into a 1-d array
    return np.asarray(result, order="C"), label


def _report(stats: Stats) -> str:
    if stats.batches == 0:
        return "No batch was delivered."
    stages = {
        "reading": stats.read_s,
        "decoding": stats.decode_s,
        "map functions": stats.map_s,
        "laying batches together": stats.collate_s,
    }
    advice = {
        "reading": "Files are read by all threads at once, so more threads (num_parallel_calls=) or faster storage help.",
        "decoding": "More threads (num_parallel_calls=) help up to the number of cores, as do smaller images and cache().",
        "map functions": "Python functions hold the GIL, so work in NumPy or another library that releases it helps.",
        "laying batches together": "Smaller samples help, and files whose decode stage is the last one.",
    }
    worked = sum(stages.values())
    available = max(stats.elapsed_s * stats.threads, 1e-9)
    waited = stats.wait_s / max(stats.elapsed_s, 1e-9)
    busy = min(worked / available, 1.0)
    lines = [
        f"{stats.batches:,} batches of {stats.samples:,} samples in {stats.elapsed_s:.2f} s: "
        f"{stats.samples / max(stats.elapsed_s, 1e-9):,.0f} samples/s, "
        f"{stats.read_bytes / 1e6 / max(stats.elapsed_s, 1e-9):,.1f} MB/s read; {stats.skipped:,} samples skipped.",
        f"The program waited {waited:.0%} of the time for batches. The {stats.threads} threads were busy {busy:.0%} of it: "
        + ", ".join(f"{name} {seconds / max(worked, 1e-9):.0%}" for name, seconds in stages.items() if seconds > 0)
        + ".",
    ]
    slowest = max(stages, key=lambda name: stages[name])
    if waited < 0.05:
        lines.append("The program is the bottleneck: batches were ready when it asked for them.")
    elif busy < 0.5:
        lines.append("The window is the bottleneck: threads had nothing to do. Prefetch more batches, or more bytes.")
    else:
        lines.append(f"The bottleneck is {slowest}. {advice[slowest]}")
    return "\n".join(lines)


def decode_image(
    encoded: Any,
    size: tuple[int, int] | None = None,
    dtype: Any = np.uint8,
    *,
    center_crop: float | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    layout: Literal["NHWC", "NCHW"] = "NHWC",
    orient: bool = False,
    max_pixels: int = 1 << 28,
) -> NDArray[Any]:
    """One image, for a map function of trees that hold encoded images; the options are those of :meth:`Dataset.decode`.

    It works without the GIL.
    """
    image = _image_options(layout, orient, False, center_crop, 0.0, mean, std, 0)
    shape = _image_shape(size, layout)
    return _penstock.dataset.decode_image(encoded, shape, _dtype_name(dtype), image, _count(max_pixels, "max_pixels"))


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


def _image_shape(size: Any, layout: str) -> tuple[int, ...]:
    if layout not in ("NHWC", "NCHW"):
        raise Error(f"layout is {layout!r}; expected 'NHWC' or 'NCHW'")
    if size is None:
        return ()
    try:
        height, width = size
    except (TypeError, ValueError):
        raise Error(f"size is {size!r}; expected (height, width)") from None
    height, width = _count(height, "the height"), _count(width, "the width")
    return (3, height, width) if layout == "NCHW" else (height, width, 3)


def _image_options(
    layout: str, orient: bool, crop: Any, center_crop: Any, flip: Any, mean: Any, std: Any, seed: Any
) -> tuple[Any, ...]:
    bounds = None
    if crop is not False and crop is not None:
        usual = (0.08, 1.0, 3 / 4, 4 / 3)
        given = () if crop is True else _floats(crop, "random_resized_crop", (2, 4))
        bounds = (*given, *usual[len(given) :])
    return (
        layout == "NCHW",
        bool(orient),
        bounds,
        0.0 if center_crop is None else _floats([center_crop], "center_crop", (1,))[0],
        _floats([flip], "flip", (1,))[0],
        (0.0, 0.0, 0.0) if mean is None else _floats(mean, "mean", (3,)),
        (1.0, 1.0, 1.0) if std is None else _floats(std, "std", (3,)),
        _count(seed or 0, "seed") & 0xFFFF_FFFF_FFFF_FFFF,
    )


def _floats(values: Any, what: str, counts: tuple[int, ...]) -> tuple[float, ...]:
    try:
        numbers = tuple(float(value) for value in values)
    except (TypeError, ValueError):
        numbers = ()
    if len(numbers) not in counts:
        raise Error(f"{what} is {values!r}; expected {' or '.join(map(str, counts))} number(s)")
    return numbers


def _count(value: Any, what: str) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise Error(f"{what} is {value!r}; expected an integer") from None
    if number < 0:
        raise Error(f"{what} is {number}; expected 0 or more")
    return number


def _positive(value: Any, what: str) -> int:
    number = _count(value, what)
    if number == 0:
        raise Error(f"{what} is 0; expected 1 or more")
    return number


def _integer_weights(weights: Sequence[float]) -> list[int]:
    values = [float(weight) for weight in weights]
    if not values or not all(math.isfinite(value) and value > 0 for value in values):
        raise Error(f"the weights are {list(weights)}; expected numbers above 0")
    if all(value.is_integer() and value < 1 << 20 for value in values):
        whole = [int(value) for value in values]
    else:
        whole = [max(1, round(value / sum(values) * 1_000_000)) for value in values]
    divisor = math.gcd(*whole)
    return [weight // divisor for weight in whole]


def _check_function(function: Any, stage: str) -> None:
    if not callable(function):
        raise Error(f"{stage} got a {type(function).__name__}; expected a function")


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
