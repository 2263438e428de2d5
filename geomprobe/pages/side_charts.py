"""Interactive versions of a comparison's figures: the same numbers, read under the pointer."""

from collections.abc import Callable, Mapping
from textwrap import wrap
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import plotly.graph_objects as go
from markupsafe import Markup
from plotly.subplots import make_subplots

from geomprobe import tables
from geomprobe.comparison.comparison import Comparison
from geomprobe.comparison.measured import records
from geomprobe.figures.side_differences import AXES, row_title, short_title, whole_rows
from geomprobe.figures.side_drawing import at_depth, each_run, some_runs
from geomprobe.figures.side_layers import ENTROPY, FIRST_MASS, Along
from geomprobe.figures.side_maps import top_of
from geomprobe.labels import WHOLE_MODEL
from geomprobe.pages.chart_style import add_band, amounts, axis, block_of, head_text, ink, new_chart, shown, veil
from geomprobe.pages.embedding import numbers
from geomprobe.pages.side_findings import amount, between, gap
from geomprobe.pages.wording import number

DASHES: Final = ("solid", "dash", "dashdot", "dot")
TITLE_WIDTH: Final = 20  # characters
MOST_CHARTS: Final = 4  # maps beside one another
FEW: Final = 4  # runs whose bands can be told apart


def side_chart(name: str, comparison: Comparison) -> Markup | None:
    """The interactive version of a figure as JSON for plotly; None for a figure that has none."""
    return block_of(CHARTS[name](comparison)) if name in CHARTS else None


def _subplots(figure: go.Figure, titles: list[str]) -> go.Figure:
    made = make_subplots(rows=1, cols=len(titles), subplot_titles=[shown(title) for title in titles])
    made.update_layout(figure.layout)
    return made


def maps_chart(comparison: Comparison) -> go.Figure:
    """A map of layers × ranked heads a run, on one colour scale."""
    runs = some_runs(comparison, MOST_CHARTS)
    note = f"{MOST_CHARTS} of the {comparison.sides.n} runs." if comparison.sides.n > MOST_CHARTS else ""
    figure = _subplots(new_chart(460, note), [label for _, _, label, _ in runs])
    ranked = comparison.by_rank
    ranked = ranked[ranked["quantity"] == "first_mass"]
    for index, (_, _, label, _) in enumerate(runs):
        own = ranked[ranked["run"] == label]
        values = own.pivot_table(index="layer", columns="rank", values="value").sort_index()
        heads = own.pivot_table(index="layer", columns="rank", values="head").sort_index()
        said = [
            [_read_head(label, layer, head, value, own) for head, value in zip(mine, read, strict=True)]
            for layer, mine, read in zip(values.index, heads.to_numpy(float), values.to_numpy(float), strict=True)
        ]
        figure.add_heatmap(
            x=[str(int(rank) + 1) for rank in values.columns],
            y=[str(layer) for layer in values.index],
            z=[numbers(row) for row in values.to_numpy()],
            hovertext=said,
            hoverinfo="text",
            hoverongaps=False,
            coloraxis="coloraxis",
            row=1,
            col=index + 1,
        )
        figure.update_xaxes(axis("rank in its layer", type="category", showgrid=False), row=1, col=index + 1)
        figure.update_yaxes(axis("layer" if index == 0 else "", type="category", showgrid=False), row=1, col=index + 1)
    bar = {"title": {"text": "first_mass"}, "thickness": 14, "outlinewidth": 0}
    highest = top_of(float(ranked["value"].max()))
    figure.update_layout(coloraxis={"colorscale": amounts(), "cmin": 0, "cmax": highest, "colorbar": bar})
    return figure


def _read_head(label: str, layer: int, head: float, value: float, own: Any) -> str:
    if head != head:  # this layer has fewer heads than another
        return ""
    beside = f"{int(own['n_heads'].iloc[0])} heads a layer"
    return f"{shown(label)}, {head_text(layer, int(head), value, beside)}"


def _lines(comparison: Comparison, along: Mapping[str, Along], *others: str) -> go.Figure:
    """A panel a quantity, and empty ones with these titles."""
    figure = _subplots(new_chart(420), [*along, *others])
    for column, what in enumerate(along.values(), start=1):
        for index, run, label, colour in each_run(comparison):
            rows = what.rows(run).dropna(subset=[what.column])
            middle = at_depth(run, tables.over_heads(rows, what.column))
            x = [round(float(place), 4) for place in middle.index]
            at = {"row": 1, "col": column}
            if comparison.sides.n <= FEW:
                add_band(figure, x, middle["q25"], middle["q75"], colour=veil(colour, 0.16), group=label, **at)
            said = [
                f"{shown(label)}, layer {layer}: {number(value)} (n = {n:.0f} heads)"
                for layer, value, n in zip(
                    tables.layers(run), middle[what.middle], np.nan_to_num(middle["n"]), strict=True
                )
            ]
            figure.add_scatter(x=x, y=numbers(middle[what.middle]), **_line(index, label, colour, said), **at)
        figure.update_xaxes(axis("relative depth", range=[0, 1]), row=1, col=column)
        figure.update_yaxes(axis("", rangemode="tozero"), row=1, col=column)
    return figure


