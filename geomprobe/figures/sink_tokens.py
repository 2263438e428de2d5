"""Tokens that sink past position 0, by name, and position 0 apart."""

import math

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, PercentFormatter

from geomprobe import tables
from geomprobe.figures.drawing import WIDTH, Drawing, join, needs_causal, scope
from geomprobe.figures.glyphs import drawable
from geomprobe.figures.layout import crown
from geomprobe.figures.style import BLACK, CLASS_COLOURS, GREY
from geomprobe.labels import CLOSED_CLASSES
from geomprobe.run.reading import Run

MOST = 15
ROW = 0.28  # inches that a bar takes
GAP = 3.0  # rows that position 0 and the space below it take


def draw_sink_tokens(run: Run, ax: Axes) -> Axes:
    """A bar a token: in how many (key, head) pairs it is a sink; above them the sink rate of position 0."""
    totals = tables.sink_token_totals(run).head(MOST)
    rows = max(len(totals), 1)
    ax.set_axis_off()
    _draw_first(run, ax.inset_axes((0.2, 1 - 1 / (rows + GAP), 0.46, 1 / (rows + GAP))))
    _draw_tokens(totals, ax.inset_axes((0.2, 0, 0.46, rows / (rows + GAP))))
    crown(ax, run, "tokens that draw more than 30% of the attention", _legend(totals), columns=5)
    return ax


def _draw_first(run: Run, panel: Axes) -> None:
    rate, n = tables.sink_rate(run)
    panel.barh([0], [0 if math.isnan(rate) else rate], color=BLACK, height=0.6)
    panel.set_xlim(0, 1)
    panel.set_yticks([0], ["position 0"])
    panel.set_ylim(-0.5, 0.5)
    panel.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    note = f"{rate:.1%} of {n:,} windows × heads" if rate >= 0 else "not measured"
    panel.text(1.03, 0, note, transform=panel.get_yaxis_transform(), va="center", fontsize=9)


def _draw_tokens(totals: pd.DataFrame, panel: Axes) -> None:
    places = range(len(totals))
    panel.barh(places, totals["n_sink"], color=[CLASS_COLOURS[name] for name in totals["token_class"]], height=0.7)
    panel.set_yticks(places, token_names(totals), parse_math=False)
    panel.set_ylim(max(len(totals), 1) - 0.4, -0.6)
    panel.set_xlabel("times a sink (keys × heads)")
    panel.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    transform = panel.get_yaxis_transform()
    for place, row in enumerate(totals.to_dict("records")):
        depth = tables.span((row["layer_low"], row["layer_high"]))
        heads = "1 head" if row["n_heads"] == 1 else f"{row['n_heads']} heads"
        note = f"{row['n_sink']:,} of {row['n_seen']:,} in {heads}, {depth}"
        panel.text(1.03, place, note, transform=transform, va="center", fontsize=9)
    if not len(totals):
        panel.text(0.5, 0.5, "no token past position 0", transform=panel.transAxes, ha="center", color=GREY)


def token_names(totals: pd.DataFrame) -> list[str]:
    """Tokens as the font can show them, a lone mark in quotes; the token id behind those that look alike."""
    names = [drawable(str(token), 18) for token in totals["token"]]
    names = [name if len(name) > 1 or name.isalnum() else f"“{name}”" for name in names]
    ids = totals["token_id"]
    return [name if names.count(name) == 1 else f"{name} #{i}" for name, i in zip(names, ids, strict=True)]


def _legend(totals: pd.DataFrame) -> list[Patch]:
    groups = {name: "function" if name in CLOSED_CLASSES else name for name in totals["token_class"]}
    return [Patch(color=CLASS_COLOURS[name], label=name) for name in dict.fromkeys(groups.values())]


def _caption(run: Run) -> str:
    found = len(tables.sink_token_totals(run))
    shown = f"The {MOST} most frequent of {found:,} such tokens." if found > MOST else f"Such tokens: {found:,}."
    return join(
        "A key at position k ≥ 1 is a sink of a head where α(k) > .3, the mean attention it gets from the queries "
        "t ≥ k that see it, at least 16 of them later than k.",
        "Bars: how often a token is a sink, counted over its keys and the heads. Beside them: that number, the keys × "
        "heads seen in the heads where it is a sink at least once, how many heads (of all layers) and in which layers.",
        "Top: position 0, measured otherwise: share of (window, layer, head) with α₀ > .3 over the first 64 queries.",
        shown if found else "No token past position 0 is a sink anywhere.",
        "␣ is a space, \\n a line break, \\u… a character that has no shape of its own or none in this font.",
        scope(run),
    )


def _data(run: Run) -> pd.DataFrame:
    totals = tables.sink_token_totals(run)
    return totals.assign(token=[tables.visible(str(token), 80) for token in totals["token"]])


def _missing(run: Run) -> str | None:
    if not tables.looks_back(run):
        return needs_causal()(run)
    return None if "sink_tokens" in run.tables and "sink_rates" in run.tables else "This run did not look for sinks."


SINK_TOKENS = Drawing(
    draw=draw_sink_tokens,
    title="Which tokens are sinks",
    alt="Horizontal bars: how often each token past position 0 draws more than 30% of a head's attention; "
    "position 0 above them.",
    caption=_caption,
    missing=_missing,
    size=lambda run: (WIDTH, 1.2 + ROW * (GAP + min(MOST, max(1, len(tables.sink_token_totals(run)))))),
    data=_data,
)
