"""How tightly directions bunch: the concentration κ of categories, and anisotropy in three forms."""

import numpy as np
from numpy.typing import NDArray

from geomprobe.stats.angles import mean_cosine

Floats = NDArray[np.float64]


def kappa(vectors: NDArray, labels: NDArray) -> float:
    """Concentration of a von Mises–Fisher distribution, one value for all categories.

    κ = R̄(d − R̄²)/(1 − R̄²) (Banerjee et al. 2005), from R̄² without its bias, (n·R̄² − 1)/(n − 1), averaged over the
    categories before anything is clipped: R̄² of a single small category scatters around its true value, and what
    clips it first has a bias of its own.

    Parameters
    ----------
    vectors : ndarray (type, d)
    labels : ndarray (type,), int64
        The corrected R̄² has the same expectation whatever the size of its category.
    """
    width = vectors.shape[1]
    squares = [mean_cosine(vectors[labels == label]) for label in np.unique(labels)]
    square = float(np.mean(squares))
    if not np.isfinite(square) or square >= 1:
        return float("nan")
    square = max(0.0, square)
    return float(np.sqrt(square) * (width - square) / (1 - square))


def standardised(x: NDArray) -> Floats:
    """Each channel of `x` (n, d) less its mean, over its standard deviation; channels that do not vary are left out."""
    wide = np.asarray(x, dtype=np.float64)
    spread = wide.std(axis=0)
    alive = spread > 0
    return (wide[:, alive] - wide[:, alive].mean(axis=0)) / spread[alive]


def without_top(x: NDArray) -> Floats:
    """`x` (n, d) less its mean and its d/100 (at least one) first principal components (Mu & Viswanath 2018)."""
    wide = np.asarray(x, dtype=np.float64)
    shifted = wide - wide.mean(axis=0)
    top = max(1, wide.shape[1] // 100)
    _, _, axes = np.linalg.svd(shifted, full_matrices=False)
    lead = axes[:top]
    return shifted - shifted @ lead.T @ lead


def anisotropies(x: NDArray) -> dict[str, float]:
    """Mean cosine of two types: as they are, with channels standardised, without mean and top components.

    Parameters
    ----------
    x : ndarray (type, d)
        Uncentred.
    """
    if not np.isfinite(x).all():
        return dict.fromkeys(("anisotropy", "anisotropy_standardised", "anisotropy_abtt"), float("nan"))
    return {
        "anisotropy": mean_cosine(x),
        "anisotropy_standardised": mean_cosine(standardised(x)),
        "anisotropy_abtt": mean_cosine(without_top(x)),
    }
