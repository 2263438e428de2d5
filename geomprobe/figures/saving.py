"""Figures as files: the same bytes from the same run."""

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from geomprobe.figures.catalogue import FIGURES, figures_of
from geomprobe.figures.style import style
from geomprobe.run.reading import Run

DPI: Final = 150


class Saved(NamedTuple):
    """The files of one figure."""

    png: Path
    svg: Path


def save_figures(run: Run, folder: str | Path, names: Iterable[str] | None = None) -> dict[str, Saved]:
    """Write PNG and SVG of every figure that the run has something for.

    Parameters
    ----------
    run : Run
        A finished run.
    folder : path
        Where the files go; made where it is missing.
    names : iterable of str, optional
        Figures of the catalogue; by default all that are of such a run.

    Returns
    -------
    dict
        Figure's name → its files, without the figures that this run has nothing for.

    Raises
    ------
    InvalidParameter
        Where a name is not in the catalogue.
    """
    target = Path(folder)
    chosen = [(name, FIGURES[name]) for name in (figures_of(run) if names is None else names)]
    target.mkdir(parents=True, exist_ok=True)
    saved = {}
    for name, drawing in chosen:
        if drawing.missing(run) is not None:
            continue
        saved[name] = save_picture(partial(drawing.draw, run), drawing.size(run), target / name)
    return saved


def save_picture(draw: Callable[[Axes], Axes], size: tuple[float, float], path: Path) -> Saved:
    """Write one picture as PNG and SVG.

    Parameters
    ----------
    draw : callable
        Draws into the axes.
    size : (float, float)
        Inches.
    path : Path
        Of the files, without an ending.
    """
    files = Saved(path.with_name(f"{path.name}.png"), path.with_name(f"{path.name}.svg"))
    with style():
        figure = Figure(figsize=size, layout="constrained")
        draw(figure.add_subplot())
        figure.savefig(files.png, dpi=DPI, metadata={"Software": None})
        figure.set_layout_engine("none")  # the places that the first file has
        figure.savefig(files.svg, metadata={"Date": None, "Creator": None})
    return files
