"""Nouns on a flat map of their directions, by category and by frequency."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex

from geomprobe.figures.drawing import WIDTH, Drawing, join, needs_words, rows_of
from geomprobe.figures.layout import crown
from geomprobe.figures.style import AMOUNT, BLACK
from geomprobe.run.reading import Run

TALL = 13.0
FONT = 7.5
_SHARE = (0.66, 0.29)  # of the height, for the map of words and that of frequency


def draw_word_map(run: Run, ax: Axes) -> Axes:
    """Above, words coloured by category; below, the same places coloured by Zipf frequency."""
    data = run.tables["map"]
    ax.set_axis_off()
    words = ax.inset_axes((0, 1 - _SHARE[0], 1, _SHARE[0]))
    _draw_words(words, data)
    frequency = ax.inset_axes((0, 0, 0.9, _SHARE[1]))
    known = data[data["zipf"].notna()]
    dots = frequency.scatter(known["x"], known["y"], c=known["zipf"], cmap=AMOUNT, s=26)
    frequency.set_title("the same nouns by frequency")
    bar = ax.figure.colorbar(dots, cax=ax.inset_axes((0.93, 0, 0.02, _SHARE[1])))
    bar.set_label("Zipf frequency (log₁₀ per billion words)")
    for panel in (words, frequency):
        panel.set_xticks([])
        panel.set_yticks([])
        panel.spines[["top", "right"]].set_visible(True)
    row = data.iloc[0]
    crown(ax, run, f"nouns by direction, {row['vector']} of layer {row['layer']}, head {row['head']}", above=20)
    return ax


def _draw_words(panel: Axes, data: pd.DataFrame) -> None:
    categories = sorted(data["category"].unique())
    colour = dict(zip(categories, palette(len(categories)), strict=True))
    panel.set_xlim(*_margin(data["x"]))
    panel.set_ylim(*_margin(data["y"]))
    panel.scatter(data["x"], data["y"], s=5, c=[colour[name] for name in data["category"]], zorder=2)
    placed: list[tuple[float, float, float, float]] = []
    centres = data.groupby("category")[["x", "y"]].median()
    for name, centre in centres.iterrows():
        text = str(name).replace("_", " ").upper()
        _place(panel, (float(centre["x"]), float(centre["y"])), text, placed, {"color": BLACK, "weight": "bold"})
    for row in data.to_dict("records"):
        style = {"color": colour[row["category"]]}
        _place(panel, (row["x"], row["y"]), str(row["word"]), placed, style)
    panel.set_title("nouns by category; a dot without its word stands where words would lie over one another")


def _place(
    panel: Axes, at: tuple[float, float], text: str, placed: list[tuple[float, float, float, float]], style: dict
) -> None:
    """Write a text beside its place, above or below, unless every such box overlaps one that is there."""
    (low, high), (bottom, top) = panel.get_xlim(), panel.get_ylim()
    across, up = (high - low) / (WIDTH * 72), (top - bottom) / (TALL * _SHARE[0] * 72)  # data a point
    width, tall = 0.6 * FONT * len(text) * across, 1.15 * FONT * up
    x, y = at
    options = ((x + 3 * across, y - tall / 2), (x - width - 3 * across, y - tall / 2), (x - width / 2, y + 2 * up))
    for left, base in (*options, (x - width / 2, y - tall - 2 * up)):
        box = (left, base, left + width, base + tall)
        inside = left > low and box[2] < high and base > bottom and box[3] < top
        if inside and not any(_overlap(box, other) for other in placed):
            placed.append(box)
            panel.text(left, base, text, fontsize=FONT, va="bottom", zorder=3, parse_math=False, **style)
            return


def _overlap(a: Sequence[float], b: Sequence[float]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _margin(values: pd.Series) -> tuple[float, float]:
    low, high = float(values.min()), float(values.max())
    room = 0.06 * (high - low or 1)
    return low - room, high + room


def palette(n: int, shade: float = 0.78) -> list[str]:
    """Colours of categories, neighbours in the list far apart; by default dark enough to be read as text."""
    shades = colormaps["turbo"](np.linspace(0.03, 0.97, n))
    shades[:, :3] *= shade
    order = np.argsort([(index * 7) % n for index in range(n)], kind="stable")
    return [to_hex(shades[index]) for index in order]


def _caption(run: Run) -> str:
    data = run.tables["map"]
    row = data.iloc[0]
    return join(
        f"UMAP (cosine, fixed seed) of the centred directions of {len(data)} nouns in one key head: layer "
        f"{row['layer']}, head {row['head']}, chosen because it separates the categories best of all, so it is the "
        "clearest map and not a typical one.",
        "Near on the map is near in angle, as far as two dimensions can hold it; distances between far groups mean "
        "nothing. Capitals: a category, at the median of its nouns.",
        f"{run.name} on {run.manifest['corpus']['name']}.",
    )


WORD_MAP = Drawing(
    draw=draw_word_map,
    title="A map of nouns",
    alt="Two maps: nouns written at their places, coloured by category; and the same places coloured by frequency.",
    caption=_caption,
    missing=needs_words("map"),
    size=lambda run: (WIDTH, TALL),
    data=rows_of("map", "word", "category", "zipf", "x", "y"),
)
