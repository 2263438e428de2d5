"""Rows and values inside a page: short, whole, and never markup."""

import json
import math

import numpy as np
import pandas as pd
import pytest

from geomprobe.pages.embedding import json_block, page_data, plain, rounded


def read(frame: pd.DataFrame, **options) -> dict:
    return json.loads(page_data("file", frame, **options).block)


def test_columns() -> None:
    frame = pd.DataFrame(
        {
            "layer": [0, 1, 2],
            "value": [0.123456789, math.nan, math.inf],
            "token_class": ["a", "b", "a"],
            "first": [True, False, True],
            "word": ["x", None, "y"],
        },
        index=[7, 8, 9],
    )
    assert read(frame) == {
        "rows": 3,
        "columns": [
            {"name": "layer", "values": [0, 1, 2]},
            {"name": "value", "values": [0.123457, None, None]},
            {"name": "token_class", "labels": ["a", "b"], "values": [0, 1, 0]},
            {"name": "first", "labels": ["True", "False"], "values": [0, 1, 0]},
            {"name": "word", "labels": ["x", "y"], "values": [0, -1, 1]},
        ],
    }


def test_no_rows() -> None:
    made = page_data("file", pd.DataFrame({"layer": [], "word": np.array([], dtype=object)}))
    assert (made.n_rows, made.n_held) == (0, 0)
    assert json.loads(made.block)["rows"] == 0


def test_first_rows_are_held_and_all_are_counted() -> None:
    made = page_data("file", pd.DataFrame({"layer": range(100)}), most=10)
    assert (made.n_rows, made.n_held) == (100, 10)
    assert json.loads(made.block)["columns"][0]["values"] == list(range(10))


@pytest.mark.parametrize(
    ("value", "short"),
    [(0.0, 0), (1e-9, 1e-9), (123456.7, 123457), (-2.5000001, -2.5), (1e20, 1e20), (math.nan, None), (-math.inf, None)],
)
def test_rounded(value, short) -> None:
    assert rounded(value) == short


def test_nothing_breaks_out() -> None:
    hostile = "</script><script>alert(1)</script><!-- & \u2028\u2029"
    block = json_block({"token": hostile})
    assert not set("<>&\u2028\u2029") & set(block)
    assert json.loads(block)["token"] == hostile


def test_what_has_no_shape_is_spelled_out() -> None:
    assert plain("a\u202eb\x07 \u05e9") == "a\\u202eb\\u0007 \u05e9"
    assert read(pd.DataFrame({"token": ["\u2066x\u2069"]}))["columns"][0]["labels"] == ["\\u2066x\\u2069"]
