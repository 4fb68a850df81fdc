"""Lists of samples: made by looking through folders and shards, saved, and opened again."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from penstock import _penstock
from penstock.dataset import records
from penstock.dataset.reader import filesystem, opened, read_errors
from penstock.error import Error

SampleIndex = _penstock.dataset.SampleIndex

_T = TypeVar("_T")

#: Kinds of samples that an index lists.
FILES, TAR, TFRECORD = "files", "tar", "tfrecord"


class IndexSummary(NamedTuple):
    """What :func:`penstock.dataset.build_index` has written."""

    kind: str
    samples: int
    sample_bytes: int
    labels: int  #: Different ones.
    digest: str


def build_index(
    inputs: Iterable[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    labels: Sequence[int] | None = None,
    label_folders: bool = False,
    extensions: Sequence[str] = (),
    field: str | None = None,
    label_field: str | None = None,
    storage_options: dict[str, Any] | None = None,
    progress: Callable[[int, int], Any] | None = None,
) -> IndexSummary:
    """Save a list of samples, which :meth:`penstock.Dataset.from_index` opens at once, however long it is.

    Parameters
    ----------
    inputs
        Files and folders (all files below them, sorted by path), or URLs of objects; or shards, which end in ``.tar``,
        ``.tfrecord`` or ``.tfrecords``. One kind in one index.
    out
        The index. Paths below its folder are kept relative to it, so both can move together.
    labels
        One per file.
    label_folders
        The label of a file is the number of its folder, in sorted order.
    extensions
        Only files with these, such as ``[".jpg"]``.
    field, label_field
        For tar files: a sample is the file with the extension ``field``; its label is the integer in the file with the
        extension ``label_field``. Without them, a sample is all files of one stem.
    storage_options
        Of fsspec, for URLs.
    progress
        Is called with (done, total) now and then: files or shards.
    """
    paths = [os.fspath(path) for path in inputs]
    endings = {_kind(path) for path in paths}
    if len(endings) > 1:
        raise Error(f"the inputs are {' and '.join(sorted(endings))}; expected one kind in an index")
    kind = endings.pop() if endings else FILES
    if kind != FILES and (labels is not None or label_folders or extensions):
        raise Error("labels and extensions are for files; name the fields of a tar file's samples instead")
    if kind != TAR and (field or label_field):
        raise Error("only the samples of tar files have fields")
    if label_field and not field:
        raise Error("a label field needs the field that it labels")
    tell = progress or (lambda done, total: None)
    if kind == FILES:
        found = list(_files(paths, tuple(extensions), storage_options))
        numbers = _labels([path for path, _ in found], labels, label_folders)
        entries: Iterator[tuple[str, records.Part]] = (
            (path, records.Part(0, size, label)) for (path, size), label in zip(_told(found, tell), numbers)
        )
    else:
        entries = _shards(_told(paths, tell), kind, field, label_field, storage_options)
    return _write(entries, FILES if field else kind, os.fspath(out))


def scanned(
    shards: Iterable[str | os.PathLike[str]],
    kind: str,
    field: str | None = None,
    label_field: str | None = None,
    storage_options: dict[str, Any] | None = None,
) -> SampleIndex:
    """The index of shards, which is not saved."""
    if isinstance(shards, (str, bytes, os.PathLike)):
        raise Error(f"got the single path {os.fspath(shards)!r}; expected a list of paths")
    paths = [path if "://" in path else os.path.abspath(path) for path in (os.fspath(shard) for shard in shards)]
    with tempfile.TemporaryDirectory(prefix="penstock-index-") as folder:
        out = os.path.join(folder, "index")
        _write(_shards(paths, kind, field, label_field, storage_options), FILES if field else kind, out)
        return open_index(out)


def open_index(path: str | os.PathLike[str]) -> SampleIndex:
    return _penstock.dataset.open_index(os.fsencode(path))


def has_urls(samples: Any) -> bool:
    """Whether a list of samples begins or ends with a URL. Looking at all would take long."""
    return len(samples) > 0 and any(b"://" in samples[at][0] for at in (0, len(samples) - 1))


def _kind(path: str) -> str:
    if path.endswith(".tar"):
        return TAR
    if path.endswith((".tfrecord", ".tfrecords")):
        return TFRECORD
    return FILES


def _files(
    paths: Sequence[str], extensions: tuple[str, ...], storage_options: dict[str, Any] | None
) -> Iterator[tuple[str, int]]:
    for path in paths:
        with read_errors(path):
            if "://" in path:
                yield path, int(filesystem(path, storage_options).size(path))
            elif os.path.isdir(path):
                for folder, folders, names in os.walk(path, onerror=_raise):
                    folders.sort()
                    for name in sorted(names):
                        full = os.path.join(folder, name)
                        if name.endswith(extensions or "") and os.path.isfile(full):
                            yield full, os.stat(full).st_size
            else:
                yield path, os.stat(path).st_size


def _raise(error: OSError) -> None:
    raise error


def _labels(paths: list[str], labels: Sequence[int] | None, label_folders: bool) -> Sequence[int]:
    if labels is not None:
        if label_folders or len(labels) != len(paths):
            raise Error(f"got {len(labels)} labels for {len(paths)} files; pass one for each, or label_folders")
        return labels
    if not label_folders:
        return [0] * len(paths)
    number = {folder: i for i, folder in enumerate(sorted({os.path.dirname(path) for path in paths}))}
    return [number[os.path.dirname(path)] for path in paths]


def _told(items: Sequence[_T], tell: Callable[[int, int], Any]) -> Iterator[_T]:
    """The items, with a call of ``tell(done, total)`` at every thousandth of them, and when all are done."""
    step = max(len(items) // 1000, 1)
    for place, item in enumerate(items):
        if place % step == 0:
            tell(place, len(items))
        yield item
    tell(len(items), len(items))


def _shards(
    paths: Iterable[str], kind: str, field: str | None, label_field: str | None, storage_options: dict[str, Any] | None
) -> Iterator[tuple[str, records.Part]]:
    for path in paths:
        with opened(path, storage_options) as file:
            if kind == TFRECORD:
                parts = records.tfrecord_parts(file, path)
            elif field:
                parts = records.tar_fields(file, path, field, label_field)
            else:
                parts = records.tar_parts(file, path)
            for part in parts:
                yield path, part


def _write(entries: Iterable[tuple[str, records.Part]], kind: str, out: str) -> IndexSummary:
    writer = _penstock.dataset.SampleIndexWriter(os.fsencode(out), kind)
    place = _relative_to(os.path.dirname(os.path.abspath(out)))
    samples, size, labels = 0, 0, set()
    for path, part in entries:
        writer.add(os.fsencode(place(path)), part.begin, part.size, part.label)
        samples += 1
        size += part.size
        labels.add(part.label)
    writer.commit()
    return IndexSummary(kind, samples, size, len(labels), open_index(out).digest)


def _relative_to(folder: str) -> Callable[[str], str]:
    prefix = os.path.join(folder, "")

    def place(path: str) -> str:
        if "://" in path:
            return path
        full = os.path.abspath(path)
        return full[len(prefix) :] if full.startswith(prefix) else full

    return place
