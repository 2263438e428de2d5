"""Lengths of keys and queries by layer, for content, function and punctuation tokens; position 0 by itself."""

from functools import partial

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from geomprobe import tables
from geomprobe.figures.drawing import Drawing, height, join, needs, scope, shading
from geomprobe.figures.layout import (
    band,
    by_layer,
    crown,
    full_layer_key,
    head_lines,
    layer_axis,
    median_line,
    panels,
    positive_scale,
)
from geomprobe.figures.style import BLACK, CLASS_COLOURS, GREY
from geomprobe.labels import FIRST
from geomprobe.run.reading import Run

CLASSES = ("content", "function", "punctuation")
NAMES = {"k": "key", "q": "query"}
PLURALS = {"k": "keys", "q": "queries"}
HEADS = {"k": "key head", "q": "query head"}


def draw_key_lengths(run: Run, ax: Axes) -> Axes:
    """Lengths ‖k‖ of scored keys: a panel a class."""
    return _draw(run, ax, "k")


def draw_query_lengths(run: Run, ax: Axes) -> Axes:
    """Lengths ‖q‖ of scored queries: a panel a class."""
    return _draw(run, ax, "q")


def _draw(run: Run, ax: Axes, vector: str) -> Axes:
    seen: list[float] = []
    classes = shown_classes(run)
    made = panels(ax, 1, len(classes))
    for panel, token_class in zip(made, classes, strict=True):
        layer_axis(panel, run)
        seen += _draw_class(run, panel, vector, token_class)
        seen += _draw_first(run, panel, vector)
    made[0].set_ylabel(f"length of {PLURALS[vector]}, ‖{vector}‖₂")
    positive_scale(made[0], seen)
    crown(ax, run, f"{NAMES[vector]} lengths by layer", _legend(run), above=20, columns=6)
    return ax


def shown_classes(run: Run) -> tuple[str, ...]:
    """The classes that have a panel."""
    return CLASSES if tables.of_text(run) else ("all",)


def _draw_class(run: Run, panel: Axes, vector: str, token_class: str) -> list[float]:
    rows = tables.lengths(run, vector, token_class)
    n = int(rows["n"].max()) if len(rows) else 0
    panel.set_title(f"{token_class} (n = {n:,})")
    if not n:
        panel.text(0.5, 0.5, "none in this text", transform=panel.transAxes, ha="center", color=GREY)
        return []
    colour = CLASS_COLOURS[token_class]
    middle = by_layer(
        run, pd.DataFrame({p: tables.over_heads(rows, p)["median"] for p in ("p05", "p25", "p50", "p75", "p95")})
    )
    band(panel, middle["p05"], middle["p95"], colour, 0.18)
    band(panel, middle["p25"], middle["p75"], colour, 0.32)
    heads = by_layer(run, tables.by_head(rows, "p50"))
    head_lines(panel, heads, colour, alpha=0.55)
    median_line(panel, middle["p50"], colour, label=f"{token_class} median")
    return [*middle["p05"], *middle["p95"], *heads.to_numpy().ravel()]


def _draw_first(run: Run, panel: Axes, vector: str) -> list[float]:
    rows = tables.lengths(run, vector, FIRST)
    if not len(rows):
        return []
    middle = by_layer(run, tables.over_heads(rows, "p50"))["median"]
    median_line(panel, middle, BLACK, style="--", label="position 0")
    return list(middle)


def _legend(run: Run) -> list[Artist]:
    return [
        Line2D([], [], color=GREY, linewidth=2, label="median"),
        Line2D([], [], color=GREY, linewidth=0.7, label="a head's median"),
        Patch(color=GREY, alpha=0.5, label="25–75%"),
        Patch(color=GREY, alpha=0.25, label="5–95%"),
        Line2D([], [], color=BLACK, linewidth=2, linestyle="--", label="position 0"),
        *full_layer_key(run),
    ]


def _caption(run: Run, vector: str) -> str:
    first = tables.lengths(run, vector, FIRST)
    n_first = int(first["n"].max()) if len(first) else 0
    heads = tables.lengths(run, vector)["head"].nunique()
    return join(
        f"Euclidean length ‖{vector}‖₂ of the {NAMES[vector]} vectors as they enter the dot product (stage scored, raw "
        "gauge; the softmax scale is not in them).",
        "A panel a token class." if tables.of_text(run) else "",
        "Bands: 5–95% and 25–75% of the lengths within a head; "
        f"thick line: the median; each is the median over the {tables.count(heads, HEADS[vector])} of a layer.",
        "Thin lines: the median of each head by itself.",
        f"Dashed: the median length at position 0, whatever stands there (n = {n_first:,}, one a window); it is in no "
        f"band. n in the titles counts {'tokens' if tables.of_text(run) else 'places'}.",
        shading(run),
        scope(run),
    )


def _data(run: Run, vector: str) -> pd.DataFrame:
    rows = pd.concat([tables.lengths(run, vector, name) for name in (*shown_classes(run), FIRST)], ignore_index=True)
    return rows.loc[rows["n"] > 0, ["layer", "head", "token_class", "n", "p05", "p25", "p50", "p75", "p95"]]


def _drawing(vector: str) -> Drawing:
    return Drawing(
        draw=draw_key_lengths if vector == "k" else draw_query_lengths,
        title="Key lengths by layer" if vector == "k" else "Query lengths by layer",
        alt=f"Three panels of bands by layer: {NAMES[vector]} lengths of content, function and punctuation tokens, "
        "with position 0 as a dashed line.",
        caption=partial(_caption, vector=vector),
        missing=needs("norms"),
        size=height(4.2),
        data=partial(_data, vector=vector),
    )


KEY_LENGTHS = _drawing("k")
QUERY_LENGTHS = _drawing("q")
