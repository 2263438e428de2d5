"""Key length against attention received: colours, line and dots against the table by hand."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection, QuadMesh
from matplotlib.figure import Figure

from geomprobe.figures.catalogue import FIGURES
from geomprobe.figures.length_attention import LEAST, median
from geomprobe.figures.style import style
from geomprobe.run.reading import Run
from tests.synthetic_run import rewrite, write_synthetic_run

THIRDS = ((0, 1), (2, 3), (4, 5))
COLUMNS = ("layer", "first", "length_low", "length_high", "lift_low", "lift_high", "count")


def draw(run: Run) -> list[Axes]:
    """The panels, without the bar of colours."""
    with style():
        figure = Figure(figsize=FIGURES["length_attention"].size(run))
        return FIGURES["length_attention"].draw(run, figure.add_subplot()).child_axes[:-1]


def mesh_of(panel: Axes) -> QuadMesh:
    (found,) = [drawn for drawn in panel.collections if isinstance(drawn, QuadMesh)]
    return found


def dots_of(panel: Axes) -> PathCollection:
    (found,) = [drawn for drawn in panel.collections if isinstance(drawn, PathCollection)]
    return found


def line_of(panel: Axes, label: str) -> np.ndarray:
    (found,) = [line for line in panel.get_lines() if line.get_label() == label]
    return np.asarray(found.get_xydata(), float)


def keys(*bins: tuple[int, bool, float, float, int]) -> pd.DataFrame:
    """A table of bins: layer, first, lower end of length and of lift, count."""
    rows = [(layer, first, x, x + 0.1, y, y + 0.25, count) for layer, first, x, y, count in bins]
    return pd.DataFrame(rows, columns=COLUMNS)


@pytest.fixture
def own(tmp_path: Path) -> Run:
    """A run that a test may change."""
    return write_synthetic_run(tmp_path, qk_norm=False)


@pytest.fixture
def single(tmp_path: Path) -> Run:
    return write_synthetic_run(tmp_path, qk_norm=False, n_layers=1)


def test_colours_are_the_counts(plain: Run) -> None:
    table = plain.tables["length_attention"]
    panels = draw(plain)
    for panel, third in zip(panels, THIRDS, strict=True):
        mesh = mesh_of(panel)
        drawn = mesh.get_array()  # (lift, length)
        edges = mesh.get_coordinates()  # (lift + 1, length + 1, 2)
        own = table[table["layer"].isin(third) & ~table["first"]]
        assert drawn.sum() == own["count"].sum()
        assert drawn.count() == len(own[["length_low", "lift_low"]].round(6).drop_duplicates())
        for (x, y), rows in own.groupby([own["length_low"].round(6), own["lift_low"].round(6)]):
            column = int(np.argmin(abs(edges[0, :, 0] - x)))
            row = int(np.argmin(abs(edges[:, 0, 1] - y)))
            np.testing.assert_allclose(edges[row, column], (x, y), atol=1e-6)
            assert drawn[row, column] == rows["count"].sum()
        assert panel.get_title().startswith(f"layers {third[0]}–{third[1]}\n")
    assert len({mesh_of(panel).norm for panel in panels}) == 1  # one bar for all


def test_dots_are_position_0(plain: Run) -> None:
    table = plain.tables["length_attention"]
    for panel, third in zip(draw(plain), THIRDS, strict=True):
        own = table[table["layer"].isin(third) & table["first"]]
        sums = own.groupby(["length_low", "lift_low"])["count"].sum()
        places = np.asarray(dots_of(panel).get_offsets())
        np.testing.assert_allclose(places, [(x + 0.05, y + 0.125) for x, y in sums.index])
        sizes = dots_of(panel).get_sizes()
        largest = sums.idxmax()
        assert sizes.argmax() == sums.index.get_loc(largest)


def test_medians_by_hand(single: Run) -> None:
    # Of 400 keys of a length 100 lie below 0 and 300 in one bin of .25: the 200th is a third into it.
    table = keys((0, False, 0.0, -0.25, 100), (0, False, 0.0, 0.0, 300), (0, False, 0.3, 1.0, LEAST - 1))
    table = pd.concat([table, keys((0, True, -1.0, 2.0, 3), (0, True, -0.5, 4.0, 1))])
    (panel,) = draw(rewrite(single, length_attention=table))
    np.testing.assert_allclose(line_of(panel, "median"), [(0.05, 0.25 / 3)])
    length, received = -1.0 + 0.1 * 2 / 3, 2.0 + 0.25 * 2 / 3
    np.testing.assert_allclose(line_of(panel, "position 0"), [(length, received)])
    assert f"{math.exp(length):.2g} × length, {math.exp(received):.2g} × share" in panel.get_title()
    np.testing.assert_allclose(dots_of(panel).get_sizes(), [60, 20])


def test_median_of_nothing() -> None:
    assert math.isnan(median(keys(), "lift"))


def test_median_between_bins() -> None:
    rows = keys((0, False, 0.0, 0.0, 5), (0, False, 0.0, 2.0, 5))
    assert median(rows, "lift") == pytest.approx(0.25)  # half of them lie below the end of the first


def test_longer_keys_get_more(plain: Run) -> None:
    """The synthetic run's keys receive .8 of what they are longer, in logs; bins blur it a little."""
    for panel in draw(plain):
        line = line_of(panel, "median")
        assert np.polyfit(line[:, 0], line[:, 1], 1)[0] == pytest.approx(0.8, abs=0.35)


def test_axes_are_labelled_in_factors(single: Run) -> None:
    table = keys((0, False, 0.0, 0.0, 500), (0, True, -1.5, 7.0, 9), (0, False, 0.0, -8.0, 1))
    (panel,) = draw(rewrite(single, length_attention=table))
    for axis, labels in ((panel.xaxis, "0.25 0.5 1 2"), (panel.yaxis, "0.001 0.01 0.1 1 10 100 1,000")):
        texts = [label.get_text() for label in axis.get_ticklabels()]
        assert texts == labels.split()
        np.testing.assert_allclose(axis.get_ticklocs(), np.log([float(text.replace(",", "")) for text in texts]))


def test_no_position_0(single: Run) -> None:
    (panel,) = draw(rewrite(single, length_attention=keys((0, False, 0.0, 0.0, 500))))
    assert panel.get_title().endswith("no position 0 counted")
    assert not [drawn for drawn in panel.collections if isinstance(drawn, PathCollection)]


def test_a_third_without_keys(own: Run) -> None:
    table = own.tables["length_attention"]
    empty = draw(rewrite(own, length_attention=table[table["layer"] > 1]))[0]
    assert [text.get_text() for text in empty.texts] == ["no keys counted"]


def test_caption(plain: Run) -> None:
    caption = FIGURES["length_attention"].caption(plain)
    sums = plain.tables["length_attention"].groupby("first")["count"].sum()
    assert f"n = {sums[False]:,} keys, {sums[True]:,} times position 0" in caption
    assert "Raw gauge" in caption
    assert "where it rises, longer keys get more" in caption


def test_no_rows(own: Run) -> None:
    run = rewrite(own, length_attention=own.tables["length_attention"].iloc[:0])
    assert FIGURES["length_attention"].missing(run) == "This run has no values in the table length_attention."
