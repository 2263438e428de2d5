"""From plain text, with tokens between isolates, to HTML and Markdown."""

import re
from collections.abc import Callable

from markupsafe import Markup, escape

from geomprobe.pages.wording import CLOSE, OPEN

_TOKEN = re.compile(f"{OPEN}([^{CLOSE}]*){CLOSE}")
_BRACKETS = re.compile(r"(\([^()]*\))")
_SPECIAL = re.compile(r"([\\`*_\[\]|#])")


def html(text: str) -> Markup:
    """Escaped text; a token becomes code in an element of its own direction."""
    return _html(text, escape)


def sentence(text: str) -> Markup:
    """The same for running text: what stands in brackets is set back, and "n = 5" is not broken over lines."""
    return _html(text, _set_back)


def _html(text: str, plain: Callable[[str], Markup]) -> Markup:
    parts = _TOKEN.split(text)  # text, token, text, token, … text
    return Markup("").join(
        Markup("<bdi><code>{}</code></bdi>").format(part) if index % 2 else plain(part)
        for index, part in enumerate(parts)
    )


def _set_back(text: str) -> Markup:
    parts = _BRACKETS.split(text.replace("n = ", "n\u00a0=\u00a0"))
    return Markup("").join(
        Markup('<span class="aside">{}</span>').format(part) if index % 2 else escape(part)
        for index, part in enumerate(parts)
    )


def markdown(text: str) -> str:
    """Text in which nothing is taken for markup; a token becomes a code span, still isolated."""
    parts = _TOKEN.split(text)
    return "".join(f"{OPEN}{_span(part)}{CLOSE}" if index % 2 else _plain(part) for index, part in enumerate(parts))


def markdown_cell(text: str) -> str:
    """The same for a cell of a table, where a bar is escaped in code as well."""
    parts = _TOKEN.split(text)
    return "".join(
        f"{OPEN}{_span(part.replace('|', chr(92) + '|'))}{CLOSE}" if index % 2 else _plain(part)
        for index, part in enumerate(parts)
    )


def _plain(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _span(token: str) -> str:
    longest = max((len(run) for run in re.findall("`+", token)), default=0)
    fence = "`" * (longest + 1)
    space = " " if longest else ""
    return f"{fence}{space}{token}{space}{fence}"
