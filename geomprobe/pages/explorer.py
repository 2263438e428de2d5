"""The map of heads: every quantity that a head has, layer × head, to be chosen and read on the page."""

import json
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
from markupsafe import Markup

from geomprobe import tables
from geomprobe.labels import CLASS_ROWS
from geomprobe.pages.chart_style import DIVERGING, amounts, axis, block_of, colour_scale, new_chart
from geomprobe.pages.embedding import json_block, numbers
from geomprobe.pages.head_quantities import AMOUNT, LOG, QUANTITIES, SIGNED, HeadQuantity
from geomprobe.run.reading import Run

MOST_CELLS: Final = 200_000  # of all maps together; what comes after is left out


@dataclass(frozen=True)
class Explorer:
    """The map of heads as a page holds it.

    Attributes
    ----------
    title : str
    names : tuple of str
        The quantities that it has.
    block : Markup
        JSON: {chart, scales, full, quantities: [{name, title, said, of, look, head, layers, heads, classes}]}; a class
        is {name, values, n} with a row a layer, n one number where all heads have the same.
    """

    title: str
    names: tuple[str, ...]
    block: Markup


def explorer(run: Run) -> Explorer | None:
    """The map of a run's heads; None where it has none of the quantities."""
    made: list[dict[str, Any]] = []
    cells = 0
    for quantity in QUANTITIES:
        if not tables.has(run, quantity.table) or (quantity.classed and not tables.of_text(run)):
            continue
        shaped = _quantity(quantity, quantity.rows(run))
        cells += sum(len(one["values"]) * len(shaped["heads"]) for one in shaped["classes"])
        if shaped["classes"] and cells <= MOST_CELLS:
            made.append(shaped)
    if not made:
        return None
    diverging = colour_scale(DIVERGING)
    content = {
        "chart": json.loads(block_of(_chart())),
        "scales": {AMOUNT: amounts(), LOG: diverging, SIGNED: diverging},
        "full": tables.full_layers(run),
        "quantities": made,
    }
    return Explorer(f"Heads of {run.name}", tuple(one["name"] for one in made), json_block(content))


def _chart() -> Any:
    """A heatmap that the page's script fills."""
    figure = new_chart(400)
    figure.add_heatmap(
        hoverinfo="text", hoverongaps=False, xgap=1, ygap=1, colorbar={"thickness": 14, "outlinewidth": 0}
    )
    figure.update_layout(
        xaxis=axis("head", type="category", showgrid=False),
        yaxis=axis("layer", type="category", autorange="reversed", showgrid=False),
    )
    return figure


def _quantity(quantity: HeadQuantity, rows: pd.DataFrame) -> dict[str, Any]:
    layers, heads = sorted(rows["layer"].unique().tolist()), sorted(rows["head"].unique().tolist())
    known = [("", rows)]
    if quantity.classed:
        of_class = dict(list(rows.groupby("token_class", sort=False)))
        known = [(name, of_class[name]) for name in _order() if name in of_class]
    classes = [_matrix(name, own, layers, heads) for name, own in known if own["value"].notna().any()]
    return {
        **{name: getattr(quantity, name) for name in ("name", "title", "said", "of", "look", "head")},
        "layers": layers,
        "heads": heads,
        "classes": classes,
    }


def _order() -> tuple[str, ...]:
    """The classes as they are offered: the pooled function words first."""
    return ("function", *(name for name in CLASS_ROWS if name != "function"))


def _matrix(name: str, rows: pd.DataFrame, layers: list[int], heads: list[int]) -> dict[str, Any]:
    at = np.searchsorted(layers, rows["layer"]), np.searchsorted(heads, rows["head"])
    values, n = (np.full((len(layers), len(heads)), np.nan) for _ in range(2))
    values[at], n[at] = rows["value"], rows["n"]
    counts = np.unique(n[~np.isnan(n)])
    said = int(counts[0]) if len(counts) == 1 else [numbers(row) for row in n]
    return {"name": name, "values": [numbers(row) for row in values], "n": said}
