"""Checkpoints as files of other libraries: safetensors and NumPy.

A file holds the arrays under the names of their leaves. What it cannot say (containers, plain values, element types that the
format does not know) is the checkpoint's own metadata, as JSON text beside the arrays. Arrays of such types are stored as
bytes with one more dimension. A file without that text is a flat dictionary of arrays.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import struct
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, unquote

import numpy as np
from numpy.typing import NDArray

from penstock import _penstock
from penstock.checkpoint import Checkpointer
from penstock.checkpoint_tree import Shares, array_leaves, bits_of, dtype_of, encode, is_numpys
from penstock.error import Error
from penstock.layout import Layout

if TYPE_CHECKING:
    from penstock.checkpoint_tree import Saved

_npy: Any = np.lib.format

#: Key of the metadata in a safetensors file, and with ".json" the name of the file beside .npy files.
METADATA = "penstock"
_FORMAT = 1
_BATCH_BYTES = 256 << 20  # read at once from a checkpoint, or one array if that is larger
_BLOCK_BYTES = 16 << 20

# safetensors/src/tensor.rs
_SAFETENSORS = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "int16": "I16", "uint16": "U16", "int32": "I32", "uint32": "U32",
    "int64": "I64", "uint64": "U64", "float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "float8_e8m0fnu": "F8_E8M0", "complex64": "C64",
}  # fmt: skip
_NUMPY_OF = {name: numpy_name for numpy_name, name in _SAFETENSORS.items()}
_MAX_HEADER_BYTES = 100_000_000  # the limit of the safetensors library


class Exported(NamedTuple):
    step: int
    arrays: int
    nbytes: int
    files: list[str]


class _Array(NamedTuple):
    """An array of a file: element type and shape as the format has them."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


class _Source:
    """The arrays of a checkpoint, read one batch after another."""

    def __init__(self, checkpointer: Checkpointer, place: tuple[str, str, str], step: int | None) -> None:
        self._native, self._place = checkpointer._native, place
        self.step, saved, text, metrics, _ = self._native.inspect(step)
        self._identity = self._found()
        content = json.loads(text)
        self.metadata = json.dumps({"format": _FORMAT, "step": self.step, "metrics": metrics, **content})
        self._layouts = {name: Layout(layout) for name, _, layout in saved}
        #: As they are exported, in the order of the tree.
        self.arrays: dict[str, _Array] = {}
        for name, described, shape in array_leaves(content):
            dtype = dtype_of(described)
            self.arrays[name] = _Array(dtype, self._layouts[name].shape if shape is None else shape)

    def _found(self) -> object:
        """What changes if the step is saved again."""
        return [
            (row["generation"], row["sequence"])
            for row in _penstock.list_checkpoints(*self._place)
            if row["step"] == self.step
        ]

    def read(self, names: list[str]) -> Iterator[tuple[str, NDArray[Any]]]:
        """Name and array, in C order."""
        batch: list[str] = []
        size = 0
        for name in names:
            array = self.arrays[name]
            if batch and size + array.nbytes > _BATCH_BYTES:
                yield from self._read(batch)
                batch, size = [], 0
            batch.append(name)
            size += array.nbytes
        yield from self._read(batch)

    def _read(self, names: list[str]) -> Iterator[tuple[str, NDArray[Any]]]:
        if not names:
            return
        found = self._native.restore(self.step, lambda *_: ({}, {}, names))
        if found is None or self._found() != self._identity:
            raise Error(f"step {self.step} was removed or saved again while it was exported; repeat", "io")
        memory = {name: bits for name, _, _, bits in found[1]}
        for name in names:
            dtype, shape = self.arrays[name]
            bits = memory.pop(name)
            if bits is None:
                raise Error(f"'{name}' has no memory", "internal")
            flat = bits.view(dtype)
            if self._layouts[name].storage == "row":
                yield name, flat.reshape(shape)
            else:
                yield name, np.ascontiguousarray(flat.reshape(shape, order="F"))


