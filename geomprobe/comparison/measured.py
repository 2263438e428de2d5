"""A quantity of every side with draws that belong together, and the differences that come of it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import norm, t

from geomprobe.comparison.quantities import Quantity
from geomprobe.comparison.sides import Sides
from geomprobe.stats.resampling import Draws

Floats = NDArray[np.float64]
DRAWS: Final = 2000
LEVEL: Final = 0.05
ROUNDING: Final = 1e-12  # of an estimate, that no difference is made of
LEAST: Final = 5  # documents, or types, below which there is no interval
_ABOUT: Final = ("quantity", "title", "unit", "where", "gauge", "token_class")
DIFFERENCES: Final = (
    *_ABOUT,
    *("a", "b", "estimate_a", "estimate_b", "difference", "low", "high", "effect", "effect_of"),
    *("n_documents", "n_types", "note", "beyond"),
)
VALUES: Final = (*_ABOUT, "run", "estimate", "low", "high", "rank", "n_documents", "n_types")
BY_DOCUMENTS, BY_TYPES = "documents", "types"  # what an effect size is in standard deviations of


@dataclass(frozen=True, eq=False)
class Measured:
    """One quantity at one place of the depth.

    Attributes
    ----------
    name, title, unit, place, gauge, token_class : str
    estimates : ndarray (side,)
    draws : ndarray (side, draw)
        The i-th draw is of the same documents, and types, on every side.
    n_documents, n_types : int
        Behind every side's estimate; 0 where it is not over such.
    spread : ndarray (side,)
        Standard deviation that a difference of that side from the first is held against; NaN where there is none.
    effect : str
        What that is a spread of: documents, or types.
    note : str
        What else a reader should know.
    """

    name: str
    title: str
    unit: str
    place: str
    estimates: Floats
    draws: Floats
    gauge: str = ""
    token_class: str = ""
    n_documents: int = 0
    n_types: int = 0
    spread: Floats | None = None
    effect: str = ""
    note: str = ""

    @property
    def n(self) -> int:
        """Units that are drawn; of documents and types the fewer."""
        counted = [n for n in (self.n_documents, self.n_types) if n]
        return min(counted) if counted else 0

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What tells it apart."""
        return self.name, self.gauge, self.token_class, self.place

    @property
    def told(self) -> dict[str, Any]:
        """What every row about it says, in whichever table."""
        return {
            "quantity": self.name,
            "title": self.title,
            "unit": self.unit,
            "where": self.place,
            "gauge": self.gauge,
            "token_class": self.token_class,
            "n_documents": self.n_documents,
            "n_types": self.n_types,
        }


def of_documents(sides: Sides, quantity: Quantity, place: str, *, draws: int = DRAWS) -> Measured | None:
    """A quantity over the documents that all sides have it for; None where one has none."""
    found = [quantity.pooled(run, sides.layers(index, place)) for index, run in enumerate(sides.runs)]
    known = [one for one in found if one is not None]
    if len(known) < sides.n:
        return None
    aligned, common = sides.aligned(list(enumerate(known)))
    if not common:
        return None
    times = Draws.of(len(common), draws).documents
    single = np.stack([one.weighed(np.eye(len(common))) for one in aligned])  # (side, document)
    away = single - single[0]
    own = quantity.of_tokens and not sides.same_tokens
    return Measured(
        quantity.name,
        quantity.title,
        quantity.unit,
        place,
        np.array([one.estimate for one in aligned]),
        np.stack([one.weighed(times) for one in aligned]),
        gauge=quantity.gauge,
        n_documents=len(common),
        spread=away.std(axis=1, ddof=1) if len(common) > 1 else np.full(sides.n, np.nan),
        effect=BY_DOCUMENTS,
        note="over each model's own tokens" if own else "",
    )


def expanded(n: int, level: float = LEVEL) -> float:
    """The level of a percentile interval of n units that covers like a t interval.

    Percentile intervals are too narrow by the factor √((n − 1)/n) and for want of t's tails: Hesterberg 2015, "What
    teachers should know about the bootstrap", §5.3 (the expanded percentile interval).
    """
    if n < 2:
        return math.nan
    return float(2 * norm.cdf(-math.sqrt(n / (n - 1)) * t.ppf(1 - level / 2, n - 1)))


