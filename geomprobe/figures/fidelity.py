"""How near attention is to a softmax of cosines, by layer, and at what temperature."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from geomprobe import tables
from geomprobe.figures.drawing import Drawing, height, join, measured, needs, scope, shading
from geomprobe.figures.layout import band, by_layer, crown, full_layer_key, layer_axis, median_line, positive_scale
from geomprobe.figures.style import BLUE, GREEN, GREY, PURPLE
from geomprobe.labels import GAUGES
from geomprobe.run.reading import Run

COLOURS = {"r2": GREEN, "tv": PURPLE, "beta": BLUE}
STYLES = {"raw": "-", "balanced": "--"}
SHADES = {"raw": 0.22, "balanced": 0.12}
FILLS: Final[Mapping[str, Literal["full", "none"]]] = MappingProxyType({"raw": "full", "balanced": "none"})


def draw_fidelity(run: Run, ax: Axes) -> Axes:
    """Left, R² and total variation; right, the temperature β: medians over heads with the middle half of them."""
    ax.set_axis_off()
    near = ax.inset_axes((0, 0, 0.46, 1))
    heat = ax.inset_axes((0.54, 0, 0.46, 1))
    told = _told(run)
    for panel, columns in ((near, ("r2", "tv")), (heat, ("beta",))):
        layer_axis(panel, run)
        for gauge, rows in told.items():
            for column in columns:
                _draw_column(run, panel, rows, column, gauge)
    near.set_ylim(0, 1.03)
    near.set_ylabel("R² and total variation")
    near.set_title("how near: R² to 1, tv to 0")
    positive_scale(heat, [value for rows in told.values() for value in rows["beta"]])
    heat.set_ylabel("β, the logit of a cosine of 1")
    heat.set_title("at what temperature")
    crown(ax, run, "is attention a softmax of cosines?", _legend(run), above=20, columns=6)
    return ax


def _told(run: Run) -> dict[str, pd.DataFrame]:
    """The rows of each gauge that the run has, position 0 out."""
    found = {gauge: tables.split_rows(run, gauge, "out") for gauge in GAUGES}
    return {gauge: rows for gauge, rows in found.items() if len(rows)}


def _draw_column(run: Run, panel: Axes, rows: pd.DataFrame, column: str, gauge: str) -> None:
    middle = by_layer(run, tables.over_heads(rows, column))
    band(panel, middle["q25"], middle["q75"], COLOURS[column], SHADES[gauge])
    line = median_line(panel, middle["median"], COLOURS[column], style=STYLES[gauge], label=f"{column} {gauge}")
    line.set_fillstyle(FILLS[gauge])  # of the dot where there is a single layer


def _legend(run: Run) -> list[Artist]:
    return [
        Line2D([], [], color=COLOURS["r2"], linewidth=2, label="R²"),
        Line2D([], [], color=COLOURS["tv"], linewidth=2, label="tv"),
        *(_gauge_key(run, gauge) for gauge in _told(run)),
        Patch(color=GREY, alpha=0.5, label="middle half"),
        *full_layer_key(run),
    ]


def _gauge_key(run: Run, gauge: str) -> Line2D:
    key = Line2D([], [], color=GREY, linewidth=2, linestyle=STYLES[gauge], label=f"{gauge} gauge")
    if len(tables.layers(run)) == 1:
        key.set_marker("o")
        key.set_fillstyle(FILLS[gauge])
    return key


def _caption(run: Run) -> str:
    told = _told(run)
    heads = max((rows["q_head"].nunique() for rows in told.values()), default=0)
    n = max((int(rows["n_rows"].max()) for rows in told.values()), default=0)
    balanced = (
        "Dashed: the balanced gauge, which scales keys against queries so that both are alike and changes no attention."
        if "balanced" in told
        else "This run has no balanced gauge."
    )
    return join(
        "Position 0 is left out of the keys, and the rest renormalised to 1. β = scale·m·n̄, with m the length of a "
        "query and n̄ the geometric mean of a head's key lengths in the window.",
        "tv: total variation between the attention A and softmax(β·cos), ½·Σ|A − softmax(β·cos)|, the part of a "
        "query's attention that would have to move if all keys had one length; mean over rows.",
        "R²: of logits (before soft-cap and bias) on m·cos, both less the mean of their row, with one slope a head.",
        "β, the effective temperature: what multiplies a cosine in the softmax, so the larger, the sharper; geometric "
        "mean over rows.",
        f"Lines: medians over the {tables.count(heads, 'query head')} of a layer; bands: from the first quartile of "
        "the heads to the third.",
        balanced,
        f"n = {tables.count(n, 'row')} a head, {measured(run)}.",
        shading(run),
        scope(run),
    )


def _data(run: Run) -> pd.DataFrame:
    every = pd.concat(list(_told(run).values()), ignore_index=True)
    return every[["layer", "q_head", "gauge", "n_rows", "r2", "tv", "beta"]]


FIDELITY = Drawing(
    draw=draw_fidelity,
    title="How near attention is to a softmax of cosines",
    alt="Two panels of lines with bands by layer: R² and total variation between attention and a softmax of cosines, "
    "and the effective temperature; raw and balanced gauge.",
    caption=_caption,
    missing=needs("split"),
    size=height(4.0),
    data=_data,
)
