"""How large the logits get, and how far a row of them spreads."""

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from geomprobe import tables
from geomprobe.figures.drawing import Drawing, height, join, needs, scope, shading
from geomprobe.figures.layout import by_layer, crown, full_layer_key, head_dots, layer_axis, median_line
from geomprobe.figures.style import BLUE, GREEN, GREY, PURPLE
from geomprobe.run.reading import Run

COLUMNS = {
    "max": ("largest logit (raw)", BLUE),
    "p999": (".999 quantile, row-centred", GREEN),
    "row_sd": ("standard deviation of a row", PURPLE),
}


def draw_max_logit(run: Run, ax: Axes) -> Axes:
    """Three panels by layer, each with its own scale: max, p999, row_sd; a dot a head, the median of the heads."""
    data = tables.final_logits(run)
    ax.set_axis_off()
    width = 0.275
    for place, (column, (title, colour)) in enumerate(COLUMNS.items()):
        panel = ax.inset_axes((place * (1 - width) / 2, 0, width, 1))
        layer_axis(panel, run)
        head_dots(panel, data, column, colour)
        median_line(panel, by_layer(run, tables.over_heads(data, column))["median"], colour, label=f"{column} median")
        panel.set_title(title)
        if not (data[column] < 0).any():
            panel.set_ylim(bottom=0)
        if place == 0:
            panel.set_ylabel("nats")
    crown(ax, run, "size of the logits by layer", _legend(run), above=20)
    return ax


def _legend(run: Run) -> list[Artist]:
    return [
        Line2D([], [], color=GREY, marker="o", linestyle="", markersize=3, label="a head"),
        Line2D([], [], color=GREY, linewidth=2, label="median of the heads"),
        *full_layer_key(run),
    ]


def _caption(run: Run) -> str:
    data = tables.final_logits(run)
    capped = "after the soft-cap" if (run.tables["logits"]["capped"] == "before").any() else "the model has no soft-cap"
    return join(
        f"Logits as they enter the softmax (scale and bias included; {capped}).",
        "Left: the largest of all, over all rows. It is not comparable between models as it stands: a constant added "
        "to a row changes it and not the attention, and it grows with the amount of text.",
        "Middle: .999 quantile of logit minus its row's mean over the keys that the query sees. "
        "Right: standard deviation within a row, mean over the rows t ≥ 16.",
        f"A dot a query head, line: median of a layer's heads; n = {int(data['n_late'].max()):,} rows t ≥ 16 a head.",
        shading(run),
        scope(run),
    )


def _data(run: Run) -> pd.DataFrame:
    return tables.final_logits(run)[["layer", "q_head", "n_rows", "n_late", *COLUMNS]]


MAX_LOGIT = Drawing(
    draw=draw_max_logit,
    title="Size of the logits by layer",
    alt="Three panels of dots by layer: the largest logit, the .999 quantile of row-centred logits, "
    "and the standard deviation within a row.",
    caption=_caption,
    missing=needs("logits"),
    size=height(3.7),
    data=_data,
)
