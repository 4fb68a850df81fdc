"""The figures of the mini-application: run time with and without prefetching, over threads of the input pipeline, batch sizes and
disks, and with decoded images in memory, which no input can beat (Chien et al., Figures 6 to 8).

python figures.py images --make 512 --kilobytes 112                       # a table; --plot FILE draws it
python figures.py images --disks cache,hdd,ssd,optane                     # emulated disks need root
python figures.py images --rounds 1 -- --width 0.05                       # what follows -- goes to alexnet.py

The cases take turns, once in each round. The table has medians.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from alexnet import make_images
from penstock.bench import slow_disks

PROGRAM = Path(__file__).with_name("alexnet.py")


class Case(NamedTuple):
    disk: str
    threads: int
    batch: int
    way: str  #: "none" and "prefetch": of the files; "memory": decoded images, prefetched


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*/*.jpg"))


@contextlib.contextmanager
def on_disk(disk: str, images: Path) -> Iterator[Path]:
    """The folder itself, or a copy of it on an emulated disk."""
    if disk == "cache":
        yield images
        return
    size_bytes = sum(path.stat().st_size + 4096 for path in files(images))
    with tempfile.TemporaryDirectory(dir=images.parent) as place:
        with slow_disks.emulated(disk, size_bytes * 5 // 4 + (128 << 20), Path(place)) as mount:
            copy = mount / "images"
            shutil.copytree(images, copy)
            os.sync()  # dirty pages cannot be dropped from the cache
            yield copy


def drop_from_cache(folder: Path) -> None:
    for path in files(folder):
        file = os.open(path, os.O_RDONLY)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


def run(case: Case, folder: Path, steps: int, more: list[str]) -> dict[str, Any]:
    if case.disk != "cache":
        drop_from_cache(folder)
    words = ["--threads", case.threads, "--batch", case.batch, "--steps", steps, "--json"]
    words += ["--prefetch", 0 if case.way == "none" else 2, *(["--in-memory"] if case.way == "memory" else [])]
    environment = {"OMP_NUM_THREADS": "1", **os.environ}
    command = [sys.executable, PROGRAM, folder, *words, *more]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} ended with status {done.returncode}:\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def cases_of(disk: str, threads: list[int], batches: list[int]) -> list[Case]:
    """Over threads at the first batch size, and over batch sizes at the last number of threads."""
    settings = [(count, batches[0]) for count in threads] + [(threads[-1], batch) for batch in batches[1:]]
    cases = [Case(disk, *setting, way) for setting in settings for way in ("none", "prefetch")]
    if disk == "cache":
        cases += [Case(disk, threads[-1], batch, "memory") for batch in batches]
    return cases


def measure(arguments: argparse.Namespace, more: list[str]) -> list[dict[str, Any]]:
    images = Path(arguments.images).resolve()
    if arguments.make and not files(images):
        make_images(images, arguments.make, arguments.kilobytes)
    rows = []
    # Disks without what the others need are in memory, so they come first and give the bound.
    for disk in sorted(arguments.disks, key=lambda name: name != "cache"):
        with on_disk(disk, images) as folder:
            cases = cases_of(disk, arguments.threads, arguments.batches)
            found: dict[Case, list[dict[str, Any]]] = {case: [] for case in cases}
            for number in range(arguments.rounds):
                for case in cases if number % 2 == 0 else reversed(cases):
                    found[case].append(run(case, folder, arguments.steps, more))
        for case, runs in found.items():
            rows.append(
                {
                    **case._asdict(),
                    "elapsed_s": statistics.median(one["elapsed_s"] for one in runs),
                    "stall_s": statistics.median(one["input_stall_total_s"] for one in runs),
                    "images_per_s": statistics.median(one["images_per_s"] for one in runs),
                    "load": os.getloadavg()[0],
                }
            )
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    bound = {row["batch"]: row["elapsed_s"] for row in rows if row["way"] == "memory"}
    lines = [f"{'disk':8}{'threads':>8}{'batch':>7}{'way':>10}{'s':>8}{'waits':>8}{'images/s':>10}{'/ memory':>10}"]
    for row in rows:
        share = f"{row['elapsed_s'] / bound[row['batch']]:.3f}" if row["batch"] in bound else "-"
        waits = f"{row['stall_s'] / row['elapsed_s']:.1%}"
        lines.append(
            f"{row['disk']:8}{row['threads']:>8}{row['batch']:>7}{row['way']:>10}{row['elapsed_s']:>8.2f}{waits:>8}"
            f"{row['images_per_s']:>10.1f}{share:>10}"
        )
    return "\n".join(lines)


def plot(rows: list[dict[str, Any]], path: str) -> None:
    from penstock.drawing import pyplot, save

    plt = pyplot()
    threads = max(row["threads"] for row in rows)
    batch = rows[0]["batch"]
    panels = {
        "threads": [row for row in rows if row["disk"] == rows[0]["disk"] and row["batch"] == batch],
        "batch": [row for row in rows if row["disk"] == rows[0]["disk"] and row["threads"] == threads],
        "disk": [row for row in rows if row["batch"] == batch and row["threads"] == threads],
    }
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.6))
    for axis, (over, chosen) in zip(axes, panels.items()):
        places = list(dict.fromkeys(str(row[over]) for row in chosen))
        for number, way in enumerate(("none", "prefetch", "memory")):
            known = [row for row in chosen if row["way"] == way]
            at = [places.index(str(row[over])) + 0.27 * (number - 1) for row in known]
            axis.bar(at, [row["images_per_s"] for row in known], 0.25, label=way, color=f"C{number}")
        axis.set_xticks(range(len(places)), places)
        axis.set(xlabel=over, ylabel="images/s", ylim=(0, None))
    axes[0].legend(fontsize=8)
    figure.suptitle("AlexNet: without prefetching, with it, and with decoded images in memory")
    figure.tight_layout()
    save(figure, path)
    plt.close(figure)


def numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="figures.py IMAGES [OPTION…] [-- …]",
    )
    parser.add_argument("images", help="a folder with a folder of JPEG files for each class")
    parser.add_argument("--make", type=int, default=0, metavar="N", help="write N images there, if it is empty")
    parser.add_argument("--kilobytes", type=float, default=12, help="about the size of those")
    parser.add_argument("--threads", type=numbers, default=[1, 2, 4])
    parser.add_argument("--batches", type=numbers, default=[32, 16, 64])
    parser.add_argument("--disks", type=lambda text: text.split(","), default=["cache"], help="cache, hdd, ssd, optane")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--plot", metavar="FILE")
    parser.add_argument("--json", action="store_true")
    own, more = sys.argv[1:], []
    if "--" in own:
        own, more = own[: own.index("--")], own[own.index("--") + 1 :]
    arguments = parser.parse_args(own)
    if unknown := set(arguments.disks) - {"cache", *slow_disks.RATES}:
        parser.error(f"there is no disk {unknown.pop()!r}; expected cache, {', '.join(slow_disks.RATES)}")
    rows = measure(arguments, more)
    print(json.dumps(rows) if arguments.json else table(rows))
    if arguments.plot:
        plot(rows, arguments.plot)


if __name__ == "__main__":
    main()
