"""How frequent a word is, on wordfreq's Zipf scale, and the three bands that reports speak of."""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import wordfreq

from geomprobe.errors import InvalidParameter, unknown_name
from geomprobe.labels import RARITY_BANDS

RARE_BELOW = 3.0
FREQUENT_ABOVE = 5.0


def zipf(words: Iterable[str], language: str = "en") -> npt.NDArray[np.float64]:
    """Zipf frequencies of words.

    Parameters
    ----------
    words : iterable of str
        n words, in any case.
    language : str
        A language code that wordfreq has.

    Returns
    -------
    ndarray, (n,) float64
        log10 of the occurrences in a billion words; NaN where wordfreq knows nothing (punctuation, white space, made-up
        words).

    Raises
    ------
    InvalidParameter
        Where wordfreq has no such language.
    """
    if language not in wordfreq.available_languages():
        raise InvalidParameter(unknown_name("language", language, wordfreq.available_languages()))
    values = np.array([wordfreq.zipf_frequency(word, language) for word in words], dtype=np.float64)
    values[values == 0.0] = np.nan
    return values


def band(value: float) -> str | None:
    """The rarity band of a Zipf frequency: rare below 3, frequent above 5, mid between; None for NaN."""
    rare, mid, frequent = RARITY_BANDS
    if np.isnan(value):
        return None
    if value < RARE_BELOW:
        return rare
    return frequent if value > FREQUENT_ABOVE else mid
