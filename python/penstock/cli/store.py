"""`penstock store`: create, write, inspect, export and maintain versioned stores."""

from __future__ import annotations

import datetime
import json
import mmap
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import click

from penstock import progress
from penstock.cli.values import COUNT, SIZE
from penstock.error import Error
from penstock.text_table import columns as aligned

_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_URL = click.argument("url")
_VERSION = click.option("--version", default=None, help="A version number or a tag. Default: the newest.")


def _open(url: str) -> Any:
    from penstock.store import Store

    return Store(url, create=False)


def _blob(url: str) -> tuple[Any, str]:
    """The store and the blob name of "…/run7/field"."""
    from penstock.store import split_blob_url

    place, name = split_blob_url(url)
    try:
        return _open(place), name
    except Error as error:
        blobs = _blobs_if_store(url)
        if blobs is None:
            raise
        names = ", ".join(blobs[:5]) + (", …" if len(blobs) > 5 else "") or "none yet"
        raise Error(f"{url} is a store; give one of its blobs as {url}/NAME; it has {names}") from error


def _blobs_if_store(url: str) -> list[str] | None:
    try:
        return [row["name"] for row in _open(url).list()]
    except Error:
        return None


def _bytes_of(path: str) -> Any:
    """The contents of a file, memory-mapped; or of standard input, "-"."""
    if path == "-":
        return sys.stdin.buffer.read()
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size == 0 or not Path(path).is_file():
            return file.read()
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _plural(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"


def _number(blob: Any, version: str | None) -> int | None:
    """The version number for a number or a tag."""
    if version is None or version.isdecimal():
        return None if version is None else int(version)
    tags = blob.tags
    if version not in tags:
        raise Error(f"{blob.name} has no tag {version!r}; it has {', '.join(tags) or 'none'}", "not_found")
    return tags[version]


def _table(rows: list[dict[str, Any]], columns: dict[str, str]) -> None:
    """Print `columns` (key → heading). Numbers are right-aligned."""
    lines = [[f"{row[key]:,}" if type(row[key]) is int else str(row[key]) for key in columns] for row in rows]
    click.echo(aligned([list(columns.values()), *lines]))


def _say_damage(message: Warning | str, *_: Any, **__: Any) -> None:
    click.echo(f"warning: {message}", err=True)


@click.group()
def store() -> None:
    """Versioned stores: create, write, list, read, export, verify, repair and clean up.

    A store is file:///a/directory, rados://pool/name, s3://bucket/name, or memory:name within one process. A blob's URL is
    its store's, '/' and its name: file:///a/directory/name.
    """
    warnings.showwarning = _say_damage


@store.command()
@_URL
@click.argument("name", required=False)
@click.option("--size", type=SIZE, default=0, help="Size of zeros, such as 4096, 64K or 2G. [default: 0]")
@click.option("--grows", is_flag=True, help="Allow writes beyond the end, append and resize.")
@_JSON
def create(url: str, name: str | None, size: int, grows: bool, as_json: bool) -> None:
    """Make a blob NAME in the store at URL, and the store if it does not exist.

    Without NAME, URL is the blob's. A blob that does not grow needs a --size.

    \b
    Examples:
      penstock store create file:///tmp/run7 field --size 1M
      penstock store create file:///tmp/run7/log --grows
    """
    from penstock.store import Store, split_blob_url

    place, name = (url, name) if name is not None else split_blob_url(url)
    if size == 0 and not grows:
        raise Error("the blob could never hold data; give its --size, or --grows")
    blob = Store(place).create(name, size=size, grows=grows)
    if as_json:
        click.echo(json.dumps({"url": place, "name": blob.name, "bytes": blob.size, "grows": blob.grows}))
    else:
        click.echo(f"{place}/{blob.name}: {_plural(blob.size, 'byte')}" + (", grows" if blob.grows else ""))


@store.command()
@_URL
@click.argument("path", type=click.Path(exists=True, dir_okay=False, allow_dash=True), default="-")
@click.option(
    "--offset", type=SIZE, default=0, show_default=True, help="Offset of the first byte, such as 4096 or 64K."
)
@_JSON
def write(url: str, path: str, offset: int, as_json: bool) -> None:
    """Write the file PATH, or standard input, into the blob at URL as one version.

    \b
    Examples:
      echo hello | penstock store write file:///tmp/run7/field
      penstock store write file:///tmp/run7/field part.bin --offset 64K
    """
    place, name = _blob(url)
    blob = place.open(name)
    data = _bytes_of(path)
    if len(data) == 0:
        raise Error(f"{path} is empty; give a file with data")
    _say_version(url, blob.write([(offset, data)]), offset, len(data), as_json)


@store.command()
@_URL
@click.argument("path", type=click.Path(exists=True, dir_okay=False, allow_dash=True), default="-")
@_JSON
def append(url: str, path: str, as_json: bool) -> None:
    """Append the file PATH, or standard input, to the blob at URL, which must grow.

    \b
    Example:
      date | penstock store append file:///tmp/run7/log
    """
    place, name = _blob(url)
    blob = place.open(name)
    data = _bytes_of(path)
    if len(data) == 0:
        raise Error(f"{path} is empty; give a file with data")
    version, offset = blob.append(data)
    _say_version(url, version, offset, len(data), as_json)


def _say_version(url: str, version: int, offset: int, size: int, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"url": url, "version": version, "offset": offset, "bytes": size}))
    else:
        click.echo(f"{url}: version {version}, {_plural(size, 'byte')} at {offset:,}")


