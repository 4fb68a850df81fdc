"""A simulation writes and a visualisation follows; neither waits for the other.

    ./dev exec mpiexec -n 3 python -m mpi4py examples/python/live_plot.py [STORE] [PICTURE.gif|PICTURE.png] [STEPS]

The last rank draws; all others simulate waves on a torus, each a stripe of rows. Each step is one collective write, which makes
one version of the file. The viewer reads whole versions at its own pace, however far the simulation runs ahead. With a display,
the picture is live and shows the newest version. You can start another viewer at any time, on any host: ``--view STORE``. Without
a display, every version becomes a frame of an animation, including those that were overwritten long ago.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import penstock as ps

ROWS, COLUMNS = 96, 128
STEPS = 24


def simulate(comm: ps.Comm, url: str, steps: int) -> None:
    """Each rank computes and writes rows. `comm` contains the simulating ranks."""
    from mpi4py import MPI

    first, end = (ROWS * rank // comm.size for rank in (comm.rank, comm.rank + 1))
    row, column = np.mgrid[first:end, 0:COLUMNS]
    field = np.exp(-((row - ROWS / 2) ** 2 + (column - COLUMNS / 3) ** 2) / 60).astype(np.float32)
    before = field.copy()
    with ps.File.Open(comm, url, MPI.MODE_RDWR, info={"penstock_durable": "false"}) as file:
        file.Set_view(first * COLUMNS * 4, MPI.FLOAT)
        for _ in range(steps):
            file.Write_at_all(0, field)
            above, below = np.empty(COLUMNS, np.float32), np.empty(COLUMNS, np.float32)
            up, down = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
            comm.Sendrecv(field[-1].copy(), down, 0, above, up, 0)
            comm.Sendrecv(field[0].copy(), up, 1, below, down, 1)
            rows = np.vstack((above, field, below))
            spread = rows[:-2] + rows[2:] + np.roll(field, 1, 1) + np.roll(field, -1, 1) - 4 * field
            field, before = 2 * field - before + 0.2 * spread, field


def versions(blob: ps.Blob, last: int, newest: bool) -> Iterator[tuple[int, np.ndarray]]:
    """Yields every version, or the newest ones as they appear, up to the last."""
    seen = 0
    while seen < last and blob.wait(seen + 1, timeout=60):
        snapshot = blob.snapshot(None if newest else seen + 1)
        seen = snapshot.version
        frame = np.empty((ROWS, COLUMNS), np.float32)
        snapshot.read([(0, frame)])
        yield seen, frame


def view(store: str, picture: str, last: int) -> int:
    """Draws the versions on the screen or into a file. Returns the number of frames."""
    import matplotlib

    live = bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")) and not picture
    if not live:
        matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(5, 4))
    image = axes.imshow(np.zeros((ROWS, COLUMNS)), vmin=-0.6, vmax=0.6, cmap="RdBu_r")
    frames: list[tuple[int, np.ndarray]] = []

    def draw(version: int, frame: np.ndarray) -> None:
        image.set_data(frame)
        axes.set_title(f"version {version}")

    for version, frame in versions(ps.Store(store, create=False).open("waves"), last, newest=live):
        frames.append((version, frame))
        draw(version, frame)
        if live:
            pyplot.pause(0.001)
    if not live:
        save(figure, draw, frames, picture)
    return len(frames)


def save(figure: Any, draw: Callable[[int, np.ndarray], None], frames: list, picture: str) -> None:
    """Saves all frames as an animation, or the last frame as an image."""
    if picture.endswith(".gif"):
        from matplotlib.animation import FuncAnimation, PillowWriter

        def show(i: int) -> tuple[()]:
            draw(*frames[i])
            return ()

        FuncAnimation(figure, show, frames=len(frames)).save(picture, PillowWriter(fps=15), dpi=60)
    else:
        figure.savefig(picture)


def main(store: str = "", picture: str = "", steps: str = str(STEPS)) -> None:
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    viewer = world.size - 1
    place = store or world.bcast(tempfile.mkdtemp(prefix="penstock-live-") if world.rank == 0 else None)
    store = store or f"file://{place}/store"
    if world.rank == 0:  # make the blob before any rank opens it; from here on no rank waits for another
        ps.Store(store, durable=False).create("waves", size=ROWS * COLUMNS * 4, grows=True)
    world.Barrier()
    group = world.Split(0 if world.rank < viewer or world.size == 1 else 1)
    if world.size == 1 or world.rank < viewer:
        with ps.Comm(group) as comm:
            simulate(comm, f"{store}/waves", int(steps))
    if world.rank == viewer:
        name = picture or f"{tempfile.mkdtemp(prefix='penstock-live-')}/waves.gif"
        seen = view(store, name, int(steps))
        print(f"{steps} steps were written, {seen} of them were drawn into {name}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--view"]:
        view(sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else "", sys.maxsize)
    else:
        main(*sys.argv[1:])
