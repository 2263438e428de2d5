"""What an edit costs, and what it changes, by its strength."""

import math
from typing import Any

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, NullLocator

from geomprobe import edit_tables, tables
from geomprobe.figures.drawing import WIDTH, Drawing, join, scope, tested
from geomprobe.figures.layout import crown
from geomprobe.figures.style import BLACK, CLASS_COLOURS, GREY
from geomprobe.labels import GAUGES
from geomprobe.run.reading import Run

EDITS = {"scale_class": "keys of a class e^δ times as long: δ", "temperature": "logits times β"}
MEASURES = {"delta_ce": "loss (nats a token)", "delta_class_sink": "Λ of function words (nats)"}
# Open markers stay to be seen around those of the raw gauge.
LOOKS: dict[str, tuple[str, dict[str, Any]]] = dict(
    zip(GAUGES, (("-", {"markersize": 4.5}), ("--", {"markersize": 8.5, "fillstyle": "none"})), strict=True)
)
MARKERS = "osD^vPX"
GAPS = (0.11, 0.06)
ROOM = 0.09  # part of an axis that a tick needs for its label


def draw_dose_response(run: Run, ax: Axes) -> Axes:
    """A column an edit: its cost and the change of Λ by its strength, a line a class and gauge."""
    ax.set_axis_off()
    doses = _doses(run)
    width, height = ((1 - gap * (n - 1)) / n for gap, n in zip(GAPS, (len(doses), len(MEASURES)), strict=True))
    names = _names(doses)
    for column, (edit, costs) in enumerate(doses.items()):
        top = None
        for row, (measure, said) in enumerate(MEASURES.items()):
            bounds = (column * (width + GAPS[0]), 1 - height - row * (height + GAPS[1]), width, height)
            panel = ax.inset_axes(bounds, sharex=top)
            panel.axhline(0, color=GREY, linewidth=0.8, zorder=1)
            panel.axvline(edit_tables.NO_EDIT[edit], color=GREY, linewidth=0.8, linestyle=":", zorder=1)
            for (name, _), own in costs.groupby(["token_class", "gauge"], sort=False):
                _line(panel, own, measure, str(name), MARKERS[names.index(str(name)) % len(MARKERS)])
            panel.set_ylabel(said)
            panel.tick_params(labelbottom=row == len(MEASURES) - 1)
            top = top or panel
        panel.set_xlabel(EDITS[edit])
        if edit == "temperature":
            _by_factor(panel, costs["strength"])
        else:
            panel.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    crown(ax, run, "what edits do, by their strength", _legend(doses), columns=6)
    return ax


def _line(panel: Axes, own: pd.DataFrame, measure: str, name: str, marker: str) -> None:
    """One class in one gauge: a line where it was tried at several strengths, a marker at each, bars for intervals."""
    tried, gauge, colour = own[own["tried"]], str(own["gauge"].iloc[0]), _colour(name)
    style, dots = LOOKS[gauge]
    if own["n_strengths"].max() > 1:
        panel.plot(own["strength"], own[measure], style, color=colour, linewidth=1.6, zorder=3)
    panel.plot(tried["strength"], tried[measure], marker, color=colour, label=f"{name} {gauge}", zorder=4, **dots)
    if measure == "delta_ce":
        panel.vlines(tried["strength"], tried["low"], tried["high"], color=colour, linewidth=1.2, zorder=3)


def _by_factor(panel: Axes, strengths: pd.Series) -> None:
    """A log axis for what logits are multiplied by, with the factors that were tried, as far as there is room."""
    panel.set_xscale("log")
    room = ROOM * math.log(strengths.max() / strengths.min())
    ticks = [edit_tables.NO_EDIT["temperature"]]
    for strength in sorted(strengths.unique()):
        if all(abs(math.log(strength / tick)) >= room for tick in ticks):
            ticks.append(float(strength))
    panel.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    panel.xaxis.set_minor_locator(NullLocator())


def _doses(run: Run) -> dict[str, pd.DataFrame]:
    found = {edit: edit_tables.dose_costs(run, edit) for edit in EDITS}
    return {edit: costs for edit, costs in found.items() if len(costs)}


def _colour(name: str) -> str:
    return CLASS_COLOURS.get(name, BLACK)


def _names(doses: dict[str, pd.DataFrame]) -> list[str]:
    """The classes, "" for the edit of all logits."""
    return list(dict.fromkeys(name for costs in doses.values() for name in costs["token_class"]))


def _legend(doses: dict[str, pd.DataFrame]) -> list[Artist]:
    names = _names(doses)
    gauges = [gauge for gauge in GAUGES if any((costs["gauge"] == gauge).any() for costs in doses.values())]
    handles: list[Artist] = [
        Line2D([], [], color=_colour(name), marker=MARKERS[at % len(MARKERS)], markersize=5, label=name or "all logits")
        for at, name in enumerate(names)
    ]
    if len(gauges) > 1:
        for gauge in gauges:
            style, dots = LOOKS[gauge]
            handles.append(Line2D([], [], color=GREY, linestyle=style, marker="o", label=f"{gauge} gauge", **dots))
    return handles


def _caption(run: Run) -> str:
    doses = _doses(run)
    every = pd.concat(list(doses.values()))
    gauges = " and ".join(f"the {gauge}" for gauge in GAUGES if (every["gauge"] == gauge).any())
    return join(
        "Above: loss with the edit less the loss without, in nats a token predicted from positions ≥ 16.",
        "Below: the change of Λ of function words less Λ of content words (what class_sink is made of; mean over "
        "tokens, heads and layers).",
        "scale_class makes the keys of a class e^δ times as long, position 0 apart." if "scale_class" in doses else "",
        "temperature multiplies all logits by β." if "temperature" in doses else "",
        f"Edited in {edit_tables.edited(run)} at once, in {gauges} gauge.",
        "Dotted: no edit, which costs nothing; lines pass through it.",
        tested(every, "Bars"),
        scope(run),
    )


def _missing(run: Run) -> str | None:
    if not tables.has(run, "interventions"):
        return "This run has no values in the table interventions."
    if not _doses(run):
        return (
            "No edit was tried at two strengths; --edit scale_class:function:0.5 --edit scale_class:function:1 adds "
            "this figure."
        )
    return None


def _data(run: Run) -> pd.DataFrame:
    every = pd.concat(list(_doses(run).values()), ignore_index=True)
    columns = ["edit", "strength", "token_class", "gauge", "n_tokens", "delta_ce", "low", "high", "kl"]
    return every.loc[every["tried"], [*columns, "delta_class_sink", "displacement"]]


DOSE_RESPONSE = Drawing(
    draw=draw_dose_response,
    title="What edits do, by their strength",
    alt="Lines by the strength of an edit: how much the loss rises, and how much the pull of function words changes.",
    caption=_caption,
    missing=_missing,
    size=lambda run: (WIDTH, 5.6),
    data=_data,
    kind=tables.INTERVENTION,
)
