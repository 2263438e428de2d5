"""Numbers, lists and tokens as a page writes them."""

import math
from collections.abc import Iterable, Sequence

from geomprobe.tables import visible

# A token stands between these two (first strong isolate, pop): its direction cannot turn the sentence around, and a
# page finds it and sets it as code. `visible` spells out such characters in the token itself.
OPEN, CLOSE = "\u2068", "\u2069"
NOTHING = "–"
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def number(value: float) -> str:
    """Three significant digits, thousands with commas, 2×10⁻⁷ for what is below .001; – for NaN."""
    if math.isnan(value):
        return NOTHING
    if value == 0:
        return "0"
    if abs(value) < 1e-3:
        mantissa, exponent = f"{value:.1e}".split("e")
        return f"{mantissa.removesuffix('.0')}×10{str(int(exponent)).translate(_RAISED)}".replace("-", "−")
    text = f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:#.3g}".removesuffix(".")
    return text.replace("-", "−")


def signed(value: float) -> str:
    """Two decimals with a sign; – for NaN."""
    if math.isnan(value):
        return NOTHING
    text = f"{value:+.2f}"
    return "0.00" if text[1:] == "0.00" else text.replace("-", "−")


def change(value: float) -> str:
    """`number` with a sign, for what may be small: +0.0123, −2×10⁻⁷."""
    text = number(value)
    return text if text in (NOTHING, "0") or text.startswith("−") else f"+{text}"


def percent(value: float) -> str:
    """A share as a percentage with one decimal; – for NaN."""
    return NOTHING if math.isnan(value) else f"{100 * value:.1f}%".replace("-", "−")


def listing(parts: Sequence[str]) -> str:
    """One, two and three: "a", "a and b", "a, b and c"."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def ranges(numbers: Iterable[int]) -> str:
    """Whole numbers in words, neighbours joined: "0–3, 5 and 9"."""
    runs: list[list[int]] = []
    for value in sorted(numbers):
        if runs and value == runs[-1][1] + 1:
            runs[-1][1] = value
        else:
            runs.append([value, value])
    return listing([str(low) if low == high else f"{low}–{high}" for low, high in runs])


def isolated(token: str) -> str:
    """A token, made visible, between the marks that keep it apart."""
    return f"{OPEN}{visible(token)}{CLOSE}"


def coded(name: str) -> str:
    """A name as it is typed, set as code."""
    return f"{OPEN}{name}{CLOSE}"
