"""Whether longer keys get more attention, and where position 0 stands."""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from geomprobe import tables
from geomprobe.figures.drawing import Drawing, height, join, measured, needs, scope
from geomprobe.figures.layout import crown, panels
from geomprobe.figures.style import BLACK, GREY, ORANGE
from geomprobe.run.reading import Run

LEAST = 200  # keys of one bin of lengths, for a median of what they receive
LENGTHS = (0.0625, 0.125, 0.25, 0.5, 1, 2, 4, 8, 16)  # factors at the ticks
RECEIVED = (0.001, 0.01, 0.1, 1, 10, 100, 1000)
COLOURS = "Blues"
_PALE = 0.2  # of the colours lie below a single key, so that it can be told from the paper
_SMALLEST, _LARGEST = 3.0, 60.0  # points² of a dot
_HALO = [withStroke(linewidth=3.6, foreground="white")]  # around a line over dark colours
_EDGES = ["length_low", "length_high", "lift_low", "lift_high"]


def draw_length_attention(run: Run, ax: Axes) -> Axes:
    """A panel a third of the depth: keys by length and attention received, with their median; position 0 as dots."""
    thirds = tables.thirds(run)
    keys, firsts = ([cloud(run, third, first=first) for third in thirds] for first in (False, True))
    top = max(10, *(_most(rows) for rows in keys))
    norm = LogNorm(top**-_PALE, top)
    most = max(_most(rows) for rows in firsts)
    made = panels(ax, 1, len(thirds))
    for panel, third, others, first in zip(made, thirds, keys, firsts, strict=True):
        panel.axhline(0, color=GREY, linewidth=0.8, linestyle=":", zorder=3)
        panel.axvline(0, color=GREY, linewidth=0.8, linestyle=":", zorder=3)
        _draw_keys(panel, others, norm)
        panel.set_title(f"{tables.span(third)}\n{_draw_first(panel, first, most)}", fontsize=9)
        panel.set_xlabel("key length ÷ usual length")
    made[0].set_ylabel("attention received ÷ even share")
    _scales(made[0], pd.concat([*keys, *firsts]))
    _draw_bar(ax, norm)
    crown(ax, run, "do longer keys get more attention?", _legend(), above=34)
    return ax


def cloud(run: Run, layers: Sequence[int], *, first: bool) -> pd.DataFrame:
    """How many keys of these layers lie in each bin, position 0 alone or all others; by the edges of the bins."""
    table = run.tables["length_attention"]
    rows = table[table["layer"].isin(layers) & (table["first"] == first)]
    return rows.groupby(_EDGES)["count"].sum().reset_index()


def median(rows: pd.DataFrame, axis: str) -> float:
    """The median of a length or lift, as if the keys of a bin lay evenly in it; NaN of nothing."""
    bins = rows.groupby([f"{axis}_low", f"{axis}_high"], as_index=False)["count"].sum()
    total = bins["count"].sum()
    if not total:
        return math.nan
    below = bins["count"].cumsum()
    low, high, count = bins.loc[(below >= total / 2).idxmax()]
    before = float((bins["count"] * (bins[f"{axis}_low"] < low)).sum())
    return float(low + (high - low) * (total / 2 - before) / count)


def _most(rows: pd.DataFrame) -> int:
    return int(rows["count"].max()) if len(rows) else 1


def _draw_keys(panel: Axes, rows: pd.DataFrame, norm: LogNorm) -> None:
    """The counts as colours, and the median lift by length where there are keys enough."""
    if not len(rows):
        panel.text(0.5, 0.5, "no keys counted", transform=panel.transAxes, ha="center", color=GREY)
        return
    across, up = _grid(rows, "length"), _grid(rows, "lift")
    counts = np.full((len(up) - 1, len(across) - 1), np.nan)
    place = [np.searchsorted(edges, rows[name] - 1e-6) for name, edges in (("length_low", across), ("lift_low", up))]
    counts[place[1], place[0]] = rows["count"]
    panel.pcolormesh(across, up, counts, cmap=COLOURS, norm=norm, zorder=2)
    slices = [own for _, own in rows.groupby("length_low") if own["count"].sum() >= LEAST]
    middles = [float(own["length_low"].iloc[0] + own["length_high"].iloc[0]) / 2 for own in slices]
    (line,) = panel.plot(middles, [median(own, "lift") for own in slices], color=BLACK, zorder=4, label="median")
    line.set(linewidth=1.8, path_effects=_HALO)


def _grid(rows: pd.DataFrame, axis: str) -> np.ndarray:
    """The edges of all bins from the first that holds something to the last."""
    low, high = rows[f"{axis}_low"], rows[f"{axis}_high"]
    n = round(float((high.max() - low.min()) / (high - low).median()))
    return np.linspace(low.min(), high.max(), n + 1)