def _line(index: int, label: str, colour: str, said: list[str]) -> dict[str, Any]:
    """How a run's line looks, and what is read at its points."""
    return {
        "mode": "lines+markers",
        "line": {"color": ink(colour), "width": 2.2, "dash": DASHES[index % len(DASHES)]},
        "marker": {"size": 4},
        "name": shown(label),
        "legendgroup": label,
        "hovertext": said,
        "hoverinfo": "text",
    }


def sinks_chart(comparison: Comparison) -> go.Figure:
    """Attention on position 0 along the depth; sink rate by threshold."""
    figure = _lines(comparison, {"attention on position 0": FIRST_MASS}, "sink rate")
    for index, run, label, colour in each_run(comparison):
        rates = run.tables["sink_rates"]
        whole = rates[rates["layer"] == WHOLE_MODEL].sort_values("epsilon")
        said = [
            f"{shown(label)}, ε = {row['epsilon']:g}: {number(row['rate'])} (n = {row['n']:,} windows × heads)"
            for row in records(whole)
        ]
        line = _line(index, label, colour, said)
        figure.add_scatter(x=numbers(whole["epsilon"]), y=numbers(whole["rate"]), **line, row=1, col=2)
    figure.update_xaxes(axis("threshold ε"), row=1, col=2)
    figure.update_yaxes(axis("", range=[0, 1.02]), row=1, col=2)
    return figure


def entropy_chart(comparison: Comparison) -> go.Figure:
    """Entropy along the depth."""
    return _lines(comparison, {"entropy without position 0 (nats)": ENTROPY})


def differences_chart(comparison: Comparison) -> go.Figure:
    """Differences with their intervals, a panel a unit."""
    table = whole_rows(comparison.differences)
    groups = [(unit, rows) for unit in AXES if len(rows := table[table["unit"] == unit])]
    sizes = [rows.groupby(["quantity", "gauge", "token_class"], sort=False).ngroups for _, rows in groups]
    figure = make_subplots(rows=len(groups), cols=1, row_heights=sizes, vertical_spacing=0.11 if len(groups) > 1 else 0)
    figure.update_layout(new_chart(120 + 46 * sum(sizes) + 40 * len(groups)).layout)
    shades = {label: colour for _, _, label, colour in each_run(comparison)}
    for place, (unit, rows) in enumerate(groups, start=1):
        factor = 100.0 if unit == "share" else 1.0
        for label, own in ((str(name), group) for name, group in rows.groupby("b", sort=False)):
            listed = records(own)
            values = factor * own["difference"]
            figure.add_scatter(
                x=numbers(values),
                y=[_wrapped(short_title(row)) for row in listed],
                mode="markers",
                marker={
                    "color": ink(shades[label]),
                    "size": 9,
                    "symbol": ["circle" if row["beyond"] else "circle-open" for row in listed],
                },
                error_x={
                    "type": "data",
                    "symmetric": False,
                    "array": numbers(factor * own["high"] - values),
                    "arrayminus": numbers(values - factor * own["low"]),
                    "color": ink(shades[label]),
                },
                name=shown(label),
                legendgroup=label,
                showlegend=place == 1,
                hovertext=[_read(row) for row in listed],
                hoverinfo="text",
                row=place,
                col=1,
            )
        figure.update_xaxes(axis(AXES[unit], zeroline=True, zerolinewidth=1), row=place, col=1)
        figure.update_yaxes(axis("", type="category", autorange="reversed"), row=place, col=1)
    return figure


def _wrapped(title: str) -> str:
    """A row's title in short lines, so that a narrow page keeps room for the rows."""
    return "<br>".join(shown(line) for line in wrap(title, TITLE_WIDTH))


def _read(row: Mapping[str, Any]) -> str:
    unit = row["unit"]
    values = f"{amount(row['estimate_a'], unit)} → {amount(row['estimate_b'], unit)}"
    held = between(row)
    return f"{shown(row_title(dict(row)))}, {shown(row['b'])}: {values}, {gap(row['difference'], unit)} ({held})"


CHARTS: Final[Mapping[str, Callable[[Comparison], go.Figure]]] = MappingProxyType(
    {
        "differences": differences_chart,
        "sinks": sinks_chart,
        "first_mass_maps": maps_chart,
        "entropy": entropy_chart,
    }
)
