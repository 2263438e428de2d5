"""Do meanings sit in tight, clean clusters of direction? Categories of nouns, one centred vector a noun."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from geomprobe.corpus.contexts import CLUSTER_CONTEXTS, Contexts
from geomprobe.errors import CorpusError
from geomprobe.labels import ALL_HEADS
from geomprobe.probes.typed import TYPE_PROBES, Cell, TypeProbe
from geomprobe.stats.angles import cosines, raw_type_vectors, type_vectors
from geomprobe.stats.concentration import anisotropies, kappa
from geomprobe.stats.dimension import intrinsic_dim, intrinsic_null, participation_null, participation_ratio
from geomprobe.stats.nearest import neighbours
from geomprobe.stats.pairs import Pairs, auc, draws_of_types
from geomprobe.stats.separation import bootstrap_auc, permutation_p, shuffled_auc, shuffled_pairs
from geomprobe.stats.silhouette import macro_silhouette, shuffled_silhouettes

LEAST_CATEGORIES = 3
LEAST_WORDS = 4  # of a category, else it is left out
_MEANS = (
    *("auc", "auc_shuffled", "cosine_gap", "silhouette", "silhouette_z", "kappa", "knn_purity", "chance"),
    *("anisotropy", "anisotropy_standardised", "anisotropy_abtt", "participation_ratio", "participation_ratio_null"),
    *("intrinsic_dim", "intrinsic_dim_null"),
)


@dataclass(frozen=True, eq=False)
class _Frame:
    """What all cells share: the categories, the draws of types, the reassignments."""

    labels: NDArray[np.int64]
    pairs: Pairs
    draws: NDArray[np.float32]
    shuffles: NDArray[np.int64]
    placed: NDArray[np.int64]


@TYPE_PROBES.register("clusters")
@dataclass(frozen=True)
class Clusters(TypeProbe):
    """The table `clusters` (docs/schema.md).

    Attributes
    ----------
    n_contexts : int
        Of each noun.
    permutations : int
        Reassignments of the categories, for the nulls of AUC and silhouette.
    draws : int
        Draws of nouns with replacement, for the interval of the AUC.
    n_neighbours : int
        Of knn_purity.
    seed : int
    """

    n_contexts: int = CLUSTER_CONTEXTS
    permutations: int = 999
    draws: int = 200
    n_neighbours: int = 5
    seed: int = 0

    def choose(self, contexts: Contexts) -> list[int]:
        """The nouns of every category that has four of them."""
        sizes = Counter(contexts.types[index].category for index in contexts.labelled)
        kept = {category for category, n in sizes.items() if n >= LEAST_WORDS}
        if len(kept) < LEAST_CATEGORIES:
            raise CorpusError(
                f"clusters needs {LEAST_CATEGORIES} categories of {LEAST_WORDS} words that occur "
                f"{self.n_contexts} times in the text and are one token each; there are {len(kept)}. Give more text "
                "with --text, other words with --categories, or leave clusters out with --probes."
            )
        return [index for index in contexts.labelled if contexts.types[index].category in kept]

    def measure(self, cells: Iterable[Cell], contexts: Contexts, chosen: list[int]) -> dict[str, pd.DataFrame]:
        """One row a head and one a layer (head −1): means over its heads, the interval of that mean."""
        frame = self._frame(np.array([contexts.types[index].category for index in chosen], dtype=object))
        rows: list[dict[str, Any]] = []
        bootstraps: dict[tuple[int, str, str], list[NDArray]] = {}
        for cell in cells:
            row, drawn = self._row(cell, frame)
            rows.append(row)
            if cell.space == "content":
                bootstraps.setdefault((cell.layer, cell.vector, cell.gauge), []).append(drawn)
        table = pd.DataFrame(rows)
        layers = self._layers(table, bootstraps)
        return {"clusters": pd.concat([table, layers], ignore_index=True) if len(layers) else table}

    def _frame(self, categories: NDArray[np.object_]) -> _Frame:
        labels = np.unique(categories, return_inverse=True)[1]
        rng = np.random.default_rng([self.seed, 6])
        pairs, draws = Pairs.of(labels), draws_of_types(len(labels), self.draws, rng)
        shuffles = np.stack([rng.permutation(len(labels)) for _ in range(self.permutations)])
        return _Frame(labels, pairs, draws, shuffles, shuffled_pairs(pairs, shuffles))

    def _row(self, cell: Cell, frame: _Frame) -> tuple[dict[str, Any], NDArray]:
        vectors, raw = type_vectors(cell.x), raw_type_vectors(cell.x)
        similar = cosines(vectors)
        value = frame.pairs.values(similar)
        n, width = vectors.shape
        drawn = bootstrap_auc(value, frame.pairs, frame.draws)
        low, high = np.quantile(drawn, (0.025, 0.975))
        found = auc(value, frame.pairs.within)
        null = shuffled_auc(value, frame.pairs, frame.placed)
        shape = macro_silhouette(1 - similar, frame.labels)
        shape_null = shuffled_silhouettes(1 - similar, frame.labels, frame.shuffles)
        near = neighbours(similar, self.n_neighbours)
        sizes = np.bincount(frame.labels)[frame.labels]
        row = {
            **cell.key,
            "auc": found,
            "auc_low": float(low),
            "auc_high": float(high),
            "auc_shuffled": float(null.mean()),
            "auc_p": permutation_p(found, null),
            "cosine_gap": float(value[frame.pairs.within].mean() - value[~frame.pairs.within].mean()),
            "silhouette": shape,
            "silhouette_z": float((shape - shape_null.mean()) / shape_null.std()),
            "silhouette_p": permutation_p(shape, shape_null),
            "kappa": kappa(vectors, frame.labels),
            "knn_purity": float((frame.labels[near] == frame.labels[:, None]).mean()) if np.isfinite(found) else np.nan,
            "chance": float(((sizes - 1) / (n - 1)).mean()),
            **anisotropies(raw),
            "participation_ratio": participation_ratio(vectors),
            "participation_ratio_null": participation_null(n, width),
            "intrinsic_dim": intrinsic_dim(vectors),
            "intrinsic_dim_null": intrinsic_null(n, width),
            "n_types": n,
            "n_categories": len(np.unique(frame.labels)),
            "m": cell.x.shape[1],
        }
        return row, drawn

    def _layers(self, table: pd.DataFrame, bootstraps: dict[tuple[int, str, str], list[NDArray]]) -> pd.DataFrame:
        """The mean over the heads of each layer: nouns are drawn alike in all heads, so its interval holds together."""
        rows = []
        content = table[table["space"] == "content"]
        for (layer, vector, gauge), drawn in bootstraps.items():
            own = (content["layer"] == layer) & (content["vector"] == vector) & (content["gauge"] == gauge)
            heads = content[own]
            alive = [one for one in drawn if np.isfinite(one).all()]  # the mean, too, is over heads that have a value
            low, high = np.quantile(np.mean(alive, axis=0), (0.025, 0.975)) if alive else (np.nan, np.nan)
            first = heads.iloc[0]
            rows.append(
                {
                    **first[["layer", "vector", "space", "gauge", "n_types", "n_categories", "m"]].to_dict(),
                    "head": ALL_HEADS,
                    **heads[list(_MEANS)].mean().to_dict(),
                    "auc_low": float(low),
                    "auc_high": float(high),
                }
            )
        return pd.DataFrame(rows, columns=list(table.columns))
