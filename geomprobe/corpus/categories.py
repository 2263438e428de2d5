"""Nouns by meaning (animals, vehicles, virtues …): a packaged list a language, or a file of one's own."""

from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from os import PathLike
from pathlib import Path
from types import MappingProxyType

from geomprobe.corpus.sources import clean, read_utf8
from geomprobe.errors import InvalidParameter, unknown_name

MIN_CATEGORIES = 2


def languages() -> tuple[str, ...]:
    """The languages that have a packaged list, as two-letter codes in alphabetical order."""
    folder = files("geomprobe") / "data" / "categories"
    return tuple(sorted(entry.name.removesuffix(".txt") for entry in folder.iterdir() if entry.name.endswith(".txt")))


@lru_cache
def packaged(language: str = "en") -> Mapping[str, tuple[str, ...]]:
    """The packaged categories of a language.

    Parameters
    ----------
    language : str
        Two-letter code; `languages()` names those that have a list.

    Returns
    -------
    Mapping[str, tuple[str, ...]]
        From the category to its words, both in the order of the list; read-only.

    Raises
    ------
    InvalidParameter
        Where the language has no packaged list.
    """
    if language not in languages():
        raise InvalidParameter(
            f"{unknown_name('language', language, languages())} Give a file of categories with --categories."
        )
    text = (files("geomprobe") / "data" / "categories" / f"{language}.txt").read_text(encoding="utf-8")
    return parse(clean(text), f"the packaged categories {language!r}")


def read_categories(path: str | PathLike[str]) -> Mapping[str, tuple[str, ...]]:
    """Read categories of one's own, in any language.

    Parameters
    ----------
    path : path
        A UTF-8 file of the form that `parse` reads.

    Returns
    -------
    Mapping[str, tuple[str, ...]]
        From the category to its words, both in the order of the file and as they are written; read-only.

    Raises
    ------
    CorpusError
        Where the file cannot be read, is not UTF-8 or is empty.
    InvalidParameter
        Where the file has not the form that `parse` reads.
    """
    return parse(read_utf8(Path(path)), f"the file {str(path)!r}")


def parse(text: str, origin: str) -> Mapping[str, tuple[str, ...]]:
    """Read lines `category: word word …`, one a category; `#` starts a comment line, empty lines are passed over.

    Parameters
    ----------
    text : str
        The lines; words are parted by white space, upper and lower case count as different.
    origin : str
        Where the text is from, as errors name it.

    Returns
    -------
    Mapping[str, tuple[str, ...]]
        From the category to its words, in the order of the lines; read-only.

    Raises
    ------
    InvalidParameter
        Where a line has no colon, no name before it or no word after it, where a category or a word stands twice, or
        where there are fewer than two categories.
    """
    categories: dict[str, tuple[str, ...]] = {}
    category_of: dict[str, str] = {}
    lines = text.removesuffix("\n").split("\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        category, words = _split(line, f"line {number} of {origin}")
        if category in categories:
            raise InvalidParameter(
                f"A category must stand on one line; {category!r} stands a second time on line {number} of {origin}."
            )
        for word in words:
            if word in category_of:
                raise InvalidParameter(
                    f"A word must stand once, in one category; {word!r} on line {number} of {origin} stands under "
                    f"{category!r} and under {category_of[word]!r}."
                )
            category_of[word] = category
        categories[category] = words
    if len(categories) < MIN_CATEGORIES:
        raise InvalidParameter(
            f"There must be at least {MIN_CATEGORIES} categories; got {len(categories)} on lines 1 to {len(lines)} "
            f"of {origin}."
        )
    return MappingProxyType(categories)


def _split(line: str, place: str) -> tuple[str, tuple[str, ...]]:
    """The category and the words of a line; `place` says in errors which line it is."""
    name, colon, rest = line.partition(":")
    category, words = name.strip(), tuple(rest.split())
    if not colon or not category:
        raise InvalidParameter(f"A category must be written 'name: word word …'; got {line.strip()!r} on {place}.")
    if not words:
        raise InvalidParameter(f"A category must have at least one word; {category!r} has none on {place}.")
    return category, words
