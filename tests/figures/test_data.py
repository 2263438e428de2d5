"""The rows behind a figure: there where the figure is, tidy, in the words of the schema."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from geomprobe import tables
from geomprobe.figures.catalogue import FIGURES, figures_of
from tests.synthetic_edits import write_synthetic_edits
from tests.synthetic_run import write_synthetic_run

SCHEMA = Path(__file__).parents[2] / "docs" / "schema.md"
# What figures make of tables: medians and quartiles over heads, totals over layers, which layers these are.
MADE = {"median", "q25", "q75", "quantity", "layers", "n_heads", "n_layers", "layer_low", "layer_high", "top_rate"}
MADE |= {"low", "high", "norm_share", "rate"}


@pytest.mark.parametrize("kind", ["plain", "normed"])
@pytest.mark.parametrize("name", [name for name in FIGURES if FIGURES[name].kind == tables.ANALYSIS])
def test_rows_of_a_figure(name, kind, request) -> None:
    run = request.getfixturevalue(kind)
    if FIGURES[name].missing(run) is None:
        check(FIGURES[name].data(run))


def test_rows_of_figures_of_edits(tmp_path) -> None:
    run = write_synthetic_edits(tmp_path)
    for name in figures_of(run):
        check(FIGURES[name].data(run))


def check(data: pd.DataFrame) -> None:
    known = set(re.findall(r"\w+", SCHEMA.read_text(encoding="utf-8"))) | MADE
    assert len(data)
    assert len(set(data.columns)) == len(data.columns)
    assert set(data.columns) <= known, set(data.columns) - known
    for column in data:
        assert np.ndim(data[column].iloc[0]) == 0  # a value, not a list


def test_a_single_layer(tmp_path) -> None:
    run = write_synthetic_run(tmp_path, qk_norm=True, n_layers=1, q_heads=1, kv_heads=1)
    for name in figures_of(run):
        assert isinstance(FIGURES[name].data(run), pd.DataFrame)


def test_lengths_are_the_rows_that_are_drawn(plain) -> None:
    data = FIGURES["key_lengths"].data(plain)
    assert set(data["token_class"]) == {"content", "function", "punctuation", "first"}
    table = plain.tables["norms"]
    row = data[(data["token_class"] == "content") & (data["layer"] == 3) & (data["head"] == 1)].iloc[0]
    due = table[
        (table["vector"] == "k")
        & (table["stage"] == "scored")
        & (table["token_class"] == "content")
        & (table["layer"] == 3)
        & (table["head"] == 1)
    ].iloc[0]
    assert row["p50"] == due["p50"]
