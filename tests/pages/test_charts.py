"""Interactive charts: the numbers of the tables, in plain JSON, with text that is only text."""

import json
import re

import numpy as np
import plotly.graph_objects as go
import pytest

from geomprobe import tables
from geomprobe.pages.chart_style import block_of, head_text, new_chart, shown, veil
from geomprobe.pages.charts import CHARTS, chart_block
from geomprobe.run.reading import Run
from tests.synthetic_run import rewrite, write_synthetic_run


def read(name: str, run: Run) -> dict:
    return json.loads(chart_block(name, run))


def traces(chart: dict, group: str) -> list[dict]:
    return [trace for trace in chart["data"] if trace.get("legendgroup") == group]


@pytest.mark.parametrize("kind", ["plain", "normed"])
@pytest.mark.parametrize("name", CHARTS)
def test_is_a_chart_of_plotly(name, kind, request) -> None:
    run = request.getfixturevalue(kind)
    chart = read(name, run)
    go.Figure(chart)  # refuses what plotly does not know
    assert "template" not in chart["layout"]
    text = json.dumps(chart)
    assert not re.search(r"\bnan\b|bdata", text)
    assert len(text) < 400_000
    for trace in chart["data"]:
        assert trace["hoverinfo"] in ("text", "skip")
        if trace["hoverinfo"] == "text":
            assert np.shape(trace["hovertext"]) == np.shape(trace.get("z", trace.get("x")))


@pytest.mark.parametrize("name", CHARTS)
def test_of_a_single_layer_of_one_head(name, tmp_path) -> None:
    run = write_synthetic_run(tmp_path, qk_norm=True, n_layers=1, q_heads=1, kv_heads=1)
    go.Figure(read(name, run))


def test_a_figure_without_a_chart(plain) -> None:
    assert chart_block("entropy", plain) is None


def test_the_map_of_first_mass_reads_the_table(plain) -> None:
    (trace,) = read("first_mass", plain)["data"]
    matrix = tables.by_head(plain.tables["sinks"], "first_mass", "q_head")
    np.testing.assert_allclose(trace["z"], matrix, rtol=1e-5)
    value = matrix.at[3, 2]
    assert trace["hovertext"][3][2] == f"layer 3, head 2: {value:.3g} (n = 4,096 queries)"


def test_layers_that_see_everything_are_named(normed) -> None:
    (trace,) = read("first_mass", normed)["data"]
    assert trace["hovertext"][2][0].startswith("layer 2 (full attention), head 0: ")
    assert trace["hovertext"][0][0].startswith("layer 0, head 0: ")


def test_lengths_have_a_group_a_class(plain) -> None:
    chart = read("key_lengths", plain)
    groups = list(dict.fromkeys(trace["legendgroup"] for trace in chart["data"]))
    assert groups == ["content", "function", "punctuation", "position 0"]
    rows = tables.lengths(plain, "k", "content")
    line = traces(chart, "content")[-1]
    np.testing.assert_allclose(line["y"], rows.groupby("layer")["p50"].median(), rtol=1e-5)
    heads = traces(chart, "content")[-2]
    assert len(heads["x"]) == len(rows) + rows["head"].nunique()  # a break behind each head


def test_words_are_text(plain) -> None:
    chart = read("word_map", plain)
    said = [text for trace in chart["data"] for text in trace["hovertext"]]
    assert any(text.startswith("&lt;b&gt;bold&lt;/b&gt; (") for text in said)
    assert not any("<b" in text for text in said)
    assert len(said) == len(plain.tables["map"])


def test_nothing_was_measured(tmp_path) -> None:
    run = write_synthetic_run(tmp_path, qk_norm=False, n_layers=2)
    columns = ["p05", "p25", "p50", "p75", "p95"]
    norms = run.tables["norms"].assign(**dict.fromkeys(columns, np.nan))
    run = rewrite(run, norms=norms, sinks=run.tables["sinks"].assign(first_mass=np.nan))
    (trace,) = read("first_mass", run)["data"]
    assert trace["z"] == [[None] * 4] * 2
    assert "head 0: – (n" in trace["hovertext"][0][0]
    go.Figure(read("key_lengths", run))


def test_text_and_colours() -> None:
    assert head_text(7, 3, 0.41234, "1 row") == "layer 7, head 3: 0.412 (n = 1 row)"
    assert shown("<a href='x'>&\u202e") == "&lt;a href='x'&gt;&amp;\\u202e"
    assert veil("#0072B2", 0.25) == "rgba(0,114,178,0.25)"


def test_colours_of_the_page_are_named_and_not_fixed() -> None:
    layout = json.loads(block_of(new_chart(300, note="said")))["layout"]
    assert layout["font"]["color"] == "var(--ink)"
    assert layout["meta"] == {"note": "said"}
    assert layout["height"] == 300
