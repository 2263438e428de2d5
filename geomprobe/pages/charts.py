"""Interactive versions of figures: the same numbers, read under the pointer."""

from collections.abc import Callable, Mapping
from textwrap import wrap
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from markupsafe import Markup
from plotly.subplots import make_subplots

from geomprobe import tables
from geomprobe.figures import cluster_auc, lengths, neighbour_quality
from geomprobe.figures.layout import LOG_FROM
from geomprobe.figures.style import BLACK, CLASS_COLOURS, GREY, VECTOR_COLOURS
from geomprobe.figures.word_map import palette
from geomprobe.labels import FIRST
from geomprobe.pages.chart_style import (
    INK,
    SOFT,
    add_band,
    amounts,
    axis,
    block_of,
    head_text,
    ink,
    new_chart,
    shown,
    veil,
)
from geomprobe.pages.embedding import numbers
from geomprobe.pages.wording import number
from geomprobe.run.reading import Run
from geomprobe.tables import count

SYMBOLS: Final = ("circle", "square", "diamond", "triangle-up", "cross", "star")
PERCENTILES: Final = ("p05", "p25", "p50", "p75", "p95")


def chart_block(name: str, run: Run) -> Markup | None:
    """The interactive version of a figure as JSON for plotly; None for a figure that has none.

    Parameters
    ----------
    name : str
        Of the catalogue, one that the run has something for.
    run : Run
    """
    return block_of(CHARTS[name](run)) if name in CHARTS else None


def first_mass_chart(run: Run) -> go.Figure:
    """Layer × query head, coloured by first_mass."""
    table = run.tables["sinks"]
    matrix = tables.by_head(table, "first_mass", "q_head")  # (layer, q_head)
    n = tables.by_head(table, "n_rows", "q_head")
    full = set(tables.full_layers(run))
    said = [
        [
            head_text(layer, int(head), value, _queries(rows), full=layer in full)
            for head, value, rows in zip(matrix.columns.tolist(), values, counts, strict=True)
        ]
        for layer, values, counts in zip(matrix.index.tolist(), matrix.to_numpy(), n.to_numpy(), strict=True)
    ]
    figure = new_chart(float(np.clip(120 + 16 * len(matrix), 280, 900)))
    figure.add_heatmap(
        x=[str(head) for head in matrix.columns],
        y=[str(layer) for layer in matrix.index],
        z=[numbers(row) for row in matrix.to_numpy()],
        hovertext=said,
        hoverinfo="text",
        hoverongaps=False,
        colorscale=amounts(),
        zmin=0,
        colorbar={"title": {"text": "first_mass"}, "thickness": 14, "outlinewidth": 0},
    )
    figure.update_layout(
        xaxis=axis("query head", type="category", showgrid=False),
        yaxis=axis("layer", type="category", autorange="reversed", showgrid=False),
    )
    return figure


def _queries(n: float) -> str:
    return count(n, "query", "queries") if n == n else "0 queries"


def key_lengths_chart(run: Run) -> go.Figure:
    """Key lengths by layer, a group of traces a class."""
    return _lengths(run, "k")


def query_lengths_chart(run: Run) -> go.Figure:
    """Query lengths by layer, a group of traces a class."""
    return _lengths(run, "q")


def _lengths(run: Run, vector: str) -> go.Figure:
    every = tables.layers(run)
    figure = new_chart(420, note="All classes share one panel here; the boxes choose among them.")
    seen: list[float] = []
    for name in (*lengths.shown_classes(run), FIRST):
        rows = tables.lengths(run, vector, name)
        rows = rows[rows["n"] > 0]
        if not len(rows):
            continue
        middle = pd.DataFrame({p: tables.over_heads(rows, p)["median"] for p in PERCENTILES}).reindex(every)
        counts = rows.groupby("layer")["n"].max().reindex(every)
        group, colour = ("position 0" if name == FIRST else name), CLASS_COLOURS[name]
        if name != FIRST:
            add_band(figure, every, middle["p05"], middle["p95"], colour=veil(colour, 0.14), group=group)
            add_band(figure, every, middle["p25"], middle["p75"], colour=veil(colour, 0.26), group=group)
            _add_heads(figure, rows, colour, group)
        figure.add_scatter(
            x=every,
            y=numbers(middle["p50"]),
            mode="lines+markers",
            line={"color": ink(colour), "width": 2.4, "dash": "dash" if name == FIRST else "solid"},
            marker={"size": 5},
            legendgroup=group,
            name=group,
            hoverinfo="text",
            hovertext=[
                _length_text(layer, group, row, int(n)) if n > 0 else ""
                for layer, row, n in zip(every, middle.to_dict("records"), counts.to_numpy(float), strict=True)
            ],
        )
        seen += middle[["p05", "p95"] if name != FIRST else ["p50"]].to_numpy(float).ravel().tolist()
    figure.update_layout(xaxis=axis("layer"), yaxis=axis(f"length, ‖{vector}‖₂", **_scale(seen)))
    return figure