class _Found(NamedTuple):
    """The content of a file or folder. Arrays refer to its pages, if the format allows it."""

    metadata: str | None
    arrays: dict[str, NDArray[Any]]


# -- safetensors -----------------------------------------------------------------------------------------------------


def _type_named(name: str) -> np.dtype[Any]:
    try:
        return np.dtype(name)
    except TypeError:
        return dtype_of(name)


def _safetensors_type(array: _Array) -> tuple[str, tuple[int, ...]]:
    known = _SAFETENSORS.get(array.dtype.name)
    return (known, array.shape) if known else ("U8", (*array.shape, array.dtype.itemsize))


def _write_safetensors(to: IO[bytes], source: _Source, names: list[str], metadata: dict[str, str]) -> None:
    # The widest elements first: then each array begins at a multiple of its element's size, as the library does it.
    names = sorted(names, key=lambda name: (-source.arrays[name].dtype.itemsize, name))
    header: dict[str, Any] = {"__metadata__": metadata}
    begin = 0
    for name in names:
        array = source.arrays[name]
        known, shape = _safetensors_type(array)
        header[name] = {"dtype": known, "shape": shape, "data_offsets": [begin, begin + array.nbytes]}
        begin += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > _MAX_HEADER_BYTES:
        raise Error(f"names and plain values take {len(text):,} bytes; safetensors allows {_MAX_HEADER_BYTES:,}")
    to.write(struct.pack("<Q", len(text)) + text)
    for _, values in source.read(names):
        to.write(values.reshape(-1).view(np.uint8).data)


def _export_safetensors_file(path: Path, source: _Source, _: int) -> None:
    with _new_file(path) as to:
        _write_safetensors(to, source, list(source.arrays), {"format": "pt", METADATA: source.metadata})


def _export_safetensors_folder(path: Path, source: _Source, shard_bytes: int) -> None:
    """Shards and an index, as Hugging Face's libraries have them."""
    shards: list[list[str]] = [[]]
    size = 0
    for name, array in source.arrays.items():
        if shards[-1] and size + array.nbytes > shard_bytes:
            shards.append([])
            size = 0
        shards[-1].append(name)
        size += array.nbytes
    places: dict[str, str] = {}
    for number, names in enumerate(shards, 1):
        file = "model.safetensors" if len(shards) == 1 else f"model-{number:05}-of-{len(shards):05}.safetensors"
        with open(path / file, "xb") as to:
            more = {METADATA: source.metadata} if number == 1 else {}
            _write_safetensors(to, source, names, {"format": "pt", **more})
        places.update(dict.fromkeys(names, file))
    if len(shards) > 1:
        total = sum(array.nbytes for array in source.arrays.values())
        index = {"metadata": {"total_size": total}, "weight_map": places}
        (path / "model.safetensors.index.json").write_text(json.dumps(index, indent=2), encoding="utf-8")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise Error(f"the name '{twice}' is there twice", "corrupt")
    return found


def _read_safetensors(path: Path) -> _Found:
    size = path.stat().st_size
    with open(path, "rb") as file:
        start = file.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else -1
        if length < 2 or length > _MAX_HEADER_BYTES or 8 + length > size:
            raise Error(f"{path} is no safetensors file, or was cut off in its header", "corrupt")
        try:
            header = json.loads(file.read(length), object_pairs_hook=_unique)
            metadata = header.pop("__metadata__", None) or {}
            described = {
                name: (one["dtype"], tuple(map(int, one["shape"])), *map(int, one["data_offsets"]))
                for name, one in header.items()
            }
        except Error as error:
            raise Error(f"{path}: {error.message}", "corrupt") from None
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise Error(f"{path} is no safetensors file: its header is wrong", "corrupt", cause=str(error)) from None
    pages = np.memmap(path, np.uint8, "r", offset=8 + length) if size > 8 + length else np.empty(0, np.uint8)
    arrays = {}
    for name, (known, shape, begin, end) in described.items():
        if known not in _NUMPY_OF:
            raise Error(f"{path}: '{name}' has elements of {known}, which Penstock does not know", "unsupported")
        dtype = _type_named(_NUMPY_OF[known])
        if min((*shape, begin)) < 0 or end - begin != math.prod(shape) * dtype.itemsize:
            raise Error(f"{path}: '{name}' of {known} {shape} cannot take the bytes {begin} to {end}", "corrupt")
        if end > len(pages):
            raise Error(f"{path} was cut off: '{name}' ends at byte {8 + length + end:,} of {size:,}", "corrupt")
        arrays[name] = pages[begin:end].view(dtype).reshape(shape)
    return _Found(metadata.get(METADATA) if isinstance(metadata, dict) else None, arrays)


