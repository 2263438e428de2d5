"""Words in general: what draws attention to a class of words more than to content words, over types of every side."""

from collections.abc import Sequence
from functools import reduce
from typing import Final

import numpy as np
import pandas as pd

from geomprobe import tables
from geomprobe.comparison.measured import BY_TYPES, DRAWS, LEAST, Measured
from geomprobe.comparison.sides import Sides
from geomprobe.labels import CLOSED_CLASSES
from geomprobe.ledger.evidence import CONTENT, Cells, cells_of
from geomprobe.stats.resampling import Draws, means_of_types, weighted_means

CLASSES: Final[dict[str, tuple[str, ...]]] = {
    "function": CLOSED_CLASSES,
    "punctuation": ("punctuation",),
    "number": ("number",),
    "newline": ("newline",),
}
TITLES: Final = {
    "function": "Λ of function words over content words",
    "punctuation": "Λ of punctuation over content words",
    "number": "Λ of numbers over content words",
    "newline": "Λ of line breaks over content words",
}


def class_sinks(sides: Sides, place: str, *, draws: int = DRAWS) -> list[Measured]:
    """Λ of classes less that of content words, over the types and documents that every side has, each type once.

    Types and documents are drawn with replacement, the same on every side (a two-way bootstrap); a type counts where it
    has five tokens with a Λ in a layer on every side. Types are matched as strings in their class, so pieces of words,
    which another tokenizer cuts elsewhere, are compared by no class here. Fewer than five content types
    are no yardstick.
    """
    if not all(tables.of_text(run) and tables.has(run, "type_stats") for run in sides.runs):
        return []
    cells = aligned([_cells(sides, index, place) for index in range(sides.n)])
    if not len(cells[0].kinds):
        return []
    drawn = Draws.of(len(cells[0].documents), draws)
    content = cells[0].of_class([CONTENT])
    of_content = cells[0].values["lambda"][content]
    usual = of_content.std(ddof=1) if len(of_content) > 1 else np.nan
    found = []
    for group, (name, members) in enumerate(CLASSES.items(), start=1):
        inside = cells[0].of_class(members)
        if not inside.any() or content.sum() < LEAST:
            continue
        estimates, made = [], []
        weights = drawn.types(int(inside.sum()), group), drawn.types(int(content.sum()), 0)
        for one in cells:
            value = one.values["lambda"]
            each = means_of_types(one.n, one.total["lambda"], drawn.documents)
            estimates.append(value[inside].mean() - value[content].mean())
            made.append(weighted_means(each[:, inside], weights[0]) - weighted_means(each[:, content], weights[1]))
        found.append(
            Measured(
                "class_sink",
                TITLES[name],
                "nats",
                place,
                np.array(estimates),
                np.stack(made),
                token_class=name,
                n_documents=len(cells[0].documents),
                n_types=int(inside.sum()),
                spread=np.full(sides.n, usual),
                effect=BY_TYPES,
                note="" if sides.same_tokens else "words that are one token on every side",
            )
        )
    return found


def _cells(sides: Sides, index: int, place: str) -> Cells:
    """The cells of a side, its documents renumbered as all sides have them in common."""
    table = sides.runs[index].tables["type_stats"]
    number = {own: place for place, own in enumerate(sides.document_ids(index).values())}
    rows = table[table["layer"].isin(sides.layers(index, place)) & table["document"].isin(list(number))]
    return cells_of(rows.assign(document=rows["document"].map(number)), "n_sink", ("lambda",), tables.TYPE_TOKENS)


def aligned(cells: Sequence[Cells]) -> list[Cells]:
    """The cells of the types and documents that all have, in the same order."""
    names = [pd.MultiIndex.from_frame(one.kinds[["type", "token_class"]]) for one in cells]
    common = reduce(lambda left, right: left.intersection(right, sort=False), names)
    documents = reduce(np.intersect1d, [one.documents for one in cells])
    made = []
    for one, own in zip(cells, names, strict=True):
        rows, columns = own.get_indexer(common), np.searchsorted(one.documents, documents)
        total = {name: value[np.ix_(rows, columns)] for name, value in one.total.items()}
        made.append(Cells(one.kinds.iloc[rows].reset_index(drop=True), one.n[np.ix_(rows, columns)], total, documents))
    return _with_tokens(made)


def _with_tokens(cells: list[Cells]) -> list[Cells]:
    """Without the types that have no token left on some side."""
    kept = np.logical_and.reduce([one.n.sum(axis=1) > 0 for one in cells])
    return [
        Cells(
            one.kinds[kept].reset_index(drop=True),
            one.n[kept],
            {name: value[kept] for name, value in one.total.items()},
            one.documents,
        )
        for one in cells
    ]