def _draw_first(panel: Axes, rows: pd.DataFrame, most: int) -> str:
    """Position 0 as dots and its median; what is said of it over the panel."""
    if not len(rows):
        return "no position 0 counted"
    x, y = ((rows[f"{axis}_low"] + rows[f"{axis}_high"]) / 2 for axis in ("length", "lift"))
    sizes = (_LARGEST * rows["count"] / most).clip(lower=_SMALLEST)
    panel.scatter(x, y, s=sizes, color=ORANGE, alpha=0.6, linewidths=0, zorder=5)
    middle = median(rows, "length"), median(rows, "lift")
    panel.plot(*middle, "D", color=ORANGE, markeredgecolor=BLACK, markersize=8, zorder=6, label="position 0")
    length, received = (_factor(math.exp(value)) for value in middle)
    return f"position 0: {length} × length, {received} × share"


def _factor(value: float) -> str:
    return f"{value:.2g}" if value < 99.5 else f"{value:,.0f}"


def _scales(ax: Axes, rows: pd.DataFrame) -> None:
    """Both scales as wide as the bins that hold something, with factors at the ticks; at least from a half to two."""
    for axis, name, factors in ((ax.xaxis, "length", LENGTHS), (ax.yaxis, "lift", RECEIVED)):
        low, high = (-0.8, 0.8) if name == "length" else (-1, 1)
        if len(rows):
            low, high = min(low, rows[f"{name}_low"].min()), max(high, rows[f"{name}_high"].max())
        room = 0.03 * (high - low)
        (ax.set_xlim if name == "length" else ax.set_ylim)(low - room, high + room)
        ticks = [factor for factor in factors if low <= math.log(factor) <= high]
        axis.set_ticks([math.log(factor) for factor in ticks], [f"{factor:,g}" for factor in ticks])


def _draw_bar(ax: Axes, norm: LogNorm) -> None:
    """What the colours count."""
    bar = ax.figure.colorbar(ScalarMappable(norm, COLOURS), cax=ax.inset_axes((1.02, 0, 0.015, 1)))
    bar.ax.set_ylim(1, norm.vmax)
    bar.ax.yaxis.set_major_locator(LogLocator())
    bar.ax.yaxis.set_minor_locator(NullLocator())
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    bar.set_label("keys")


def _legend() -> list[Artist]:
    return [
        Line2D([], [], color=BLACK, linewidth=1.8, label="median of keys of a length"),
        Line2D([], [], color=ORANGE, linestyle="", marker="o", alpha=0.6, markersize=5, label="position 0"),
        Line2D([], [], color=ORANGE, linestyle="", marker="D", markeredgecolor=BLACK, label="its median"),
        Line2D([], [], color=GREY, linewidth=0.8, linestyle=":", label="usual length, even share"),
    ]


def _caption(run: Run) -> str:
    counts = run.tables["length_attention"].groupby("first")["count"].sum()
    return join(
        "A key's length over its head's usual one (geometric mean over the window, position 0 out), against the "
        "attention that it receives over its even share: the mean of A(t, j) over the sampled queries t behind it, "
        "over the mean of 1/|V(t)|, what each key would get if a query t looked at all that it sees alike.",
        "Raw gauge, both axes in logs; the colour counts keys, each once a query head, heads and layers pooled. What "
        "lies beyond the table's bins (e^±3, e^±8) is in those at the end.",
        f"Line: the median of what keys of a length receive, where there are {LEAST} of them: where it rises, longer "
        "keys get more.",
        "Orange: position 0, whatever stands there; a dot's area says how often, diamond and words over a panel are "
        "its medians.",
        f"n = {int(counts.get(False, 0)):,} keys, {int(counts.get(True, 0)):,} times position 0, {measured(run)}.",
        scope(run),
    )


def _data(run: Run) -> pd.DataFrame:
    clouds = [
        cloud(run, third, first=first).assign(layers=tables.span(third), first=first)
        for third in tables.thirds(run)
        for first in (False, True)
    ]
    return pd.concat(clouds, ignore_index=True)[["layers", "first", *_EDGES, "count"]]


LENGTH_ATTENTION = Drawing(
    draw=draw_length_attention,
    title="Key length against attention received",
    alt="Panels of a cloud of keys, by thirds of the depth: length of a key against the attention that it receives, "
    "with the median by length as a line and position 0 as orange dots.",
    caption=_caption,
    missing=needs("length_attention"),
    size=height(4.4),
    data=_data,
    dense=True,
)