def _add_heads(figure: go.Figure, rows: pd.DataFrame, colour: str, group: str) -> None:
    """The median of each head, all heads in one trace that breaks between them."""
    x: list[int | None] = []
    y: list[float | None] = []
    said: list[str] = []
    for head in sorted(rows["head"].unique().tolist()):
        own = rows[rows["head"] == head].sort_values("layer")
        x += [*own["layer"].tolist(), None]
        y += [*numbers(own["p50"]), None]
        each = zip(own["layer"], own["p50"], own["n"], strict=True)
        said += [f"{group}, {head_text(layer, head, value, count(n, 'token'))}" for layer, value, n in each]
        said.append("")
    figure.add_scatter(
        x=x,
        y=y,
        mode="lines",
        line={"color": veil(colour, 0.5), "width": 0.8},
        legendgroup=group,
        name=group,
        hoverinfo="text",
        hovertext=said,
    )


def _length_text(layer: int, group: str, row: Mapping[Any, float], n: int) -> str:
    where = f"layer {layer}, {group}: median {number(row['p50'])}"
    spread = f"25–75% {number(row['p25'])} to {number(row['p75'])}, 5–95% {number(row['p05'])} to {number(row['p95'])}"
    return f"{where}<br>{spread} (n = {count(n, 'token')})"


def _scale(values: list[float]) -> dict[str, Any]:
    """A log axis where the values spread much, else one that starts at 0."""
    found = np.array([value for value in values if np.isfinite(value) and value > 0])
    if found.size and found.max() / found.min() > LOG_FROM:
        return {"type": "log", "dtick": "D2" if found.max() / found.min() < 300 else 1}
    return {"rangemode": "tozero"}


def word_map_chart(run: Run) -> go.Figure:
    """The map of nouns, a group of dots a category."""
    data = run.tables["map"]
    categories = sorted(data["category"].unique())
    figure = new_chart(620)
    for place, (name, colour) in enumerate(zip(categories, palette(len(categories), shade=1.0), strict=True)):
        rows = data[data["category"] == name]
        said = str(name).replace("_", " ")
        figure.add_scatter(
            x=numbers(rows["x"]),
            y=numbers(rows["y"]),
            mode="markers",
            marker={
                "color": colour,
                "symbol": SYMBOLS[place % len(SYMBOLS)],
                "size": 8,
                "line": {"color": SOFT, "width": 0.7},
            },
            text=[shown(str(word)) for word in rows["word"]],
            textposition="top center",
            textfont={"size": 10, "color": INK},
            legendgroup=shown(said),
            name=shown(said),
            hoverinfo="text",
            hovertext=[
                f"{shown(str(word))} ({shown(said)}, Zipf {number(float(zipf))})"
                for word, zipf in zip(rows["word"], rows["zipf"], strict=True)
            ],
        )
    bare = {"showticklabels": False, "ticks": "", "showgrid": False, "mirror": True}
    figure.update_layout(xaxis=axis("", **bare), yaxis=axis("", **bare))
    return figure


