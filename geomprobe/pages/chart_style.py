"""How charts look: the figures' colours, ink and ground of the page, light or dark."""

import html
from collections.abc import Sequence
from typing import Any, Final

import plotly.graph_objects as go
from markupsafe import Markup
from matplotlib import colormaps
from matplotlib.colors import to_hex, to_rgb

from geomprobe.figures.style import AMOUNT, BLACK
from geomprobe.pages.embedding import json_block, numbers, plain, rounded
from geomprobe.pages.wording import number

# The page's script puts the colours that the page has at the time in their place.
INK: Final = "var(--ink)"
SOFT: Final = "var(--soft)"
LINE: Final = "var(--line)"
GROUND: Final = "var(--ground)"
RAISED: Final = "var(--raised)"
CLEAR: Final = "rgba(0,0,0,0)"
DIVERGING: Final = "PuOr_r"  # around zero; its ends differ in lightness from the middle, not in red and green


def new_chart(height: float, note: str = "") -> go.Figure:
    """An empty chart as tall as that, in pixels; as wide as the page gives it.

    Parameters
    ----------
    height : float
    note : str
        What a reader has to know of the chart beyond the figure's caption.
    """
    figure = go.Figure()
    figure.update_layout(
        height=height,
        autosize=True,
        paper_bgcolor=CLEAR,
        plot_bgcolor=CLEAR,
        font={"color": INK, "size": 12},
        margin={"l": 8, "r": 8, "t": 40, "b": 8},
        showlegend=False,
        dragmode=False,
        hovermode="closest",
        hoverlabel={"bgcolor": RAISED, "bordercolor": SOFT, "font": {"color": INK}, "namelength": 0},
        modebar={"bgcolor": CLEAR, "color": SOFT, "activecolor": INK},
        meta={"note": note},
    )
    return figure


def axis(title: str, **given: Any) -> dict[str, Any]:
    """An axis in the page's ink."""
    return {
        "title": {"text": title, "standoff": 8},
        "automargin": True,
        "gridcolor": LINE,
        "zeroline": False,
        "linecolor": SOFT,
        "tickcolor": SOFT,
        "ticks": "outside",
        "showline": True,
        **given,
    }


def colour_scale(name: str) -> list[list[Any]]:
    """A colour map of the figures, for plotly."""
    steps = [index / 10 for index in range(11)]
    return [[step, to_hex(colormaps[name](step))] for step in steps]


def amounts() -> list[list[Any]]:
    """The colours of amounts."""
    return colour_scale(AMOUNT)


def ink(colour: str) -> str:
    """A colour, with the page's ink in place of black."""
    return INK if colour == BLACK else colour


def veil(colour: str, alpha: float) -> str:
    """A colour that lets what is behind it through."""
    red, green, blue = (round(255 * part) for part in to_rgb(colour))
    return f"rgba({red},{green},{blue},{alpha:g})"


def shown(text: str) -> str:
    """Text for plotly, which takes tags and entities for markup."""
    return html.escape(plain(text), quote=False)


def head_text(layer: int, head: int, value: float, n: str, *, full: bool = False) -> str:
    """What is read over a head: "layer 7, head 3: 0.412 (n = 2,048 queries)"."""
    where = f"layer {layer}{' (full attention)' if full else ''}, head {head}"
    return f"{where}: {number(value)} (n = {n})"


def add_band(figure: go.Figure, x: Sequence[Any], low: Any, high: Any, **look: Any) -> None:
    """A band between two lines, of one legend group; `colour` fills it.

    Parameters
    ----------
    figure : Figure
    x : sequence
    low, high : array-like
    **look
        colour, group, and what else both traces have (subplots' row and col).
    """
    colour, group = look.pop("colour"), look.pop("group")
    place = {name: look.pop(name) for name in ("row", "col") if name in look}
    for values, fill in ((low, None), (high, "tonexty")):
        trace = go.Scatter(
            x=list(x),
            y=numbers(values),
            mode="lines",
            line={"width": 0, "color": CLEAR},
            fill=fill,
            fillcolor=colour,
            hoverinfo="skip",
            legendgroup=group,
            name=group,
            **look,
        )
        figure.add_trace(trace, **place)


def block_of(figure: go.Figure) -> Markup:
    """A chart as JSON, {data, layout}, numbers with six significant digits."""
    made = figure.to_plotly_json()
    made["layout"].pop("template", None)
    return json_block(_short({"data": made["data"], "layout": made["layout"]}))


def _short(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _short(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_short(one) for one in value]
    return rounded(value) if isinstance(value, float) else value
