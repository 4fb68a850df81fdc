"""The stages that a dataset is made of, but for its source."""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from penstock import _penstock
from penstock.dataset import sample_tree
from penstock.dataset.agreement import check_agreement
from penstock.dataset.arguments import check_function, count, dtype_name, positive, threads
from penstock.dataset.identity import identity
from penstock.dataset.images import image_options, image_shape
from penstock.dataset.iteration import DEFAULT_PREFETCH, Options, interrupt
from penstock.dataset.packing import Packing, packed
from penstock.dataset.processes import InProcesses
from penstock.dataset.sample_tree import Padding, Several
from penstock.dataset.statistics import Skipped
from penstock.error import Error

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Self

Chain = _penstock.dataset.Chain


class Stages:
    """An immutable chain of stages. Every stage returns a new one."""

    _trees = False  #: Whether samples and batches are trees.

    def __init__(self, chain: Any, options: Options | None = None) -> None:
        if not isinstance(chain, Chain):
            raise Error("a Dataset is not made directly; use Dataset.from_files(paths, labels)")
        self._chain = chain
        self._options = options or Options()

    # Which samples, in which order.

    def shuffle(self, seed: int = 0, *, block: int | None = None, window: int = 16) -> Self:
        """Permute the samples, differently in every epoch. Takes no start-up time and no memory.

        With ``block``, in two levels, for sources in which neighbours are read together (shards, objects, row groups):
        permutes blocks of so many neighbours, then the samples of each ``window`` blocks that follow one another. A reader
        of tar files, TFRecords or URLs then reads whole blocks, each once per epoch; the samples of at most 2 x ``window``
        blocks are in memory. What that costs in quality: another sample of the same batch is from the same block with
        probability (block - 1) / (window x block - 1), about 1 / ``window``; with a whole permutation of n samples it is
        (block - 1) / (n - 1).
        """
        seed = count(seed, "seed") & 0xFFFF_FFFF_FFFF_FFFF
        if block is None:
            return self._with(self._chain.shuffle(seed), seed=seed)
        sizes = positive(block, "block"), positive(window, "window")
        readers = tuple((reader, sizes) for reader, _ in self._options.readers)
        return self._with(self._chain.shuffle_blocks(seed, *sizes), seed=seed, readers=readers)

    def bucket_by_length(self, lengths: Sequence[int] | NDArray[Any], batch: int, *, window: int = 64) -> Self:
        """Put samples of similar length into one batch, so that pad() adds little.

        Of each ``window`` x ``batch`` samples of the current order, sorts the samples by length and permutes the batches,
        differently in every epoch. ``lengths`` has an entry for each sample of the source. Use ``batch`` in batch(), too.
        The order stays a function of the position, so the state is exact on any number of ranks.
        """
        given = np.asarray(lengths)
        if (
            given.ndim != 1
            or given.dtype.kind not in "iu"
            or (given.size and not 0 <= given.min() <= given.max() < 1 << 32)
        ):
            raise Error(f"the lengths are {given.dtype} of shape {given.shape}; expected integers from 0 to 2^32 - 1")
        array = np.ascontiguousarray(given, np.uint32)
        return self._with(self._chain.bucket_by_length(array, positive(batch, "batch"), positive(window, "window")))

    def take(self, samples: int) -> Self:
        """The first ``samples`` of the current order."""
        return self._with(self._chain.take(count(samples, "samples")))

    def skip(self, samples: int) -> Self:
        """All but the first ``samples`` of the current order."""
        return self._with(self._chain.skip(count(samples, "samples")))

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
        bilinear filter by less than 2 of 255 on average. Of a JPEG image that is cropped, only that part is decoded, so damage
        below it goes unnoticed.

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
            Threads of the pipeline. None: see :meth:`budget`.
        """
        self._check_files("decode()")
        image = image_options(
            layout,
            orient,
            random_resized_crop,
            center_crop,
            flip,
            mean,
            std,
            self._options.seed if seed is None else seed,
        )
        shape = image_shape(size, layout)
        chain = self._chain.decode(format, shape, dtype_name(dtype), threads(num_parallel_calls), image)
        return self._with(chain, stages=self._stages("decode", format, tuple(shape), dtype_name(dtype), image))

    def decode_jpeg(
        self, size: tuple[int, int] | None = None, dtype: Any = np.uint8, *, num_parallel_calls: int | None = None
    ) -> Self:
        """Decode JPEG images to RGB arrays; see :meth:`decode`. Other data is an error of its sample."""
        return self.decode(size, dtype, format="jpeg", num_parallel_calls=num_parallel_calls)

    def decode_raw(self, shape: Sequence[int], dtype: Any = np.uint8, *, num_parallel_calls: int | None = None) -> Self:
        """Read files that hold exactly the bytes of an array of this shape and type."""
        extents = [count(extent, "an extent of the shape") for extent in shape]
        self._check_files("decode_raw()")
        chain = self._chain.decode("none", extents, dtype_name(dtype), threads(num_parallel_calls), None)
        return self._with(chain, stages=self._stages("decode_raw", tuple(extents), dtype_name(dtype)))

    def map(
        self, function: Callable[..., Any], num_parallel_calls: int | None = None, *, processes: int | None = None
    ) -> Self:
        """Apply ``function(array, label)``, which returns the new array, (array, label) or a tree; or ``function(tree)``, which
        returns a tree.

        It runs on the pipeline's threads with the GIL, on at most ``num_parallel_calls`` of them. Arrays may be changed in
        place, except those of :meth:`from_arrays`. Results may have any shape and type, equal for all samples of a batch.
        Before a decode stage it gets a file's bytes as a 1-d uint8 array.

        With ``processes``, it runs in so many worker processes instead, for functions that hold the GIL. They start with the
        first iteration, as new processes that import the program's main module, and stay until the dataset is gone. Arrays go
        there and back in shared memory: one copy on each way, none back for arrays that are changed in place. What else a
        sample holds is pickled. The function must be importable in another process, as for multiprocessing's spawn, or
        cloudpickle be installed. It must not keep arrays that it gets. The end of a worker is an error of its sample, as an
        exception is.
        """
        stages = self._stages("map", function)
        function, parallel, started = _where(function, "map()", num_parallel_calls, processes)

        def call(value: Any, label: int | None, _: Any) -> tuple[Any, int | None]:
            if isinstance(value, Several):
                return Several(_given(function(one), None)[0] for one in value), None
            return _given(function(value) if label is None else function(value, label), label)

        return self._with(self._chain.map(call, parallel), readers=self._options.readers + started, stages=stages)

    def random_map(
        self,
        function: Callable[..., Any],
        num_parallel_calls: int | None = None,
        *,
        seed: int | None = None,
        processes: int | None = None,
    ) -> Self:
        """:meth:`map` with a NumPy random generator as the last argument: ``function(array, label, rng)`` or
        ``function(tree, rng)``.

        The generator depends only on the seed, the epoch and the sample. So augmentation is the same on any number of ranks
        and threads, and after a resume. ``seed`` defaults to that of shuffle(). ``processes`` as for :meth:`map`.
        """
        if seed is None:
            seed = self._options.seed or 0
        stages = self._stages("random_map", function, seed, self._options.random_stages)
        function, parallel, started = _where(function, "random_map()", num_parallel_calls, processes)
        # Philox is a counter-based generator (Salmon et al., SC'11): every key and counter is an independent stream.
        key = np.array([count(seed, "seed") & 0xFFFF_FFFF_FFFF_FFFF, self._options.random_stages], np.uint64)

        def call(value: Any, label: int | None, sample: tuple[int, int, int]) -> tuple[Any, int | None]:
            epoch, index, position = sample
            counter = np.array([0, position, index, epoch], np.uint64)
            rng = np.random.Generator(np.random.Philox(key=key, counter=counter))
            if isinstance(value, Several):
                return Several(_given(function(one, rng), None)[0] for one in value), None
            return _given(function(value, rng) if label is None else function(value, label, rng), label)

        return self._with(
            self._chain.map(call, parallel),
            random_stages=self._options.random_stages + 1,
            readers=self._options.readers + started,
            stages=stages,
        )

    def filter(
        self, predicate: Callable[..., Any], num_parallel_calls: int | None = None, *, processes: int | None = None
    ) -> Self:
        """Keep the samples for which ``predicate(array, label)`` or ``predicate(tree)`` is true.

        The others keep their position in the order, so their batch is smaller: ranks need not exchange what they keep, and
        the state stays exact. ``processes`` as for :meth:`map`.
        """
        stages = self._stages("filter", predicate)
        predicate, parallel, started = _where(predicate, "filter()", num_parallel_calls, processes)

        def call(value: Any, label: int | None, _: Any) -> tuple[Any, int | None] | None:
            if isinstance(value, Several):
                return Several(one for one in value if predicate(one)), None
            kept = predicate(value) if label is None else predicate(value, label)
            return (value, label) if kept else None

        return self._with(self._chain.map(call, parallel), readers=self._options.readers + started, stages=stages)

    def flat_map(
        self, function: Callable[..., Any], num_parallel_calls: int | None = None, *, processes: int | None = None
    ) -> Self:
        """Make several samples of each one, or none: ``function(tree)`` or ``function(array, label)`` returns a list of trees,
        or yields them.

        They stay together: batch() counts the samples before this stage, so its batches vary in size, and the state stays
        exact. ``processes`` as for :meth:`map`.
        """
        stages = self._stages("flat_map", function)
        function, parallel, started = _where(function, "flat_map()", num_parallel_calls, processes, several=True)

        def call(value: Any, label: int | None, _: Any) -> tuple[Any, int | None]:
            if isinstance(value, Several):
                return Several(made for one in value for made in function(one)), None
            return Several(function(value) if label is None else function(value, label)), None

        return self._with(self._chain.map(call, parallel), readers=self._options.readers + started, stages=stages)

    def cache(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        max_bytes: int | None = None,
        version: str | None = None,
    ) -> Self:
        """Keep the samples of this stage: later epochs neither read nor decode them again.

        With ``max_bytes``, only the first ones that fit. The others are made again in every epoch.

        Parameters
        ----------
        path
            A folder, for later runs and for all processes of the node, on a disk that is faster than the source. Default:
            memory. Each sample has a checksum: what a process that died had half written is not used. ``max_bytes`` bounds
            the files of all processes. Trees are pickled, so let only those write there whose code you would run.
        version
            A folder holds the samples of one source after one list of stages; another is an error when the iteration
            begins. Functions count with their code, defaults and closures, but not with the functions that they call. With
            ``version``, this text counts in their place.
        """
        limit = 0 if max_bytes is None else positive(max_bytes, "max_bytes")
        if path is None:
            if version is not None:
                raise Error("cache() got a version without a path; memory is not kept from run to run")
            return self._with(self._chain.cache(limit))
        stages = [
            (identity(stage) if version is None else "function") if callable(stage) else stage
            for described in self._options.stages
            for stage in described
        ]
        return self._with(self._chain.cache_files(os.fsencode(path), repr((version, stages)), limit))

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
        size = size if max_bytes is None else count(max_bytes, "max_bytes")
        pixels = pixels if max_pixels is None else count(max_pixels, "max_pixels")
        if max_seconds is not None:
            if not (isinstance(max_seconds, (int, float)) and 0.001 <= max_seconds < 1e9):
                raise Error(f"max_seconds is {max_seconds!r}; expected seconds, at least 0.001")
            milliseconds = math.ceil(max_seconds * 1000)
        return self._with(self._chain.limits(size, pixels, milliseconds), limits=(size, pixels, milliseconds))

    def budget(self, *, cpus: int | None = None, ram_bytes: int | None = None) -> Self:
        """What an iteration may use. Applies to all stages, wherever this one stands.

        Parameters
        ----------
        cpus
            Threads that decode and run functions; stages with ``num_parallel_calls`` then get at most these. Default:
            the largest ``num_parallel_calls`` of a stage; else the option ``io_threads``; else as many as there are cores
            that this process may use and to which no other rank of the node and no progress thread is bound, at least one.
            Ranks that may run on the same cores divide them, and the quota of their control group. If the program waits
            for files, more threads read ahead, as many as the measured times of reading and decoding ask for; not if
            ``num_parallel_calls`` or the option says the number.
        ram_bytes
            Memory of samples and batches, from the first byte that is read to the delivery of the batch. One batch, and
            one sample, may be larger: others then wait for them. ``cache()`` and worker processes have bounds of their own;
            row groups, compressed shards and blocks of ``shuffle(block=)`` are read whole. Default: no limit but that of
            prefetch().
        """
        threads_or_0 = 0 if cpus is None else threads(positive(cpus, "cpus"), "cpus")
        limit = 0 if ram_bytes is None else positive(ram_bytes, "ram_bytes")
        return self._with(self._chain.budget(threads_or_0, limit), cpus=threads_or_0, ram_bytes=limit)

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
        ignore = (-1 if max is None else count(max, "max"), bool(replace))
        return self._with(self._chain.ignore_errors(*ignore), log=log)

    # How samples are delivered.

    def batch(self, samples: int, drop_remainder: bool = False) -> Self:
        """Group samples into batches. ``samples`` is per batch over all ranks if shard() follows, else per rank."""
        return self._with(
            self._chain.batch(count(samples, "samples"), bool(drop_remainder)), batch=int(samples) * self._options.ranks
        )

    def pad(self, value: Any = 0, *, length: int | None = None, multiple: int = 1) -> Self:
        """Pad arrays of different lengths along their first dimension when samples are collated into a batch of trees.

        They get the length of the longest in this rank's part of the batch, or ``length``, rounded up to a multiple of
        ``multiple``. ``value`` fills them. Longer arrays are an error.
        """
        padding = Padding(
            value, None if length is None else count(length, "length"), operator.index(positive(multiple, "multiple"))
        )
        return self._with(with_calls(self._chain, functools.partial(sample_tree.collate, padding=padding)))

    def pack(self, length: int, *, rows: int | None = None, value: Any = 0, split: bool = True) -> Self:
        """Lay sequences of different lengths together into rows of ``length`` when a batch of trees is collated.

        A sample is an array, or a dict of arrays that are equally long, such as tokens and a mask. A batch is a dict of the
        same arrays with the shape (rows, length, …), filled up with ``value``. It also has ``segment_ids`` (1, 2, … within
        a row, 0 for what is filled up) and ``positions`` within the sequence. A bare array becomes ``tokens``.

        Only the sequences of this rank's part of one batch share rows, so the state stays exact. Batches of many sequences
        waste little.

        Parameters
        ----------
        rows
            Fill up to this number of rows, so that all batches have one shape. More are an error. Default: as many as
            the sequences need.
        split
            Cut longer sequences into pieces. Otherwise they are an error.
        """
        packing = Packing(positive(length, "length"), None if rows is None else positive(rows, "rows"), value, split)
        return self._with(with_calls(self._chain, functools.partial(packed, packing=packing)))

    def prefetch(self, batches: int, *, max_bytes: int | None = None, deterministic: bool = True) -> Self:
        """Prepare up to this many batches ahead, but at most ``max_bytes`` of them; at least one.

        Default: 2 batches, and twice as many whenever the program waits for one although all were ready before, or although
        threads or requests have nothing to do (not with ``shuffle(block=)``); up to 256 MiB, or up to the budget of
        :meth:`budget`. 0 starts when a batch is requested.

        With ``deterministic=False``, the first of them that is ready comes first, so one slow sample delays its own batch
        only. Batches hold the same samples as otherwise. The state then lists the batches that came before their turn; with
        several ranks, save what :meth:`merge_states` makes of the states of all.
        """
        limit = 0 if max_bytes is None else positive(max_bytes, "max_bytes")
        chain = self._chain.prefetch(count(batches, "batches"), limit, bool(deterministic), False)
        return self._with(chain, prefetch=True, deterministic=bool(deterministic))

    def shard(self, comm: Any, size: int | None = None, *, agree: bool = True) -> Self:
        """Keep this rank's part: ``shard(comm)``, ``shard((rank, size))`` or ``shard(rank, size)``.

        After batch(), every batch is split into contiguous parts that differ by at most one sample. Before batch(), every
        rank gets every size-th sample. All ranks get the same number of batches; some may be empty. ``comm`` is any object
        with rank and size.

        With a communicator of mpi4py or Penstock the call is collective: if the ranks do not have the same samples in the
        same order, it is an error on all of them, which names the ranks that differ. ``agree=False`` leaves that out; it is
        then local.
        """
        given = comm
        if size is not None:
            rank = comm
        elif hasattr(comm, "rank") and hasattr(comm, "size"):
            rank, size = comm.rank, comm.size
        elif isinstance(comm, (tuple, list)) and len(comm) == 2:
            rank, size = comm
        else:
            raise Error(f"shard() got a {type(comm).__name__}; expected a communicator, or (rank, size)")
        made = self._with(self._chain.shard(count(rank, "rank"), count(size, "size")), ranks=int(size))
        if agree and hasattr(given, "Allgather") and int(size) > 1:
            check_agreement(given, self._options.digest, self._chain.order)
        return made

    def repeat(self, epochs: int | None = None) -> Self:
        """One iteration covers this many epochs, without a pause between them. None: it never ends."""
        epochs = 0 if epochs is None else positive(epochs, "epochs")
        return self._with(self._chain.repeat(epochs), epochs=epochs)

    def with_indices(self) -> Self:
        """Iterate over (images, labels, indices), with the indices of the samples in the source."""
        return self._with(self._chain, with_indices=True)

    def _with(self, chain: Any, **changed: Any) -> Self:
        return type(self)(chain, dataclasses.replace(self._options, **changed))

    def _stages(self, *described: Any) -> tuple[tuple[Any, ...], ...]:
        return (*self._options.stages, described)

    def _check_files(self, stage: str) -> None:
        if self._trees:
            raise Error(f"{stage} decodes files and bytes, and these samples come from another source; use map()")


def _where(
    function: Callable[..., Any], stage: str, parallel: int | None, processes: int | None, several: bool = False
) -> tuple[Callable[..., Any], int, tuple[Any, ...]]:
    """(function, calls at a time, what an iteration starts) of a stage in threads or in processes."""
    check_function(function, stage)
    if processes is None:
        return function, threads(parallel), ()
    if parallel is not None:
        raise Error(f"{stage} got num_parallel_calls and processes; give one of them")
    remote = InProcesses(function, threads(positive(processes, "processes")), DEFAULT_PREFETCH[1], several)
    return remote, threads(processes), ((remote, None),)


def with_calls(chain: Any, collate: Callable[[list[Any]], tuple[Any, int]] = sample_tree.collate) -> Any:
    return chain.objects(
        collate, sample_tree.copied, sample_tree.size_bytes, interrupt, sample_tree.packed, sample_tree.unpacked
    )


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
