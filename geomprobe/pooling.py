"""What a run says of each document, as sums, so that documents can be drawn again: the quantities over documents."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from geomprobe import tables
from geomprobe.run.reading import Run
from geomprobe.stats.resampling import Draws

Floats = NDArray[np.float64]
Sums = dict[str, Floats]
HEADS: Final = ("layer", "q_head")


@dataclass(frozen=True, eq=False)
class ByDocument:
    """Sums by document.

    Attributes
    ----------
    sums : dict from name to ndarray (…, document)
    documents : ndarray (document,), int64, optional
        Which documents of the corpus these are.
    """

    sums: Sums
    documents: NDArray[np.int64] | None = None
    n: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", next(iter(self.sums.values())).shape[-1])

    def drawn(self, draws: int) -> Sums:
        """The sums of each draw of documents: (…, draw)."""
        return self.weighed(Draws.of(self.n, draws).documents)

    def weighed(self, times: Floats) -> Sums:
        """The sums where each document comes so many times: (…, draw) for times (draw, document)."""
        return {name: value @ times.T for name, value in self.sums.items()}

    def whole(self) -> Sums:
        """The sums over all documents."""
        return {name: value.sum(axis=-1) for name, value in self.sums.items()}


@dataclass(frozen=True, eq=False)
class Pooled:
    """A quantity over documents: sums by document, and what is made of sums.

    Attributes
    ----------
    data : ByDocument
    combine : callable
        Sums (…, draw) → the quantity (draw,); likewise without the last axis.
    """

    data: ByDocument
    combine: Callable[[Sums], Floats]

    @property
    def estimate(self) -> float:
        """Over all documents."""
        return float(self.combine(self.data.whole()))

    def draws(self, n: int) -> Floats:
        """In each of n draws of documents: (draw,)."""
        return self.combine(self.data.drawn(n))

    def weighed(self, times: Floats) -> Floats:
        """Where each document comes so many times: (draw,) for times (draw, document)."""
        return self.combine(self.data.weighed(times))

    def only(self, places: Sequence[int] | NDArray[np.int64]) -> "Pooled":
        """Of some of the documents, by their places here."""
        chosen = np.asarray(places, dtype=np.int64)
        sums = {name: value[..., chosen] for name, value in self.data.sums.items()}
        known = self.data.documents
        return Pooled(ByDocument(sums, None if known is None else known[chosen]), self.combine)


def ratio(above: str, below: str) -> Callable[[Sums], Floats]:
    """The quantity that is one sum over another; NaN where that is not above 0."""
    return partial(_ratio, above=above, below=below)


def _ratio(sums: Sums, *, above: str, below: str) -> Floats:
    return sums[above] / np.where(sums[below] > 0, sums[below], np.nan)


def _by_document(frame: pd.DataFrame, names: Sequence[str], rows: Sequence[str]) -> ByDocument:
    """Columns of a table as (row, document), summed; 0 where there is no row. Rows are told apart by whole numbers."""
    documents, column = np.unique(frame["document"].to_numpy(np.int64), return_inverse=True)
    known, row = np.unique(frame[list(rows)].to_numpy(np.int64), axis=0, return_inverse=True)
    shape = (len(known), len(documents))
    place = row.ravel() * shape[1] + column
    sums = {
        name: np.bincount(place, frame[name].to_numpy(float), minlength=shape[0] * shape[1])
        .reshape(shape)
        .astype(float)
        for name in names
    }
    return ByDocument(sums, documents)


def _totals(frame: pd.DataFrame, names: Sequence[str]) -> ByDocument:
    """Columns of a table summed by document: (document,)."""
    documents, column = np.unique(frame["document"].to_numpy(np.int64), return_inverse=True)
    sums = {name: np.bincount(column, frame[name].to_numpy(float)).astype(float) for name in names}
    return ByDocument(sums, documents)


# ------------------------------------------------------------------ quantities of `split`
def split_documents(run: Run, gauge: str, layers: Sequence[int] | None = None) -> pd.DataFrame:
    """The rows of `split` by document, position 0 out; of some layers or all."""
    table = run.tables["split"]
    chosen = (table["gauge"] == gauge) & (table["first"] == "out") & (table["document"] >= 0)
    if layers is not None:
        chosen &= table["layer"].isin(list(layers))
    return table[chosen]


def share_of_lengths(run: Run, gauge: str, layers: Sequence[int] | None = None) -> Pooled:
    """norm_share with position 0 out: Σφ_norm over Σ(φ_norm + φ_angle)."""
    rows = split_documents(run, gauge, layers).dropna(subset=["phi_norm", "phi_angle"])
    weighted = rows.assign(
        norm=rows["phi_norm"] * rows["n_rows"], both=(rows["phi_norm"] + rows["phi_angle"]) * rows["n_rows"]
    )
    return Pooled(_totals(weighted, ("norm", "both")), ratio("norm", "both"))


def spread_of_lengths(run: Run, gauge: str, layers: Sequence[int] | None = None) -> Pooled:
    """log_sd of keys at the median head, position 0 out."""
    rows = split_documents(run, gauge, layers).dropna(subset=["k_log_sd"])
    middle = rows.groupby(list(HEADS))["k_log_mean"].transform("mean")  # so that squares do not cancel
    away = rows["k_log_mean"] - middle
    rows = rows.assign(one=away * rows["n_keys"], two=(rows["k_log_sd"] ** 2 + away**2) * rows["n_keys"])
    return Pooled(_by_document(rows, ("n_keys", "one", "two"), HEADS), _median_spread)


def _median_spread(sums: Sums) -> Floats:
    n = np.where(sums["n_keys"] > 0, sums["n_keys"], np.nan)
    mean = sums["one"] / n
    return np.median(np.sqrt(np.maximum(sums["two"] / n - mean**2, 0)), axis=0)


def distance_from_cosines(run: Run, gauge: str, layers: Sequence[int] | None = None) -> Pooled:
    """Total variation from a softmax of cosines at the median head, position 0 out."""
    rows = split_documents(run, gauge, layers).dropna(subset=["tv"])
    rows = rows.assign(weighted=rows["tv"] * rows["n_rows"])
    return Pooled(_by_document(rows, ("weighted", "n_rows"), HEADS), _median_distance)


def _median_distance(sums: Sums) -> Floats:
    return np.median(_ratio(sums, above="weighted", below="n_rows"), axis=0)


# ------------------------------------------------------------------ quantities of `document_stats`
def one_hot(run: Run) -> Pooled:
    """one_hot_rate without position 0, rows weighted by 1 − A_t0, over all heads and layers."""
    table = run.tables["document_stats"]
    rows = table[(table["layer"] >= 0) & table["one_hot_rate_weighted"].notna()]
    heads = tables.anatomy(run)["q_heads"].reindex(rows["layer"]).to_numpy(float)
    mass = rows["rest_mass"] * rows["n_rows"] * heads
    rows = rows.assign(mass=mass, hot=mass * rows["one_hot_rate_weighted"])
    return Pooled(_totals(rows, ("mass", "hot")), ratio("hot", "mass"))


def mean_over_rows(run: Run, column: str, layers: Sequence[int]) -> Pooled:
    """A column of `document_stats`: the mean over the rows of the text in each layer, then over these layers.

    A layer or document that says nothing of it is left out.
    """
    table = run.tables["document_stats"]
    rows = table[table["layer"].isin(list(layers)) & table[column].notna() & (table["n_rows"] > 0)]
    rows = rows.assign(weighted=rows[column] * rows["n_rows"])
    return Pooled(_by_document(rows, ("weighted", "n_rows"), ("layer",)), _mean_of_layers)


def _mean_of_layers(sums: Sums) -> Floats:
    return _ratio(sums, above="weighted", below="n_rows").mean(axis=0)
