"""Parallel files: the methods of mpi4py's ``MPI.File`` on a versioned store.

Each write is atomic and makes one version, without locks. A collective write of all ranks makes one version. A snapshot
keeps its content while others write.
"""

from __future__ import annotations

import contextlib
import operator
from typing import TYPE_CHECKING, Any

from penstock import _penstock, mpi_abi
from penstock.comm import Comm
from penstock.datatype import flatten
from penstock.error import Error
from penstock.message import Derived, memory_of, message
from penstock.request import Request
from penstock.store import Blob, Store, split_blob_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

if TYPE_CHECKING:
    from mpi4py import MPI
else:
    MPI = mpi_abi.import_mpi()

_WHENCE = {
    MPI.SEEK_SET: _penstock.Whence.set,
    MPI.SEEK_CUR: _penstock.Whence.current,
    MPI.SEEK_END: _penstock.Whence.end,
}


_ERRHANDLERS = (MPI.ERRORS_RETURN, MPI.ERRORS_ARE_FATAL, MPI.ERRORS_ABORT)


class FileRequest(Request):
    """An access that has been started. The buffer belongs to it until it is complete."""

    def Wait(self, status: Any = None) -> bool:
        """Wait until the access is complete. Raises its Error, if any."""
        pending, self._pending = self._pending, None
        if pending is not None:
            _set_count(status, pending.wait() or 0)
            self._complete()
        return True

    def Test(self, status: Any = None) -> bool:
        """Whether the access is complete. Raises its Error, if any."""
        if self._pending is not None and not self._pending.test():
            return False
        return self.Wait(status)


FileRequest.__name__ = "penstock.FileRequest"


