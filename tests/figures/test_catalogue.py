"""What every figure owes: it draws into the axes it is given, without warnings, and can be read."""

import itertools
import subprocess
import sys
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from geomprobe import tables
from geomprobe.figures.catalogue import FIGURES, figures_of
from geomprobe.figures.style import style
from geomprobe.run.reading import Run
from tests.synthetic_run import rewrite, write_synthetic_run

NAMES = [name for name in FIGURES if FIGURES[name].kind == tables.ANALYSIS]  # the others: test_edit_figures


@pytest.fixture(scope="module")
def deep(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A model of 80 layers."""
    return write_synthetic_run(tmp_path_factory.mktemp("deep"), qk_norm=True, n_layers=80, q_heads=4, kv_heads=1)


def settings() -> dict[str, object]:
    """Matplotlib's settings but the backend, which would load one."""
    return {name: value for name, value in matplotlib.rcParams.items() if name != "backend"}


def drawn(run: Run, name: str) -> tuple[Figure, Axes]:
    """The figure, laid out, and the axes that the draw function handed back."""
    drawing = FIGURES[name]
    figure = Figure(figsize=drawing.size(run), layout="constrained")
    FigureCanvasAgg(figure)
    ax = figure.add_subplot()
    returned = drawing.draw(run, ax)
    assert returned is ax
    figure.draw_without_rendering()
    return figure, ax


def all_axes(ax: Axes) -> list[Axes]:
    return [ax, *(inner for child in ax.child_axes for inner in all_axes(child))]


def check_readable(figure: Figure, ax: Axes) -> None:
    """Nothing cut off, no tick labels over each other, the legend over no panel."""
    renderer = figure.canvas.get_renderer()
    page = figure.bbox.padded(1.0)
    panels = [panel for panel in all_axes(ax) if panel.get_visible()]
    for panel in panels:
        box = panel.get_tightbbox(renderer)
        assert page.x0 <= box.x0, panel
        assert page.y0 <= box.y0, panel
        assert box.x1 <= page.x1, panel
        assert box.y1 <= page.y1, panel
        for axis in (panel.xaxis, panel.yaxis) if panel.axison else ():
            boxes = [
                label.get_window_extent(renderer)
                for label in axis.get_ticklabels()
                if label.get_visible() and label.get_text() and _inside(label, panel, renderer)
            ]
            for one, other in itertools.pairwise(boxes):
                assert not one.overlaps(other), (panel, axis)
    legend = ax.get_legend()
    if legend is not None:
        box = legend.get_window_extent(renderer)
        assert not any(box.overlaps(panel.bbox) for panel in panels if panel.axison)


def _inside(label, panel, renderer) -> bool:
    box, view = label.get_window_extent(renderer), panel.bbox.padded(2.0)
    middle = ((box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2)
    return view.x0 <= middle[0] <= view.x1 or view.y0 <= middle[1] <= view.y1


@pytest.mark.parametrize("kind", ["plain", "normed"])
@pytest.mark.parametrize("name", NAMES)
def test_draws_what_can_be_read(name: str, kind: str, request: pytest.FixtureRequest) -> None:
    run = request.getfixturevalue(kind)
    drawing = FIGURES[name]
    if drawing.missing(run) is not None:
        assert (name, kind) in {("norm_stages", "plain"), ("gains", "plain")}
        assert drawing.missing(run).endswith(".")
        return
    with style():
        check_readable(*drawn(run, name))
    caption = drawing.caption(run)
    assert run.name in caption
    assert "nan" not in caption
    assert "  " not in caption
    assert drawing.alt.endswith(".")


@pytest.mark.parametrize("name", NAMES)
def test_draws_a_single_layer_of_one_head(name: str, tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path, qk_norm=True, n_layers=1, q_heads=1, kv_heads=1)
    with style():
        check_readable(*drawn(run, name))


@pytest.mark.parametrize("name", ["key_lengths", "first_mass", "entropy", "class_sink"])
def test_draws_a_deep_model(name: str, deep: Run) -> None:
    with style():
        check_readable(*drawn(deep, name))


@pytest.mark.parametrize("name", NAMES)
def test_draws_where_nothing_was_seen(name: str, tmp_path: Path) -> None:
    """Statistics of nothing: NaN in every measured column, no sinks, one class only."""
    run = write_synthetic_run(tmp_path, qk_norm=True, n_layers=2)
    tables = {}
    for table, columns in {
        "norms": ["mean", "p01", "p05", "p25", "p50", "p75", "p95", "log_sd", "geo_mean"],
        "logits": ["max", "p999", "row_sd", "entropy", "entropy_no_first"],
        "sinks": ["first_mass"],
        "class_attention": ["lift", "lambda", "class_sink", "neighbour_offset"],
        "gains": ["cv", "max_over_median"],
        "sink_rates": ["rate"],
        "split": ["phi_norm", "phi_angle", "tv", "r2", "beta", "norm_attention_rho"],
        "class_split": ["class_sink", "norm_part", "angle_part"],
        "clusters": ["auc", "auc_low", "auc_high", "auc_shuffled"],
        "neighbours": ["self_retrieval_mrr", "stability", "purity_family", "rare_neighbour_share"],
    }.items():
        tables[table] = run.tables[table].assign(**dict.fromkeys(columns, np.nan))
    run = rewrite(run, sink_tokens=run.tables["sink_tokens"].iloc[:0], **tables)
    if FIGURES[name].missing(run) is None:
        with style():
            check_readable(*drawn(run, name))
        assert "nan" not in FIGURES[name].caption(run)


@pytest.mark.parametrize("name", NAMES)
def test_says_what_is_missing(name: str, tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path, qk_norm=True, n_layers=1)
    run = rewrite(run, **dict.fromkeys(run.tables))
    assert FIGURES[name].missing(run).endswith(".")


def test_figures_of_a_kind_of_run(plain: Run) -> None:
    assert figures_of(plain) == NAMES
    assert {FIGURES[name].kind for name in FIGURES} == set(tables.KINDS)


def test_drawing_changes_no_settings(plain: Run) -> None:
    before = settings()
    with style():
        drawn(plain, "sink_rates")
    assert settings() == before


def test_importing_changes_nothing_and_needs_no_torch() -> None:
    code = (
        "import sys, matplotlib; before = matplotlib.rcParams.copy(); keys = [k for k in before if k != 'backend']\n"
        "import geomprobe.figures.saving, geomprobe.pages.page\n"
        "assert all(matplotlib.rcParams[k] == before[k] for k in keys)\n"
        "bad = {'torch', 'transformers', 'matplotlib.pyplot'} & set(sys.modules)\n"
        "assert not bad, bad"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
