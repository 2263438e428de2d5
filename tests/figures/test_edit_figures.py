"""Figures of a run of `intervene`: what is drawn is what its table says, and it can be read."""

import math

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from geomprobe import edit_tables, tables
from geomprobe.figures.catalogue import FIGURES, figures_of
from geomprobe.figures.saving import save_figures
from geomprobe.figures.style import CLASS_COLOURS, style
from geomprobe.labels import GAUGES
from geomprobe.run.reading import Run
from tests.figures.test_catalogue import check_readable, drawn
from tests.synthetic_edits import EDITS, interventions, write_synthetic_edits
from tests.synthetic_run import rewrite

NAMES = ["edit_layers", "dose_response"]
PLAIN = [key for key in EDITS if key[0] in ("neutral_norm", "permute_norm")]
TURNED = [("neutral_norm", 1.0, "", ""), next(key for key in EDITS if key[3] == "neutral_norm")]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Run:
    return write_synthetic_edits(tmp_path_factory.mktemp("edits"))


def draw(run: Run, name: str) -> Axes:
    with style():
        figure = Figure(figsize=FIGURES[name].size(run))
        return FIGURES[name].draw(run, figure.add_subplot())


def line(ax: Axes, label: str):
    (found,) = [line for line in ax.get_lines() if line.get_label() == label]
    return found


def rows(run: Run, **chosen) -> pd.DataFrame:
    table = run.tables["interventions"]
    table = table[table["document"] == -1]
    for column, value in chosen.items():
        table = table[table[column] == value]
    return table


# ------------------------------------------------------------------ what every figure owes
@pytest.mark.parametrize(
    "shape",
    [
        {},
        {"qk_norm": True, "gauges": ("raw",)},
        {"documents": 3},
        {"n_layers": 1},
        {"n_layers": 80},
        {"edits": [key for key in EDITS if key[0] == "temperature"]},
        {"edits": [key for key in EDITS if key[0] == "scale_class"], "gauges": ("raw",)},
        {"edits": TURNED},
    ],
    ids=str,
)
@pytest.mark.parametrize("name", NAMES)
def test_draws_what_can_be_read(name, shape, tmp_path) -> None:
    run = write_synthetic_edits(tmp_path, **shape)
    drawing = FIGURES[name]
    if drawing.missing(run) is not None:
        assert (name == "edit_layers") is (shape.get("n_layers") == 1 or len(shape.get("edits", [])) > 3)
        assert drawing.missing(run).endswith(".")
        return
    with style():
        check_readable(*drawn(run, name))
    caption = drawing.caption(run)
    assert run.name in caption
    assert "nan" not in caption
    assert "  " not in caption
    assert drawing.alt.endswith(".")
    documents = shape.get("documents", 16)
    assert f"{47 * documents:,} predicted tokens of {documents} documents" in caption
    assert ("95% intervals" in caption) is (documents >= 5)
    assert ("fewer than five documents" in caption) is (documents < 5)


@pytest.mark.parametrize("name", NAMES)
def test_draws_where_nothing_was_seen(name, tmp_path) -> None:
    run = write_synthetic_edits(tmp_path)
    table = run.tables["interventions"].assign(delta_ce=np.nan, delta_class_sink=np.nan)
    run = rewrite(run, interventions=table)
    with style():
        check_readable(*drawn(run, name))


def test_a_run_of_edits_has_these_alone(run, tmp_path) -> None:
    assert figures_of(run) == NAMES
    assert list(save_figures(run, tmp_path)) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_says_what_is_missing(name, tmp_path) -> None:
    run = write_synthetic_edits(tmp_path, edits=PLAIN)
    assert ("--one-by-one" if name == "edit_layers" else "two strengths") in FIGURES[name].missing(run)
    assert FIGURES[name].missing(rewrite(run, interventions=None)).endswith("table interventions.")


# ------------------------------------------------------------------ edit_layers
def test_edit_layers(run) -> None:
    panels = draw(run, "edit_layers").child_axes
    titles = {"neutral_norm": "lengths evened out", "permute_norm": "lengths shuffled"}
    pairs = [(edit, gauge) for gauge in ("raw", "balanced") for edit in titles]
    assert [panel.get_title() for panel in panels] == [f"{titles[edit]}, {gauge} gauge" for edit, gauge in pairs]
    for panel, (edit, gauge) in zip(panels, pairs, strict=True):
        single = [rows(run, layers=str(layer), gauge=gauge) for layer in range(6)]
        length = [float(own[own["edit"] == edit]["delta_ce"].iloc[0]) for own in single]
        angle = [float(own[own["against"] == edit]["delta_ce"].iloc[0]) for own in single]
        np.testing.assert_allclose(line(panel, titles[edit]).get_ydata(), length)
        np.testing.assert_allclose(line(panel, "directions turned as far").get_ydata(), angle)
        assert list(line(panel, titles[edit]).get_xdata()) == list(range(6))


def test_edit_layers_takes_layers_that_have_both(tmp_path) -> None:
    run = write_synthetic_edits(tmp_path, edits=TURNED, gauges=("raw",))
    table = run.tables["interventions"]
    run = rewrite(run, interventions=table[~((table["against"] != "") & table["layers"].isin(["0", "3"]))])
    (panel,) = draw(run, "edit_layers").child_axes
    for label in ("lengths evened out", "directions turned as far"):
        assert list(line(panel, label).get_xdata()) == [1, 2, 4, 5]


