"""Numbers for the ledger out of a run's tables: estimates with their draws."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from geomprobe import pooling, tables
from geomprobe.ledger.thresholds import thresholds
from geomprobe.pooling import Pooled
from geomprobe.run.reading import Run
from geomprobe.stats.lift import lift_draws, norm_lift
from geomprobe.stats.resampling import Draws, means_of_types, permutation_p, weighted_means

Floats = NDArray[np.float64]
CONTENT: Final = "content"
AT_A_TIME: Final = 200  # draws of a fit


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """One checkpoint, with all that was measured of it.

    Attributes
    ----------
    analysis : Run or None
        Of `geomprobe analyze`.
    trials : tuple of Run
        Of `geomprobe intervene`.
    """

    analysis: Run | None
    trials: tuple[Run, ...] = ()

    @property
    def runs(self) -> list[Run]:
        """All of them."""
        return [*([self.analysis] if self.analysis is not None else []), *self.trials]

    @property
    def name(self) -> str:
        """As it was asked for."""
        return self.runs[0].name

    @property
    def manifest(self) -> dict[str, Any]:
        """What the first run says of the model."""
        return dict(self.runs[0].manifest["model"])

    def has(self, *names: str) -> bool:
        """Whether the analysis has these tables, each with a row at least."""
        return self.analysis is not None and tables.has(self.analysis, *names)

    @property
    def run(self) -> Run:
        """The analysis, which must be there."""
        assert self.analysis is not None
        return self.analysis

    @cached_property
    def normed(self) -> bool:
        """Whether keys have a norm in some layer."""
        return any(layer["k_norm"] is not None for layer in self.manifest["anatomy"])

    @cached_property
    def gainless(self) -> bool:
        """Whether every layer's keys have a norm and all norms multiply all channels alike: lengths are identified."""
        if not all(layer["k_norm"] is not None for layer in self.manifest["anatomy"]) or not self.has("gains"):
            return False
        return bool((self.run.tables["gains"]["cv"].abs() < 1e-9).all())

    @property
    def n_heads(self) -> int:
        """Query heads of all layers."""
        return sum(int(layer["q_heads"]) for layer in self.manifest["anatomy"])

    @property
    def n_layers(self) -> int:
        """Attention layers."""
        return len(self.manifest["anatomy"])


def same_checkpoint(run: Run) -> tuple[Any, ...]:
    """What runs of one checkpoint share."""
    model = run.manifest["model"]
    return (model["id"], model.get("revision"), model.get("sha256"), model["dtype"])


def checkpoints(runs: Iterable[Run]) -> list[Checkpoint]:
    """Runs by checkpoint, in the order in which they were given."""
    groups: dict[tuple[Any, ...], list[Run]] = {}
    for run in runs:
        groups.setdefault(same_checkpoint(run), []).append(run)
    made = []
    for group in groups.values():
        analyses: list[Run | None] = [run for run in group if "interventions" not in run.tables]
        trials = tuple(run for run in group if "interventions" in run.tables)
        # Two analyses of one checkpoint (other texts) are two reports.
        made += [Checkpoint(analysis, trials) for analysis in analyses or [None]]
    return made


# ------------------------------------------------------------------ documents
def n_draws() -> int:
    """How many draws a bootstrap has."""
    return int(thresholds()["statistics"]["draws"])


def _told(pooled: Pooled) -> tuple[float, Floats, int]:
    return pooled.estimate, pooled.draws(n_draws()), pooled.data.n


def share_of_lengths(run: Run, gauge: str) -> tuple[float, Floats, int]:
    """norm_share with position 0 out, its draws over documents, and how many documents."""
    return _told(pooling.share_of_lengths(run, gauge))


def spread_of_lengths(run: Run, gauge: str) -> tuple[float, Floats, int]:
    """log_sd of keys at the median head, position 0 out."""
    return _told(pooling.spread_of_lengths(run, gauge))


def distance_from_cosines(run: Run, gauge: str) -> tuple[float, Floats, int]:
    """Total variation from a softmax of cosines at the median head, position 0 out."""
    return _told(pooling.distance_from_cosines(run, gauge))


