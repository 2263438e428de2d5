"""Pieces of Markdown: tables, code and text that shows every character as it is."""

from collections.abc import Iterable, Sequence


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; the cells are Markdown already."""
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def plain(text: str) -> str:
    """Words in which nothing is taken for markup; code between backticks stays code."""
    parts = " ".join(text.split()).split("`")
    parts[::2] = [_escaped(part) for part in parts[::2]]
    return "`".join(parts).replace("|", "\\|")


def code(text: str) -> str:
    """A word as code."""
    return f"`{text}`".replace("|", "\\|")


def _escaped(part: str) -> str:
    for sign in "\\*_[]":
        part = part.replace(sign, f"\\{sign}")
    return part.replace("<", "&lt;")
