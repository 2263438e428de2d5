"""Histograms over fixed bins, and the quantiles that they hold."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Bins:
    """Equal bins of a scale (the value itself, or its log2), the same in every run so that runs merge.

    Attributes
    ----------
    low, high : float
        Ends of the scale; what lies outside is counted in the end bins.
    per_unit : int
        Bins a unit of the scale.
    """

    low: float
    high: float
    per_unit: int

    @property
    def count(self) -> int:
        """Number of bins."""
        return round((self.high - self.low) * self.per_unit)

    @property
    def edges(self) -> NDArray[np.float64]:
        """(count + 1,) edges on the scale."""
        return self.low + np.arange(self.count + 1) / self.per_unit

    @property
    def centres(self) -> NDArray[np.float64]:
        """(count,) centres on the scale."""
        return self.low + (np.arange(self.count) + 0.5) / self.per_unit


def quantile_bins(counts: NDArray[np.int64], probability: float) -> NDArray[np.int64]:
    """The bin that holds the ⌈p·n⌉-th smallest value (Hyndman and Fan's definition 1), along the last axis.

    Parameters
    ----------
    counts : ndarray (..., bin), int64
    probability : float in (0, 1)

    Returns
    -------
    ndarray (...), int64
        −1 where nothing was counted.
    """
    total = counts.sum(-1)
    # p·n may come out a hair above a whole number (.95 · 20 = 19.000000000000004 in other orders); allow for it.
    rank = np.maximum(np.ceil(probability * total - 1e-9), 1)
    found = (np.cumsum(counts, axis=-1) >= rank[..., None]).argmax(-1)
    return np.where(total > 0, found, -1)
