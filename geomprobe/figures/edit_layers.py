"""What it costs to edit a single layer: lengths evened out or shuffled, against directions turned as far."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from geomprobe import edit_tables, tables
from geomprobe.figures.drawing import WIDTH, Drawing, join, scope, shading, tested
from geomprobe.figures.layout import band, crown, full_layer_key, layer_axis, panels
from geomprobe.figures.style import BLUE, GREY, VERMILION
from geomprobe.run.reading import Run

LENGTHS = {"neutral_norm": "lengths evened out", "permute_norm": "lengths shuffled"}
COLUMNS = 2


def draw_edit_layers(run: Run, ax: Axes) -> Axes:
    """A panel an edit of lengths and gauge: its cost by layer, and that of directions turned as far."""
    pairs = edit_tables.turned_costs(run)
    columns = min(len(pairs), COLUMNS)
    rows = -(-len(pairs) // columns)
    made = panels(ax, rows, columns, gap=(0.03, 0.13))
    for place, panel in enumerate(made):
        if place >= len(pairs):
            panel.set_visible(False)
            continue
        (edit, gauge), (length, angle) = list(pairs.items())[place]
        last = place + columns >= len(pairs)
        layer_axis(panel, run, label=last)
        panel.tick_params(labelbottom=last)
        panel.axhline(0, color=GREY, linewidth=0.8, zorder=1)
        _line(panel, length, VERMILION, LENGTHS[edit])
        _line(panel, angle, BLUE, "directions turned as far")
        panel.set_title(f"{LENGTHS[edit]}, {gauge} gauge")
        if place % columns == 0:
            panel.set_ylabel("loss (nats a token)")
    handles = [
        Line2D([], [], color=VERMILION, linewidth=2, marker="o", markersize=4, label="key lengths edited"),
        Line2D([], [], color=BLUE, linewidth=2, marker="s", markersize=4, label="directions turned as far"),
        *([Patch(color=GREY, alpha=0.4, label="95% interval")] if _every(run)["low"].notna().any() else []),
        *full_layer_key(run),
    ]
    crown(ax, run, "what edits of one layer cost", handles, above=20)
    return ax


def _line(panel: Axes, costs: pd.DataFrame, colour: str, label: str) -> None:
    band(panel, costs["low"], costs["high"], colour, 0.2)
    marker = "o" if colour == VERMILION else "s"
    panel.plot(costs.index, costs["delta_ce"], marker, linestyle="-", color=colour, markersize=4, label=label, zorder=4)


def _every(run: Run) -> pd.DataFrame:
    return pd.concat([rows for pair in edit_tables.turned_costs(run).values() for rows in pair])


def _caption(run: Run) -> str:
    every = _every(run)
    moved = every["displacement"]
    return join(
        "Loss with the keys of one layer edited, all else left alone, less the loss without, in nats a token predicted "
        "from positions ≥ 16.",
        "Circles: only the lengths of the keys change (all at their head's geometric mean, or shuffled among the "
        "positions of a window). Squares: only their directions change, mixed with those of other tokens until keys "
        "are moved as far (mean ‖k′ − k‖/‖k‖ of that layer).",
        f"In the layers shown keys are moved by {moved.min():.1%} to {moved.max():.1%}.",
        tested(every, "Bands"),
        shading(run),
        scope(run),
    )


def _missing(run: Run) -> str | None:
    if not tables.has(run, "interventions"):
        return "This run has no values in the table interventions."
    if not edit_tables.turned_costs(run):
        return (
            "Single layers were not edited both ways; --edit neutral_norm --edit swap_angle:neutral_norm --one-by-one "
            "adds this figure."
        )
    return None


def _data(run: Run) -> pd.DataFrame:
    every = _every(run).reset_index()
    columns = ["layer", "setting", "edit", "against", "gauge", "n_tokens", "delta_ce", "low", "high", "kl"]
    return every[[*columns, "displacement"]]


EDIT_LAYERS = Drawing(
    draw=draw_edit_layers,
    title="What edits of one layer cost: lengths against directions",
    alt="Lines by layer: how much the loss rises when the lengths of that layer's keys are edited, and when their "
    "directions are turned as far.",
    caption=_caption,
    missing=_missing,
    size=lambda run: (WIDTH, 1.4 + 2.6 * -(-len(edit_tables.turned_costs(run)) // COLUMNS)),
    data=_data,
    kind=tables.INTERVENTION,
)
