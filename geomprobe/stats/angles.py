"""Directions of types: one centred vector a type, from equally many contexts of each."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def unit(x: NDArray) -> Floats:
    """`x` (…, d) at length 1; a vector of length 0 becomes NaN, as it has no direction."""
    wide = np.asarray(x, dtype=np.float64)
    length = np.linalg.norm(wide, axis=-1, keepdims=True)
    return wide / np.where(length > 0, length, np.nan)


def centred(x: NDArray) -> Floats:
    """Every context's vector seen from the centre of all types, at length 1.

    Parameters
    ----------
    x : ndarray (type, context, d)
        The contexts are equally many for each type: else the noise of a mean would depend on the type.

    Returns
    -------
    ndarray (type, context, d), float64
        The centre is the mean over types of the means over their contexts.
    """
    wide = np.asarray(x, dtype=np.float64)
    return unit(wide - wide.mean(axis=(0, 1)))


def type_vectors(x: NDArray) -> Floats:
    """The centred vector of each type: the mean of its contexts' centred vectors, (type, d)."""
    return centred(x).mean(axis=1)


def raw_type_vectors(x: NDArray) -> Floats:
    """The mean of each type's vectors as they are, uncentred: (type, d)."""
    return np.asarray(x, dtype=np.float64).mean(axis=1)


def cosines(a: NDArray, b: NDArray | None = None) -> Floats:
    """Cosine of every row of `a` with every row of `b` (or of `a`): (row of a, row of b)."""
    left = unit(a)
    return left @ (left if b is None else unit(b)).T


def mean_cosine(x: NDArray) -> float:
    """Mean cosine of two different rows of `x` (n, d): (n·R̄² − 1)/(n − 1), R̄ the length of the mean direction.

    Without the correction R̄² of n random directions would be 1/n, not 0. NaN for fewer than two rows.
    """
    n = len(x)
    if n < 2:
        return float("nan")
    square = float((unit(x).mean(axis=0) ** 2).sum())
    return (n * square - 1) / (n - 1)
