"""Where classes of tokens draw attention: by the lengths of their keys, or by their angles."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from geomprobe import tables
from geomprobe.figures.drawing import Drawing, height, join, needs, scope
from geomprobe.figures.layout import crown, panels
from geomprobe.figures.style import BLACK, BLUE, GREY, VERMILION
from geomprobe.run.reading import Run

PARTS = {"norm_part": ("length", VERMILION), "angle_part": ("angle", BLUE)}
OFFSETS = {"raw": -0.2, "balanced": 0.2}
CLASSES = (
    "first",
    "newline",
    "punctuation",
    "article",
    "preposition",
    "pronoun",
    "conjunction",
    "auxiliary",
    "function",
)


def draw_class_split(run: Run, ax: Axes) -> Axes:
    """A panel a third of the depth: stacked bars of both parts a class, raw left, balanced right; a dot for the sum."""
    table = run.tables["class_split"]
    classes = [name for name in CLASSES if table[table["token_class"] == name]["class_sink"].notna().any()]
    thirds = tables.thirds(run)
    made = panels(ax, 1, len(thirds))
    for panel, third in zip(made, thirds, strict=True):
        rows = table[table["layer"].isin(third) & table["token_class"].isin(classes)]
        medians = rows.groupby(["token_class", "gauge"])[["class_sink", *PARTS]].median().to_dict("index")
        for place, name in enumerate(classes):
            for gauge, offset in OFFSETS.items():
                own = medians.get((name, gauge))
                if own is not None and np.isfinite(own["class_sink"]):
                    _bar(panel, place + offset, own)
            total = medians.get((name, "raw"), {"class_sink": np.nan})["class_sink"]
            panel.plot(place, total, "o", color=BLACK, markersize=4, zorder=4)
        panel.axhline(0, color=GREY, linewidth=0.8)
        panel.set_xticks(range(len(classes)), classes, rotation=90)
        panel.set_xlim(-0.6, len(classes) - 0.4)
        panel.set_title(tables.span(third))
    made[0].set_ylabel("nats, median head")
    handles = [
        *(Patch(color=colour, label=f"by {name}") for name, colour in PARTS.values()),
        Line2D([], [], color=BLACK, marker="o", linestyle="", markersize=4, label="whole"),
        Line2D([], [], linestyle="", label="left bar: raw gauge, right: balanced"),
    ]
    crown(ax, run, "what draws attention to a class", handles, above=20)
    return ax


def _bar(panel: Axes, place: float, parts: dict[Any, float]) -> None:
    """Both parts from 0, stacked where they have one sign."""
    up = down = 0.0
    for part, (_, colour) in PARTS.items():
        value = parts[part]
        if not np.isfinite(value):
            continue
        bottom = up if value >= 0 else down
        panel.bar(place, value, 0.36, bottom=bottom, color=colour, alpha=0.85)
        up, down = (up + value, down) if value >= 0 else (up, down + value)


def _caption(run: Run) -> str:
    return join(
        "class_sink, the logits of a class's keys over those of the content words beside them (same queries, nats), "
        "divided exactly into a part that lies in key lengths and one that lies in angles: with keys f and c, (n_f − "
        "n_c)·½(cos_f + cos_c) and ½(n_f + n_c)(cos_f − cos_c), times the query's length and the scale.",
        "first: position 0 against all content words before a query. Medians over the heads of the layers named; the "
        "parts' medians need not add up to the median whole (dot).",
        "Left bars: raw gauge; right: balanced. Where they disagree the division is not identified.",
        scope(run),
    )


def _data(run: Run) -> pd.DataFrame:
    table = run.tables["class_split"]
    return table[table["token_class"].isin(CLASSES) & table["class_sink"].notna()]


CLASS_SPLIT = Drawing(
    draw=draw_class_split,
    title="What draws attention to a class: length or angle",
    alt="Panels of stacked bars, a class of tokens each: the parts of its pull that lie in key lengths and in angles.",
    caption=_caption,
    missing=needs("class_split"),
    size=height(4.6),
    data=_data,
)
