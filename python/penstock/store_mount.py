"""A read-only file system of a store: every version of every blob is a plain file. Needs libfuse and `mfusepy`.

    DIR/<blob>/versions/<number>      one version, immutable
    DIR/<blob>/latest                 link to the newest version
    DIR/<blob>/tags/<tag>             link to the tagged version

A program that opens a link keeps reading that version, whatever is written meanwhile.
"""

from __future__ import annotations

import contextlib
import ctypes
import ctypes.util
import errno
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from penstock.error import Error
from penstock.store import Store
from penstock.store_files import Files, kind_of

__all__ = ["mount"]

_Result = TypeVar("_Result")

_START_S = 300.0
_LOOP_ENDED = 8


def mount(url: str, directory: str, *, foreground: bool = False, allow_other: bool = False) -> None:
    """Mount the store at `url` on `directory`, an existing empty directory.

    In the foreground, it returns after an unmount (``fusermount3 -u``, ``umount``), SIGINT or SIGTERM. Otherwise a process
    of its own serves the files, and it returns once they are readable.
    """
    directory = os.path.abspath(directory)
    if not os.path.isdir(directory):
        raise Error(f"{directory} is not a directory; make it, or give another one to mount on", "not_found")
    _check(directory)
    store = Store(url, create=False)
    if not foreground:  # opened above only to raise its errors here; the serving process opens it again
        _spawn(url, directory, allow_other)
        return
    files = Files(store)
    import mfusepy

    options: dict[str, Any] = {"ro": True, "fsname": url.replace(",", "_"), "subtype": "penstock"}
    if mfusepy.fuse_version_major == 3 and mfusepy.fuse_version_minor >= 12:
        options["max_threads"] = 8
    if allow_other:
        options["allow_other"] = True
    threading.Thread(target=_read_ahead, args=(directory,), daemon=True).start()
    # libfuse unmounts and returns on SIGINT and SIGTERM, unless another handler is installed.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    try:
        mfusepy.FUSE(_operations(mfusepy, files), directory, raw_fi=True, foreground=True, **options)
    except RuntimeError as error:
        # Newer versions of libfuse report an end by a signal as an error of its loop.
        if error.args == (_LOOP_ENDED,) and not os.path.ismount(directory):
            return
        raise Error(
            f"{directory} could not be mounted (libfuse ended with status {error}); see its message above", "io"
        ) from None


def _check(directory: str) -> None:
    """Raise clear errors for missing requirements, before libfuse raises its own."""
    newest = ctypes.util.find_library("fuse3")
    if newest is not None:
        os.environ.setdefault("FUSE_LIBRARY_PATH", newest)  # if both are installed, mfusepy would load libfuse 2
    try:
        import mfusepy  # noqa: F401
    except ImportError:
        raise Error(
            "`penstock store mount` needs the package mfusepy: pip install 'penstock[fuse]', or pip install mfusepy",
            "unsupported",
        ) from None
    except (OSError, AttributeError) as error:
        raise Error(
            f"`penstock store mount` needs libfuse ({error}); install it (Debian: libfuse3-3 and fuse3)", "unsupported"
        ) from None
    if not os.path.exists("/dev/fuse"):
        raise Error(
            "this system has no /dev/fuse: load the kernel module (modprobe fuse), or export the versions",
            "unsupported",
        )
    if os.geteuid() != 0 and not (shutil.which("fusermount3") or shutil.which("fusermount")):
        raise Error("mounting without being root takes fusermount3 (Debian: fuse3)", "unsupported")
    if os.path.ismount(directory):
        raise Error(
            f"{directory} is mounted already: unmount it (fusermount3 -u {directory}) or give another one", "exists"
        )
    if os.listdir(directory):
        raise Error(f"{directory} is not empty: give an empty directory to mount on", "invalid_argument")


def _spawn(url: str, directory: str, allow_other: bool) -> None:
    """Serve from a new process, not a fork: connections and threads do not survive a fork."""
    words = [sys.executable, "-m", "penstock", "store", "mount", url, directory, "--foreground"]
    if allow_other:
        words.append("--allow-other")
    server = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    end = time.monotonic() + _START_S
    while not os.path.ismount(directory):
        if server.poll() is not None:
            assert server.stderr is not None
            message = server.stderr.read().strip().removeprefix("penstock store mount: ")
            raise Error(message or f"the process that mounts {directory} ended with status {server.returncode}", "io")
        if time.monotonic() > end:
            server.terminate()
            raise Error(f"{directory} was not mounted within {_START_S:.0f} s", "io")
        time.sleep(0.02)


