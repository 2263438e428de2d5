"""How often position 0 is a sink, over the threshold that makes it one."""

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, PercentFormatter

from geomprobe import tables
from geomprobe.figures.drawing import Drawing, height, join, needs_causal, rows_of, scope
from geomprobe.figures.layout import crown
from geomprobe.figures.style import BLACK, DEPTH, GREY
from geomprobe.labels import WHOLE_MODEL
from geomprobe.run.reading import Run


def draw_sink_rates(run: Run, ax: Axes) -> Axes:
    """Sink rate over ε: the whole model bold, each layer thin and coloured by its depth."""
    table = run.tables["sink_rates"].sort_values("epsilon")
    every = tables.layers(run)
    scale = Normalize(min(every), max(max(every), min(every) + 1))
    for layer in every:
        rows = table[table["layer"] == layer]
        ax.plot(rows["epsilon"], rows["rate"], color=colormaps[DEPTH](scale(layer)), linewidth=0.9, alpha=0.8)
    whole = table[table["layer"] == WHOLE_MODEL]
    ax.plot(
        whole["epsilon"], whole["rate"], color=BLACK, linewidth=2.6, marker="o", markersize=5, zorder=5, label="all"
    )
    ax.axvline(tables.SINK_EPSILON, color=GREY, linestyle=":", linewidth=1.2, zorder=1)
    ax.set_xticks(np.unique(table["epsilon"]))
    ax.set_xlabel("threshold ε")
    ax.set_ylim(-0.02, 1.02)
    ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    ax.set_ylabel("sink rate: share with α₀ > ε")
    bar = ax.figure.colorbar(ScalarMappable(scale, DEPTH), cax=ax.inset_axes((1.03, 0, 0.025, 1)), label="layer")
    bar.ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    n = int(whole["n"].max()) if len(whole) else 0
    handles = [
        Line2D([], [], color=BLACK, linewidth=2.6, marker="o", label=f"whole model (n = {n:,} windows × heads)"),
        Line2D([], [], color=colormaps[DEPTH](0.5), linewidth=0.9, label="one layer"),
        Line2D([], [], color=GREY, linestyle=":", label=f"ε = {tables.SINK_EPSILON}"),
    ]
    crown(ax, run, "how often position 0 is a sink", handles)
    return ax


def _caption(run: Run) -> str:
    rate, n = tables.sink_rate(run)
    at = f"At ε = {tables.SINK_EPSILON} it is {rate:.1%} for the whole model (n = {n:,})." if rate >= 0 else ""
    return join(
        "Sink rate: the share of (window, layer, head) with α₀ > ε, where α₀ is the mean attention that the first 64 "
        "queries of a window, those that see position 0, give to position 0 (their own row, where it is 1, included).",
        "Black: the whole model. Thin: each layer, coloured by depth.",
        at,
        scope(run),
    )


SINK_RATES = Drawing(
    draw=draw_sink_rates,
    title="Sink rate over its threshold",
    alt="Falling lines: the share of windows and heads in which position 0 is a sink, over the threshold; "
    "the whole model bold, the layers thin.",
    caption=_caption,
    missing=needs_causal("sink_rates"),
    size=height(4.0),
    data=rows_of("sink_rates"),
)
