"""Values inside a page: rows and charts as JSON that no text in them can break out of."""

import json
import math
import unicodedata
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
from markupsafe import Markup

from geomprobe.tables import code_point

MOST_ROWS: Final = 5_000  # of one figure that a page holds
DIGITS: Final = 6
# What would end the element, or a line of the script, is written by its number.
_WRITTEN_OUT: Final = str.maketrans({c: f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"})


@dataclass(frozen=True)
class PageData:
    """The rows behind a figure, as a page holds them.

    Attributes
    ----------
    file : str
        What they are called when they are saved, without ending.
    n_rows : int
        All there are.
    n_held : int
        How many of them, from the first on, the page holds.
    block : Markup
        JSON: {rows, columns: [{name, values}]}; text is {name, labels, values} with an index into the labels, −1 for
        none.
    """

    file: str
    n_rows: int
    n_held: int
    block: Markup


def page_data(file: str, frame: pd.DataFrame, most: int = MOST_ROWS) -> PageData:
    """A frame's first rows, column by column, numbers with six significant digits.

    Parameters
    ----------
    file : str
        What the rows are called when they are saved, without ending.
    frame : DataFrame
        Tidy; its index is left out.
    most : int
        Rows that are kept.
    """
    held = frame.head(most)
    columns = [_column(str(name), held[name]) for name in held]
    return PageData(file, len(frame), len(held), json_block({"rows": len(held), "columns": columns}))


def json_block(value: Any) -> Markup:
    """A value for a script element of type application/json: whatever its texts are, it stays inside."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return Markup(text.translate(_WRITTEN_OUT))  # what would end the element is written out


def rounded(value: float) -> float | int | None:
    """A number with six significant digits; None where it is not finite."""
    if not math.isfinite(value):
        return None
    short = float(f"{value:.{DIGITS}g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


def numbers(values: Any) -> list[float | int | None]:
    """The same for many."""
    return [rounded(value) for value in np.asarray(values, dtype=float).tolist()]


def plain(text: str) -> str:
    """Text in which what has no shape, or turns its neighbours around, is spelled out."""
    return "".join(code_point(c) if unicodedata.category(c) in _ODD else c for c in text)


_ODD: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def _column(name: str, values: pd.Series) -> dict[str, Any]:
    if pd.api.types.is_bool_dtype(values) or not pd.api.types.is_numeric_dtype(values):
        codes, labels = pd.factorize(values)
        return {"name": name, "labels": [plain(str(label)) for label in labels], "values": codes.tolist()}
    if pd.api.types.is_integer_dtype(values):
        return {"name": name, "values": values.tolist()}
    return {"name": name, "values": numbers(values)}
