"""Pairs of types, and how often two within a category are nearer than two of different ones. Needs no torch."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

Floats = NDArray[np.float64]
AT_A_TIME = 1 << 21  # numbers of a block of draws


@dataclass(frozen=True, eq=False)
class Pairs:
    """All pairs of different types.

    Attributes
    ----------
    first, second : ndarray (pair,), int64
        Indices of the two types.
    within : ndarray (pair,), bool
        Whether both are of one category.
    """

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    within: NDArray[np.bool_]

    @classmethod
    def of(cls, labels: NDArray) -> "Pairs":
        """The pairs of types with these categories (type,)."""
        first, second = np.triu_indices(len(labels), 1)
        return cls(first, second, labels[first] == labels[second])

    def values(self, matrix: NDArray) -> Floats:
        """The entries of a (type, type) matrix, pair by pair."""
        return matrix[self.first, self.second]


def auc(value: Floats, within: NDArray[np.bool_]) -> float:
    """P(a value within > a value between), ties counted half: the Mann–Whitney statistic over its maximum.

    NaN where either kind is missing or a value is NaN.
    """
    n_within = int(within.sum())
    n_between = len(within) - n_within
    if not n_within or not n_between or not np.isfinite(value).all():
        return float("nan")
    ranks = rankdata(value)
    return float((ranks[within].sum() - n_within * (n_within + 1) / 2) / (n_within * n_between))


def draws_of_types(n: int, n_draws: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """How often each type comes in draws of n types with replacement: (draw, type)."""
    return rng.multinomial(n, np.full(n, 1 / n), size=n_draws).astype(np.float32)


def paired_auc(value: Floats, pairs: Pairs, draws: NDArray[np.float32]) -> Floats:
    """The AUC of each draw of types: (draw,). What `separation.bootstrap_auc` gives, without torch.

    A pair counts as often as its two types together; a type is never paired with itself, however often it was drawn.

    Parameters
    ----------
    value : ndarray (pair,)
    pairs : Pairs
    draws : ndarray (draw, type), float32
        How often each type comes; the same draws for another model make differences of AUC paired.
    """
    if not np.isfinite(value).all():
        return np.full(len(draws), np.nan)
    order = np.argsort(value, kind="stable")
    within, first, second = pairs.within[order], pairs.first[order], pairs.second[order]
    step = max(1, AT_A_TIME // len(value))
    made = []
    for start in range(0, len(draws), step):
        part = draws[start : start + step]
        pair = part[:, first] * part[:, second]  # (draw, pair), by ascending value
        inner = pair[:, within].astype(np.float64)
        pair[:, within] = 0
        below = np.cumsum(pair, axis=1, dtype=np.float64)
        total = inner.sum(axis=1) * below[:, -1]
        made.append((inner * below[:, within]).sum(axis=1) / np.where(total > 0, total, np.nan))
    return np.concatenate(made)
