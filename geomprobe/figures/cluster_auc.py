"""How well directions separate categories of nouns, by layer."""

import math

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from geomprobe import tables
from geomprobe.figures.drawing import Drawing, height, join, needs_words
from geomprobe.figures.layout import band, crown, layer_axis, median_line
from geomprobe.figures.style import BLACK, GREEN, GREY, PURPLE, VECTOR_COLOURS
from geomprobe.run.reading import Run

NAMES = {
    "k": "keys",
    "q": "queries",
    "k_balanced": "keys, balanced gauge",
    "residual": "residual stream",
    "embedding": "input embedding",
    "context": "contexts alone",
}
COLOURS = {
    "k": VECTOR_COLOURS["k"],
    "q": VECTOR_COLOURS["q"],
    "k_balanced": VECTOR_COLOURS["k"],
    "residual": PURPLE,
    "embedding": BLACK,
    "context": GREEN,
}
LEVELS = {"embedding": "--", "context": "-."}  # drawn across
DOTTED = ("k_balanced",)


def draw_cluster_auc(run: Run, ax: Axes) -> Axes:
    """A line with its interval for keys, queries and residual stream; the embedding across; the null at one half."""
    layer_axis(ax, run)
    every = tables.layers(run)
    handles = []
    for name, rows in tables.cluster_lines(run).items():
        colour = COLOURS[name]
        if name in LEVELS:
            row = rows.iloc[0]
            ax.axhline(row["auc"], color=colour, linestyle=LEVELS[name], linewidth=1.4)
            ax.axhspan(row["auc_low"], row["auc_high"], color=colour, alpha=0.08, linewidth=0)
        else:
            line = rows.set_index("layer").reindex(every)
            if name not in DOTTED:
                band(ax, line["auc_low"], line["auc_high"], colour, 0.2)
            median_line(ax, line["auc"], colour, style=":" if name in DOTTED else "-")
        style = ":" if name in DOTTED else LEVELS.get(name, "-")
        handles.append(Line2D([], [], color=colour, linewidth=2, linestyle=style, label=NAMES[name]))
    shuffled = tables.cluster_lines(run)
    for name, rows in shuffled.items():
        if name == "context":
            continue
        ax.plot(rows["layer"].clip(lower=min(every)), rows["auc_shuffled"], ".", color=GREY, markersize=3, zorder=1)
    ax.axhline(0.5, color=GREY, linewidth=0.8, linestyle=":")
    handles.append(Line2D([], [], color=GREY, marker=".", linestyle=":", label="categories shuffled"))
    lowest = min(float(rows["auc_low"].min()) for rows in shuffled.values())
    ax.set_ylim(min(0.45, lowest - 0.02 if math.isfinite(lowest) else 0.45), 1.0)
    ax.set_ylabel("AUC: within a category nearer\nthan between two")
    crown(ax, run, "do nouns of one category point the same way?", handles, columns=4)
    return ax


def _caption(run: Run) -> str:
    lines = tables.cluster_lines(run)
    first = next(iter(lines.values())).iloc[0]
    words = run.manifest["words"]
    return join(
        "AUC (cluster_auc): how often the cosine of two nouns of one category is larger than that of two nouns of "
        "different ones; 1 is clean separation, .5 is none.",
        f"{int(first['n_types'])} nouns in {int(first['n_categories'])} categories, each the mean of {int(first['m'])} "
        f"contexts of {words['context']} tokens, seen from the centre of all; stage content (before the rotation).",
        "Keys and queries: mean over the heads of a layer, in the raw gauge.",
        "Dotted, without a band: keys in the balanced gauge, another description of the same attention."
        * ("k_balanced" in lines),
        "Residual stream: what enters the layer. Bands: 95% intervals from drawing nouns with replacement (200 draws).",
        "Contexts alone: a random vector for each token before the word, averaged: what a model without any knowledge "
        "makes of them.",
        "Grey: the same with the categories reassigned to the nouns, mean of 999 reassignments.",
        f"{run.name} on {run.manifest['corpus']['name']}.",
    )


def _data(run: Run) -> pd.DataFrame:
    key, values = ["space", "vector", "gauge", "layer"], ["auc", "auc_low", "auc_high", "auc_shuffled"]
    columns = [*key, *values, "n_types", "n_categories"]
    return pd.concat([rows[columns] for rows in tables.cluster_lines(run).values()], ignore_index=True)


CLUSTER_AUC = Drawing(
    draw=draw_cluster_auc,
    title="Clusters of meaning by layer",
    alt="Lines with bands by layer: how well keys, queries and the residual stream separate categories of nouns, with "
    "the input embedding and the contexts alone as levels and shuffled categories near one half.",
    caption=_caption,
    missing=needs_words("clusters"),
    size=height(4.0),
    data=_data,
)
