"""Figures as files: the same bytes from the same run."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from matplotlib.figure import Figure

from geomprobe.figures.catalogue import FIGURES
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
        Figures of the catalogue; all by default.

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
    chosen = [(name, FIGURES[name]) for name in (FIGURES if names is None else names)]
    target.mkdir(parents=True, exist_ok=True)
    saved = {}
    for name, drawing in chosen:
        if drawing.missing(run) is not None:
            continue
        files = Saved(target / f"{name}.png", target / f"{name}.svg")
        with style():
            figure = Figure(figsize=drawing.size(run), layout="constrained")
            drawing.draw(run, figure.add_subplot())
            figure.savefig(files.png, dpi=DPI, metadata={"Software": None})
            figure.set_layout_engine("none")  # the places that the first file has
            figure.savefig(files.svg, metadata={"Date": None, "Creator": None})
        saved[name] = files
    return saved
