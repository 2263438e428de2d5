"""How much longer the keys of a type are than its frequency and its places would have them: norm_lift."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Lift:
    """What the fit says of types.

    Attributes
    ----------
    value : ndarray (series, type), float64
        Mean log length less its fitted value; NaN for a type without keys, or where nothing could be fitted.
    slope : ndarray (series,), float64
        Of the log length on Zipf frequency.
    extrapolated : ndarray (type,), bool
        Whether the type is more frequent than any content type of the fit.
    """

    value: Floats
    slope: Floats
    extrapolated: NDArray[np.bool_]


def norm_lift(
    log_length: Floats,
    zipf: Floats,
    places: Floats,
    content: NDArray[np.bool_],
    weight: Floats | None = None,
) -> Lift:
    """Mean log key length of each type less what content types of its frequency and places have.

    The fit is a least-squares one over content types, each counted once: on Zipf frequency and on the shares of a
    type's tokens in buckets of positions. A type without a frequency (punctuation, line breaks) is held against a fit
    on positions alone. A fit with no more types than it has columns, or of types that are all as frequent, tells
    nothing of others and gives no number.

    Parameters
    ----------
    log_length : ndarray (series, type)
        Mean over a type's tokens; NaN for a type without any.
    zipf : ndarray (type,)
        NaN where there is none.
    places : ndarray (type, bucket)
        Tokens of the type in each bucket of positions.
    content : ndarray (type,), bool
    weight : ndarray (type,), optional
        How often each type counts in the fit; once by default.
    """
    there = np.isfinite(log_length).all(axis=0) & (places.sum(axis=1) > 0)
    counted = np.ones(len(zipf)) if weight is None else weight
    shares = places / np.maximum(places.sum(axis=1, keepdims=True), 1)
    shares = shares[:, 1:]  # they sum to 1: the first bucket is the constant's
    one = np.ones((len(zipf), 1))
    known = np.isfinite(zipf)
    value = np.full(log_length.shape, np.nan)
    slope = np.full(len(log_length), np.nan)
    inside = content & there & (counted > 0)
    for of, columns in (
        (known, np.hstack([one, np.nan_to_num(zipf)[:, None], shares])),
        (~known, np.hstack([one, shares])),
    ):
        used = inside & (known if of is known else True)
        asked = of & there
        if not used.any() or not asked.any():
            continue
        root = np.sqrt(counted[used])[:, None]
        found, _, rank, _ = np.linalg.lstsq(root * columns[used], root * log_length[:, used].T, rcond=1e-10)
        if used.sum() <= rank or (of is known and np.ptp(zipf[used]) == 0):
            continue
        value[:, asked] = log_length[:, asked] - (columns[asked] @ found).T
        if of is known:
            slope = found[1]
    fitted = inside & known
    highest = zipf[fitted].max() if fitted.any() else np.nan
    return Lift(value, slope, np.nan_to_num(zipf, nan=-np.inf) > highest)


def lift_draws(log_length: Floats, zipf: Floats, places: Floats, content: NDArray[np.bool_], weight: Floats) -> Floats:
    """`norm_lift` of many draws at once, for types that all have a frequency: (draw, type).

    Parameters
    ----------
    log_length : ndarray (draw, type)
        NaN for a type of which a draw has no token.
    zipf : ndarray (type,)
        Finite.
    places : ndarray (draw, type, bucket)
    content : ndarray (type,), bool
    weight : ndarray (draw, type)
        How often each type counts in the fit.
    """
    tokens = places.sum(axis=-1, keepdims=True)
    shares = (places / np.maximum(tokens, 1))[..., 1:]
    there = np.isfinite(log_length)
    one = np.ones((*log_length.shape, 1))
    columns = np.concatenate([one, np.broadcast_to(zipf[:, None], one.shape), shares], axis=-1)  # (draw, type, column)
    counted = np.where(there & content, weight, 0)
    y = np.where(there, log_length, 0)
    weighted = columns * counted[..., None]
    square = weighted.transpose(0, 2, 1) @ columns
    side = weighted.transpose(0, 2, 1) @ y[..., None]
    found = np.linalg.pinv(square, rcond=1e-10, hermitian=True) @ side  # a bucket that no type has gets no weight
    return np.where(there, y - (columns @ found)[..., 0], np.nan)
