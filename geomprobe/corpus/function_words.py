"""Closed-class words by category, one list a language, kept as text in `geomprobe/data/function_words`."""

from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from types import MappingProxyType

from geomprobe.errors import InvalidParameter, unknown_name
from geomprobe.labels import CLOSED_CLASSES


def languages() -> tuple[str, ...]:
    """The languages that have a list, as two-letter codes in alphabetical order."""
    folder = files("geomprobe") / "data" / "function_words"
    return tuple(sorted(entry.name.removesuffix(".txt") for entry in folder.iterdir() if entry.name.endswith(".txt")))


@lru_cache
def function_words(language: str = "en") -> Mapping[str, str]:
    """The function words of a language.

    Parameters
    ----------
    language : str
        Two-letter code; `languages()` names those that have a list.

    Returns
    -------
    Mapping[str, str]
        From the form in lower case, with the straight apostrophe, to its category, one of `labels.CLOSED_CLASSES`;
        read-only.

    Raises
    ------
    InvalidParameter
        Where the language has no list.
    """
    if language not in languages():
        raise InvalidParameter(unknown_name("language", language, languages()))
    text = (files("geomprobe") / "data" / "function_words" / f"{language}.txt").read_text(encoding="utf-8")
    return MappingProxyType(parse(text))


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
