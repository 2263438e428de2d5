"""One figure of a run as axes."""

from collections.abc import Iterator

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import geomprobe
from geomprobe.errors import GeomprobeError, InvalidParameter, RunError
from geomprobe.figures.catalogue import FIGURES
from geomprobe.figures.showing import drawable
from geomprobe.run.reading import Run
from tests.synthetic_edits import write_synthetic_edits


@pytest.fixture(autouse=True)
def _no_window() -> Iterator[None]:
    before = mpl.get_backend()
    plt.switch_backend("agg")
    yield
    plt.close("all")
    plt.switch_backend(before)


@pytest.mark.parametrize("name", ["first_mass", "key_lengths", "sink_rates"])
def test_a_figure_of_its_own(normed: Run, name: str) -> None:
    ax = geomprobe.draw(normed, name)
    assert isinstance(ax, Axes)
    assert ax.figure in [plt.figure(number) for number in plt.get_fignums()]  # so that a notebook shows it
    assert tuple(ax.figure.get_size_inches()) == FIGURES[name].size(normed)
    assert ax.get_title(loc="left").startswith(normed.name)


def test_into_axes_that_are_there(plain: Run) -> None:
    figure = Figure()
    left, right = figure.subplots(1, 2)
    assert geomprobe.draw(plain, "sink_rates", right) is right
    assert right.lines
    assert not left.lines
    assert plt.get_fignums() == []


def test_settings_are_left_as_they_were(plain: Run) -> None:
    before = dict(mpl.rcParams)
    geomprobe.draw(plain, "entropy")
    assert dict(mpl.rcParams) == before


def test_a_run_by_its_folder(plain: Run) -> None:
    assert isinstance(geomprobe.draw(str(plain.path), "entropy"), Axes)


def test_an_unknown_name(plain: Run) -> None:
    with pytest.raises(InvalidParameter, match=r"Unknown figure 'first_mas'\. Did you mean 'first_mass'"):
        geomprobe.draw(plain, "first_mas")
    assert plt.get_fignums() == []


def test_nothing_to_draw_says_why(plain: Run) -> None:
    with pytest.raises(RunError, match=r"^This run has no figure 'gains'\. .*gains") as raised:
        geomprobe.draw(plain, "gains")
    assert isinstance(raised.value, GeomprobeError)
    assert plt.get_fignums() == []


def test_figures_of_edits(plain: Run, tmp_path) -> None:
    edits = write_synthetic_edits(tmp_path)
    assert isinstance(geomprobe.draw(edits, "dose_response"), Axes)
    with pytest.raises(RunError, match=r"no figure 'first_mass'\. It is of a run of kind 'analysis'"):
        geomprobe.draw(edits, "first_mass")
    with pytest.raises(RunError, match=r"no figure 'dose_response'\. It is of a run of kind 'intervention'"):
        geomprobe.draw(plain, "dose_response")


def test_all_that_is_drawable_can_be_drawn(plain: Run) -> None:
    names = drawable(plain)
    assert "first_mass" in names
    assert "gains" not in names
    figure = Figure()
    for name in ("class_lift", "norm_share"):
        assert name in names
        geomprobe.draw(plain, name, figure.add_subplot())