def _read_safetensors_folder(path: Path) -> _Found:
    indices = sorted(path.glob("*.safetensors.index.json"))
    files = sorted(path.glob("*.safetensors"))
    places: dict[str, str] | None = None
    if len(indices) > 1:
        raise Error(f"{path} has the indices {', '.join(one.name for one in indices)}; expected one at most")
    if indices:
        try:
            places = dict(json.loads(indices[0].read_text(encoding="utf-8"))["weight_map"])
            files = [path / str(name) for name in dict.fromkeys(places.values())]
        except (ValueError, TypeError, KeyError) as error:
            raise Error(f"{indices[0]} is no index of safetensors files", "corrupt", cause=str(error)) from None
    metadata: str | None = None
    arrays: dict[str, NDArray[Any]] = {}
    for file in files:
        if file.parent != path or not file.is_file():
            raise Error(f"{indices[0]} names '{file}', which is not in {path}", "corrupt")
        found = _read_safetensors(file)
        if twice := found.arrays.keys() & arrays.keys():
            raise Error(f"{path}: two files have the name '{min(twice)}'", "corrupt")
        arrays.update(found.arrays)
        metadata = metadata or found.metadata
    if places is not None and (different := places.keys() ^ arrays.keys()):
        raise Error(f"{indices[0]} and the files do not agree on '{min(different)}'", "corrupt")
    return _Found(metadata, arrays)


# -- NumPy -----------------------------------------------------------------------------------------------------------


def _as_numpy(values: NDArray[Any]) -> NDArray[Any]:
    """Types that a .npy file cannot name as bytes."""
    return values if is_numpys(values.dtype) else values[..., np.newaxis].view(np.uint8)