class File:
    """A file that all ranks of a communicator share. Made by `File.Open`. As a context manager it closes itself.

    Offsets count etypes of the view, as in MPI. Buffers are anything that mpi4py takes, including derived datatypes.
    Methods with ``_all`` or ``_ordered`` in their names are collective, and so are `Open`, `Close`, `Set_view`, `Set_size`,
    `Preallocate`, `Set_atomicity`, `Seek_shared` and `Sync`. If a collective call fails on one rank, it raises on all
    ranks and writes nothing.

    Writes return the version that they made; mpi4py's return None. ``File(file)`` is another handle of the same open file,
    for constructors of subclasses. `File()` is closed and equals ``MPI.FILE_NULL``.
    """

    _core: _penstock.File | None

    def __new__(cls, file: File | None = None) -> File:
        if file is not None and not isinstance(file, File) and file != MPI.FILE_NULL:
            raise Error(f"file is a {type(file).__name__}; expected a penstock.File, which File.Open opens")
        self = super().__new__(cls)
        if isinstance(file, File):
            self.__dict__ = file.__dict__
        else:
            self._core = None
        return self

    def _open(self, core: _penstock.File, comm: Comm | None, amode: int, url: str) -> File:
        self._core = core
        self._comm = comm
        self._own_comm = False
        self._amode = amode
        self._url = url
        self._etype = MPI.BYTE
        self._filetype = MPI.BYTE
        self._displacement = 0
        self._info: dict[str, str] = {}
        self._split: tuple[str, FileRequest, Any] | None = None  # keeps the buffer alive
        self._errhandler = MPI.ERRORS_RETURN
        return self

    @classmethod
    def Open(cls, comm: Any, filename: str, amode: int = MPI.MODE_RDONLY, info: Any = None) -> File:
        """Open the blob that ends a store's URL: "file:///scratch/run7/field". Collective.

        Parameters
        ----------
        comm : penstock.Comm, mpi4py.MPI.Intracomm or None
            None opens the file for this process alone.
        filename : str
            URL of the store, "/", and the name of the blob. Equal on all ranks.
        amode : int
            MODE_* constants of mpi4py. MODE_CREATE also makes the store; MODE_DELETE_ON_CLOSE removes the blob.
        info : mpi4py.MPI.Info or dict, optional
            "penstock_durable": "false" makes only `Sync` survive a power loss. Default: every write does.
        """
        own = comm is not None and not isinstance(comm, Comm)
        used = Comm(comm) if own else comm
        group = None if used is None else used._open()
        try:
            options = _options(filename, amode, info)
        except Error as error:
            if group is not None:
                group.fail_next(str(error))  # the other ranks wait in File.open
            raise
        core = _penstock.File.open(group, filename, options)
        file = cls.__new__(cls)._open(core, used, amode, filename)
        file._own_comm = own
        file.Set_info(info)
        return file

    @classmethod
    def Delete(cls, filename: str, info: Any = None) -> None:
        """Remove the blob that ends a store's URL, with all its versions and tags. Local."""
        place, name = split_blob_url(filename)
        Store(place, create=False).remove(name)

    def Close(self) -> None:
        """Close the file. With MODE_DELETE_ON_CLOSE, remove the blob and all its versions. Collective."""
        self._opened().close()
        self._core = None
        if self._own_comm and self._comm is not None:
            self._comm.free()
        self._comm = None

    def free(self) -> None:
        """`Close`, if the file is open."""
        if self:
            self.Close()

    def __bool__(self) -> bool:
        return self._core is not None

    # No hash, as in mpi4py: equality changes when a file is closed.
    def __eq__(self, other: object) -> bool:
        if isinstance(other, File):
            return self._core is other._core
        return not self and not other if isinstance(other, type(MPI.FILE_NULL)) else NotImplemented

    def __reduce__(self) -> tuple[Any, ...]:
        if self:  # the message is mpi4py's
            raise ValueError(f"cannot serialize '{type(self).__module__}.{type(self).__name__}' instance")
        return (type(self), ())

    def __enter__(self) -> File:
        return self

    def __exit__(self, error: object, *rest: object) -> None:
        # After an error the other ranks may never reach a collective Close.
        if error is None:
            self.Close()

    # ---- what this file is

    def _opened(self) -> _penstock.File:
        if self._core is None:
            raise Error("this file has been closed, or was not made by penstock.File.Open")
        return self._core

    @property
    def blob(self) -> Blob:
        """The versioned blob that holds the file: its log and its other versions."""
        return Blob(self._opened().blob)

    @property
    def version(self) -> int:
        """The version of a snapshot, else the newest version."""
        return self._opened().version

    @property
    def amode(self) -> int:
        return self._amode

    def Get_amode(self) -> int:
        return self._amode

    def Get_group(self) -> MPI.Group:
        """The group of the ranks that opened this file."""
        handle = MPI.COMM_SELF if self._comm is None else self._comm
        return handle.Get_group()

    @property
    def group(self) -> MPI.Group:
        return self.Get_group()

    def _of_group(self, name: str) -> int:
        group = self.Get_group()
        try:
            value: int = getattr(group, name)
            return value
        finally:
            group.Free()

    @property
    def group_size(self) -> int:
        return self._of_group("size")

    @property
    def group_rank(self) -> int:
        return self._of_group("rank")

    def Get_errhandler(self) -> MPI.Errhandler:
        """The handler that `Set_errhandler` set. Default: MPI.ERRORS_RETURN."""
        self._opened()
        # The caller may free the result, and MPI counts only handles that an object returns, not copies.
        holder = MPI.COMM_SELF
        before = holder.Get_errhandler()
        holder.Set_errhandler(self._errhandler)
        try:
            return holder.Get_errhandler()
        finally:
            holder.Set_errhandler(before)
            before.Free()

    def Set_errhandler(self, errhandler: Any) -> None:
        """Remember one of MPI's predefined handlers. Errors are always raised as penstock.Error and never abort."""
        self._opened()
        if errhandler not in _ERRHANDLERS:
            raise Error(
                "a file's errors are raised as penstock.Error; expected MPI.ERRORS_RETURN, MPI.ERRORS_ARE_FATAL or "
                "MPI.ERRORS_ABORT instead of an error handler of the user",
                "unsupported",
            )
        self._errhandler = next(known for known in _ERRHANDLERS if known == errhandler)

    def Call_errhandler(self, errorcode: int) -> None:
        """Do nothing, as MPI.ERRORS_RETURN does."""
        self._opened()

    def Set_info(self, info: Any) -> None:
        """Remember hints. Only the info given to `Open` has an effect. Collective."""
        if info is not None and info != MPI.INFO_NULL:
            self._info.update({str(key): str(info.get(key)) for key in info})

    def Get_info(self) -> MPI.Info:
        """A new MPI.Info with the hints of `Open` and `Set_info`. The caller frees it."""
        return MPI.Info.Create(self._info)

    @property
    def info(self) -> MPI.Info:
        return self.Get_info()

    @info.setter
    def info(self, info: Any) -> None:
        self.Set_info(info)

    def Get_type_extent(self, datatype: MPI.Datatype) -> int:
        """Extent of `datatype` in the file, in bytes: as in memory, since the data representation is native."""
        return datatype.extent

    def Get_size(self) -> int:
        """Size of the file in bytes."""
        return self._opened().size

    @property
    def size(self) -> int:
        return self.Get_size()

    def Set_size(self, size: int) -> None:
        """Truncate, or extend with zeros. `size` is in bytes. Collective."""
        self._opened().set_size(size)

    def Preallocate(self, size: int) -> None:
        """Extend with zeros to at least `size` bytes. Never truncates. Collective."""
        self._opened().preallocate(size)

    def Set_atomicity(self, flag: bool) -> None:
        """Remember the flag. Every access is atomic in either mode. Collective."""
        self._opened().set_atomicity(bool(flag))

    def Get_atomicity(self) -> bool:
        return self._opened().atomicity

    @property
    def atomicity(self) -> bool:
        return self.Get_atomicity()

    @atomicity.setter
    def atomicity(self, flag: bool) -> None:
        self.Set_atomicity(flag)

    def Sync(self) -> None:
        """Make earlier writes of all ranks durable, and visible to all ranks. Collective."""
        self._opened().sync()

    def snapshot(self, version: int | None = None) -> File:
        """A read-only file at one version, by default the newest, with this file's view and a pointer of its own.

        Later writes do not change it. Local, and so are all its methods.
        """
        pinned = File()._open(self._opened().snapshot(version), None, MPI.MODE_RDONLY, self._url)
        pinned._etype, pinned._filetype, pinned._displacement = self._etype, self._filetype, self._displacement
        return pinned

    # ---- views and pointers

    def Set_view(
        self, disp: int = 0, etype: Any = None, filetype: Any = None, datarep: str = "native", info: Any = None
    ) -> None:
        """Show the bytes of `filetype`, repeated from byte `disp` on, in units of `etype`. Collective; ranks may differ.

        `filetype` is any MPI datatype whose bytes ascend: subarray, vector, indexed, struct, resized and so on.
        """
        with self._or_fail_on_all():
            if datarep != "native":
                raise Error(f'the data representation {datarep!r} is not supported; use "native"', "unsupported")
            etype = MPI.BYTE if etype is None else etype
            filetype = etype if filetype is None else filetype
            etype_bytes, shown = etype.Get_size(), flatten(filetype)
        self._opened().set_view(disp, etype_bytes, shown)
        self._displacement, self._etype, self._filetype = disp, etype, filetype

    def Get_view(self) -> tuple[int, MPI.Datatype, MPI.Datatype, str]:
        """The view as (disp, etype, filetype, datarep)."""
        return self._displacement, self._etype, self._filetype, "native"

    def Seek(self, offset: int, whence: int = MPI.SEEK_SET) -> None:
        self._opened().seek(_seek_offset(offset), _whence(whence))

    def Get_position(self) -> int:
        return self._opened().position

    def Seek_shared(self, offset: int, whence: int = MPI.SEEK_SET) -> None:
        """Collective."""
        with self._or_fail_on_all():
            offset, origin = _seek_offset(offset), _whence(whence)
        self._opened().seek_shared(offset, origin)

    def Get_position_shared(self) -> int:
        return self._opened().position_shared

    def Get_byte_offset(self, offset: int) -> int:
        """The position in the file, in bytes, of an offset of the view."""
        return self._opened().byte_offset(offset)

    # ---- data access. A write makes one version; so does a collective write of all ranks

    def Write_at(self, offset: int, buf: Any, status: Any = None) -> int:
        return self._write("write_at", buf, status, offset)

    def Write_at_all(self, offset: int, buf: Any, status: Any = None) -> int:
        return self._write("write_at_all", buf, status, offset)

    def Write(self, buf: Any, status: Any = None) -> int:
        return self._write("write", buf, status)

    def Write_all(self, buf: Any, status: Any = None) -> int:
        return self._write("write_all", buf, status)

    def Write_ordered(self, buf: Any, status: Any = None) -> int:
        return self._write("write_ordered", buf, status)

    def Read_at(self, offset: int, buf: Any, status: Any = None) -> None:
        self._read("read_at", buf, status, offset)

    def Read_at_all(self, offset: int, buf: Any, status: Any = None) -> None:
        self._read("read_at_all", buf, status, offset)

    def Read(self, buf: Any, status: Any = None) -> None:
        self._read("read", buf, status)

    def Read_all(self, buf: Any, status: Any = None) -> None:
        self._read("read_all", buf, status)

    def Read_ordered(self, buf: Any, status: Any = None) -> None:
        self._read("read_ordered", buf, status)

    def Write_shared(self, buf: Any, status: Any = None) -> int:
        """Write at the shared pointer and advance it. Local: no rank waits for another.

        Each access gets a place of its own. The order of concurrent accesses is undefined, as in MPI.
        """
        return self._write("write_shared", buf, status)

    def Read_shared(self, buf: Any, status: Any = None) -> None:
        self._read("read_shared", buf, status)

    def Iwrite_shared(self, buf: Any) -> FileRequest:
        return self._start_write("start_write_shared", buf)

    def Iread_shared(self, buf: Any) -> FileRequest:
        return self._start_read("start_read_shared", buf)

    def Iwrite_at(self, offset: int, buf: Any) -> FileRequest:
        return self._start_write("start_write_at", buf, offset)

    def Iread_at(self, offset: int, buf: Any) -> FileRequest:
        return self._start_read("start_read_at", buf, offset)

    def Iwrite_at_all(self, offset: int, buf: Any) -> FileRequest:
        """Start `Write_at_all`. Collective. Collective accesses of one file run in the order of their calls."""
        return self._start_write("start_write_at_all", buf, offset)

    def Iread_at_all(self, offset: int, buf: Any) -> FileRequest:
        """Start `Read_at_all`. Collective, as :meth:`Iwrite_at_all`."""
        return self._start_read("start_read_at_all", buf, offset)

    def Iwrite(self, buf: Any) -> FileRequest:
        return self._advancing(self.Iwrite_at, buf)

    def Iread(self, buf: Any) -> FileRequest:
        return self._advancing(self.Iread_at, buf)

    def Iwrite_all(self, buf: Any) -> FileRequest:
        return self._advancing(self.Iwrite_at_all, buf)

    def Iread_all(self, buf: Any) -> FileRequest:
        return self._advancing(self.Iread_at_all, buf)

    # ---- split collectives: one at a time per file; _begin and _end take the same buffer

    def Write_at_all_begin(self, offset: int, buf: Any) -> None:
        self._begin("Write_at_all", buf, lambda: self.Iwrite_at_all(offset, buf))

    def Read_at_all_begin(self, offset: int, buf: Any) -> None:
        self._begin("Read_at_all", buf, lambda: self.Iread_at_all(offset, buf))

    def Write_all_begin(self, buf: Any) -> None:
        self._begin("Write_all", buf, lambda: self.Iwrite_all(buf))

    def Read_all_begin(self, buf: Any) -> None:
        self._begin("Read_all", buf, lambda: self.Iread_all(buf))

    def Write_ordered_begin(self, buf: Any) -> None:
        self._begin("Write_ordered", buf, lambda: self._start_write("start_write_ordered", buf))

    def Read_ordered_begin(self, buf: Any) -> None:
        self._begin("Read_ordered", buf, lambda: self._start_read("start_read_ordered", buf))

    def Write_at_all_end(self, buf: Any, status: Any = None) -> None:
        self._end("Write_at_all", buf, status)

    def Read_at_all_end(self, buf: Any, status: Any = None) -> None:
        self._end("Read_at_all", buf, status)

    def Write_all_end(self, buf: Any, status: Any = None) -> None:
        self._end("Write_all", buf, status)

    def Read_all_end(self, buf: Any, status: Any = None) -> None:
        self._end("Read_all", buf, status)

    def Write_ordered_end(self, buf: Any, status: Any = None) -> None:
        self._end("Write_ordered", buf, status)

    def Read_ordered_end(self, buf: Any, status: Any = None) -> None:
        self._end("Read_ordered", buf, status)

    def _begin(self, name: str, buf: Any, start: Callable[[], FileRequest]) -> None:
        with self._or_fail_on_all():
            if self._split is not None:
                begun = self._split[0]
                raise Error(f"{name}_begin while {begun}_begin has not been ended; call {begun}_end first")
        self._split = (name, start(), buf)

    def _end(self, name: str, buf: Any, status: Any) -> None:
        if self._split is None or self._split[0] != name:
            begun = "none has been begun" if self._split is None else f"{self._split[0]}_begin was called"
            raise Error(f"{name}_end, but {begun}; call {name}_begin first")
        _, request, _ = self._split
        self._split = None
        request.Wait(status)

    # ---- shared by the methods above; `access` names a method of _penstock.File, collective if it ends with _all or _ordered

    def _write(self, access: str, buf: Any, status: Any, *offset: int) -> int:
        given = self._message(access, buf)
        write = getattr(self._opened(), access)
        version: int = write(*offset, given.pack() if isinstance(given, Derived) else given)
        if status is not None:
            _set_count(status, _size(buf))
        return version

    def _read(self, access: str, buf: Any, status: Any, *offset: int) -> None:
        given = self._message(access, buf)
        call = getattr(self._opened(), access)
        if isinstance(given, Derived):
            data = given.receive_buffer(keep=True)
            count = call(*offset, data)
            given.unpack(data)
        else:
            count = call(*offset, given)
        _set_count(status, count)

    def _start_write(self, access: str, buf: Any, *offset: int) -> FileRequest:
        given = self._message(access, buf)
        return FileRequest(
            getattr(self._opened(), access)(*offset, given.pack() if isinstance(given, Derived) else given)
        )

    def _start_read(self, access: str, buf: Any, *offset: int) -> FileRequest:
        given = self._message(access, buf)
        call = getattr(self._opened(), access)
        if not isinstance(given, Derived):
            return FileRequest(call(*offset, given))
        # Bytes beyond the end of the file keep their values, so the packed memory starts with them.
        data = given.receive_buffer(keep=True)
        return FileRequest(call(*offset, data), lambda: given.unpack(data))

    def _message(self, access: str, buf: Any) -> Any:
        if not access.endswith(("_all", "_ordered")):
            return message(buf)
        with self._or_fail_on_all():
            return message(buf)

    @contextlib.contextmanager
    def _or_fail_on_all(self) -> Iterator[None]:
        """Checks arguments of a collective call. If they are wrong, the call fails on all ranks: nobody waits for this one."""
        try:
            yield
        except Exception as error:
            self._opened().fail_next(str(error))
            raise

    def _advancing(self, start: Callable[[int, Any], FileRequest], buf: Any) -> FileRequest:
        """Start an access at the individual pointer and advance the pointer."""
        request = start(self._opened().position, buf)
        self._opened().seek(_size(buf) // self._etype.Get_size(), _penstock.Whence.current)
        return request

    def __repr__(self) -> str:
        return f"<File {self._url}>"


def _options(filename: str, amode: int, info: Any) -> _penstock.FileOptions:
    access = amode & (MPI.MODE_RDONLY | MPI.MODE_WRONLY | MPI.MODE_RDWR)
    if access not in (MPI.MODE_RDONLY, MPI.MODE_WRONLY, MPI.MODE_RDWR):
        raise Error(f"{filename}: the mode {amode} has not exactly one of MODE_RDONLY, MODE_WRONLY and MODE_RDWR")
    if access == MPI.MODE_RDONLY and amode & MPI.MODE_CREATE:
        raise Error(f"{filename}: MODE_CREATE needs MODE_WRONLY or MODE_RDWR")
    options = _penstock.FileOptions()
    options.read = access != MPI.MODE_WRONLY
    options.write = access != MPI.MODE_RDONLY
    options.create = bool(amode & MPI.MODE_CREATE)
    options.exclusive = bool(amode & MPI.MODE_EXCL)
    options.append = bool(amode & MPI.MODE_APPEND)
    options.delete_on_close = bool(amode & MPI.MODE_DELETE_ON_CLOSE)
    if info is not None and info != MPI.INFO_NULL:
        durable = str(info.get("penstock_durable") or "true").lower()
        if durable not in ("true", "false"):
            raise Error(f'the info key penstock_durable is {durable!r}; expected "true" or "false"')
        options.durable = durable == "true"
    return options


def _seek_offset(offset: int) -> int:
    if not -(1 << 63) <= operator.index(offset) < 1 << 63:
        raise Error(f"the offset {offset} is beyond 2^63")
    return operator.index(offset)


def _whence(whence: int) -> _penstock.Whence:
    try:
        return _WHENCE[whence]
    except KeyError:
        raise Error(f"whence is {whence}; expected MPI.SEEK_SET, MPI.SEEK_CUR or MPI.SEEK_END") from None


def _set_count(status: Any, size_bytes: int) -> None:
    if status is not None:
        status.Set_elements(MPI.BYTE, size_bytes)


def _size(buf: Any) -> int:
    given = message(buf)
    if given is None:
        return 0
    if isinstance(given, Derived):
        return given.size_bytes
    if not isinstance(given, tuple):
        return memory_of(given).size_bytes
    array: Any
    offset: int
    size: int
    array, offset, size, _ = given
    return memory_of(array).size_bytes - offset if size < 0 else size
