"""Maps of heads and bands of lengths, one panel a run on common scales."""

import math

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from geomprobe import tables
from geomprobe.comparison.comparison import Comparison
from geomprobe.figures.drawing import WIDTH
from geomprobe.figures.layout import band, head_lines, median_line, panels, positive_scale
from geomprobe.figures.side_drawing import (
    SideDrawing,
    all_have,
    at_depth,
    depth_axis,
    headline,
    left_out,
    rows_of_all,
    short,
    some_runs,
    text_of,
)
from geomprobe.figures.style import AMOUNT, BLACK, CLASS_COLOURS, GREY
from geomprobe.labels import FIRST
from geomprobe.run.reading import Run

ACROSS = 3  # panels in a row
MOST_MAPS, MOST_ROWS = 9, 6  # runs that have a panel
CLASSES = ("content", "function", "punctuation")


def draw_first_mass_maps(comparison: Comparison, ax: Axes) -> Axes:
    """A map a run: relative depth upwards, heads by rank along x, one colour scale."""
    ax.set_axis_off()
    runs = some_runs(comparison, MOST_MAPS)
    columns = min(len(runs), ACROSS)
    rows = math.ceil(len(runs) / columns)
    room = ax.inset_axes((0, 0, 0.9, 1))
    made = panels(room, rows, columns, gap=(0.06, 0.36 / (rows + 1)), shared=False)
    ranked = comparison.by_rank
    ranked = ranked[ranked["quantity"] == "first_mass"]
    image, highest = None, top_of(float(ranked["value"].max()))
    for panel in made[len(runs) :]:
        panel.set_axis_off()
    for index, ((_, run, label, _), panel) in enumerate(zip(runs, made, strict=False)):
        own = ranked[ranked["run"] == label]
        matrix = own.pivot_table(index="layer", columns="rank", values="value").sort_index()
        image = panel.imshow(
            matrix.to_numpy(), aspect="auto", origin="lower", cmap=AMOUNT, vmin=0, vmax=highest, extent=(0, 1, 0, 1)
        )
        every = tables.layers(run)
        places = sorted({0, len(every) // 2, len(every) - 1})
        panel.set_yticks([(place + 0.5) / len(every) for place in places], [str(every[place]) for place in places])
        panel.set_xticks([0, 1], ["highest", "lowest"])
        left, right = panel.get_xticklabels()
        left.set_horizontalalignment("left")  # so that neighbouring panels' words do not meet
        right.set_horizontalalignment("right")
        panel.set_title(short(label))
        if index % columns == 0:
            panel.set_ylabel("layer")
        if index + columns >= len(runs):
            panel.set_xlabel("heads by rank in their layer")
    assert image is not None
    bar = ax.figure.colorbar(image, cax=ax.inset_axes((0.925, 0, 0.02, 1)))
    bar.set_label("attention on position 0")
    headline(ax, "heads by the attention they give to position 0", above=22)
    return ax


def top_of(highest: float) -> float:
    """The end of the scale of shares: 1, or where no head comes near it, the highest of all."""
    return 1.0 if not highest < 0.5 else highest


def _map_size(comparison: Comparison) -> tuple[float, float]:
    rows = math.ceil(min(comparison.sides.n, MOST_MAPS) / ACROSS)
    deepest = max(len(tables.layers(run)) for run in comparison.sides.runs)
    return WIDTH, rows * float(np.clip(1.6 + 0.09 * deepest, 2.6, 4.5)) + 0.8


def draw_lengths(comparison: Comparison, ax: Axes) -> Axes:
    """Key lengths by class: a row a run, a column a class, one scale."""
    runs = some_runs(comparison, MOST_ROWS)
    made = panels(ax, len(runs), len(CLASSES), gap=(0.03, 0.2 / len(runs)))
    seen: list[float] = []
    for index, (_, run, label, _) in enumerate(runs):
        for column, token_class in enumerate(CLASSES):
            panel = made[index * len(CLASSES) + column]
            depth_axis(panel, label=index == len(runs) - 1)
            seen += _draw_class(run, panel, token_class)
            n = int(tables.lengths(run, "k", token_class)["n"].max() or 0)
            panel.set_title(f"{token_class} (n = {n:,})", fontsize=9)
        made[index * len(CLASSES)].set_ylabel(f"{short(label)}\n‖k‖₂", fontsize=9)
    positive_scale(made[0], seen)
    headline(ax, "key lengths by class; dashed: position 0", above=20)
    return ax


def _draw_class(run: Run, panel: Axes, token_class: str) -> list[float]:
    rows = tables.lengths(run, "k", token_class)
    if not len(rows) or not int(rows["n"].max()):
        panel.text(0.5, 0.5, "none in this text", transform=panel.transAxes, ha="center", color=GREY)
        return []
    colour = CLASS_COLOURS[token_class]
    shares = ("p05", "p25", "p50", "p75", "p95")
    middle = at_depth(run, pd.DataFrame({p: tables.over_heads(rows, p)["median"] for p in shares}))
    band(panel, middle["p05"], middle["p95"], colour, 0.18)
    band(panel, middle["p25"], middle["p75"], colour, 0.32)
    heads = at_depth(run, tables.by_head(rows, "p50"))
    head_lines(panel, heads, colour, alpha=0.5)
    median_line(panel, middle["p50"], colour)
    first = at_depth(run, tables.over_heads(tables.lengths(run, "k", FIRST), "p50"))["median"]
    median_line(panel, first, BLACK, style="--")
    return [*middle["p05"], *middle["p95"], *heads.to_numpy().ravel(), *first]


SIDE_MAPS = SideDrawing(
    draw=draw_first_mass_maps,
    title="Heads that look at position 0, side by side",
    alt="A map a run on one colour scale: layers upwards, the heads of a layer from the highest to the lowest.",
    caption=lambda comparison: (
        "first_mass of every query head, sorted within its layer: a head's number means nothing in another model, so "
        "heads are matched by rank. Layers are stretched to the same height. "
        f"{left_out(comparison, MOST_MAPS)}{text_of(comparison)}"
    ),
    missing=all_have("sinks"),
    size=_map_size,
    data=lambda comparison: comparison.by_rank[comparison.by_rank["quantity"] == "first_mass"],
    dense=True,
)
SIDE_LENGTHS = SideDrawing(
    draw=draw_lengths,
    title="Key lengths, side by side",
    alt="A row of panels a run, a column a token class: bands of key lengths by relative depth on one scale.",
    caption=lambda comparison: (
        "Euclidean length of scored keys, raw gauge. Bands: 5–95% and 25–75% within a head; thick: the median; thin: a "
        "head's median; dashed: position 0. The scale is common, and yet lengths of two models cannot be held against "
        "each other as they stand: keys can be rescaled against queries without any change to attention. What can be "
        f"compared is how classes lie within a model. {left_out(comparison, MOST_ROWS)}{text_of(comparison)}"
    ),
    missing=lambda comparison: (
        all_have("norms")(comparison)
        or (None if tables.of_text(comparison.sides.runs[0]) else "The places of an image have no token classes.")
    ),
    size=lambda comparison: (WIDTH, 2.4 * min(comparison.sides.n, MOST_ROWS) + 0.8),
    data=rows_of_all(
        lambda run: pd.concat([tables.lengths(run, "k", name) for name in (*CLASSES, FIRST)], ignore_index=True)[
            ["layer", "head", "token_class", "n", "p05", "p25", "p50", "p75", "p95", "log_sd"]
        ]
    ),
)