def _export_npz(path: Path, source: _Source, _: int) -> None:
    with _new_file(path) as to, zipfile.ZipFile(to, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        archive.writestr(f"{METADATA}.json", source.metadata)
        for name, values in source.read(list(source.arrays)):
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                _npy.write_array(member, _as_numpy(values), allow_pickle=False)


def _read_npz(path: Path) -> _Found:
    arrays = {}
    metadata = None
    try:
        with zipfile.ZipFile(path) as archive:
            _unique([(name, None) for name in archive.namelist()])
            for name in archive.namelist():
                with archive.open(name) as member:
                    if name == f"{METADATA}.json":
                        metadata = member.read().decode()
                    elif name.endswith(".npy"):
                        arrays[name.removesuffix(".npy")] = _npy.read_array(member, allow_pickle=False)
    except Error as error:
        raise Error(f"{path}: {error.message}", "corrupt") from None
    except (zipfile.BadZipFile, ValueError, EOFError, NotImplementedError) as error:
        raise Error(f"{path} is no intact .npz file of arrays", "corrupt", cause=str(error)) from None
    return _Found(metadata, arrays)


def _npy_name(name: str) -> str:
    """The file for an array, reversed by unquote()."""
    if any(part in ("", ".", "..") for part in name.split("/")):
        return quote(name, safe="").replace(".", "%2E") + ".npy"
    return quote(name, safe="/") + ".npy"


def _export_npy(path: Path, source: _Source, _: int) -> None:
    for name, values in source.read(list(source.arrays)):
        file = path / _npy_name(name)
        file.parent.mkdir(parents=True, exist_ok=True)
        with open(file, "xb") as to:
            _npy.write_array(to, _as_numpy(values), allow_pickle=False)
    (path / f"{METADATA}.json").write_text(source.metadata, encoding="utf-8")


def _read_npy(path: Path) -> _Found:
    arrays = {}
    for file in sorted(path.rglob("*.npy")):
        name = unquote(str(file.relative_to(path)).removesuffix(".npy"))
        if name in arrays:
            raise Error(f"{path}: two files have the name '{name}'", "corrupt")
        try:
            arrays[name] = np.load(file, mmap_mode="r" if file.stat().st_size > _BLOCK_BYTES else None)
        except (ValueError, EOFError) as error:
            raise Error(f"{file} is no intact .npy file of numbers", "corrupt", cause=str(error)) from None
    try:
        metadata = (path / f"{METADATA}.json").read_text(encoding="utf-8")
    except FileNotFoundError:
        metadata = None
    return _Found(metadata, arrays)


# -- files and folders -----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _new_file(path: Path) -> Iterator[IO[bytes]]:
    """A file that appears under its name once it is complete and durable."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.") as to:
        yield to.file
        to.flush()
        os.fchmod(to.fileno(), 0o666 & ~_umask())
        os.fsync(to.fileno())
        try:
            os.link(to.name, path)
        except FileExistsError:
            raise _exists(path) from None
    _sync(path.parent)


@contextlib.contextmanager
def _new_folder(path: Path) -> Iterator[Path]:
    """A folder that appears under its name once it is complete and durable."""
    made = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    try:
        yield made
        for folder, _, names in os.walk(made, topdown=False):
            for name in names:
                _sync(Path(folder) / name)
            _sync(Path(folder))
        os.chmod(made, 0o777 & ~_umask())
        if path.exists():
            raise _exists(path)
        os.rename(made, path)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
    _sync(path.parent)


def _umask() -> int:
    found = os.umask(0)
    os.umask(found)
    return found


def _sync(path: Path) -> None:
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _exists(path: Path) -> Error:
    return Error(f"the output '{path}' exists; remove it, or give another name", "exists")


#: Formats of files, by the end of their names.
_FILES = {".safetensors": _export_safetensors_file, ".npz": _export_npz}
#: Formats of folders, by name.
FOLDERS = {"safetensors": _export_safetensors_folder, "npy": _export_npy}


def export(
    place: tuple[str, str, str],
    output: Path,
    step: int | None = None,
    folder: str = "safetensors",
    shard_bytes: int = 5 << 30,
) -> Exported:
    """Write a checkpoint of `place` (url, burst buffer, run) to the new file or folder `output`.

    A name that ends with .safetensors or .npz is a file. Otherwise it is a folder of a format of FOLDERS. Reads an array after
    another: takes memory for 256 MiB, or for the largest array. Raises penstock.Error and OSError.
    """
    url, burst_buffer, run = place
    if os.path.lexists(output):
        raise _exists(output)
    if not output.parent.is_dir():
        raise Error(
            f"the directory of the output '{output}' does not exist; make it, or give another name", "not_found"
        )
    if shard_bytes < 1:
        raise Error(f"shard_bytes is {shard_bytes}; expected at least 1")
    _penstock.inspect_checkpoint(url, burst_buffer, run, step)  # makes no place that does not exist
    with Checkpointer(url, burst_buffer or None, run=run or None) as checkpointer:
        source = _Source(checkpointer, place, step)
        if output.suffix in _FILES:
            _FILES[output.suffix](output, source, shard_bytes)
            files = [output.name]
        else:
            with _new_folder(output) as made:
                FOLDERS[folder](made, source, shard_bytes)
            files = sorted(str(file.relative_to(output)) for file in output.rglob("*") if file.is_file())
    return Exported(source.step, len(source.arrays), sum(array.nbytes for array in source.arrays.values()), files)


def _read(path: Path) -> _Found:
    if path.is_dir():
        if any(path.glob("*.safetensors")) or any(path.glob("*.safetensors.index.json")):
            return _read_safetensors_folder(path)
        if any(path.rglob("*.npy")) or (path / f"{METADATA}.json").exists():
            return _read_npy(path)
        raise Error(f"{path} has no .safetensors and no .npy files")
    if path.suffix == ".npz":
        return _read_npz(path)
    if path.suffix == ".safetensors":
        return _read_safetensors(path)
    raise Error(f"'{path}' is no folder, and its name ends neither with .safetensors nor with .npz")


def import_files(path: Path, place: tuple[str, str, str], step: int | None = None) -> Exported:
    """Save the arrays of `path` as a checkpoint of `place` (url, burst buffer, run), which is drained when this returns.

    `step` is needed for files that Penstock did not export. Takes memory for all arrays, and for those of a .npz file twice.
    The checkpoint is the newest then, and a job that saves to the place is fenced. Raises penstock.Error and OSError.
    """
    found = _read(path)
    try:
        if found.metadata is None:
            content, arrays = _foreign(found.arrays)
        else:
            content, arrays = _own(found)
    except Error as error:
        raise Error(f"{path}: {error.message}", error.code) from None
    saved_step, metrics = content.pop("step", None), content.pop("metrics", {})
    step = saved_step if step is None else step
    if step is None:
        raise Error(f"{path} says no step; give one (--step)")
    url, burst_buffer, run = place
    with Checkpointer(url, burst_buffer or None, run=run or None) as checkpointer:
        if step in checkpointer.steps():
            raise Error(f"there is a checkpoint of step {step} at {url}; remove it, or give another step", "exists")
        checkpointer._native.save(step, arrays, json.dumps(content), metrics, []).wait("drained")
    return Exported(step, len(arrays), sum(bits.nbytes for _, _, _, bits in arrays if bits is not None), [])


def _foreign(found: Mapping[str, NDArray[Any]]) -> tuple[dict[str, Any], list[Saved]]:
    arrays: list[Saved] = []
    return {"tree": encode(dict(found), "", arrays, Shares(0, 1))}, arrays


def _own(found: _Found) -> tuple[dict[str, Any], list[Saved]]:
    """The metadata, checked against the arrays, and the arrays as they were saved."""
    try:
        content = json.loads(found.metadata or "")
        if content.pop("format") != _FORMAT:
            raise Error("it was exported by a newer Penstock; use that", "unsupported")
        leaves = list(array_leaves(content))
        if not isinstance(content["step"], int) or not all(isinstance(name, str) for name, _, _ in leaves):
            raise TypeError("wrong types")
        content["metrics"] = {str(name): float(value) for name, value in content.get("metrics", {}).items()}
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError) as error:
        raise Error("what Penstock has stored beside the arrays was changed", "corrupt", cause=str(error)) from None
    names = [name for name, _, _ in leaves]
    _unique([(name, None) for name in names])
    if different := set(names) ^ found.arrays.keys():
        missing = min(different)
        raise Error(f"'{missing}' is {'missing' if missing in names else 'no part of the checkpoint'}", "corrupt")
    arrays: list[Saved] = []
    for name, described, shape in leaves:
        dtype, values = dtype_of(described), found.arrays[name]
        if values.dtype != dtype:  # stored as bytes
            if values.dtype != np.uint8 or values.shape[-1:] != (dtype.itemsize,):
                raise Error(f"'{name}' has elements of {values.dtype}; expected {dtype}, or their bytes", "corrupt")
            values = np.ascontiguousarray(values).view(dtype)[..., 0]
        if shape is not None and values.shape != shape:
            raise Error(f"'{name}' has the shape {values.shape}; expected {shape}", "corrupt")
        flat = np.ascontiguousarray(values).reshape(-1)
        bits, saved = bits_of(flat)
        whole = values.shape
        if bits is None:
            bits, saved, whole = flat.view(np.uint8), "uint8", (flat.nbytes,)
        arrays.append((name, saved, Layout.whole(whole)._native, bits))
    return content, arrays
