"""`penstock store`: look into a store, take files out of it, and keep it in order."""

from __future__ import annotations

import datetime
import json
import sys
from typing import Any

import click

from penstock.error import Error

_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_URL = click.argument("url")
_VERSION = click.option("--version", default=None, help="Which version, a number or a tag; the newest if left out.")


def _open(url: str) -> Any:
    from penstock.store import Store

    return Store(url, create=False)


def _blob(url: str) -> tuple[Any, str]:
    """The store of "…/run7/field", and "field"."""
    from penstock.store import split_blob_url

    place, name = split_blob_url(url)
    return _open(place), name


def _number(blob: Any, version: str | None) -> int | None:
    """The version that a number or a tag stands for."""
    if version is None or version.isdecimal():
        return None if version is None else int(version)
    tags = blob.tags
    if version not in tags:
        raise Error(f"{blob.name} has no tag {version!r}; it has {', '.join(tags) or 'none'}", "not_found")
    return tags[version]


def _table(rows: list[dict[str, Any]], columns: dict[str, str]) -> None:
    """Print `columns`, key → heading, right-aligned where they are numbers."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for key, heading in columns.items():
        numeric = all(isinstance(row[key], (int, float)) for row in rows)
        table.add_column(heading, justify="right" if numeric else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(f"{row[key]:,}" if type(row[key]) is int else str(row[key]) for key in columns))
    Console(soft_wrap=True).print(table)


@click.group()
def store() -> None:
    """Versioned stores: list, read, export, verify and clean up."""


@store.command()
@_URL
@_JSON
def ls(url: str, as_json: bool) -> None:
    """The blobs of the store at URL."""
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
@click.option("--first", type=int, default=1, help="From this version on.")
@_JSON
def log(url: str, first: int, as_json: bool) -> None:
    """The versions of the blob at URL (store, '/', name)."""
    place, name = _blob(url)
    versions = place.open(name).log(first)
    if as_json:
        click.echo(json.dumps({"url": url, "versions": versions}))
    elif not versions:
        click.echo(f"{url} has no versions but zeros")
    else:
        for row in versions:
            row["time"] = datetime.datetime.fromtimestamp(row["time"]).isoformat(" ", "milliseconds")
        columns = {key: key for key in ("version", "time", "kind", "bytes", "regions", "writer")}
        _table(versions, columns)


@store.command()
@_URL
@click.option("--offset", type=int, default=0, help="First byte.")
@click.option("--size", type=int, default=None, help="How many bytes; all that follow if left out.")
@_VERSION
@_JSON
def read(url: str, offset: int, size: int | None, version: str | None, as_json: bool) -> None:
    """Bytes of the blob at URL, to standard output; with --json as hexadecimal digits."""
    place, name = _blob(url)
    blob = place.open(name)
    snapshot = blob.snapshot(_number(blob, version))
    size = max(snapshot.size - offset, 0) if size is None else size
    if offset < 0 or size < 0:
        raise Error(f"offset {offset} and size {size} must not be negative")
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
    """The blob at URL as the plain file PATH, which appears when it is complete."""
    place, name = _blob(url)
    blob = place.open(name)
    snapshot = blob.snapshot(_number(blob, version))
    place.export(name, path, snapshot.version)
    if as_json:
        click.echo(json.dumps({"url": url, "version": snapshot.version, "path": path, "bytes": snapshot.size}))
    else:
        click.echo(f"{path}: version {snapshot.version}, {snapshot.size:,} bytes")


@store.command()
@_URL
@click.argument("tag", required=False)
@_VERSION
@click.option("--delete", is_flag=True, help="Take the tag away.")
@_JSON
def tag(url: str, tag: str | None, version: str | None, delete: bool, as_json: bool) -> None:
    """Name a version of the blob at URL, which gc then keeps; without TAG, list the tags."""
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
    """The regions of the blob at URL that were written between versions OLD and NEW (numbers or tags; the newest)."""
    place, name = _blob(url)
    blob = place.open(name)
    found = blob.diff(_number(blob, old), _number(blob, new))
    if as_json:
        click.echo(json.dumps({"url": url, "regions": [{"offset": offset, "bytes": size} for offset, size in found]}))
        return
    if found:
        _table([{"offset": offset, "bytes": size} for offset, size in found], {"offset": "offset", "bytes": "bytes"})
    click.echo(f"{len(found):,} regions, {sum(size for _, size in found):,} bytes")


@store.command()
@_URL
@_VERSION
@_JSON
def compact(url: str, version: str | None, as_json: bool) -> None:
    """Copy the data of a version of the blob at URL to one place, so that it reads like a plain file."""
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
    """A new blob NEW_NAME, in the same store, that begins as a version of the blob at URL and shares its data."""
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
    """Remove the blob at URL with all its versions and tags."""
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
    """Read all of the store at URL and verify every checksum; exit with 1 if anything is broken."""
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
@click.option("--keep-last", type=int, default=None, help="Versions of each blob that stay.")
@click.option("--keep-for", type=float, default=None, help="Versions stay that were the newest in these last seconds.")
@click.option("--lease", type=float, default=3600.0, show_default=True, help="Seconds that a write may take.")
@_JSON
def gc(url: str, keep_last: int | None, keep_for: float | None, lease: float, as_json: bool) -> None:
    """Free the space of old versions and dead writers in the store at URL. Safe while it is in use.

    Without --keep-last and --keep-for all versions stay; with both, those that either keeps. Versions with a tag always do.
    """
    if keep_last is not None and keep_last < 1:
        raise Error(f"--keep-last is {keep_last}, expected at least 1")
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
@click.option("--allow-other", is_flag=True, help="Other users may read, too (see user_allow_other in /etc/fuse.conf).")
@_JSON
def mount(url: str, directory: str, foreground: bool, allow_other: bool, as_json: bool) -> None:
    """Every version of every blob of the store at URL as a plain file in DIRECTORY, read-only.

    DIRECTORY/BLOB/versions/12 is a version, DIRECTORY/BLOB/latest a link to the newest, DIRECTORY/BLOB/tags/TAG a link to
    the one that a tag names. Unmount with `fusermount3 -u DIRECTORY` or `umount DIRECTORY`. Needs libfuse and the package
    mfusepy (pip install 'penstock[fuse]').
    """
    from penstock.store_mount import mount as mount_store

    mount_store(url, directory, foreground=foreground, allow_other=allow_other)
    if as_json:
        click.echo(json.dumps({"url": url, "directory": directory, "mounted": not foreground}))
    elif not foreground:
        click.echo(f"{url} is mounted on {directory}")
