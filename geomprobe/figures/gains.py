"""Gains of the QK norms by layer."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from geomprobe import tables
from geomprobe.figures.drawing import Drawing, height, join, needs, rows_of, shading
from geomprobe.figures.layout import crown, full_layer_key, layer_axis, positive_scale
from geomprobe.figures.style import VECTOR_COLOURS
from geomprobe.run.reading import Run

COLUMNS = {"cv": "CV of the gains", "max_over_median": "largest ÷ median gain"}
NAMES = {"k": "key norm", "q": "query norm"}
MARKS = {"k": "o", "q": "D"}


def draw_gains(run: Run, ax: Axes) -> Axes:
    """Two panels: CV and max/median of each norm's gains, keys and queries side by side."""
    table = run.tables["gains"]
    ax.set_axis_off()
    for place, (column, label) in enumerate(COLUMNS.items()):
        panel = ax.inset_axes((0.54 * place, 0, 0.46, 1))
        layer_axis(panel, run)
        for side, vector in ((-0.15, "k"), (0.15, "q")):
            _draw_vector(table[table["vector"] == vector], panel, column, vector, side)
        positive_scale(panel, table[column])
        panel.set_ylabel(label)
    handles = [
        Line2D([], [], color=VECTOR_COLOURS[vector], marker=MARKS[vector], linestyle="", label=NAMES[vector])
        for vector in NAMES
    ]
    crown(ax, run, "gains of the QK norms", [*handles, *full_layer_key(run)], above=6)
    return ax


def _draw_vector(rows: pd.DataFrame, panel: Axes, column: str, vector: str, side: float) -> None:
    colour = VECTOR_COLOURS[vector]
    panel.plot(
        rows["layer"] + side,
        rows[column],
        MARKS[vector],
        color=colour,
        markersize=5,
        alpha=0.8,
        label=f"{column} {vector}",
    )


def _caption(run: Run) -> str:
    table = run.tables["gains"]
    widths = ", ".join(f"{n:,}" for n in sorted(table["n"].unique()))
    negative, zero = int(table["n_negative"].sum()), int(table["n_zero"].sum())
    return join(
        "The per-channel gains of the norms on keys and queries, measured by what a norm does to a vector of ±1. "
        "A dot a norm (one for all heads of a layer where they share it).",
        "Left: standard deviation over mean; 0 is a norm whose gains are all alike. Right: largest gain over the "
        "median.",
        f"n = {len(table):,} norms of {widths} channels, {negative:,} negative and {zero:,} zero gains among them.",
        shading(run),
        f"Weights of {run.name}; no text enters.",
    )


def _missing(run: Run) -> str | None:
    if not any(tables.normed_layers(run, vector) for vector in NAMES):
        return "No QK norm was found in this model, hence no gains."
    return needs("gains")(run)


GAINS = Drawing(
    draw=draw_gains,
    title="Gains of the QK norms",
    alt="Two panels of dots by layer: coefficient of variation of the gains, and largest over median gain, "
    "for key and query norms.",
    caption=_caption,
    missing=_missing,
    size=height(3.6),
    data=rows_of("gains"),
)
