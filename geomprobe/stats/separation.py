"""How far cosines within categories stand above those between: AUC, its interval over types, its null."""

from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import rankdata

from geomprobe.stats.pairs import Pairs

Floats = NDArray[np.float64]
AT_A_TIME: Final = 1 << 19  # numbers of a block of draws, for the sake of a CPU's cache


def bootstrap_auc(value: Floats, pairs: Pairs, draws: NDArray[np.float32]) -> Floats:
    """The AUC of each draw of types: (draw,).

    A pair counts as often as its two types together; a type is never paired with itself, however often it was drawn.
    Ties, which real vectors hardly have, count by their order.
    """
    if not np.isfinite(value).all():
        return np.full(len(draws), np.nan)
    order = np.argsort(value, kind="stable")
    within = pairs.within[order]
    weight = torch.from_numpy(np.ascontiguousarray(draws.T))  # (type, draw)
    first, second = (torch.from_numpy(index[order]) for index in (pairs.first, pairs.second))
    at = torch.from_numpy(np.flatnonzero(within))
    step = max(8, AT_A_TIME // len(value))
    out = []
    for start in range(0, weight.shape[1], step):
        part = weight[:, start : start + step].contiguous()
        pair = part.index_select(0, first).mul_(part.index_select(0, second))  # (pair, draw), by ascending value
        inner = pair.index_select(0, at).double()
        pair[at] = 0
        below = pair.cumsum_(0)  # sums of whole numbers far below 2²⁴, so float32 holds them exactly
        above = (inner * below.index_select(0, at)).sum(0)
        out.append(above / (inner.sum(0) * below[-1].double()))
    return torch.cat(out).numpy()


def shuffled_pairs(pairs: Pairs, shuffles: NDArray[np.int64]) -> NDArray[np.int64]:
    """Which pairs are within a category under each reassignment of the categories: (shuffle, pair within), int64.

    Parameters
    ----------
    pairs : Pairs
    shuffles : ndarray (shuffle, type), int64
        Permutations of the types: type s takes the category of the place at which it stands.

    Returns
    -------
    ndarray
        Places in the flattened (type, type) matrix; the same for every value, so made once.
    """
    first, second = pairs.first[pairs.within], pairs.second[pairs.within]
    return shuffles[:, first] * shuffles.shape[1] + shuffles[:, second]


def shuffled_auc(value: Floats, pairs: Pairs, placed: NDArray[np.int64]) -> Floats:
    """The AUC under each reassignment of the categories to the types: (shuffle,).

    Parameters
    ----------
    value : ndarray (pair,)
    pairs : Pairs
    placed : ndarray (shuffle, pair within), int64
        What `shuffled_pairs` gives.
    """
    n_within, n = int(pairs.within.sum()), len(pairs.within)
    if not np.isfinite(value).all():
        return np.full(len(placed), np.nan)
    n_types = int(pairs.second[-1]) + 1
    ranks = np.zeros((n_types, n_types))
    ranks[pairs.first, pairs.second] = rankdata(value)
    ranks += ranks.T
    total = ranks.ravel().take(placed).sum(axis=1)
    return (total - n_within * (n_within + 1) / 2) / (n_within * (n - n_within))


def permutation_p(observed: float, null: Floats) -> float:
    """One-sided p of a statistic that is large where the alternative holds: (1 + #{null ≥ observed})/(1 + n).

    Its smallest attainable value is 1/(1 + n). NaN where the statistic is.
    """
    if not np.isfinite(observed):
        return float("nan")
    return float((1 + (null >= observed).sum()) / (1 + len(null)))