def one_hot(run: Run) -> tuple[float, Floats, int]:
    """one_hot_rate without position 0, rows weighted by 1 − A_t0, over all heads and layers."""
    return _told(pooling.one_hot(run))


# ------------------------------------------------------------------ types
@dataclass(frozen=True, eq=False)
class Cells:
    """Sums by (type, document) over some layers, of the types with tokens enough.

    Attributes
    ----------
    kinds : DataFrame
        type, token_class, zipf; a row a type.
    n : ndarray (type, document)
    total : dict from name to ndarray (type, document)
    documents : ndarray (document,)
        Which documents of the corpus these are.
    """

    kinds: pd.DataFrame
    n: Floats
    total: dict[str, Floats]
    documents: NDArray[np.int64]

    @property
    def values(self) -> dict[str, Floats]:
        """The mean of each type over its tokens: (type,)."""
        return {name: x.sum(axis=1) / self.n.sum(axis=1) for name, x in self.total.items()}

    def of_class(self, names: Sequence[str]) -> NDArray[np.bool_]:
        """Which types are of these classes."""
        return self.kinds["token_class"].isin(list(names)).to_numpy()


def cells_of(frame: pd.DataFrame, n: str, columns: Sequence[str], per_layer: int) -> Cells:
    """Cells out of the rows of some layers.

    Parameters
    ----------
    frame : DataFrame
        type, token_class, document, zipf, `n` and the columns, a row a layer and cell.
    n : str
        Column of the number of tokens behind a row.
    columns : sequence of str
    per_layer : int
        Tokens that a type must have in a layer, on average.
    """
    rows = frame[frame[n] > 0]
    layers = max(1, rows["layer"].nunique())
    by = rows.groupby(["type", "token_class"], observed=True)
    enough = by[n].transform("sum") >= per_layer * layers
    rows = rows[enough]
    kind = pd.MultiIndex.from_frame(rows[["type", "token_class"]])
    code, kinds = pd.factorize(kind)
    documents = np.unique(rows["document"])
    place = np.searchsorted(documents, rows["document"])
    shape = (len(kinds), len(documents))

    def summed(values: pd.Series) -> Floats:
        made = np.zeros(shape)
        np.add.at(made, (code, place), values.to_numpy(float))
        return made

    named = pd.DataFrame(list(kinds), columns=["type", "token_class"])
    zipf = rows["zipf"].groupby(code).first()
    named["zipf"] = zipf.reindex(range(len(named))).to_numpy(float)
    total = {column: summed(rows[column] * rows[n]) for column in columns}
    return Cells(named, summed(rows[n]), total, documents)


@dataclass(frozen=True, eq=False)
class Contrast:
    """A class held against content words.

    Attributes
    ----------
    estimate : dict from name to float
    draws : dict from name to ndarray (draw,)
    p : dict from name to float
        Of the permutation test over types.
    n_types, n_documents : int
    """

    estimate: dict[str, float]
    draws: dict[str, Floats]
    p: dict[str, float]
    n_types: int
    n_documents: int


def contrast(cells: Cells, names: Sequence[str], *, test: bool = True) -> Contrast | None:
    """Means over the types of some classes less those over content types, with a two-way bootstrap.

    Parameters
    ----------
    cells : Cells
    names : sequence of str
        Token classes.
    test : bool
        Whether to permute types too.

    Returns
    -------
    Contrast or None
        None where there is no content type, or none of the classes.
    """
    inside, content = cells.of_class(names), cells.of_class([CONTENT])
    if not inside.any() or not content.any():
        return None
    settings = thresholds()["statistics"]
    drawn = Draws.of(len(cells.documents), n_draws())
    weights = {True: drawn.types(int(inside.sum()), 0), False: drawn.types(int(content.sum()), 1)}
    estimate, draws, p = {}, {}, {}
    for name, value in cells.values.items():
        estimate[name] = float(value[inside].mean() - value[content].mean())
        each = means_of_types(cells.n, cells.total[name], drawn.documents)
        draws[name] = weighted_means(each[:, inside], weights[True]) - weighted_means(each[:, content], weights[False])
        both = inside | content
        p[name] = permutation_p(value[both], inside[both], int(settings["permutations"])) if test else math.nan
    return Contrast(estimate, draws, p, int(inside.sum()), len(cells.documents))


