"""The public classes of a pipeline: its sources, its iteration and its state."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from penstock import progress
from penstock.dataset import sample_tree
from penstock.dataset.arguments import count, integer_weights, labels_array, positive
from penstock.dataset.index import FILES, TAR, TFRECORD, SampleIndex, has_urls, open_index, scanned
from penstock.dataset.iteration import Iteration, Options
from penstock.dataset.lance import LanceSource
from penstock.dataset.mds import MdsShards
from penstock.dataset.reader import Reader, Request, UrlList
from penstock.dataset.records import example, tar_sample, tfrecord_content
from penstock.dataset.stages import Chain, Stages, with_calls
from penstock.dataset.statistics import SkippedSamples, Stats, report
from penstock.dataset.tables import GroupSource, arrow, parquet
from penstock.error import Error

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Self

_D = TypeVar("_D", bound="Dataset")


class Dataset(Stages):
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

    def __init__(self, chain: Any, options: Options | None = None) -> None:
        """For internal use. Start with :meth:`from_files`, :meth:`from_source` or another source."""
        super().__init__(chain, options)
        self._epoch = 0
        self._position = 0
        self._skipped_before = 0  # in the iteration of the loaded state
        self._given: list[tuple[int, int, int, int]] = []  # (epoch, first, stride, count), beyond the position
        self._skipped_total = 0
        self._running: Iteration | None = None
        self._past_stats = Stats()
        self._past_skipped = SkippedSamples()

    # Sources.

    @staticmethod
    def from_files(
        paths: Iterable[str | os.PathLike[str]],
        labels: Sequence[int] | NDArray[Any] | None = None,
        *,
        requests: int | None = None,
        deadline_s: float = 60.0,
        storage_options: dict[str, Any] | None = None,
    ) -> Dataset:
        """One sample per file, or per object of any storage that fsspec knows (``s3://``, ``gs://``, ``https://``, …).

        Parameters
        ----------
        labels
            Integers, one per path. Default: 0.
        requests
            Requests in flight, if a path is a URL. They are apart from the threads that decode, and read the samples of
            all batches that :meth:`prefetch` allows. Default: as many as hold the bytes of measured latency x rate.
        deadline_s
            A request that fails is repeated, with growing pauses, for this long.
        storage_options
            Of fsspec, such as credentials.
        """
        if isinstance(paths, (str, bytes, os.PathLike)):
            raise Error(f"paths is the single path {os.fspath(paths)!r}; expected a list of paths")
        try:
            encoded = [os.fsencode(path) for path in paths]
        except TypeError as error:
            raise Error("paths must hold strings or path objects", cause=str(error)) from None
        if not any(b"://" in path for path in encoded):
            return Dataset(*_source(Chain.from_files(encoded, labels_array(labels))))
        reader = Reader(UrlList(encoded), _request(requests, deadline_s, storage_options))
        digest = hashlib.sha256(b"\0".join(encoded)).hexdigest()[:32]
        return _from_reader(reader, len(encoded), labels_array(labels), digest)

    @staticmethod
    def from_index(
        path: str | os.PathLike[str],
        *,
        parse: Callable[[bytes], Any] | None = None,
        requests: int | None = None,
        deadline_s: float = 60.0,
        storage_options: dict[str, Any] | None = None,
    ) -> Dataset:
        """The samples of an index, which ``penstock dataset index`` or :func:`penstock.dataset.build_index` has saved.

        Opening it takes the same short time for any number of samples. Samples of files, and fields of tar files, are
        files; whole samples of tar files and TFRecords are trees, as from :meth:`from_tar` and :meth:`from_tfrecord`,
        which explain the other parameters.
        """
        return _indexed(open_index(path), parse, _request(requests, deadline_s, storage_options))

    @staticmethod
    def from_tar(
        shards: Iterable[str | os.PathLike[str]],
        *,
        field: str | None = None,
        label_field: str | None = None,
        requests: int | None = None,
        deadline_s: float = 60.0,
        storage_options: dict[str, Any] | None = None,
    ) -> Dataset:
        """Samples of tar files as WebDataset writes them: neighbouring files with one stem.

        A sample is a tree: a dict of the files' bytes by extension, with the stem as ``"__key__"``. With ``field``, it is
        the file with that extension, as from :meth:`from_files`, for ``decode()``; ``label_field`` is the extension of the
        file that holds its integer label.

        The shards are looked through first. :meth:`from_index` does without that.
        """
        index = scanned(shards, TAR, field, label_field, storage_options)
        return _indexed(index, None, _request(requests, deadline_s, storage_options))

    @staticmethod
    def from_tfrecord(
        shards: Iterable[str | os.PathLike[str]],
        *,
        parse: Callable[[bytes], Any] | None = None,
        requests: int | None = None,
        deadline_s: float = 60.0,
        storage_options: dict[str, Any] | None = None,
    ) -> TreeDataset:
        """Records of uncompressed TFRecord files. Their checksums are checked.

        A sample is ``parse(content)``. Default: ``tf.train.Example`` as a dict of int64 and float32 arrays and bytes.
        The shards are looked through first. :meth:`from_index` does without that.
        """
        index = scanned(shards, TFRECORD, storage_options=storage_options)
        made = _indexed(index, parse, _request(requests, deadline_s, storage_options))
        assert isinstance(made, TreeDataset)
        return made

    @staticmethod
    def from_parquet(
        paths: Iterable[str | os.PathLike[str]],
        *,
        columns: Sequence[str] | None = None,
        storage_options: dict[str, Any] | None = None,
    ) -> TreeDataset:
        """Rows of Parquet files as dicts: numbers, arrays (lists of numbers), strings and bytes. Needs pyarrow.

        Row groups are read whole, and a few stay in memory. Shuffle with ``block=`` the rows of a group.
        """
        return _tables(parquet(_several(paths), columns, storage_options))

    @staticmethod
    def from_arrow(tables: Any) -> TreeDataset:
        """Rows of an Arrow table, of several, or of Arrow IPC files by their paths, which are mapped into memory."""
        return _tables(arrow(tables))

    @staticmethod
    def from_mds(
        folder: str | os.PathLike[str],
        *,
        split: str | None = None,
        columns: Sequence[str] | None = None,
        requests: int | None = None,
        deadline_s: float = 60.0,
        storage_options: dict[str, Any] | None = None,
    ) -> TreeDataset:
        """Samples of MDS shards (MosaicML streaming) as dicts.

        Numbers, arrays and strings come as they are; JPEG and PNG images as bytes, for :func:`penstock.dataset.decode_image`;
        raw images as arrays. Columns that hold pickled objects are refused.

        Compressed shards are read whole, and a few stay in memory: shuffle with ``block=`` the samples of a shard. ``gz`` and
        ``bz2`` need nothing, ``zstd``, ``br`` and ``snappy`` need pyarrow.

        Parameters
        ----------
        folder
            Where ``index.json`` is, or a URL.
        split
            A folder below it.
        columns
            Default: all.
        """
        how = _request(requests, deadline_s, storage_options)
        shards = MdsShards(os.fspath(folder), split, columns, how)
        if shards.compressed:
            return _tables(shards.groups(how))
        reader = Reader(shards, how)
        return _trees(len(shards), lambda i: shards.tree(i, reader.read(i)), reader, shards.digest)

    @staticmethod
    def from_lance(
        url: str | os.PathLike[str],
        *,
        version: int | None = None,
        columns: Sequence[str] | None = None,
        requests: int = 4,
        storage_options: dict[str, Any] | None = None,
    ) -> TreeDataset:
        """Rows of a Lance dataset as dicts, as from :meth:`from_parquet`. Needs pylance.

        The version that is the latest now, if none is given: later ones change nothing. The rows of each batch are taken by
        one call, ``requests`` of them at a time, so shuffle() needs no blocks.
        """
        source = LanceSource(
            os.fspath(url), version, columns, Request(positive(requests, "requests"), 0, storage_options)
        )
        return _trees(len(source), source.__getitem__, source, source.digest)

    @staticmethod
    def from_store(
        store: Any, names: Iterable[str] | None = None, labels: Sequence[int] | NDArray[Any] | None = None
    ) -> Dataset:
        """One sample per blob of a :class:`penstock.Store`: its bytes at the version that is the latest now.

        Default of ``names``: all blobs, sorted. ``labels`` as for :meth:`from_files`.
        """
        chosen = sorted(info["name"] for info in store.list()) if names is None else list(names)
        versions = [store.open(name).latest for name in chosen]

        def read(index: int, max_bytes: int) -> bytearray:
            snapshot = store.open(chosen[index]).snapshot(versions[index])
            if snapshot.size > max_bytes:
                raise ValueError(f"it holds {snapshot.size} bytes, more than the limit of {max_bytes} per sample")
            content = bytearray(snapshot.size)
            snapshot.read([(0, content)])
            return content

        digest = hashlib.sha256(repr(list(zip(chosen, versions))).encode()).hexdigest()[:32]
        chain = Chain.from_reader(
            len(chosen), read, lambda i: f"{chosen[i]} version {versions[i]}", labels_array(labels), digest, None
        )
        return Dataset(*_source(chain))

    @staticmethod
    def from_bytes(samples: Iterable[Any], labels: Sequence[int] | NDArray[Any] | None = None) -> Dataset:
        """One sample per bytes-like object, such as an encoded image. The objects are copied."""
        return Dataset(*_source(Chain.from_bytes(list(samples), labels_array(labels))))

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
        chain = Chain.from_objects(size, source.__getitem__, lambda i: f"sample {i} of {name}", digest, None)
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
        whole = integer_weights(weights)
        if samples is not None:
            samples = count(samples, "samples")
        return _joined(datasets, "mix()", lambda chains: Chain.mix(chains, whole, samples))

    def interleave(self, *others: Self, block: int = 1) -> Self:
        """Take ``block`` samples of each dataset in turn, this one first, until all are exhausted.

        The datasets may have been shuffled, taken from, skipped and interleaved. Apply other stages afterwards.
        """
        size = count(block, "block")
        return _joined([self, *others], "interleave()", lambda chains: Chain.interleave(chains, size))

    # Iteration and state.

    def __iter__(self) -> Iterator[tuple[NDArray[Any], ...]]:
        """Yields this rank's part of every batch, from the current position to the end of the iteration.

        From files and bytes: (images, labels). Images are an array (samples, *shape); without a decode or map stage, a list of
        1-d uint8 arrays. Labels are int64. From other sources: trees. An empty batch has arrays of length 0; before the first
        non-empty batch of trees it is None.
        """
        self._stop(left_early=True)
        self._running = Iteration(self)
        return self._running

    def __len__(self) -> int:
        """Number of batches in a whole iteration."""
        if self._options.epochs == 0:
            raise Error("a dataset that repeats without end has no length")
        return self._chain.batches * self._options.epochs

    def progress(self, description: str = "batches") -> Iterator[Any]:
        """Iterates, and shows on standard error, if that is a terminal, a bar of the batches and the time that is left.

        ``for images, labels in ds.progress("epoch 3"): ...``
        """
        epochs = self._options.epochs
        total = len(self) if epochs else None
        batches = iter(self)  # leaves an iteration that was not finished, which moves the position
        epoch = self._epoch % epochs if epochs else self._epoch
        before = epoch * self._chain.batches + self._position // max(self._options.batch, 1)
        with progress.bar(description) as advance:
            advance(before, total)
            for done, batch in enumerate(batches, before + 1):
                advance(done, total)
                yield batch

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
        """The position after the last consumed batch, as a small dict of numbers and strings.

        With ``prefetch(deterministic=False)``, the position of the first batch that is still to come, and the samples that
        this rank has consumed beyond it.
        """
        state = self._state(self._epoch, self._position, self._skipped_before, self._given)
        if self._options.deterministic or self._options.ranks == 1:
            return state
        return {"given": [], **state, "version": 3, "ranks": self._options.ranks}

    def merge_states(self, states: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """The state of all ranks: ``data.merge_states(comm.allgather(data.state_dict()))``.

        ``states`` holds the state of each rank of shard(), in their order. Needed with ``prefetch(deterministic=False)``,
        or if ranks have consumed different numbers of batches: otherwise the states are the same. Local.
        """
        read = [self._read_state(state) for state in states]
        total = max((skipped for *_, skipped in read), default=0)
        return {**self._state(*self._chain.merge([row for row, _ in read])), "skipped": total}

    def _state(self, epoch: int, position: int, skipped: int, given: Sequence[tuple[int, ...]]) -> dict[str, Any]:
        state = {
            "version": 3 if given else 2,  # others would give the samples again
            "seed": self._options.seed,
            "epoch": epoch,
            "position": position,
            "order": self._chain.order,
            "samples": self._options.digest(),
            "skipped": self._skipped_total,
            "skipped_in_iteration": skipped,
        }
        return {**state, "given": [list(some) for some in given]} if given else state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue at the position of another dataset with the same samples and order. Ranks, batch size and threads may
        differ. States of version 1 lack the digest and the counts; they are accepted."""
        row, total = self._read_state(state)
        if state.get("ranks", 1) != 1:
            raise Error(
                f"this is the state of one of {state['ranks']} ranks, which got batches in different orders; save what "
                "merge_states() makes of the states of all"
            )
        self._stop()
        self._epoch, self._position, self._skipped_before, self._given = row
        self._skipped_total = total

    def _read_state(self, state: dict[str, Any]) -> tuple[tuple[int, int, int, list[tuple[int, int, int, int]]], int]:
        """((epoch, position, skipped in the iteration, given), skipped in all), checked."""
        try:
            version, order = int(state["version"]), str(state["order"])
            epoch, position = int(state["epoch"]), int(state["position"])
            digest = str(state["samples"]) if version > 1 else None
            total, skipped = (int(state[name]) if version > 1 else 0 for name in ("skipped", "skipped_in_iteration"))
            given = [tuple(int(number) for number in some) for some in state["given"]] if version > 2 else []
            rows = [(at, first, stride, size) for at, first, stride, size in given if first >= 0 < stride and size >= 0]
        except (KeyError, TypeError, ValueError) as error:
            raise Error("this is not the state of a dataset", cause=repr(error)) from None
        if version not in (1, 2, 3):
            raise Error(f"the state has version {version}; this Penstock reads versions 1 to 3", code="unsupported")
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
        return (epoch, position, skipped, rows), total

    @property
    def skipped(self) -> SkippedSamples:
        """Samples that :meth:`ignore_errors` has dropped so far, on this rank, in order: a list of the last 1000 of them. Its
        ``total`` counts all, and ``ignore_errors(log=)`` gets all."""
        return self._past_skipped.and_then(self._running.skipped if self._running else SkippedSamples())

    @property
    def stats(self) -> Stats:
        """Statistics so far, on this rank."""
        now = self._running.stats() if self._running else Stats()
        return self._past_stats.and_then(now)

    def report(self) -> str:
        """A summary in words: the rate of batches, the work of the threads, and the bottleneck."""
        return report(self.stats)

    def close(self) -> None:
        """End the running iteration and its threads."""
        self._stop()

    def __repr__(self) -> str:
        return f"<penstock.Dataset: {self._chain.order}; at epoch {self._epoch}, position {self._position}>"

    def _stop(self, left_early: bool = False) -> None:
        running, self._running = self._running, None
        if running is None:
            return
        if not running.forked():
            self._past_skipped = self._past_skipped.and_then(running.skipped)
            self._past_stats = self._past_stats.and_then(running.stats())
        if left_early and running.delivered and self._epoch < running.end_epoch:
            endless = self._options.epochs == 0
            self._epoch, self._position = self._epoch + 1 if endless else int(running.end_epoch), 0
            self._skipped_before = 0
            self._given = []
        running.close()


class TreeDataset(Dataset):
    """A :class:`Dataset` whose samples and batches are trees."""

    _trees = True

    if TYPE_CHECKING:

        def __iter__(self) -> Iterator[Any]: ...


def _source(chain: Any, reader: Reader | GroupSource | LanceSource | None = None) -> tuple[Any, Options]:
    readers = () if reader is None else ((reader, None),)
    return with_calls(chain), Options(digest=functools.cache(chain.digest), readers=readers)


def _request(requests: int | None, deadline_s: float, storage_options: dict[str, Any] | None) -> Request:
    if not (isinstance(deadline_s, (int, float)) and deadline_s > 0):
        raise Error(f"deadline_s is {deadline_s!r}; expected seconds above 0")
    number = None if requests is None else positive(requests, "requests")
    return Request(number, float(deadline_s), storage_options)


def _from_reader(reader: Reader, size: int, labels: SampleIndex | NDArray[np.int64], digest: str) -> Dataset:
    chain = Chain.from_reader(size, reader.read, reader.name, labels, digest, reader.announce, reader.wants_more)
    return Dataset(*_source(chain, reader))


def _indexed(index: SampleIndex, parse: Callable[[bytes], Any] | None, how: Request) -> Dataset:
    if index.kind == FILES:
        if parse is not None:
            raise Error("the index lists files, which are not parsed; use map()")
        if not has_urls(index):
            return Dataset(*_source(Chain.from_index(index)))
        return _from_reader(Reader(index, how), len(index), index, index.digest)
    reader = Reader(index, how)
    if index.kind == TAR and parse is None:
        made: Callable[[Any], Any] = tar_sample
    elif index.kind == TFRECORD:
        made = example if parse is None else lambda data: parse(tfrecord_content(data))
    else:
        raise Error(f"an index of the kind {index.kind!r} cannot be read in this way", "unsupported")
    return _trees(len(index), lambda i: made(reader.read(i)), reader, index.digest)


def _trees(size: int, get: Callable[[int], Any], reader: Reader | LanceSource, digest: str) -> TreeDataset:
    wants_more = reader.wants_more if isinstance(reader, Reader) else None
    chain = Chain.from_objects(size, get, reader.name, digest, reader.announce, wants_more)
    return TreeDataset(*_source(chain, reader))


def _tables(source: GroupSource) -> TreeDataset:
    chain = Chain.from_objects(len(source), source.__getitem__, source.name, source.digest(), None)
    return TreeDataset(*_source(chain, source))


def _several(paths: Any) -> Any:
    if isinstance(paths, (str, bytes, os.PathLike)):
        raise Error(f"got the single path {os.fspath(paths)!r}; expected a list of paths")
    return paths


def _joined(datasets: Sequence[_D], stage: str, join: Callable[[list[Any]], Any]) -> _D:
    for dataset in datasets:
        if not isinstance(dataset, Dataset):
            raise Error(f"{stage} got a {type(dataset).__name__}; expected datasets")
    if len({type(dataset) for dataset in datasets}) > 1:
        raise Error(f"{stage} got datasets of files and of trees; expected one kind")
    chain = join([dataset._chain for dataset in datasets])
    seeds = {dataset._options.seed for dataset in datasets}
    options = Options(
        seed=seeds.pop() if len(seeds) == 1 else None,
        limits=datasets[0]._options.limits,
        digest=functools.cache(chain.digest),
        readers=tuple(reader for dataset in datasets for reader in dataset._options.readers),
    )
    return type(datasets[0])(chain, options)
