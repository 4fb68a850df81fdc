"""The drawing of :meth:`penstock.Redistribution.plot`: the owners before and after."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

from penstock.drawing import import_matplotlib, save
from penstock.error import Error

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    from penstock.layout import Layout

_MOST_TILES = 256  # along one axis of a drawing; more are sampled
_MOST_NUMBERS = 24  # with more blocks along an axis, their ranks are not printed
_MOST_COLORS = 20


def owners_on_grid(layout: Layout, index: tuple[int, ...] = ()) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """(row borders, column borders, owner of each block) along the first two axes.

    ``index`` is the position along the other axes; default 0. A 1-d array is one row. If an axis has more than 256 blocks,
    the owners at 256 equally spaced positions are returned.
    """
    shape = layout.shape
    beyond = max(len(shape) - 2, 0)
    if len(index) not in (0, beyond):
        raise Error(f"plot: index has {len(index)} numbers; expected {beyond}, one for each axis beyond two")
    rest = tuple(index) or (0,) * (len(shape) - 2)
    for axis, (at, length) in enumerate(zip(rest, shape[2:]), start=2):
        if not 0 <= at < length:
            raise Error(f"plot: index {at} along axis {axis}, which has the length {length}")
    axes = range(min(2, len(shape)))
    borders, blocks = zip(*(_borders(layout, axis) for axis in axes)) if shape else ((), ())
    fixed = [_block_at(layout, axis, at) for axis, at in enumerate(rest, start=2)]
    owners = np.empty([len(numbers) for numbers in blocks], np.int64)
    for place in np.ndindex(owners.shape):
        owners[place] = layout.owner(*(numbers[i] for numbers, i in zip(blocks, place)), *fixed)
    if len(borders) < 2:  # a row
        owners = owners.reshape(1, -1)
        borders = (np.array([0, 1]), borders[0] if borders else np.array([0, 1]))
    return borders[0], borders[1], owners


def _borders(layout: Layout, axis: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Borders to draw along an axis, and the index of the block between each two."""
    length = layout.shape[axis]
    splits = np.asarray(layout.splits(axis))
    if len(splits) <= _MOST_TILES + 1:
        return splits, np.arange(len(splits) - 1)
    borders = np.linspace(0, length, _MOST_TILES + 1)
    middles = ((borders[:-1] + borders[1:]) / 2).astype(np.int64)
    return borders, np.searchsorted(splits, middles, side="right") - 1


def _block_at(layout: Layout, axis: int, position: int) -> int:
    return int(np.searchsorted(layout.splits(axis), position, side="right")) - 1


def draw(
    layouts: dict[str, Layout], path: str | os.PathLike[str], title: str = "", index: tuple[int, ...] = ()
) -> None:
    """Draw the layouts side by side into an image file, with one color per rank."""
    drawn = {name: owners_on_grid(layout, index) for name, layout in layouts.items()}
    mpl = import_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap, Normalize
    from matplotlib.figure import Figure

    ranks = max((layout.ranks for layout in layouts.values()), default=1)
    colors = mpl.colormaps["tab10" if ranks <= _MOST_COLORS // 2 else "tab20" if ranks <= _MOST_COLORS else "turbo"]
    palette = ListedColormap([colors(r if ranks <= _MOST_COLORS else r / (ranks - 1)) for r in range(ranks)])
    stacked = all(layout.ndim < 2 for layout in layouts.values())
    size = (11.0, 1.9 * len(layouts) + 0.6) if stacked else (6.2 * len(layouts), 5.8)
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    places = figure.subplots(*((len(layouts), 1) if stacked else (1, len(layouts))), squeeze=False).flat
    for axes, (name, (rows, columns, owners)) in zip(places, drawn.items()):
        axes.set_title(name)
        is_row = layouts[name].ndim < 2
        if owners.size == 0:
            axes.text(0.5, 0.5, "no elements", ha="center", va="center", transform=axes.transAxes)
            axes.set_xticks([])
            axes.set_yticks([])
            continue
        few = max(owners.shape) <= _MOST_NUMBERS
        lines = {"edgecolors": "white", "linewidth": 0.8} if few else {}
        axes.pcolormesh(columns, rows, owners, cmap=palette, vmin=-0.5, vmax=ranks - 0.5, **lines)
        if few:
            for i, j in np.ndindex(owners.shape):
                middle = (columns[j] + columns[j + 1]) / 2, (rows[i] + rows[i + 1]) / 2
                red, green, blue, _ = palette(int(owners[i, j]))
                dark = 0.3 * red + 0.59 * green + 0.11 * blue < 0.5
                axes.text(*middle, owners[i, j], ha="center", va="center", size=8, color="white" if dark else "black")
        axes.set_xlim(columns[0], columns[-1])
        axes.set_ylim(rows[-1], rows[0])
        axes.set_xlabel("element" if is_row else "column")
        if is_row:
            axes.set_yticks([])
            axes.set_box_aspect(None if stacked else 0.15)
        else:
            axes.set_ylabel("row")
            axes.set_box_aspect(min(max(rows[-1] / columns[-1], 0.2), 3.0))
    if ranks > 1:
        scale = ScalarMappable(Normalize(-0.5, ranks - 0.5), palette)
        step = max(1, -(-ranks // 16))
        figure.colorbar(scale, ax=figure.axes, label="rank", ticks=range(0, ranks, step), shrink=0.8)
    if title:
        figure.suptitle(title)
    save(figure, path, dpi=110)
