"""A finding: a sentence about a run, with the table and the numbers that it is made of."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Finding:
    """One or two sentences of the opening paragraphs.

    Attributes
    ----------
    topic : str
        The paragraph it stands in.
    text : str
        The sentence; tokens stand between the marks of `wording.isolated`.
    table : str
        The table (or "manifest") that its numbers come from.
    values : mapping
        Name → number, unrounded.
    """

    topic: str
    text: str
    table: str
    values: Mapping[str, float] = field(default_factory=dict)


def known(*values: float) -> bool:
    """Whether all of these are numbers, so that a sentence can be made of them."""
    return not any(math.isnan(value) for value in values)
