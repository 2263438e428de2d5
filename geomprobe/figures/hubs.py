"""Whether a few words are everybody's neighbours."""

import math

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from scipy.special import bdtr

from geomprobe import tables
from geomprobe.figures.drawing import Drawing, height, join, needs_words, rows_of
from geomprobe.figures.layout import crown, panels
from geomprobe.figures.style import BLACK, PURPLE, VECTOR_COLOURS
from geomprobe.run.reading import Run

COLOURS = {"content": VECTOR_COLOURS["k"], "residual": PURPLE, "embedding": BLACK}
_NAMED = 3


def draw_hubs(run: Run, ax: Axes) -> Axes:
    """A histogram a space of how often a word is among another's ten neighbours; the largest hubs by name."""
    table = run.tables["hubs"]
    spaces = [space for space in COLOURS if (table["space"] == space).any()]
    made = panels(ax, 1, len(spaces), gap=(0.04, 0.2))
    top = int(table["count"].max())
    edges = np.arange(0, top + 2, max(1, top // 40)) - 0.5
    for panel, space in zip(made, spaces, strict=True):
        rows = table[table["space"] == space]
        panel.hist(rows["count"], bins=list(edges), color=COLOURS[space], alpha=0.75)
        n = len(rows)
        # Ten neighbours drawn by chance: each of the others picks a word with probability k/(n − 1).
        chance = bdtr(np.minimum(np.floor(edges[1:]), n - 1), n - 1, rows["count"].sum() / n / (n - 1))
        expected = n * np.diff(chance, prepend=0)
        panel.step(edges[1:] - np.diff(edges) / 2, expected, where="mid", color=BLACK, linewidth=1.2)
        row = rows.iloc[0]
        where = {
            "content": f"key head {row['head']}, layer {row['layer']}",
            "residual": f"residual, layer {row['layer']}",
        }
        panel.set_title(f"{where.get(space, 'input embedding')} (skew {_skewness(rows['count']):.1f})", fontsize=9)
        hubs = rows.nlargest(_NAMED, "count")
        said = "\n".join(
            f"{tables.visible(word)}: {count}" for word, count in zip(hubs["word"], hubs["count"], strict=True)
        )
        panel.text(0.97, 0.95, f"most often:\n{said}", transform=panel.transAxes, ha="right", va="top", fontsize=8)
        panel.set_xlabel("times a neighbour")
    made[0].set_ylabel("words")
    handles = [Line2D([], [], color=BLACK, linewidth=1.2, label="neighbours drawn by chance")]
    crown(ax, run, "how often a word is another's neighbour", handles, above=20)
    return ax


def _skewness(values: pd.Series) -> float:
    away = values.to_numpy(float) - values.mean()
    return float((away**3).mean() / (away**2).mean() ** 1.5) if away.any() else math.nan


def _caption(run: Run) -> str:
    table = run.tables["hubs"]
    n = table["word"].nunique()
    return join(
        f"How many of {n} words have a word among their ten nearest (by cosine, centred). Were neighbours drawn by "
        "chance, the counts would follow the black line; a long tail means hubs: words near to everything.",
        "The head is the one that separates the categories best, the residual stream that of its layer.",
        f"{run.name} on {run.manifest['corpus']['name']}.",
    )


HUBS = Drawing(
    draw=draw_hubs,
    title="Hubs among the words",
    alt="Histograms of how often a word is among the ten nearest of another, in a key head, the residual stream and "
    "the input embedding, with the expectation by chance.",
    caption=_caption,
    missing=needs_words("hubs"),
    size=height(3.4),
    data=rows_of("hubs", "space", "layer", "head", "word", "zipf", "frequency_band", "count"),
)
