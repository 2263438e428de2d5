"""Differences with their intervals: over all layers, along the depth, by class, along an axis of many runs."""

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from geomprobe.comparison.comparison import Comparison
from geomprobe.comparison.measured import records
from geomprobe.comparison.sides import WHOLE
from geomprobe.figures.drawing import WIDTH
from geomprobe.figures.layout import panels
from geomprobe.figures.side_drawing import (
    MOST_BANDS,
    SideDrawing,
    colours,
    depth_axis,
    dots_of_runs,
    headline,
    keys_of_runs,
    line_style,
    text_of,
)
from geomprobe.figures.style import BLACK, GREY, PALE
from geomprobe.tables import count

AXES: Final = {
    "share": "percentage points",
    "AUC": "AUC",
    "nats": "nats",
    "logits": "logits (nats)",
    "times": "times uniform",
    "log length": "log length",
}
MOST_RUNS: Final = 7  # whose differences one picture holds
SMALL: Final = {  # where there is little room
    "first_mass": "attention on position 0",
    "sink_rate": "sink rate (ε = .3)",
    "entropy": "entropy",
    "one_hot_rate_no_first": "one-hot rows",
    "logit_sd": "spread of logits",
    "logit_max": "largest logit",
    "lift_function": "attention on function words",
    "lift_punctuation": "attention on punctuation",
    "lift_content": "attention on content words",
    "norm_share": "told by lengths",
    "k_log_sd": "spread of key lengths",
    "tv": "distance from cosines",
    "loss": "loss a token",
    "loss_per_character": "loss a character",
    "class_sink": "Λ",
    "cluster_auc": "AUC",
}
CLASSES: Final = {"content": "keys", "function": "function words", "newline": "line breaks", "number": "numbers"}


def whole_rows(table: pd.DataFrame) -> pd.DataFrame:
    """The rows over all layers that have an interval."""
    return table[(table["where"] == WHOLE) & table["low"].notna()].reset_index(drop=True)


def row_title(row: dict[str, Any]) -> str:
    """What a row of `differences` is about, with its gauge."""
    return f"{row['title']}, {row['gauge']}" if row["gauge"] else str(row["title"])


def short_title(row: dict[str, Any]) -> str:
    """The same where there is little room."""
    name = SMALL.get(str(row["quantity"]), str(row["quantity"]))
    parts = (name, CLASSES.get(row["token_class"], row["token_class"]), row["gauge"])
    return ", ".join(str(part) for part in parts if part)


def draw_differences(comparison: Comparison, ax: Axes) -> Axes:
    """A panel a unit; a row a quantity, a point and its interval a run."""
    table = whole_rows(comparison.differences)
    ax.set_axis_off()
    groups = [(unit, rows) for unit in AXES if len(rows := table[table["unit"] == unit])]
    sizes = [rows.groupby(["quantity", "gauge", "token_class"], sort=False).ngroups for _, rows in groups]
    gap = 0.72 / _tall(comparison)
    scale = (1 - gap * (len(groups) - 1)) / sum(sizes)
    top = 1.0
    for (unit, rows), size in zip(groups, sizes, strict=True):
        panel = ax.inset_axes((0.4, top - size * scale, 0.6, size * scale))
        top -= size * scale + gap
        _draw_unit(panel, comparison, rows, 100.0 if unit == "share" else 1.0)
        panel.set_xlabel(AXES[unit], labelpad=1)
    others = dots_of_runs(comparison)[1:]
    headline(ax, f"differences from {comparison.labels[0]}", others if comparison.sides.n > 2 else ())
    return ax


def _draw_unit(panel: Axes, comparison: Comparison, rows: pd.DataFrame, factor: float) -> None:
    groups = [group for _, group in rows.groupby(["quantity", "gauge", "token_class"], sort=False)]
    shades = dict(zip(comparison.labels, colours(comparison.sides.n), strict=True))
    n = comparison.sides.n - 1
    for at, group in enumerate(groups):
        if at % 2:
            panel.axhspan(at - 0.5, at + 0.5, color=PALE, alpha=0.5, linewidth=0, zorder=0)
        for row in records(group):
            y = at + (comparison.labels.index(row["b"]) - 1 - (n - 1) / 2) * min(0.25, 0.8 / n)
            colour = shades[row["b"]]
            panel.hlines(y, factor * row["low"], factor * row["high"], color=colour, linewidth=2)
            face = colour if row["beyond"] else "white"
            panel.plot(factor * row["difference"], y, "o", color=colour, markerfacecolor=face, markersize=6, zorder=3)
    panel.axvline(0, color=BLACK, linewidth=0.8)
    panel.set_yticks(range(len(groups)), [row_title(records(group)[0]) for group in groups])
    panel.set_ylim(len(groups) - 0.5, -0.5)
    panel.spines["left"].set_visible(False)
    panel.tick_params(axis="y", length=0)


