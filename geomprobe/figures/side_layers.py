"""Quantities of several runs along the depth, in one panel: lines of layers, bands over heads."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pandas as pd
from matplotlib.axes import Axes

from geomprobe import tables
from geomprobe.comparison.comparison import Comparison
from geomprobe.figures.drawing import height
from geomprobe.figures.layout import band, median_line, panels
from geomprobe.figures.side_drawing import (
    MOST_BANDS,
    SideDrawing,
    all_have,
    at_depth,
    depth_axis,
    each_run,
    headline,
    keys_of_runs,
    line_style,
    rows_of_all,
    text_of,
)
from geomprobe.figures.style import GREY
from geomprobe.run.reading import Run

_BANDS = "Line: the mean over the heads of a layer; band: from the 25th to the 75th percentile of the heads."
_DEPTH = "Relative depth: the i-th of L attention layers is at (i + ½)/L, so that models of any depth meet."


@dataclass(frozen=True)
class Along:
    """A quantity of heads along the depth: its rows (layer, column) in a run."""

    column: str
    label: str
    rows: Callable[[Run], pd.DataFrame]
    middle: str = "mean"


def _sinks(run: Run) -> pd.DataFrame:
    return run.tables["sinks"][["layer", "q_head", "first_mass"]]


def _entropy(run: Run) -> pd.DataFrame:
    return tables.final_logits(run)[["layer", "q_head", "entropy_no_first"]]


def _split(run: Run, gauge: str, column: str) -> pd.DataFrame:
    rows = tables.norm_shares(run, gauge, "out")
    return rows[["layer", "q_head", "gauge", column]]


def draw_along(comparison: Comparison, panel: Axes, what: Along) -> None:
    """A line and a band a run."""
    depth_axis(panel)
    for index, run, _, colour in each_run(comparison):
        rows = what.rows(run).dropna(subset=[what.column])
        middle = at_depth(run, tables.over_heads(rows, what.column))
        if comparison.sides.n <= MOST_BANDS:  # bands of many runs would cover one another
            band(panel, middle["q25"], middle["q75"], colour, 0.16)
        median_line(panel, middle[what.middle], colour, style=line_style(index))
    panel.set_ylabel(what.label)


FIRST_MASS = Along("first_mass", "attention on position 0", _sinks)
ENTROPY = Along("entropy_no_first", "entropy without position 0 (nats)", _entropy)
TV = Along("tv", "distance from a softmax of cosines", partial(_split, gauge="raw", column="tv"), "median")
SHARES = {
    gauge: Along("share", f"told by lengths, {gauge}", partial(_split, gauge=gauge, column="share"), "median")
    for gauge in ("raw", "balanced")
}


# ------------------------------------------------------------------ sinks
def draw_sinks(comparison: Comparison, ax: Axes) -> Axes:
    """Attention on position 0 by depth; sink rate by threshold."""
    left, right = panels(ax, 1, 2, gap=(0.11, 0.2), shared=False)
    draw_along(comparison, left, FIRST_MASS)
    left.set_ylim(bottom=0)
    for index, run, _, colour in each_run(comparison):
        rates = run.tables["sink_rates"]
        whole = rates[rates["layer"] == -1].sort_values("epsilon")
        right.plot(whole["epsilon"], whole["rate"], marker="o", markersize=4, color=colour, linestyle=line_style(index))
    right.set_ylim(-0.02, 1)
    right.set_xlabel("threshold ε")
    right.set_ylabel("sink rate: heads × windows with α₀ > ε")
    headline(ax, "how much attention position 0 takes", keys_of_runs(comparison))
    return ax


def _sinks_caption(comparison: Comparison) -> str:
    return (
        "Left: first_mass, the mean over the queries t ≥ 1 of the attention they give to position 0. "
        f"{_BANDS} {_DEPTH} Right: the share of windows × heads of all layers in which the early queries (t < 64) give "
        f"position 0 more than ε on average. n = {_heads(comparison)}. {text_of(comparison)}"
    )


def _heads(comparison: Comparison) -> str:
    said = [
        f"{int(tables.anatomy(run)['q_heads'].sum()):,} query heads of {label}"
        for _, run, label, _ in each_run(comparison)
    ]
    return ", ".join(said)


# ------------------------------------------------------------------ entropy, length and angle
def draw_entropy(comparison: Comparison, ax: Axes) -> Axes:
    """Entropy without position 0 by depth."""
    draw_along(comparison, ax, ENTROPY)
    ax.set_ylim(bottom=0)
    headline(ax, "how spread out attention is", keys_of_runs(comparison))
    return ax


def draw_fidelity(comparison: Comparison, ax: Axes) -> Axes:
    """Distance from a softmax of cosines; the share that lengths tell in both gauges."""
    made = panels(ax, 1, 3, gap=(0.09, 0.2), shared=False)
    for panel, what in zip(made, (TV, *SHARES.values()), strict=True):
        draw_along(comparison, panel, what)
    made[0].set_ylim(bottom=0)
    for panel in made[1:]:
        panel.axhline(0, color=GREY, linewidth=0.8, linestyle=":")
    low = min(panel.get_ylim()[0] for panel in made[1:])
    high = max(panel.get_ylim()[1] for panel in made[1:])
    for panel in made[1:]:
        panel.set_ylim(low, high)
    headline(ax, "is attention told by angles or by lengths?", keys_of_runs(comparison))
    return ax


# ------------------------------------------------------------------ words
def draw_clusters(comparison: Comparison, ax: Axes) -> Axes:
    """AUC of categories by depth: keys, residual stream; the embedding at depth 0."""
    made = panels(ax, 1, 2, gap=(0.03, 0.2))
    for panel, name in zip(made, ("k", "residual"), strict=True):
        depth_axis(panel)
        for index, run, _, colour in each_run(comparison):
            lines = tables.cluster_lines(run)
            if name in lines:
                line = at_depth(run, lines[name].set_index("layer")[["auc", "auc_low", "auc_high"]])
                if comparison.sides.n <= MOST_BANDS:
                    band(panel, line["auc_low"], line["auc_high"], colour, 0.16)
                median_line(panel, line["auc"], colour, style=line_style(index))
            if "embedding" in lines:
                panel.plot(0, lines["embedding"]["auc"].iloc[0], "D", color=colour, markersize=6, clip_on=False)
        panel.axhline(0.5, color=GREY, linewidth=0.8, linestyle=":")
        panel.set_title({"k": "keys (mean over heads)", "residual": "residual stream"}[name])
    made[0].set_ylabel("AUC: within a category nearer\nthan between two")
    made[0].set_ylim(0.45, 1)
    headline(ax, "do nouns of one category point the same way?", keys_of_runs(comparison), above=20)
    return ax


def draw_neighbours(comparison: Comparison, ax: Axes) -> Axes:
    """Self retrieval of words by decile of their frequency."""
    lowest = 1.0
    for index, run, _, colour in each_run(comparison):
        bands = tables.neighbour_bands(run, "self_retrieval_mrr", "k")
        lowest = min(lowest, float(bands["q25"].min()), float(bands["mean"].min()))
        if comparison.sides.n <= MOST_BANDS:
            band(ax, bands["q25"], bands["q75"], colour, 0.16)
        median_line(ax, bands["mean"], colour, style=line_style(index))
    ax.set_ylim(max(0, lowest - 0.15), 1)
    ax.set_xlabel("decile of frequency in the text (0: the rarest)")
    ax.set_ylabel("self retrieval (MRR), keys")
    headline(ax, "are rare words recognised?", keys_of_runs(comparison))
    return ax


SIDE_SINKS = SideDrawing(
    draw=draw_sinks,
    title="Attention on position 0, side by side",
    alt="Left, a line a run: the share of attention on position 0 by relative depth. Right: sink rates by threshold.",
    caption=_sinks_caption,
    missing=all_have("sinks", "sink_rates"),
    size=height(4.0),
    data=rows_of_all(_sinks),
)
SIDE_ENTROPY = SideDrawing(
    draw=draw_entropy,
    title="Entropy of attention, side by side",
    alt="A line with a band a run: entropy of attention without position 0 by relative depth.",
    caption=lambda comparison: (
        "Entropy of a row of attention with position 0 removed and the rest renormalised, in nats, mean over the "
        f"queries t ≥ 16. {_BANDS} {_DEPTH} Windows of other lengths, and other tokenizers, give other entropies. "
        f"n = {_heads(comparison)}. {text_of(comparison)}"
    ),
    missing=all_have("logits"),
    size=height(3.8),
    data=rows_of_all(_entropy),
)
SIDE_FIDELITY = SideDrawing(
    draw=draw_fidelity,
    title="Length and angle, side by side",
    alt="Three panels by relative depth, a line a run: distance from a softmax of cosines, and the share of attention "
    "told by lengths in the raw and in the balanced gauge.",
    caption=lambda comparison: (
        "Left: total variation between attention and a softmax of cosines at the head's own temperature, raw gauge, "
        "position 0 out. Middle and right: of what key lengths and angles tell of a row of attention (nats against "
        "uniform, Shapley's halves), the share of lengths, by head, raw and balanced; below 0 a description by lengths "
        "is worse than none. Line: the median head of a layer; band: 25th to 75th percentile. "
        f"{_DEPTH} n = {_heads(comparison)}. {text_of(comparison)}"
    ),
    missing=all_have("split"),
    size=height(3.8),
    data=rows_of_all(lambda run: tables.split_rows(run, "raw", "out")),
)
SIDE_CLUSTERS = SideDrawing(
    draw=draw_clusters,
    title="Clusters of meaning, side by side",
    alt="Two panels by relative depth, keys and residual stream, a line with a band a run: AUC of categories of nouns.",
    caption=lambda comparison: (
        "AUC: how often the cosine of two nouns of one category is larger than that of two of different ones (½: "
        "nothing). Each run on the nouns that it has; the table of differences is on those that all have. Bands: 95% "
        "intervals, nouns drawn with replacement. Keys in the raw gauge. Diamonds: the input embedding. "
        f"{_DEPTH} {_nouns(comparison)}"
    ),
    missing=all_have("clusters"),
    size=height(4.0),
    data=rows_of_all(
        lambda run: run.tables["clusters"][["layer", "vector", "head", "space", "gauge", "auc", "n_types"]]
    ),
)
SIDE_NEIGHBOURS = SideDrawing(
    draw=draw_neighbours,
    title="Rare words, side by side",
    alt="A line with a band a run: self retrieval of words by decile of their frequency.",
    caption=lambda comparison: (
        "Self retrieval: a word's vector from one half of its contexts looks for its own from the other half among all "
        "words; mean reciprocal rank. Line: the mean over the key heads past layer 0, raw gauge; band: their 25th to "
        "75th percentile. No interval: it is kept by head, not by document. Each run on the words that are one token "
        "to it."
    ),
    missing=all_have("neighbours"),
    size=height(3.8),
    data=rows_of_all(
        lambda run: run.tables["neighbours"][
            ["layer", "vector", "head", "space", "gauge", "frequency_band", "n_types", "self_retrieval_mrr"]
        ]
    ),
)


def _nouns(comparison: Comparison) -> str:
    said = [
        f"{int(run.tables['clusters']['n_types'].max())} nouns of {label}" for _, run, label, _ in each_run(comparison)
    ]
    return f"n = {', '.join(said)}."
