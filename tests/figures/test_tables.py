"""Shaping of tables against numbers worked out by hand."""

import math

import numpy as np
import pandas as pd
import pytest

from geomprobe import tables
from geomprobe.run.reading import Run
from tests.synthetic_run import rewrite, write_synthetic_run


@pytest.mark.parametrize(
    ("n_layers", "parts"), [(1, [[0]]), (2, [[0, 1]]), (3, [[0], [1], [2]]), (7, [[0, 1, 2], [3, 4], [5, 6]])]
)
def test_thirds(n_layers, parts, tmp_path) -> None:
    run = write_synthetic_run(tmp_path, qk_norm=False, n_layers=n_layers, q_heads=1, kv_heads=1)
    assert tables.thirds(run) == parts


def test_windows_that_hide_nothing_do_not_bind(normed: Run) -> None:
    assert tables.binding_windows(normed) == {0: 24, 1: 24, 3: 24, 4: 24}
    assert tables.full_layers(normed) == [2, 5]


def test_windows_as_long_as_the_text(tmp_path) -> None:
    run = rewrite(write_synthetic_run(tmp_path, qk_norm=True, n_layers=2), anatomy={"window": 64})
    assert tables.binding_windows(run) == {}
    assert tables.full_layers(run) == []


@pytest.mark.parametrize(("length", "value"), [(64, 3.635), (512, 5.354), (2048, 6.664)])
def test_uniform_entropy(length: int, value: float) -> None:
    assert tables.uniform_entropy(length) == pytest.approx(value, abs=5e-4)


def test_uniform_entropy_of_no_rows() -> None:
    assert math.isnan(tables.uniform_entropy(16))


def test_over_heads_skips_nan() -> None:
    frame = pd.DataFrame({"layer": [0, 0, 0, 1], "x": [1.0, 3.0, np.nan, np.nan]})
    shaped = tables.over_heads(frame, "x")
    assert shaped.loc[0].to_dict() == {"n": 2, "min": 1, "q25": 1.5, "median": 2, "q75": 2.5, "max": 3, "mean": 2}
    assert shaped.loc[1, "n"] == 0
    assert shaped.loc[1].drop("n").isna().all()


def test_sink_token_totals(tmp_path) -> None:
    run = write_synthetic_run(tmp_path, qk_norm=False, n_layers=1)
    rows = [(0, 0, 7, "article", "the", 10, 4, 0.2), (3, 1, 7, "article", "the", 10, 1, 0.1)]
    rows += [(1, 0, 8, "punctuation", ".", 2, 2, 0.9)]
    run = rewrite(run, sink_tokens=pd.DataFrame(rows, columns=run.tables["sink_tokens"].columns))
    totals = tables.sink_token_totals(run).to_dict("records")
    assert [row["token"] for row in totals] == ["the", "."]
    assert totals[0] | {"n_sink": 5, "n_seen": 20, "n_heads": 2, "n_layers": 2, "layer_low": 0} == totals[0]
    assert totals[0] | {"layer_high": 3, "top_rate": 0.4, "rate": 0.25} == totals[0]


def test_layer_sink_tokens(tmp_path) -> None:
    run = write_synthetic_run(tmp_path, qk_norm=False, n_layers=1)
    rows = [(0, 0, 7, "article", "the", 10, 4, 0.2), (0, 1, 7, "article", "the", 10, 1, 0.1)]
    rows += [(0, 0, 8, "punctuation", ".", 9, 4, 0.9), (0, 0, 5, "content", "a", 9, 4, 0.9)]
    run = rewrite(run, sink_tokens=pd.DataFrame(rows, columns=run.tables["sink_tokens"].columns))
    assert tables.layer_sink_tokens(run, 0) == ["the", "a", "."]
    assert tables.layer_sink_tokens(run, 0, most=1) == ["the"]
    assert tables.layer_sink_tokens(run, 1) == []


def test_type_spread(tmp_path) -> None:
    run = write_synthetic_run(tmp_path, qk_norm=False, n_layers=1)
    columns = ["layer", "type", "token_class", "document", "n_sink", "lambda"]
    rows = [(0, "a", "content", 0, 3, 1.0), (0, "a", "content", 1, 3, 3.0), (0, "b", "content", 0, 5, 0.0)]
    rows += [(0, "rare", "content", 0, 4, 9.0), (0, "the", "article", 0, 9, 9.0), (1, "b", "content", 0, 9, 9.0)]
    run = rewrite(run, type_stats=pd.DataFrame(rows, columns=columns))
    assert tables.type_spread(run, [0]) == (1.0, 2)  # 2 and 0: a's mean of two documents, b; rare has four tokens


def test_document_interval(tmp_path) -> None:
    run = write_synthetic_run(tmp_path, qk_norm=False, n_layers=1)
    rng = np.random.default_rng(5)
    values = rng.normal(0.4, 0.1, 400)
    frame = pd.DataFrame({"layer": -1, "document": range(400), "n_rows": 10, "first_mass": values})
    run = rewrite(run, document_stats=frame)
    low, high, n = tables.document_interval(run, "first_mass")
    half = 1.96 * values.std() / math.sqrt(400)
    assert (low, high) == pytest.approx((values.mean() - half, values.mean() + half), abs=half / 8)
    assert n == 400
    run = rewrite(run, document_stats=frame[:4])
    assert math.isnan(tables.document_interval(run, "first_mass")[0])


def test_layer_summary(plain: Run) -> None:
    summary = tables.layer_summary(plain)
    norms, sinks = plain.tables["norms"], plain.tables["sinks"]
    keys = norms[(norms["vector"] == "k") & (norms["stage"] == "scored") & (norms["layer"] == 2)]
    assert summary.loc[2, "k_length"] == np.median(keys[keys["token_class"] == "all"]["p50"])
    assert summary.loc[2, "k_first"] == np.median(keys[keys["token_class"] == "first"]["p50"])
    assert summary.loc[2, "first_mass"] == pytest.approx(sinks[sinks["layer"] == 2]["first_mass"].mean())
    assert summary["window"].isna().all()


def test_class_summary(plain: Run) -> None:
    summary = tables.class_summary(plain)
    table = plain.tables["class_attention"]
    late = table[(table["token_class"] == "article") & table["layer"].isin([4, 5])]
    assert summary.loc["article", "class_sink_2"] == np.median(late["class_sink"])
    assert summary.loc["article", "n_types"] == 3
    assert "special" not in summary.index
