"""What is compared: quantities that a run keeps by document, with the words that they are told in."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from geomprobe import pooling, tables
from geomprobe.comparison.sides import document_names, windows_read
from geomprobe.labels import GAUGES, WHOLE_MODEL
from geomprobe.pooling import ByDocument, Pooled
from geomprobe.run.reading import Run

SHARE, NATS, LOGITS, TIMES, LOG, AUC = "share", "nats", "logits", "times", "log length", "AUC"


@dataclass(frozen=True)
class Quantity:
    """A quantity over documents.

    Attributes
    ----------
    name : str
        As in the tables of a run, where it is a column there.
    title : str
        In a table of a page.
    unit : str
        share (told as a percentage), nats, logits, times or log length.
    pooled : callable
        ``(run, layers) -> Pooled | None``; None where the run does not say it.
    gauge : str
        raw or balanced where it is measured in a gauge, else empty.
    whole : bool
        Whether it is of the whole model only, so that there are no layers to choose.
    of_tokens : bool
        Whether it is a mean over tokens, and so over other things where the tokenizers differ.
    """

    name: str
    title: str
    unit: str
    pooled: Callable[[Run, Sequence[int]], Pooled | None]
    gauge: str = ""
    whole: bool = False
    of_tokens: bool = True


def _of_column(run: Run, layers: Sequence[int], *, column: str) -> Pooled | None:
    table = run.tables["document_stats"] if tables.has(run, "document_stats") else None
    if table is None or column not in table or not table[table["layer"].isin(list(layers))][column].notna().any():
        return None
    return pooling.mean_over_rows(run, column, layers)


def _of_split(run: Run, layers: Sequence[int], *, measure: Callable[..., Pooled], gauge: str) -> Pooled | None:
    if not tables.has(run, "split"):
        return None
    found = measure(run, gauge, layers) if len(pooling.split_documents(run, gauge, layers)) else None
    return found if found is not None and found.data.n else None


def _loss(run: Run, _layers: Sequence[int]) -> Pooled | None:
    """Nats a token that is predicted from a position ≥ 16."""
    return _of_column(run, [WHOLE_MODEL], column="loss")


def _loss_of_characters(run: Run, _layers: Sequence[int]) -> Pooled | None:
    """Nats a character: the loss of a document's tokens over the characters that such tokens have in its windows."""
    lost = _loss(run, [])
    read = windows_read(run)
    if lost is None or not read:
        return None
    corpus = run.manifest["corpus"]
    names, tokens = document_names(run), int(corpus["window"]) - bool(corpus["bos"])  # of the text in a window
    weighted, characters = [], []
    assert lost.data.documents is not None
    for place, document in enumerate(lost.data.documents):
        stretches = read[names[document]]
        n_rows = float(lost.data.sums["n_rows"][0, place])
        each = sum(end - start for start, end in stretches) / (len(stretches) * tokens)
        weighted.append(float(lost.data.sums["weighted"][0, place]))
        characters.append(n_rows * each)
    data = ByDocument({"nats": np.array(weighted), "characters": np.array(characters)}, lost.data.documents)
    return Pooled(data, pooling.ratio("nats", "characters"))


def _columns() -> list[Quantity]:
    told = (
        ("first_mass", "attention on position 0", SHARE),
        ("sink_rate", "sink rate (ε = .3)", SHARE),
        ("entropy", "entropy of a row of attention", NATS),
        ("one_hot_rate_no_first", "one-hot rows, without position 0", SHARE),
        ("logit_sd", "spread of logits within a row", LOGITS),
        ("logit_max", "largest logit over its row's mean", LOGITS),
        ("lift_function", "attention on function words over uniform", TIMES),
        ("lift_punctuation", "attention on punctuation over uniform", TIMES),
        ("lift_content", "attention on content words over uniform", TIMES),
    )
    return [Quantity(name, title, unit, partial(_of_column, column=name)) for name, title, unit in told]


def _gauged() -> list[Quantity]:
    told = (
        ("norm_share", "share of attention told by lengths", SHARE, pooling.share_of_lengths),
        ("k_log_sd", "spread of key lengths (log sd, median head)", LOG, pooling.spread_of_lengths),
        ("tv", "distance from a softmax of cosines (median head)", SHARE, pooling.distance_from_cosines),
    )
    return [
        Quantity(name, title, unit, partial(_of_split, measure=measure, gauge=gauge), gauge)
        for name, title, unit, measure in told
        for gauge in GAUGES
    ]


QUANTITIES: Final[tuple[Quantity, ...]] = (
    *_columns(),
    *_gauged(),
    Quantity("loss", "loss a token", NATS, _loss, whole=True),
    Quantity("loss_per_character", "loss a character", NATS, _loss_of_characters, whole=True, of_tokens=False),
)