def _tall(comparison: Comparison) -> float:
    table = whole_rows(comparison.differences)
    units = table["unit"].nunique()
    return 0.3 * table.groupby(["quantity", "gauge", "token_class"]).ngroups + 0.72 * max(0, units - 1)


def draw_by_depth(comparison: Comparison, ax: Axes) -> Axes:
    """Small panels: a quantity's difference along the depth with its band, a line a run."""
    groups = list(comparison.by_depth.groupby(["quantity", "gauge"], sort=False))
    columns = 3
    rows = math.ceil(len(groups) / columns)
    made = panels(ax, rows, columns, gap=(0.09, 0.42 / rows), shared=False)
    for panel in made[len(groups) :]:
        panel.set_axis_off()
    shades = colours(comparison.sides.n)
    for panel, ((name, gauge), group) in zip(made, groups, strict=False):
        depth_axis(panel, label=False)
        panel.axhline(0, color=GREY, linewidth=0.8, linestyle=":")
        for side, label in enumerate(comparison.labels[1:], start=1):
            own = group[group["b"] == label]
            if comparison.sides.n <= MOST_BANDS:
                panel.fill_between(own["depth"], own["low"], own["high"], color=shades[side], alpha=0.25, linewidth=0)
            panel.plot(own["depth"], own["difference"], color=shades[side], linestyle=line_style(side))
        panel.set_title(f"{SMALL[str(name)]}{', ' + str(gauge) if gauge else ''}", fontsize=9)
    for panel in made[max(0, len(groups) - columns) : len(groups)]:
        panel.set_xlabel("relative depth")
    others = keys_of_runs(comparison)[1:] if comparison.sides.n > 2 else ()
    headline(ax, f"differences from {comparison.labels[0]} along the depth", others, above=22)
    return ax


def draw_class_sinks(comparison: Comparison, ax: Axes) -> Axes:
    """Λ of classes against content words, a point with its interval a run."""
    table = comparison.values
    table = table[(table["quantity"] == "class_sink") & (table["where"] == WHOLE)]
    classes = list(dict.fromkeys(table["token_class"]))
    shades = dict(zip(comparison.labels, colours(comparison.sides.n), strict=True))
    for at, name in enumerate(classes):
        for row in records(table[table["token_class"] == name]):
            place = at + (comparison.labels.index(row["run"]) - (comparison.sides.n - 1) / 2) * 0.8 / comparison.sides.n
            ax.vlines(place, row["low"], row["high"], color=shades[row["run"]], linewidth=2.5)
            face = shades[row["run"]] if row["low"] == row["low"] else "white"
            ax.plot(place, row["estimate"], "o", color=shades[row["run"]], markerfacecolor=face, markersize=6)
    ax.axhline(0, color=GREY, linewidth=0.8, linestyle=":")
    counts = table.groupby("token_class", sort=False)["n_types"].max()
    ax.set_xticks(range(len(classes)), [f"{name}\n({count(counts[name], 'type')})" for name in classes])
    ax.set_xlim(-0.6, len(classes) - 0.4)
    ax.set_ylabel("Λ over content words (nats)")
    headline(ax, "what draws attention beyond its neighbours?", dots_of_runs(comparison))
    return ax


def draw_over(comparison: Comparison, ax: Axes) -> Axes:
    """Small panels: a quantity of each run with its interval, along training steps or parameters."""
    groups = _strung(comparison)
    columns = 3
    rows = math.ceil(len(groups) / columns)
    made = panels(ax, rows, columns, gap=(0.09, 0.42 / rows), shared=False)
    for panel in made[len(groups) :]:
        panel.set_axis_off()
    for panel, (title, group) in zip(made, groups, strict=False):
        own = group.sort_values("x")
        panel.plot(own["x"], own["estimate"], color=colours(1)[0], marker="o", markersize=4)
        known = own[own["low"].notna()]
        panel.vlines(known["x"], known["low"], known["high"], color=colours(1)[0], linewidth=1.5)
        if own["x"].max() > 8 * own["x"][own["x"] > 0].min():  # steps are saved evenly on a log scale, from 0 on
            panel.set_xscale("symlog", linthresh=1) if own["x"].min() == 0 else panel.set_xscale("log")
        panel.set_title(title, fontsize=9)
    names = {"step": "training step", "params": "parameters"}
    for panel in made[max(0, len(groups) - columns) : len(groups)]:
        panel.set_xlabel(names[comparison.over])
    headline(ax, f"along the {names[comparison.over]}s" if comparison.over == "step" else "along the size", above=22)
    return ax


