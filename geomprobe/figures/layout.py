"""Panels, axes and legends that figures share."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter
from matplotlib.transforms import ScaledTranslation

from geomprobe import tables
from geomprobe.figures.style import GREY, PALE
from geomprobe.run.reading import Run

LOG_FROM = 8.0  # a positive quantity that spreads by more than this factor gets a log axis
_ROW = 17.0  # points that a row of a legend takes


def panels(
    ax: Axes, rows: int, columns: int, *, gap: tuple[float, float] = (0.03, 0.2), shared: bool = True
) -> list[Axes]:
    """Turn the axes into a grid of panels, row by row, that share both scales or none; gaps as parts of the whole."""
    ax.set_axis_off()
    width = (1 - gap[0] * (columns - 1)) / columns
    height = (1 - gap[1] * (rows - 1)) / rows
    made: list[Axes] = []
    for index in range(rows * columns):
        row, column = divmod(index, columns)
        bounds = (column * (width + gap[0]), 1 - height - row * (height + gap[1]), width, height)
        alike: dict[str, Any] = {"sharex": made[0], "sharey": made[0]} if made and shared else {}
        panel = ax.inset_axes(bounds, **alike)
        if shared:
            panel.tick_params(labelleft=column == 0, labelbottom=row == rows - 1)
        made.append(panel)
    return made


def crown(
    ax: Axes, run: Run, title: str, handles: Sequence[Artist] = (), *, above: float = 4, columns: int = 4
) -> None:
    """Title (with the model's name) and legend over the axes, `above` points away from it."""
    rows = legend_above(ax, handles, above=above, columns=columns)
    pad = above + rows * _ROW + (6 if rows else 2)
    ax.set_title(f"{run.name}: {title}", loc="left", pad=pad, fontweight="bold", parse_math=False)


def legend_above(ax: Axes, handles: Sequence[Artist], *, above: float, columns: int) -> int:
    """A legend over the axes, `above` points away from them; how many rows it has, none where it is empty."""
    if handles:
        lift = ScaledTranslation(0, above / 72, ax.figure.dpi_scale_trans)
        ax.legend(
            handles=list(handles),
            loc="lower left",
            bbox_to_anchor=(0, 1),
            bbox_transform=ax.transAxes + lift,
            ncols=columns,
            borderaxespad=0,
            borderpad=0.2,
            columnspacing=1.4,
        )
    return -(-len(handles) // columns)


def layer_axis(ax: Axes, run: Run, *, label: bool = True) -> None:
    """Layers along x, at whole numbers, with the full-attention layers shaded where others have windows."""
    every = tables.layers(run)
    ax.set_xlim(min(every) - 0.6, max(every) + 0.6)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    if label:
        ax.set_xlabel("layer")
    for layers in list(tables.parts(run).values())[1:]:
        ax.axvline(layers[0] - 0.5, color=GREY, linewidth=0.8, linestyle=":", zorder=1)
    for layer in tables.full_layers(run):
        ax.axvspan(layer - 0.5, layer + 0.5, color=PALE, linewidth=0, zorder=0)


def full_layer_key(run: Run) -> list[Artist]:
    """The legend's entry for the shaded layers, where there are any."""
    return [Patch(color=PALE, label="full attention")] if tables.full_layers(run) else []


def positive_scale(ax: Axes, values: Iterable[float]) -> None:
    """A log axis for y with plain numbers where the values spread much, else one that starts at 0."""
    found = np.array([value for value in values if np.isfinite(value) and value > 0])
    if found.size and found.max() / found.min() > LOG_FROM:
        ax.set_yscale("log")
        plain_log(ax.yaxis, float(found.max() / found.min()))
    elif found.size:
        ax.set_ylim(0, 1.08 * found.max())


def plain_log(axis: Axis, spread: float) -> None:
    """Plain numbers on a log axis: 1, 2, 5, 10 … while the values spread little, powers of ten beyond."""
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if spread < 300 else (1.0,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def head_lines(ax: Axes, matrix: pd.DataFrame, colour: str, *, alpha: float = 0.35) -> None:
    """A thin line a head (layer × head); a dot where there is a single layer."""
    marker = "." if len(matrix) == 1 else None
    for head in matrix.columns:
        ax.plot(matrix.index, matrix[head], color=colour, linewidth=0.7, alpha=alpha, marker=marker, zorder=2)


def head_dots(ax: Axes, frame: pd.DataFrame, column: str, colour: str) -> None:
    """A dot a head, side by side around its layer."""
    values = by_offset(frame)
    ax.scatter(values, frame[column], s=7, color=colour, alpha=0.45, linewidths=0, zorder=2, label=f"{column} heads")


def by_offset(frame: pd.DataFrame) -> np.ndarray:
    """Places along x: each row's head: its layer, moved by the head's place among the heads by at most .3."""
    head = frame["q_head"].to_numpy(float)
    return frame["layer"].to_numpy(float) + 0.6 * ((head + 0.5) / (head.max() + 1) - 0.5)


def median_line(ax: Axes, series: pd.Series, colour: str, *, style: str = "-", label: str = "median") -> Line2D:
    """The thick line of a figure."""
    (line,) = ax.plot(series.index, series, style, color=colour, linewidth=2, zorder=4, label=label)
    if len(series) == 1:
        line.set_marker("o")
    return line


def band(ax: Axes, low: pd.Series, high: pd.Series, colour: str, alpha: float) -> None:
    """A filled band between two lines by layer; a bar where there is a single layer."""
    if len(low) == 1:
        ax.vlines(low.index, low, high, color=colour, alpha=alpha, linewidth=14, zorder=1)
    else:
        ax.fill_between(low.index, low, high, color=colour, alpha=alpha, linewidth=0, zorder=1)


def by_layer(run: Run, frame: pd.DataFrame) -> pd.DataFrame:
    """A frame by layer with a row for every attention layer, so that lines break where nothing was measured."""
    return frame.reindex(tables.layers(run))
