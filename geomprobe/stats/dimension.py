"""How many dimensions a cloud of types fills, beside what a round cloud of as many points would show."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from geomprobe.stats.angles import unit

NULL_DRAWS = 5


def participation_ratio(x: NDArray) -> float:
    """(Σλ)²/Σλ² over the eigenvalues of the covariance of `x` (n, d)."""
    wide = np.asarray(x, dtype=np.float64)
    if not np.isfinite(wide).all():
        return float("nan")
    shifted = wide - wide.mean(axis=0)
    # Through the smaller of the two products, which has the same eigenvalues apart from zeros.
    product = shifted.T @ shifted if shifted.shape[0] > shifted.shape[1] else shifted @ shifted.T
    total = float(np.trace(product))
    return total**2 / float((product**2).sum()) if total > 0 else float("nan")


def participation_null(n: int, width: int) -> float:
    """What n points of a round Gaussian show instead of `width`: d/(1 + d/n)."""
    return width / (1 + width / n)


def intrinsic_dim(x: NDArray) -> float:
    """TwoNN (Facco et al. 2017) of the directions of `x` (n, d), the largest tenth of the ratios left out."""
    from skdim.id import TwoNN  # takes seconds to import

    points = unit(x)
    if not np.isfinite(points).all() or len(np.unique(points, axis=0)) < len(points):
        return float("nan")  # two types at one place have no ratio of distances
    return float(TwoNN(discard_fraction=0.1).fit(points).dimension_)


@lru_cache
def intrinsic_null(n: int, width: int) -> float:
    """The same of n directions drawn evenly in `width` dimensions, mean of five draws with a fixed seed."""
    rng = np.random.default_rng(0)
    return float(np.mean([intrinsic_dim(rng.normal(size=(n, width))) for _ in range(NULL_DRAWS)]))