def single_types(cells: Cells, names: Sequence[str], name: str) -> list[tuple[str, float, Floats]]:
    """Each type of some classes against the content types, over documents alone: (type, estimate, draws)."""
    inside, content = cells.of_class(names), cells.of_class([CONTENT])
    if not inside.any() or not content.any():
        return []
    drawn = Draws.of(len(cells.documents), n_draws())
    each = means_of_types(cells.n, cells.total[name], drawn.documents)
    usual = weighted_means(each[:, content], np.ones_like(each[:, content]))
    value = cells.values[name]
    return [
        (str(cells.kinds["type"].iloc[at]), float(value[at] - value[content].mean()), each[:, at] - usual)
        for at in np.flatnonzero(inside)
    ]


def places_of(run: Run, cells: Cells) -> Floats:
    """Tokens of each type by document and bucket of positions: (type, document, bucket)."""
    table = run.tables["type_places"]
    kinds = pd.MultiIndex.from_frame(cells.kinds[["type", "token_class"]])
    code = kinds.get_indexer(pd.MultiIndex.from_frame(table[["type", "token_class"]]))
    document = np.searchsorted(cells.documents, table["document"])
    document = np.minimum(document, len(cells.documents) - 1)
    known = (code >= 0) & (cells.documents[document] == table["document"].to_numpy())
    made = np.zeros((len(kinds), len(cells.documents), int(table["bucket"].max()) + 1))
    np.add.at(made, (code[known], document[known], table["bucket"].to_numpy()[known]), table["n"].to_numpy()[known])
    return made


def lifts_of(run: Run, cells: Cells, asked: Mapping[str, Sequence[str]]) -> dict[str, tuple[Contrast, int]]:
    """norm_lift of classes over all heads and layers of the cells, and how many of their types are extrapolated.

    Each draw makes the fit anew, so that an interval holds its uncertainty too.

    Parameters
    ----------
    run : Run
    cells : Cells
        With the column k_log_mean.
    asked : mapping from name to token classes

    Returns
    -------
    dict
        Without the names of which no type, or no content type, is there.
    """
    zipf = cells.kinds["zipf"].to_numpy(float)
    known = np.isfinite(zipf)
    content = cells.of_class([CONTENT]) & known
    members = {name: cells.of_class(classes) & known for name, classes in asked.items()}
    members = {name: inside for name, inside in members.items() if inside.any()}
    if not content.any() or not members:
        return {}
    used = content | np.logical_or.reduce(list(members.values()))
    n, total, places = cells.n[used], cells.total["k_log_mean"][used], places_of(run, cells)[used]
    content, zipf = content[used], zipf[used]
    found = norm_lift((total.sum(1) / n.sum(1))[None], zipf, places.sum(1), content)
    if not np.isfinite(found.value).all():  # too few content types for a fit
        return {}
    drawn = Draws.of(len(cells.documents), n_draws())
    weights = np.zeros((drawn.n, len(zipf)))
    weights[:, content] = drawn.types(int(content.sum()), 1)
    lifts = np.empty(weights.shape)
    for start in range(0, drawn.n, AT_A_TIME):
        at = slice(start, start + AT_A_TIME)
        documents = drawn.documents[at]
        buckets = np.einsum("dm,tmb->dtb", documents, places)
        lifts[at] = lift_draws(means_of_types(n, total, documents), zipf, buckets, content, weights[at])
    permutations = int(thresholds()["statistics"]["permutations"])
    made = {}
    for name, inside in members.items():
        own = inside[used]
        both = own | content
        draws = weighted_means(lifts[:, own], drawn.types(int(own.sum()), 0))
        value = found.value[0]
        contrasted = Contrast(
            {"norm_lift": float(value[own].mean())},
            {"norm_lift": draws},
            {"norm_lift": permutation_p(value[both], own[both], permutations)},
            int(own.sum()),
            len(cells.documents),
        )
        made[name] = contrasted, int((found.extrapolated & own).sum())
    return made
