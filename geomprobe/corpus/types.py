"""Types: tokens that are the same string in the same class, and their numbers for counting."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from geomprobe.corpus.rarity import zipf
from geomprobe.corpus.windows import Corpus
from geomprobe.labels import TOKEN_CLASSES

Ints = npt.NDArray[np.int64]
H = TypeVar("H", bound=Hashable)

_ESCAPES = str.maketrans({" ": "␣", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v", "\f": "\\f"})


@dataclass(frozen=True, eq=False)
class TypeIndex:
    r"""Numbers for the types, (type, document) cells and (token id, class) pairs of a corpus.

    Attributes
    ----------
    type_index : ndarray, (n_windows, window) int64
        Index into `types`; −1 at position 0.
    types : tuple of (str, str)
        The string (`type_name`) and its class, in the order of the classes, then of the strings.
    zipf : ndarray, (n_types,) float64
        Zipf frequency of the string; NaN where wordfreq does not know it, and for white space.
    cell_index : ndarray, (n_windows, window) int64
        Index into `cells`; −1 at position 0.
    cells : ndarray, (n_cells, 2) int64
        Type and document that occur together, sorted.
    token_index : ndarray, (n_windows, window) int64
        Index into `tokens`; −1 at position 0.
    tokens : tuple of (int, str, str)
        Token id, class, and the text of the first such token; sorted by id, then class.
    """

    type_index: Ints
    types: tuple[tuple[str, str], ...]
    zipf: npt.NDArray[np.float64]
    cell_index: Ints
    cells: Ints
    token_index: Ints
    tokens: tuple[tuple[int, str, str], ...]


def index_types(corpus: Corpus) -> TypeIndex:
    """Number the types of a corpus; position 0 of each window, the class `first`, has none."""
    classes = corpus.token_class[:, 1:]  # (n_windows, window - 1), as all below
    names = np.vectorize(type_name, otypes=[object])(corpus.token_text[:, 1:])

    by_class, type_index = _numbered(zip(classes.ravel().tolist(), names.ravel().tolist(), strict=True))
    types = tuple((name, TOKEN_CLASSES[index]) for index, name in by_class)
    documents = np.broadcast_to(corpus.document[:, None], classes.shape)
    cells, cell_index = _numbered(zip(type_index.tolist(), documents.ravel().tolist(), strict=True))
    pairs, token_index = _numbered(zip(corpus.ids[:, 1:].ravel().tolist(), classes.ravel().tolist(), strict=True))
    texts = corpus.token_text[:, 1:].ravel()
    seen_type, seen_token = (np.unique(index, return_index=True)[1] for index in (type_index, token_index))

    def placed(index: Ints) -> Ints:
        whole = np.full(corpus.ids.shape, -1, dtype=np.int64)
        whole[:, 1:] = index.reshape(classes.shape)
        return whole  # (n_windows, window)

    return TypeIndex(
        type_index=placed(type_index),
        types=types,
        zipf=zipf((text.strip() for text in texts[seen_type]), corpus.language)
        if corpus.of_text
        else np.full(len(types), np.nan),
        cell_index=placed(cell_index),
        cells=np.array(cells, dtype=np.int64).reshape(-1, 2),
        token_index=placed(token_index),
        tokens=tuple(
            (token_id, TOKEN_CLASSES[index], text)
            for (token_id, index), text in zip(pairs, texts[seen_token], strict=True)
        ),
    )


def type_name(text: str) -> str:
    r"""The string of a token's type: lower-cased and stripped; white space alone is written out, as `\n\n␣`."""
    return text.strip().lower() or text.translate(_ESCAPES) or "␣"


def _numbered(keys: Iterable[H]) -> tuple[list[H], Ints]:
    """The distinct keys, sorted, and for each key given its place among them."""
    given = list(keys)
    distinct = sorted(set(given))  # type: ignore[type-var]
    place = {key: index for index, key in enumerate(distinct)}
    return distinct, np.array([place[key] for key in given], dtype=np.int64)