@store.command()
@_URL
@click.argument("size", type=SIZE)
@_JSON
def resize(url: str, size: int, as_json: bool) -> None:
    """Truncate the blob at URL to SIZE bytes, or extend it with zeros, as one version. Only for a blob that grows.

    \b
    Example:
      penstock store resize file:///tmp/run7/log 1M
    """
    place, name = _blob(url)
    version = place.open(name).resize(size)
    if as_json:
        click.echo(json.dumps({"url": url, "version": version, "bytes": size}))
    else:
        click.echo(f"{url}: version {version}, {_plural(size, 'byte')}")


@store.command("import")
@_URL
@click.argument("path", type=click.Path(exists=True, dir_okay=False, allow_dash=True), default="-")
@click.option("--grows", is_flag=True, help="Allow writes beyond the end, append and resize.")
@_JSON
def import_file(url: str, path: str, grows: bool, as_json: bool) -> None:
    """Make a blob at URL from the file PATH, or from standard input. The inverse of export.

    \b
    Example:
      penstock store import file:///tmp/run7/field field.bin
    """
    from penstock.store import Store, split_blob_url

    place, name = split_blob_url(url)
    data = _bytes_of(path)
    if len(data) == 0 and not grows:
        raise Error(f"{path} is empty, and a blob without --grows could never hold data")
    blob = Store(place).create(name, size=len(data), grows=grows)
    with progress.working(f"importing {_plural(len(data), 'byte')}"):
        version = blob.write([(0, data)]) if len(data) else 0
    _say_version(url, version, 0, len(data), as_json)


@store.command()
@_URL
@_JSON
def ls(url: str, as_json: bool) -> None:
    """List the blobs of the store at URL.

    \b
    Example:
      penstock store ls file:///tmp/run7
    """
    blobs = _open(url).list()
    if as_json:
        click.echo(json.dumps({"url": url, "blobs": blobs}))
    elif not blobs:
        click.echo(f"{url} holds no blobs")
    else:
        columns = {"name": "name", "size": "bytes", "first_version": "oldest", "latest_version": "newest"}
        _table(blobs, columns)