def _strung(comparison: Comparison) -> Sequence[tuple[str, pd.DataFrame]]:
    table = comparison.values
    whole = table[(table["where"] == WHOLE) & table["estimate"].map(np.isfinite)]
    shown = []
    for (name, gauge, token_class), group in whole.groupby(["quantity", "gauge", "token_class"], sort=False):
        if name in SMALL:
            shown.append((short_title({"quantity": name, "gauge": gauge, "token_class": token_class}), group))
    return shown


def _too_many(comparison: Comparison) -> str | None:
    if comparison.sides.n > MOST_RUNS:
        return f"Of more than {MOST_RUNS} runs the differences are in the table."
    return _no_rows(comparison)


def _no_rows(comparison: Comparison) -> str | None:
    table = comparison.differences
    if len(whole_rows(table)):
        return None
    if not len(table):
        return "These runs keep nothing by document that could be compared."
    shared = count(len(comparison.sides.documents), "document")
    return f"There is no interval: these runs share {shared}, and five are needed."


SIDE_DIFFERENCES = SideDrawing(
    draw=draw_differences,
    title="Differences with their intervals",
    alt="A panel a unit: a row a quantity, with the difference of each run from the first and its interval.",
    caption=lambda comparison: (
        f"Each run less {comparison.labels[0]}, over all layers. Bars: 95% intervals, the same documents (for Λ also "
        "types, for AUC nouns) drawn with replacement on both sides. Filled: 0 is also outside the band that holds all "
        "rows together at 95%. What an interval holds is the choice of text, not of checkpoint: another seed or "
        f"another model of the kind moves the numbers too. {text_of(comparison)}"
    ),
    missing=_too_many,
    size=lambda comparison: (WIDTH, _tall(comparison) + 1.0),
    data=lambda comparison: comparison.differences,
)
SIDE_DEPTHS = SideDrawing(
    draw=draw_by_depth,
    title="Differences along the depth",
    alt="Small panels by relative depth: the difference of a quantity from the first run, with a band.",
    caption=lambda comparison: (
        f"Each run less {comparison.labels[0]} at equal relative depth; the deeper model's layers are interpolated to "
        "those of the one with the fewest. Bands: 95% intervals for each depth by itself, documents drawn with "
        f"replacement, the same on both sides. {text_of(comparison)}"
    ),
    missing=lambda comparison: None if len(comparison.by_depth) else "No quantity is kept by document and layer.",
    size=lambda comparison: (
        WIDTH,
        1.0 + 1.9 * math.ceil(comparison.by_depth.groupby(["quantity", "gauge"]).ngroups / 3),
    ),
    data=lambda comparison: comparison.by_depth,
)
SIDE_CLASSES = SideDrawing(
    draw=draw_class_sinks,
    title="Classes of words, side by side",
    alt="For each token class a point with an interval a run: how much more attention it draws than content words.",
    caption=lambda comparison: (
        "Λ: the logit that a key gets, less that of the content words beside it; mean over the types of a class less "
        "that over content types, over all heads and layers; only types that every run has. Bars: 95% intervals, types "
        "and documents drawn with replacement (none, and a hollow dot, for fewer than five types). "
        f"{text_of(comparison)}"
    ),
    missing=lambda comparison: (
        None
        if (comparison.values["quantity"] == "class_sink").any()
        else "The runs share no types of words often enough."
    ),
    size=lambda comparison: (WIDTH, 3.8),
    data=lambda comparison: comparison.values[comparison.values["quantity"] == "class_sink"],
)
SIDE_OVER = SideDrawing(
    draw=draw_over,
    title="Along the axis",
    alt="Small panels, a quantity each: its value with an interval along training steps or number of parameters.",
    caption=lambda comparison: (
        "Each run by itself, over all layers. Bars: 95% intervals over the common documents (for Λ also types, for AUC "
        f"nouns). {text_of(comparison)}"
    ),
    missing=lambda comparison: None if comparison.over else "These runs are not strung along an axis; --over does so.",
    size=lambda comparison: (WIDTH, 1.0 + 1.9 * math.ceil(len(_strung(comparison)) / 3)),
    data=lambda comparison: comparison.values[comparison.values["where"] == WHOLE],
)
