"""Packages of Debian, fetched without changing the system: its lists, its sources.list, what is installed."""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Sequence
from pathlib import Path

from captured import CommandError, output

TIMEOUT_S = 240


def _apt(folder: Path, *arguments: str) -> str:
    # Private lists and caches: no need for root, and no effect on the system's packages.
    options = {
        "Dir::Etc::sourcelist": folder / "sources.list",
        "Dir::Etc::sourceparts": "-",
        "Dir::State::lists": folder / "lists",
        "Dir::Cache": folder / "cache",
        "APT::Sandbox::User": "",
    }
    command = ["apt-get", "-q", *(word for key, value in options.items() for word in ("-o", f"{key}={value}"))]
    return output(f"apt-get {arguments[0]}", [*command, *arguments], timeout_s=TIMEOUT_S, cwd=folder)


def _update(folder: Path, line: str, *chosen: str) -> None:
    """Private lists, of a line for each of the system's `chosen` sources."""
    if shutil.which("apt-get") is None:
        raise CommandError("only Debian's apt-get fetches them")
    (folder / "lists/partial").mkdir(parents=True, exist_ok=True)
    (folder / "cache/archives/partial").mkdir(parents=True, exist_ok=True)
    (folder / "sources.list").touch()
    listed = ["apt-get", "indextargets", "--format", line, "Created-By: Packages", "Origin: Debian", *chosen]
    sources = output("apt-get indextargets", listed, timeout_s=TIMEOUT_S)
    if not sources:
        raise CommandError("apt knows no sources of Debian; run `apt-get update` first")
    (folder / "sources.list").write_text("".join(f"{line}\n" for line in sorted(set(sources.splitlines()))))
    _apt(folder, "update")


def fetch(package: str, folder: Path) -> Path:
    """The folder with the upstream sources of a source package. Cached in `folder`."""
    upstream = folder / "upstream"
    if not upstream.exists():
        _update(folder, "deb-src $(REPO_URI) $(RELEASE) $(COMPONENT)")
        _apt(folder, "source", "--download-only", package)
        unpacked = folder / "unpacking"
        shutil.rmtree(unpacked, ignore_errors=True)
        with tarfile.open(next(folder.glob(f"{package}_*.orig.tar.*[!c]"))) as archive:
            archive.extractall(unpacked, filter="data")
        unpacked.rename(upstream)
    return next(path for path in sorted(upstream.iterdir()) if path.is_dir())


def unpack(packages: Sequence[str], release: str, folder: Path) -> Path:
    """The folder with the files of binary packages of a release, without what they depend on."""
    _update(folder, f"deb $(REPO_URI) {release} $(COMPONENT)", "Label: Debian")
    _apt(folder, "download", *packages)
    unpacked = folder / "unpacked"
    for package in packages:
        (archive,) = folder.glob(f"{package}_*.deb")
        output("dpkg-deb", ["dpkg-deb", "-x", archive, unpacked], timeout_s=TIMEOUT_S)
    return unpacked