@store.command()
@_URL
@click.option("--first", type=COUNT, default=1, show_default=True, help="First version to list.")
@_JSON
def log(url: str, first: int, as_json: bool) -> None:
    """List the versions of the blob at URL (store, '/', name).

    \b
    Example:
      penstock store log file:///tmp/run7/field --first 10
    """
    place, name = _blob(url)
    versions = place.open(name).log(first)
    if as_json:
        click.echo(json.dumps({"url": url, "versions": versions}))
    elif not versions:
        click.echo(f"{url} has no versions" + (f" from {first} on" if first > 1 else " but zeros"))
    else:
        for row in versions:
            row["time"] = datetime.datetime.fromtimestamp(row["time"]).isoformat(" ", "milliseconds")
        columns = {key: key for key in ("version", "time", "kind", "bytes", "regions", "writer")}
        _table(versions, columns)


@store.command()
@_URL
@click.option("--offset", type=SIZE, default=0, show_default=True, help="First byte, such as 4096 or 64K.")
@click.option("--size", type=SIZE, default=None, help="Number of bytes. Default: to the end.")
@_VERSION
@_JSON
def read(url: str, offset: int, size: int | None, version: str | None, as_json: bool) -> None:
    """Write bytes of the blob at URL to standard output; with --json as hexadecimal digits.

    \b
    Examples:
      penstock store read file:///tmp/run7/field --offset 4K --size 16
      penstock store read file:///tmp/run7/field --version 3 --json
    """
    place, name = _blob(url)
    blob = place.open(name)
    snapshot = blob.snapshot(_number(blob, version))
    if offset > snapshot.size or offset + (size or 0) > snapshot.size:
        wanted = f"from {offset:,} on" if size is None else f"from {offset:,} to {offset + size:,}"
        raise Error(f"{url}: bytes {wanted} were asked for, but version {snapshot.version} has {snapshot.size:,}")
    size = snapshot.size - offset if size is None else size
    if as_json:
        data = bytearray(size)
        snapshot.read([(offset, data)])
        click.echo(json.dumps({"url": url, "version": snapshot.version, "offset": offset, "hex": data.hex()}))
        return
    end = offset + size
    while offset < end:
        data = bytearray(min(end - offset, 8 << 20))
        snapshot.read([(offset, data)])
        sys.stdout.buffer.write(data)
        offset += len(data)
    sys.stdout.buffer.flush()


@store.command()
@_URL
@click.argument("path", type=click.Path(dir_okay=False))
@_VERSION
@_JSON
def export(url: str, path: str, version: str | None, as_json: bool) -> None:
    """Write the blob at URL as the plain file PATH, atomically.

    \b
    Example:
      penstock store export file:///tmp/run7/field field.bin --version 3
    """
    place, name = _blob(url)
    blob = place.open(name)
    snapshot = blob.snapshot(_number(blob, version))
    with progress.working(f"exporting {_plural(snapshot.size, 'byte')}"):
        place.export(name, path, snapshot.version)
    if as_json:
        click.echo(json.dumps({"url": url, "version": snapshot.version, "path": path, "bytes": snapshot.size}))
    else:
        click.echo(f"{path}: version {snapshot.version}, {_plural(snapshot.size, 'byte')}")


@store.command()
@_URL
@click.argument("tag", required=False)
@_VERSION
@click.option("--delete", is_flag=True, help="Remove the tag.")
@_JSON
def tag(url: str, tag: str | None, version: str | None, delete: bool, as_json: bool) -> None:
    """Tag a version of the blob at URL; gc keeps tagged versions. Without TAG, list the tags.

    \b
    Examples:
      penstock store tag file:///tmp/run7/field published --version 3
      penstock store tag file:///tmp/run7/field published --delete
    """
    place, name = _blob(url)
    blob = place.open(name)
    if tag is None and (delete or version is not None):
        raise Error("--delete and --version need a TAG")
    if tag is not None and delete:
        blob.untag(tag)
    elif tag is not None:
        blob.tag(tag, _number(blob, version))
    tags = blob.tags
    if as_json:
        click.echo(json.dumps({"url": url, "tags": tags}))
    elif not tags:
        click.echo(f"{url} has no tags")
    else:
        _table(
            [{"tag": name, "version": number} for name, number in tags.items()], {"tag": "tag", "version": "version"}
        )