def cluster_auc_chart(run: Run) -> go.Figure:
    """AUC by layer with intervals, a group of traces a space; the shuffled categories in grey."""
    every = tables.layers(run)
    figure = new_chart(420)
    for name, rows in tables.cluster_lines(run).items():
        level = name in cluster_auc.LEVELS
        dash = "dash" if level else "dot" if name in cluster_auc.DOTTED else "solid"
        line = rows.set_index("layer").reindex(every) if not level else pd.concat([rows.iloc[[0]]] * len(every))
        colour, group = cluster_auc.COLOURS[name], cluster_auc.NAMES[name]
        add_band(figure, every, line["auc_low"], line["auc_high"], colour=_band(colour), group=group)
        where = ["" if level else f"layer {layer}, " for layer in every]
        figure.add_scatter(
            x=every,
            y=numbers(line["auc"]),
            mode="lines" if level else "lines+markers",
            line={"color": ink(colour), "width": 2.2, "dash": dash},
            marker={"size": 5},
            legendgroup=group,
            name=group,
            hoverinfo="text",
            hovertext=[
                f"{at}{group}: AUC {row['auc']:.3f}<br>95% interval {row['auc_low']:.3f} to {row['auc_high']:.3f} "
                f"(n = {count(row['n_types'], 'noun')})"
                if row["auc"] == row["auc"]
                else ""
                for at, row in zip(where, line.to_dict("records"), strict=True)
            ],
        )
    _add_shuffled(figure, run)
    figure.update_layout(xaxis=axis("layer"), yaxis=axis("AUC"))
    return figure


def _band(colour: str) -> str:
    return veil(GREY if colour == BLACK else colour, 0.18)


def _add_shuffled(figure: go.Figure, run: Run) -> None:
    lines = {name: rows for name, rows in tables.cluster_lines(run).items() if name not in cluster_auc.LEVELS}
    for name, rows in lines.items():
        group = "categories shuffled"
        figure.add_scatter(
            x=rows["layer"].tolist(),
            y=numbers(rows["auc_shuffled"]),
            mode="markers",
            marker={"color": GREY, "size": 4},
            legendgroup=group,
            name=group,
            hoverinfo="text",
            hovertext=[
                f"layer {layer}, {cluster_auc.NAMES[name]}: AUC {value:.3f} with the categories shuffled"
                for layer, value in zip(rows["layer"], rows["auc_shuffled"], strict=True)
            ],
        )


def neighbour_quality_chart(run: Run) -> go.Figure:
    """Four panels over deciles of frequency, a group of traces a vector."""
    titles = ["<br>".join(wrap(title, 18)) for title in neighbour_quality.COLUMNS.values()]  # for narrow screens
    figure = new_chart(560)
    made = make_subplots(rows=2, cols=2, subplot_titles=titles, vertical_spacing=0.2, figure=figure)
    for place, column in enumerate(neighbour_quality.COLUMNS):
        at = {"row": 1 + place // 2, "col": 1 + place % 2}
        for vector, group in (("k", "keys"), ("q", "queries")):
            found = tables.neighbour_bands(run, column, vector)
            decile, colour = [int(band) + 1 for band in found.index], VECTOR_COLOURS[vector]
            add_band(made, decile, found["q25"], found["q75"], colour=veil(colour, 0.2), group=group, **at)
            line = go.Scatter(
                x=decile,
                y=numbers(found["median"]),
                mode="lines+markers",
                line={"color": colour, "width": 2.2},
                marker={"size": 5},
                legendgroup=group,
                name=group,
                hoverinfo="text",
                hovertext=[
                    f"decile {band}, {group}: {number(row['median'])}<br>middle half of the heads {number(row['q25'])} "
                    f"to {number(row['q75'])} (n = {count(row['n'], 'head')})"
                    for band, row in zip(decile, found.to_dict("records"), strict=True)
                ],
            )
            made.add_trace(line, **at)
    made.update_xaxes(axis("", dtick=3, tick0=1))
    made.update_xaxes(title_text="decile", row=2)
    made.update_yaxes(axis("", range=[0, 1.02]))
    made.update_annotations(font_size=12)
    made.update_layout(margin_t=64)
    return made


CHARTS: Final[Mapping[str, Callable[[Run], go.Figure]]] = MappingProxyType(
    {
        "key_lengths": key_lengths_chart,
        "query_lengths": query_lengths_chart,
        "first_mass": first_mass_chart,
        "cluster_auc": cluster_auc_chart,
        "word_map": word_map_chart,
        "neighbour_quality": neighbour_quality_chart,
    }
)
