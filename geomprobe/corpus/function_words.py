"""Closed-class words by category, one list a language, kept as text in `geomprobe/data/function_words`.

A language without a list gets its most frequent words instead.
"""

import unicodedata
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from itertools import islice
from types import MappingProxyType

import wordfreq

from geomprobe.errors import InvalidParameter, unknown_name
from geomprobe.labels import CLOSED_CLASSES

N_APPROXIMATE = 120  # more words raise recall and lower precision (docs/function-words.md has figures)
APPROXIMATE_CLASS = "particle"
# What wordfreq counts in these are pieces that packages of their own cut, not words as they stand in a text.
WITHOUT_WORDS = ("ja", "ko", "zh")


@lru_cache
def languages() -> tuple[str, ...]:
    """The languages that have a list, as two-letter codes in alphabetical order."""
    folder = files("geomprobe") / "data" / "function_words"
    return tuple(sorted(entry.name.removesuffix(".txt") for entry in folder.iterdir() if entry.name.endswith(".txt")))


def is_approximate(language: str) -> bool:
    """Whether a language has no list, so that its most frequent words stand in for its function words."""
    return language not in languages()


@lru_cache
def function_words(language: str = "en") -> Mapping[str, str]:
    """The function words of a language.

    Parameters
    ----------
    language : str
        A language code: one of `languages()`, which have a list, or another that wordfreq has.

    Returns
    -------
    Mapping[str, str]
        From the form in lower case, with the straight apostrophe, to its category, one of `labels.CLOSED_CLASSES`;
        read-only. Without a list (`is_approximate`) the most frequent words of the language, all `particle`.

    Raises
    ------
    InvalidParameter
        Where the language has no list and wordfreq has no words of it.
    """
    if is_approximate(language):
        return MappingProxyType(dict.fromkeys(most_frequent(language), APPROXIMATE_CLASS))
    text = (files("geomprobe") / "data" / "function_words" / f"{language}.txt").read_text(encoding="utf-8")
    return MappingProxyType(parse(text))


def most_frequent(language: str, n: int = N_APPROXIMATE) -> tuple[str, ...]:
    """The n most frequent words of a language, of those that are letters only, the most frequent first.

    Parameters
    ----------
    language : str
        A language code that wordfreq has.
    n : int

    Raises
    ------
    InvalidParameter
        Where wordfreq has no words of the language.
    """
    counted = set(wordfreq.available_languages()).difference(WITHOUT_WORDS)
    if language not in counted:
        raise InvalidParameter(unknown_name("language", language, counted.union(languages())))
    return tuple(islice((word for word in wordfreq.iter_wordlist(language) if _is_of_letters(word)), n))


def _is_of_letters(word: str) -> bool:
    return all(unicodedata.category(char)[0] in "LM" for char in word)  # with marks, as vowels are in Hindi


def parse(text: str) -> dict[str, str]:
    """Read lines `category: form form …`; `#` starts a comment line, a category may take several lines.

    Raises
    ------
    ValueError
        For a category outside the vocabulary or a form given twice: the packaged list is damaged.
    """
    category_of: dict[str, str] = {}
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        category, _, forms = line.partition(":")
        if category not in CLOSED_CLASSES:
            raise ValueError(f"{category!r} is no closed class; the line is {line!r}.")
        for form in forms.split():
            if form in category_of:
                raise ValueError(f"{form!r} stands twice: under {category_of[form]} and under {category}.")
            category_of[form] = category
    return category_of
