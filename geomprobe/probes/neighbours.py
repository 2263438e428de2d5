"""Do rare words have sensible neighbours? Words of every frequency, each seen in equally many contexts."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from geomprobe.corpus.contexts import BANDS, CONTRAST_CONTEXTS, Contexts, WordType
from geomprobe.corpus.reference import similarity
from geomprobe.errors import CorpusError
from geomprobe.labels import RAW
from geomprobe.probes.typed import TYPE_PROBES, Cell, TypeProbe
from geomprobe.stats.angles import centred, cosines
from geomprobe.stats.nearest import (
    hub_counts,
    hub_skew,
    jaccard,
    neighbours,
    own_ranks,
    rank_correlation,
    share_found,
)

LEAST_TYPES = 50
ALL_BANDS = -1
PREFIX = 4  # letters that words of one family share at least, and two thirds of the longer word
_BY_TYPE = (
    *("self_retrieval_mrr", "self_retrieval_hit1", "stability", "purity_category", "purity_family"),
    *("reference_rho", "reference_overlap", "rare_neighbour_share"),
)


def same_family(a: str, b: str) -> bool:
    """Whether two words look like forms of one: a shared beginning of four letters and two thirds of the longer."""
    common = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        common += 1
    return common >= max(PREFIX, -(-2 * max(len(a), len(b)) // 3))


@TYPE_PROBES.register("neighbours")
@dataclass(frozen=True)
class Neighbours(TypeProbe):
    """The table `neighbours` (docs/schema.md).

    Attributes
    ----------
    n_contexts : int
        Of each word; the first half of them against the second for self_retrieval and stability.
    n_neighbours : int
    reference : str
        Of meaning (corpus.reference.similarity); empty without one.
    """

    n_contexts: int = CONTRAST_CONTEXTS
    n_neighbours: int = 10
    reference: str = ""

    def choose(self, contexts: Contexts) -> list[int]:
        """The words of the frequency contrasts."""
        chosen = contexts.contrasted
        if len(chosen) < LEAST_TYPES:
            raise CorpusError(
                f"neighbours needs {LEAST_TYPES} words that occur {self.n_contexts} times in the text and are one "
                f"token each; there are {len(chosen)}. Give more text with --text, or leave neighbours out with "
                "--probes."
            )
        if self.reference:
            _meaning(self.reference, tuple(contexts.types[index].word for index in chosen))  # an error here, not later
        return chosen

    def measure(self, cells: Iterable[Cell], contexts: Contexts, chosen: list[int]) -> dict[str, pd.DataFrame]:
        """Rows by head, gauge and band; band −1 is all words.

        `raw_overlap` is asked of cells of the balanced gauge, each behind that of the raw one.
        """
        kinds = [contexts.types[index] for index in chosen]
        frame = _Frame.of(kinds, self)
        raw: dict[tuple[str, int, int], NDArray] = {}
        rows = [row for cell in cells for row in self._rows(cell, frame, raw)]
        return {"neighbours": pd.DataFrame(rows)}

    def _rows(self, cell: Cell, frame: "_Frame", raw: dict[tuple[str, int, int], NDArray]) -> list[dict[str, Any]]:
        seen = centred(cell.x)  # (type, context, d)
        if not np.isfinite(seen).all():
            return []  # a head that puts out nothing for a word has no direction there
        half = seen.shape[1] // 2
        first, second, whole = (part.mean(axis=1) for part in (seen[:, :half], seen[:, half:], seen))
        k = self.n_neighbours
        similar = cosines(whole)
        near = neighbours(similar, k)
        across = cosines(first, second)
        ranks = np.stack([own_ranks(across), own_ranks(across.T)])  # (direction, type)
        hubs = hub_counts(near)
        by_type = {
            "self_retrieval_mrr": (1 / ranks).mean(axis=0),
            "self_retrieval_hit1": (ranks == 1).mean(axis=0),
            "stability": jaccard(neighbours(cosines(first), k), neighbours(cosines(second), k)),
            "purity_category": share_found(near, frame.category),
            "purity_family": share_found(near, frame.family),
            **_against_reference(similar, near, frame),
            "rare_neighbour_share": frame.frequent[near].mean(axis=1),
        }
        overlap = np.full(len(near), np.nan)
        if cell.gauge == RAW:
            raw[cell.vector, cell.layer, cell.head] = near
        else:
            overlap = jaccard(near, raw[cell.vector, cell.layer, cell.head])
        neighbour_zipf = frame.zipf[near].mean(axis=1)
        rows = []
        for band in (ALL_BANDS, *range(BANDS)):
            inside = np.ones(len(frame.band), dtype=bool) if band == ALL_BANDS else frame.band == band
            if not inside.any():
                continue
            row = {
                **cell.key,
                "frequency_band": band,
                "n_types": int(inside.sum()),
                "m": cell.x.shape[1],
                **{name: _mean(by_type[name][inside]) for name in _BY_TYPE},
                "zipf_rho": rank_correlation(frame.zipf[inside], neighbour_zipf[inside]),
                "hub_rho": rank_correlation(frame.zipf[inside], hubs[inside].astype(float)),
                "hub_skew": hub_skew(hubs) if band == ALL_BANDS else float("nan"),
                "hub_max": int(hubs[inside].max()),
                "raw_overlap": _mean(overlap[inside]),
            }
            rows.append(row)
        return rows


@dataclass(frozen=True, eq=False)
class _Frame:
    """What all cells share of the words.

    Attributes
    ----------
    band, zipf : ndarray (type,)
    frequent : ndarray (type,), float64
        1 above the median count.
    category, family : ndarray (type, type), bool
        Whether two words belong together.
    reference : ndarray (type, type) or None
        Similarity of meaning, NaN where it is not known; −inf on no diagonal.
    """

    band: NDArray[np.int64]
    zipf: NDArray[np.float64]
    frequent: NDArray[np.float64]
    category: NDArray[np.bool_]
    family: NDArray[np.bool_]
    reference: NDArray[np.float64] | None

    @classmethod
    def of(cls, kinds: list[WordType], probe: Neighbours) -> "_Frame":
        counts = np.array([kind.count for kind in kinds])
        categories = np.array([kind.category for kind in kinds], dtype=object)
        same = (categories[:, None] == categories[None, :]) & (categories != "")[:, None]
        family = np.array([[same_family(a.word, b.word) for b in kinds] for a in kinds])
        for matrix in (same, family):
            np.fill_diagonal(matrix, val=False)
        return cls(
            band=np.array([kind.band for kind in kinds]),
            zipf=np.array([kind.zipf for kind in kinds]),
            frequent=(counts > np.median(counts)).astype(float),
            category=same,
            family=family,
            reference=_meaning(probe.reference, tuple(kind.word for kind in kinds)) if probe.reference else None,
        )


def _meaning(reference: str, words: tuple[str, ...]) -> NDArray[np.float64]:
    file = Path(reference)
    return _similarity(reference, words, file.stat().st_mtime_ns if file.is_file() else 0)


@lru_cache(maxsize=1)
def _similarity(reference: str, words: tuple[str, ...], _stamp: int) -> NDArray[np.float64]:
    """Asked for twice, before the pass and behind it; the stamp tells a file that was written anew."""
    return similarity(reference, words)


def _against_reference(similar: NDArray, near: NDArray, frame: _Frame) -> dict[str, NDArray]:
    """By type, Spearman's ρ with the reference over all other words, and the overlap of the neighbours."""
    n, k = near.shape
    if frame.reference is None:
        return {name: np.full(n, np.nan) for name in ("reference_rho", "reference_overlap")}
    known = np.isfinite(np.diagonal(frame.reference))
    at = np.flatnonzero(known)
    rho, overlap = np.full(n, np.nan), np.full(n, np.nan)
    there = frame.reference[np.ix_(at, at)]
    here = similar[np.ix_(at, at)]
    theirs, ours = neighbours(there, k), neighbours(here, k)
    if len(at) > k + 1:  # else every other word is a neighbour
        overlap[at] = (theirs[:, :, None] == ours[:, None, :]).sum(axis=(1, 2)) / k
    off = ~np.eye(len(at), dtype=bool)
    for row, index in enumerate(at):
        rho[index] = rank_correlation(here[row][off[row]], there[row][off[row]])
    return {"reference_rho": rho, "reference_overlap": overlap}


def _mean(values: NDArray) -> float:
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if len(finite) else float("nan")
