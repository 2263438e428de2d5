"""The figures of a comparison: they draw a pair, three of other shapes, and say why where there is nothing."""

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from geomprobe.comparison import kinds, measured
from geomprobe.comparison.comparison import compare_runs
from geomprobe.figures.side_catalogue import SIDE_FIGURES, side_figures_of
from geomprobe.figures.side_differences import SMALL
from geomprobe.figures.side_drawing import colours, keys_of_runs, left_out, line_style, some_runs
from geomprobe.figures.style import style
from tests.comparison.made import made_run, trained, with_words
from tests.figures.test_catalogue import all_axes, check_readable
from tests.synthetic_run import rewrite, write_synthetic_run

NAMES = [name for name in SIDE_FIGURES if name != "over"]


def few_documents(run, n=3):
    """The same run of fewer documents."""
    made = {}
    for name, table in run.tables.items():
        made[name] = table[table["document"] < n] if "document" in table and name != "contexts" else table
    corpus = run.manifest["corpus"]
    corpus["windows"] = [window for window in corpus["windows"] if window["document"] < n]
    corpus["documents"] = corpus["documents"][:n]
    return rewrite(run, **made)


@pytest.fixture(scope="module", autouse=True)
def fast():
    """Fewer draws: nothing here hangs on them."""
    with pytest.MonkeyPatch.context() as patch:
        for function in (measured.of_documents, kinds.class_sinks):
            patch.setitem(function.__kwdefaults__, "draws", 200)
        patch.setattr("geomprobe.comparison.words.AUC_DRAWS", 40)
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory, fast):
    """Comparisons by kind, each made once."""
    root = tmp_path_factory.mktemp("sides")

    def synthetic(name, **more):
        return write_synthetic_run(
            root / name, **{"qk_norm": False, "n_layers": 3, "q_heads": 2, "kv_heads": 1, **more}
        )

    plain, normed = synthetic("plain"), synthetic("normed", qk_norm=True, seed=1)
    deep = synthetic("deep", n_layers=7, q_heads=5, kv_heads=5, seed=2)
    single = [synthetic(f"single{at}", n_layers=1, q_heads=1, qk_norm=bool(at), seed=at) for at in (0, 1)]
    wordless = [
        rewrite(synthetic(f"wordless{at}", seed=at), clusters=None, neighbours=None, type_stats=None) for at in (0, 1)
    ]
    return {
        "pair": compare_runs([plain, normed]),
        "trio": compare_runs([plain, normed, deep]),
        "one layer": compare_runs(single),
        "without words": compare_runs(wordless),
        "few documents": compare_runs([few_documents(synthetic(f"few{at}", seed=at)) for at in (0, 1)]),
    }


MISSING = {
    "pair": {},
    "trio": {},
    "one layer": {},
    "without words": {
        "class_sinks": "The runs share no types of words often enough.",
        "clusters": "synthetic-plain (wordless0) has no values in the table clusters.",
        "neighbours": "synthetic-plain (wordless0) has no values in the table neighbours.",
    },
    "few documents": {
        "class_sinks": "The runs share no types of words often enough.",
        "differences": "There is no interval: these runs share 3 documents, and five are needed.",
    },
}


def drawn(comparison, name):
    """The figure, laid out, and its axes."""
    drawing = SIDE_FIGURES[name]
    figure = Figure(figsize=drawing.size(comparison), layout="constrained")
    FigureCanvasAgg(figure)
    ax = figure.add_subplot()
    assert drawing.draw(comparison, ax) is ax
    figure.draw_without_rendering()
    return figure, ax


def check(comparison, name):
    """It can be read, and its words say what they should."""
    drawing = SIDE_FIGURES[name]
    with style():
        figure, ax = drawn(comparison, name)
        check_readable(figure, ax)
    caption = drawing.caption(comparison)
    assert "nan" not in caption
    assert "  " not in caption
    assert caption.endswith(".")
    assert drawing.alt.endswith(".")
    assert len(drawing.data(comparison))
    return figure, ax, caption


@pytest.mark.parametrize("kind", MISSING)
@pytest.mark.parametrize("name", NAMES)
def test_draws_what_can_be_read_or_says_what_is_missing(name, kind, made):
    comparison = made[kind]
    reason = SIDE_FIGURES[name].missing(comparison)
    assert reason == MISSING[kind].get(name)
    if reason is None:
        check(comparison, name)


@pytest.mark.parametrize("name", NAMES)
def test_captions_give_n(name, made):
    comparison = made["pair"]
    caption = SIDE_FIGURES[name].caption(comparison)
    n = len(comparison.sides.documents)
    assert f"{n} common documents of novels <&>." in caption or "n = " in caption or name == "neighbours"


def test_captions_tell_heads_and_nouns_of_each_run(made):
    caption = SIDE_FIGURES["sinks"].caption(made["trio"])
    assert "n = 6 query heads of synthetic-plain (plain), 6 query heads of synthetic-normed" in caption
    assert "35 query heads of synthetic-plain (deep)" in caption
    assert "n = 32 nouns of" in SIDE_FIGURES["clusters"].caption(made["trio"])


