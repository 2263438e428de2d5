"""A flat map of directions, for the eye: near on the map is near in angle, as far as two dimensions can hold it."""

import warnings

import numpy as np
import torch
from numpy.typing import NDArray

from geomprobe.stats.angles import unit

NEIGHBOURS = 15
SEED = 0


def flat_map(vectors: NDArray) -> NDArray[np.float64]:
    """UMAP (McInnes et al. 2018) by cosine, with a fixed seed: (n, 2).

    Parameters
    ----------
    vectors : ndarray (n, d)
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # umap warns on import and of the single thread that a seed means
        from umap import UMAP

        made = UMAP(
            n_neighbors=min(NEIGHBOURS, len(vectors) - 1),
            min_dist=0.9,  # wide, so that words can be written at their places
            spread=1.5,
            metric="cosine",
            random_state=SEED,
            n_jobs=1,
        )
        threads = torch.get_num_threads()
        try:
            return np.asarray(made.fit_transform(unit(vectors)), dtype=np.float64)
        finally:
            torch.set_num_threads(threads)  # numba sets its own number, for the whole process
