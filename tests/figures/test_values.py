"""What is drawn is what the tables say: artists against numbers taken from the raw tables by hand."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from geomprobe.figures.catalogue import FIGURES
from geomprobe.figures.style import CLASS_COLOURS, style
from geomprobe.run.reading import Run
from tests.synthetic_run import rewrite, write_synthetic_run


def draw(run: Run, name: str) -> Axes:
    with style():
        figure = Figure(figsize=FIGURES[name].size(run))
        return FIGURES[name].draw(run, figure.add_subplot())


def line(ax: Axes, label: str) -> np.ndarray:
    (found,) = [line for line in ax.get_lines() if line.get_label() == label]
    return np.asarray(found.get_ydata(), float)


def norms(run: Run, **chosen: str) -> pd.DataFrame:
    table = run.tables["norms"]
    for column, value in chosen.items():
        table = table[table[column] == value]
    return table


def medians(table: pd.DataFrame, column: str) -> list[float]:
    return [float(np.median(rows[column])) for _, rows in table.groupby("layer")]


@pytest.mark.parametrize(("name", "vector"), [("key_lengths", "k"), ("query_lengths", "q")])
def test_lengths(plain: Run, name: str, vector: str) -> None:
    panels = draw(plain, name).child_axes
    for panel, token_class in zip(panels, ("content", "function", "punctuation"), strict=True):
        table = norms(plain, vector=vector, stage="scored", token_class=token_class)
        np.testing.assert_allclose(line(panel, f"{token_class} median"), medians(table, "p50"))
        first = norms(plain, vector=vector, stage="scored", token_class="first")
        np.testing.assert_allclose(line(panel, "position 0"), medians(first, "p50"))
        assert f"{table['n'].iloc[0]:,}" in panel.get_title()
        heads = [drawn for drawn in panel.get_lines() if drawn.get_linewidth() < 1]
        assert len(heads) == table["head"].nunique()


def test_norm_stages(normed: Run) -> None:
    panels = draw(normed, "norm_stages").child_axes
    for panel, vector in zip(panels, "kq", strict=True):
        for stage in ("projected", "scored"):
            table = norms(normed, vector=vector, stage=stage, token_class="all")
            np.testing.assert_allclose(line(panel, stage), medians(table, "p50"))


def test_no_stages_without_a_norm(plain: Run) -> None:
    assert "No QK norm" in FIGURES["norm_stages"].missing(plain)
    assert "No QK norm" in FIGURES["gains"].missing(plain)


def test_gains(normed: Run) -> None:
    panels = draw(normed, "gains").child_axes
    table = normed.tables["gains"]
    for panel, column in zip(panels, ("cv", "max_over_median"), strict=True):
        for vector in "qk":
            expected = table.loc[table["vector"] == vector, column]
            np.testing.assert_allclose(line(panel, f"{column} {vector}"), expected)


def test_first_mass(normed: Run) -> None:
    ax = draw(normed, "first_mass")
    area, side, _ = ax.child_axes
    drawn = area.get_images()[0].get_array()
    for row in normed.tables["sinks"].itertuples():
        assert drawn[row.layer, row.q_head] == row.first_mass
    means = [rows["first_mass"].mean() for _, rows in normed.tables["sinks"].groupby("layer")]
    (found,) = [line for line in side.get_lines() if line.get_label() == "layer mean"]
    np.testing.assert_allclose(found.get_xdata(), means)
    (marks,) = [line for line in area.get_lines() if line.get_marker() == "<"]
    assert list(marks.get_ydata()) == [2, 5]  # the layers without a window of 24


def test_sink_rates(plain: Run) -> None:
    ax = draw(plain, "sink_rates")
    table = plain.tables["sink_rates"]
    np.testing.assert_allclose(line(ax, "all"), table.loc[table["layer"] == -1, "rate"])
    assert len([drawn for drawn in ax.get_lines() if drawn.get_linewidth() == 0.9]) == 6


def test_sink_tokens(plain: Run) -> None:
    ax = draw(plain, "sink_tokens")
    first, tokens = ax.child_axes
    table = plain.tables["sink_rates"]
    rate = table.loc[(table["layer"] == -1) & (table["epsilon"] == 0.3), "rate"].iloc[0]
    assert first.patches[0].get_width() == pytest.approx(rate)
    sums = plain.tables["sink_tokens"].groupby("token_id")["n_sink"].sum().sort_values(ascending=False)
    assert [bar.get_width() for bar in tokens.patches] == list(sums[:15])
    labels = [label.get_text() for label in tokens.get_yticklabels()]
    assert "\\n\\n" in labels
    assert "␣$x_1$" in labels
    assert "\\u6f22\\u5b57" in labels  # no glyph in the font
    assert len(set(labels)) == len(labels)


def test_class_lift(plain: Run) -> None:
    ax = draw(plain, "class_lift")
    table = plain.tables["class_attention"]
    for name in ("first", "function", "punctuation"):
        (mark,) = [line for line in ax.get_lines() if line.get_label() == f"{name} median"]
        rows = table[table["token_class"] == name]
        assert mark.get_xdata()[0] == pytest.approx(np.median(rows["lift"]))
        place = int(mark.get_ydata()[0])
        assert ax.get_yticklabels()[place].get_text() == f"{name} (n = {rows['n_tokens'].iloc[0]:,})"
    assert not any("special" in label.get_text() for label in ax.get_yticklabels())


def test_class_sink(plain: Run) -> None:
    ax = draw(plain, "class_sink")
    table = plain.tables["class_attention"]
    for panel in ax.child_axes:
        name, types = panel.get_title().split(" (")
        rows = table[table["token_class"] == name]
        np.testing.assert_allclose(line(panel, f"{name} median"), medians(rows, "class_sink"))
        n = rows["n_types"].iloc[0]
        assert types == f"{n} {'type' if n == 1 else 'types'})"


def test_class_sink_far_from_zero(tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path, qk_norm=False, n_layers=2)
    table = run.tables["class_attention"]
    run = rewrite(run, class_attention=table.assign(class_sink=7 * table["class_sink"]))
    panel = draw(run, "class_sink").child_axes[0]
    assert panel.get_yscale() == "symlog"
    assert {"−1", "0", "+1"} <= {label.get_text() for label in panel.get_yticklabels()}


def test_entropy(normed: Run) -> None:
    ax = draw(normed, "entropy")
    table = normed.tables["logits"]
    # By hand: rows t = 16 … 63 of a causal window of 64; the windowed layers see 24 keys at most.
    full = np.mean([math.log(t + 1) for t in range(16, 64)])
    windowed = np.mean([math.log(min(t + 1, 24)) for t in range(16, 64)])
    expected = [windowed, windowed, full, windowed, windowed, full]
    for panel, column in zip(ax.child_axes, ("entropy", "entropy_no_first"), strict=True):
        np.testing.assert_allclose(line(panel, f"{column} median"), medians(table, column))
    np.testing.assert_allclose(line(ax.child_axes[0], "uniform"), expected)
    out = [math.log(min(t + 1, 24) - (t < 24)) for t in range(16, 64)]  # position 0 leaves the window at t = 24
    assert line(ax.child_axes[1], "uniform")[0] == pytest.approx(np.mean(out))


def test_max_logit(plain: Run) -> None:
    ax = draw(plain, "max_logit")
    for panel, column in zip(ax.child_axes, ("max", "p999", "row_sd"), strict=True):
        np.testing.assert_allclose(line(panel, f"{column} median"), medians(plain.tables["logits"], column))


def test_one_colour_a_group() -> None:
    groups = {CLASS_COLOURS[name] for name in ("content", "function", "punctuation", "first", "newline", "number")}
    assert len(groups) == 6
    assert CLASS_COLOURS["article"] == CLASS_COLOURS["function"]