def _read_ahead(directory: str) -> None:
    """Raise the kernel's read-ahead from 128 KiB to 1 MiB, if permitted."""
    end = time.monotonic() + _START_S
    while not os.path.ismount(directory):
        if time.monotonic() > end:
            return
        time.sleep(0.01)
    device = os.stat(directory).st_dev
    with contextlib.suppress(OSError):
        limit = f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb"
        with open(limit, "w", encoding="ascii") as file:
            file.write("4096")


_ERRNO = {"not_found": errno.ENOENT, "invalid_argument": errno.ENOENT, "no_space": errno.ENOSPC}


def _operations(mfusepy: Any, files: Files) -> Any:
    user, group, since = os.getuid(), os.getgid(), time.time()

    def parts_of(path: str) -> list[str]:
        return [part for part in path.split("/") if part]

    def answer(path: str, action: Callable[[list[str]], _Result]) -> _Result:
        parts = parts_of(path)
        try:
            return action(parts)
        except Error as error:
            if error.code == "not_found" and parts:
                files.forget(parts[0])
            else:
                # A background server has no terminal.
                with contextlib.suppress(OSError):
                    print(f"{path}: {error}", file=sys.stderr, flush=True)
            raise OSError(_ERRNO.get(error.code, errno.EIO), str(error)) from None

    def attributes(parts: list[str]) -> dict[str, Any]:
        kind = kind_of(parts)
        mode, size, moment, links = stat.S_IFDIR | 0o555, 0, since, 2
        if kind == "version":
            size = files.snapshot(parts[0], int(parts[2])).size
            mode, moment, links = stat.S_IFREG | 0o444, files.time(parts[0], int(parts[2])), 1
        elif kind == "link":
            mode, size, links = stat.S_IFLNK | 0o777, len(files.link(parts)), 1
        elif kind != "folder":
            raise OSError(errno.ENOENT, "no such file")
        elif parts:
            files.blob(parts[0])
        times = dict.fromkeys(("st_atime", "st_mtime", "st_ctime"), int(moment * 1e9))
        blocks = (size + 511) // 512
        return {
            "st_mode": mode,
            "st_size": size,
            "st_nlink": links,
            "st_uid": user,
            "st_gid": group,
            "st_blocks": blocks,
            **times,
        }

    def open_version(parts: list[str], info: Any) -> int:
        if kind_of(parts) != "version":
            raise OSError(errno.EISDIR, "no version")
        if info.flags & (os.O_WRONLY | os.O_RDWR):
            raise OSError(errno.EROFS, "versions never change")
        info.fh = files.open(parts[0], int(parts[2]))
        info.keep_cache = 1
        return 0

    class Operations(mfusepy.Operations):  # type: ignore[misc]
        use_ns = True

        def init_with_config(self, conn_info: Any, config_3: Any) -> None:
            if conn_info is not None:
                # The kernel's own limits apply: 1 MiB per request, and 1 MiB ahead.
                conn_info.max_readahead = max(conn_info.max_readahead, 1 << 20)
                conn_info.max_write = max(conn_info.max_write, 1 << 20)

        def getattr(self, path: str, fh: Any = None) -> dict[str, Any]:
            return answer(path, attributes)

        def readdir(self, path: str, fh: Any) -> list[str]:
            return [".", "..", *answer(path, files.names)]

        def readlink(self, path: str) -> str:
            return answer(path, files.link)

        def open(self, path: str, flags: Any) -> int:
            return answer(path, lambda parts: open_version(parts, flags))

        def read(self, path: str, size: int, offset: int, fh: Any) -> Any:
            return answer(path, lambda _: files.node(fh.fh).read(size, offset))

        def release(self, path: str, fh: Any) -> int:
            files.close(fh.fh)
            return 0

        def statfs(self, path: str) -> dict[str, int]:
            return {"f_bsize": 4096, "f_frsize": 4096, "f_namemax": 255, "f_blocks": 0, "f_bfree": 0, "f_bavail": 0}

    return Operations()
