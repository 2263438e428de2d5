"""Do pseudo-rare words keep their parent's meaning: where the parent stands, seen from its second token."""

from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from geomprobe.attention.spec import ModelSpec
from geomprobe.attention.stages import Notebook
from geomprobe.collection import Collection
from geomprobe.corpus.contexts import CONTEXT, NO_BAND, Contexts, WordType
from geomprobe.key_gauges import key_gauges
from geomprobe.lab.renaming import Renamed, stands_alone
from geomprobe.lab.text import TextData
from geomprobe.stats.angles import cosines, type_vectors

N_CONTEXTS: Final = 8  # of each of a word's two tokens
TOKENS_A_PASS: Final = 4096
GAUGE_WINDOWS: Final = 16  # of the held-out tokens, spread evenly, that fix the balanced gauge
GAUGE_WINDOW: Final = 512
_SEED: Final = 0
_COLUMNS: Final = ("word", "rare", "space", "vector", "layer", "head", "gauge", "place", "hit")


def renamed_contexts(data: TextData, bos: int | None = None) -> tuple[tuple[Renamed, ...], Contexts]:
    """Windows of the held-out tokens that end where a renamed word stands, by its new token or by its parent.

    Which of the two stands at a place was drawn at random, so any place of the word is as good for one as for the
    other. Eight places are read with the new token and eight others with the parent, whatever stands there: so a word
    that goes by its new token once in some hundred places has as many contexts as one that does every second time.

    Parameters
    ----------
    data : TextData
    bos : int or None
        What stands in place of the first token of each window, where the model's sequences begin so.

    Returns
    -------
    tuple of Renamed
        Those that stand often enough in the held-out text.
    Contexts
        Twice as many types: first the new token of each, then the parent of each.
    """
    from tokenizers import Tokenizer

    stream = np.asarray(data.held_out)
    alone = stands_alone(stream, Tokenizer.from_file(str(data.tokenizer / "tokenizer.json")))
    rng = np.random.default_rng(_SEED)
    found: list[tuple[Renamed, list[NDArray], list[NDArray]]] = []
    for word in data.renamed:
        places = np.flatnonzero(((stream == word.new_id) | (stream == word.parent_id)) & alone)
        drawn = rng.permutation(places[places >= CONTEXT - 1])[: 2 * N_CONTEXTS]
        if len(drawn) == 2 * N_CONTEXTS:
            own, parent = drawn[:N_CONTEXTS], drawn[N_CONTEXTS:]
            found.append((word, _windows(stream, own, word.new_id), _windows(stream, parent, word.parent_id)))
    words = tuple(word for word, _, _ in found)
    kinds = [WordType(word.written, "", np.nan, 0, NO_BAND) for word in words]
    kinds += [WordType(word.parent, "", np.nan, 0, NO_BAND) for word in words]
    ids = [*(window for _, own, _ in found for window in own), *(window for _, _, old in found for window in old)]
    n = len(ids)
    zeros = np.zeros(n, dtype=np.int64)
    contexts = Contexts(
        types=tuple(kinds),
        type_index=np.repeat(np.arange(len(kinds)), N_CONTEXTS),
        document=zeros,
        start=zeros,
        ids=_begun(np.array(ids, dtype=np.int64).reshape(-1, CONTEXT), bos),
        document_names=("held_out",),
        left_out={"too_rare": len(data.renamed) - len(words)},
    )
    return words, contexts


def _windows(stream: NDArray, places: NDArray, token: int) -> list[NDArray]:
    """The tokens up to each place, with this one there."""
    return [np.append(stream[at - CONTEXT + 1 : at], token) for at in places]


def _begun(ids: NDArray[np.int64], bos: int | None) -> NDArray[np.int64]:
    if bos is not None:
        ids[:, 0] = bos
    return ids


def gauge_windows(data: TextData, bos: int | None = None) -> NDArray[np.int64]:
    """Held-out tokens that fix the balanced gauge: (window, token); none where there are fewer than one window."""
    stream = np.asarray(data.held_out)
    whole = stream[: len(stream) // GAUGE_WINDOW * GAUGE_WINDOW].reshape(-1, GAUGE_WINDOW)
    chosen = np.linspace(0, len(whole) - 1, min(GAUGE_WINDOWS, len(whole))).astype(int)
    return _begun(whole[chosen].astype(np.int64), bos)


def parent_ranks(
    model: Any, spec: ModelSpec, notebook: Notebook, data: TextData, folder: Path, *, bos: int | None = None
) -> pd.DataFrame:
    """Where a word's parent stands among the parents of all renamed words, seen from its second token.

    Parameters
    ----------
    model : LabForCausalLM
    spec : ModelSpec
    notebook : Notebook
    data : TextData
    folder : Path
        Of the pass, for the time being.
    bos : int or None
        What the model's sequences begin with.

    Returns
    -------
    DataFrame
        A row a word, space (content, residual, embedding), vector, layer, head and gauge: `place` is the share of the
        other parents that lie nearer by cosine (0: its own is the nearest; chance .5), `hit` whether none does.
    """
    words, contexts = renamed_contexts(data, bos)
    length = contexts.ids.shape[1]
    batch_size = max(1, TOKENS_A_PASS // GAUGE_WINDOW)
    gauges = key_gauges(model, spec, gauge_windows(data, bos), notebook, batch_size=batch_size)
    collection = Collection(spec, contexts, folder, gauges)
    collection.run(model, batch_size=max(1, TOKENS_A_PASS // length), notebook=notebook)
    n = len(words)
    rows = []
    for cell in collection.cells(range(2 * n), N_CONTEXTS):
        vectors = type_vectors(cell.x)  # (type, d)
        place = places_of_own(cosines(vectors[:n], vectors[n:]))
        rows += [
            {
                "word": word.parent,
                "rare": word.rare,
                "space": cell.space,
                "vector": cell.vector,
                "layer": cell.layer,
                "head": cell.head,
                "gauge": cell.gauge,
                "place": float(value),
                "hit": bool(value == 0),
            }
            for word, value in zip(words, place, strict=True)
        ]
    return pd.DataFrame(rows, columns=_COLUMNS)


def places_of_own(similar: NDArray) -> NDArray[np.float64]:
    """For each row of cosines (word, parent) the share of the other parents nearer than its own; ties count half.

    NaN where there is no other parent, or a word or its parent has no direction.
    """
    own = np.diagonal(similar)[:, None]
    others = similar.shape[1] - 1
    nearer = (similar > own).sum(1) + 0.5 * ((similar == own).sum(1) - 1)
    return np.where(np.isfinite(own[:, 0]) & (others > 0), nearer / max(others, 1), np.nan)
