"""Whether neighbours last, mean something and avoid hubs, from rare words to frequent ones."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from geomprobe import tables
from geomprobe.figures.drawing import Drawing, height, join, needs_words
from geomprobe.figures.layout import crown, panels
from geomprobe.figures.style import GREY, VECTOR_COLOURS
from geomprobe.run.reading import Run

COLUMNS = {
    "self_retrieval_mrr": "finds itself (MRR)",
    "stability": "neighbours last (Jaccard)",
    "purity_family": "finds its word family",
    "rare_neighbour_share": "neighbours above the median",
}


def draw_neighbour_quality(run: Run, ax: Axes) -> Axes:
    """Four panels over deciles of frequency: the median head and the middle half of the heads, for k and q."""
    made = panels(ax, 1, len(COLUMNS), gap=(0.05, 0.2))
    for panel, (column, title) in zip(made, COLUMNS.items(), strict=True):
        for vector in ("k", "q"):
            found = tables.neighbour_bands(run, column, vector)
            colour = VECTOR_COLOURS[vector]
            decile = found.index + 1
            panel.fill_between(decile, found["q25"], found["q75"], color=colour, alpha=0.2, linewidth=0)
            panel.plot(decile, found["median"], color=colour, linewidth=2, marker="o", markersize=3)
        panel.set_title(title, fontsize=9)
        panel.set_xticks([1, 5, 10])
        panel.set_xlabel("decile of frequency")
    made[-1].axhline(0.5, color=GREY, linewidth=0.8, linestyle=":")
    made[0].set_ylim(0, 1.02)
    made[0].set_ylabel("mean over the words of a decile")
    handles = [
        *(
            Line2D([], [], color=VECTOR_COLOURS[v], linewidth=2, label=name)
            for v, name in (("k", "keys"), ("q", "queries"))
        ),
        Patch(color=GREY, alpha=0.4, label="middle half of the heads"),
        Line2D([], [], color=GREY, linestyle=":", label="no bias"),
    ]
    crown(ax, run, "neighbours from rare words (1) to frequent ones (10)", handles, above=20)
    return ax


def _caption(run: Run) -> str:
    table = run.tables["neighbours"]
    every = table[table["frequency_band"] == tables.ALL_BANDS].iloc[0]
    return join(
        f"{int(every['n_types'])} words of all frequencies, drawn from each decile of their count in the text, "
        f"each seen in {int(every['m'])} contexts; stage content, centred, raw gauge. Layer 0 is left out, where every "
        "word finds itself.",
        "Finds itself: mean reciprocal rank of a word's other half of contexts among all words. Neighbours last: "
        "overlap of the ten neighbours from either half of the contexts (Jaccard).",
        "Finds its word family: share of the words that begin alike (four letters, two thirds of the longer) among the "
        "ten neighbours, of those that could be.",
        "Neighbours above the median: share of a word's ten neighbours that are more frequent than the median word; .5 "
        "(dotted) where frequency plays no part.",
        "Line: the median head; band: quartiles of the heads.",
        f"{run.name} on {run.manifest['corpus']['name']}.",
    )


def _data(run: Run) -> pd.DataFrame:
    shaped = [
        tables.neighbour_bands(run, column, vector)
        .rename_axis("frequency_band")
        .reset_index()
        .assign(quantity=column, vector=vector)
        for column in COLUMNS
        for vector in ("k", "q")
    ]
    columns = ["quantity", "vector", "frequency_band", "n", "min", "q25", "median", "q75", "max"]
    return pd.concat(shaped, ignore_index=True)[columns]


NEIGHBOUR_QUALITY = Drawing(
    draw=draw_neighbour_quality,
    title="Neighbours of rare and frequent words",
    alt="Four panels of lines over deciles of word frequency, for keys and queries: self retrieval, stability of "
    "neighbours, word families among them, and the share of frequent neighbours.",
    caption=_caption,
    missing=needs_words("neighbours"),
    size=height(3.6),
    data=_data,
)
