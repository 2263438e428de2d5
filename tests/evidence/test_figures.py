"""The pictures of the evidence: each shows what it says, nothing is cut off, and it copes with what is not there."""

import itertools
import math
import re

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

from geomprobe.evidence.contrasts import Rule
from geomprobe.evidence.drawing import ARM_COLOURS, DASHED, colour_of, curve, curves
from geomprobe.evidence.figures import PICTURES, save
from geomprobe.evidence.forest import _bounds, _joined, _labels, rows_of
from geomprobe.evidence.record import uniform_first
from geomprobe.evidence.tables import weigh
from geomprobe.evidence.training_figures import sink_group, sink_number
from geomprobe.figures.ledger import COLOURS
from geomprobe.figures.style import style
from geomprobe.lab.arms import ARMS
from geomprobe.ledger.writing import WORDS
from tests.evidence.made import LIKELY, made, made_group, made_whole
from tests.evidence.test_page import PARTS


@pytest.fixture(scope="module")
def whole():
    """Runs of all groups."""
    return weigh(made(made_whole(seeds=3)))


def drawn(name, evidence):
    """A picture, laid out; its axes in the order in which they were made."""
    picture = PICTURES[name]
    assert picture.missing(evidence) == ""
    with style():
        figure = Figure(figsize=picture.size(evidence), layout="constrained")
        FigureCanvasAgg(figure)
        ax = figure.add_subplot()
        assert picture.draw(evidence, ax) is ax
        figure.draw_without_rendering()
    return figure, [ax, *ax.child_axes]


def shown(axis):
    """The labels of an axis' ticks; matplotlib has some beyond its ends that it does not draw."""
    low, high = sorted(axis.get_view_interval())
    return [text for at, text in zip(axis.get_ticklocs(), axis.get_ticklabels(), strict=False) if low <= at <= high]


def check_readable(figure, axes):
    """No text beyond the picture's edge, and each as large as people can read."""
    renderer, page = figure.canvas.get_renderer(), figure.bbox.padded(1.5)
    for ax in axes:
        titles = [ax.title, ax._left_title, ax.xaxis.label, ax.yaxis.label]
        ticks = [*shown(ax.xaxis), *shown(ax.yaxis)] if ax.axison else []
        keys = ax.get_legend().get_texts() if ax.get_legend() else []
        for text in (*titles, *ticks, *keys, *ax.texts):
            if text.get_visible() and text.get_text():
                box = text.get_window_extent(renderer)
                inside = page.x0 <= box.x0 and box.x1 <= page.x1 and page.y0 <= box.y0 and box.y1 <= page.y1
                assert inside, (text.get_text(), box)
                assert text.get_fontsize() >= 8, text.get_text()


@pytest.mark.parametrize("name", list(PICTURES))
def test_all_of_it_can_be_read(whole, name):
    figure, axes = drawn(name, whole)
    check_readable(figure, axes)
    picture = PICTURES[name]
    assert picture.caption(whole).endswith(".")
    assert not re.search(r"\bnan\b", picture.caption(whole))
    for ax in axes[1:]:
        assert ax.has_data(), picture.title  # no empty panel


@pytest.mark.parametrize("name", list(PARTS))
def test_whatever_runs_there_are_a_picture_is_drawn_or_missed(name):
    evidence = weigh(made(PARTS[name]))
    for picture in PICTURES.values():
        missing = picture.missing(evidence)
        if missing:
            assert missing.endswith(".")
            continue
        assert not re.search(r"\bnan\b", picture.caption(evidence))
        with style():
            figure = Figure(figsize=picture.size(evidence))
            picture.draw(evidence, figure.add_subplot())


def test_the_same_records_give_the_same_picture(whole, tmp_path):
    files = [save(PICTURES["spread"], whole, tmp_path / f"{name}.png") for name in "ab"]
    assert files[0].read_bytes() == files[1].read_bytes()
    assert files[0].read_bytes().startswith(b"\x89PNG")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.png", "b.png"]


# ---------------------------------------------------------------------- colours
def test_no_two_arms_look_alike():
    looks = {(ARM_COLOURS[arm], arm in DASHED) for arm in ARMS}
    assert len(looks) == len(ARMS)


def test_verdicts_do_not_rest_on_colour(whole):
    _, axes = drawn("forest", whole)
    said = [text.get_text() for text in axes[0].texts]
    for _, row in rows_of(whole):
        assert WORDS[row["verdict"]] in said


# ---------------------------------------------------------------------- the forest
def test_no_words_run_into_strips_or_each_other(whole):
    figure, (ax, *strips) = drawn("forest", whole)
    figure.canvas.draw()
    begin, end = strips[0].get_window_extent().x0, strips[0].get_window_extent().x1
    rows = {}
    for text in ax.texts:
        where = text.get_window_extent()
        rows.setdefault(round(text.get_position()[1], 3), []).append((where.x0, where.x1, text.get_text()))
        assert where.x1 < begin or where.x0 > end, text.get_text()
    for own in rows.values():
        assert all(one[1] < other[0] for one, other in itertools.pairwise(sorted(own))), own


