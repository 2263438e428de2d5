"""Nearest neighbours by cosine: who they are, whether they last, and who is everybody's neighbour."""

import numpy as np
from numpy.typing import NDArray
from scipy.stats import skew, spearmanr

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def neighbours(similarity: Floats, k: int) -> Ints:
    """The k most similar others of each row of a square matrix, most similar first: (row, k).

    Ties fall to the lower index, so that the answer does not depend on the machine.
    """
    others = similarity.copy()
    np.fill_diagonal(others, -np.inf)
    return np.argsort(-others, axis=1, kind="stable")[:, :k]


def own_ranks(similarity: Floats) -> Floats:
    """Where each row's own column stands among all columns, 1 the most similar, ties counted half: (row,)."""
    own = np.diagonal(similarity)[:, None]
    return 1 + (similarity > own).sum(axis=1) + ((similarity == own).sum(axis=1) - 1) / 2


def jaccard(a: Ints, b: Ints) -> Floats:
    """Overlap of two sets of neighbours, row by row: |a ∩ b| / |a ∪ b|."""
    common = (a[:, :, None] == b[:, None, :]).sum(axis=(1, 2))
    return common / (a.shape[1] + b.shape[1] - common)


def share_found(near: Ints, related: NDArray[np.bool_]) -> Floats:
    """Of the related types that could be among the neighbours, the share that is: (row,).

    Parameters
    ----------
    near : ndarray (row, k), int64
    related : ndarray (row, row), bool
        False on the diagonal.

    Returns
    -------
    ndarray
        Related neighbours over the smaller of k and the related types there are; NaN where there are none.
    """
    found = np.take_along_axis(related, near, axis=1).sum(axis=1)
    there = np.minimum(related.sum(axis=1), near.shape[1])
    return np.where(there > 0, found / np.maximum(there, 1), np.nan)


def hub_counts(near: Ints) -> Ints:
    """How often each type is a neighbour of another: (type,)."""
    return np.bincount(near.ravel(), minlength=len(near))


def hub_skew(counts: Ints) -> float:
    """Skewness of the occurrence as a neighbour: 0 where all are alike, large where a few are everybody's."""
    return float(skew(counts)) if counts.std() > 0 else 0.0


def rank_correlation(a: Floats, b: Floats) -> float:
    """Spearman's ρ over the entries that both have; NaN for fewer than three, or where one does not vary."""
    both = np.isfinite(a) & np.isfinite(b)
    x, y = a[both], b[both]
    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan")
    return float(spearmanr(x, y).statistic)
