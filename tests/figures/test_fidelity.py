"""How near attention is to a softmax of cosines: the lines against the table by hand."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from geomprobe.figures.catalogue import FIGURES
from geomprobe.figures.style import style
from geomprobe.run.reading import Run
from tests.synthetic_run import rewrite, write_synthetic_run

PANELS = {"r2": 0, "tv": 0, "beta": 1}


@pytest.fixture
def own(tmp_path: Path) -> Run:
    """A run that a test may change."""
    return write_synthetic_run(tmp_path, qk_norm=False)


def draw(run: Run) -> Axes:
    with style():
        figure = Figure(figsize=FIGURES["fidelity"].size(run))
        return FIGURES["fidelity"].draw(run, figure.add_subplot())


def rows_of(run: Run, gauge: str) -> pd.DataFrame:
    return run.tables["split"].query(f"gauge == '{gauge}' and first == 'out' and document == -1")


def lines_of(panel: Axes) -> dict[str, np.ndarray]:
    return {line.get_label(): np.asarray(line.get_ydata(), float) for line in panel.get_lines()}


def legend_of(ax: Axes) -> list[str]:
    return [text.get_text() for text in ax.get_legend().get_texts()]


@pytest.mark.parametrize("column", list(PANELS))
@pytest.mark.parametrize("gauge", ["raw", "balanced"])
def test_lines_are_medians_over_heads(normed: Run, gauge: str, column: str) -> None:
    panel = draw(normed).child_axes[PANELS[column]]
    groups = rows_of(normed, gauge).groupby("layer")[column]
    np.testing.assert_allclose(lines_of(panel)[f"{column} {gauge}"], [np.median(own) for _, own in groups])
    assert sum(column in name for name in lines_of(panel)) == 2


def test_bands_are_the_middle_half(plain: Run) -> None:
    heat = draw(plain).child_axes[1]
    for band, gauge in zip(heat.collections, ("raw", "balanced"), strict=True):
        (path,) = band.get_paths()
        groups = rows_of(plain, gauge).groupby("layer")["beta"]
        drawn = {float(layer): path.vertices[path.vertices[:, 0] == layer, 1] for layer, _ in groups}
        for layer, own in groups:
            low, high = np.quantile(own, (0.25, 0.75))
            assert drawn[layer].min() == pytest.approx(low)
            assert drawn[layer].max() == pytest.approx(high)


def test_scales(own: Run) -> None:
    table = own.tables["split"]
    near, heat = draw(rewrite(own, split=table.assign(beta=table["q_head"].add(1) * 10.0))).child_axes
    assert near.get_ylim() == (0, 1.03)
    assert heat.get_yscale() == "linear"
    _, heat = draw(rewrite(own, split=table.assign(beta=10.0 ** (table["layer"] % 3)))).child_axes
    assert heat.get_yscale() == "log"


def test_only_the_raw_gauge(own: Run) -> None:
    table = own.tables["split"]
    run = rewrite(own, split=table[table["gauge"] == "raw"])
    ax = draw(run)
    assert set(lines_of(ax.child_axes[0])) == {"r2 raw", "tv raw"}
    assert "balanced gauge" not in legend_of(ax)
    assert "This run has no balanced gauge." in FIGURES["fidelity"].caption(run)


def test_a_layer_without_rows_breaks_the_line(own: Run) -> None:
    table = own.tables["split"]
    drawn = lines_of(draw(rewrite(own, split=table[table["layer"] != 2])).child_axes[0])["r2 raw"]
    assert np.flatnonzero(np.isnan(drawn)).tolist() == [2]


def test_a_single_layer_tells_the_gauges_apart(tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path, qk_norm=False, n_layers=1)
    heat = draw(run).child_axes[1]
    assert [(line.get_marker(), line.get_fillstyle()) for line in heat.get_lines()] == [("o", "full"), ("o", "none")]


def test_caption(plain: Run) -> None:
    caption = FIGURES["fidelity"].caption(plain)
    table = rows_of(plain, "raw")
    for said in ("β = scale·m·n̄", "½·Σ|A − softmax(β·cos)|", "Position 0 is left out", "one slope a head"):
        assert said in caption
    assert f"{table['q_head'].nunique()} query heads" in caption
    assert f"n = {table['n_rows'].max():,} rows a head, from the second half of the windows." in caption


def test_a_run_of_one_window(own: Run) -> None:
    own.manifest["corpus"]["n_windows"] = 1
    assert "rows a head, from the one window." in FIGURES["fidelity"].caption(own)


def test_no_rows(own: Run) -> None:
    run = rewrite(own, split=own.tables["split"].iloc[:0])
    assert FIGURES["fidelity"].missing(run) == "This run has no values in the table split."