def test_a_strip_a_deciding_contrast_with_its_seeds_and_interval(whole):
    _, (ax, *strips) = drawn("forest", whole)
    rows = rows_of(whole)
    assert len(strips) == len(rows) == sum(len(one.deciding) for one in whole.decisions)
    claims = [text.get_text() for text in ax.texts if text.get_text() in {row["claim"] for _, row in rows}]
    assert claims == [one.claim for one in whole.decisions]
    for strip, (contrast, row) in zip(strips, rows, strict=True):
        seeds, bars = strip.collections[-1], strip.collections[-2]
        np.testing.assert_allclose(seeds.get_offsets()[:, 0], contrast.values)
        np.testing.assert_allclose(bars.get_segments()[0][:, 0], [row["low"], row["high"]])
        assert tuple(bars.get_color()[0]) == to_rgba(COLOURS[row["verdict"]])
        low, high = strip.get_xlim()
        for bound in _bounds(contrast.rule):
            assert low < bound < high


def test_bounds_that_lie_near_each_other_share_a_label():
    assert _labels([-0.25, 0.0, 0.25], 1) == [(0.0, "±0.25")]
    assert _labels([-0.02, 0.0, 0.02], 0.001) == [(-0.02, "−0.02"), (0.0, "0"), (0.02, "0.02")]
    assert _labels([0.0, 0.01, 5], 1)[0][1] == "0, 0.01"
    assert _labels([], 1) == []


def test_spans_are_joined_where_they_touch():
    assert _joined([(0, 1), (-1, 0.5), (2, 3)]) == [(-1, 1), (2, 3)]
    assert list(_bounds(Rule("", above=1, least=-math.inf, within=2))) == [1, 2, -2]


# ---------------------------------------------------------------------- what lines show
def test_lines_are_those_of_the_records(whole):
    _, (_, left, right) = drawn("losses", whole)
    records = whole.records
    ends = {
        (line.get_color(), line.get_linestyle()): line.get_ydata()[-1]
        for line in left.lines
        if line.get_linewidth() == 2
    }
    for arm in ARMS:
        last = np.mean([records.whole[name]["losses"][-1]["loss"] for name in records.rows("nano", arm)["name"]])
        assert ends[colour_of(arm), "--" if arm in DASHED else "-"] == pytest.approx(last)
    assert right.get_lines()[0].get_xdata()[0] >= 0.08 * 733


def test_curves_leave_out_what_was_not_measured(whole):
    name = "nano-A0-s0"
    share = curve(whole.records, name, "radial_share_k")
    assert len(share) == len(whole.records.whole[name]["curves"]) - 1  # nothing follows the last step
    assert curves(whole.records, "nano", "A0", "log_length_k").shape == (33, 3)
    assert curve(whole.records, name, "no such column").empty


def test_uniform_attention_is_that_of_the_rows_looked_at():
    rows = [1 / (t + 1) for t in range(16, 512)]
    assert uniform_first(512, 16) == pytest.approx(sum(rows) / len(rows))
    assert math.isnan(uniform_first(8, 16))


def test_sinks_are_shown_of_the_longest_trainings_there_are(whole):
    assert sink_group(whole.records) == "long"
    assert sink_group(made(made_group("nano", ["A0"], 1))) == "nano"
    _, (_, _, right) = drawn("first_mass", whole)
    shown = np.concatenate([dots.get_offsets()[:, 1] for dots in right.collections if len(dots.get_offsets()) == 3])
    expected = np.concatenate([whole.records.one("long", arm, "first_mass_64") for arm in ("A0", "A1")])
    np.testing.assert_allclose(shown, expected)
    assert right.get_ylim()[1] > max(expected)


def test_older_runs_are_shown_by_what_they_have():
    whole = made_group("nano", ["A0", "A1"], 2)
    assert sink_number(made(whole), "nano") == "first_mass_64"
    del whole["nano-A1-s0"]["numbers"]["first_mass_64"]
    assert sink_number(made(whole), "nano") == "first_mass"


def test_rings_are_where_both_twins_can_be_read():
    evidence = weigh(made(made_group("nano", ["A0", "A1"], 2, planted=LIKELY)))
    _, (_, keys, _) = drawn("clusters", evidence)
    rings = [dots for dots in keys.collections if dots.get_sizes()[0] == 70]
    assert [len(one.get_offsets()) for one in rings] == [2, 2]
    np.testing.assert_allclose(rings[0].get_offsets()[:, 0], rings[1].get_offsets()[:, 0])  # equal loss
    difference = rings[1].get_offsets()[:, 1] - rings[0].get_offsets()[:, 1]
    decided = next(one for one in evidence.decisions if one.claim == "C4").contrasts[0]
    np.testing.assert_allclose(difference, decided.values)
