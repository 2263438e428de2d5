"""Silhouettes of categories under cosine distance, and their null under reassigned categories."""

from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import silhouette_samples

Floats = NDArray[np.float64]
AT_A_TIME: Final = 1 << 18  # numbers of a block of reassignments, for the sake of a CPU's cache


def macro_silhouette(distance: Floats, labels: NDArray) -> float:
    """Mean over categories of the mean silhouette of their types.

    Parameters
    ----------
    distance : ndarray (type, type)
        1 − cosine.
    labels : ndarray (type,), int64
    """
    if not np.isfinite(distance).all():
        return float("nan")
    exact = np.clip(distance, 0, None)
    np.fill_diagonal(exact, 0)
    each = silhouette_samples(exact, labels, metric="precomputed")
    return float(np.mean([each[labels == label].mean() for label in np.unique(labels)]))


def shuffled_silhouettes(distance: Floats, labels: NDArray, shuffles: NDArray[np.int64]) -> Floats:
    """The same under each reassignment of the categories to the types: (shuffle,).

    One product of matrices gives the summed distances of all types to all categories of many reassignments.

    Parameters
    ----------
    distance : ndarray (type, type)
    labels : ndarray (type,), int64
        From 0, every category with two types at least.
    shuffles : ndarray (shuffle, type), int64
        Permutations of the types: type s takes the category of the place at which it stands.
    """
    if not np.isfinite(distance).all():
        return np.full(len(shuffles), np.nan)
    n_types = np.bincount(labels)
    n_categories = len(n_types)
    far = torch.from_numpy(np.clip(distance, 0, None).astype(np.float32))
    far.fill_diagonal_(0)
    sizes = torch.from_numpy(n_types).float()
    step = max(4, AT_A_TIME // (len(far) * n_categories))
    out = []
    for start in range(0, len(shuffles), step):
        given = shuffles[start : start + step]
        placed = np.empty_like(given)  # type given[r, i] takes the category of place i
        np.put_along_axis(placed, given, np.broadcast_to(labels, given.shape), axis=1)
        label = torch.from_numpy(placed)  # (shuffle, type)
        member = torch.nn.functional.one_hot(label, n_categories).float()
        # (type, shuffle · category): one large product is far faster than one a shuffle
        flat = member.permute(1, 0, 2).reshape(len(far), -1)
        summed = (far @ flat).view(len(far), len(label), n_categories)
        own_label = label.T.unsqueeze(-1)  # (type, shuffle, 1)
        own_size = sizes[own_label]
        inner = summed.gather(-1, own_label) / (own_size - 1)
        mean = summed / sizes
        outer = mean.scatter_(-1, own_label, torch.inf).amin(-1, keepdim=True)
        score = (outer - inner) / torch.maximum(outer, inner).clamp(min=1e-30)
        out.append((score / own_size).sum((0, 2)).double() / n_categories)
    return torch.cat(out).numpy()
