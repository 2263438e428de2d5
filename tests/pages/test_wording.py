"""Numbers, lists and tokens in words."""

import math

import pytest

from geomprobe.pages.wording import isolated, listing, number, percent, ranges, signed
from geomprobe.tables import count


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (math.nan, "–"),
        (0, "0"),
        (0.18249, "0.182"),
        (-2.5, "−2.50"),
        (12345.6, "12,346"),
        (6e-7, "6×10⁻⁷"),
        (-1.25e-12, "−1.2×10⁻¹²"),
        (1e-4, "1×10⁻⁴"),
        (999.7, "1,000"),
        (1, "1.00"),
        (135.2, "135"),
    ],
)
def test_number(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(math.nan, "–"), (0.425, "+0.42"), (-1.5, "−1.50"), (-0.001, "0.00"), (0, "0.00")]
)
def test_signed(value: float, text: str) -> None:
    assert signed(value) == text


@pytest.mark.parametrize(("value", "text"), [(math.nan, "–"), (0.3614, "36.1%"), (-0.02, "−2.0%"), (1, "100.0%")])
def test_percent(value: float, text: str) -> None:
    assert percent(value) == text


def test_count() -> None:
    assert [count(n, "head") for n in (0, 1, 1200)] == ["0 heads", "1 head", "1,200 heads"]
    assert count(2, "query", "queries") == "2 queries"


def test_listing() -> None:
    assert [listing(list("abc")[:n]) for n in (1, 2, 3)] == ["a", "a and b", "a, b and c"]


def test_ranges() -> None:
    assert ranges([9, 0, 1, 2, 3, 5]) == "0–3, 5 and 9"


def test_isolated() -> None:
    assert isolated(" a\u2069b") == "\u2068␣a\\u2069b\u2069"
