"""What figures of a comparison share: how they are described, the colours and lines of runs, layers at equal depth."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.lines import Line2D

from geomprobe import tables
from geomprobe.comparison.comparison import Comparison
from geomprobe.comparison.sides import depth
from geomprobe.figures.drawing import Drawing
from geomprobe.figures.layout import legend_above
from geomprobe.figures.style import BLACK, BLUE, DEPTH, GREEN, ORANGE, PURPLE, SKY, VERMILION
from geomprobe.run.reading import Run

_COLOURS: Final = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK)
_STYLES: Final = ("-", "--", "-.", ":")
LABEL_WIDTH: Final = 34
MOST_NAMES, FEW_NAMES = 8, 5  # runs that a legend names: all, or of more than that a few
MOST_BANDS: Final = 4  # runs whose bands can be told apart


SideDrawing = Drawing[Comparison]


def all_have(*names: str) -> Callable[[Comparison], str | None]:
    """A `missing` for a figure that needs these tables of every run."""

    def missing(comparison: Comparison) -> str | None:
        for run, label in zip(comparison.sides.runs, comparison.labels, strict=True):
            absent = [name for name in names if not tables.has(run, name)]
            if absent:
                return f"{label} has no values in the table {absent[0]}."
        return None

    return missing


def rows_of_all(
    choose: Callable[[Run], pd.DataFrame],
) -> Callable[[Comparison], pd.DataFrame]:
    """A `data` out of a frame a run, with the run's label in front."""

    def data(comparison: Comparison) -> pd.DataFrame:
        parts = []
        for run, label in zip(comparison.sides.runs, comparison.labels, strict=True):
            rows = choose(run)
            parts.append(rows.assign(run=label)[["run", *rows.columns]])
        return pd.concat(parts, ignore_index=True)

    return data


def colours(n: int) -> list[str]:
    """A colour a run; beyond seven from a scale, as runs in such number are mostly along an axis."""
    if n <= len(_COLOURS):
        return list(_COLOURS[:n])
    return [to_hex(shade) for shade in colormaps[DEPTH](np.linspace(0, 0.92, n))]


def line_style(index: int) -> str:
    """A line a run, so that colour is not all that tells runs apart."""
    return _STYLES[index % len(_STYLES)]


def short(label: str) -> str:
    """A label that fits a panel's title."""
    cut = label if len(label) <= LABEL_WIDTH else f"{label[: LABEL_WIDTH - 1]}…"
    shown = cut.replace("$", r"\$")  # no formula
    return f" {shown}" if shown.startswith("_") else shown  # which a legend would leave out


def keys_of_runs(comparison: Comparison) -> list[Artist]:
    """The legend's entries of the runs."""
    return [
        Line2D([], [], color=colour, linestyle=line_style(index), linewidth=2, label=short(label))
        for index, _, label, colour in _named_runs(comparison)
    ]


def dots_of_runs(comparison: Comparison) -> list[Artist]:
    """The same where runs are dots with bars."""
    return [
        Line2D([], [], color=colour, linewidth=2, marker="o", label=short(label))
        for _, _, label, colour in _named_runs(comparison)
    ]


def _named_runs(comparison: Comparison) -> list[tuple[int, Run, str, str]]:
    """The runs that a legend names: of many a few, whose colours say where the others lie."""
    return some_runs(comparison, comparison.sides.n if comparison.sides.n <= MOST_NAMES else FEW_NAMES)


def headline(ax: Axes, title: str, handles: Sequence[Artist] = (), *, above: float = 4, columns: int = 4) -> None:
    """Title and legend over the axes, `above` points away from them."""
    rows = legend_above(ax, handles, above=above, columns=columns)
    ax.set_title(title, loc="left", pad=above + 17 * rows + (6 if rows else 2), fontweight="bold", parse_math=False)


def depth_axis(ax: Axes, *, label: bool = True) -> None:
    """Relative depth along x, from the input to the output."""
    ax.set_xlim(0, 1)
    ax.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "¼", "½", "¾", "1"])
    if label:
        ax.set_xlabel("relative depth")


def at_depth(run: Run, by_layer: Any) -> Any:
    """A series or frame by layer, by relative depth instead, with a row for every attention layer."""
    places = depth(run)
    placed = by_layer.reindex(places.index)
    placed.index = places.to_numpy()
    return placed


def each_run(comparison: Comparison) -> Iterable[tuple[int, Run, str, str]]:
    """Index, run, label and colour of each run."""
    return zip(
        range(comparison.sides.n), comparison.sides.runs, comparison.labels, colours(comparison.sides.n), strict=True
    )


def some_runs(comparison: Comparison, most: int) -> list[tuple[int, Run, str, str]]:
    """At most so many runs, evenly from the first to the last: what has a panel a run would grow without end."""
    every = list(each_run(comparison))
    chosen = np.unique(np.linspace(0, len(every) - 1, min(most, len(every))).round().astype(int))
    return [every[index] for index in chosen]


def left_out(comparison: Comparison, most: int) -> str:
    """What a caption says of the runs that have no panel."""
    n = comparison.sides.n
    return f"{most} of the {n} runs are shown, evenly from the first to the last. " if n > most else ""


def text_of(comparison: Comparison) -> str:
    """What was read, for the end of a caption."""
    corpus = comparison.sides.runs[0].manifest["corpus"]
    n = len(comparison.sides.documents)
    return f"{tables.count(n, 'common document')} of {corpus['name']}."
