"""Pseudo-rare words: some occurrences of a frequent word get a token of their own, so that its meaning is known."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from geomprobe.corpus.function_words import function_words
from geomprobe.errors import CorpusError

HALF: Final = 0.5
RARE_DECILE: Final = 0.1
AT_LEAST: Final = 20.0  # a parent stands this many times as often as a word of the rarest decile
SEED: Final = 0


@dataclass(frozen=True)
class Renamed:
    """A word of which some occurrences go by another token.

    Attributes
    ----------
    parent : str
        The word.
    parent_id, new_id : int
    written : str
        How the new token is shown.
    share : float
        Of the parent's occurrences: a half, or as many as a word of the rarest decile has.
    rare : bool
        Whether it is the latter.
    """

    parent: str
    parent_id: int
    new_id: int
    written: str
    share: float
    rare: bool


def rename(streams: Mapping[str, npt.NDArray[np.uint16]], tokenizer: Any, n_words: int) -> tuple[Renamed, ...]:
    """Give some occurrences of n_words frequent words a new token, in place.

    Every second of the chosen words loses half of its occurrences, every other as many as a word of the rarest decile
    of the vocabulary's whole words has. They are chosen evenly over the ranks of frequency, among content words of
    three letters at least. Where letters go on in the next token, it is the beginning of a longer word: that neither
    counts nor is renamed.

    Parameters
    ----------
    streams : mapping of str to ndarray (token,)
        Of which "train" decides the frequencies.
    tokenizer : tokenizers.Tokenizer
        New tokens get the ids behind its own.
    n_words : int

    Raises
    ------
    CorpusError
        Where there are not so many frequent words.
    """
    whole = {name: stands_alone(ids, tokenizer) for name, ids in streams.items()}
    counts = np.bincount(streams["train"][whole["train"]], minlength=tokenizer.get_vocab_size())
    closed = set(function_words("en"))
    words = {
        index: token[1:]
        for token, index in tokenizer.get_vocab().items()
        if token.startswith("Ġ") and len(token) > 3 and token[1:].isalpha() and token[1:].isascii()
    }
    seen = np.array(sorted(counts[index] for index in words if counts[index]))
    rare = float(np.median(seen[: max(1, int(len(seen) * RARE_DECILE))])) if len(seen) else 0.0
    fitting = [
        index
        for index, word in words.items()
        if word.islower() and word not in closed and counts[index] >= AT_LEAST * rare
    ]
    fitting.sort(key=lambda index: (-counts[index], index))
    if len(fitting) < n_words:
        raise CorpusError(
            f"Only {len(fitting)} words are frequent enough to be renamed in part, {n_words} are asked for; "
            "give a smaller --rename."
        )
    chosen = [fitting[rank] for rank in np.linspace(0, len(fitting) - 1, n_words).round().astype(int)]
    first = tokenizer.get_vocab_size()
    renamed = []
    for number, parent in enumerate(chosen):
        is_rare = number % 2 == 1
        share = rare / counts[parent] if is_rare else HALF
        word = words[parent]
        renamed.append(Renamed(word, parent, first + number, f" {word}~", float(share), is_rare))
    rng = np.random.default_rng(SEED)
    for name, ids in streams.items():
        for word in renamed:
            at = np.flatnonzero((ids == word.parent_id) & whole[name])
            ids[at[rng.random(len(at)) < word.share]] = word.new_id
    return tuple(renamed)


def stands_alone(ids: npt.NDArray[np.uint16], tokenizer: Any) -> npt.NDArray[np.bool_]:
    """Where the next token does not go on with letters: (token,). Ids behind the tokenizer's own are whole words."""
    letters = np.zeros(max(tokenizer.get_vocab_size(), int(ids.max()) + 1 if len(ids) else 0), dtype=bool)
    for token, index in tokenizer.get_vocab().items():
        letters[index] = token[0].isascii() and token[0].isalpha()
    return ~np.append(letters[ids[1:]], False)  # (token,)