def test_filled_points_are_those_beyond_the_band(made):
    comparison = made["pair"]
    with style():
        _, ax = drawn(comparison, "differences")
    points = [line for panel in all_axes(ax) for line in panel.get_lines() if line.get_marker() == "o"]
    table = comparison.differences
    shown = table[(table["where"] == "all layers") & table["low"].notna()]
    assert len(points) == len(shown)
    filled = sum(point.get_markerfacecolor() != "white" for point in points)
    assert filled == int(shown["beyond"].sum())


def test_shares_are_drawn_in_percentage_points(made):
    comparison = made["pair"]
    with style():
        _, ax = drawn(comparison, "differences")
    (panel,) = (one for one in all_axes(ax) if one.get_xlabel() == "percentage points")
    (x, *_), *_ = [line.get_xdata() for line in panel.get_lines() if line.get_marker() == "o"]
    assert x == pytest.approx(100 * comparison.whole("first_mass")["difference"])


def test_differences_along_the_depth_are_those_of_the_table(made):
    comparison = made["trio"]
    with style():
        _, ax = drawn(comparison, "by_depth")
    (panel,) = (one for one in all_axes(ax) if one.get_title() == SMALL["entropy"])
    lines = [line for line in panel.get_lines() if len(line.get_xdata()) == 3]
    keys = ax.get_legend().get_lines()
    assert [line.get_linestyle() for line in lines] == [key.get_linestyle() for key in keys]
    assert [line.get_color() for line in lines] == [key.get_color() for key in keys]
    table = comparison.by_depth
    for line, label in zip(lines, comparison.labels[1:], strict=True):
        own = table[(table["quantity"] == "entropy") & (table["b"] == label)]
        assert line.get_ydata() == pytest.approx(own["difference"].to_numpy())


def test_no_text_is_set_as_a_formula(tmp_path):
    """A model's name may hold what matplotlib takes for mathematics."""
    runs = [write_synthetic_run(tmp_path / name, qk_norm=False, n_layers=1, q_heads=1, kv_heads=1) for name in "ab"]
    for run, name in zip(runs, ("cost $\\frac{ $5", "_hidden <b>"), strict=True):
        run.manifest["model"]["name"] = name
    comparison = compare_runs(runs)
    for name in ("sinks", "first_mass_maps", "differences", "key_lengths"):
        with style():
            drawn(comparison, name)


# ------------------------------------------------------------------ an axis
def strung(n=3, **more):
    """Runs along their step."""
    steps = [10 * 4**at for at in range(n)]
    training = {"arm": "A0", "pair": "p", "step": 0}
    runs = [made_run(f"at {step}", seed=step, training={**training, "step": step}, **more) for step in steps]
    return compare_runs(runs, over="step")


def test_the_axis_is_drawn_where_there_is_one(made):
    assert "over" not in side_figures_of(made["pair"])
    assert SIDE_FIGURES["over"].missing(made["pair"]) == ("These runs are not strung along an axis; --over does so.")
    comparison = strung(5)
    assert list(side_figures_of(comparison))[:2] == ["differences", "over"]
    _, ax, _ = check(comparison, "over")
    panel = next(one for one in all_axes(ax) if one.get_title() == "attention on position 0")
    assert panel.get_xscale() == "log"
    line = next(line for line in panel.get_lines() if line.get_marker() == "o")
    assert line.get_xdata().tolist() == list(comparison.along.values())


def test_many_runs_have_colours_and_lines_apart():
    for n in (2, 7, 20):
        assert len({*colours(n)}) == n
        assert len({(shade, line_style(index)) for index, shade in enumerate(colours(n))}) == n


def test_five_runs_can_be_read():
    check(strung(5), "first_mass_maps")


def test_where_nothing_is_kept_by_document_it_says_so(tmp_path):
    one, other = (with_words(made_run(name), tmp_path / name) for name in ("one", "other"))
    for run in (one, other):
        for table in ("document_stats", "split", "type_stats"):
            del run.tables[table]
    comparison = compare_runs([one, other])
    told = {name: SIDE_FIGURES[name].missing(comparison) for name in NAMES}
    assert told["by_depth"] == "No quantity is kept by document and layer."
    assert told["length_and_angle"] == "one has no values in the table split."
    assert np.isfinite(SIDE_FIGURES["differences"].size(comparison)).all()


def test_of_many_runs_a_few_have_a_panel_and_a_name():
    """What has a panel a run would grow without end, and a legend would leave no room for the picture."""
    runs = [made_run(f"m{index}", **trained(10 * index)) for index in range(21)]
    comparison = compare_runs(runs, over="step")
    shown = [index for index, *_ in some_runs(comparison, 6)]
    assert shown == [0, 4, 8, 12, 16, 20]
    assert left_out(comparison, 6).startswith("6 of the 21 runs are shown")
    assert left_out(comparison, 21) == ""
    assert [key.get_label() for key in keys_of_runs(comparison)] == [f"m{index}" for index in (0, 5, 10, 15, 20)]
    assert "in the table" in (SIDE_FIGURES["differences"].missing(comparison) or "")
    for name in ("over", "first_mass_maps"):
        drawing = SIDE_FIGURES[name]
        if drawing.missing(comparison) is None:
            figure = Figure(figsize=drawing.size(comparison), layout="constrained")
            drawing.draw(comparison, figure.add_subplot())
            FigureCanvasAgg(figure).draw()