# ------------------------------------------------------------------ dose_response
def bars(panel: Axes) -> list[np.ndarray]:
    return [
        segment for found in panel.collections if isinstance(found, LineCollection) for segment in found.get_segments()
    ]


def test_dose_response(run) -> None:
    panels = draw(run, "dose_response").child_axes
    assert len(panels) == 4  # two edits, two measures
    assert [panel.get_xlabel() for panel in panels] == [
        "",
        "keys of a class e^δ times as long: δ",
        "",
        "logits times β",
    ]
    for first, edit, names in ((0, "scale_class", ("function", "punctuation", "article")), (2, "temperature", ("",))):
        for name in names:
            for gauge in GAUGES:
                own = rows(run, edit=edit, layers="all", gauge=gauge, token_class=name)
                own = own[own["strength"] != edit_tables.NO_EDIT[edit]].sort_values("strength")
                for panel, column in ((panels[first], "delta_ce"), (panels[first + 1], "delta_class_sink")):
                    found = line(panel, f"{name} {gauge}")
                    np.testing.assert_allclose(found.get_xdata(), own["strength"])
                    np.testing.assert_allclose(found.get_ydata(), own[column])
                    assert found.get_color() == CLASS_COLOURS.get(name, "#000000")
                    # The line goes through no edit, which costs nothing; one strength alone has none.
                    lines = [
                        other
                        for other in panel.get_lines()
                        if other.get_linestyle() == ("-" if gauge == "raw" else "--")
                        and other.get_color() == found.get_color()
                        and len(other.get_xdata()) == len(own) + 1
                    ]
                    assert len(lines) == (0 if name == "article" else 1)
                    for through in lines:
                        at = list(through.get_xdata()).index(edit_tables.NO_EDIT[edit])
                        assert through.get_ydata()[at] == 0
                        assert sorted(through.get_xdata()) == list(through.get_xdata())


def test_factors_have_ticks_as_far_as_there_is_room(run, tmp_path) -> None:
    def labels(of: Run) -> list[str]:
        return [label.get_text() for label in draw(of, "dose_response").child_axes[-1].get_xticklabels()]

    assert sorted(labels(run), key=float) == ["0.5", "0.7", "1", "1.5", "2"]
    few = write_synthetic_edits(tmp_path, edits=[key for key in EDITS if key[0] == "temperature"][:2])
    table = few.tables["interventions"]
    near = table.assign(strength=table["strength"].replace(0.7, 0.99))
    assert sorted(labels(rewrite(few, interventions=near)), key=float) == ["0.5", "1"]


def test_bars_are_the_intervals(run) -> None:
    panels = draw(run, "dose_response").child_axes
    costs = edit_tables.joint_costs(run)
    own = costs[(costs["edit"] == "scale_class")]
    due = sorted((row.strength, row.low, row.high) for row in own.itertuples())
    found = sorted((x, low, high) for (x, low), (_, high) in bars(panels[0]))
    np.testing.assert_allclose(found, due)
    assert bars(panels[1]) == []


def test_few_documents_have_no_bars(tmp_path) -> None:
    panels = draw(write_synthetic_edits(tmp_path, documents=4), "dose_response").child_axes
    assert all(math.isnan(value) for ends in bars(panels[0]) for _, value in ends)


# ------------------------------------------------------------------ shaping
def test_costs_are_of_all_layers_or_of_one(run) -> None:
    joint, single = edit_tables.joint_costs(run), edit_tables.single_costs(run)
    assert set(joint["layers"]) == {"all"}
    assert list(joint["setting"])[:2] == ["sham", "sham@balanced"]
    assert set(single["layer"]) == set(range(6))
    assert len(joint) + len(single) == len(edit_tables.edit_costs(run))
    assert edit_tables.edited(run) == "all layers"


@pytest.mark.parametrize(("layers", "words"), [("0,5", "layers 0, 5"), ("3", "layer 3")])
def test_some_layers(layers, words, tmp_path) -> None:
    run = write_synthetic_edits(tmp_path, edits=TURNED)
    table = run.tables["interventions"]
    run = rewrite(run, interventions=table.assign(layers=table["layers"].replace("all", layers)))
    assert edit_tables.edited(run) == words
    assert set(edit_tables.joint_costs(run)["layers"]) == {layers}
    assert (
        str(words) in FIGURES["dose_response"].caption(run) if FIGURES["dose_response"].missing(run) is None else True
    )


def test_doses_need_two_strengths(tmp_path) -> None:
    few = [key for key in EDITS if key[0] == "scale_class" and key[1] == 0.5]
    run = write_synthetic_edits(tmp_path, edits=few)
    assert edit_tables.dose_costs(run, "scale_class").empty
    nothing = [("temperature", 1.0, "", ""), ("temperature", 2.0, "", "")]  # no edit is no strength
    run = write_synthetic_edits(tmp_path / "other", edits=nothing)
    assert edit_tables.dose_costs(run, "temperature").empty


def test_kinds(run, plain) -> None:
    assert tables.kind(run) == "intervention"
    assert tables.kind(plain) == "analysis"
    assert set(interventions(2, 1)["gauge"]) == {"raw", "balanced"}
