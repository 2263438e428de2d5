"""The map of first_mass: how much attention each head gives to position 0."""

from collections.abc import Iterable

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, PercentFormatter

from geomprobe import tables
from geomprobe.figures.drawing import WIDTH, Drawing, join, needs, rows_of, scope
from geomprobe.figures.layout import crown
from geomprobe.figures.style import AMOUNT, BLACK, GREY, VERMILION
from geomprobe.run.reading import Run


def draw_first_mass(run: Run, ax: Axes) -> Axes:
    """Layer × q_head as a map; beside it the layer's mean over its heads, and a mark for the full layers."""
    table = run.tables["sinks"]
    matrix = tables.by_head(table, "first_mass", "q_head")  # (layer, q_head)
    top = max(0.1, float(np.ceil(10 * matrix.fillna(0).to_numpy().max()) / 10))
    ax.set_axis_off()
    area = ax.inset_axes((0, 0, 0.66, 1))
    image = area.imshow(matrix.to_numpy(), aspect="auto", cmap=AMOUNT, vmin=0, vmax=top, interpolation="nearest")
    area.set_xlabel("query head")
    area.set_ylabel("layer")
    area.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    ticks = _ticks(np.arange(len(matrix)))
    area.set_yticks(ticks, [str(matrix.index[row]) for row in ticks])
    area.spines[["top", "right"]].set_visible(True)
    _mark_full(run, area, matrix)
    _draw_means(ax.inset_axes((0.7, 0, 0.18, 1), sharey=area), table, matrix, top)
    bar = ax.figure.colorbar(image, cax=ax.inset_axes((0.91, 0, 0.03, 1)), format=PercentFormatter(1, decimals=0))
    bar.set_label("attention on position 0")
    full = Line2D([], [], color=VERMILION, marker="<", linestyle="", label="layer with full attention")
    handles = [full] if tables.full_layers(run) else []
    crown(ax, run, "attention on position 0 (first_mass) by head", handles, above=20)
    return ax


def _draw_means(panel: Axes, table: pd.DataFrame, matrix: pd.DataFrame, top: float) -> None:
    heights = _rows_of(matrix, table["layer"])
    means = tables.over_heads(table, "first_mass").loc[matrix.index, "mean"]
    panel.plot(table["first_mass"], heights, ".", color=GREY, markersize=3, alpha=0.5, label="heads")
    panel.plot(means, range(len(means)), color=BLACK, linewidth=1.6, marker="o", markersize=3, label="layer mean")
    panel.set_xlim(-0.03 * top, 1.03 * top)
    panel.set_title("heads and mean")
    panel.xaxis.set_major_locator(MaxNLocator(nbins=3))
    panel.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    panel.tick_params(labelleft=False)
    panel.set_xlabel("first_mass")


def _ticks(rows: np.ndarray) -> np.ndarray:
    step = next(step for step in (1, 2, 5, 10, 20, 50, 100) if len(rows) / step <= 20)
    return rows[::step]


def _rows_of(matrix: pd.DataFrame, layers: Iterable[int]) -> list[int]:
    place = {int(layer): row for row, layer in enumerate(matrix.index)}
    return [place[layer] for layer in layers]


def _mark_full(run: Run, ax: Axes, matrix: pd.DataFrame) -> None:
    """A triangle at the right edge of each layer that sees everything, where others see a window."""
    full = [layer for layer in tables.full_layers(run) if layer in matrix.index]
    if full:
        transform = ax.get_yaxis_transform()
        heights = _rows_of(matrix, full)
        ax.plot([1.02] * len(full), heights, "<", color=VERMILION, markersize=6, transform=transform, clip_on=False)


def _caption(run: Run) -> str:
    table = run.tables["sinks"]
    marks = "Triangles: layers with full attention; the others see a sliding window." if tables.full_layers(run) else ""
    return join(
        "first_mass: the mean over the queries t ≥ 1 of A(t, 0), the attention that a query gives to position 0 of its "
        "window; a query that cannot see position 0 gives it nothing. A cell a query head.",
        "Right: the same numbers by layer, a dot a head, and their mean (line).",
        marks,
        f"n = {int(table['n_rows'].max()):,} queries a head, less those at position 0; {len(table):,} heads.",
        scope(run),
    )


FIRST_MASS = Drawing(
    draw=draw_first_mass,
    title="Attention on position 0, head by head",
    alt="A map of layers by query heads, coloured by the share of attention that goes to position 0, "
    "with the mean of each layer beside it.",
    caption=_caption,
    missing=needs("sinks"),
    size=lambda run: (WIDTH, float(np.clip(2.2 + 0.16 * len(tables.layers(run)), 3.2, 9.0))),
    data=rows_of("sinks", "layer", "q_head", "n_rows", "first_mass", "begin_mass"),
    dense=True,
)
