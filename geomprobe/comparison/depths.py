"""Quantities along the depth: layers meet at equal relative depth, heads by their rank within a layer."""

from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from geomprobe import tables
from geomprobe.comparison.measured import DRAWS, interval
from geomprobe.comparison.quantities import QUANTITIES, Quantity
from geomprobe.comparison.sides import Sides, common_depths, depth
from geomprobe.run.reading import Run
from geomprobe.stats.resampling import Draws

Floats = NDArray[np.float64]

BY_DEPTH: Final = ("quantity", "gauge", "depth", "a", "b", "estimate_a", "estimate_b", "difference", "low", "high")
ALONG: Final = ("first_mass", "sink_rate", "entropy", "logit_sd", "norm_share", "k_log_sd", "tv")


def by_depth(sides: Sides, *, draws: int = DRAWS) -> pd.DataFrame:
    """Differences from the first side along the depth.

    Layer i of L is at (i + ½)/L. The depths are those of the run with the fewest layers; a deeper run's values are
    interpolated between its layers, in every draw of documents alike.

    Returns
    -------
    DataFrame
        quantity, gauge, depth, a, b, estimate_a, estimate_b, difference, low, high, n_documents.
    """
    rows: list[dict[str, Any]] = []
    grid = common_depths(sides)
    for quantity in (one for one in QUANTITIES if one.name in ALONG):
        layered = _of_layers(sides, quantity, draws)
        if layered is None:
            continue
        estimates, drawn, n = layered  # a list by side: (depth,), (depth, draw)
        for side in range(1, sides.n):
            for place, where in enumerate(grid):
                low, high = interval(drawn[side][place] - drawn[0][place], n)
                rows.append(
                    {
                        "quantity": quantity.name,
                        "gauge": quantity.gauge,
                        "depth": float(where),
                        "a": sides.labels[0],
                        "b": sides.labels[side],
                        "estimate_a": float(estimates[0][place]),
                        "estimate_b": float(estimates[side][place]),
                        "difference": float(estimates[side][place] - estimates[0][place]),
                        "low": low,
                        "high": high,
                        "n_documents": n,
                    }
                )
    return pd.DataFrame(rows, columns=[*BY_DEPTH, "n_documents"])


def _of_layers(sides: Sides, quantity: Quantity, draws: int) -> tuple[list[Floats], list[Floats], int] | None:
    """The quantity at the common depths: estimates (depth,) and draws (depth, draw) by side, and how many documents."""
    owned = []
    for side, run in enumerate(sides.runs):
        found = [quantity.pooled(run, [layer]) for layer in tables.layers(run)]
        owned += [(side, one) for one in found if one is not None]
        if any(one is None for one in found):
            return None
    aligned, common = sides.aligned(owned)
    if not common:
        return None
    times, grid = Draws.of(len(common), draws).documents, common_depths(sides)
    estimates, drawn = [], []
    for side, run in enumerate(sides.runs):
        own = [one for (owner, _), one in zip(owned, aligned, strict=True) if owner == side]
        places = depth(run).to_numpy()
        estimates.append(np.interp(grid, places, [one.estimate for one in own]))
        drawn.append(interpolated(grid, places, np.stack([one.weighed(times) for one in own])))
    return estimates, drawn, len(common)


def interpolated(grid: Floats, places: Floats, drawn: Floats) -> Floats:
    """Values (place, draw) between their places, linearly: (grid, draw); beyond the ends, what the end has."""
    right = np.clip(np.searchsorted(places, grid), 1, max(1, len(places) - 1))
    if len(places) == 1:
        return np.repeat(drawn, len(grid), axis=0)
    left = right - 1
    share = np.clip((grid - places[left]) / (places[right] - places[left]), 0, 1)[:, None]
    return (1 - share) * drawn[left] + share * drawn[right]


# ------------------------------------------------------------------ heads
HEADS: Final[dict[str, tuple[str, str, str]]] = {
    "first_mass": ("sinks", "q_head", "attention on position 0"),
    "entropy_no_first": ("logits", "q_head", "entropy without position 0"),
    "tv": ("split", "q_head", "distance from a softmax of cosines"),
}


def by_rank(sides: Sides) -> pd.DataFrame:
    """Quantities of heads, ranked within their layer: heads of two models with one index have nothing in common.

    Returns
    -------
    DataFrame
        quantity, run, layer, depth, rank (from 0, the largest), n_heads, head, value.
    """
    parts = []
    for label, run in zip(sides.labels, sides.runs, strict=True):
        places = depth(run)
        for name, (table, head, _) in HEADS.items():
            if not tables.has(run, table):
                continue
            rows = _heads(run, table)[["layer", head, name]].rename(columns={head: "head", name: "value"})
            rows = rows.assign(
                rank=rows.groupby("layer")["value"].rank(ascending=False, method="first", na_option="bottom") - 1,
                n_heads=rows.groupby("layer")["value"].transform("size"),
                depth=rows["layer"].map(places),
                quantity=name,
                run=label,
            )
            parts.append(rows)
    columns = ["quantity", "run", "layer", "depth", "rank", "n_heads", "head", "value"]
    return pd.concat(parts, ignore_index=True)[columns] if parts else pd.DataFrame(columns=columns)


def _heads(run: Run, table: str) -> pd.DataFrame:
    if table == "logits":
        return tables.final_logits(run)
    return tables.split_rows(run, "raw", "out") if table == "split" else run.tables[table]
