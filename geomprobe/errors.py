"""What geomprobe raises when the caller can act on it; anything else is a bug and stays a traceback."""

from collections.abc import Iterable
from difflib import get_close_matches


class GeomprobeError(Exception):
    """Base of the errors that the command line prints as one line, exit code 2."""


class InvalidParameter(GeomprobeError, ValueError):
    """A parameter has a value outside its domain."""


class ModelNotFound(GeomprobeError):
    """No checkpoint can be had under that name: unknown, gated, damaged or out of reach."""


class UnsupportedModel(GeomprobeError):
    """The model's attention cannot be observed."""


class ParityError(GeomprobeError):
    """What was captured does not reproduce the model's own attention."""


class CorpusError(GeomprobeError):
    """A text cannot be read, or is too short for the windows that were asked for."""


class RunError(GeomprobeError):
    """A run folder is missing, unfinished, damaged or in the way."""


def one_of(name: str, value: object, options: Iterable[object]) -> None:
    """Raise InvalidParameter unless `value` is among `options`; the message lists them all."""
    known = tuple(options)
    if value not in known:
        raise InvalidParameter(f"{name} must be one of {', '.join(map(repr, known))}; got {value!r}.")


def at_least(name: str, value: float, low: float) -> None:
    """Raise InvalidParameter unless `value >= low`."""
    if not value >= low:
        raise InvalidParameter(f"{name} must be at least {low}; got {value!r}.")


def between(name: str, value: float, low: float, high: float) -> None:
    """Raise InvalidParameter unless `low <= value <= high`."""
    if not low <= value <= high:
        raise InvalidParameter(f"{name} must be between {low} and {high}; got {value!r}.")


def did_you_mean(value: str, known: Iterable[str]) -> str:
    """A hint that starts with a space, or nothing where no known name is near."""
    near = get_close_matches(value, list(known), n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def unknown_name(kind: str, value: str, known: Iterable[str]) -> str:
    """One sentence for a name that is not known: the nearest one, and all of them."""
    names = sorted(known)
    return f"Unknown {kind} {value!r}.{did_you_mean(value, names)} Known: {', '.join(names)}."
