"""Shards that hold many samples: tar files as WebDataset writes them, and TFRecord files."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from penstock import _penstock
from penstock.error import Error


class Part(NamedTuple):
    """The bytes of one sample in a shard."""

    begin: int
    size: int
    label: int = 0


def tar_parts(file: Any, name: str) -> Iterator[Part]:
    """The samples of a tar file: neighbouring files with one stem."""
    stem, begin, end = None, 0, 0
    for member in _members(file, name):
        own = _stem(member.name)[0]
        if own != stem:
            if stem is not None:
                yield Part(begin, end - begin)
            stem, begin = own, member.offset
        end = member.offset_data + (member.size + 511) // 512 * 512
    if stem is not None:
        yield Part(begin, end - begin)


def tar_fields(file: Any, name: str, field: str, label: str | None) -> Iterator[Part]:
    """The files with the extension ``field`` of a tar file's samples; labels are integers in files with another one."""
    stem: str | None = None
    found: Part | None = None
    number: int | None = None

    def finished() -> Iterator[Part]:
        if stem is None:
            return
        if found is None or (label is not None and number is None):
            missing = field if found is None else label
            raise Error(f"the sample {stem} of {name} has no file .{missing}", "not_found")
        yield found._replace(label=number or 0)

    for member in _members(file, name):
        own, extension = _stem(member.name)
        if own != stem:
            yield from finished()
            stem, found, number = own, None, None
        if extension == field:
            found = Part(member.offset_data, member.size)
        elif extension == label:
            place = file.tell()
            file.seek(member.offset_data)
            text = file.read(min(member.size, 64))
            file.seek(place)
            try:
                number = int(text)
            except ValueError:
                raise Error(f"{member.name} of {name} holds {text!r}; expected an integer label", "corrupt") from None
    yield from finished()


def tar_sample(data: Any) -> dict[str, Any]:
    """A sample of a tar file as a dict of its files' bytes by extension; ``__key__`` is its stem."""
    sample: dict[str, Any] = {}
    file = io.BytesIO(data)
    for member in _members(file, "the sample"):
        stem, extension = _stem(member.name)
        sample["__key__"] = stem
        sample[extension] = bytes(data[member.offset_data : member.offset_data + member.size])
    return sample


def _members(file: Any, name: str) -> Iterator[tarfile.TarInfo]:
    try:
        with tarfile.open(fileobj=file, mode="r:") as tar:
            while (member := tar.next()) is not None:
                tar.members = []  # type: ignore[attr-defined]  # tarfile keeps all of them
                if member.isreg():
                    yield member
    except tarfile.ReadError as error:
        raise Error(f"{name} is no uncompressed tar file", "corrupt", cause=str(error)) from None


def _stem(name: str) -> tuple[str, str]:
    """WebDataset's: the extension begins at the first dot of the file's name."""
    folder, base = os.path.split(name)
    stem, _, extension = base.partition(".")
    return os.path.join(folder, stem), extension


def tfrecord_parts(file: Any, name: str) -> Iterator[Part]:
    """The records of a TFRecord file, with their frames."""
    begin = 0
    file.seek(0, os.SEEK_END)
    file_bytes = file.tell()
    file.seek(0)
    while header := file.read(12):
        try:
            size = _penstock.dataset.tfrecord_size(header)
        except Error as error:
            raise Error(f"{name} at {begin} {error}; compressed files must be expanded first", "corrupt") from None
        if begin + size > file_bytes:
            raise Error(f"{name} is cut off in its record at {begin}", "corrupt")
        yield Part(begin, size)
        begin += size
        file.seek(begin)


def tfrecord_content(record: Any) -> bytes:
    """The content of a record, whose checksums are checked."""
    return _penstock.dataset.tfrecord(record)


def example(record: Any) -> dict[str, Any]:
    """A ``tf.train.Example``: int64 and float32 arrays, and bytes (a tuple of them if there is not one)."""
    features: dict[str, Any] = {}
    for number, features_message in _fields(memoryview(tfrecord_content(record))):
        if number != 1:
            continue
        for number, entry in _fields(features_message):
            parts = dict(_fields(entry)) if number == 1 else {}
            if 1 in parts:
                features[str(parts[1], "utf-8")] = _feature(parts.get(2, memoryview(b"")))
    return features


def _feature(message: memoryview) -> Any:
    value: Any = None
    for kind, values in _fields(message):
        if kind == 1:
            strings = tuple(bytes(each) for _, each in _fields(values))
            value = strings[0] if len(strings) == 1 else strings
        elif kind == 2:
            value = np.concatenate([np.zeros(0, "<f4"), *(np.frombuffer(each, "<f4") for _, each in _fields(values))])
        elif kind == 3:
            value = np.concatenate([np.zeros(0, np.int64), *(_integers(each) for _, each in _fields(values))])
    return value


def _integers(data: Any) -> Any:
    """Packed varints; one of them if it is not packed."""
    if isinstance(data, int):
        return np.array([data], np.uint64).view(np.int64)
    raw = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(raw < 128)
    if len(raw) and (not len(ends) or ends[-1] != len(raw) - 1):
        raise ValueError("a tf.train.Example ends within a number")
    begins = np.concatenate([[0], ends[:-1] + 1]) if len(ends) else ends
    if len(ends) and int((ends - begins).max()) > 9:
        raise ValueError("a tf.train.Example has a number of more than 10 bytes")
    shifts = 7 * (np.arange(len(raw)) - np.repeat(begins, ends - begins + 1)).astype(np.uint64)
    pieces = (raw & 127).astype(np.uint64) << shifts
    return (np.add.reduceat(pieces, begins) if len(ends) else pieces).view(np.int64)


def _fields(message: memoryview) -> Iterator[tuple[int, Any]]:
    """(number, value) of the fields of a Protocol Buffers message."""
    place = 0
    while place < len(message):
        tag, place = _varint(message, place)
        wire = tag & 7
        if wire == 0:
            value, place = _varint(message, place)
            yield tag >> 3, value
            continue
        if wire == 2:
            size, place = _varint(message, place)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError(f"a field of a tf.train.Example has the unknown wire type {wire}")
        if size > len(message) - place:
            raise ValueError("a tf.train.Example is cut off")
        yield tag >> 3, message[place : place + size]
        place += size


def _varint(message: memoryview, place: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if place >= len(message):
            raise ValueError("a tf.train.Example is cut off")
        byte = message[place]
        place += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & 0xFFFF_FFFF_FFFF_FFFF, place
    raise ValueError("a tf.train.Example has a number of more than 10 bytes")