@store.command()
@_URL
@click.argument("old")
@click.argument("new", required=False)
@_JSON
def diff(url: str, old: str, new: str | None, as_json: bool) -> None:
    """List the byte ranges of the blob at URL written between versions OLD and NEW (numbers or tags; default: the newest).

    \b
    Example:
      penstock store diff file:///tmp/run7/field 3 published
    """
    place, name = _blob(url)
    blob = place.open(name)
    found = blob.diff(_number(blob, old), _number(blob, new))
    if as_json:
        click.echo(json.dumps({"url": url, "regions": [{"offset": offset, "bytes": size} for offset, size in found]}))
        return
    if found:
        _table([{"offset": offset, "bytes": size} for offset, size in found], {"offset": "offset", "bytes": "bytes"})
    click.echo(f"{_plural(len(found), 'region')}, {_plural(sum(size for _, size in found), 'byte')}")


@store.command()
@_URL
@_VERSION
@_JSON
def compact(url: str, version: str | None, as_json: bool) -> None:
    """Copy a version of the blob at URL to contiguous storage, so that it reads like a plain file.

    \b
    Example:
      penstock store compact file:///tmp/run7/field
    """
    place, name = _blob(url)
    blob = place.open(name)
    snapshot = blob.snapshot(_number(blob, version))
    blob.compact(snapshot.version)
    if as_json:
        click.echo(json.dumps({"url": url, "version": snapshot.version, "bytes": snapshot.size}))
    else:
        click.echo(f"{url}: version {snapshot.version}, {snapshot.size:,} bytes, is contiguous")


@store.command()
@_URL
@click.argument("new_name")
@_VERSION
@_JSON
def clone(url: str, new_name: str, version: str | None, as_json: bool) -> None:
    """Make a blob NEW_NAME in the same store that starts as a version of the blob at URL and shares its data.

    \b
    Example:
      penstock store clone file:///tmp/run7/field branch --version 3
    """
    place, name = _blob(url)
    blob = place.open(name)
    number = _number(blob, version)
    made = place.clone(name, new_name, blob.latest if number is None else number)
    if as_json:
        click.echo(json.dumps({"url": url, "clone": made.name, "bytes": made.size}))
    else:
        click.echo(f"{made.name}: {made.size:,} bytes")


@store.command()
@_URL
@_JSON
def rm(url: str, as_json: bool) -> None:
    """Remove the blob at URL with all its versions and tags.

    \b
    Example:
      penstock store rm file:///tmp/run7/branch
    """
    place, name = _blob(url)
    report = place.remove(name)
    if as_json:
        click.echo(json.dumps({"url": url, **report}))
    else:
        click.echo(f"{report['objects_removed']:,} objects removed, {report['bytes_freed']:,} bytes freed")


@store.command()
@_URL
@_JSON
def check(url: str, as_json: bool) -> None:
    """Read the whole store at URL and verify every checksum. The exit status is 1 if anything is damaged.

    \b
    Example:
      penstock store check file:///tmp/run7
    """
    with progress.working(f"checking {url}"):
        report = _open(url).check()
    if as_json:
        click.echo(json.dumps({"url": url, **report}))
    else:
        for problem in report["problems"]:
            click.echo(problem, err=True)
        found = len(report["problems"])
        click.echo(
            f"{report['blobs']} blobs, {report['versions']:,} versions, {report['objects']:,} objects, "
            f"{report['bytes']:,} bytes; garbage: {report['garbage_objects']:,} objects, "
            f"{report['garbage_bytes']:,} bytes; {found or 'no'} problem{'s' * (found != 1)}"
        )
    if report["problems"]:
        raise SystemExit(1)


