"""Errors of other libraries, cut to what can stand inside one of our sentences."""

from typing import Final

_LONGEST: Final = 240


def in_brief(error: BaseException) -> str:
    """An error's message on one line, not too long and without a full stop; its type where it says nothing."""
    said = " ".join(str(error).split())
    if len(said) > _LONGEST:
        return f"{said[:_LONGEST].rstrip()} …"
    return said.rstrip(".:") or type(error).__name__
