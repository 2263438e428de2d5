"""Intervals and tests over types and documents, and what several of them together may claim."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@lru_cache(maxsize=16)  # the same classes are drawn again for every quantity of theirs
def counts_of_draws(n: int, draws: int, seed: tuple[int, ...]) -> Floats:
    """How often each of n things comes in draws of n with replacement: (draw, thing), not to be written to."""
    rng = np.random.default_rng(seed)
    made = rng.multinomial(n, np.full(n, 1 / n), size=draws).astype(np.float64) if n else np.zeros((draws, 0))
    made.flags.writeable = False
    return made


@dataclass(frozen=True, eq=False)
class Draws:
    """Draws with replacement for a two-way bootstrap, the same for every quantity of a report.

    Attributes
    ----------
    documents : ndarray (draw, document)
        How often each document came.
    seed : int
        Of the draws of types, which depend on how many there are.
    """

    documents: Floats
    seed: int

    @classmethod
    def of(cls, n_documents: int, draws: int, seed: int = 0) -> "Draws":
        """Draws of documents."""
        return cls(counts_of_draws(n_documents, draws, (seed, 1)), seed)

    @property
    def n(self) -> int:
        """How many draws."""
        return len(self.documents)

    def types(self, n: int, group: int) -> Floats:
        """How often each of n types of a group came: (draw, type); groups are drawn apart."""
        return counts_of_draws(n, self.n, (self.seed, 2, group))


def means_of_types(n: Floats, total: Floats, documents: Floats) -> Floats:
    """The mean of each type over its tokens in each draw of documents: (draw, type); NaN where none is left.

    Parameters
    ----------
    n, total : ndarray (type, document)
        Tokens of a type in a document, and the sum of what was measured of them.
    documents : ndarray (draw, document)
    """
    tokens = documents @ n.T
    return (documents @ total.T) / np.where(tokens > 0, tokens, np.nan)


def weighted_means(values: Floats, weights: Floats) -> Floats:
    """Mean over types of each draw: (draw,); a type without a value counts nothing.

    Parameters
    ----------
    values, weights : ndarray (draw, type)
    """
    known = np.isfinite(values)
    weight = np.where(known, weights, 0)
    total = weight.sum(axis=1)
    return (weight * np.where(known, values, 0)).sum(axis=1) / np.where(total > 0, total, np.nan)


def permutation_p(values: Floats, inside: NDArray[np.bool_], permutations: int, seed: int = 0) -> float:
    """Two-sided p of a difference between two groups of types, by reassigning the types to the groups.

    Parameters
    ----------
    values : ndarray (type,)
        One number a type, of both groups; types are the units, not their tokens.
    inside : ndarray (type,), bool
        Which types are of the first group.
    permutations : int
        B; p = (1 + #{|difference| as large})/(1 + B), so that 1/(1 + B) is the smallest that can come.

    Returns
    -------
    float
        NaN where a group is empty.
    """
    n, total = int(inside.sum()), len(values)
    if not 0 < n < total:
        return float("nan")
    rng = np.random.default_rng([seed, 3])
    shuffled = rng.permuted(np.broadcast_to(values, (permutations, total)), axis=1)
    sums = shuffled[:, :n].sum(axis=1)
    whole = values.sum()
    null = np.abs(sums / n - (whole - sums) / (total - n))
    observed = abs(values[inside].mean() - values[~inside].mean())
    # What only rounding tells apart from the observed difference is as large as it.
    return float((1 + (null >= observed * (1 - 1e-12)).sum()) / (1 + permutations))


def share_beyond(draws: Floats, bound: float, *, above: bool) -> float:
    """One-sided p that a quantity lies above (or below) a bound: (1 + draws on the wrong side)/(1 + draws).

    Draws without a value count as on the wrong side.
    """
    right = draws > bound if above else draws < bound
    return float((1 + (~right).sum()) / (1 + len(draws)))


def interval(draws: Floats, level: float) -> tuple[float, float]:
    """The percentile interval without `level` of the draws, half of that at either end; NaN where one has no value."""
    if not len(draws) or not np.isfinite(draws).all():
        return float("nan"), float("nan")
    low, high = np.quantile(draws, (level / 2, 1 - level / 2))
    return float(low), float(high)


def holm_levels(p: Floats, level: float) -> Floats:
    """The level at which each of several endpoints is decided, by Holm's step-down procedure (Holm 1979).

    The smallest p is held against level/m, the next against level/(m − 1) and so on; where one fails, all that follow
    keep its level.

    Parameters
    ----------
    p : ndarray (endpoint,)
    level : float
        That all of them together may err by.
    """
    m = len(p)
    levels = np.empty(m)
    stopped = None
    for place, index in enumerate(np.argsort(p, kind="stable")):
        own = level / (m - place)
        if stopped is None and p[index] > own:
            stopped = own
        levels[index] = own if stopped is None else stopped
    return levels


def sign_test(positive: int, n: int) -> float:
    """Exact two-sided p of a count of signs; its smallest attainable value is 2^(1 − n)."""
    from scipy.stats import binomtest  # takes longer to import than all else that a page needs

    return float(binomtest(positive, n).pvalue) if n else float("nan")
