"""The numbers of a comparison again, by loops over rows; nothing here comes from the package."""

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

CLOSED = ("article", "preposition", "pronoun", "conjunction", "auxiliary", "determiner", "particle")


def rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """A table as a list."""
    return table.to_dict("records")


def named(run: Any, row: Mapping[str, Any]) -> str:
    """The document that a row is about."""
    return run.manifest["corpus"]["documents"][row["document"]]


def mean_of_rows(run: Any, column: str, layers: Iterable[int], times: Mapping[str, float]) -> float:
    """The mean over the rows of the text of each layer, then over layers."""
    means = []
    for layer in layers:
        above = below = 0.0
        for row in rows(run.tables["document_stats"]):
            if row["layer"] == layer and not math.isnan(row[column]):
                weight = times.get(named(run, row), 0) * row["n_rows"]
                above += weight * row[column]
                below += weight
        if below:
            means.append(above / below)
    return sum(means) / len(means)


def outside(run: Any, gauge: str, layers: Iterable[int]) -> list[dict[str, Any]]:
    """The rows of `split` by document, position 0 out."""
    wanted = set(layers)
    return [
        row
        for row in rows(run.tables["split"])
        if row["gauge"] == gauge and row["first"] == "out" and row["document"] >= 0 and row["layer"] in wanted
    ]


def share(run: Any, gauge: str, layers: Iterable[int], times: Mapping[str, float]) -> float:
    """What lengths tell over what lengths and angles tell."""
    norm = angle = 0.0
    for row in outside(run, gauge, layers):
        weight = times.get(named(run, row), 0) * row["n_rows"]
        norm += weight * row["phi_norm"]
        angle += weight * row["phi_angle"]
    return norm / (norm + angle)


def spread(run: Any, gauge: str, layers: Iterable[int], times: Mapping[str, float]) -> float:
    """Log sd of the keys of each head, as if they were all there, and its median over heads."""
    heads = defaultdict(list)
    for row in outside(run, gauge, layers):
        weight = times.get(named(run, row), 0) * row["n_keys"]
        heads[row["layer"], row["q_head"]].append((weight, row["k_log_mean"], row["k_log_sd"]))
    found = []
    for groups in heads.values():
        n = sum(weight for weight, _, _ in groups)
        middle = sum(weight * mean for weight, mean, _ in groups) / n
        found.append(math.sqrt(sum(w * (sd**2 + (mean - middle) ** 2) for w, mean, sd in groups) / n))
    return statistics.median(found)


def distance(run: Any, gauge: str, layers: Iterable[int], times: Mapping[str, float]) -> float:
    """Total variation of each head over its rows, and its median over heads."""
    heads = defaultdict(lambda: [0.0, 0.0])
    for row in outside(run, gauge, layers):
        weight = times.get(named(run, row), 0) * row["n_rows"]
        heads[row["layer"], row["q_head"]][0] += weight * row["tv"]
        heads[row["layer"], row["q_head"]][1] += weight
    return statistics.median(above / below for above, below in heads.values())


def loss_of_characters(run: Any, times: Mapping[str, float]) -> float:
    """Nats over characters: a document's tokens each have as many as those of its windows on average."""
    corpus = run.manifest["corpus"]
    characters = defaultdict(int)
    tokens = defaultdict(int)
    for window in corpus["windows"]:
        name = corpus["documents"][window["document"]]
        characters[name] += window["char_end"] - window["char_start"]
        tokens[name] += corpus["window"] - (1 if corpus["bos"] else 0)  # BOS is no text
    nats = read = 0.0
    for row in rows(run.tables["document_stats"]):
        if row["layer"] == -1:
            name = named(run, row)
            weight = times.get(name, 0) * row["n_rows"]
            nats += weight * row["loss"]
            read += weight * characters[name] / tokens[name]
    return nats / read


def drawn(names: Sequence[str], counts: Sequence[float]) -> dict[str, float]:
    """How often each document comes in a draw."""
    return dict(zip(names, map(float, counts), strict=True))


def once(names: Iterable[str]) -> dict[str, float]:
    """Each document once."""
    return dict.fromkeys(names, 1.0)


def paired_d(a: Sequence[float], b: Sequence[float], difference: float) -> float:
    """A difference over the standard deviation (ddof 1) of the documents' own."""
    return difference / statistics.stdev(y - x for x, y in zip(a, b, strict=True))


# ------------------------------------------------------------------ types
def tokens_of_types(run: Any, layers: Sequence[int], documents: Iterable[str]) -> dict[tuple[str, str], dict[str, Any]]:
    """(type, class) → document → (tokens, sum of Λ), of the types with five tokens a layer in these documents."""
    wanted = set(documents)
    cells: dict[tuple[str, str], dict[str, Any]] = defaultdict(lambda: defaultdict(lambda: [0.0, 0.0]))
    for row in rows(run.tables["type_stats"]):
        if row["layer"] in layers and named(run, row) in wanted and row["n_sink"] > 0:
            cell = cells[row["type"], row["token_class"]][named(run, row)]
            cell[0] += row["n_sink"]
            cell[1] += row["n_sink"] * row["lambda"]
    return {kind: cell for kind, cell in cells.items() if sum(n for n, _ in cell.values()) >= 5 * len(layers)}


def mean_of_type(cell: Mapping[str, Any], times: Mapping[str, float]) -> float:
    """Λ of a type over its tokens; NaN where none is left."""
    n = sum(times.get(name, 0) * tokens for name, (tokens, _) in cell.items())
    total = sum(times.get(name, 0) * value for name, (_, value) in cell.items())
    return total / n if n else math.nan


def mean_of_class(
    cells: Mapping[tuple[str, str], Any],
    kinds: Sequence[tuple[str, str]],
    times: Mapping[str, float],
    often: Sequence[float] | None = None,
) -> float:
    """Mean over types; a type without a token counts nothing."""
    above = below = 0.0
    for kind, weight in zip(kinds, often if often is not None else [1.0] * len(kinds), strict=True):
        value = mean_of_type(cells[kind], times)
        if not math.isnan(value):
            above += weight * value
            below += weight
    return above / below if below else math.nan


# ------------------------------------------------------------------ words
def cosine(a: np.ndarray, b: np.ndarray) -> float:
    """Of two vectors."""
    one, other = [float(x) for x in a], [float(x) for x in b]
    along = sum(x * y for x, y in zip(one, other, strict=True))
    return along / math.sqrt(sum(x * x for x in one) * sum(y * y for y in other))


def counted_auc(vectors: np.ndarray, categories: Sequence[str], often: Sequence[float] | None = None) -> float:
    """How often a pair within a category is nearer than one between, counted pair by pair, ties half."""
    times = [1.0] * len(categories) if often is None else [float(x) for x in often]
    within, between = [], []
    for i in range(len(categories)):
        for j in range(i + 1, len(categories)):
            if times[i] * times[j]:
                kind = within if categories[i] == categories[j] else between
                kind.append((cosine(vectors[i], vectors[j]), times[i] * times[j]))
    score = total = 0.0
    for one, own in within:
        for other, weight in between:
            score += own * weight * (1.0 if one > other else 0.5 if one == other else 0.0)
            total += own * weight
    return score / total if total else math.nan
