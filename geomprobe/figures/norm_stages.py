"""Lengths before and after the QK norm."""

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

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
from geomprobe.figures.style import BLUE, GREY
from geomprobe.labels import FIRST
from geomprobe.run.reading import Run

STAGES = {"projected": GREY, "scored": BLUE}  # before and after
NAMES = {"k": "keys", "q": "queries"}


def draw_norm_stages(run: Run, ax: Axes) -> Axes:
    """Lengths as projected and as scored, keys beside queries."""
    seen: list[float] = []
    made = panels(ax, 1, 2)
    for panel, vector in zip(made, NAMES, strict=True):
        layer_axis(panel, run)
        n = int(tables.lengths(run, vector)["n"].max())
        panel.set_title(f"{NAMES[vector]} (n = {n:,})")
        for stage, colour in STAGES.items():
            seen += _draw_stage(run, panel, vector, stage, colour)
    made[0].set_ylabel("length, ‖·‖₂")
    positive_scale(made[0], seen)
    crown(ax, run, "lengths before and after the QK norm", _legend(run), above=20, columns=5)
    return ax


def _draw_stage(run: Run, panel: Axes, vector: str, stage: str, colour: str) -> list[float]:
    rows = tables.lengths(run, vector, stage=stage)
    if not len(rows):
        return []
    middle = by_layer(run, pd.DataFrame({p: tables.over_heads(rows, p)["median"] for p in ("p05", "p50", "p95")}))
    band(panel, middle["p05"], middle["p95"], colour, 0.25)
    heads = by_layer(run, tables.by_head(rows, "p50"))
    head_lines(panel, heads, colour, alpha=0.55)
    median_line(panel, middle["p50"], colour, label=stage)
    seen = [*middle["p05"], *middle["p95"], *heads.to_numpy().ravel()]
    first = tables.lengths(run, vector, FIRST, stage)
    if len(first):
        line = by_layer(run, tables.over_heads(first, "p50"))["median"]
        median_line(panel, line, colour, style="--", label=f"{stage} position 0")
        seen += list(line)
    return seen


def _legend(run: Run) -> list[Artist]:
    return [
        Line2D([], [], color=GREY, linewidth=2, label="before (projected)"),
        Line2D([], [], color=BLUE, linewidth=2, label="after (scored)"),
        Line2D([], [], color=GREY, linewidth=0.7, label="a head's median"),
        Line2D([], [], color=GREY, linewidth=2, linestyle="--", label="position 0"),
        *full_layer_key(run),
    ]


def _caption(run: Run) -> str:
    keys, queries = (len(tables.normed_layers(run, vector)) for vector in "kq")
    return join(
        "Euclidean length of keys and queries as the projection gives them (before the norm) and as they enter the "
        "dot product (after the norm and the rotation, which keeps lengths).",
        f"The norm stands on the keys of {keys} and the queries of {queries} of {len(tables.layers(run))} layers.",
        "Band: 5–95% of the lengths within a head, all tokens but position 0; line: the median; both are medians over "
        "the heads of a layer. Thin lines: the median of each head. Dashed: position 0 (its median over the windows).",
        "n in the titles counts tokens.",
        shading(run),
        scope(run),
    )


def _data(run: Run) -> pd.DataFrame:
    every = [
        tables.lengths(run, vector, token_class, stage)
        for vector in NAMES
        for token_class in ("all", FIRST)
        for stage in STAGES
    ]
    columns = ["layer", "vector", "head", "stage", "token_class", "n", "p05", "p50", "p95"]
    return pd.concat(every, ignore_index=True)[columns]


def _missing(run: Run) -> str | None:
    """Nothing to draw without a norm, or where only one stage was captured."""
    lacking = needs("norms")(run)
    if lacking:
        return lacking
    if not any(tables.normed_layers(run, vector) for vector in NAMES):
        return "No QK norm was found in this model."
    if not all(len(tables.lengths(run, vector, stage=stage)) for vector in NAMES for stage in STAGES):
        return "This model has a QK norm, but its lengths before the norm were not captured."
    return None


NORM_STAGES = Drawing(
    draw=draw_norm_stages,
    title="Lengths before and after the QK norm",
    alt="Two panels of bands by layer, keys and queries: lengths as projected in grey, as scored in blue.",
    caption=_caption,
    missing=_missing,
    size=height(4.2),
    data=_data,
)