def interval(draws: Floats, n: int, level: float = LEVEL) -> tuple[float, float]:
    """The expanded percentile interval of a quantity over n units; NaN for fewer than five, or a draw without value."""
    if n < LEAST or not np.isfinite(draws).all():
        return math.nan, math.nan
    own = expanded(n, level)
    low, high = np.quantile(draws, (own / 2, 1 - own / 2))
    return float(low), float(high)


def differences(measured: Sequence[Measured], sides: Sides) -> pd.DataFrame:
    """Each other side less the first, a row a quantity, place and side.

    Columns: quantity, title, unit, where, gauge, token_class, a, b (labels), estimate_a, estimate_b, difference, low,
    high, effect (difference over the spread of documents' differences, or of types), effect_of, n_documents, n_types,
    beyond (whether 0 is outside the band that holds all rows of this side together at 95 %), note.
    """
    rows: list[dict[str, Any]] = []
    for side in range(1, sides.n):
        pairs = [_pair(one, side, sides) for one in measured]
        bound = joint_bound([one.draws[side] - one.draws[0] for one in measured], [one.n for one in measured])
        for one, row in zip(measured, pairs, strict=True):
            rows.append({**row, "beyond": _standardised(one, side) > bound})
    return pd.DataFrame(rows, columns=list(DIFFERENCES))


def _pair(one: Measured, side: int, sides: Sides) -> dict[str, Any]:
    difference = float(one.estimates[side] - one.estimates[0])
    low, high = interval(one.draws[side] - one.draws[0], one.n)
    spread = math.nan if one.spread is None else float(one.spread[side])
    return {
        **one.told,
        "a": sides.labels[0],
        "b": sides.labels[side],
        "estimate_a": float(one.estimates[0]),
        "estimate_b": float(one.estimates[side]),
        "difference": difference,
        "low": low,
        "high": high,
        "effect": difference / spread if spread > 0 else math.nan,
        "effect_of": one.effect,
        "note": one.note,
    }


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a table as dicts."""
    return [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]


def _standardised(one: Measured, side: int) -> float:
    """|difference| in standard errors, as a normal variable has them that is as rare as this t of n − 1.

    0 where nothing differs, NaN where there is no interval.
    """
    drawn = one.draws[side] - one.draws[0]
    if one.n < LEAST or not np.isfinite(drawn).all():
        return math.nan
    difference, error = abs(float(one.estimates[side] - one.estimates[0])), _error(drawn, one.n)
    if difference <= ROUNDING * abs(float(one.estimates[0])):  # sums in another order
        return 0.0
    if not error > 0:
        return math.inf if difference > 0 else 0.0
    return float(norm.isf(t.sf(difference / error, one.n - 1)))


def _error(drawn: Floats, n: int) -> float:
    return float(drawn.std(ddof=0)) * math.sqrt(n / (n - 1))


def joint_bound(drawn: Sequence[Floats], units: Sequence[int], level: float = LEVEL) -> float:
    """How many standard errors from 0 a normal difference must be for all of them together to err by `level`.

    The quantile of the largest |deviation|/standard deviation of each draw over all differences (single-step maxT:
    Westfall & Young 1993, ch. 2). Differences with fewer draws than others are gone through again.

    Parameters
    ----------
    drawn : sequence of ndarray (draw,)
        Differences, drawn together.
    units : sequence of int
        Documents or types behind each.
    """
    used = [one for one, n in zip(drawn, units, strict=True) if n >= LEAST and np.isfinite(one).all() and one.std() > 0]
    if not used:
        return math.inf
    most = max(len(one) for one in used)
    largest = np.max([np.resize(np.abs(one - one.mean()) / one.std(), most) for one in used], axis=0)
    return float(np.quantile(largest, 1 - level))


def values(measured: Sequence[Measured], sides: Sides) -> pd.DataFrame:
    """Each side by itself: a row a quantity, place and side with its own interval, and its rank (1: the largest)."""
    rows = []
    for one in measured:
        rank = pd.Series(one.estimates).rank(ascending=False, method="min")
        for side, label in enumerate(sides.labels):
            low, high = interval(one.draws[side], one.n)
            rows.append(
                {
                    **one.told,
                    "run": label,
                    "estimate": float(one.estimates[side]),
                    "low": low,
                    "high": high,
                    "rank": rank[side],
                }
            )
    return pd.DataFrame(rows, columns=list(VALUES))
