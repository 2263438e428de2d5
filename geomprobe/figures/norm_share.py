"""How much of the attention lengths tell, by layer, in both gauges."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from geomprobe import tables
from geomprobe.figures.drawing import Drawing, height, join, measured, needs, scope, shading
from geomprobe.figures.layout import crown, full_layer_key, head_lines, layer_axis, median_line, panels
from geomprobe.figures.style import BLUE, GREY, VERMILION
from geomprobe.run.reading import Run

COLOURS = {"raw": BLUE, "balanced": VERMILION}
TITLES = {"out": "position 0 left out", "in": "position 0 among the keys"}


def draw_norm_share(run: Run, ax: Axes) -> Axes:
    """Two panels: the share of each layer in the raw and in the balanced gauge, a thin line a head."""
    made = panels(ax, 1, 2)
    for panel, first in zip(made, TITLES, strict=True):
        layer_axis(panel, run)
        for gauge, colour in COLOURS.items():
            heads = tables.norm_shares(run, gauge, first)
            if not len(heads):
                continue
            matrix = tables.by_head(heads, "share", "q_head").reindex(tables.layers(run)).clip(-0.5, 1.5)
            head_lines(panel, matrix, colour, alpha=0.18)
            median_line(panel, tables.layer_share(run, gauge, first), colour)
        for level in (0, 1):
            panel.axhline(level, color=GREY, linewidth=0.8, linestyle=":")
        panel.set_title(TITLES[first])
    made[0].set_ylim(-0.55, 1.55)
    made[0].set_ylabel("share told by lengths")
    handles = [
        *(Line2D([], [], color=colour, linewidth=2, label=f"{gauge} gauge") for gauge, colour in COLOURS.items()),
        Line2D([], [], color=GREY, linewidth=0.7, label="a head"),
        *full_layer_key(run),
    ]
    crown(ax, run, "is attention told by lengths or by angles?", handles, above=20)
    return ax


def _caption(run: Run) -> str:
    rows = tables.norm_shares(run, "raw", "out")
    n = int(rows["n_rows"].max()) if len(rows) else 0
    return join(
        "norm_share: what lengths explain of a query's attention, over what lengths and angles explain together. "
        "Each row is described as if all keys had one length (angles alone) and as if all stood at one angle "
        "(lengths alone); what a description leaves unexplained is its Kullback–Leibler divergence from the "
        "attention, and Shapley's rule divides.",
        "0: angles tell all of it; 1: lengths do. A share leaves that span where one description is worse than an even "
        "spread; lines are cut at −.5 and 1.5.",
        "Thick: Σφ_norm over Σ(φ_norm + φ_angle) of a layer's heads. The balanced gauge scales keys against queries "
        "so that both are alike, which changes no attention; where the two gauges disagree lengths and angles are "
        "not identified.",
        f"n = {n:,} rows a head, {measured(run)}.",
        shading(run),
        scope(run),
    )


def _data(run: Run) -> pd.DataFrame:
    every = [tables.norm_shares(run, gauge, first) for gauge in COLOURS for first in TITLES]
    columns = ["layer", "q_head", "gauge", "first", "n_rows", "phi_norm", "phi_angle", "share"]
    return pd.concat(every, ignore_index=True)[columns].rename(columns={"share": "norm_share"})


NORM_SHARE = Drawing(
    draw=draw_norm_share,
    title="Length against angle, by layer",
    alt="Two panels of lines by layer: the share of attention that key lengths tell, in the raw and balanced gauge, "
    "without position 0 and with it.",
    caption=_caption,
    missing=needs("split"),
    size=height(4.0),
    data=_data,
)
