"""Tokens as text that can be seen."""

import pytest

from geomprobe.figures.glyphs import drawable
from geomprobe.tables import visible


@pytest.mark.parametrize(
    ("token", "shown"),
    [
        (" the", "␣the"),
        ("\n", "\\n"),
        ("\\n", "\\\\n"),
        ("\t\r", "\\t\\r"),
        ("", "(empty)"),
        ("\u202eabc", "\\u202eabc"),
        ("\u2068x\u2069", "\\u2068x\\u2069"),
        ("\x07", "\\u0007"),
        ("\u00a0", "\\u00a0"),
        ("\u0301", "\\u0301"),
        ("e\u0301", "e\u0301"),
        ("\U000e0001", "\\U000e0001"),
        ("\u05e9", "\u05e9"),
        ("a" * 24, "a" * 24),
        ("a" * 25, "a" * 23 + "…"),
    ],
)
def test_visible(token: str, shown: str) -> None:
    assert visible(token) == shown


def test_drawable_spells_out_what_the_font_lacks() -> None:
    assert drawable("\u6f22a\U0001f642") == "\\u6f22a\\U0001f642"
    assert drawable("\u05e9\u03b5") == "\u05e9\u03b5"
