"""class_sink by layer: which classes draw more attention than the content words beside them."""

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import NullLocator

from geomprobe import tables
from geomprobe.figures.drawing import WIDTH, Drawing, join, needs_classes, scope, shading
from geomprobe.figures.layout import band, by_layer, crown, full_layer_key, head_dots, layer_axis, median_line, panels
from geomprobe.figures.style import BLACK, CLASS_COLOURS, GREY
from geomprobe.labels import CLOSED_CLASSES
from geomprobe.run.reading import Run

CLASSES = ("function", *CLOSED_CLASSES, "punctuation", "newline", "number", "subword")
COLUMNS = 4
LINEAR = 3.0  # nats up to which the panels have a linear scale
TICKS = (-30, -10, -3, -1, 0, 1, 3, 10, 30)


def shown_classes(run: Run) -> list[str]:
    """The classes with a class_sink, in the order of the panels."""
    table = run.tables["class_attention"]
    known = set(table.loc[table["class_sink"].notna(), "token_class"])
    return [name for name in CLASSES if name in known]


def draw_class_sink(run: Run, ax: Axes) -> Axes:
    """A panel a class: dots the heads, line their median, band their quartiles."""
    names = shown_classes(run)
    n_types = tables.class_counts(run)["n_types"]
    rows = -(-len(names) // COLUMNS)
    made = panels(ax, rows, COLUMNS, gap=(0.03, 0.17 / max(rows - 1, 1) if rows > 1 else 0.2))
    limits: list[float] = []
    for place, panel in enumerate(made):
        if place >= len(names):
            panel.set_visible(False)
            continue
        name = names[place]
        data = tables.class_rows(run, name)
        shape = by_layer(run, tables.over_heads(data, "class_sink"))
        layer_axis(panel, run, label=place + COLUMNS >= len(names))
        panel.tick_params(labelbottom=place + COLUMNS >= len(names))
        panel.axhline(0, color=BLACK, linewidth=0.8, zorder=1)
        head_dots(panel, data, "class_sink", CLASS_COLOURS[name])
        band(panel, shape["q25"], shape["q75"], CLASS_COLOURS[name], 0.3)
        median_line(panel, shape["median"], BLACK, label=f"{name} median")
        panel.set_title(f"{name} ({n_types[name]:,} {'type' if n_types[name] == 1 else 'types'})")
        limits += list(np.nanquantile(data["class_sink"], (0.01, 0.99)))
    reach = 1.08 * max(np.abs(limits), default=1.0)
    if reach > LINEAR:
        made[0].set_yscale("symlog", linthresh=1.0, linscale=1.0)
        made[0].set_yticks(TICKS, [f"{tick:+d}".replace("-", "−") if tick else "0" for tick in TICKS], minor=False)
        made[0].yaxis.set_minor_locator(NullLocator())
    made[0].set_ylim(-reach, reach)
    for row in range(rows):
        made[row * COLUMNS].set_ylabel("class_sink (nats)")
    crown(ax, run, "logit over content neighbours, by class", _legend(run), above=20, columns=5)
    return ax


def _legend(run: Run) -> list[Artist]:
    return [
        Line2D([], [], color=BLACK, linewidth=2, label="median of the heads"),
        Patch(color=GREY, alpha=0.4, label="25–75% of the heads"),
        Line2D([], [], color=GREY, marker="o", linestyle="", markersize=3, label="a head"),
        *full_layer_key(run),
    ]


def _caption(run: Run) -> str:
    table = run.tables["class_attention"]
    shown = table[table["token_class"].isin(CLASSES) & table["class_sink"].notna()]
    offset = shown["neighbour_offset"].abs().max()
    return join(
        "class_sink = Λ(class) − Λ(content). Λ of a token: the mean over later queries of its logit (before soft-cap "
        "and bias) minus the mean logit of the content words within 8 tokens of it, the same queries for both sides, "
        "all positions ≥ 16; averaged over the tokens of a type with at least 5 of them, then over types.",
        "Nats: +1 means e ≈ 2.7 times the attention of the neighbours (ratio of geometric means). Types are the units; "
        "their number stands in the titles.",
        "Dots: query heads (the outermost 1% may lie outside the panels); line and band: median and quartiles of a "
        "layer's heads. The scale is linear up to ±1 and logarithmic beyond where the values reach further than 3.",
        f"Mean offset of the neighbours from the token: at most {offset:.2f} tokens." if np.isfinite(offset) else "",
        shading(run),
        scope(run),
    )


def _missing(run: Run) -> str | None:
    lacking = needs_classes("class_attention")(run)
    if lacking or shown_classes(run):
        return lacking
    return "No class has a type with five tokens or more in this text, so class_sink is not defined."


def _data(run: Run) -> pd.DataFrame:
    table = run.tables["class_attention"]
    columns = ["layer", "q_head", "token_class", "n_types", "lambda", "class_sink", "neighbour_offset"]
    return table.loc[table["token_class"].isin(shown_classes(run)), columns]


CLASS_SINK = Drawing(
    draw=draw_class_sink,
    title="Which classes draw attention from their neighbours (class_sink)",
    alt="A panel for each token class: class_sink by layer, a dot a head, with median and quartiles; "
    "above zero a class draws more attention than the content words beside it.",
    caption=_caption,
    missing=_missing,
    size=lambda run: (WIDTH, 1.5 + 1.75 * -(-len(shown_classes(run)) // COLUMNS)),
    data=_data,
    dense=True,
)