@store.command()
@_URL
@click.option("--apply", is_flag=True, help="Do it. Without this, only say what would be done.")
@click.option(
    "--drop-damaged-data",
    is_flag=True,
    help="Give up versions whose data is damaged or missing, too: they read as the versions before them.",
)
@_JSON
def repair(url: str, apply: bool, drop_damaged_data: bool, as_json: bool) -> None:
    """Find what is damaged in the store at URL, and with --apply mend it, so that the rest can be read and written.

    Damaged objects are kept in the folder "lost" of their blob. Exits with 1 if something is to be mended or cannot be.

    \b
    Examples:
      penstock store repair file:///tmp/run7
      penstock store repair file:///tmp/run7 --apply
    """
    report = _open(url).repair(apply, drop_damaged_data)
    if as_json:
        click.echo(json.dumps({"url": url, **report}))
    else:
        for row in report["actions"]:
            click.echo(f"blob {row['blob']}, {row['object']}: {row['reason']}\n  → {row['action']}")
        for problem in report["remaining"]:
            click.echo(problem, err=True)
        actions = _plural(len(report["actions"]), "repair")
        click.echo(f"{actions} {'made' if apply else 'to make'}, {len(report['remaining'])} problems remain")
    if report["remaining"] or (report["actions"] and not apply):
        raise SystemExit(1)


@store.command()
@_URL
@click.option("--keep-last", type=COUNT, default=None, help="Versions of each blob to keep.")
@click.option("--keep-for", type=float, default=None, help="Keep versions that were the newest within these seconds.")
@click.option(
    "--lease", type=float, default=3600.0, show_default=True, help="Seconds after which a write counts as dead."
)
@_JSON
def gc(url: str, keep_last: int | None, keep_for: float | None, lease: float, as_json: bool) -> None:
    """Free the space of old versions and of dead writers in the store at URL. Safe while the store is in use.

    Without --keep-last and --keep-for all versions stay; with both, the versions that either keeps. Tagged versions stay.

    \b
    Examples:
      penstock store gc file:///tmp/run7 --keep-last 10
      penstock store gc file:///tmp/run7 --keep-for 86400
    """
    if keep_last is not None and keep_last < 1:
        raise Error(f"--keep-last is {keep_last}; expected at least 1")
    report = _open(url).gc(keep_last, lease, keep_for)
    if as_json:
        click.echo(json.dumps({"url": url, **report}))
    else:
        click.echo(
            f"{report['versions_removed']:,} versions and {report['objects_removed']:,} objects removed, "
            f"{report['bytes_freed']:,} bytes freed"
        )


@store.command()
@_URL
@click.argument("directory", type=click.Path())
@click.option("--foreground", is_flag=True, help="Serve from this process, until SIGINT, SIGTERM or umount.")
@click.option("--allow-other", is_flag=True, help="Let other users read (see user_allow_other in /etc/fuse.conf).")
@_JSON
def mount(url: str, directory: str, foreground: bool, allow_other: bool, as_json: bool) -> None:
    """Mount the store at URL on DIRECTORY, read-only: every version of every blob is a plain file.

    DIRECTORY/BLOB/versions/12 is a version, DIRECTORY/BLOB/latest a link to the newest, DIRECTORY/BLOB/tags/TAG a link to
    the tagged version. Unmount with `fusermount3 -u DIRECTORY` or `umount DIRECTORY`. Needs libfuse and the package mfusepy
    (pip install 'penstock[fuse]').

    \b
    Example:
      penstock store mount file:///tmp/run7 /mnt/run7
    """
    from penstock.store_mount import mount as mount_store

    mount_store(url, directory, foreground=foreground, allow_other=allow_other)
    if as_json:
        click.echo(json.dumps({"url": url, "directory": directory, "mounted": not foreground}))
    elif not foreground:
        click.echo(f"{url} is mounted on {directory}")
