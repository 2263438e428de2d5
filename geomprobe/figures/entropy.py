"""Entropy of attention by layer, with position 0 and without it."""

import math

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from geomprobe import tables
from geomprobe.figures.drawing import Drawing, height, join, needs, scope, shading
from geomprobe.figures.layout import by_layer, crown, full_layer_key, head_dots, layer_axis, median_line, panels
from geomprobe.figures.style import BLACK, BLUE, GREY, ORANGE
from geomprobe.run.reading import Run

COLUMNS = {"entropy": ("all keys", BLUE), "entropy_no_first": ("without position 0", ORANGE)}


def draw_entropy(run: Run, ax: Axes) -> Axes:
    """Two panels: a dot a head, the median of a layer's heads, the entropy of uniform attention."""
    data = tables.final_logits(run)
    made = panels(ax, 1, 2)
    for panel, (column, (title, colour)) in zip(made, COLUMNS.items(), strict=True):
        layer_axis(panel, run)
        head_dots(panel, data, column, colour)
        median_line(panel, by_layer(run, tables.over_heads(data, column))["median"], colour, label=f"{column} median")
        reference = uniform_reference(run, first=column == "entropy")
        panel.plot(reference.index, reference, "_", color=BLACK, markersize=7, markeredgewidth=1.4, label="uniform")
        panel.set_title(f"{title} (n = {int(data['n_late'].max()):,} rows a head)")
    made[0].set_ylabel("entropy (nats)")
    made[0].margins(y=0.06)
    made[0].set_ylim(bottom=0)
    crown(ax, run, "entropy of attention by layer", _legend(run), above=20, columns=5)
    return ax


def uniform_reference(run: Run, *, first: bool = True) -> pd.Series:
    """By layer, the mean entropy over the rows t ≥ 16 if a query looked at all that it sees alike."""
    length = int(run.manifest["corpus"]["window"])
    windowed = tables.binding_windows(run)
    ahead = {int(entry["layer"]): not entry.get("causal", True) for entry in run.manifest["model"]["anatomy"]}
    return pd.Series(
        {
            layer: tables.uniform_entropy(length, windowed.get(layer), first=first, ahead=ahead[layer])
            for layer in tables.layers(run)
        }
    )


def _legend(run: Run) -> list[Artist]:
    return [
        Line2D([], [], color=GREY, marker="o", linestyle="", markersize=3, label="a head"),
        Line2D([], [], color=GREY, linewidth=2, label="median of the heads"),
        Line2D([], [], color=BLACK, marker="_", linestyle="", markersize=9, label="uniform attention"),
        *full_layer_key(run),
    ]


def _caption(run: Run) -> str:
    values = sorted({round(value, 3) for value in uniform_reference(run) if not math.isnan(value)})
    marks = " or ".join(f"{value:g}" for value in values)
    return join(
        "Entropy of a query's attention, −Σ A log A in nats: mean over the queries t ≥ 16 of a head.",
        "Left: over all keys that the query sees; right: position 0 removed and the rest renormalised to 1.",
        f"Black marks: entropy of attention spread evenly over what the query sees, mean of log|V(t)| over the same "
        f"rows (over all keys {marks} nats, from the window of the layer)."
        if marks
        else "",
        shading(run),
        scope(run),
    )


def _data(run: Run) -> pd.DataFrame:
    return tables.final_logits(run)[["layer", "q_head", "n_late", *COLUMNS]]


ENTROPY = Drawing(
    draw=draw_entropy,
    title="Entropy of attention by layer",
    alt="Two panels of dots by layer: entropy of each head's attention with position 0 and without it, "
    "with medians and the entropy of uniform attention.",
    caption=_caption,
    missing=needs("logits"),
    size=height(4.0),
    data=_data,
)
